package bundle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	module = ".."
	dist   = "../../server/console/dist"
	// most is how large the console may be as it's sent, in bytes.
	most = 300_000
)

// TestDist: the files that the server has are those that the sources make, with the licenses of what is in them, within their bound.
func TestDist(t *testing.T) {
	files, err := Make(module)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, e := range entries {
		packed, err := os.ReadFile(filepath.Join(dist, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		size += len(packed)
		name := strings.TrimSuffix(e.Name(), ".gz")
		if content, err := Unpack(packed); err != nil || files[name] == nil || !bytes.Equal(content, files[name]) {
			t.Errorf("%s isn't what the sources make: run make console (%v)", e.Name(), err)
		}
		delete(files, name)
	}
	for name := range files {
		t.Errorf("%s.gz is missing: run make console", name)
	}
	if size > most {
		t.Errorf("the console has %d bytes compressed, of at most %d", size, most)
	}
}

// TestTypes: the sources' types fit.
func TestTypes(t *testing.T) {
	if err := Install(module); err != nil {
		t.Fatal(err)
	}
	check := exec.Command(filepath.Join(packages, "node_modules", ".bin", "tsc"), "-p", ".")
	check.Dir = module
	if output, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestNoMarkup: nothing in the sources makes markup of text, which may be an object's.
func TestNoMarkup(t *testing.T) {
	bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|\beval\(|new Function|localStorage|sessionStorage|document\.cookie`)
	err := filepath.WalkDir("../src", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		source, err := os.ReadFile(path)
		if found := bad.Find(source); found != nil {
			t.Errorf("%s has %s", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
