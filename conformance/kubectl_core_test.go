package conformance

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKubectlCreate: create has a generator for each of these kinds.
func TestKubectlCreate(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.tell(t, []step{
		{args: args("create", "namespace", "team"), want: "namespace/team created"},
		{args: args("create", "configmap", "settings", "--from-literal=a=1", "--from-literal=b=2"), want: "configmap/settings created"},
		{args: args("create", "configmap", "settings", "--from-literal=a=1"), fails: `error: failed to create configmap: configmaps "settings" already exists`},
		{args: args("create", "secret", "generic", "login", "--from-literal=user=me"), want: "secret/login created"},
		{args: args("create", "secret", "docker-registry", "hub", "--docker-server=hub.test", "--docker-username=me", "--docker-password=x"), want: "secret/hub created"},
		{args: args("create", "serviceaccount", "robot"), want: "serviceaccount/robot created"},
		{args: args("create", "role", "reader", "--verb=get,list,watch", "--resource=configmaps"), want: "role.rbac.authorization.k8s.io/reader created"},
		{args: args("create", "rolebinding", "readers", "--role=reader", "--serviceaccount=default:robot"), want: "rolebinding.rbac.authorization.k8s.io/readers created"},
		{args: args("create", "clusterrole", "all:reader", "--verb=get", "--resource=namespaces"), want: "clusterrole.rbac.authorization.k8s.io/all:reader created"},
		{args: args("create", "clusterrolebinding", "all:readers", "--clusterrole=all:reader", "--group=team"), want: "clusterrolebinding.rbac.authorization.k8s.io/all:readers created"},
		{args: args("create", "configmap", "dry", "--dry-run=client", "-o", "name"), want: "configmap/dry"},
		{args: args("create", "configmap", "dry", "--dry-run=server", "-o", "name"), want: "configmap/dry"},
		{args: args("get", "configmap", "dry"), fails: `configmaps "dry" not found`},
		{args: args("set", "subject", "rolebinding/readers", "--user=me"), want: "rolebinding.rbac.authorization.k8s.io/readers subjects updated"},
		{args: args("get", "rolebinding", "readers", "-o", "jsonpath={.subjects[*].name}"), want: "robot me"},
		{args: args("auth", "reconcile", "-f", "-"), stdin: `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader, namespace: default}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}`,
			want: "...role.rbac.authorization.k8s.io/reader reconciled", complains: "missing rules added"},
	})
}

// TestKubectlGetOutputs: each form in which get prints.
func TestKubectlGetOutputs(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.do("", "create", "configmap", "settings", "--from-literal=a=1", "--from-literal=b=2")
	k.do("", "label", "configmap", "settings", "tier=front")
	k.do("", "create", "secret", "generic", "login", "--from-literal=user=me")
	k.tell(t, []step{
		{args: args("get", "configmaps"), want: "...NAME       DATA   AGE\nsettings   2      "},
		{args: args("get", "secrets", "--no-headers"), want: "...login   Opaque   1     "},
		{args: args("get", "cm", "-L", "tier"), want: "...TIER\nsettings   2      "},
		{args: args("get", "cm", "--show-labels"), want: "...tier=front"},
		{args: args("get", "cm", "--show-kind", "--no-headers"), want: "...configmap/settings   2     "},
		{args: args("get", "cm", "settings", "-o", "wide"), want: "...settings   2     "},
		{args: args("get", "cm", "settings", "-o", "name"), want: "configmap/settings"},
		{args: args("get", "cm", "settings", "-o", "yaml"), want: "...data:\n  a: \"1\"\n  b: \"2\"\nkind: ConfigMap\n"},
		{args: args("get", "cm", "settings", "-o", "json"), want: `..."kind": "ConfigMap"`},
		{args: args("get", "cm", "-o", "jsonpath={.items[*].data.a}"), want: "1"},
		{args: args("get", "cm", "-o", "jsonpath-as-json={.items[*].data.a}"), want: "[\n    \"1\"\n]"},
		{args: args("get", "cm", "-o", "custom-columns=NAME:.metadata.name,A:.data.a"), want: "NAME       A\nsettings   1"},
		{args: args("get", "cm", "-o", "go-template={{range .items}}{{.metadata.name}} {{end}}"), want: "settings"},
		{args: args("get", "cm", "--sort-by=.metadata.name", "-o", "name"), want: "configmap/settings"},
		{args: args("get", "cm,secrets", "-o", "name"), want: "configmap/settings\nsecret/login"},
		{args: args("get", "cm", "-A", "-l", "tier=front", "-o", "name"), want: "configmap/settings"},
		{args: args("get", "cm", "--field-selector", "metadata.name=settings", "-o", "name"), want: "configmap/settings"},
		{args: args("get", "secrets", "--field-selector", "type=Opaque", "-o", "name"), want: "secret/login"},
		{args: args("get", "cm", "--server-print=false", "--no-headers"), want: "...settings   "},
		{args: args("get", "cm", "settings", "--show-managed-fields", "-o", "yaml"), want: "...kind: ConfigMap"},
		{args: args("get", "--raw", "/api/v1/namespaces/default/configmaps/settings"), want: `..."data":{"a":"1","b":"2"}`},
	})
}

// TestKubectlChange: every way to change an object of a built-in kind.
func TestKubectlChange(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	const one = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {app: demo}}, data: {a: "1", b: "2"}}`
	const two = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {app: demo}}, data: {a: "3"}}`
	const other = `{apiVersion: v1, kind: ConfigMap, metadata: {name: other, labels: {app: demo}}}`
	k.tell(t, []step{
		{args: args("apply", "-f", "-"), stdin: one, want: "configmap/settings created"},
		{args: args("apply", "-f", "-"), stdin: one, want: "configmap/settings unchanged"},
		{args: args("diff", "-f", "-"), stdin: one, want: ""},
	})
	if stdout, stderr, err := k.call(two, "diff", "-f", "-"); err == nil || stderr != "" || !strings.Contains(stdout, `-  b: "2"`) || !strings.Contains(stdout, `+  a: "3"`) {
		t.Errorf("diff ends with %v and prints\n%s\n%s", err, stdout, stderr)
	}
	k.tell(t, []step{
		{args: args("apply", "-f", "-", "--dry-run=server"), stdin: two, want: "configmap/settings configured (server dry run)"},
		{args: args("apply", "-f", "-"), stdin: two, want: "configmap/settings configured"},
		{args: args("get", "cm", "settings", "-o", "jsonpath={.data}"), want: `{"a":"3"}`},
		{args: args("apply", "-f", "-", "--prune", "-l", "app=demo", "--prune-allowlist=core/v1/ConfigMap"), stdin: other, want: "configmap/other created\nconfigmap/settings pruned"},
		{args: args("apply", "--server-side", "-f", "-"), stdin: one, want: "configmap/settings serverside-applied"},
		{args: args("apply", "--server-side", "-f", "-", "--field-manager=someone"), stdin: two, fails: `conflict with "kubectl"`},
		{args: args("apply", "--server-side", "-f", "-", "--field-manager=someone", "--force-conflicts"), stdin: two, want: "configmap/settings serverside-applied"},
		{args: args("diff", "--server-side", "-f", "-", "--field-manager=someone"), stdin: two, want: ""},
		{args: args("patch", "cm", "settings", "-p", `{"data":{"b":null,"c":"4"}}`), want: "configmap/settings patched"},
		{args: args("get", "cm", "settings", "-o", "jsonpath={.data}"), want: `{"a":"3","c":"4"}`},
		{args: args("patch", "cm", "settings", "--type=json", "-p", `[{"op":"remove","path":"/data/c"}]`), want: "configmap/settings patched"},
		{args: args("replace", "-f", "-"), stdin: one, want: "configmap/settings replaced"},
		{args: args("label", "cm", "settings", "tier=front"), want: "configmap/settings labeled"},
		{args: args("annotate", "cm", "settings", "note=x"), want: "configmap/settings annotated"},
		{args: args("wait", "--for=jsonpath={.data.a}=1", "cm/settings", "--timeout=30s"), want: "configmap/settings condition met"},
		{args: args("delete", "cm", "settings", "--cascade=orphan"), want: `configmap "settings" deleted from default namespace`},
		{args: args("delete", "cm", "other", "--cascade=background", "--now"), want: `configmap "other" deleted from default namespace`},
		{args: args("apply", "-f", "-"), stdin: one, want: "configmap/settings created"},
		{args: args("delete", "cm", "-l", "app=demo"), want: `configmap "settings" deleted from default namespace`},
		{args: args("create", "-f", "-", "--validate=strict"), stdin: strings.Replace(one, " data:", " dat:", 1), fails: `unknown field "dat"`},
		{args: args("create", "-f", "-"), stdin: strings.Replace(one, "a: \"1\"", "a: 1", 1), fails: "cannot unmarshal number into Go struct field ConfigMap.data of type string"},
	})
}

// TestKubectlDescribe: what describe, explain and events say about built-in kinds.
func TestKubectlDescribe(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.do("", "create", "configmap", "settings", "--from-literal=a=1")
	k.do("", "create", "secret", "generic", "login", "--from-literal=user=me")
	k.do("", "create", "serviceaccount", "robot")
	k.do("", "create", "role", "reader", "--verb=get", "--resource=configmaps")
	k.do("", "create", "rolebinding", "readers", "--role=reader", "--user=me")
	k.do(`{apiVersion: v1, kind: Event, metadata: {name: e}, type: Warning, reason: Burnt, message: it burns, lastTimestamp: "2026-01-01T00:00:00Z",
		involvedObject: {apiVersion: v1, kind: ConfigMap, name: settings, namespace: default}}`, "create", "-f", "-")
	k.do(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: leader}, spec: {holderIdentity: me}}`, "create", "-f", "-")
	k.tell(t, []step{
		{args: args("describe", "cm", "settings"), want: "...Data\n====\na:\n----\n1\n"},
		{args: args("describe", "secret", "login"), want: "...user:  2 bytes"},
		{args: args("describe", "role", "reader"), want: "...configmaps  []                 []              [get]"},
		{args: args("describe", "rolebinding", "readers"), want: "...User  me"},
		{args: args("describe", "lease", "leader"), want: "...Holder Identity:  me"},
		{args: args("describe", "sa", "robot"), want: "...Name:                robot"},
		{args: args("describe", "ns", "default"), want: "...Status:       Active"},
		{args: args("get", "lease"), want: "...NAME     HOLDER   AGE\nleader   me       "},
		{args: args("get", "sa", "robot", "-o", "name"), want: "serviceaccount/robot"},
		{args: args("get", "events", "--no-headers"), want: "...Warning   Burnt   configmap/settings   it burns"},
		{args: args("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].note}"), want: "it burns"},
		{args: args("events"), want: "...Warning   Burnt    ConfigMap/settings   it burns"},
		{args: args("events", "--for", "cm/settings", "--types=Warning", "--no-headers"), want: "...it burns"},
		{args: args("explain", "configmap.data"), want: "...FIELD: data <map[string]string>"},
		{args: args("explain", "roles.rules", "--recursive"), want: "...resourceNames"},
		{args: args("explain", "lease.spec", "--output=plaintext-openapiv2"), want: "...holderIdentity"},
	})
}

// TestKubectlAuth: who kubectl is, and what it may do.
func TestKubectlAuth(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.tell(t, []step{
		{args: args("auth", "can-i", "create", "configmaps"), want: "yes"},
		{args: args("auth", "can-i", "*", "*", "--all-namespaces"), want: "yes"},
		{args: args("auth", "can-i", "get", "/metrics"), want: "yes"},
		{args: args("auth", "can-i", "--list"), want: "...*.*"},
		{args: args("auth", "whoami"), want: "...Username"},
		{args: args("auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}"), want: `..."system:masters"`},
		{args: args("version", "-o", "json"), want: `..."serverVersion"`},
		{args: args("api-resources", "-o", "name"), want: "...configmaps\nevents\nnamespaces\nsecrets\nserviceaccounts\n"},
		{args: args("api-versions"), want: "...rbac.authorization.k8s.io/v1"},
	})
}

// TestKubectlRBAC: kubectl's own view of RBAC, for an administrator, somebody who was given a role, and whom the administrator
// takes the place of.
func TestKubectlRBAC(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users.csv")
	if err := os.WriteFile(users, []byte("root,root,1,system:masters\nann,ann,2,\"devs,testers\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--tls", "--token-auth-file", users, "--authorization-mode", "Node,RBAC")
	s.token, s.caFile = "root", filepath.Join(s.dataDir, "tls.crt")
	root := newKubectl(t, s)
	s.token = "ann"
	ann := newKubectl(t, s)
	root.tell(t, []step{
		{args: args("create", "ns", "shop"), want: "namespace/shop created"},
		{args: args("create", "role", "editor", "-n", "shop", "--verb=get,list,watch,create", "--resource=configmaps"), want: "role.rbac.authorization.k8s.io/editor created"},
		{args: args("create", "rolebinding", "editor", "-n", "shop", "--role=editor", "--group=devs"), want: "rolebinding.rbac.authorization.k8s.io/editor created"},
		{args: args("create", "clusterrolebinding", "viewer", "--clusterrole=view", "--serviceaccount=shop:default"), want: "clusterrolebinding.rbac.authorization.k8s.io/viewer created"},
		{args: args("auth", "can-i", "get", "configmaps", "-n", "shop", "--as", "somebody", "--as-group", "devs"), want: "yes"},
		{args: args("auth", "can-i", "--list", "--as", "system:serviceaccount:shop:default"), want: "...configmaps"},
		{args: args("auth", "reconcile", "-f", "-"), stdin: `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: more, namespace: shop}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}`,
			want: "...role.rbac.authorization.k8s.io/more reconciled", complains: "missing rules added"},
		{args: args("describe", "clusterrole", "system:basic-user"), want: "...selfsubjectaccessreviews"},
	})
	ann.tell(t, []step{
		{args: args("auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}"), want: `["devs","testers","system:authenticated"]`},
		{args: args("auth", "can-i", "--list", "-n", "shop"), want: "...configmaps                                      []                  []               [get list watch create]"},
		{args: args("auth", "can-i", "create", "configmaps", "-n", "shop"), want: "yes"},
		{args: args("create", "configmap", "settings", "-n", "shop", "--from-literal=a=1"), want: "configmap/settings created"},
		{args: args("delete", "configmap", "settings", "-n", "shop"), fails: `Error from server (Forbidden): configmaps "settings" is forbidden: User "ann" cannot delete resource "configmaps" in API group "" in the namespace "shop"`},
		{args: args("get", "configmaps", "--as", "root"), fails: `User "ann" cannot impersonate-on:user-info:`},
	})
}

// TestKubectlKustomize: a directory of resources, made and applied.
func TestKubectlKustomize(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("namePrefix: my-\nconfigMapGenerator:\n- name: settings\n  literals: [a=1]\ngeneratorOptions: {disableNameSuffixHash: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.tell(t, []step{
		{args: args("kustomize", dir), want: "...name: my-settings"},
		{args: args("apply", "-k", dir), want: "configmap/my-settings created"},
		{args: args("get", "-k", dir, "-o", "jsonpath={.data.a}"), want: "1"},
		{args: args("delete", "-k", dir), want: `configmap "my-settings" deleted from default namespace`},
	})
}

// TestKubectlProxy: a proxy on this machine, through which others talk without credentials.
func TestKubectlProxy(t *testing.T) {
	k := newKubectl(t, startSecure(t))
	line := <-k.follow("proxy", "--port=0")
	_, address, ok := strings.Cut(line, "Starting to serve on ")
	if !ok {
		t.Fatalf("proxy prints %q", line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	get := func(path string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	if body, err := io.ReadAll(get("/api/v1/namespaces/default").Body); err != nil || !strings.Contains(string(body), `"name": "default"`) && !strings.Contains(string(body), `"name":"default"`) {
		t.Errorf("%v: %s", err, body)
	}
	events := bufio.NewReader(get("/api/v1/namespaces/default/configmaps?watch=true").Body)
	k.do("", "create", "configmap", "settings")
	if event, err := events.ReadString('\n'); err != nil || !strings.HasPrefix(event, `{"type":"ADDED"`) {
		t.Errorf("the watch through the proxy has %q, %v", event, err)
	}
}

// startAll starts a server with every kind that is only data.
func startAll(t testing.TB) *apiserver { return start(t, "--ephemeral", "--builtin=all") }

// TestKubectlWorkloads: what kubectl does with kinds that no controller acts on here.
func TestKubectlWorkloads(t *testing.T) {
	k := newKubectl(t, startAll(t))
	k.tell(t, []step{
		{args: args("create", "deployment", "web", "--image=web:1", "--replicas=2", "--port=80"), want: "deployment.apps/web created"},
		{args: args("get", "deployments"), want: "...NAME   READY   UP-TO-DATE   AVAILABLE   AGE\nweb    0/2     0            0           "},
		{args: args("scale", "deployment/web", "--replicas=3", "--current-replicas=2"), want: "deployment.apps/web scaled"},
		{args: args("get", "deployment", "web", "-o", "jsonpath={.spec.replicas} {.spec.strategy.type}"), want: "3 RollingUpdate"},
		{args: args("set", "image", "deployment/web", "web=web:2"), want: "deployment.apps/web image updated"},
		{args: args("set", "env", "deployment/web", "A=1"), want: "deployment.apps/web env updated"},
		{args: args("set", "resources", "deployment/web", "--limits=cpu=1"), want: "deployment.apps/web resource requirements updated"},
		{args: args("set", "serviceaccount", "deployment/web", "robot"), want: "deployment.apps/web serviceaccount updated"},
		{args: args("set", "selector", "service/none", "a=b"), fails: `services "none" not found`},
		{args: args("autoscale", "deployment/web", "--min=1", "--max=5", "--cpu=50%"), want: "horizontalpodautoscaler.autoscaling/web autoscaled"},
		{args: args("expose", "deployment/web", "--port=80"), want: "service/web exposed"},
		{args: args("get", "service", "web", "-o", "jsonpath={.spec.type} {.spec.ports[0].targetPort} {.spec.selector}"), want: `ClusterIP 80 {"app":"web"}`},
		{args: args("rollout", "pause", "deployment/web"), want: "deployment.apps/web paused"},
		{args: args("rollout", "resume", "deployment/web"), want: "deployment.apps/web resumed"},
		{args: args("rollout", "restart", "deployment/web"), want: "deployment.apps/web restarted"},
		{args: args("rollout", "history", "deployment/web"), want: "...deployment.apps/web"},
		{args: args("rollout", "status", "deployment/web", "--timeout=1s"), fails: "timed out"},
		{args: args("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", `{"status":{"observedGeneration":100,"replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3}}`), want: "deployment.apps/web patched"},
		{args: args("rollout", "status", "deployment/web"), want: `deployment "web" successfully rolled out`},
		{args: args("wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/web", "--timeout=30s"), want: "deployment.apps/web condition met"},
		{args: args("describe", "deployment", "web"), want: "...Pod Template:\n  Labels:           app=web\n"},
		{args: args("run", "once", "--image=once:1", "--restart=Never"), want: "pod/once created"},
		{args: args("get", "pods"), want: "...NAME   READY   STATUS    RESTARTS   AGE\nonce   0/1     Pending   0          "},
		{args: args("describe", "pod", "once"), want: "...Image:        once:1"},
		{args: args("get", "pods", "--field-selector", "status.phase=Pending,spec.nodeName=", "-o", "name"), want: "pod/once"},
		{args: args("logs", "once"), want: ""}, // of a pod on no node
		{args: args("create", "--raw", "/api/v1/namespaces/default/pods/once/binding", "-f", "-"), stdin: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"once"},"target":{"kind":"Node","name":"n1"}}`, want: `..."status":"Success"`},
		{args: args("logs", "once"), fails: "there is no kubelet: nothing runs on this server, so log isn't served"},
		{args: args("patch", "pod", "once", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Running"}}`), want: "pod/once patched"},
		{args: args("exec", "once", "--", "true"), fails: "there is no kubelet: nothing runs on this server, so exec isn't served"},
		{args: args("attach", "once"), fails: "there is no kubelet: nothing runs on this server, so attach isn't served"},
		{args: args("port-forward", "pod/once", "8080:80"), fails: "there is no kubelet: nothing runs on this server, so portforward isn't served"},
		{args: args("get", "--raw", "/api/v1/namespaces/default/pods/once/proxy/"), fails: "there is no kubelet: nothing runs on this server, so proxy isn't served"},
		{args: args("create", "token", "default", "--duration=1h"), want: "...ey"},
		{args: args("get", "widgets"), fails: `the server doesn't have a resource type "widgets"`},
		{args: args("get", "componentstatuses", "etcd-0", "--no-headers"), want: "...Healthy", complains: "deprecated"},
		{args: args("create", "job", "count", "--image=count:1"), want: "job.batch/count created"},
		{args: args("create", "cronjob", "nightly", "--image=count:1", "--schedule=0 0 * * *"), want: "cronjob.batch/nightly created"},
		{args: args("create", "job", "now", "--from=cronjob/nightly"), want: "job.batch/now created"},
		{args: args("create", "service", "clusterip", "in", "--tcp=80:8080"), want: "service/in created"},
		{args: args("create", "service", "nodeport", "out", "--tcp=80"), want: "service/out created"},
		{args: args("get", "service", "out", "--no-headers"), want: "...   80:3"},
		{args: args("create", "service", "loadbalancer", "lb", "--tcp=80"), want: "service/lb created"},
		{args: args("create", "service", "externalname", "far", "--external-name=far.test"), want: "service/far created"},
		{args: args("create", "ingress", "front", "--rule=web.test/*=web:80"), want: "ingress.networking.k8s.io/front created"},
		{args: args("create", "quota", "small", "--hard=pods=5"), want: "resourcequota/small created"},
		{args: args("create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=1"), want: "poddisruptionbudget.policy/web created"},
		{args: args("create", "priorityclass", "high", "--value=1000"), want: "priorityclass.scheduling.k8s.io/high created"},
		{args: args("get", "all", "-o", "name"), want: "...deployment.apps/web"},
		{args: args("cluster-info"), want: "...is running at"},
		{args: args("apply", "-f", "-"), stdin: `{apiVersion: v1, kind: Node, metadata: {name: n1}}`, want: "node/n1 created"},
		{args: args("cordon", "n1"), want: "node/n1 cordoned"},
		{args: args("taint", "node", "n1", "a=b:NoSchedule"), want: "node/n1 tainted"},
		{args: args("get", "nodes", "--no-headers"), want: "...SchedulingDisabled"},
		{args: args("uncordon", "n1"), want: "node/n1 uncordoned"},
		{args: args("delete", "pod", "once", "--grace-period=0", "--force"), want: `pod "once" force deleted from default namespace`, complains: "Immediate deletion"},
		{args: args("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s"), want: `deployment.apps "web" deleted from default namespace`},
	})
}

// TestKubectlRolloutUndo: no controller keeps the history of a Deployment here, but where its ReplicaSets are, kubectl goes
// back to one of them.
func TestKubectlRolloutUndo(t *testing.T) {
	k := newKubectl(t, startAll(t))
	k.do("", "create", "deployment", "web", "--image=web:2")
	uid := k.do("", "get", "deployment", "web", "-o", "jsonpath={.metadata.uid}")
	for _, revision := range []string{"1", "2"} {
		k.do(strings.NewReplacer("REVISION", revision, "OWNER", uid).Replace(`{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-REVISION",
			"labels": {"app": "web", "pod-template-hash": "REVISION"}, "annotations": {"deployment.kubernetes.io/revision": "REVISION"},
			"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "OWNER", "controller": true}]},
			"spec": {"selector": {"matchLabels": {"app": "web", "pod-template-hash": "REVISION"}}, "template": {
			"metadata": {"labels": {"app": "web", "pod-template-hash": "REVISION"}}, "spec": {"containers": [{"name": "web", "image": "web:REVISION"}]}}}}`), "create", "-f", "-")
	}
	k.tell(t, []step{
		{args: args("rollout", "history", "deployment/web"), want: "...REVISION  CHANGE-CAUSE\n1         <none>\n2         <none>"},
		{args: args("rollout", "undo", "deployment/web"), want: "deployment.apps/web rolled back"},
		{args: args("get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"), want: "web:1"},
	})
}
