package writes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// validateTTL checks the annotation by which an object expires. What an object has already, it may keep.
func validateTTL(o, old *object.Object) field.ErrorList {
	text, ok := o.Meta.Annotations[kube.TTLAnnotation]
	if !ok {
		return nil
	}
	if old != nil {
		if before, ok := old.Meta.Annotations[kube.TTLAnnotation]; ok && before == text {
			return nil
		}
	}
	if _, err := registry.ParseTTL(text); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(kube.TTLAnnotation), clip.Text(text), err.Error())}
	}
	return nil
}

// mayExpire refuses a client's write that adds or changes the annotation by which an object expires, unless the user may
// delete the object: that is what the annotation brings about. It holds for new objects, too, because what others put into
// a namespace, or make of a definition, goes with it.
func (d *draft) mayExpire(ctx context.Context) error {
	text, has := d.next.Meta.Annotations[kube.TTLAnnotation]
	if ask := d.Res.Registry.Rights; !has || !d.asked || ask == nil {
		return nil
	}
	if d.prev != nil {
		if before, had := d.prev.Meta.Annotations[kube.TTLAnnotation]; had && before == text {
			return nil
		}
	}
	if registry.Presumes(ctx) {
		return registry.ErrJudged // the rights may have changed
	}
	decision, reason, err := d.Res.Registry.Rights.Authorize(ctx, authorizer.AttributesRecord{
		User: registry.UserFrom(ctx), Verb: "delete", APIGroup: d.Group, APIVersion: d.Version, Resource: d.Plural,
		Namespace: d.next.Meta.Namespace, Name: d.next.Meta.Name, ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	why := fmt.Errorf("cannot set the annotation %s on a resource you can't delete: %v, %v", kube.TTLAnnotation, reason, err)
	return registry.OfHook(apierrors.NewForbidden(d.GroupResource(), clip.Text(d.next.Meta.Name), why))
}
