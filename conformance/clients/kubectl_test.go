package clients

import "testing"

const (
	one   = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "labels": {"app": "demo"}}, "data": {"a": "1", "b": "2"}}`
	two   = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "labels": {"app": "demo"}}, "data": {"a": "3"}}`
	other = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "labels": {"app": "demo"}}}`
)

// TestKubectl is what kubectl 1.20 does with the core kinds and a custom one.
func TestKubectl(t *testing.T) {
	c := newClient(t, kubectlBinary)
	c.tell([]step{
		{args: args("version"), want: `Server Version: version.Info{Major:"1", Minor:"37"`},
		{args: args("cluster-info", "--help"), want: "Display addresses"},
		{args: args("api-versions"), want: "rbac.authorization.k8s.io/v1"},
		{args: args("api-resources", "-o", "name"), want: "configmaps"},
		{args: args("create", "-f", "testdata/chart/crds/widgets.yaml"), want: "created"},
		{args: args("wait", "--for=condition=Established", "crd/widgets.example.com"), want: "condition met"},
		{args: args("explain", "widgets.spec"), want: "FIELDS:"},
		{args: args("explain", "configmap.data"), want: "DESCRIPTION:"},
		{args: args("create", "namespace", "team"), want: "namespace/team created"},
		{args: args("create", "configmap", "made", "--from-literal=a=1"), want: "configmap/made created"},
		{args: args("create", "secret", "generic", "login", "--from-literal=user=me"), want: "secret/login created"},
		{args: args("create", "serviceaccount", "robot"), want: "serviceaccount/robot created"},
		{args: args("create", "role", "reader", "--verb=get", "--resource=configmaps"), want: "role.rbac.authorization.k8s.io/reader created"},
		{args: args("create", "rolebinding", "readers", "--role=reader", "--serviceaccount=default:robot"), want: "created"},
		{args: args("create", "clusterrole", "all:reader", "--verb=get", "--resource=namespaces"), want: "created"},
		{args: args("create", "clusterrolebinding", "all:readers", "--clusterrole=all:reader", "--group=team"), want: "created"},
		{args: args("set", "subject", "rolebinding/readers", "--user=me"), want: "subjects updated"},
		{args: args("apply", "-f", "-"), stdin: one, want: "configmap/settings created"},
		{args: args("apply", "-f", "-"), stdin: one, want: "configmap/settings unchanged"},
		{args: args("diff", "-f", "-"), stdin: one, want: ""},
		{args: args("apply", "-f", "-"), stdin: two, want: "configmap/settings configured"},
		{args: args("get", "cm", "settings", "-o", "jsonpath={.data}"), want: `{"a":"3"}`},
		{args: args("apply", "-f", "-", "--prune", "-l", "app=demo", "--prune-whitelist=core/v1/ConfigMap"), stdin: other, want: "configmap/settings pruned"},
		{args: args("apply", "--server-side", "-f", "-"), stdin: one, want: "configmap/settings serverside-applied"},
		{args: args("apply", "--server-side", "-f", "-", "--field-manager=someone"), stdin: two, fails: `conflict with "kubectl"`},
		{args: args("patch", "cm", "settings", "-p", `{"data":{"b":null,"c":"4"}}`), want: "patched"},
		{args: args("replace", "-f", "-"), stdin: one, want: "configmap/settings replaced"},
		{args: args("label", "cm", "settings", "tier=front"), want: "labeled"},
		{args: args("annotate", "cm", "settings", "note=x"), want: "annotated"},
		{args: args("get", "cm"), want: "NAME       DATA   AGE"},
		{args: args("get", "cm", "settings", "-o", "yaml"), want: "kind: ConfigMap"},
		{args: args("get", "cm", "-o", "custom-columns=NAME:.metadata.name"), want: "settings"},
		{args: args("get", "secrets"), want: "Opaque"},
		{args: args("get", "--raw", "/readyz"), want: "ok"},
		{args: args("describe", "cm", "settings"), want: "a:\n----\n1"},
		{args: args("describe", "role", "reader"), want: "configmaps"},
		{args: args("auth", "can-i", "create", "configmaps"), want: "yes"},
		{args: args("auth", "can-i", "--list"), want: "*.*"},
		{args: args("create", "-f", "-"), stdin: `{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1, "color": "red"}}`, want: "widget.example.com/a created"},
		{args: args("edit", "widget", "a"), want: "widget.example.com/a edited"},
		{args: args("get", "widget", "a", "-o", "jsonpath={.spec.size}"), want: "5"},
		{args: args("delete", "widget", "a"), want: `widget.example.com "a" deleted`},
		{args: args("delete", "cm", "settings"), want: `configmap "settings" deleted`},
		{args: args("delete", "namespace", "team"), want: `namespace "team" deleted`},
		{args: args("get", "pods"), fails: `the server doesn't have a resource type "pods"`},
	})
}

// TestKubectlWorkloads is what kubectl 1.20 does with kinds that no controller acts on here. Its create cronjob and create
// poddisruptionbudget use versions that Kubernetes serves no more.
func TestKubectlWorkloads(t *testing.T) {
	c := newClient(t, kubectlBinary, "--builtin=all")
	c.tell([]step{
		{args: args("cluster-info"), want: "is running at"},
		{args: args("create", "deployment", "web", "--image=web:1", "--replicas=2", "--port=80"), want: "deployment.apps/web created"},
		{args: args("get", "deployments"), want: "NAME   READY   UP-TO-DATE   AVAILABLE   AGE"},
		{args: args("scale", "deployment/web", "--replicas=3"), want: "deployment.apps/web scaled"},
		{args: args("set", "image", "deployment/web", "web=web:2"), want: "image updated"},
		{args: args("set", "env", "deployment/web", "A=1"), want: "env updated"},
		{args: args("autoscale", "deployment/web", "--min=1", "--max=5", "--cpu-percent=50"), want: "autoscaled"},
		{args: args("expose", "deployment/web", "--port=80"), want: "service/web exposed"},
		{args: args("rollout", "pause", "deployment/web"), want: "paused"},
		{args: args("rollout", "resume", "deployment/web"), want: "resumed"},
		{args: args("rollout", "restart", "deployment/web"), want: "restarted"},
		{args: args("rollout", "history", "deployment/web"), want: "deployment.apps/web"},
		{args: args("describe", "deployment", "web"), want: "Pod Template:"},
		{args: args("run", "once", "--image=once:1", "--restart=Never"), want: "pod/once created"},
		{args: args("get", "pods"), want: "NAME   READY   STATUS    RESTARTS   AGE"},
		{args: args("describe", "pod", "once"), want: "once:1"},
		{args: args("create", "job", "count", "--image=count:1"), want: "job.batch/count created"},
		{args: args("create", "service", "clusterip", "in", "--tcp=80:8080"), want: "service/in created"},
		{args: args("create", "service", "nodeport", "out", "--tcp=80"), want: "service/out created"},
		{args: args("create", "ingress", "front", "--rule=web.test/*=web:80"), want: "created"},
		{args: args("create", "quota", "small", "--hard=pods=5"), want: "resourcequota/small created"},
		{args: args("create", "priorityclass", "high", "--value=1000"), want: "created"},
		{args: args("apply", "-f", "-"), stdin: `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}`, want: "node/n1 created"},
		{args: args("cordon", "n1"), want: "node/n1 cordoned"},
		{args: args("taint", "node", "n1", "a=b:NoSchedule"), want: "node/n1 tainted"},
		{args: args("uncordon", "n1"), want: "node/n1 uncordoned"},
		{args: args("get", "all", "-o", "name"), want: "deployment.apps/web"},
		{args: args("delete", "pod", "once", "--grace-period=0", "--force"), want: "deleted"},
		{args: args("delete", "service", "web", "--cascade=orphan"), want: `service "web" deleted`},
		{args: args("delete", "deployment", "web", "--cascade=foreground"), want: `deployment.apps "web" deleted`},
	})
}

// TestKubectlRows runs the table of what kubectl must be able to do, which is conformance's, with kubectl 1.20.
func TestKubectlRows(t *testing.T) {
	if err := run("..", "go", "test", "-count=1", "-run=^TestKubectlRows$", ".", "-args", "-kubectl="+kubectlBinary); err != nil {
		t.Error(err)
	}
}
