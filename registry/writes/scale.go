package writes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// validateScale checks the fields of an object that its Scale shows.
func (e Writer) validateScale(o *object.Object, subresource string) (errs field.ErrorList) {
	if e.Scale == nil {
		return nil
	}
	number := func(path string) {
		n, _, err := unstructured.NestedInt64(o.Content, reads.ScalePath(path)...)
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
	if subresource != registry.AtStatus {
		number(e.Scale.SpecReplicasPath)
	}
	number(e.Scale.StatusReplicasPath)
	if path := e.Scale.LabelSelectorPath; path != nil && *path != "" {
		if s, _, err := unstructured.NestedString(o.Content, reads.ScalePath(*path)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*path), s, err.Error()))
		}
	}
	return errs
}

// changeScale writes the number of replicas that revise makes of an object's Scale.
func (w *write) changeScale(ctx context.Context, revise applier) (registry.Result, error) {
	stored, err := w.update(ctx, w.loaded(ctx, func(prev *object.Object) (outcome, error) {
		now, found, err := w.ReadScale(prev)
		if err != nil {
			return outcome{}, err
		}
		body, err := json.Marshal(now)
		if err != nil {
			return outcome{}, err
		}
		revised, err := revise(body)
		if err != nil {
			return outcome{}, err
		}
		next, replicas, err := w.decodeScale(revised.Text)
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
		return w.nextFrom(ctx, prev, in)
	}))
	if err != nil {
		return registry.Result{}, err
	}
	return w.answerScale(ctx, stored)
}

// showSent has hooks see a Scale that was sent.
func (w *write) showSent(s *autoscalingv1.Scale) error {
	shown := s.DeepCopy()
	shown.SetGroupVersionKind(registry.ScaleKind)
	shown.Name, shown.Namespace = w.Name, w.Namespace
	tree, err := jsontree.OfValue(shown)
	if err != nil {
		return registry.BadBody(object.Undecodable(err))
	}
	reads.SetManaged(tree, nil) // until they're known
	w.ScaleSent = tree
	return nil
}

// noReplicas is the answer to a Scale without replicas for an object that has none.
func (e Writer) noReplicas() error {
	return registry.BadRequest("the spec replicas field %q cannot be empty", e.Scale.SpecReplicasPath)
}

// scaled returns an object with the number of replicas and the preconditions that a client's Scale names.
func (w *write) scaled(prev *object.Object, s *autoscalingv1.Scale, replicas int32) (*object.Object, error) {
	in := prev.Clone()
	in.Content = object.DeepCopy(prev.Content)
	in.Meta.UID, in.Meta.ResourceVersion = s.UID, cmp.Or(s.ResourceVersion, prev.Meta.ResourceVersion)
	if err := unstructured.SetNestedField(in.Content, int64(replicas), reads.ScalePath(w.Scale.SpecReplicasPath)...); err != nil {
		return nil, registry.BadRequest("%s", err)
	}
	return in, nil
}

// answerScale shows the Scale of what was stored.
func (w *write) answerScale(ctx context.Context, stored *kube.Object) (registry.Result, error) {
	raw, err := w.ShowScale(ctx, w.shown, stored)
	return registry.Result{Object: raw}, err
}

// putScale replaces an object's Scale.
func (w *write) putScale(ctx context.Context, body []byte) (registry.Result, error) {
	if _, err := object.ParseTree(body); err != nil {
		return registry.Result{}, registry.BadBody(err)
	}
	return w.changeScale(ctx, func([]byte) (patched, error) { return patched{Document: object.Document{Text: body}}, nil })
}

// decodeScale decodes and checks a Scale. replicas is nil if it says nothing of them.
func (w *write) decodeScale(body []byte) (s *autoscalingv1.Scale, replicas *int32, err error) {
	s = &autoscalingv1.Scale{}
	if w.GoType() {
		if _, _, err := parseKind(w.Res.Registry, body, &autoscalingv1.Scale{}, autoscalingv1.SchemeGroupVersion.WithKind("Scale")); err != nil {
			return nil, nil, err
		}
	}
	if err := registry.BadBody(object.Decode(body, s)); err != nil {
		return nil, nil, err
	}
	var given struct {
		Spec struct {
			Replicas *int32 `json:"replicas"`
		} `json:"spec"`
	}
	if err := registry.BadBody(object.Decode(body, &given)); err != nil {
		return nil, nil, err
	}
	gv := autoscalingv1.SchemeGroupVersion.String()
	switch {
	case s.APIVersion == gv && s.Kind != "" && s.Kind != "Scale":
		return nil, nil, registry.BadRequest("no kind is registered for the type v1.Scale in scheme %q", object.Scheme)
	case s.APIVersion != "" && s.APIVersion != gv || s.Kind != "" && s.Kind != "Scale":
		return nil, nil, registry.BadRequest("the scale subresource takes %s Scale, not %s %s", gv, clip.Text(s.APIVersion), clip.Text(s.Kind))
	case s.Name != "" && s.Name != w.Name:
		return nil, nil, registry.BadRequest("the name of the object (%s) does not match the name on the URL (%s)", clip.Text(s.Name), w.Name)
	case s.Namespace != "" && s.Namespace != w.Namespace:
		return nil, nil, registry.BadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return s, given.Spec.Replicas, nil
}
