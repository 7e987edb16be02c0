package dropin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFillAssets fills a directory twice, and leaves another's programs alone.
func TestFillAssets(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, kubectl), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	dir := filepath.Join(t.TempDir(), "new", "assets")
	for range 2 {
		if got, err := FillAssets(dir, self); err != nil || got != dir {
			t.Fatal(got, err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}
	us, err := os.Stat(self)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{KubeAPIServer, Etcd} {
		if f, err := os.Stat(filepath.Join(dir, name)); err != nil || f.Size() != us.Size() || f.Mode()&0o111 == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(dir, kubectl)); err != nil || to != filepath.Join(path, kubectl) {
		t.Errorf("kubectl is %s, %v", to, err)
	}

	foreign := t.TempDir()
	real := filepath.Join(foreign, Etcd)
	if err := os.WriteFile(real, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := FillAssets(foreign, self); err == nil || !strings.Contains(err.Error(), real) {
		t.Error(err)
	}
	if content, err := os.ReadFile(real); err != nil || string(content) != "#!/bin/sh\n" {
		t.Errorf("%q, %v", content, err)
	}
}
