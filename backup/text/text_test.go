package text_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/backup/text"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const shop = "testdata/shop.yaml"

func all(s *server.Server) { s.API.Builtin = builtin.All }

// invoke runs a command and returns its exit code.
func invoke(ctx context.Context, args []string, p cli.Process) int {
	return commandline.Run(ctx, commandline.Root(text.Commands(p)...), args, p.Out, p.Err)
}

// run runs a command, and returns its exit code and what it prints.
func run(t *testing.T, at, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := func(name string) string { return map[string]string{"APISERVER_LITE_SERVER": at}[name] }
	code = invoke(t.Context(), args, cli.Process{Getenv: env, In: strings.NewReader(in), Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

// must is run for what has to succeed.
func must(t *testing.T, at, in string, args ...string) (out, errs string) {
	t.Helper()
	code, out, errs := run(t, at, in, args...)
	if code != 0 {
		t.Fatalf("%q: %d %s%s", args, code, out, errs)
	}
	return out, errs
}

// heads are the documents of an export, as kind and name.
func heads(stream string) (all []string) {
	kind, name := regexp.MustCompile(`(?m)^kind: (.*)$`), regexp.MustCompile(`(?m)^  name: (.*)$`)
	for _, document := range strings.Split(stream, "---\n")[1:] {
		all = append(all, kind.FindStringSubmatch(document)[1]+" "+name.FindStringSubmatch(document)[1])
	}
	return all
}

// TestRoundTrip: what is exported, imported elsewhere and exported there is the same, byte for byte: kinds of all sorts, more than a page of
// them, and large ones. Each comes after what it needs, and its owner's uid is that of the new owner.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	first, second := servertest.New(t, all), servertest.New(t, all)
	out, errs := must(t, first.URL, "", "import", shop)
	if want := "imported 17 objects: 17 created, 0 changed, 0 unchanged\n"; out != want || errs != "" {
		t.Errorf("the import says %s%s, want %s", out, errs, want)
	}
	var many strings.Builder
	for i := range 1100 {
		fmt.Fprintf(&many, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {a: b}\n", i)
	}
	for i := range 3 {
		fmt.Fprintf(&many, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: large%d}\ndata: {a: %s}\n", i, strings.Repeat("ü", 400_000))
	}
	must(t, first.URL, many.String(), "import", "-")

	stream, errs := must(t, first.URL, "", "export", "--secrets")
	if !strings.HasPrefix(errs, "exported 1120 objects of revision ") {
		t.Error(errs)
	}
	out, _ = must(t, second.URL, stream, "import", "-")
	if want := "imported 1120 objects: 1120 created, 0 changed, 0 unchanged\n"; out != want {
		t.Errorf("the second import says %s, want %s", out, want)
	}
	if again, _ := must(t, second.URL, "", "export", "--secrets"); again != stream {
		t.Errorf("the second server has\n%.3000s\nwant\n%.3000s", again, stream)
	}
	out, _ = must(t, second.URL, stream, "import", "-")
	if want := "imported 1120 objects: 0 created, 0 changed, 1120 unchanged\n"; out != want {
		t.Errorf("the third import says %s, want %s", out, want)
	}

	got := slices.DeleteFunc(heads(stream), func(head string) bool { return regexp.MustCompile(`^ConfigMap (c\d|large)`).MatchString(head) })
	want := []string{
		"CustomResourceDefinition gauges.example.com", "CustomResourceDefinition widgets.example.com", "Namespace shop", "Secret password", "ConfigMap files",
		"Role reader", "RoleBinding shop:readers", "Service headless", "Service outside", "Deployment web", "Job once", "Gauge above", "Widget red",
		"ValidatingWebhookConfiguration nobody", "ReplicaSet web-1", "Gauge red-gauge", "Pod web-1-a",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
	_, owner := second.Do("GET", "/apis/apps/v1/namespaces/shop/replicasets/web-1", "")
	_, owned := second.Do("GET", "/api/v1/namespaces/shop/pods/web-1-a", "")
	if uid := uidOf(t, owner); !strings.Contains(owned, `"uid":"`+uid+`"`) {
		t.Errorf("the owner has the uid %s, and what it owns is %s", uid, owned)
	}
}

func uidOf(t *testing.T, object string) string {
	t.Helper()
	var o struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(object), &o); err != nil || o.Metadata.UID == "" {
		t.Fatal(err, object)
	}
	return o.Metadata.UID
}

// TestWhatServersSet: nothing is exported that the server sets, and what is an object's own is.
func TestWhatServersSet(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, all)
	must(t, s.URL, "", "import", shop)
	out, _ := must(t, s.URL, "", "export")
	for _, not := range []string{"uid", "resourceVersion", "creationTimestamp", "generation:", "managedFields", "clusterIP: 1", "controller-uid", "not the object's own", "kubernetes.io/metadata.name", "name: kubernetes"} {
		if strings.Contains(out, not) {
			t.Errorf("the export has %q:\n%s", not, out)
		}
	}
	for _, own := range []string{"clusterIP: None", "nodePort: 30080", "phase: Known", "- example.com/keep", "share: 1.5\n"} {
		if !strings.Contains(out, own) {
			t.Errorf("the export has no %q:\n%s", own, out)
		}
	}
}

// TestScope: which objects an export has.
func TestScope(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, all)
	must(t, s.URL, "", "import", shop)
	must(t, s.URL, "apiVersion: v1\nkind: Event\nmetadata: {name: e}\ninvolvedObject: {namespace: default}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, namespace: default, finalizers: [example.com/held]}\n", "import", "-")
	s.Do("DELETE", "/api/v1/namespaces/default/configmaps/held", "")
	tests := []struct {
		name string
		args string
		want []string
		errs string
		code int
	}{
		{"a kind", "configmaps", []string{"ConfigMap files"}, "left out 1 object being deleted", 0},
		{"kinds by any name", "cm gauge widgets.v1beta1.example.com", []string{"ConfigMap files", "Gauge above", "Widget red", "Gauge red-gauge"}, "", 0},
		{"events, which are asked for", "events", []string{"Event e"}, "exported 1 object of revision", 0},
		{"a kind in a namespace", "services,nodes", nil, "has no resource", 1},
		{"services of a namespace", "services -n default", nil, "left out 1 object that a server makes by itself", 0},
		{"a namespace", "-n shop", []string{
			"Namespace shop", "ConfigMap files", "Role reader", "RoleBinding shop:readers", "Service headless", "Service outside", "Deployment web", "Job once",
			"Widget red", "ReplicaSet web-1", "Pod web-1-a",
		}, "left out 1 Secret (--secrets exports them)", 0},
		{"Secrets unasked", "secrets", nil, "secrets are exported with --secrets only", 1},
		{"Secrets", "secrets --secrets", []string{"Secret password"}, "", 0},
		{"cluster-scoped ones of a namespace", "gauges -n shop", nil, "are in no namespace", 1},
		{"two scopes", "-A -n shop", nil, "exclude each other", 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, out, errs := run(t, s.URL, "", append([]string{"export"}, strings.Fields(test.args)...)...)
			if code != test.code || !slices.Equal(heads(out), test.want) || !strings.Contains(errs, test.errs) {
				t.Errorf("%d, %q and %s; want %d, %q and %s", code, heads(out), errs, test.code, test.want, test.errs)
			}
		})
	}
}

// TestOwnRules: Kubernetes' own rules are left out as long as nobody has changed them.
func TestOwnRules(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("secret,admin,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.New(t, all, func(s *server.Server) {
		s.Access.TokenAuthFile, s.Access.AuthorizationMode = tokens, "RBAC"
		s.System.On = true
	})
	roles := func() string {
		out, _ := must(t, s.URL, "", "export", "--token-file", token)
		return fmt.Sprint(heads(out))
	}
	for range 1000 { // the start doesn't wait for them
		if _, errs := must(t, s.URL, "", "export", "clusterrolebindings", "--token-file", token); strings.Contains(errs, "exported 0") && strings.Contains(errs, "left out 5") {
			break
		}
	}
	if got := roles(); got != "[]" {
		t.Errorf("a new server has %s", got)
	}
	in := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: system:discovery}\nrules: [{nonResourceURLs: [/mine], verbs: [get]}]\n"
	must(t, s.URL, in, "import", "-", "--token-file", token)
	if got := roles(); got != "[ClusterRole system:discovery]" {
		t.Errorf("with a changed role the export has %s", got)
	}
}

// TestDirectory: a file for each object, which stays as it is while the object does, and goes with it. Other files stay.
func TestDirectory(t *testing.T) {
	t.Parallel()
	first, second := servertest.New(t, all), servertest.New(t, all)
	must(t, first.URL, "", "import", shop)
	dir := filepath.Join(t.TempDir(), "d")
	must(t, first.URL, "", "export", "--secrets", "-o", dir)
	for _, file := range []string{
		"cluster/namespaces/shop.yaml", "cluster/gauges.example.com/above.yaml", "namespaces/shop/rolebindings.rbac.authorization.k8s.io/shop%3Areaders.yaml", "namespaces/shop/secrets/password.yaml",
	} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "namespaces/shop/secrets/password.yaml")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a Secret's file has the mode %v, %v", info.Mode(), err)
	}
	must(t, second.URL, "", "import", dir)
	want, _ := must(t, first.URL, "", "export", "--secrets")
	if got, _ := must(t, second.URL, "", "export", "--secrets"); got != want {
		t.Errorf("from a directory the server has\n%s\nwant\n%s", got, want)
	}

	made := []string{filepath.Join(dir, "namespaces/shop/secrets/password.yaml")} // which this export isn't about
	for file, text := range map[string]string{
		"notes.txt":          "",
		"kustomization.yaml": "resources: [files.yaml]\n",
		"named.yaml":         "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nmetadata: {name: named, namespace: shop}\n",
		"several.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: several, namespace: shop}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: shop}\n",
		"copy.yaml":          "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: files, namespace: shop}\n",
		"elsewhere.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: elsewhere, namespace: other}\n",
		"broken.yaml":        "a: [",
	} {
		file = filepath.Join(dir, "namespaces/shop/configmaps", file)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		made = append(made, file)
	}
	kept := filepath.Join(dir, "namespaces/shop/services/outside.yaml")
	before, err := os.Stat(kept)
	if err != nil {
		t.Fatal(err)
	}
	first.Do("DELETE", "/api/v1/namespaces/shop/configmaps/files", "")
	first.Do("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/reader", "")
	must(t, first.URL, "", "export", "-o", dir)
	for _, file := range []string{"namespaces/shop/configmaps/files.yaml", "namespaces/shop/roles.rbac.authorization.k8s.io"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			t.Errorf("%s is left", file)
		}
	}
	after, err := os.Stat(kept)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the file of what is the same was written anew: %v", err)
	}
	for _, file := range made {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// between is a server before s that calls f before each list at a revision, and answers by itself if f says so.
func between(t *testing.T, s *servertest.Server, f func(w http.ResponseWriter, r *http.Request) (answered bool)) string {
	t.Helper()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	transport := &http.Transport{}
	proxy.Transport = transport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if exact := r.URL.Query().Get("resourceVersionMatch") == "Exact"; !exact || !f(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	return server.URL
}

// TestOneRevision: what is written while an export runs isn't in it, of no kind.
func TestOneRevision(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	must(t, s.URL, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: before}\n", "import", "-")
	n := 0
	at := between(t, s, func(http.ResponseWriter, *http.Request) bool {
		n++
		s.Do("POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"during%d"}}`, n))
		s.Do("DELETE", "/api/v1/namespaces/default/configmaps/before", "")
		return false
	})
	if out, _ := must(t, at, "", "export"); fmt.Sprint(heads(out)) != "[ConfigMap before]" || n < 5 {
		t.Errorf("the export has %q, after %d lists", heads(out), n)
	}
}

// expired is the Status of a revision that was compacted.
const expired = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"gone","reason":"Expired","code":410}`

// TestCompacted: an export whose revision is compacted begins again, where what was written can be taken back. It doesn't begin for ever.
func TestCompacted(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	in := "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: a}\ndata: {a: " + strings.Repeat("x", 200_000) + "}\n"
	must(t, s.URL, in, "import", "-")
	want, _ := must(t, s.URL, "", "export")
	tests := []struct {
		name  string
		file  bool
		of    string // the list that fails
		times int
		code  int
		errs  string
	}{
		{"nothing written yet", false, "namespaces", 2, 0, "the export begins again"},
		{"into a file", true, "roles", 2, 0, "the export begins again"},
		{"into a pipe", false, "roles", 1, 1, "is no file of which it could be taken back"},
		{"always", true, "roles", 100, 1, "gone"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			left := test.times
			at := between(t, s, func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/"+test.of) || left == 0 {
					return false
				}
				left--
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusGone)
				fmt.Fprint(w, expired)
				return true
			})
			var stdout, stderr bytes.Buffer
			p := cli.Process{Getenv: func(string) string { return "" }, Out: &stdout, Err: &stderr}
			var f *os.File
			if test.file {
				var err error
				if f, err = os.Create(filepath.Join(t.TempDir(), "out")); err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				p.Out = f
			}
			code := invoke(t.Context(), []string{"export", "--server", at}, p)
			out := stdout.String()
			if f != nil {
				written, err := os.ReadFile(f.Name())
				if err != nil {
					t.Fatal(err)
				}
				out = string(written)
			}
			if code != test.code || !strings.Contains(stderr.String(), test.errs) || code == 0 && out != want {
				t.Errorf("%d, %d bytes and %s; want %d, %d bytes and %s", code, len(out), &stderr, test.code, len(want), test.errs)
			}
		})
	}
}

// ending is an output that ends a context with its first write.
type ending struct{ end func() }

func (e ending) Write(p []byte) (int, error) {
	e.end()
	return len(p), nil
}

// TestInterrupted: an export that is interrupted says so, and isn't taken for a whole one.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	var many strings.Builder
	for i := range 600 {
		fmt.Fprintf(&many, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {a: %s}\n", i, strings.Repeat("x", 300))
	}
	must(t, s.URL, many.String(), "import", "-")
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	code := invoke(ctx, []string{"export", "configmaps", "--server", s.URL}, cli.Process{Getenv: func(string) string { return "" }, Out: ending{cancel}, Err: &stderr})
	if code != 130 || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("%d %s", code, &stderr)
	}
}

// TestFailures: what can't be imported is listed at the end, and the rest is imported. What comes too early waits.
func TestFailures(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	in := `
apiVersion: v1
kind: ConfigMap
metadata: {name: Wrong_Name}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: early, namespace: later}
---
apiVersion: example.com/v1
kind: Nothing
metadata: {name: a}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: orphan, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: nobody}]}
---
a: [
---
apiVersion: v1
kind: Namespace
metadata: {name: later}
`
	code, out, errs := run(t, s.URL, in, "import", "-")
	if want := "imported 2 objects: 2 created, 0 changed, 0 unchanged; 4 failed\n"; code != 1 || out != want {
		t.Errorf("%d %s, want 1 %s", code, out, want)
	}
	for _, want := range []string{
		`-:1: ConfigMap Wrong_Name: `, "-:9: Nothing a: not found: the server has no Nothing in example.com/v1", "-:13: ConfigMap orphan: its owner, the ConfigMap nobody: ", "-:17: yaml: ", "apiserver-lite: 4 objects failed\n",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("the errors have no %q:\n%s", want, errs)
		}
	}
}

// TestDryRun: a dry run stores nothing, and says what it couldn't look at.
func TestDryRun(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, all)
	want, _ := must(t, s.URL, "", "export", "--secrets")
	out, _ := must(t, s.URL, "", "import", "--dry-run", shop)
	if !strings.Contains(out, "(dry run: nothing is stored)") || !strings.Contains(out, "couldn't be checked") || strings.Contains(out, "failed") {
		t.Error(out)
	}
	if got, _ := must(t, s.URL, "", "export", "--secrets"); got != want {
		t.Errorf("the server has %s", got)
	}
}

// TestUnreachable: a server that isn't there ends an import at once, and isn't asked for each object.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	code, _, errs := run(t, "http://127.0.0.1:1", "", "import", shop)
	if lines := strings.Count(errs, "\n"); code != 1 || lines != 1 || !strings.Contains(errs, "refused") {
		t.Errorf("%d and %d lines: %s", code, lines, errs)
	}
}
