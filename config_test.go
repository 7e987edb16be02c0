package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// config writes a file for --config, and returns its path.
func config(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestConfigFile: what is in the file counts unless the command line or the environment says otherwise.
func TestConfigFile(t *testing.T) {
	path := config(t, "# comment\ndata-dir: from-file\nlisten: 127.0.0.1:1\nhistory: 5m\nconsole: false\nhttp2-max-streams: 7\nallowed-hosts: [a.test, b.test]\ncors-allowed-origins: ['^https://a{1,2}$']\n")
	env := map[string]string{"APISERVER_LITE_LISTEN": "127.0.0.1:2", "APISERVER_LITE_CONFIG": path}
	var f flags
	if err := parse(&f, []string{"--data-dir=from-flag"}, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	s := &f.server
	if s.Data.Dir != "from-flag" || s.Serving.Listen != "127.0.0.1:2" || s.Data.History.String() != "5m0s" || !s.Serving.NoConsole || s.Bounds.HTTP2MaxStreams != 7 ||
		!slices.Equal(s.Serving.AllowedHosts, []string{"a.test", "b.test"}) || !slices.Equal(s.Serving.CORSAllowedOrigins, []string{"^https://a{1,2}$"}) {
		t.Errorf("it is %+v, %+v, %+v", s.Data, s.Serving, s.Bounds)
	}
	for _, empty := range []string{"", "# nothing\n"} {
		if err := parse(&flags{}, []string{"--config", config(t, empty)}, noEnv); err != nil {
			t.Errorf("of %q it says %v", empty, err)
		}
	}
}

// TestConfigFileRefused: a file that says what isn't understood is refused with the line.
func TestConfigFileRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown flag":         {"listen: x\nfrob: 1\n", "line 2: there is no flag --frob that a file may set"},
		"another file":            {"config: x\n", "line 1: there is no flag --config that a file may set"},
		"a flag twice":            {"listen: a\nlisten: b\n", "line 2: "},
		"a value of a wrong type": {"\nhistory: soon\n", "line 2: "},
		"no value":                {"listen:\n", "line 1: listen has to be one value"},
		"a list for one":          {"listen: [a]\n", "line 1: listen has to be one value"},
		"a mapping in a list":     {"allowed-hosts: [a, {b: c}]\n", "line 1: allowed-hosts: element 2 has to be one value"},
		"a list of flags":         {"- listen\n", "line 1: it has to be flags and their values"},
		"no YAML":                 {"a: [\n", "config.yaml: yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := process{cli.Process{Getenv: noEnv, Out: &stdout, Err: &stderr}, 0}.run([]string{"--config", config(t, c.text)})
			if message := stderr.String(); code != exit.Usage || !strings.Contains(message, c.want) || strings.Count(message, "\n") != 1 {
				t.Errorf("exit %d, %q, want %d and one line with %q", code, message, exit.Usage, c.want)
			}
		})
	}
	if err := parse(&flags{}, []string{"--config", filepath.Join(t.TempDir(), "none")}, noEnv); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("of a missing file it says %v", err)
	}
}

// FuzzConfigFile: whatever a file says, it's taken or refused.
func FuzzConfigFile(f *testing.F) {
	f.Add("listen: a\nallowed-hosts: [a]\n")
	f.Add("? [a]\n: b\n")
	f.Add("a: &a [*a]\n<<: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		_ = parse(&flags{}, []string{"--config", config(t, text)}, noEnv)
	})
}

// TestCheck: --check says whether a server could start, and leaves everything as it was.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	data, foreign := filepath.Join(dir, "data"), filepath.Join(dir, "foreign")
	if err := os.MkdirAll(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(foreign, "photo.jpg"), filepath.Join(dir, "nonsense")} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(code int, want string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		args = append([]string{"--check"}, args...)
		if got := (process{cli.Process{Getenv: noEnv, Out: &stdout, Err: &stderr}, 0}).run(args); got != code || !strings.Contains(stdout.String()+stderr.String(), want) {
			t.Errorf("%v: exit %d, %q, %q, want %d with %q", args, got, stdout.String(), stderr.String(), code, want)
		}
	}
	check(exit.OK, "can be used", "--data-dir", data)
	if _, err := os.Stat(data); err == nil {
		t.Error("it has made the directory")
	}
	check(exit.Failure, "it holds something else", "--data-dir", foreign)
	check(exit.Failure, "is a file", "--data-dir", filepath.Join(dir, "nonsense"))
	check(exit.Failure, "--tls-cert-file", "--ephemeral", "--tls-cert-file", filepath.Join(dir, "nonsense"), "--tls-key-file", filepath.Join(dir, "nonsense"))
	check(exit.Failure, "--encryption-provider-config", "--data-dir", data, "--encryption-provider-config", filepath.Join(dir, "nonsense"))

	s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Dir: data}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := http.Get(s.URL() + "/readyz"); err != nil || res.Body.Close() != nil {
		t.Error(err)
	}
	check(exit.OK, "a server runs on it", "--data-dir", data)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(exit.OK, "the data directory can be used", "--data-dir", data)
	logs, err := filepath.Glob(filepath.Join(data, "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%v, %v", logs, err)
	}
	if err := os.Remove(logs[0]); err != nil {
		t.Fatal(err)
	}
	check(exit.Failure, "data directory "+data, "--data-dir", data)
}
