package object

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// takeMeta moves the metadata out of the content.
func (o *Object) takeMeta() (unknown []error, err error) {
	value, ok := o.Content["metadata"]
	delete(o.Content, "metadata")
	if !ok || value == nil {
		return nil, nil
	}
	tree, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("metadata must be an object")
	}
	if fields, ok := tree["managedFields"]; ok {
		if o.Managed, ok = fields.([]any); !ok && fields != nil {
			return nil, errors.New("metadata.managedFields must be a list")
		}
		delete(tree, "managedFields")
	}
	if plainMeta(tree, &o.Meta) {
		return nil, nil
	}
	if meta := (metav1.ObjectMeta{}); jsontree.Fits(tree, &meta) {
		o.Meta = meta
		return nil, nil
	}
	holder := struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
	}{&metav1.ObjectMeta{}}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(map[string]any{"metadata": tree}, &holder, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		unknown, err = strict.Errors(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s", clip.Text(metaProblem(tree, err).Error()))
	}
	o.Meta = *holder.Metadata
	return unknown, nil
}

// TakeUnreadable takes out of metadata the members that aren't of their types, and returns them; nil if there are none.
func TakeUnreadable(metadata map[string]any) (members map[string]any) {
	if jsontree.Fits(metadata, &metav1.ObjectMeta{}) {
		return nil
	}
	for name, value := range metadata {
		if member := map[string]any{name: value}; name != "managedFields" && Unreadable(member) != nil {
			if members == nil {
				members = map[string]any{}
			}
			members[name] = value
			delete(metadata, name)
		}
	}
	return members
}

// Unreadable says why metadata can't be read, in the words of Kubernetes' converter; nil if it can.
func Unreadable(metadata map[string]any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(metadata, &metav1.ObjectMeta{})
}

// metaProblem asks the JSON decoder about metadata that the converter refused: it names the field.
func metaProblem(tree map[string]any, err error) error {
	body, jsonErr := EncodeJSON(tree)
	if jsonErr != nil {
		return err
	}
	if better := kjson.UnmarshalCaseSensitivePreserveInts(body, &metav1.ObjectMeta{}); better != nil {
		return better
	}
	return err
}

// DropRepeatedOwners drops references that are the same as one before, and returns a warning about them. References that
// have their uid in common and differ in something else stay. admitted tells that it's what admission has left, or a patch made: the
// warning, which is kube-apiserver's, says so.
func (o *Object) DropRepeatedOwners(admitted bool) []string {
	type whole struct { // a reference whose pointers can be compared
		metav1.OwnerReference
		controller, blocks optional
	}
	seen := make(map[whole]bool, len(o.Meta.OwnerReferences))
	told := map[types.UID]bool{}
	var repeated []string
	owners := o.Meta.OwnerReferences[:0:0]
	for _, ref := range o.Meta.OwnerReferences {
		this := whole{ref, optionalOf(ref.Controller), optionalOf(ref.BlockOwnerDeletion)}
		this.Controller, this.BlockOwnerDeletion = nil, nil
		if seen[this] {
			if !told[ref.UID] && len(repeated) < maxWarnings {
				told[ref.UID] = true
				repeated = append(repeated, string(ref.UID))
			}
			continue
		}
		seen[this] = true
		owners = append(owners, ref)
	}
	if len(repeated) == 0 {
		return nil
	}
	o.Meta.OwnerReferences = owners
	const format = ".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, " +
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s"
	when := ""
	if admitted {
		when = " after mutating admission happens"
	}
	return []string{clip.Text(fmt.Sprintf(format, when, strings.Join(repeated, ", ")))}
}

// optional is a boolean that may be absent.
type optional struct{ set, value bool }

func optionalOf(b *bool) optional {
	if b == nil {
		return optional{}
	}
	return optional{true, *b}
}

// maxWarnings is how many things of one sort are warned of. An answer has room for few more (server's maxWarnings).
const maxWarnings = 512

// FinalizerWarnings are about finalizers that old doesn't have, whose names others may use as well: the first maxWarnings.
func FinalizerWarnings(o, old *Object) (warnings []string) {
	if len(o.Meta.Finalizers) == 0 {
		return nil
	}
	known := map[string]bool{metav1.FinalizerOrphanDependents: true, metav1.FinalizerDeleteDependents: true, string(corev1.FinalizerKubernetes): true}
	if old != nil {
		for _, f := range old.Meta.Finalizers {
			known[f] = true
		}
	}
	for _, f := range o.Meta.Finalizers {
		if known[f] || strings.Contains(f, "/") {
			continue
		}
		if len(warnings) == maxWarnings {
			break
		}
		path := ""
		if strings.Contains(f, ".") {
			path = " including a path (/)"
		}
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name%s "+
			"to avoid accidental conflicts with other finalizer writers", clip.Text(f), path))
	}
	return warnings
}
