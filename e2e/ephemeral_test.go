package e2e

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// files returns the content of every file below a directory, by its path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// subdirs returns the names of the directories in a directory.
func subdirs(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestEphemeral: a server's fresh directory goes with it, also in the data directory of another one, whose
// files are never touched.
func TestEphemeral(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	durable := start(t, "--data-dir", dir)
	durable.define()
	durable.stop()
	mustWrite(t, filepath.Join(dir, "notes", "mine.txt"), 0o600)
	before, had := files(t, dir), subdirs(t, dir)

	p := start(t, "--ephemeral", "--data-dir", dir)
	p.do(http.StatusNotFound, "GET", widgets, "") // it doesn't see the other one's
	p.define()
	if fresh := len(subdirs(t, dir)) - len(had); fresh != 1 {
		t.Errorf("%d directories are new, want 1", fresh)
	}
	p.stop()
	if after := files(t, dir); !maps.Equal(before, after) {
		t.Errorf("files before: %v, after: %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
	if after := subdirs(t, dir); !slices.Equal(had, after) {
		t.Errorf("directories before: %v, after: %v", had, after)
	}
	durable = start(t, "--data-dir", dir)
	durable.do(http.StatusOK, "GET", definitions+"/widgets.example.com", "")
	durable.stop()
}

// TestEphemeralLeftovers: what a killed server left behind goes at the next ephemeral start, but not what
// a live one uses.
func TestEphemeralLeftovers(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]func(dir string) run{
		"in the data directory":      func(dir string) run { return run{args: []string{"--ephemeral", "--data-dir", dir}} },
		"in the temporary directory": func(dir string) run { return run{args: []string{"--ephemeral"}, tmp: dir} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			mustWrite(t, filepath.Join(dir, "apiserver-lite-ephemeral-notes", "mine.txt"), 0o600) // looks alike
			live := launch(t, args(dir)).ready()
			killed := launch(t, args(dir)).ready()
			killed.kill()
			if n := len(subdirs(t, dir)); n != 3 {
				t.Errorf("%d directories, want the notes, a live server's and a killed one's", n)
			}
			next := launch(t, args(dir)).ready()
			if n := len(subdirs(t, dir)); n != 3 {
				t.Errorf("%d directories, want the notes and two live servers'", n)
			}
			live.define()
			next.stop()
			live.stop()
			if left := subdirs(t, dir); !slices.Equal(left, []string{"apiserver-lite-ephemeral-notes"}) {
				t.Errorf("the directories %v are left", left)
			}
		})
	}
}
