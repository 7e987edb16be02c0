package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// The scale subresource shows the number of replicas of an object, wherever it has that, as an
// autoscaling/v1 Scale. What is written to it changes that number and nothing else.

// Scale says where an object has what its scale subresource shows.
type Scale struct {
	SpecReplicasPath, StatusReplicasPath string // as ".spec.replicas"
	// Selector returns the pods' selector as text, "" for none; nil: nothing has one.
	Selector func(content map[string]any) (string, error)
}

// scalePath splits a path such as ".spec.replicas".
func scalePath(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// readScale returns an object's Scale. found tells whether the object has a number of replicas.
func (e *Endpoint) readScale(o *object.Object, rev string) (s *autoscalingv1.Scale, found bool, err error) {
	want, found, err := unstructured.NestedInt64(o.Content, scalePath(e.scale.SpecReplicasPath)...)
	if err != nil {
		return nil, false, badRequest("%s", err)
	}
	have, _, err := unstructured.NestedInt64(o.Content, scalePath(e.scale.StatusReplicasPath)...)
	if err != nil {
		return nil, false, badRequest("%s", err)
	}
	s = &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Meta.Name, Namespace: o.Meta.Namespace, UID: o.Meta.UID, ResourceVersion: rev, CreationTimestamp: o.Meta.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(want)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(have)},
	}
	if t := e.typed; t != nil && t.Scale.Selector != nil {
		if s.Status.Selector, err = t.Scale.Selector(o.Content); err != nil {
			return nil, false, badRequest("%s", err)
		}
	}
	if path := e.scale.LabelSelectorPath; path != nil && *path != "" {
		if s.Status.Selector, _, err = unstructured.NestedString(o.Content, scalePath(*path)...); err != nil {
			return nil, false, badRequest("%s", err)
		}
	}
	return s, found, nil
}

// validateScale checks the fields of an object that its Scale shows.
func (e *Endpoint) validateScale(o *object.Object, subresource string) (errs field.ErrorList) {
	if e.scale == nil {
		return nil
	}
	number := func(path string) {
		n, _, err := unstructured.NestedInt64(o.Content, scalePath(path)...)
		at := field.NewPath(path)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at, n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(at, n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(at, n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
		}
	}
	if subresource != status {
		number(e.scale.SpecReplicasPath)
	}
	number(e.scale.StatusReplicasPath)
	if path := e.scale.LabelSelectorPath; path != nil && *path != "" {
		if s, _, err := unstructured.NestedString(o.Content, scalePath(*path)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*path), s, err.Error()))
		}
	}
	return errs
}

// showScale shows the Scale of a stored object.
func (e *Endpoint) showScale(ctx context.Context, shown *form.Shown, stored *kube.Object) ([]byte, error) {
	o, err := e.load(ctx, stored)
	if err != nil {
		return nil, err
	}
	s, found, err := e.readScale(o, stored.Revision.String())
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", e.scale.SpecReplicasPath))
	}
	if shown.Kind == form.Table {
		return json.Marshal(scaleTable(s, shown.Key))
	}
	return encodeApart(shown, s.TypeMeta, s)
}

// scaleTable shows a Scale as kubectl prints it.
func scaleTable(s *autoscalingv1.Scale, k form.Key) *metav1.Table {
	row := metav1.TableRow{Cells: []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), form.Elapsed(s.CreationTimestamp.UTC().Format(time.RFC3339))}}
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

// changeScale writes the number of replicas that revise makes of an object's Scale.
func (w *write) changeScale(ctx context.Context, revise func(scale []byte) ([]byte, error)) (Result, error) {
	stored, err := w.update(ctx, func(old *kube.Object) (outcome, error) {
		prev, err := w.load(ctx, old)
		if err != nil {
			return outcome{}, err
		}
		now, found, err := w.readScale(prev, old.Revision.String())
		if err != nil {
			return outcome{}, err
		}
		body, err := json.Marshal(now)
		if err != nil {
			return outcome{}, err
		}
		if body, err = revise(body); err != nil {
			return outcome{}, err
		}
		next, replicas, err := w.decodeScale(body)
		switch {
		case err != nil:
			return outcome{}, err
		case replicas == nil && !found:
			return outcome{}, w.noReplicas()
		}
		if err := w.showSent(next); err != nil {
			return outcome{}, err
		}
		in, err := w.scaled(prev, next, next.Spec.Replicas)
		if err != nil {
			return outcome{}, err
		}
		if in.Meta.ResourceVersion == "" {
			in.Meta.ResourceVersion = old.Revision.String()
		}
		return w.nextFrom(ctx, old, in)
	})
	if err != nil {
		return Result{}, err
	}
	return w.answerScale(ctx, stored)
}

// showSent has hooks see a Scale that was sent.
func (w *write) showSent(s *autoscalingv1.Scale) error {
	shown := s.DeepCopy()
	shown.SetGroupVersionKind(scaleKind)
	shown.Name, shown.Namespace = w.Name, w.Namespace
	tree, err := jsontree.OfValue(shown)
	if err != nil {
		return badBody(object.Undecodable(err))
	}
	setManaged(tree, nil) // until they're known
	w.scaleSent = tree
	return nil
}

// noReplicas is the answer to a Scale without replicas for an object that has none.
func (e *Endpoint) noReplicas() error {
	return badRequest("the spec replicas field %q cannot be empty", e.scale.SpecReplicasPath)
}

// scaled returns an object with the number of replicas and the preconditions that a client's Scale names.
func (w *write) scaled(prev *object.Object, s *autoscalingv1.Scale, replicas int32) (*object.Object, error) {
	in := prev.Clone()
	in.Content = object.DeepCopy(prev.Content)
	in.Meta.UID, in.Meta.ResourceVersion = s.UID, s.ResourceVersion
	if err := unstructured.SetNestedField(in.Content, int64(replicas), scalePath(w.scale.SpecReplicasPath)...); err != nil {
		return nil, badRequest("%s", err)
	}
	return in, nil
}

// answerScale shows the Scale of what was stored.
func (w *write) answerScale(ctx context.Context, stored *kube.Object) (Result, error) {
	raw, err := w.showScale(ctx, w.shown, stored)
	return Result{Object: raw}, err
}

// putScale replaces an object's Scale.
func (w *write) putScale(ctx context.Context, body []byte) (Result, error) {
	if _, err := object.ParseTree(body); err != nil {
		return Result{}, badBody(err)
	}
	return w.changeScale(ctx, func([]byte) ([]byte, error) { return body, nil })
}

// decodeScale decodes and checks a Scale. replicas is nil if it says nothing of them.
func (w *write) decodeScale(body []byte) (s *autoscalingv1.Scale, replicas *int32, err error) {
	s = &autoscalingv1.Scale{}
	if w.GoType() {
		if _, _, err := w.res.registry.parseKind(body, autoscalingv1.SchemeGroupVersion.WithKind("Scale"), &autoscalingv1.Scale{}); err != nil {
			return nil, nil, err
		}
	}
	if err := badBody(object.Decode(body, s)); err != nil {
		return nil, nil, err
	}
	var given struct {
		Spec struct {
			Replicas *int32 `json:"replicas"`
		} `json:"spec"`
	}
	if err := badBody(object.Decode(body, &given)); err != nil {
		return nil, nil, err
	}
	gv := autoscalingv1.SchemeGroupVersion.String()
	switch {
	case s.APIVersion == gv && s.Kind != "" && s.Kind != "Scale":
		return nil, nil, badRequest("no kind is registered for the type v1.Scale in scheme %q", object.Scheme)
	case s.APIVersion != "" && s.APIVersion != gv || s.Kind != "" && s.Kind != "Scale":
		return nil, nil, badRequest("the scale subresource takes %s Scale, not %s %s", gv, clip.Text(s.APIVersion), clip.Text(s.Kind))
	case s.Name != "" && s.Name != w.Name:
		return nil, nil, badRequest("the name of the object (%s) does not match the name on the URL (%s)", clip.Text(s.Name), w.Name)
	case s.Namespace != "" && s.Namespace != w.Namespace:
		return nil, nil, badRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return s, given.Spec.Replicas, nil
}
