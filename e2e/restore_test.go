package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRestore: a copy of a stopped server's directory is a backup. A client that has seen what the copy lacks is told
// to list again, and one that hasn't goes on where it was.
func TestRestore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, "--data-dir", dir)
	p.define()
	first := p.do(http.StatusCreated, "POST", widgets, widget("first", 1)).object
	p.do(http.StatusCreated, "POST", widgets, widget("second", 1))
	p.stop()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	p = start(t, "--data-dir", dir)
	for i := range 20 {
		p.do(http.StatusCreated, "POST", widgets, widget(fmt.Sprint("lost-", i), 1))
	}
	seen := p.do(http.StatusOK, "GET", widgets, "").object.Metadata.ResourceVersion
	p.stop()

	restored := filepath.Join(t.TempDir(), "restored")
	if err := os.CopyFS(restored, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	// What CopyFS makes is as open as the process's mask lets it be.
	if err := os.Chmod(restored, 0o700); err != nil {
		t.Fatal(err)
	}
	p = start(t, "--data-dir", restored)
	list := p.do(http.StatusOK, "GET", widgets, "").object
	if len(list.Items) != 2 || list.Items[0].Metadata.UID != first.Metadata.UID {
		t.Errorf("the restored server has %+v, want the two objects of the backup", list.Items)
	}
	if a := p.do(http.StatusOK, "GET", widgets+"?watch=true&timeoutSeconds=5&resourceVersion="+seen, ""); !strings.HasPrefix(a.body, `{"type":"ERROR"`) || !strings.Contains(a.body, `"reason":"Expired","code":410`) {
		t.Errorf("a watch from a version that the backup lacks is answered %s; want the error 410 Expired", a.body)
	}
	p.watch(widgets+"?watch=true&resourceVersion="+first.Metadata.ResourceVersion).expect("ADDED", "second")
	p.stop()
}
