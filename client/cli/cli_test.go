package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// patience is how long a test waits for what must happen, on a machine that does much else.
const patience = time.Minute

// serve starts a server. When the test ends, after the server and whatever else was cleaned up, none of the test's goroutines
// may be left.
func serve(t *testing.T) *servertest.Server {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	return servertest.New(t)
}

// outcome is what a command came to.
type outcome struct {
	code        int
	out, stderr string
}

// invoke runs a command against a server, "" for none.
func invoke(t *testing.T, server, input string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, stderr bytes.Buffer
	getenv := func(name string) string {
		if name == "APISERVER_LITE_SERVER" {
			return server
		}
		return ""
	}
	code := cli.Run(ctx, args, getenv, strings.NewReader(input), &out, &stderr)
	if ctx.Err() != nil {
		t.Fatalf("%q takes too long", args)
	}
	return outcome{code, out.String(), stderr.String()}
}

const widgets = "../../testdata/crds/widgets.yaml"

// TestCommands: apply, get and delete, and what they print.
func TestCommands(t *testing.T) {
	s := serve(t)
	file := filepath.Join(t.TempDir(), "both.yaml")
	definition, err := os.ReadFile(widgets)
	if err != nil {
		t.Fatal(err)
	}
	object := "---\n# a widget\napiVersion: example.com/v1\nkind: Widget\nmetadata: {name: red, labels: {tier: front}}\nspec: {color: red, size: 3}\n---\n# nothing\n"
	if err := os.WriteFile(file, append(definition, object...), 0o600); err != nil {
		t.Fatal(err)
	}
	blue := `{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "blue"}, "spec": {"color": "blue"}}`
	for _, tt := range []struct {
		args, input string
		code        int
		out         string // exactly
		stderr      string // a part
	}{
		{"apply -f " + file, "", 0, "customresourcedefinitions.apiextensions.k8s.io/widgets.example.com applied\nwidgets.example.com/red applied\n", ""},
		{"apply -f -", blue, 0, "widgets.example.com/blue applied\n", ""},
		{"apply --dry-run -f -", strings.ReplaceAll(blue, "blue", "green"), 0, "widgets.example.com/green applied\n", ""},
		{"get widgets -o name", "", 0, "widgets.example.com/blue\nwidgets.example.com/red\n", ""},
		{"get widgets -l tier=front -o name", "", 0, "widgets.example.com/red\n", ""},
		{"get widgets --field-selector spec.color=blue -o name -A", "", 0, "widgets.example.com/blue\n", ""},
		{"get wd red blue -o name", "", 0, "widgets.example.com/red\nwidgets.example.com/blue\n", ""},
		{"get wd -n nowhere", "", 0, "", "no widgets.example.com found"},
		{"get gizmos", "", 1, "", `no resource "gizmos"`},
		{"get widgets green", "", 1, "", `"green" not found`},
		{"get", "", 2, "", "which resource"},
		{"get widgets -o xml", "", 2, "", `"xml"`},
		{"get widgets -l a=(", "", 2, "", "--selector"},
		{"get widgets --frob", "", 2, "", "--frob"},
		{"get widgets --server ftp://x", "", 2, "", "--server"},
		{"get widgets --server http://127.0.0.1:1", "", 1, "", "connection refused"},
		{"get widgets --kubeconfig nowhere", "", 2, "", "nowhere"},
		{"apply", "", 2, "", "which file"},
		{"apply -f nowhere.yaml", "", 2, "", "nowhere.yaml"},
		{"apply -f -", "kind: Widget", 2, "", "without apiVersion"},
		{"apply -f -", strings.ReplaceAll(blue, "Widget", "Gizmo"), 1, "", "no Gizmo"},
		{"watch", "", 2, "", "which resource"},
		{"watch gizmos", "", 1, "", `no resource "gizmos"`},
		{"watch widgets -o table", "", 2, "", `"table"`},
		{"delete widgets", "", 2, "", "what to delete"},
		{"delete widgets red", "", 0, "widgets.example.com/red deleted\n", ""},
		{"delete widgets red", "", 1, "", `"red" not found`},
		{"delete widgets --all", "", 0, "widgets.example.com deleted\n", ""},
		{"get widgets -o name", "", 0, "", ""},
		{"delete -f " + widgets, "", 0, "customresourcedefinitions.apiextensions.k8s.io/widgets.example.com deleted\n", ""},
	} {
		got := invoke(t, s.URL, tt.input, strings.Fields(tt.args)...)
		if got.code != tt.code || got.out != tt.out || !strings.Contains(got.stderr, tt.stderr) {
			t.Errorf("%s: exit %d\n%s%s; want %d\n%s%s", tt.args, got.code, got.out, got.stderr, tt.code, tt.out, tt.stderr)
		}
	}
	for _, name := range cli.Names {
		if got := invoke(t, "", "", name, "--help"); got.code != 0 || !strings.Contains(got.out, "apiserver-lite "+name) || !strings.Contains(got.out, "--kubeconfig") {
			t.Errorf("%s --help: exit %d, %s", name, got.code, got.out)
		}
	}
}

// TestTable: columns in line, those that are for wide ones only with -o wide, and namespaces when there may be several.
func TestTable(t *testing.T) {
	s := serve(t)
	if got := invoke(t, s.URL, "", "apply", "-f", widgets, "-f", "../../testdata/objects/widget.yaml"); got.code != 0 {
		t.Fatal(got.stderr)
	}
	for args, want := range map[string][]string{
		"get widgets":                     {"NAME COLOR SIZE AGE", "hello red 1"},
		"get widgets hello":               {"NAME COLOR SIZE AGE", "hello red 1"},
		"get widgets -A":                  {"NAMESPACE NAME COLOR SIZE AGE", "default hello red 1"},
		"get widgets -o wide -n default":  {"NAME COLOR SIZE PHASE AGE", "hello red 1"},
		"get widgets.example.com -o wide": {"NAME COLOR SIZE PHASE AGE", "hello red 1"},
	} {
		got := invoke(t, s.URL, "", strings.Fields(args)...)
		lines := strings.Split(got.out, "\n")
		for i, line := range want {
			if i >= len(lines) || !strings.HasPrefix(strings.Join(strings.Fields(lines[i]), " "), line) {
				t.Errorf("%s: exit %d\n%s%s; want %q", args, got.code, got.out, got.stderr, want)
				break
			}
		}
	}
}

// watching is a watch that runs.
type watching struct {
	lines chan string
	stop  func() outcome
}

// startWatch starts a watch whose lines can be waited for.
func startWatch(t *testing.T, server string, args ...string) *watching {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	lines := make(chan string, 1000)
	var stderr bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(ctx, args, func(string) string { return "" }, strings.NewReader(""), w, &stderr)
		w.Close()
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(lines)
		for decoder := json.NewDecoder(r); ; {
			var event struct {
				Type   string
				Object struct{ Metadata struct{ Name string } }
			}
			if decoder.Decode(&event) != nil {
				return
			}
			lines <- event.Type + " " + event.Object.Metadata.Name
		}
	}()
	return &watching{lines, func() outcome {
		cancel()
		code := <-done
		<-read
		return outcome{code: code, stderr: stderr.String()}
	}}
}

// next returns the next lines, so many.
func (w *watching) next(t *testing.T, n int) (lines []string) {
	t.Helper()
	timeout := time.After(patience)
	for range n {
		select {
		case line := <-w.lines:
			lines = append(lines, line)
		case <-timeout:
			t.Fatalf("after %q comes nothing more", lines)
		}
	}
	return lines
}

// TestWatch: first what there is, then what changes; an interruption is no failure.
func TestWatch(t *testing.T) {
	s := serve(t)
	if got := invoke(t, s.URL, "", "apply", "-f", widgets, "-f", "../../testdata/objects/widget.yaml"); got.code != 0 {
		t.Fatal(got.stderr)
	}
	w := startWatch(t, "", "watch", "widgets", "-l", "tier=front", "--server", s.URL)
	got := w.next(t, 1)
	for i := range 3 {
		if applied := invoke(t, s.URL, fmt.Sprintf(`{apiVersion: example.com/v1, kind: Widget, metadata: {name: w%d, labels: {tier: front}}}`, i), "apply", "-f", "-"); applied.code != 0 {
			t.Fatal(applied.stderr)
		}
	}
	if deleted := invoke(t, s.URL, "", "delete", "widgets", "hello"); deleted.code != 0 {
		t.Fatal(deleted.stderr)
	}
	got = append(got, w.next(t, 4)...)
	if want := []string{"ADDED hello", "ADDED w0", "ADDED w1", "ADDED w2", "DELETED hello"}; !slices.Equal(got, want) {
		t.Errorf("it printed %q, want %q", got, want)
	}
	if end := w.stop(); end.code != 0 || end.stderr != "" {
		t.Errorf("it ended with %d, %q", end.code, end.stderr)
	}
}
