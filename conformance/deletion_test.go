package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// dependent is a widget that an owner's deletion in the foreground waits for.
func dependent(name string, owner *unstructured.Unstructured) *unstructured.Unstructured {
	w, yes := widget(name, 1), true
	w.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
		Controller: &yes, BlockOwnerDeletion: &yes,
	}})
	return w
}

// family creates an owner with two dependents, one of which owns a third, and returns the owner.
func family(t testing.TB, client dynamic.ResourceInterface) *unstructured.Unstructured {
	t.Helper()
	create := func(w *unstructured.Unstructured) *unstructured.Unstructured {
		made, err := client.Create(t.Context(), w, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	owner := create(widget("owner", 1))
	create(dependent("grandchild", create(dependent("child", owner))))
	create(dependent("sibling", owner))
	return owner
}

// left are the names of the widgets that are there, each with a star if it has an owner.
func left(t testing.TB, client dynamic.ResourceInterface) string {
	t.Helper()
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName()+strings.Repeat("*", len(item.GetOwnerReferences())))
	}
	return strings.Join(names, " ")
}

// TestKubectlCascades: what goes with an owner. kubectl waits until the owner is gone.
func TestKubectlCascades(t *testing.T) {
	for _, tc := range []struct{ cascade, left string }{
		{"background", ""},
		{"foreground", ""},
		{"orphan", "child grandchild* sibling"},
	} {
		t.Run(tc.cascade, func(t *testing.T) {
			s := startEphemeral(t)
			s.define()
			client := s.dynamic().Resource(widgets).Namespace("default")
			family(t, client)
			k := newKubectl(t, s)
			if got := k.do("", "delete", "widget", "owner", "--cascade="+tc.cascade); got != `widget.example.com "owner" deleted from default namespace` {
				t.Errorf("it prints %s", got)
			}
			if tc.cascade == "foreground" { // the owner is the last to go
				if got := left(t, client); got != "" {
					t.Errorf("after the owner there is %s", got)
				}
			}
			eventually(t, "what goes has gone", func(context.Context) bool { return left(t, client) == tc.left })
		})
	}
}

// TestKubectlDeletesMany: by name, by selector, by file, all at once, and with their namespace.
func TestKubectlDeletesMany(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.define()
	const count = 12
	var many, deleted []string
	for i := range count {
		many = append(many, fmt.Sprintf("---\n{apiVersion: example.com/v1, kind: Widget, metadata: {name: w%02d, labels: {tier: t%d}}}\n", i, i%3))
		deleted = append(deleted, fmt.Sprintf("widget.example.com %q deleted from default namespace", fmt.Sprintf("w%02d", i)))
	}
	pick := func(indexes ...int) string {
		var lines []string
		for _, i := range indexes {
			lines = append(lines, deleted[i])
		}
		return strings.Join(lines, "\n")
	}
	team := strings.ReplaceAll(strings.Join(many, ""), "metadata: {", "metadata: {namespace: team, ")
	k.tell(t, []step{
		{args: args("create", "-f", "-"), stdin: strings.Join(many, ""), want: "...widget.example.com/w11 created"},
		{args: args("delete", "wd", "w00", "w01"), want: pick(0, 1)},
		{args: args("delete", "wd/w03", "--now"), want: pick(3)},
		{args: args("delete", "wd", "-l", "tier=t1"), want: pick(4, 7, 10)},
		{args: args("delete", "wd", "--field-selector", "metadata.name=w02"), want: pick(2)},
		{args: args("delete", "wd", "--all", "--dry-run=server"), want: "...\"w11\" deleted from default namespace (server dry run)"},
		{args: args("get", "wd", "-o", "name"), want: "widget.example.com/w05\nwidget.example.com/w06\nwidget.example.com/w08\nwidget.example.com/w09\nwidget.example.com/w11"},
		{args: args("delete", "wd", "--all"), want: pick(5, 6, 8, 9, 11)},
		{args: args("delete", "wd", "--all"), want: "No resources found"},
		{args: args("create", "-f", "-"), stdin: strings.Join(many, ""), want: "...widget.example.com/w11 created"},
		{args: args("delete", "-f", "-"), stdin: strings.Join(many, ""), want: pick(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)},
		{args: args("create", "ns", "team"), want: "namespace/team created"},
		{args: args("create", "-f", "-"), stdin: team, want: "...widget.example.com/w11 created"},
		{args: args("delete", "namespace", "team", "--wait"), want: `namespace "team" deleted`},
		{args: args("wait", "--for=delete", "namespace/team", "--timeout=10s"), want: ""},
		{args: args("get", "wd", "-A", "-o", "name"), want: ""},
		{args: args("create", "ns", "team"), want: "namespace/team created"},
		{args: args("delete", "namespace", "team", "--wait=false"), want: `namespace "team" deleted`},
		{args: args("wait", "--for=delete", "namespace/team", "--timeout=30s"), want: "..."},
		{args: args("delete", "crd", "widgets.example.com"), want: `customresourcedefinition.apiextensions.k8s.io "widgets.example.com" deleted`},
		{args: args("get", "crd", "-o", "name"), want: ""},
	})
}

// TestKubectlHeldNamespace: a namespace whose content somebody holds says so, and goes when they let go.
func TestKubectlHeldNamespace(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.define()
	held := strings.Replace(gadget, "name: g", "name: g, namespace: team, finalizers: [example.com/hold]", 1)
	k.tell(t, []step{
		{args: args("create", "ns", "team"), want: "namespace/team created"},
		{args: args("create", "-f", "-"), stdin: held, want: "widget.example.com/g created"},
		{args: args("delete", "ns", "team", "--wait=false"), want: `namespace "team" deleted`},
		{args: args("wait", "--for=condition=NamespaceFinalizersRemaining", "ns/team", "--timeout=30s"), want: "namespace/team condition met"},
		{args: args("get", "ns", "team", "-o", `jsonpath={.status.phase} {.status.conditions[?(@.type=="NamespaceFinalizersRemaining")].message}`),
			want: "Terminating Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"},
		{args: args("create", "-n", "team", "-f", "-"), stdin: gadget, fails: "unable to create new content in namespace team because it is being terminated"},
		{args: args("delete", "ns", "team", "--timeout=1s"), fails: "timed out waiting for the condition"},
		{args: args("patch", "wd", "g", "-n", "team", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`), want: "widget.example.com/g patched"},
		{args: args("wait", "--for=delete", "ns/team", "--timeout=30s"), want: "..."},
		{args: args("get", "ns", "team"), fails: `(NotFound): namespaces "team" not found`},
	})
}

// TestKubectlWithoutControllers: without controllers what a deletion leaves stays, until somebody does their work by hand.
func TestKubectlWithoutControllers(t *testing.T) {
	k := newKubectl(t, start(t, "--ephemeral", "--controllers=none"))
	k.define()
	const finalizers = "jsonpath={.metadata.finalizers}"
	k.tell(t, []step{
		{args: args("create", "-f", "-"), stdin: gadget, want: "widget.example.com/g created"},
		{args: args("delete", "wd", "g", "--cascade=foreground", "--wait=false"), want: `widget.example.com "g" deleted from default namespace`},
		{args: args("get", "wd", "g", "-o", finalizers), want: `["foregroundDeletion"]`},
		{args: args("delete", "wd", "g", "--cascade=orphan", "--wait=false"), want: `widget.example.com "g" deleted from default namespace`},
		{args: args("get", "wd", "g", "-o", finalizers), want: `["orphan"]`},
		{args: args("delete", "wd", "g"), want: `widget.example.com "g" deleted from default namespace`},
		{args: args("get", "wd", "-o", "name"), want: ""},
		{args: args("create", "ns", "team"), want: "namespace/team created"},
		{args: args("create", "-n", "team", "-f", "-"), stdin: gadget, want: "widget.example.com/g created"},
		{args: args("delete", "ns", "team", "--timeout=1s"), fails: "timed out waiting for the condition"},
		{args: args("get", "ns", "team", "-o", "jsonpath={.status.phase}"), want: "Terminating"},
		{args: args("replace", "--raw", "/api/v1/namespaces/team/finalize", "-f", "-"), stdin: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team"},"spec":{}}`, want: `..."name":"team"`},
		{args: args("get", "ns", "team"), fails: `(NotFound): namespaces "team" not found`},
		{args: args("get", "wd", "-A", "-o", "name"), want: "widget.example.com/g"}, // as in etcd under kube-apiserver alone
	})
}

// TestKubectlDeletesPods: a pod that has a node stays until somebody says that it has ended.
func TestKubectlDeletesPods(t *testing.T) {
	k := newKubectl(t, start(t, "--ephemeral", "--builtin=all"))
	pod := func(name, spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {" + spec + "containers: [{name: c, image: i}]}}"
	}
	k.tell(t, []step{
		{args: args("create", "-f", "-"), stdin: pod("nowhere", ""), want: "pod/nowhere created"},
		{args: args("delete", "pod", "nowhere"), want: `pod "nowhere" deleted from default namespace`},
		{args: args("create", "-f", "-"), stdin: pod("here", "nodeName: one, terminationGracePeriodSeconds: 600, "), want: "pod/here created"},
		{args: args("delete", "pod", "here", "--wait=false"), want: `pod "here" deleted from default namespace`},
		{args: args("get", "pod", "here", "--no-headers"), want: "...Terminating"},
		{args: args("get", "pod", "here", "-o", "jsonpath={.metadata.deletionGracePeriodSeconds}"), want: "600"},
		{args: args("delete", "pod", "here", "--grace-period=100", "--wait=false"), want: `pod "here" deleted from default namespace`},
		{args: args("get", "pod", "here", "-o", "jsonpath={.metadata.deletionGracePeriodSeconds}"), want: "100"},
	})
	stdout, stderr, err := k.call("", "delete", "pod", "here", "--grace-period=0", "--force")
	if err != nil || stdout != `pod "here" force deleted from default namespace` || !strings.HasPrefix(stderr, "Warning: Immediate deletion") {
		t.Errorf("it ends with %v, %q, %q", err, stdout, stderr)
	}
	if got := k.do("", "get", "pods", "-o", "name"); got != "" {
		t.Errorf("left %s", got)
	}
}

// TestClientDeletions: client-go's deletes with each policy and precondition.
func TestClientDeletions(t *testing.T) {
	policy := func(p metav1.DeletionPropagation) metav1.DeleteOptions {
		return metav1.DeleteOptions{PropagationPolicy: &p}
	}
	yes, no := true, false
	for _, tc := range []struct {
		name    string
		options metav1.DeleteOptions
		left    string
	}{
		{"none", metav1.DeleteOptions{}, ""},
		{"background", policy(metav1.DeletePropagationBackground), ""},
		{"foreground", policy(metav1.DeletePropagationForeground), ""},
		{"orphan", policy(metav1.DeletePropagationOrphan), "child grandchild* sibling"},
		//lint:ignore SA1019 it's deprecated, and still sent
		{"orphanDependents", metav1.DeleteOptions{OrphanDependents: &yes}, "child grandchild* sibling"},
		//lint:ignore SA1019 it's deprecated, and still sent
		{"orphanDependents=false", metav1.DeleteOptions{OrphanDependents: &no}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := startEphemeral(t)
			s.define()
			client := s.dynamic().Resource(widgets).Namespace("default")
			owner := family(t, client)
			other, version, uid := types.UID("other"), "1", owner.GetUID()
			for _, pre := range []metav1.Preconditions{{UID: &other}, {ResourceVersion: &version}, {UID: &uid, ResourceVersion: &version}} {
				options := tc.options
				options.Preconditions = &pre
				if err := client.Delete(t.Context(), "owner", options); !apierrors.IsConflict(err) {
					t.Errorf("with the preconditions %v: %v", pre, err)
				}
			}
			version = owner.GetResourceVersion()
			tc.options.Preconditions = &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
			if err := client.Delete(t.Context(), "owner", tc.options); err != nil {
				t.Fatal(err)
			}
			eventually(t, "what goes has gone", func(context.Context) bool { return left(t, client) == tc.left })
		})
	}
}
