package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// fromStored returns stored objects in the endpoint's version.
func (e *Endpoint) fromStored(_ context.Context, objects []*kube.Object) ([][]byte, error) {
	out := make([][]byte, len(objects))
	for i, o := range objects {
		tree, err := object.ParseTree(o.Raw())
		if err != nil {
			return nil, e.Unreadable(o.Name(), err)
		}
		if err := e.Typed.Stored.From(tree); err != nil {
			return nil, e.Unreadable(o.Name(), err)
		}
		tree["apiVersion"], tree["kind"] = e.APIVersion(), e.Kind
		if out[i], err = object.EncodeJSON(tree); err != nil {
			return nil, e.Unreadable(o.Name(), err)
		}
	}
	return out, nil
}

// convertTyped brings an object of a Go type from one version to another. The caller says in the tree which
// version it is now.
func (r *Resource) convertTyped(to *Endpoint, tree map[string]any) error {
	from := r.version(tree["apiVersion"])
	if from == to {
		return nil
	}
	if from.Typed.Stored.To != nil {
		if err := from.Typed.Stored.To(tree); err != nil {
			return err
		}
	}
	if to.Typed.Stored.From != nil {
		return to.Typed.Stored.From(tree)
	}
	return nil
}

// Normalize decodes a document, which is a JSON object, as a value of the type, sets its defaults, and encodes it as a tree. So the
// tree has the fields that the type has, as the type writes them. complaints are about members that the type doesn't have or that are
// given twice.
func (t *typed) Normalize(doc *object.Document) (tree map[string]any, complaints []error, err error) {
	obj := t.New()
	var sent map[string]any // if it says what obj says
	if t.fits(doc, obj) {
		sent = ownTop(doc.Tree.(map[string]any))
	} else {
		obj = t.New()
		if complaints, err = DecodeTyped(doc, obj); err != nil {
			return nil, nil, err
		}
	}
	if err := t.SetDefaults(obj); err != nil {
		return nil, nil, err
	}
	tree, err = jsontree.Revise(sent, obj)
	return tree, complaints, BadBody(object.Undecodable(err))
}

// ownTop copies the parts of a tree that become an object's own (object.New).
func ownTop(tree map[string]any) map[string]any {
	tree = maps.Clone(tree)
	if metadata := object.Map(tree["metadata"]); metadata != nil {
		tree["metadata"] = maps.Clone(metadata)
	}
	return tree
}

// fits decodes a document that has nothing to complain of, which takes a third of DecodeTyped's time. What it says false of may be one, too:
// types with JSON as text, which keep the document's, and documents in which plain characters are escaped, as which quantities are
// refused.
func (t *typed) fits(doc *object.Document, obj Typed) bool {
	tree, ok := doc.Tree.(map[string]any)
	return ok && t.Holding().Plain && !bytes.Contains(doc.Text, escapedCode) && !bytes.Contains(doc.Text, escapedSlash) && len(doc.Repeated()) == 0 && jsontree.Fits(tree, obj)
}

// What plain characters can be escaped as.
var escapedCode, escapedSlash = []byte(`\u`), []byte(`\/`)

// DecodeTyped decodes a document into a pointer to a struct.
func DecodeTyped(doc *object.Document, obj any) (complaints []error, err error) {
	members, levels := doc.Size()
	if levels*len(doc.Text) > MaxTypedWork {
		return nil, BadRequest("the body of the request nests too deeply for its size: %d levels in %d bytes", levels, len(doc.Text))
	}
	if levels*members > object.MaxComplaintWork {
		complaints = []error{errors.New("the object is too large for its fields to be checked")}
		err = kjson.UnmarshalCaseSensitivePreserveInts(doc.Text, obj)
	} else {
		complaints, err = kjson.UnmarshalStrict(doc.Text, obj, kjson.DisallowDuplicateFields, kjson.DisallowUnknownFields)
	}
	return complaints, BadBody(object.Undecodable(err))
}

// FromObject makes a value of the type of an object; nil of nil. It shares nothing with it: a field of any type would.
func (t *typed) FromObject(o *object.Object) (Typed, error) {
	if o == nil {
		return nil, nil
	}
	if obj, ok := o.Value.(Typed); ok {
		*MetaOf(obj) = *o.Meta.DeepCopy()
		return obj, nil
	}
	obj, content := t.New(), o.Content
	if len(o.Empty) > 0 || !t.Holding().copies {
		content = object.DeepCopy(content)
	}
	for _, e := range o.Empty {
		e.Restore(content)
	}
	if err := jsontree.Into(content, obj); err != nil {
		return nil, BadRequest("the object can't be decoded: %s", clip.Text(err.Error()))
	}
	*MetaOf(obj) = *o.Meta.DeepCopy()
	return obj, nil
}

func MetaOf(obj Typed) *metav1.ObjectMeta { return obj.GetObjectMeta().(*metav1.ObjectMeta) }

// ToObject writes a value of the type back.
func ToObject(obj Typed, o *object.Object) error { return treeTo(jsontree.Revise, obj, o) }

// ToStored does so as it's stored: kube-apiserver does that as protobuf, which knows no empty lists.
func ToStored(obj Typed, o *object.Object) error { return treeTo(jsontree.ReviseStored, obj, o) }

func treeTo(revise func(earlier map[string]any, v any, without ...string) (map[string]any, error), obj Typed, o *object.Object) error {
	tree, err := revise(o.Content, obj, "apiVersion", "kind", "metadata")
	if err != nil {
		return fmt.Errorf("encode %T: %w", obj, err)
	}
	o.Content, o.Meta, o.Value = tree, *MetaOf(obj), nil
	return nil
}

// Through lets fn change an object as a T.
func Through[T any, P Pointer[T]](o *object.Object, fn func(obj *T)) error {
	t := typed{Type: Type{New: func() Typed { return P(new(T)) }}}
	obj, err := t.FromObject(o)
	if err != nil {
		return err
	}
	fn(obj.(P))
	return ToObject(obj, o)
}

// On calls one of the functions on an object.
func (t *typed) On(obj Typed, name string, fn func()) error {
	return t.registry.callLeaving(name+" of "+reflect.TypeOf(t.Zero).String(), obj.GetObjectMeta, fn)
}

// SetDefaults calls Default, if there is one.
func (t *typed) SetDefaults(obj Typed) error {
	if t.Default == nil {
		return nil
	}
	return t.On(obj, "Default", func() { t.Default(obj) })
}

// Pair makes values of the new object, if there is one, and of the old, if there is one.
func (t *typed) Pair(o, old *object.Object) (obj, prev Typed, err error) {
	if obj, err = t.FromObject(o); err != nil {
		return nil, nil, err
	}
	prev, err = t.FromObject(old)
	return obj, prev, err
}

// AdmitTyped fills in defaults and calls the definition's hooks.
func (t *typed) AdmitTyped(ctx context.Context, e *Endpoint, a *Attributes, o, old *object.Object) error {
	if t.Admit == nil && (t.Default == nil || a.Operation != Update) { // a new object has its defaults since it was read
		return nil
	}
	obj, prev, err := t.Pair(o, old)
	switch {
	case err != nil && o == nil: // as a value of the type nobody can read it, and deleting is the way out
		return nil
	case err != nil:
		return err
	}
	if o != nil {
		if err := t.SetDefaults(obj); err != nil {
			return err
		}
	}
	if t.Admit != nil {
		if obj, err = t.Admit(ctx, e, a, obj, prev); err != nil {
			return err
		}
	}
	if o == nil {
		return nil
	}
	return ToObject(obj, o)
}

// Prepared defaults, prepares and validates an object for a write. obj is the object then, and prev the old one, as values of the
// type; nil if the type has no functions for that.
func (t *typed) Prepared(ctx context.Context, o, old *object.Object, subresource string) (obj, prev Typed, errs field.ErrorList, err error) {
	if t.Default == nil && t.Prepare == nil && t.Validate == nil && t.Guard.MayWrite == nil && t.Warnings == nil {
		return nil, nil, nil, nil
	}
	if obj, prev, err = t.Pair(o, old); err != nil {
		return nil, nil, nil, err
	}
	if err := t.SetDefaults(obj); err != nil {
		return nil, nil, nil, err
	}
	if t.Guard.MayWrite != nil {
		if err := t.mayWrite(ctx, obj, prev); err != nil {
			return nil, nil, nil, err
		}
	}
	if t.Generation != nil && subresource != AtStatus {
		MetaOf(obj).Generation = t.Generation(obj, prev)
	}
	if t.Prepare != nil {
		if err := t.On(obj, "Prepare", func() { t.Prepare(ctx, obj, prev, subresource) }); err != nil {
			return nil, nil, nil, err
		}
	}
	if t.Validate != nil {
		if err := t.On(obj, "Validate", func() { errs = t.Validate(ctx, obj, prev, subresource) }); err != nil {
			return nil, nil, nil, err
		}
	}
	sent := o.Value != nil
	o.Empty = nil // they aren't stored
	if t.Stored.To != nil {
		o.Content = nil // which may be another attempt's, too: conversion changes what is made here
	}
	if err = ToStored(obj, o); err != nil && sent {
		err = BadBody(object.Undecodable(err))
	}
	return obj, prev, errs, err
}

// mayWrite asks MayWrite.
func (t *typed) mayWrite(ctx context.Context, obj, old Typed) error {
	var refused error
	if err := t.On(obj, "MayWrite", func() { refused = t.Guard.MayWrite(ctx, obj, old) }); err != nil {
		return err
	}
	if refused != nil {
		return hookError{refused}
	}
	return nil
}

// ClaimFor takes what only this object may have. obj is its value; settle tells what has become of the write.
func (t *typed) ClaimFor(obj Typed, o, old *object.Object, dryRun bool) (settle Settle, err error) {
	prev, err := t.FromObject(old)
	if err != nil {
		return nil, err
	}
	var refused error
	if err := t.On(obj, "Claim", func() { settle, refused = t.Guard.Claim(obj, prev, dryRun) }); err != nil {
		return settle, err
	}
	if refused != nil {
		return settle, refused
	}
	return settle, ToObject(obj, o)
}

// WarningsOf returns what the type warns of in a valid object.
func (t *typed) WarningsOf(ctx context.Context, obj, prev Typed, subresource string) (texts []string, err error) {
	err = t.On(obj, "Warnings", func() { texts = t.Warnings(ctx, obj, prev, subresource) })
	return texts, err
}

// BeginDeleting lets the type mark an object whose deletion begins.
func (t *typed) BeginDeleting(o *object.Object) error {
	obj, err := t.FromObject(o)
	if err != nil {
		return err
	}
	if err := t.On(obj, "Deleting", func() { t.Deleting(obj) }); err != nil {
		return err
	}
	return ToObject(obj, o)
}

// GraceOf asks the type for the grace period, in seconds, of an object whose deletion begins. asked is the deletion's.
func (t *typed) GraceOf(o *object.Object, asked *int64) (seconds int64, err error) {
	obj, err := t.FromObject(o)
	if err != nil {
		return 0, err
	}
	err = t.On(obj, "Grace", func() { seconds = t.Grace(obj, asked) })
	return max(seconds, 0), err
}

func (t *typed) HeldBy(o *object.Object) (held bool, err error) {
	obj, err := t.FromObject(o)
	if err != nil {
		return false, err
	}
	err = t.On(obj, "Held", func() { held = t.Held(obj) })
	return held, err
}
