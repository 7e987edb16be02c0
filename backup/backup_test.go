package backup_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/backup"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

// run runs the command, and returns its exit code and what it prints.
func run(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := cli.Process{Getenv: func(string) string { return "" }, Out: &stdout, Err: &stderr}
	code = commandline.Run(t.Context(), commandline.Root(backup.Command(p)), append([]string{"snapshot"}, args...), p.Out, p.Err)
	return code, stdout.String(), stderr.String()
}

// must is run for what has to succeed.
func must(t *testing.T, args ...string) (out string) {
	t.Helper()
	code, out, errs := run(t, args...)
	if code != 0 || errs != "" {
		t.Fatalf("snapshot %q: %d %s%s", args, code, out, errs)
	}
	return out
}

func create(t *testing.T, s *servertest.Server, name string) (version string) {
	t.Helper()
	res, body := s.Do("POST", configMaps, `{"metadata":{"name":"`+name+`"}}`)
	var made struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(body), &made); err != nil || res.StatusCode != http.StatusCreated {
		t.Fatal(res.Status, body, err)
	}
	return made.Metadata.ResourceVersion
}

// names are those of the objects that a server has.
func names(t *testing.T, s *servertest.Server) (all []string) {
	t.Helper()
	_, body := s.Do("GET", configMaps, "")
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err, body)
	}
	for _, item := range list.Items {
		all = append(all, item.Metadata.Name)
	}
	return all
}

// inDirectory has a server serve what a directory has while f runs.
func inDirectory(t *testing.T, dir string, f func(t *testing.T, s *servertest.Server)) {
	t.Helper()
	t.Run("server", func(t *testing.T) {
		f(t, servertest.New(t, func(s *server.Server) { s.Data.Ephemeral, s.Data.Dir = false, dir }))
	})
}

// TestRestore: what a server had when it was saved, another one has after the restore; clients of before are told that their versions are
// gone. The same from the stopped server's directory.
func TestRestore(t *testing.T) {
	t.Parallel()
	first, files := t.TempDir(), t.TempDir()
	running, stopped := filepath.Join(files, "running.db"), filepath.Join(files, "stopped.db")
	var seen string
	inDirectory(t, first, func(t *testing.T, s *servertest.Server) {
		create(t, s, "a")
		if said := must(t, "save", running, "--server", s.URL); !strings.HasPrefix(said, "saved "+running+": ") {
			t.Error(said)
		}
		seen = create(t, s, "b")
		if code, _, errs := run(t, "save", stopped, "--data-dir", first); code != 1 || !strings.Contains(errs, "is locked") {
			t.Errorf("of a directory in use: %d %s", code, errs)
		}
	})
	must(t, "save", stopped, "--data-dir", first)
	for file, want := range map[string]string{running: "[a]", stopped: "[a b]"} {
		dir := filepath.Join(t.TempDir(), "restored")
		must(t, "restore", file, "--data-dir", dir)
		inDirectory(t, dir, func(t *testing.T, s *servertest.Server) {
			if got := fmt.Sprint(names(t, s)); got != want {
				t.Errorf("the server has %s, want %s", got, want)
			}
			if res, body := s.Do("GET", configMaps+"?watch=true&resourceVersion="+seen, ""); !strings.Contains(body, `"code":410`) {
				t.Errorf("a watch goes on from before: %s %s", res.Status, body)
			}
			create(t, s, "after")
		})
	}
}

// TestStatus: status says what a file holds.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	create(t, s, "a")
	file := filepath.Join(t.TempDir(), "s.db")
	must(t, "save", file, "--server", s.URL)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("beside the file there is %v", left)
	}
	var st struct {
		Revision, Objects, Bytes int64
		SHA256                   string
	}
	said := must(t, "status", file, "-o", "json")
	if err := json.Unmarshal([]byte(said), &st); err != nil || st.Bytes != info.Size() || st.Objects < 2 || st.Revision < 2 || len(st.SHA256) != 64 {
		t.Errorf("it is %s, %v", said, err)
	}
	if text, want := must(t, "status", file), fmt.Sprintf("%s: %d objects of revision %d, %d bytes\n", file, st.Objects, st.Revision, st.Bytes); text != want {
		t.Errorf("it is %q, want %q", text, want)
	}
}

// TestCut: a snapshot that's cut is begun again, and one that stays cut leaves nothing behind.
func TestCut(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	create(t, s, "a")
	_, whole := s.Do("GET", "/apiserver-lite/v1/snapshot", "")
	for cuts, want := range map[int]int{1: 0, 3: 1} {
		left := cuts
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
			if left--; left >= 0 {
				io.WriteString(w, whole[:len(whole)/2])
				return
			}
			io.WriteString(w, whole)
		}))
		dir := t.TempDir()
		code, _, errs := run(t, "save", filepath.Join(dir, "s.db"), "--server", proxy.URL)
		proxy.Close()
		if code != want || strings.Count(errs, "begun again") != min(cuts, 2) {
			t.Errorf("cut %d times: %d %s", cuts, code, errs)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1-want {
			t.Errorf("cut %d times: there is %v", cuts, left)
		}
	}
}

// TestRefused: what can't be used is refused with what is wrong.
func TestRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "no.db")
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"":                               {2, "see apiserver-lite snapshot --help"},
		"save":                           {2, "see apiserver-lite snapshot --help"},
		"save - --server http://x":       {2, "name a file"},
		"sve x":                          {2, "there is no snapshot sve: restore, save or status: did you mean save?"},
		"status x --server http://x":     {2, "unknown flag: --server"},
		"status x -o yaml":               {2, "only json"},
		"restore x":                      {2, "--data-dir says where"},
		"save x --data-dir y --server z": {2, "takes no flag of a server's"},
		"save x --flag":                  {2, "unknown flag"},
		"status " + file:                 {1, "is no snapshot of this program"},
		"status /nowhere":                {1, "/nowhere can't be read"},
		"restore " + file + " --data-dir " + filepath.Join(filepath.Dir(file), "d"): {1, "is no snapshot of this program"},
		"save /nowhere/x --data-dir /nowhere":                                       {1, "--data-dir /nowhere holds no store"},
		"save x --data-dir " + filepath.Dir(file):                                   {1, "holds no store"},
		"save x --server http://x --kubeconfig y":                                   {2, "exclude each other"},
		"save x --server http://127.0.0.1:1":                                        {1, "connection refused"},
	} {
		code, out, errs := run(t, strings.Fields(args)...)
		if code != want.code || !strings.Contains(errs, want.says) || strings.Count(errs, "\n") != 1 || out != "" {
			t.Errorf("snapshot %s: %d %q %q", args, code, out, errs)
		}
	}
	if code, out, _ := run(t, "--help"); code != 0 || !strings.Contains(out, "snapshot restore FILE --data-dir DIR") {
		t.Error(code, out)
	}
}
