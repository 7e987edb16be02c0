//go:build soak

package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// old is the program of another version, which `make upgrade` builds, and the version's name.
func old(t *testing.T) (program, name string) {
	t.Helper()
	program, name = os.Getenv("OLD_PROGRAM"), os.Getenv("OLD")
	if program == "" || name == "" {
		t.Fatal("OLD_PROGRAM and OLD say which program of another version is meant: make upgrade does it")
	}
	return program, name
}

// fill writes objects of several kinds.
func (p *process) fill() (k kept) {
	p.t.Helper()
	p.define()
	const api = "/api/v1/namespaces"
	p.do(http.StatusCreated, "POST", api, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team"}}`)
	p.do(http.StatusCreated, "POST", api+"/team/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"a":"1"}}`)
	p.do(http.StatusCreated, "PATCH", api+"/team/configmaps/applied?fieldManager=me", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"data":{"a":"1"}}`, "Content-Type", "application/apply-patch+yaml")
	p.do(http.StatusCreated, "POST", api+"/team/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"password"},"stringData":{"a":"1"}}`)
	p.do(http.StatusCreated, "POST", "/apis/coordination.k8s.io/v1/namespaces/team/leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lease"},"spec":{"holderIdentity":"me"}}`)
	p.do(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"reader"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`)
	p.do(http.StatusCreated, "POST", widgets, widget("a", 1))
	k.From = p.do(http.StatusCreated, "POST", widgets, widget("gone", 1)).object.Metadata.ResourceVersion
	p.do(http.StatusCreated, "POST", widgets, widget("b", 1))
	p.do(http.StatusOK, "PATCH", widgets+"/a", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	p.do(http.StatusOK, "DELETE", widgets+"/gone", "")
	k.Objects = map[string]string{}
	for _, path := range upgradePaths {
		k.Objects[path] = p.do(http.StatusOK, "GET", path, "").body
	}
	return k
}

// TestUpgradeBothWays: what one version leaves the other one opens, in turn, and what this version alone can read is refused by name or read as it was. With
// -update the directory that the other version leaves becomes a fixture.
func TestUpgradeBothWays(t *testing.T) {
	program, name := old(t)
	dir := filepath.Join(t.TempDir(), "data")
	from := func(program string) *process {
		return launch(t, run{program: program, args: []string{"--data-dir", dir}}).ready()
	}
	p := from(program)
	k := p.fill()
	p.stop()
	if *update {
		pack(t, dir, k, filepath.Join(fixtures, name+".tar.gz"))
	}
	for round, program := range []string{binary(), program, binary(), program} {
		p := from(program)
		p.has(k)
		k = p.change(k)
		p.stop()
		t.Logf("round %d is done", round)
	}
}

// TestDowngradeOfEncrypted: an older program, which knows no encryption at rest, refuses a directory that was encrypted, by name, and changes nothing.
func TestDowngradeOfEncrypted(t *testing.T) {
	program, _ := old(t)
	dir := filepath.Join(t.TempDir(), "data")
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(keys, []byte(`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{"resources": ["secrets"], "providers": [
{"secretbox": {"keys": [{"name": "k", "secret": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}]}}, {"identity": {}}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	encrypted := []string{"--data-dir", dir, "--encryption-provider-config", keys}
	p := launch(t, run{args: encrypted}).ready()
	k := p.fill()
	p.stop()
	p = launch(t, run{program: program, args: []string{"--data-dir", dir}})
	if code := p.wait(patience); code != 1 || !strings.Contains(p.stderr.String(), "has layout 2, made by a newer version") {
		t.Errorf("the older program ended with %d: %s", code, p.stderr)
	}
	p = launch(t, run{args: encrypted}).ready()
	p.has(k)
	p.stop()
}

// TestUpgradeOfMembers rolls three members that share a store from the other version to this one, and one of them back: at each step all serve what any of them
// has acknowledged, and take writes.
func TestUpgradeOfMembers(t *testing.T) {
	program, _ := old(t)
	members := make([]*clusterMember, 3)
	from := func(m *clusterMember, program string, more ...string) {
		m.process = launch(t, run{program: program, args: append(m.args(), more...)}).ready()
	}
	for i := range members {
		members[i] = &clusterMember{dir: filepath.Join(t.TempDir(), "data"), address: loopback.Address(t)}
		var join []string
		if i > 0 {
			join = []string{"--join", members[0].address, "--join-token-file", filepath.Join(members[0].dir, "join-token")}
		}
		from(members[i], program, join...)
	}
	members[0].awaitVoters(3, 0)
	members[0].define()
	step := func(name string) {
		t.Helper()
		members[0].awaitVoters(3, 0)
		for i, m := range members {
			object := fmt.Sprintf("%s-%d", name, i)
			eventually(t, "it takes a write", func() bool { // a member that has just come may say to try again
				a, err := m.try("POST", widgets, widget(object, 1))
				return err == nil && (a.code == http.StatusCreated || a.code == http.StatusConflict)
			})
			for _, other := range members {
				other.do(http.StatusOK, "GET", widgets+"/"+object, "")
			}
		}
	}
	step("all-old")
	for i, m := range members {
		m.stop()
		from(m, binary())
		step(fmt.Sprintf("new-%d", i))
	}
	members[1].stop()
	from(members[1], program)
	step("back")
	for _, m := range members {
		if n := len(m.do(http.StatusOK, "GET", widgets, "").object.Items); n != 5*len(members) {
			t.Errorf("a member has %d widgets, want %d", n, 5*len(members))
		}
	}
}

// pack writes a fixture. The files that etcd has allocated ahead are left out: it makes them when they're missing.
func pack(t *testing.T, dir string, k kept, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression) // the level is one
	w := tar.NewWriter(z)
	add := func(name string, content []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	page, err := json.MarshalIndent(k, "", "  ")
	if err == nil {
		err = add("kept.json", page)
	}
	err = errors.Join(err, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, ".tmp") {
			return err
		}
		name, _ := filepath.Rel(dir, path) // it's below
		from, err := os.Open(path)
		if err != nil {
			return err
		}
		defer from.Close()
		content, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		return add("data/"+filepath.ToSlash(name), content)
	}))
	if err := errors.Join(err, w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
