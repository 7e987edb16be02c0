package writes

import (
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// decided are the fields of metadata that are nobody's (managed takes them out of all records) and that only the server sets.
var decided = []string{"uid", "resourceVersion", "generation", "creationTimestamp"}

// track notes in next's managedFields who wrote what. What the client sent, with defaults and in the endpoint's version, says
// that: sent, which is next itself if it's all of it. prev is nil for a new object. By default it does so only for objects that
// have been applied, because it costs several times what the write itself does.
func (w *write) track(next, sent, prev *object.Object) error {
	return w.trackAs(w.Subresource, w.manager, next, sent, prev)
}

// trackAs is track for what a manager writes to a subresource.
func (w *write) trackAs(subresource, manager string, next, sent, prev *object.Object) error {
	always := w.Res.Registry.ManagedFieldsAlways
	if !always && (prev == nil || len(prev.Managed) == 0) {
		next.Managed = nil
		return nil
	}
	if w.Typed != nil && subresource == registry.AtScale {
		return w.trackScale(next, sent, prev)
	}
	after, err := w.treeSent(sent)
	if err != nil {
		return err
	}
	if sent.Managed != nil { // an empty list asks for a record without entries
		object.Map(after["metadata"])["managedFields"] = sent.Managed
	}
	var before map[string]any
	if prev != nil {
		if before, err = prev.RawTree(w.APIVersion(), w.Kind); err != nil {
			return err
		}
		was, is := object.Map(before["metadata"]), object.Map(after["metadata"])
		for _, name := range decided { // so that a client that leaves them out may write what there is
			if v, ok := was[name]; ok {
				is[name] = v
			}
		}
	}
	tracked := w.Managers.Of(subresource).Update(before, after, manager, always)
	next.Managed, _ = object.Map(tracked["metadata"])["managedFields"].([]any)
	if w.ScaleSent == nil {
		return nil
	}
	list, err := w.ScaleView(next).Scale()
	reads.SetManaged(w.ScaleSent, list)
	return err
}

// treeSent returns what a client sent, as a tree. Of a version that isn't the stored one it's what is left after the way there and back, with what the
// conversion has added.
func (w *write) treeSent(o *object.Object) (map[string]any, error) {
	tree, err := o.RawTree(w.APIVersion(), w.Kind)
	if err != nil || w.Typed == nil || w.Typed.Stored.To == nil {
		return tree, err
	}
	tree = object.DeepCopy(tree)
	return tree, errors.Join(w.Typed.Stored.To(tree), w.Typed.Stored.From(tree))
}

// trackScale notes in next's managedFields who set the number of replicas of a Go type's object, as kube-apiserver does.
func (w *write) trackScale(next, sent, prev *object.Object) error {
	view := w.ScaleView(prev)
	before, err := w.ScaleTree(view, prev)
	if err != nil {
		return err
	}
	after, err := w.ScaleTree(view, sent)
	if err != nil {
		return err
	}
	tracked := w.Managers.Scales().Update(before, after, w.manager, true)
	list, _ := object.Map(tracked["metadata"])["managedFields"].([]any)
	if w.ScaleSent != nil {
		reads.SetManaged(w.ScaleSent, list)
	}
	next.Managed, err = view.Whole(list)
	return err
}

// keepTimes keeps the old times in managedFields if nothing but the times has changed, so that the write changes nothing.
func keepTimes(o, prev *object.Object) {
	if len(o.Managed) == 0 || !object.SameContent(o, prev, "") || !equality.Semantic.DeepEqual(o.Meta, prev.Meta) {
		return
	}
	fields := func(o *object.Object) map[string]any {
		return map[string]any{"metadata": map[string]any{"managedFields": o.Managed}}
	}
	now := fields(o)
	managed.KeepTimes(fields(prev), now)
	o.Managed = object.Map(now["metadata"])["managedFields"].([]any)
}
