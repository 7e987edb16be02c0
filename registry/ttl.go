package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// maxTTL bounds how long an object that expires may live. Who asks for more doesn't want it to expire.
const maxTTL = 10 * 365 * 24 * time.Hour

// ParseTTL reads the value of kube.TTLAnnotation, a duration as Go writes it ("90s"), from 0 to maxTTL. The
// error says what it must be, to follow the annotation's name. It isn't a Status.
func ParseTTL(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errors.New("must be a duration as Go writes it, such as 90s or 1h30m")
	case d < 0:
		return 0, errors.New("must not be negative")
	case d > maxTTL:
		return 0, fmt.Errorf("must not be over ten years (%v)", maxTTL)
	}
	return d, nil
}

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
	if _, err := ParseTTL(text); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(kube.TTLAnnotation), clip.Text(text), err.Error())}
	}
	return nil
}

// mayExpire refuses a client's write that adds or changes the annotation by which an object expires, unless the user may
// delete the object: that is what the annotation brings about. It holds for new objects, too, because what others put into
// a namespace, or make of a definition, goes with it.
func (d *draft) mayExpire(ctx context.Context) error {
	text, has := d.next.Meta.Annotations[kube.TTLAnnotation]
	if ask := d.res.registry.authorizer; !has || !d.asked || ask == nil {
		return nil
	}
	if d.prev != nil {
		if before, had := d.prev.Meta.Annotations[kube.TTLAnnotation]; had && before == text {
			return nil
		}
	}
	if Presumes(ctx) {
		return errJudged // the rights may have changed
	}
	decision, reason, err := d.res.registry.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: UserFrom(ctx), Verb: "delete", APIGroup: d.Group, APIVersion: d.Version, Resource: d.Plural,
		Namespace: d.next.Meta.Namespace, Name: d.next.Meta.Name, ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	why := fmt.Errorf("cannot set the annotation %s on a resource you can't delete: %v, %v", kube.TTLAnnotation, reason, err)
	return hookError{apierrors.NewForbidden(d.resource(), clip.Text(d.next.Meta.Name), why)}
}

// Lifetime says how long the objects of a Go type live: see Definition.
type Lifetime struct {
	TTL   time.Duration
	Times []string
}

// Lifetimes returns the Go types whose objects live so long after their last write, by the prefix of their keys.
// The map is the caller's. Nobody may change the Times in it.
func (d Door) Lifetimes() map[storage.Prefix]Lifetime {
	all := map[storage.Prefix]Lifetime{}
	for _, res := range d.registry.builtins {
		if t := res.storage.typed; t.TTL > 0 {
			all[res.prefix] = Lifetime{t.TTL, t.Times}
		}
	}
	return all
}
