package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// fixtures has a data directory of each release, as fill and a stop left it, and beside it what was kept. Until there are releases it has one of the last commit
// before backups, encryption and the rest of what is for operators. `make upgrade` makes them.
const fixtures = "../testdata/upgrade"

// kept is what a client of an older version remembers.
type kept struct {
	From    string            // a version before the last three events of widgets
	Objects map[string]string // what was answered, by path
}

// upgradePaths are the objects that fill leaves.
var upgradePaths = []string{
	widgets + "/a", widgets + "/b", "/api/v1/namespaces/team/configmaps/settings", "/api/v1/namespaces/team/configmaps/applied", "/api/v1/namespaces/team/secrets/password",
	"/apis/coordination.k8s.io/v1/namespaces/team/leases/lease", "/api/v1/namespaces/team", "/apis/rbac.authorization.k8s.io/v1/clusterroles/reader",
}

// has checks that a server has what another one kept, to the last field, that a watch goes on from a version of then, and that it can be written.
func (p *process) has(k kept) {
	p.t.Helper()
	for path, want := range k.Objects {
		var now, then any
		got := p.do(http.StatusOK, "GET", path, "").body
		if err := errors.Join(json.Unmarshal([]byte(got), &now), json.Unmarshal([]byte(want), &then)); err != nil || !reflect.DeepEqual(now, then) {
			p.t.Errorf("%s is\n%s, and was\n%s (%v)", path, got, want, err)
		}
	}
	s := p.watch(widgets + "?watch=true&resourceVersion=" + k.From)
	s.expect("ADDED", "b")
	s.expect("MODIFIED", "a")
	s.expect("DELETED", "gone")
	p.do(http.StatusCreated, "POST", widgets, widget("new", 1))
	s.expect("ADDED", "new")
	p.do(http.StatusOK, "DELETE", widgets+"/new", "")
	s.expect("DELETED", "new")
}

// TestUpgrade: each release's data directory opens in this version, with all that was in it, and watches go on.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob(filepath.Join(fixtures, "*.tar.gz"))
	if err != nil || len(found) == 0 {
		t.Fatalf("there are no fixtures: %v", err)
	}
	for _, fixture := range found {
		t.Run(strings.TrimSuffix(filepath.Base(fixture), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f, err := os.Open(fixture)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			unpackFixture(t, f, dir)
			content, err := os.ReadFile(filepath.Join(dir, "kept.json"))
			if err != nil {
				t.Fatal(err)
			}
			var k kept
			if err := json.Unmarshal(content, &k); err != nil {
				t.Fatal(err)
			}
			for range 2 { // and once more, from what this version leaves
				p := start(t, "--data-dir", filepath.Join(dir, "data"))
				p.has(k)
				k.From = p.do(http.StatusOK, "GET", widgets, "").object.Metadata.ResourceVersion
				k = p.change(k)
				p.stop()
			}
		})
	}
}

// change makes the events that has expects after a new version.
func (p *process) change(k kept) kept {
	p.t.Helper()
	k.From = p.do(http.StatusCreated, "POST", widgets, widget("gone", 1)).object.Metadata.ResourceVersion
	p.do(http.StatusOK, "DELETE", widgets+"/b", "")
	k.From = p.do(http.StatusOK, "GET", widgets, "").object.Metadata.ResourceVersion
	p.do(http.StatusCreated, "POST", widgets, widget("b", 1))
	size := p.do(http.StatusOK, "GET", widgets+"/a", "").object.Spec.Size
	p.do(http.StatusOK, "PATCH", widgets+"/a", fmt.Sprintf(`{"spec":{"size":%d}}`, size+1), "Content-Type", "application/merge-patch+json")
	p.do(http.StatusOK, "DELETE", widgets+"/gone", "")
	for _, path := range upgradePaths {
		k.Objects[path] = p.do(http.StatusOK, "GET", path, "").body
	}
	return k
}

// unpackFixture puts a fixture's files below a directory.
func unpackFixture(t *testing.T, from io.Reader, dir string) {
	t.Helper()
	z, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(f, r)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEncryptedDirectoryIsMarked: a directory that was served with encryption says so to programs that know none, by a layout that they refuse, and goes on being
// served by this one.
func TestEncryptedDirectoryIsMarked(t *testing.T) {
	t.Parallel()
	dir, keys := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "keys.json")
	const identity = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{"resources":["secrets"],"providers":[{"identity":{}}]}]}`
	if err := os.WriteFile(keys, []byte(identity), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		more   []string
		layout string
	}{{nil, `"layout":1`}, {[]string{"--encryption-provider-config", keys}, `"layout":2`}, {nil, `"layout":2`}} {
		p := start(t, append([]string{"--data-dir", dir}, step.more...)...)
		p.do(http.StatusOK, "GET", "/api/v1/namespaces", "")
		p.stop()
		if marker, err := os.ReadFile(filepath.Join(dir, "apiserver-lite.json")); err != nil || !strings.Contains(string(marker), step.layout) {
			t.Errorf("after %q the marker is %s, want %s (%v)", step.more, marker, step.layout, err)
		}
	}
}
