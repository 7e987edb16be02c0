package conformance

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// gizmos has what widgets lack: a scale, required fields, a default and a rule.
const gizmos = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gizmo, plural: gizmos}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {}
        scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [image]
              x-kubernetes-validations:
                - {rule: self.replicas < 10, message: less than ten}
              properties:
                image: {type: string}
                replicas: {type: integer, default: 1}
            status:
              type: object
              properties:
                replicas: {type: integer}
                phase: {type: string}
`

func gizmo(spec string) string {
	return "{apiVersion: example.com/v1, kind: Gizmo, metadata: {name: g}, spec: {" + spec + "}}"
}

func TestKubectlWrites(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.do(gizmos, "create", "-f", "-")
	k.tell(t, []step{
		{args: args("wait", "--for=condition=Established", "crd/gizmos.example.com"), want: "customresourcedefinition.apiextensions.k8s.io/gizmos.example.com condition met"},
		{args: args("create", "-f", "-"), stdin: gizmo("replicas: 3"), fails: "spec.image: Required value"},
		{args: args("create", "-f", "-"), stdin: gizmo("image: a, replicas: 30"), fails: "less than ten"},
		{args: args("create", "--validate=strict", "-f", "-"), stdin: gizmo("image: a, imgae: b"), fails: `unknown field "spec.imgae"`},
		{args: args("create", "--dry-run=server", "-f", "-"), stdin: gizmo("image: a"), want: "gizmo.example.com/g created (server dry run)"},
		{args: args("get", "gizmos", "--ignore-not-found"), want: ""},

		{args: args("apply", "--server-side", "-f", "-"), stdin: gizmo("image: a"), want: "gizmo.example.com/g serverside-applied"},
		{args: args("get", "gizmo/g", "-o", "jsonpath={.spec}"), want: `{"image":"a","replicas":1}`},
		{args: args("diff", "--server-side", "-f", "-"), stdin: gizmo("image: a"), want: ""},
		{args: args("apply", "--server-side", "--field-manager=other", "-f", "-"), stdin: gizmo("image: b"), fails: `conflict with "kubectl"`},
		{args: args("apply", "--server-side", "--field-manager=other", "--force-conflicts", "--dry-run=server", "-f", "-"), stdin: gizmo("image: b"), want: "gizmo.example.com/g serverside-applied (server dry run)"},
		{args: args("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-"), stdin: gizmo("image: b"), want: "gizmo.example.com/g serverside-applied"},
		{args: args("get", "gizmo/g", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}"), want: "...other"},

		{args: args("scale", "gizmo/g", "--replicas=4"), want: "gizmo.example.com/g scaled"},
		{args: args("get", "gizmo/g", "-o", "jsonpath={.spec.replicas}"), want: "4"},
		{args: args("get", "gizmo/g", "--subresource=scale"), want: "...NAME   DESIRED   AVAILABLE   AGE\ng      4         0           "},
		{args: args("scale", "gizmo/g", "--replicas=40"), fails: "less than ten"},
		{args: args("patch", "gizmo/g", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Ready"}}`), want: "gizmo.example.com/g patched"},
		{args: args("wait", "--for=jsonpath={.status.phase}=Ready", "gizmo/g"), want: "gizmo.example.com/g condition met"},
		{args: args("patch", "gizmo/g", "--type=merge", "-p", `{"status":{"phase":"Lost"}}`), want: "gizmo.example.com/g patched (no change)"},
		{args: args("delete", "gizmo/g", "--dry-run=server"), want: `gizmo.example.com "g" deleted from default namespace (server dry run)`},
		{args: args("delete", "gizmos", "--all"), want: `gizmo.example.com "g" deleted from default namespace`},

		{args: args("apply", "--server-side", "-f", "-"), stdin: strings.Replace(gizmos, "default: 1", "default: 2", 1), fails: `conflict with "before-first-apply"`},
		{args: args("apply", "--server-side", "-f", "-"), stdin: gizmos, want: "customresourcedefinition.apiextensions.k8s.io/gizmos.example.com serverside-applied"},
	})
}

// TestDynamicApply is server-side apply and deletecollection through client-go.
func TestDynamicApply(t *testing.T) {
	s := startEphemeral(t)
	newKubectl(t, s).do(gizmos, "create", "-f", "-")
	client := s.dynamic().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gizmos"}).Namespace("default")
	want := func(image string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": map[string]any{"name": "g"}, "spec": map[string]any{"image": image},
		}}
	}
	if _, err := client.Apply(t.Context(), "g", want("a"), metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		t.Fatal(err)
	}
	_, err := client.Apply(t.Context(), "g", want("b"), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), ".spec.image") {
		t.Errorf("a second manager got %v", err)
	}
	got, err := client.Apply(t.Context(), "g", want("b"), metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if image, _, _ := unstructured.NestedString(got.Object, "spec", "image"); image != "b" || len(got.GetManagedFields()) == 0 {
		t.Errorf("applied %v", got)
	}
	if err := client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	left, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
