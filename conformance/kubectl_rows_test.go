package conformance

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// kubectlFlag names another kubectl for TestKubectlRows than the newest, such as 1.20.
var kubectlFlag = flag.String("kubectl", "", "path of the kubectl that TestKubectlRows runs; the newest by default")

// releases are those that do something in a way of their own.
type releases int

const (
	every  releases = iota
	newest          // of k8s.io/kubectl
	oldest          // 1.20
)

// row is something that people do with kubectl.
type row struct {
	name  string
	steps []call
	sends []sent // among the requests of the row, in any order
}

// call is one call of a row.
type call struct {
	args  []string
	in    releases // who makes it
	stdin string
	want  string // part of what it prints
	fails string // if set: it fails, and this is part of what it says
	// follows goes on until the row ends. What it must print by then is in want, in lines of which each is the beginning of one
	// that is printed. The next call waits until its watch is open.
	follows bool
}

// sent is what a request has: parts of "METHOD path?query", of its header Accept, or of its Content-Type.
type sent struct{ request, accept, content string }

// TestKubectlRows is what kubectl must be able to do, row by row: those of the table of clients, with what kubectl sends, and
// then each command.
func TestKubectlRows(t *testing.T) {
	s := start(t, "--ephemeral", "--builtin=all", "--service-cluster-ip-range=10.9.0.0/24")
	define := newKubectl(t, s)
	define.define()
	for _, r := range slices.Concat(clientRows(t), commandRows(t)) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, s)
		})
	}
}

// run makes a row's calls in a namespace of its own, and looks at what was sent.
func (r *row) run(t *testing.T, s *apiserver) {
	recorded := &record{}
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		recorded.add(p.In)
		p.SetURL(target)
	}}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close) // after what follows has ended
	k := &kubectl{t: t, binary: *kubectlFlag, dir: t.TempDir()}
	k.flags = []string{"--server", s.url}
	namespace := strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' {
			return c
		}
		return '-'
	}, strings.ToLower(r.name)), "-")
	k.do("", "create", "namespace", namespace)
	k.flags = []string{"--server", server.URL, "--namespace", namespace}
	version := newest
	if *kubectlFlag != "" {
		version = oldest
	}
	var following []func()
	for _, c := range r.steps {
		if c.in != every && c.in != version {
			continue
		}
		if c.follows {
			before := recorded.watches()
			lines := k.follow(c.args...)
			eventually(t, "the watch is open", func(context.Context) bool { return recorded.watches() > before })
			following = append(following, func() { expect(t, lines, c.want) })
			continue
		}
		c.make(t, k)
	}
	for _, check := range following {
		check()
	}
	for _, want := range r.sends {
		if !slices.ContainsFunc(recorded.all(), want.is) {
			t.Errorf("no request is %+v among %q", want, recorded.texts())
		}
	}
}

// make makes one call.
func (c *call) make(t *testing.T, k *kubectl) {
	t.Helper()
	stdin, err := yaml.YAMLToJSON([]byte(c.stdin)) // kubectl 1.20 takes YAML that begins with a brace for JSON
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := k.call(string(stdin), c.args...)
	switch {
	case (err != nil) != (c.fails != ""):
		t.Fatalf("kubectl %s ends with %v\n%s\n%s", strings.Join(c.args, " "), err, stdout, stderr)
	case err != nil && !strings.Contains(stderr+stdout, c.fails):
		t.Errorf("kubectl %s says %q, want %q", strings.Join(c.args, " "), stderr, c.fails)
	case err == nil && !strings.Contains(stdout, c.want):
		t.Errorf("kubectl %s prints\n%s\nwant\n%s\n%s", strings.Join(c.args, " "), stdout, c.want, stderr)
	}
}

// expect waits for lines with the given beginnings, in their order, among others.
func expect(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	for _, begin := range strings.Split(want, "\n") {
		for {
			line, ok := <-lines
			if !ok {
				t.Errorf("the watch ends before it prints %q", begin)
				return
			}
			if strings.HasPrefix(strings.Join(strings.Fields(line), " "), begin) {
				break
			}
		}
	}
}

func (w sent) is(q *http.Request) bool {
	query, _ := url.QueryUnescape(q.URL.RawQuery)
	return strings.Contains(q.Method+" "+q.URL.Path+"?"+query, w.request) &&
		strings.Contains(q.Header.Get("Accept"), w.accept) && strings.Contains(q.Header.Get("Content-Type"), w.content)
}

// all returns the requests that were sent so far.
func (r *record) all() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// watches returns how many watches were asked for so far.
func (r *record) watches() (n int) {
	for _, q := range r.all() {
		if q.URL.Query().Get("watch") != "" {
			n++
		}
	}
	return n
}

func (r *record) texts() (texts []string) {
	for _, q := range r.all() {
		texts = append(texts, q.Method+" "+q.URL.String()+" "+q.Header.Get("Accept")+" "+q.Header.Get("Content-Type"))
	}
	return texts
}

const (
	settings = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {app: demo}}, data: {a: "1", b: "2"}}`
	changed  = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {app: demo}}, data: {a: "3"}}`
	others   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: other, labels: {app: demo}}}`
	table    = "as=Table;v=v1;g=meta.k8s.io"
)

// clientRows are kubectl's rows in the table of what each client needs.
func clientRows(t *testing.T) []row {
	return []row{
		{"get and get -w", []call{
			{args: args("create", "configmap", "settings", "--from-literal=a=1"), want: "configmap/settings created"},
			{args: args("get", "configmaps"), want: "NAME"},
			{args: args("get", "configmaps", "-w", "-o", "name"), follows: true, want: "configmap/settings\nconfigmap/later"},
			{args: args("create", "configmap", "later"), want: "created"},
			{args: args("get", "configmap", "settings", "-w", "--output-watch-events"), follows: true, want: "EVENT NAME DATA AGE\nADDED settings 1\nMODIFIED settings 1\nDELETED settings 1"},
			{args: args("label", "configmap", "settings", "x=y"), want: "configmap/settings labeled"},
			{args: args("delete", "configmap", "settings"), want: `"settings" deleted`},
		}, []sent{
			{"GET /api?", "", ""}, {"GET /apis?", "", ""}, {"/configmaps?limit=500", table, ""}, {"watch=true", table, ""}, {"resourceVersion=", table, ""}, {"fieldSelector=metadata.name=settings", table, ""},
		}},
		{"apply on the client's side", []call{
			{args: args("apply", "-f", "-"), stdin: settings, want: "configmap/settings created"},
			{args: args("apply", "-f", "-"), stdin: changed, want: "configmap/settings configured"},
			{args: args("get", "cm", "settings", "-o", "jsonpath={.data}"), want: `{"a":"3"}`},
			{args: args("apply", "-f", "-"), stdin: changed, want: "configmap/settings unchanged"},
			{args: args("apply", "-f", "-"), stdin: gadget, want: "widget.example.com/g created"},
			{args: args("apply", "-f", "-"), stdin: bigger, want: "widget.example.com/g configured"},
			{args: args("apply", "-f", "-"), stdin: strings.Replace(settings, "name: settings", `name: settings, resourceVersion: "1"`, 1), fails: "(Conflict)"},
		}, []sent{
			{"GET /openapi/", "", ""}, {"/configmaps/settings", "application/json", "application/strategic-merge-patch+json"}, {"/widgets/g", "application/json", "application/merge-patch+json"},
		}},
		{"apply on the server's side and diff", []call{
			{args: args("apply", "--server-side", "-f", "-"), stdin: settings, want: "configmap/settings serverside-applied"},
			{args: args("apply", "--server-side", "-f", "-", "--field-manager=someone"), stdin: changed, fails: `conflict with "kubectl"`},
			{args: args("apply", "--server-side", "-f", "-", "--field-manager=someone", "--force-conflicts"), stdin: changed, want: "serverside-applied"},
			{args: args("diff", "-f", "-"), stdin: settings, fails: `a: "1"`},
			{args: args("diff", "--server-side", "--field-manager=someone", "-f", "-"), stdin: changed, want: ""},
			{args: args("get", "cm", "settings", "-o", "jsonpath={.metadata.managedFields[*].manager}"), want: "someone"},
		}, []sent{{"fieldManager=kubectl", "", "application/apply-patch+yaml"}, {"force=true", "", "application/apply-patch+yaml"}, {"dryRun=All", "", "application/apply-patch+yaml"}}},
		{"delete and wait", []call{
			{args: args("create", "-f", "-"), stdin: strings.Replace(settings, "name: settings", "name: settings, finalizers: [example.com/hold]", 1), want: "created"},
			{args: args("delete", "cm", "settings", "--wait", "--timeout=1s"), fails: "timed out"},
			{args: args("patch", "cm", "settings", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`), want: "patched"},
			{args: args("create", "-f", "-"), stdin: settings, want: "created"},
			{args: args("delete", "cm", "settings", "--wait"), want: `"settings" deleted`},
		}, []sent{{"DELETE /api/v1/", "", ""}, {"fieldSelector=metadata.name=settings", "", ""}, {"watch=true", "", ""}}},
		{"wait", []call{
			{args: args("create", "deployment", "web", "--image=web:1"), want: "created"},
			{args: args("wait", "deployment/web", "--for=condition=Available", "--timeout=1s"), fails: "timed out"},
			{args: args("patch", "deployment", "web", "--subresource=status", "-p", `{"status":{"conditions":[{"type":"Available","status":"True"}]}}`), in: newest, want: "patched"},
			{args: args("wait", "deployment/web", "--for=condition=Available", "--timeout=60s"), in: newest, want: "condition met"},
			{args: args("wait", "crd/widgets.example.com", "--for=condition=Established"), want: "condition met"},
			{args: args("delete", "deployment", "web", "--wait=false"), want: "deleted"},
			{args: args("wait", "deployment/web", "--for=delete", "--timeout=60s"), in: newest, want: ""},
		}, []sent{{"/deployments?", "", ""}, {"fieldSelector=metadata.name=web", "", ""}, {"watch=true", "", ""}}},
		{"explain and api-resources", []call{
			{args: args("explain", "deployment.spec.template.spec.containers"), want: "terminationMessagePath"},
			{args: args("explain", "widgets.spec", "--recursive"), want: "size"},
			{args: args("api-resources", "-o", "name"), want: "deployments.apps"},
			{args: args("api-resources", "--api-group=example.com", "-o", "name"), want: "widgets.example.com"},
			{args: args("get", "gears"), fails: `the server doesn't have a resource type "gears"`},
		}, []sent{{"GET /openapi/", "", ""}, {"GET /apis?", "", ""}}},
	}
}

// commandRows are kubectl's commands. Where a release lacks one, it isn't called: 1.20 has no events, whoami or subresources.
func commandRows(t *testing.T) []row {
	directory := t.TempDir()
	kustomization := "namePrefix: my-\nconfigMapGenerator:\n- name: settings\n  literals: [a=1]\ngeneratorOptions: {disableNameSuffixHash: true}\n"
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	create := call{args: args("create", "-f", "-"), stdin: settings, want: "configmap/settings created"}
	deploy := call{args: args("create", "deployment", "web", "--image=web:1", "--replicas=2", "--port=80"), want: "deployment.apps/web created"}
	commands := func(name string, steps ...call) row { return row{name: name, steps: steps} }
	return []row{
		commands("outputs", create,
			call{args: args("get", "cm", "settings"), want: "NAME       DATA   AGE\nsettings   2 "}, call{args: args("get", "cm", "-o", "wide", "--show-labels"), want: "app=demo"},
			call{args: args("get", "cm", "settings", "-o", "yaml"), want: "data:\n  a: \"1\"\n"}, call{args: args("get", "cm", "settings", "-o", "json"), want: `"kind": "ConfigMap"`},
			call{args: args("get", "cm", "settings", "-o", "name"), want: "configmap/settings"}, call{args: args("get", "cm", "settings", "-o", "jsonpath={.data.b}"), want: "2"},
			call{args: args("get", "cm", "settings", "-o", "custom-columns=A:.data.a"), want: "A\n1"}, call{args: args("get", "cm", "settings", "-o", "go-template={{.data.a}}"), want: "1"},
			call{args: args("get", "all,cm", "-l", "app=demo", "-o", "name"), want: "configmap/settings"}),
		commands("watch only", call{args: args("get", "cm", "--watch-only", "-o", "name"), follows: true, want: "configmap/settings"}, create),
		commands("watch events", call{args: args("get", "cm", "-w", "--output-watch-events"), follows: true, want: "EVENT NAME DATA AGE\nADDED settings 2\nDELETED settings 2"}, create,
			call{args: args("delete", "cm", "settings"), want: "deleted"}),
		commands("describe", create, deploy, call{args: args("describe", "cm", "settings"), want: "a:\n----\n1"}, call{args: args("describe", "deployment", "web"), want: "Pod Template:"}),
		commands("prune", call{args: args("apply", "-f", "-"), stdin: settings, want: "created"},
			call{args: args("apply", "-f", "-", "--prune", "-l", "app=demo", "--prune-whitelist=core/v1/ConfigMap"), in: oldest, stdin: others, want: "configmap/settings pruned"},
			call{args: args("apply", "-f", "-", "--prune", "-l", "app=demo", "--prune-allowlist=core/v1/ConfigMap"), in: newest, stdin: others, want: "configmap/settings pruned"}),
		commands("edit", call{args: args("create", "-f", "-"), stdin: strings.Replace(gadget, "size: 1", "size: 4", 1), want: "created"},
			call{args: args("edit", "widget", "g"), want: "widget.example.com/g edited"}, call{args: args("get", "widget", "g", "-o", "jsonpath={.spec.size}"), want: "5"}),
		commands("patch", create, call{args: args("patch", "cm", "settings", "-p", `{"data":{"b":null}}`), want: "patched"}, call{args: args("patch", "cm", "settings", "--type=merge", "-p", `{"data":{"c":"4"}}`), want: "patched"},
			call{args: args("patch", "cm", "settings", "--type=json", "-p", `[{"op":"remove","path":"/data/c"}]`), want: "patched"}, call{args: args("get", "cm", "settings", "-o", "jsonpath={.data}"), want: `{"a":"1"}`}),
		commands("replace", create, call{args: args("replace", "-f", "-"), stdin: changed, want: "configmap/settings replaced"}, call{args: args("replace", "--force", "-f", "-"), stdin: settings, want: "configmap/settings replaced"}),
		commands("label and annotate", create, call{args: args("label", "cm", "settings", "tier=front", "app-"), want: "configmap/settings"}, call{args: args("annotate", "cm", "settings", "note=x"), want: "annotated"},
			call{args: args("get", "cm", "-l", "tier=front,!app", "-o", "jsonpath={.items[*].metadata.annotations.note}"), want: "x"}),
		commands("scale and autoscale", deploy, call{args: args("scale", "deployment/web", "--replicas=3", "--current-replicas=2"), want: "scaled"},
			call{args: args("autoscale", "deployment/web", "--min=1", "--max=5", "--cpu-percent=50"), in: oldest, want: "autoscaled"}, call{args: args("autoscale", "deployment/web", "--min=1", "--max=5", "--cpu=50%"), in: newest, want: "autoscaled"},
			call{args: args("get", "hpa", "web", "-o", "jsonpath={.spec.maxReplicas}"), want: "5"}, call{args: args("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"), want: "3"}),
		commands("rollout", rolloutCalls(deploy)...),
		commands("delete with every cascade", create, call{args: args("create", "configmap", "b"), want: "created"}, call{args: args("create", "configmap", "c"), want: "created"},
			call{args: args("delete", "cm", "settings", "--cascade=background"), want: "deleted"}, call{args: args("delete", "cm", "b", "--cascade=foreground"), want: "deleted"}, call{args: args("delete", "cm", "c", "--cascade=orphan"), want: "deleted"},
			call{args: args("get", "cm", "-o", "name"), want: ""}),
		commands("create", generatorCalls(t)...),
		commands("set", deploy, call{args: args("create", "service", "clusterip", "web", "--tcp=80"), want: "created"}, call{args: args("set", "image", "deployment/web", "web=web:2"), want: "image updated"}, call{args: args("set", "env", "deployment/web", "A=1"), want: "env updated"},
			call{args: args("set", "resources", "deployment/web", "--limits=cpu=1"), want: "resource requirements updated"}, call{args: args("set", "serviceaccount", "deployment/web", "robot"), want: "serviceaccount updated"},
			call{args: args("set", "selector", "service/web", "a=b"), want: "selector updated"}, call{args: args("create", "rolebinding", "readers", "--clusterrole=view", "--user=me"), want: "created"},
			call{args: args("set", "subject", "rolebinding/readers", "--group=team"), want: "subjects updated"}),
		commands("expose and run", call{args: args("run", "once", "--image=once:1", "--restart=Never", "--port=80"), want: "pod/once created"}, call{args: args("expose", "pod", "once", "--port=80", "--name=front"), want: "service/front exposed"},
			call{args: args("get", "service", "front", "-o", "jsonpath={.spec.ports[0].targetPort} {.spec.selector.run}"), want: "80 once"},
			call{args: args("get", "service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}"), want: "10.9.0.1"}),
		commands("auth", call{args: args("auth", "can-i", "create", "configmaps"), want: "yes"}, call{args: args("auth", "can-i", "--list"), want: "*.*"}, call{args: args("auth", "whoami"), in: newest, want: "system:admin"}),
		commands("about the server", call{args: args("api-versions"), want: "apps/v1"}, call{args: args("version"), want: "37"}, call{args: args("cluster-info"), want: "is running at"}, call{args: args("get", "--raw", "/readyz"), want: "ok"}),
		commands("events", create, call{args: args("create", "-f", "-"), stdin: `{apiVersion: v1, kind: Event, metadata: {name: e}, involvedObject: {apiVersion: v1, kind: ConfigMap, name: settings, namespace: events}, type: Warning, reason: Burnt, message: it burns}`, want: "created"},
			call{args: args("get", "events"), want: "it burns"}, call{args: args("events", "--for=cm/settings"), in: newest, want: "it burns"}, call{args: args("get", "events", "--field-selector", "involvedObject.name=settings,type!=Normal", "-o", "name"), want: "event/e"}),
		commands("kustomize", call{args: args("kustomize", directory), want: "name: my-settings"}, call{args: args("apply", "-k", directory), want: "configmap/my-settings created"}),
		commands("proxy", call{args: args("proxy", "--help"), want: "Creates a proxy server"}), // TestKubectlProxy talks through one
	}
}

// rolloutCalls go back to a former ReplicaSet, which the test makes: no controller does.
func rolloutCalls(deploy call) (calls []call) {
	calls = append(calls, deploy)
	for _, command := range []struct{ name, want string }{{"pause", "paused"}, {"resume", "resumed"}, {"restart", "restarted"}, {"history", "deployment.apps/web"}} {
		calls = append(calls, call{args: args("rollout", command.name, "deployment/web"), want: command.want})
	}
	return append(calls,
		call{args: args("rollout", "status", "deployment/web", "--timeout=1s"), fails: "timed out"},
		call{args: args("rollout", "undo", "deployment/web"), fails: "no rollout history found"}) // TestKubectlRolloutUndo has one
}

// generatorCalls create one of every kind that kubectl has a generator for.
func generatorCalls(t *testing.T) (calls []call) {
	certificate, key := writePair(t)
	for _, g := range []struct {
		words string
		in    releases
	}{
		{"configmap c --from-literal=a=1", every}, {"secret generic s --from-literal=a=1", every}, {"secret docker-registry d --docker-server=hub.test --docker-username=me --docker-password=x", every},
		{"namespace made", every}, {"serviceaccount robot", every}, {"role reader --verb=get --resource=pods", every}, {"rolebinding readers --role=reader --user=me", every},
		{"clusterrole rows:reader --verb=get --resource=pods", every}, {"clusterrole clusterRole-10 --verb=get --resource=pods", every}, {"clusterrolebinding rows:readers --clusterrole=rows:reader --user=me", every},
		{"deployment web --image=web:1", every}, {"job count --image=count:1", every}, {"service clusterip in --tcp=80", every}, {"service nodeport out --tcp=80", every},
		{"service loadbalancer lb --tcp=80", every}, {"service externalname far --external-name=far.test", every}, {"ingress front --rule=web.test/*=web:80", every}, {"quota small --hard=pods=500", every},
		{"priorityclass rows-high --value=1000", every}, {"poddisruptionbudget web --selector=app=web --min-available=1", newest}, {"token default", newest},
	} {
		c := call{args: append(args("create"), strings.Fields(g.words)...), in: g.in, want: "created"}
		if g.words == "token default" {
			c.want = "ey"
		}
		calls = append(calls, c)
	}
	return append(calls,
		call{args: args("create", "secret", "tls", "pair", "--cert="+certificate, "--key="+key), want: "created"},
		call{args: args("create", "cronjob", "nightly", "--image=count:1", "--schedule=0 0 * * *"), in: newest, want: "created"})
}

// writePair writes a certificate and its key into files.
func writePair(t *testing.T) (certificate, key string) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pair := server.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}
