package reads

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// ScalePath splits a path such as ".spec.replicas".
func ScalePath(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// ReadScale returns the Scale of an object that has its resourceVersion. found tells whether the object has a number of replicas.
func (e Reader) ReadScale(o *object.Object) (s *autoscalingv1.Scale, found bool, err error) {
	want, found, err := unstructured.NestedInt64(o.Content, ScalePath(e.Scale.SpecReplicasPath)...)
	if err != nil {
		return nil, false, registry.BadRequest("%s", err)
	}
	have, _, err := unstructured.NestedInt64(o.Content, ScalePath(e.Scale.StatusReplicasPath)...)
	if err != nil {
		return nil, false, registry.BadRequest("%s", err)
	}
	s = &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Meta.Name, Namespace: o.Meta.Namespace, UID: o.Meta.UID, ResourceVersion: o.Meta.ResourceVersion, CreationTimestamp: o.Meta.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(want)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(have)},
	}
	if t := e.Typed; t != nil && t.Parts.Scale.Selector != nil {
		if s.Status.Selector, err = t.Parts.Scale.Selector(o.Content); err != nil {
			return nil, false, registry.BadRequest("%s", err)
		}
	}
	if path := e.Scale.LabelSelectorPath; path != nil && *path != "" {
		if s.Status.Selector, _, err = unstructured.NestedString(o.Content, ScalePath(*path)...); err != nil {
			return nil, false, registry.BadRequest("%s", err)
		}
	}
	return s, found, nil
}

// ShowScale shows the Scale of a stored object.
func (e Reader) ShowScale(ctx context.Context, shown *form.Shown, stored *kube.Object) ([]byte, error) {
	o, err := e.Load(ctx, stored)
	if err != nil {
		return nil, err
	}
	s, found, err := e.ReadScale(o)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", e.Scale.SpecReplicasPath))
	}
	if shown.Kind == form.Table {
		return json.Marshal(scaleTable(s, shown.Key, e.Res.Registry.Clock.Now))
	}
	return registry.EncodeApart(shown, s.TypeMeta, s)
}

// scaleTable shows a Scale as kubectl prints it.
func scaleTable(s *autoscalingv1.Scale, k form.Key, now func() time.Time) *metav1.Table {
	row := metav1.TableRow{Cells: []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), form.Said(form.Elapsed(s.CreationTimestamp.UTC().Format(time.RFC3339)), now)}}
	switch k.Include {
	case metav1.IncludeObject:
		row.Object.Object = s
	case metav1.IncludeMetadata:
		row.Object.Object = &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: k.APIVersion(), Kind: string(form.MetadataOnly)},
			ObjectMeta: s.ObjectMeta,
		}
	}
	name := form.NameColumn()
	name.Format = "" // as there
	describe := autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]
	return &metav1.Table{
		TypeMeta: metav1.TypeMeta{APIVersion: k.APIVersion(), Kind: string(form.Table)},
		ListMeta: metav1.ListMeta{ResourceVersion: s.ResourceVersion},
		ColumnDefinitions: []metav1.TableColumnDefinition{
			name,
			{Name: "Desired", Type: "integer", Description: describe},
			{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]},
			{Name: "Age", Type: "string", Description: form.Age().Description},
		},
		Rows: []metav1.TableRow{row},
	}
}

// SetManaged gives an object's tree managedFields.
func SetManaged(tree map[string]any, list []any) {
	if metadata := object.Map(tree["metadata"]); len(list) > 0 {
		metadata["managedFields"] = list
	} else {
		delete(metadata, "managedFields")
	}
}

// ScaleView returns an object's record as that of its Scale.
func (e Reader) ScaleView(o *object.Object) *managed.ScaleView {
	versions := make([]string, len(e.Res.Versions))
	for i, v := range e.Res.Versions {
		versions[i] = v.APIVersion()
	}
	return managed.NewScaleView(o.Managed, e.GVK().GroupVersion(), versions, ScalePath(e.Scale.SpecReplicasPath))
}

// ScaleTree returns an object's Scale with its managedFields.
func (e Reader) ScaleTree(view *managed.ScaleView, o *object.Object) (map[string]any, error) {
	s, _, err := e.ReadScale(o)
	if err != nil {
		return nil, err
	}
	tree, err := jsontree.OfValue(s)
	if err != nil {
		return nil, err
	}
	list, err := view.Scale()
	SetManaged(tree, list)
	return tree, err
}
