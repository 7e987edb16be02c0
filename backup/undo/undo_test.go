package undo_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/backup/undo"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	accounts   = "/api/v1/namespaces/default/serviceaccounts"
)

// run runs an undo against a server, and returns its exit code and what it prints.
func run(t *testing.T, s *servertest.Server, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := cli.Process{Getenv: func(name string) string { return map[string]string{"APISERVER_LITE_SERVER": s.URL}[name] }, Out: &stdout, Err: &stderr}
	code = commandline.Run(t.Context(), commandline.Root(undo.Command(p)), append([]string{"undo"}, args...), p.Out, p.Err)
	return code, stdout.String(), stderr.String()
}

// changed is a server with a version, and what was done since then.
func changed(t *testing.T, options ...func(*server.Server)) (s *servertest.Server, version string) {
	t.Helper()
	s = servertest.New(t, options...)
	for _, name := range []string{"changed", "deleted", "reborn", "same"} {
		s.PostYAML(configMaps, fmt.Sprintf("{metadata: {name: %s, labels: {t: x}}, data: {k: old}}", name))
	}
	s.PostYAML(configMaps, "{metadata: {name: other}, data: {k: old}}")
	s.PostYAML(accounts, "{metadata: {name: mine}}")
	s.Quiescent()
	version = versionNow(t, s)
	for name, patch := range map[string]string{"changed": `{"data":{"k":"new","l":"new"}}`, "other": `{"data":{"k":"new"}}`} {
		do(t, s, http.MethodPatch, configMaps+"/"+name, patch)
	}
	do(t, s, http.MethodDelete, configMaps+"/deleted", "")
	do(t, s, http.MethodDelete, configMaps+"/reborn", "")
	s.PostYAML(configMaps, "{metadata: {name: reborn, labels: {t: x}}, data: {k: another}}")
	s.PostYAML(configMaps, "{metadata: {name: new, labels: {t: x}}}")
	do(t, s, http.MethodDelete, accounts+"/mine", "")
	return s, version
}

func do(t *testing.T, s *servertest.Server, method, path, body string) {
	t.Helper()
	if r, text := s.Do(method, path, body, "Content-Type", "application/merge-patch+json"); r.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", method, path, text)
	}
}

// versionNow is the version of the present.
func versionNow(t *testing.T, s *servertest.Server) string {
	t.Helper()
	list, err := configMapsOf(t, s).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}

func configMapsOf(t *testing.T, s *servertest.Server) client.Collection[client.Object] {
	t.Helper()
	c, err := client.New(s.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return client.Resource[client.Object](c, "v1", "configmaps").In("default")
}

// values are the ConfigMaps with what they hold.
func values(t *testing.T, s *servertest.Server) string {
	t.Helper()
	list, err := configMapsOf(t, s).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for o, err := range list.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if name := o.Name(); name != "kube-root-ca.crt" {
			all = append(all, name+"="+string(o.Field("data")))
		}
	}
	return strings.Join(all, " ")
}

// TestUndo: one object, those that labels select, and a namespace are what they were, in one revision; a dry run says so and does nothing.
func TestUndo(t *testing.T) {
	t.Parallel()
	const all = `changed={"k":"old"} deleted={"k":"old"} other={"k":"old"} reborn={"k":"old"} same={"k":"old"}`
	for _, c := range []struct {
		name string
		args []string
		out  []string // without the changes
		want string
	}{
		{"one", []string{"configmap", "changed"}, []string{"configmaps/default/changed changed"},
			`changed={"k":"old"} new= other={"k":"new"} reborn={"k":"another"} same={"k":"old"}`},
		{"a deleted one", []string{"configmap", "deleted"}, []string{"configmaps/default/deleted created"},
			`changed={"k":"new","l":"new"} deleted={"k":"old"} new= other={"k":"new"} reborn={"k":"another"} same={"k":"old"}`},
		{"by labels", []string{"configmaps", "-l", "t=x"}, []string{"configmaps/default/changed changed", "configmaps/default/deleted created", "configmaps/default/reborn changed", "configmaps/default/new deleted"},
			`changed={"k":"old"} deleted={"k":"old"} other={"k":"new"} reborn={"k":"old"} same={"k":"old"}`},
		{"a namespace", []string{"--all", "-n", "default"},
			[]string{"serviceaccounts/default/mine created", "configmaps/default/changed changed", "configmaps/default/deleted created", "configmaps/default/other changed", "configmaps/default/reborn changed", "configmaps/default/new deleted"}, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, version := changed(t)
			before, at := values(t, s), versionNow(t, s)
			code, out, errs := run(t, s, append(c.args, "--to", version, "--dry-run")...)
			if want := strings.Join(c.out, "\n") + "\n"; code != 0 || strings.ReplaceAll(out, "would be ", "") != want || errs != "" {
				t.Errorf("a dry run ends with %d %q %q, want %q", code, out, errs, want)
			}
			if after := values(t, s); after != before || versionNow(t, s) != at {
				t.Errorf("a dry run has changed %s to %s", before, after)
			}
			code, out, errs = run(t, s, append(c.args, "--to", version)...)
			revision, _ := strconv.Atoi(at)
			if want := strings.Join(c.out, "\n") + "\n"; code != 0 || out != want || errs != fmt.Sprintf("as at version %s, at version %d\n", version, revision+1) {
				t.Errorf("it ends with %d %q %q, want %q at %d", code, out, errs, want, revision+1)
			}
			if after := values(t, s); after != c.want {
				t.Errorf("%s became %s, want %s", before, after, c.want)
			}
			if code, out, errs := run(t, s, append(c.args, "--to", version)...); code != 0 || out != "" || errs != "nothing differs from version "+version+"\n" {
				t.Errorf("again, it ends with %d %q %q", code, out, errs)
			}
		})
	}
}

// TestUndoOfService: a Service gets the address back that it had, as long as it's free, and another one of its name keeps its own.
func TestUndoOfService(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.All })
	const services = "/api/v1/namespaces/default/services"
	service := func(port int, address string) string {
		return fmt.Sprintf(`{"metadata":{"name":"s"},"spec":{"ports":[{"port":%d}],"clusterIP":%q}}`, port, address)
	}
	is := func(port int, address string) {
		t.Helper()
		if text := s.Get(services + "/s"); !strings.Contains(text, fmt.Sprintf(`"clusterIP":%q`, address)) || !strings.Contains(text, fmt.Sprintf(`"port":%d`, port)) {
			t.Errorf("it's %s, want %d at %s", text, port, address)
		}
	}
	s.PostYAML(services, service(80, "10.0.0.111"))
	version := versionNow(t, s)
	undo := func(want string) {
		t.Helper()
		if code, out, errs := run(t, s, "service", "s", "--to", version); code != 0 || out+errs != want && out != want {
			t.Errorf("it ends with %d %q %q", code, out, errs)
		}
	}
	do(t, s, "DELETE", services+"/s", "")
	undo("services/default/s created\n")
	is(80, "10.0.0.111")
	undo("nothing differs from version " + version + "\n")
	do(t, s, "DELETE", services+"/s", "")
	s.PostYAML(services, service(81, "10.0.0.112"))
	undo("services/default/s changed\n")
	is(80, "10.0.0.112")
	undo("nothing differs from version " + version + "\n")
	if code, _, errs := run(t, s, "service", "none", "--to", version); code != 1 || !strings.Contains(errs, "doesn't exist, and didn't at version") {
		t.Errorf("what never was: %d %q", code, errs)
	}
	s.PostYAML(configMaps, `{"metadata":{"name":"held","finalizers":["example.com/f"]}}`)
	version = versionNow(t, s)
	do(t, s, "DELETE", "/api/v1/namespaces/default/configmaps/held", "")
	if code, _, errs := run(t, s, "configmap", "held", "--to", version); code != 1 || !strings.Contains(errs, "nothing was changed: try again when held is gone") {
		t.Errorf("what is being deleted: %d %q", code, errs)
	}
}

// TestUndoOfLabels: labels select what they select now or selected then, and what exists at both times is neither deleted nor made.
func TestUndoOfLabels(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(configMaps, "{metadata: {name: gained}, data: {k: old}}")
	s.PostYAML(configMaps, "{metadata: {name: lost, labels: {t: x}}, data: {k: old}}")
	s.PostYAML(configMaps, "{metadata: {name: other}, data: {k: old}}")
	version := versionNow(t, s)
	do(t, s, http.MethodPatch, configMaps+"/gained", `{"metadata":{"labels":{"t":"x"}},"data":{"k":"new"}}`)
	do(t, s, http.MethodPatch, configMaps+"/lost", `{"metadata":{"labels":{"t":null}},"data":{"k":"new"}}`)
	do(t, s, http.MethodPatch, configMaps+"/other", `{"data":{"k":"new"}}`)
	code, out, errs := run(t, s, "configmaps", "-l", "t=x", "--to", version)
	if want := "configmaps/default/gained changed\nconfigmaps/default/lost changed\n"; code != 0 || out != want {
		t.Errorf("%d %q %q, want %q", code, out, errs, want)
	}
	if got, want := values(t, s), `gained={"k":"old"} lost={"k":"old"} other={"k":"new"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestUndoOfOwned: what comes back names no owner that isn't there, so that it stays.
func TestUndoOfOwned(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	uid := func(object string) string {
		_, rest, _ := strings.Cut(object, `"uid":"`)
		id, _, _ := strings.Cut(rest, `"`)
		return id
	}
	stays, goes := uid(s.PostYAML(configMaps, "{metadata: {name: stays}}")), uid(s.PostYAML(configMaps, "{metadata: {name: goes}}"))
	for name, owner := range map[string]string{"kept": "stays", "orphan": "goes"} {
		id := map[string]string{"stays": stays, "goes": goes}[owner]
		s.PostYAML(configMaps, fmt.Sprintf("{metadata: {name: %s, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: %s, uid: %s}]}, data: {k: old}}", name, owner, id))
	}
	version := versionNow(t, s)
	do(t, s, http.MethodDelete, configMaps+"/kept", "")
	do(t, s, http.MethodDelete, configMaps+"/goes", "")
	s.Quiescent()
	code, out, errs := run(t, s, "configmaps", "--to", version)
	if want := "configmaps/default/goes created\nconfigmaps/default/kept created\nconfigmaps/default/orphan created\n"; code != 0 || out != want || !strings.Contains(errs, "configmaps default/orphan no longer names its owner ConfigMap goes") {
		t.Errorf("%d %q %q, want %q", code, out, errs, want)
	}
	s.Quiescent()
	if got, want := values(t, s), `goes= kept={"k":"old"} orphan={"k":"old"} stays=`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if kept := s.Get(configMaps + "/kept"); !strings.Contains(kept, stays) {
		t.Errorf("the owner that is there isn't named: %s", kept)
	}
}

// TestUndoRefused: what can't be undone says why, and changes nothing.
func TestUndoRefused(t *testing.T) {
	t.Parallel()
	s, version := changed(t, func(s *server.Server) { s.API.Builtin = "all" })
	for i := range 130 {
		s.PostYAML(configMaps, fmt.Sprintf("{metadata: {name: many-%d, labels: {many: x}}}", i))
	}
	s.PostYAML("/api/v1/namespaces", "{metadata: {name: closed}}")
	s.PostYAML("/api/v1/namespaces/closed/resourcequotas", "{metadata: {name: q}, spec: {hard: {configmaps: '1'}}}")
	before := values(t, s)
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no moment", []string{"configmap", "a"}, 2, "to when?"},
		{"a moment that isn't one", []string{"configmap", "a", "--to", "noon"}, 2, "a resourceVersion as 120, an instant as 2026-11-23T10:00:00Z, or how long ago as 10m"},
		{"nothing named", []string{"--to", version}, 2, "what? apiserver-lite undo"},
		{"all of no namespace", []string{"--all", "--to", version}, 2, "name it with --namespace"},
		{"all and a kind", []string{"--all", "-n", "default", "configmaps", "--to", version}, 2, "leave out the resource"},
		{"labels and a name", []string{"configmaps", "a", "-l", "t=x", "--to", version}, 2, "exclude each other"},
		{"an empty name", []string{"configmap", "", "--to", version}, 2, "the name is empty"},
		{"an empty selector", []string{"configmaps", "-l", "", "--to", version}, 2, "--selector is empty"},
		{"a blank selector", []string{"configmaps", "-l", " ", "--to", version}, 2, "--selector is empty"},
		{"one that wasn't there", []string{"configmap", "new", "--to", version}, 1, `configmaps "new" didn't exist at version ` + version},
		{"too many", []string{"configmaps", "--to", version}, 1, "more than 128 objects differ"},
		{"too long ago", []string{"configmaps", "--to", "2006-01-02T15:04:05Z"}, 1, "history reaches back to"},
		{"a version of the future", []string{"configmaps", "--to", "100000"}, 1, ""},
		{"no such kind", []string{"gizmos", "--to", version}, 1, "gizmos"},
	} {
		if code, out, errs := run(t, s, c.args...); code != c.code || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%s: %d %q %q, want %d %q", c.name, code, out, errs, c.code, c.says)
		}
	}
	if after := values(t, s); after != before {
		t.Errorf("%s became %s", before, after)
	}
	// The rules of today count: a policy that came later refuses what it was.
	do(t, s, http.MethodPatch, "/api/v1/namespaces/closed/resourcequotas/q", `{"spec":{"hard":{"configmaps":"5"}}}`)
	s.Quiescent() // until then the old limit counts
	closed := "/api/v1/namespaces/closed/configmaps"
	for _, name := range []string{"a", "b", "c"} {
		s.PostYAML(closed, "{metadata: {name: "+name+"}}")
	}
	then := versionNow(t, s)
	for _, name := range []string{"a", "b", "c"} {
		do(t, s, http.MethodDelete, closed+"/"+name, "")
	}
	do(t, s, http.MethodPatch, "/api/v1/namespaces/closed/resourcequotas/q", `{"spec":{"hard":{"configmaps":"2"}}}`)
	s.Quiescent()
	code, out, errs := run(t, s, "configmaps", "-n", "closed", "--to", then)
	if code != 1 || out != "" || !strings.Contains(errs, "nothing of the transaction was written") || !strings.Contains(errs, "exceeded quota") {
		t.Errorf("against a quota: %d %q %q", code, out, errs)
	}
	list, err := configMapsOf(t, s).In("closed").List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left, err := list.Slice(t.Context()); err != nil || slices.ContainsFunc(left, func(o *client.Object) bool { return o.Name() == "a" }) {
		t.Errorf("a part was done: %v, %v", left, err)
	}
}
