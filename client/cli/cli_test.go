package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
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

// run runs a command and returns its exit code.
func run(ctx context.Context, args []string, p cli.Process) int {
	return commandline.Run(ctx, commandline.Root(cli.Commands(p)...), args, p.Out, p.Err)
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
	code := run(ctx, args, cli.Process{Getenv: getenv, In: strings.NewReader(input), Out: &out, Err: &stderr})
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
		{"apply --dry-run -f -", strings.ReplaceAll(blue, "blue", "green"), 0, "widgets.example.com/green applied (dry run)\n", ""},
		{"get widgets -o name", "", 0, "widgets.example.com/blue\nwidgets.example.com/red\n", ""},
		{"get widgets -l tier=front -o name", "", 0, "widgets.example.com/red\n", ""},
		{"get widgets --field-selector spec.color=blue -o name -A", "", 0, "widgets.example.com/blue\n", ""},
		{"get widgets --where spec.size>2||spec.color=green -o name", "", 0, "widgets.example.com/red\n", ""},
		{"get widgets --sort-by -spec.color -o name", "", 0, "widgets.example.com/red\nwidgets.example.com/blue\n", ""},
		{"get widgets --sort-by spec.siez -o name", "", 1, "", "the nearest is spec.size"},
		{"get widgets --where spec..size -o name", "", 2, "", "--where: unable to parse"},
		{"get widgets --where spec.size --field-selector spec.color=blue", "", 2, "", "--field-selector and --where exclude each other"},
		{"get widgets red --where spec.size", "", 2, "", "--where and names exclude each other"},
		{"get widgets --sort-by a,b", "", 2, "", "--sort-by: unable to parse"},
		{"get widgets red --sort-by spec.size", "", 2, "", "--sort-by and names exclude each other"},
		{"get widgets --fields spec.size", "", 2, "", "--fields is for -o json"},
		{"get widgets --fields , -o json", "", 2, "", "--fields: unable to parse"},
		{"delete widgets --where spec.size>2 --dry-run", "", 0, "widgets.example.com/red deleted (dry run)\n", ""},
		{"delete widgets -l nothing=here", "", 0, "", "nothing is selected"},
		{"delete widgets red --dry-run", "", 0, "widgets.example.com/red deleted (dry run)\n", ""},
		{"delete --dry-run -f -", blue, 0, "widgets.example.com/blue deleted (dry run)\n", ""},
		{"get wd red blue -o name", "", 0, "widgets.example.com/red\nwidgets.example.com/blue\n", ""},
		{"get wd -n nowhere", "", 0, "", "no widgets.example.com found"},
		{"get gizmos", "", 1, "", `no resource "gizmos"`},
		{"get widgets green", "", 1, "", `"green" not found`},
		{"get", "", 2, "", "which resource"},
		{"get widgets -o xml", "", 2, "", `"xml"`},
		{"get widgets -l a=(", "", 2, "", "--selector"},
		{"get widgets --frob", "", 2, "", "--frob"},
		{"get widgets --server ftp://x", "", 2, "", "ftp://x"},
		{"get widgets --server 127.0.0.1:24000", "", 2, "", "want http://host:port, https://host:port"},
		{"get widgets --server localhost:24000", "", 2, "", "want http://host:port, https://host:port"},
		{"get widgets --server localhost", "", 2, "", "want http://host:port, https://host:port"},
		{"apply -f " + filepath.Dir(file), "", 2, "", filepath.Dir(file) + " is a directory: -f takes files"},
		{"get widgets --server http://127.0.0.1:1", "", 1, "", "connection refused"},
		{"get widgets --kubeconfig nowhere", "", 2, "", "nowhere"},
		{"get widgets -A -n default", "", 2, "", "--namespace and --all-namespaces exclude each other"},
		{"get widgets red -l tier=front", "", 2, "", "--selector and names exclude each other"},
		{"get widgets --server http://127.0.0.1:1 --kubeconfig nowhere", "", 2, "", "--server and --kubeconfig exclude each other"},
		{"get widgets --server http://127.0.0.1:1 --context dev", "", 2, "", "--context"},
		{"get widgets --server http://127.0.0.1:1 --ca-file " + file, "", 2, "", "--ca-file"},
		{"apply", "", 2, "", "which file"},
		{"apply -f -", "", 2, "", "- has no objects"},
		{"apply -f - -f " + file, "# nothing\n", 2, "", "- has no objects"},
		{"apply -f - -n green", strings.Replace(blue, `{"name"`, `{"namespace": "default", "name"`, 1), 2, "", "--namespace"},
		{"delete -f -", "", 2, "", "- has no objects"},
		{"delete -f " + file + " --all", "", 2, "", "--all and --filename exclude each other"},
		{"delete -f " + file + " -l a=b", "", 2, "", "--selector and --filename exclude each other"},
		{"delete -f " + file + " --field-selector metadata.name=red", "", 2, "", "--field-selector and --filename exclude each other"},
		{"delete widgets red --all", "", 2, "", "--all and names exclude each other"},
		{"delete widgets --all -l a=b", "", 2, "", "--selector and --all exclude each other"},
		{"watch widgets red --field-selector spec.color=blue", "", 2, "", "--field-selector and a name exclude each other"},
		{"watch widgets red blue", "", 2, "", `"blue"`},
		{"watch widgets,configmaps red", "", 2, "", "a name is of one resource, and widgets,configmaps are several"},
		{"apply -f nowhere.yaml", "", 2, "", "nowhere.yaml"},
		{"apply -f -", "kind: Widget", 2, "", "without apiVersion"},
		{"apply -f -", strings.ReplaceAll(blue, "Widget", "Gizmo"), 1, "", "no Gizmo"},
		{"watch", "", 2, "", "which resource"},
		{"watch gizmos", "", 1, "", `no resource "gizmos"`},
		{"watch widgets -o table", "", 2, "", `"table"`},
		{"delete widgets", "", 2, "", "what to delete"},
		{"delete widgets red", "", 0, "widgets.example.com/red deleted\n", ""},
		{"delete widgets red", "", 1, "", `"red" not found`},
		{"delete widgets --all", "", 0, "widgets.example.com/blue deleted\n", ""},
		{"get widgets -o name", "", 0, "", ""},
		{"delete -f " + widgets, "", 0, "customresourcedefinitions.apiextensions.k8s.io/widgets.example.com deleted\n", ""},
	} {
		got := invoke(t, s.URL, tt.input, strings.Fields(tt.args)...)
		if got.code != tt.code || got.out != tt.out || !strings.Contains(got.stderr, tt.stderr) {
			t.Errorf("%s: exit %d\n%s%s; want %d\n%s%s", tt.args, got.code, got.out, got.stderr, tt.code, tt.out, tt.stderr)
		}
	}
	for _, name := range []string{"watch", "get", "apply", "delete", "rewrite", "member list", "member remove"} {
		if got := invoke(t, "", "", append(strings.Fields(name), "--help")...); got.code != 0 || !strings.Contains(got.out, "apiserver-lite "+name) || !strings.Contains(got.out, "--kubeconfig") {
			t.Errorf("%s --help: exit %d, %s", name, got.code, got.out)
		}
	}
}

// TestFields: of what is printed and watched, the fields are left that were asked for, and what makes an object known.
func TestFields(t *testing.T) {
	s := serve(t)
	if got := invoke(t, s.URL, "", "apply", "-f", widgets, "-f", "../../testdata/objects/widget.yaml"); got.code != 0 {
		t.Fatal(got.stderr)
	}
	for _, args := range []string{"get widgets", "get widgets hello"} {
		got := invoke(t, s.URL, "", append(strings.Fields(args), "-o", "json", "--fields", "spec.size")...)
		if got.code != 0 || !strings.Contains(got.out, `"name":"hello"`) || !strings.Contains(got.out, `"spec":{"size":1}`) || strings.Contains(got.out, "red") {
			t.Errorf("%s: exit %d\n%s%s", args, got.code, got.out, got.stderr)
		}
	}
	w := startWatch(t, "watch", "widgets", "--fields", "spec.size", "--where", "spec.size<9", "--server", s.URL)
	got := w.next(t, 1)
	for _, spec := range []string{"color: blue, size: 1", "color: blue, size: 2", "size: 9"} {
		if applied := invoke(t, s.URL, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: hello}, spec: {"+spec+"}}", "apply", "-f", "-"); applied.code != 0 {
			t.Fatal(applied.stderr)
		}
	}
	got = append(got, w.next(t, 2)...)
	if want := []string{"ADDED hello", "MODIFIED hello", "DELETED hello"}; !slices.Equal(got, want) {
		t.Errorf("it printed %q, want %q", got, want)
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

// startWatch starts a watch whose events can be waited for.
func startWatch(t *testing.T, args ...string) *watching {
	return startReading(t, func(r io.Reader, lines chan<- string) {
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
	}, args...)
}

// startLines starts a command whose lines can be waited for.
func startLines(t *testing.T, args ...string) *watching {
	return startReading(t, func(r io.Reader, lines chan<- string) {
		for scanner := bufio.NewScanner(r); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}, args...)
}

// startReading starts a command whose output something reads.
func startReading(t *testing.T, read func(io.Reader, chan<- string), args ...string) *watching {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	lines := make(chan string, 1000)
	var stderr bytes.Buffer
	var running sync.WaitGroup
	var code int
	running.Go(func() {
		code = run(ctx, args, cli.Process{Getenv: func(string) string { return "" }, In: strings.NewReader(""), Out: w, Err: &stderr})
		w.Close()
	})
	running.Go(func() {
		defer close(lines)
		read(r, lines)
	})
	stop := func() outcome {
		cancel()
		running.Wait()
		return outcome{code: code, stderr: stderr.String()}
	}
	t.Cleanup(func() { stop() })
	return &watching{lines, stop}
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
	w := startWatch(t, "watch", "widgets", "-l", "tier=front", "--server", s.URL)
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

// TestWatchSeveral: several resources come on one stream, whose objects of one name are told apart.
func TestWatchSeveral(t *testing.T) {
	s := serve(t)
	if got := invoke(t, s.URL, "", "apply", "-f", widgets, "-f", "../../testdata/objects/widget.yaml"); got.code != 0 {
		t.Fatal(got.stderr)
	}
	const maps = `{apiVersion: v1, kind: ConfigMap, metadata: {name: hello}}`
	w := startWatch(t, "watch", "widgets,cm", "--server", s.URL)
	got := w.next(t, 1)
	if applied := invoke(t, s.URL, maps, "apply", "-f", "-"); applied.code != 0 {
		t.Fatal(applied.stderr)
	}
	got = append(got, w.next(t, 1)...)
	if deleted := invoke(t, s.URL, "", "delete", "widgets", "hello"); deleted.code != 0 {
		t.Fatal(deleted.stderr)
	}
	got = append(got, w.next(t, 1)...)
	if want := []string{"ADDED hello", "ADDED hello", "DELETED hello"}; !slices.Equal(got, want) {
		t.Errorf("it printed %q, want %q", got, want)
	}
	if end := w.stop(); end.code != 0 || end.stderr != "" {
		t.Errorf("it ended with %d, %q", end.code, end.stderr)
	}
}

// TestWatchListsAnew: a list that fails between two pages forgets nothing, so what was told before isn't told again, and what
// vanished meanwhile is told. An object that was created anew is another one.
func TestWatchListsAnew(t *testing.T) {
	const a, b, b2 = `{"metadata":{"name":"a","uid":"1","resourceVersion":"3"}}`, `{"metadata":{"name":"b","uid":"2","resourceVersion":"4"}}`,
		`{"metadata":{"name":"b","uid":"3","resourceVersion":"7"}}`
	list := func(version, next, items string) string {
		return `{"kind":"WidgetList","metadata":{"resourceVersion":"` + version + `","continue":"` + next + `"},"items":[` + items + `]}`
	}
	lists := []string{list("5", "", a+","+b), list("8", "more", a+","+b2), "", list("9", "", b2)}
	var mu sync.Mutex // guards lists
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis":
			io.WriteString(w, `{"groups":[{"preferredVersion":{"groupVersion":"example.com/v1"}}]}`)
		case r.URL.Path == "/apis/example.com/v1":
			io.WriteString(w, `{"resources":[{"name":"widgets","kind":"Widget","namespaced":true}]}`)
		case r.URL.Path != "/apis/example.com/v1/widgets":
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Query().Get("watch") == "":
			mu.Lock()
			defer mu.Unlock()
			if lists[0] == "" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			io.WriteString(w, lists[0])
			lists = lists[1:]
		case r.URL.Query().Get("resourceVersion") == "5":
			io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}}`+"\n")
		default:
			io.WriteString(w, `{"type":"MODIFIED","object":{"metadata":{"name":"last","resourceVersion":"10"}}}`+"\n")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(s.Close)
	w := startWatch(t, "watch", "widgets", "-A", "--server", s.URL)
	want := []string{"ADDED a", "ADDED b", "DELETED b", "ADDED b", "DELETED a", "MODIFIED last"}
	if got := w.next(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("it printed %q, want %q", got, want)
	}
}

// TestInterrupted: a command that its context ends before all is done says so, and its exit code does.
func TestInterrupted(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	asked := make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "red.yaml")
	if err := os.WriteFile(file, []byte("{apiVersion: example.com/v1, kind: Widget, metadata: {name: red}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
	}{
		{"get widgets", 130},
		{"get widgets red -o json", 130},
		{"apply -f " + file, 130},
		{"apply -f -", 130}, // of which nothing comes
		{"delete -f " + file, 130},
		{"delete -f -", 130},
		{"delete widgets red", 130},
		{"member list", 130},
		{"watch widgets", 0},
	} {
		t.Run(tt.args, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			in, terminal := io.Pipe()
			defer terminal.Close()
			var out, stderr bytes.Buffer
			reading := telling{in, asked}
			args := append(strings.Fields(tt.args), "--server", s.URL)
			var running sync.WaitGroup
			var code int
			running.Go(func() {
				code = run(ctx, args, cli.Process{Getenv: func(string) string { return "" }, In: reading, Out: &out, Err: &stderr})
			})
			<-asked
			cancel()
			running.Wait()
			if code != tt.code || out.Len() > 0 || (code != 0) != strings.Contains(stderr.String(), "interrupted") {
				t.Errorf("exit %d\n%s%s; want %d", code, &out, &stderr, tt.code)
			}
		})
	}
}

// telling is a terminal that tells when it's read.
type telling struct {
	io.Reader
	asked chan<- struct{}
}

func (r telling) Read(p []byte) (int, error) {
	r.asked <- struct{}{}
	return r.Reader.Read(p)
}

// full is a disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestOutputFails: what couldn't be printed is no success.
func TestOutputFails(t *testing.T) {
	s := serve(t)
	for _, args := range []string{"get namespaces", "get namespaces -o name", "get namespaces -o json", "watch namespaces", "apply --help"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		var stderr bytes.Buffer
		getenv := func(string) string { return "" }
		code := run(ctx, append(strings.Fields(args), "--server", s.URL), cli.Process{Getenv: getenv, Out: full{}, Err: &stderr})
		cancel()
		if code != 1 || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%s: exit %d, %s", args, code, &stderr)
		}
	}
}

// TestKubeconfigFlags: --token-file wins over the kubeconfig's user.
func TestKubeconfigFlags(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"token": "mine", "config": `{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "` + s.URL + `"}}], users: [{name: a, user: {token: theirs}}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{"": "Bearer theirs", "--token-file " + dir + "/token": "Bearer mine"} {
		got := invoke(t, "", "", append(strings.Fields("get widgets --kubeconfig "+dir+"/config"), strings.Fields(args)...)...)
		if got.code != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: exit %d, %s; want %q", args, got.code, got.stderr, want)
		}
	}
}
