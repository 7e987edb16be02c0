package manifests_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const maps = "/api/v1/namespaces/default/configmaps"

// directory is a server that applies a directory.
type directory struct {
	*servertest.Server
	t   *testing.T
	dir string
	log *await.Log
}

func newDirectory(t *testing.T, prune bool, files map[string]string) *directory {
	t.Helper()
	d := &directory{t: t, dir: t.TempDir(), log: &await.Log{}}
	for name, text := range files {
		d.write(name, text)
	}
	d.start(prune)
	return d
}

func (d *directory) start(prune bool) {
	d.Server = servertest.New(d.t, func(s *server.Server) {
		s.API.Manifests.Dir, s.API.Manifests.Prune = d.dir, prune
		s.Log = slog.New(slog.NewTextHandler(d.log, nil))
	})
}

func (d *directory) write(name, text string) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *directory) remove(name string) {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, name)); err != nil {
		d.t.Fatal(err)
	}
}

// eventually waits until something holds.
func (d *directory) eventually(what string, holds func() bool) {
	d.t.Helper()
	await.Right(d.t, func() string {
		if holds() {
			return ""
		}
		return "it isn't so that " + what + "; the log:\n" + d.log.String()
	})
}

func (d *directory) get(path string) (code int, body string) {
	res, body := d.Do("GET", path, "")
	return res.StatusCode, body
}

func (d *directory) there(path string) {
	d.t.Helper()
	d.eventually(path+" is there", func() bool { code, _ := d.get(path); return code == http.StatusOK })
}

func (d *directory) gone(path string) {
	d.t.Helper()
	d.eventually(path+" is gone", func() bool { code, _ := d.get(path); return code == http.StatusNotFound })
}

func (d *directory) metric(line string) {
	d.t.Helper()
	d.eventually("the metrics have "+line, func() bool { _, body := d.get("/metrics"); return strings.Contains(body, line+"\n") })
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {a: %q}\n", name, value)
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// TestApplied: what is in the directory is applied at the start, whatever its order, and when a file comes or changes. A bad file is one line
// of the log and holds nothing up, and what is mended is applied. Without pruning nothing is deleted.
func TestApplied(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, false, map[string]string{
		"a/widget.yaml":     "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: red, namespace: shop}\n",
		"b/namespace.yml":   "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n" + definition,
		"one.json":          `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"}}`,
		"bad.yaml":          "a: [\n---\n" + configMap("beside", "bad"),
		"refused.yaml":      configMap("Not_A_Name", "x"),
		"notes.txt":         configMap("notes", "x"),
		".hidden/some.yaml": configMap("hidden", "x"),
	})
	for _, path := range []string{"/apis/example.com/v1/namespaces/shop/widgets/red", maps + "/one", maps + "/beside"} {
		d.there(path)
	}
	d.metric("apiserver_lite_manifests_failing 2")
	d.metric(`apiserver_lite_manifests_applied_total{result="success"} 5`)
	for _, file := range []string{"bad.yaml:1", "refused.yaml:1"} {
		if n := strings.Count(d.log.String(), file); n != 1 {
			t.Errorf("the log has %s %d times, want once:\n%s", file, n, d.log)
		}
	}
	if _, body := d.get(maps + "/beside"); !strings.Contains(body, `"manager":"apiserver-lite-manifests","operation":"Apply"`) {
		t.Errorf("it was applied by another: %s", body)
	}

	d.write("refused.yaml", configMap("mended", "x"))
	d.there(maps + "/mended")
	d.write("bad.yaml", configMap("beside", "changed"))
	d.eventually("a change is applied", func() bool { _, body := d.get(maps + "/beside"); return strings.Contains(body, `"changed"`) })
	d.metric("apiserver_lite_manifests_failing 0")
	d.write("later.yaml", configMap("later", "x"))
	d.there(maps + "/later")
	d.remove("one.json")
	d.write("last.yaml", configMap("last", "x"))
	d.there(maps + "/last")
	if code, _ := d.get(maps + "/one"); code != http.StatusOK {
		t.Error("without pruning an object is gone")
	}
	for _, path := range []string{maps + "/notes", maps + "/hidden"} {
		if code, _ := d.get(path); code != http.StatusNotFound {
			t.Errorf("%s was applied", path)
		}
	}
}

// TestTriedAgain: what is refused because of something else is applied when that has changed, though no file has.
func TestTriedAgain(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, false, map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: later}\n"})
	d.metric("apiserver_lite_manifests_failing 1")
	d.Do("POST", "/api/v1/namespaces", `{"metadata":{"name":"later"}}`)
	d.there("/api/v1/namespaces/later/configmaps/a")
	d.metric("apiserver_lite_manifests_failing 0")
}

// TestPruned: what the directory applied is deleted when no file has it any more, and nothing else: neither what somebody else made with the
// same label, nor anything while a file can't be read.
func TestPruned(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, true, map[string]string{
		"a.yaml": configMap("a", "x") + "---\n" + configMap("b", "x"), "c.yaml": configMap("c", "x"), "d.yaml": configMap("d", "x"),
		"definition.yaml": definition,
	})
	for _, name := range []string{"a", "b", "c", "d"} {
		d.there(maps + "/" + name)
	}
	d.Do("POST", maps, `{"metadata":{"name":"copy","labels":{"apiserver-lite/manifests":"true"}}}`)
	d.there(maps + "/copy")

	d.write("bad.yaml", "a: [\n")
	d.metric("apiserver_lite_manifests_failing 1")
	d.remove("c.yaml")
	d.write("a.yaml", configMap("a", "changed"))
	d.eventually("a change is applied", func() bool { _, body := d.get(maps + "/a"); return strings.Contains(body, `"changed"`) })
	d.write("next.yaml", configMap("next", "x"))
	d.there(maps + "/next") // applied by a look that came after the one that would have deleted
	for _, name := range []string{"b", "c"} {
		if code, _ := d.get(maps + "/" + name); code != http.StatusOK {
			t.Errorf("%s was deleted while a file couldn't be read", name)
		}
	}
	d.remove("bad.yaml")
	d.gone(maps + "/b")
	d.gone(maps + "/c")
	d.remove("definition.yaml")
	d.gone("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
	for _, name := range []string{"a", "d", "copy"} {
		if code, _ := d.get(maps + "/" + name); code != http.StatusOK {
			t.Errorf("%s was deleted", name)
		}
	}
}
