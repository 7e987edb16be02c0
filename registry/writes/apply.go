package writes

import (
	"context"
	"encoding/json"
	"errors"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// applyConfiguration merges an applied configuration into the object, or creates the object of it.
func (w *write) applyConfiguration(ctx context.Context, body []byte) (registry.Result, error) {
	w.applies = true
	wanted, err := w.readConfiguration(body)
	if err != nil {
		return registry.Result{}, err
	}
	given := len(w.warnings)
	for {
		w.warnings = w.warnings[:given] // without those of an earlier attempt
		stored, err := w.update(ctx, w.loaded(ctx, func(prev *object.Object) (outcome, error) { return w.applyTo(ctx, prev, wanted) }))
		switch {
		case err == nil:
			return w.answer(ctx, stored)
		case !apierrors.IsNotFound(err) || registry.IsHookError(err) || w.Subresource != registry.Whole:
			return registry.Result{}, err
		}
		res, err := w.createApplied(ctx, wanted)
		if !apierrors.IsAlreadyExists(err) || registry.IsHookError(err) { // else somebody else has just created it
			return res, err
		}
	}
}

// readConfiguration reads and checks an applied configuration.
func (w *write) readConfiguration(body []byte) (map[string]any, error) {
	_, tree, err := w.parse(body)
	if u := (*registry.Undecoded)(nil); errors.As(err, &u) {
		return nil, notYAML(body, u.Cause)
	}
	if err != nil {
		return nil, err
	}
	if err := w.checkApplied(tree); err != nil {
		return nil, err
	}
	// Read as an object, it must be one of this path. The tree that is merged stays as it was sent.
	o, _, err := w.split(object.DeepCopy(tree))
	if err != nil {
		return nil, err
	}
	if o.Managed != nil {
		return nil, registry.BadRequest("metadata.managedFields must be nil")
	}
	if tree["metadata"] == nil {
		tree["metadata"] = map[string]any{}
	}
	return tree, nil
}

// notYAML refuses a configuration that can't be decoded. cause is what the decoder of JSON says.
func notYAML(body []byte, cause string) error {
	if !json.Valid(body) && len(body) < maxConverted {
		if _, err := yaml.YAMLToJSON(body); err != nil {
			return registry.BadRequest("error decoding patch: error converting YAML to JSON: %s", clip.Text(err.Error()))
		}
	}
	return registry.BadRequest("error decoding patch: error unmarshaling JSON: while decoding JSON: %s", cause)
}

// maxConverted is how large a configuration may be, in bytes, of which it's found out why it's no YAML: that takes many times its memory.
const maxConverted = 64 << 10

// applyTo makes the new object from the old one and a configuration.
func (w *write) applyTo(ctx context.Context, prev *object.Object, wanted map[string]any) (outcome, error) {
	live, err := prev.RawTree(w.APIVersion(), w.Kind)
	if err != nil {
		return outcome{}, err
	}
	in, err := w.merge(wanted, live)
	if err != nil {
		return outcome{}, err
	}
	if err := w.checkMerged(in); err != nil {
		return outcome{}, err
	}
	if err := w.checkUID(in, prev); err != nil {
		return outcome{}, err
	}
	return w.outcomeOf(ctx, in, prev)
}

// createApplied makes a new object of a configuration.
func (w *write) createApplied(ctx context.Context, wanted map[string]any) (registry.Result, error) {
	if err := w.askCreate(ctx); err != nil {
		return registry.Result{}, err
	}
	o, err := w.merge(wanted, nil)
	if err != nil {
		return registry.Result{}, err
	}
	if o.Meta.Name == "" {
		return registry.Result{}, registry.BadRequest("the name of the object (%s based on URL) was undeterminable: name must be provided", w.Name)
	}
	if err := w.checkMerged(o); err != nil {
		return registry.Result{}, err
	}
	if o.Meta.UID != "" {
		return registry.Result{}, w.Conflict(o.Meta.Name) // it was about an object that is gone
	}
	withoutSystemMeta(&o.Meta)
	w.unlabelled = unlabelled(wanted)
	return w.insertAndAnswer(ctx, o)
}

// merge applies a configuration to a whole object, or to none if live is nil, and shapes the result.
func (w *write) merge(wanted, live map[string]any) (*object.Object, error) {
	merged, err := w.Managers.Of(w.Subresource).Apply(live, object.DeepCopy(wanted), w.manager, w.force)
	if err != nil {
		return nil, w.Fail(w.Name, err)
	}
	o, err := object.FromTree(merged)
	if err != nil {
		return nil, registry.BadRequest("%s", err)
	}
	return o, w.Shape(o)
}

// checkMerged checks name and namespace of what a configuration was merged into: conflicts come first, as with kube-apiserver.
func (w *write) checkMerged(o *object.Object) error {
	if err := checkNamed(o, w.Target); err != nil {
		return err
	}
	return w.place(o)
}

// A Scale's configuration is merged with the Scale of a Go type's object, and what came of the Scale's record goes into that of
// the object. To a custom resource it's applied as one of the object that has the number of replicas and nothing else, so that
// the object's record says who set the number, whichever way it was set (kube-apiserver forgets it).

// scaleConfiguration is an applied Scale.
type scaleConfiguration struct {
	*autoscalingv1.Scale
	replicas *int32         // nil if it has none
	sent     map[string]any // it as it came
	object   map[string]any // what it says, as a configuration of the object
}

// applyScale merges the number of replicas that a manager wants into an object.
func (w *write) applyScale(ctx context.Context, body []byte) (registry.Result, error) {
	w.applies = true
	wanted, err := w.readScaleConfiguration(body)
	if err != nil {
		return registry.Result{}, err
	}
	stored, err := w.update(ctx, w.loaded(ctx, func(prev *object.Object) (outcome, error) { return w.applyScaleTo(ctx, prev, wanted) }))
	if err != nil {
		return registry.Result{}, err
	}
	return w.answerScale(ctx, stored)
}

// readScaleConfiguration reads and checks an applied Scale.
func (w *write) readScaleConfiguration(body []byte) (*scaleConfiguration, error) {
	_, tree, err := w.parse(body)
	if err != nil {
		return nil, err
	}
	s, replicas, err := w.decodeScale(body)
	switch {
	case err != nil:
		return nil, err
	case s.APIVersion == "" || s.Kind == "":
		return nil, registry.BadRequest("apiVersion and kind are needed: the scale subresource takes %s Scale", autoscalingv1.SchemeGroupVersion)
	case object.Map(tree["metadata"])["managedFields"] != nil:
		return nil, registry.BadRequest("metadata.managedFields must be nil")
	}
	if w.Typed != nil { // the merge says what it has that a Scale doesn't
		return &scaleConfiguration{Scale: s, replicas: replicas, sent: tree}, nil
	}
	unknown, err := kjson.UnmarshalStrict(body, &autoscalingv1.Scale{}, kjson.DisallowUnknownFields)
	switch {
	case err != nil:
		return nil, registry.BadBody(object.Undecodable(err))
	case len(unknown) > 0:
		return nil, registry.BadRequest("the applied Scale has an %s", clip.Text(unknown[0].Error()))
	}
	metadata := map[string]any{"name": w.Name}
	if w.Namespace != "" {
		metadata["namespace"] = w.Namespace
	}
	config := map[string]any{"apiVersion": w.APIVersion(), "kind": w.Kind, "metadata": metadata}
	if replicas != nil {
		if err := unstructured.SetNestedField(config, int64(*replicas), reads.ScalePath(w.Scale.SpecReplicasPath)...); err != nil {
			return nil, registry.BadRequest("%s", err)
		}
	}
	return &scaleConfiguration{Scale: s, replicas: replicas, sent: tree, object: config}, nil
}

// applyScaleTo makes the new object from the old one and an applied Scale. A number that its manager withdraws is 0, as a Scale
// without one says. That of a custom resource stays as it is and is nobody's: without one the object would have no Scale.
func (w *write) applyScaleTo(ctx context.Context, prev *object.Object, wanted *scaleConfiguration) (outcome, error) {
	now, found, err := w.ReadScale(prev)
	if err != nil {
		return outcome{}, err
	}
	replicas := now.Spec.Replicas
	switch {
	case wanted.replicas != nil:
		replicas = *wanted.replicas
	case !found:
		return outcome{}, w.noReplicas()
	}
	list, err := w.mergeScale(prev, wanted, &replicas)
	if err != nil {
		return outcome{}, w.Fail(w.Name, err)
	}
	in, err := w.scaled(prev, wanted.Scale, replicas)
	if err != nil {
		return outcome{}, err
	}
	in.Managed = list
	if err := w.checkUID(in, prev); err != nil {
		return outcome{}, err
	}
	return w.outcomeOf(ctx, in, prev)
}

// mergeScale applies a Scale, and returns the object's managedFields. replicas becomes the number that the Scale of a Go type
// has then.
func (w *write) mergeScale(prev *object.Object, wanted *scaleConfiguration, replicas *int32) (list []any, err error) {
	if w.Typed == nil {
		live, err := prev.RawTree(w.APIVersion(), w.Kind)
		if err != nil {
			return nil, err
		}
		merged, err := w.Managers.Of(registry.AtScale).Apply(live, wanted.object, w.manager, w.force)
		list, _ := object.Map(merged["metadata"])["managedFields"].([]any)
		return list, err
	}
	view := w.ScaleView(prev)
	live, err := w.ScaleTree(view, prev)
	if err != nil {
		return nil, err
	}
	merged, err := w.Managers.Scales().Apply(live, wanted.sent, w.manager, w.force)
	if err != nil {
		return nil, err
	}
	number, _, err := unstructured.NestedInt64(merged, "spec", "replicas")
	if err != nil {
		return nil, registry.BadRequest("%s", err)
	}
	*replicas, w.ScaleSent = int32(number), merged
	list, _ = object.Map(merged["metadata"])["managedFields"].([]any)
	return view.Whole(list)
}
