package playback_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/backup/playback"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// run runs a command against a server, and returns its exit code and what it prints.
func run(ctx context.Context, at string, in io.Reader, stderr io.Writer, args ...string) (code int, out string) {
	var stdout bytes.Buffer
	env := func(name string) string { return map[string]string{"APISERVER_LITE_SERVER": at}[name] }
	p := cli.Process{Getenv: env, In: in, Out: &stdout, Err: stderr}
	return commandline.Run(ctx, commandline.Root(playback.Commands(p)...), args, p.Out, p.Err), stdout.String()
}

// begun is a standard error that calls a function when the recording has begun.
type begun struct {
	bytes.Buffer
	do   func()
	once sync.Once
}

func (b *begun) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("recording from resourceVersion ")) {
		b.once.Do(b.do)
	}
	return b.Buffer.Write(p)
}

// TestCommands: record ends with exit code 0 when it's interrupted, or its time is over, and what it has written is replayed, from a file, a
// compressed one, or the standard input. A file that is there stays as it is.
func TestCommands(t *testing.T) {
	t.Parallel()
	source := servertest.New(t)
	source.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: first}")
	dir := t.TempDir()
	for _, name := range []string{"plain.jsonl", "packed.jsonl.gz", "-"} {
		at := name
		if name != "-" {
			at = filepath.Join(dir, name)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		stderr := &begun{do: interrupt}
		code, out := run(ctx, source.URL, nil, stderr, "record", "configmaps", "-o", at)
		if code != 0 || !strings.Contains(stderr.String(), "\nrecorded ") {
			t.Fatalf("%s: record ends with %d %s", name, code, stderr)
		}
		target := servertest.New(t)
		var errs bytes.Buffer
		code, said := run(t.Context(), target.URL, strings.NewReader(out), &errs, "replay", at, "--speed", "max")
		if code != 0 || !strings.HasPrefix(said, "replayed ") || errs.Len() > 0 {
			t.Errorf("%s: replay ends with %d %s%s", name, code, said, &errs)
		}
		target.Get("/api/v1/namespaces/default/configmaps/first")
		if name == "-" {
			continue
		}
		before, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		if code, _ := run(t.Context(), source.URL, nil, io.Discard, "record", "configmaps", "-o", at, "--for", "1ms"); code != 1 {
			t.Errorf("%s: record into a file that is there ends with %d", name, code)
		}
		if after, err := os.ReadFile(at); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s has changed: %v", name, err)
		}
		cut := filepath.Join(dir, "cut-"+name)
		if err := os.WriteFile(cut, before[:len(before)*2/3], 0o600); err != nil {
			t.Fatal(err)
		}
		errs.Reset()
		if code, _ := run(t.Context(), target.URL, nil, &errs, "replay", cut, "--speed", "step"); code != 1 || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), "the recording is cut at line ") {
			t.Errorf("a cut %s: replay ends with %d %s", name, code, &errs)
		}
	}
}

// TestFor: record ends by itself.
func TestFor(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	var errs bytes.Buffer
	if code, out := run(t.Context(), s.URL, nil, &errs, "record", "-o", "-", "--for", "300ms"); code != 0 || !strings.Contains(out, `"type":"END"`) {
		t.Errorf("record ends with %d %s%s", code, out, &errs)
	}
}

// TestFrom: a recording begins with the state of a moment, however that's named.
func TestFrom(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock)
	const configMaps = "/api/v1/namespaces/default/configmaps"
	s.PostYAML(configMaps, "metadata: {name: first}")
	_, version, _ := strings.Cut(s.Get(configMaps), `"resourceVersion":"`)
	version, _, _ = strings.Cut(version, `"`)
	s.Advance(10 * time.Minute)
	s.PostYAML(configMaps, "metadata: {name: second}")
	s.Advance(10 * time.Minute)
	for from, want := range map[string]string{
		version: "where there are 1 object\n", "15m": "where there are 1 object\n", s.Now().Add(-15 * time.Minute).Format(time.RFC3339): "where there are 1 object\n", "0s": "where there are 2 objects\n",
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		stderr := &begun{do: interrupt}
		if code, _ := run(ctx, s.URL, nil, stderr, "record", "configmaps", "-o", "-", "--from", from); code != 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("--from %s ends with %d %s", from, code, stderr)
		}
	}
}

// TestUsage: what the commands can't use is refused, and says what would do.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, want string }{
		{"record", "where to? apiserver-lite record -o recording.jsonl.gz"},
		{"record -o - --for -1s", "--for -1s: it must be above 0"},
		{"record -o - --from yesterday", "it's a resourceVersion as 120, an instant as"},
		{"replay", "which file? apiserver-lite replay recording.jsonl.gz"},
		{"replay a b", "which file?"},
		{"replay a --speed fast", "must be a number above 0"},
		{"replay a --speed 0", "must be a number above 0"},
		{"replay a --speed NaN", "must be a number above 0"},
		{"replay a --speed -1", "must be a number above 0"},
	} {
		t.Run(test.args, func(t *testing.T) {
			var errs bytes.Buffer
			if code, _ := run(t.Context(), "", nil, &errs, strings.Fields(test.args)...); code != 2 || !strings.Contains(errs.String(), test.want) {
				t.Errorf("it ends with %d %s, want %q", code, &errs, test.want)
			}
		})
	}
	var errs bytes.Buffer
	if code, _ := run(t.Context(), "", nil, &errs, "replay", "nowhere.jsonl"); code != 1 || !strings.Contains(errs.String(), "nowhere.jsonl: no such file") {
		t.Errorf("a file that isn't there: %d %s", code, &errs)
	}
}

// TestNotBegun: a recording that can't begin leaves no file, which would be in the way of the next one.
func TestNotBegun(t *testing.T) {
	t.Parallel()
	source := servertest.New(t)
	for _, test := range []struct{ name, at, args, want string }{
		{"no such resource", source.URL, "record gizmos", "gizmos"},
		{"no server", "http://127.0.0.1:1", "record configmaps", "connection refused"},
	} {
		for _, file := range []string{"a.jsonl", "a.jsonl.gz"} {
			t.Run(test.name+" "+file, func(t *testing.T) {
				at := filepath.Join(t.TempDir(), file)
				var errs bytes.Buffer
				if code, _ := run(t.Context(), test.at, nil, &errs, append(strings.Fields(test.args), "-o", at)...); code != 1 || !strings.Contains(errs.String(), test.want) {
					t.Errorf("it ends with %d %s, want 1 and %q", code, &errs, test.want)
				}
				if _, err := os.Stat(at); !os.IsNotExist(err) {
					t.Errorf("the file is left: %v", err)
				}
			})
		}
	}
}

// TestInterrupted: a replay whose standard input says nothing ends with its context.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	reads, writes := io.Pipe()
	defer writes.Close()
	go cancel()
	var errs bytes.Buffer
	if code, _ := run(ctx, "", reads, &errs, "replay", "-"); code != 130 {
		t.Errorf("it ends with %d %s", code, &errs)
	}
}
