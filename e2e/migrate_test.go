package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMigrate: what a server has in its data directory is served from an etcd cluster after the command of
// docs/operations.md, and from another directory after the way back: the same objects with the same uids, and what was
// written in between.
func TestMigrate(t *testing.T) {
	t.Parallel()
	e := startEtcd(t)
	cluster := "http://" + e.address()
	here, back := filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "back")

	p := start(t, "--data-dir", here)
	p.define()
	for i := range 20 {
		p.do(http.StatusCreated, "POST", widgets, widget(fmt.Sprint("w", i), i))
	}
	p.do(http.StatusOK, "DELETE", widgets+"/w3", "")
	want := uids(p)
	if len(want) != 19 {
		t.Fatalf("the server has %v, want 19 widgets", want)
	}
	p.stop()

	migrate(t, "--from", here, "--etcd-servers", cluster, "--raise-revision")
	p = start(t, "--etcd-servers", cluster)
	if got := uids(p); !maps.Equal(got, want) {
		t.Errorf("the cluster serves %v, want %v", got, want)
	}
	p.do(http.StatusCreated, "POST", widgets, widget("later", 1))
	p.do(http.StatusOK, "DELETE", widgets+"/w4", "")
	want = uids(p)
	p.stop()

	migrate(t, "--to", back, "--etcd-servers", cluster)
	p = start(t, "--data-dir", back)
	if got := uids(p); !maps.Equal(got, want) {
		t.Errorf("the directory serves %v, want %v", got, want)
	}
	p.do(http.StatusCreated, "POST", widgets, widget("last", 1))
	p.stop()
}

// migrate runs the command, which must go well.
func migrate(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(binary(), append([]string{"migrate"}, args...)...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, output)
	}
}

// uids returns the uids of all widgets, by their names.
func uids(p *process) map[string]string {
	p.t.Helper()
	all := map[string]string{}
	for _, o := range p.do(http.StatusOK, "GET", widgets, "").object.Items {
		all[o.Metadata.Name] = o.Metadata.UID
	}
	return all
}
