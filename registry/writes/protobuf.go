package writes

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// expected is what a body must be.
type expected struct {
	apiVersions []string // any of them
	kind        string
}

// check refuses a body of another kind. One that names none is taken for what's expected, as by kube-apiserver.
func (x expected) check(body *kubeproto.Envelope) error {
	kind := body.Kind == "" || body.Kind == x.kind
	version := body.APIVersion == ""
	for _, v := range x.apiVersions {
		version = version || body.APIVersion == v
	}
	if kind && version {
		return nil
	}
	return registry.BadRequest("the body of the request is protobuf of %s %s: this path takes %s %s",
		clip.Text(body.APIVersion), clip.Text(body.Kind), x.apiVersions[0], x.kind)
}

// decode decodes a body into a message of what's expected.
func (x expected) decode(body *kubeproto.Envelope, into registry.Message) (err error) {
	if err := x.check(body); err != nil {
		return err
	}
	most := registry.MaxTypedWork / max(1, len(body.Message))
	switch levels, values := kubeproto.Measure(body.Message, most); {
	case levels > most:
		return registry.BadRequest("the body of the request nests too deeply for its size: more than %d levels in %d bytes", most, len(body.Message))
	case values > registry.MaxTypedValues:
		return registry.TooManyValues(values, registry.MaxTypedValues)
	}
	if err := registry.UnmarshalMessage(body.Message, into); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ends in the middle of a field")
		}
		return registry.BadBody(fmt.Errorf("can't be decoded as protobuf of %s %s: %s", x.apiVersions[0], x.kind, clip.Text(err.Error())))
	}
	return nil
}

// OpenProtobuf reads a body of a create or an update of the target into a request: as its Message, or as a Body
// of JSON. Errors are Status errors.
func (e Writer) OpenProtobuf(r *registry.Request, body []byte) error {
	envelope, err := kubeproto.Open(body)
	if err != nil {
		return e.badEnvelope(body, err)
	}
	of := e.BodyKind(r.Subresource)
	if of.Empty() {
		r.Message = &envelope
		return nil
	}
	m, version := registry.PartMessages[of](), of.GroupVersion().String()
	versions := []string{version}
	if part := e.Part(r.Subresource); part != nil {
		for _, kind := range part.Also {
			versions = append(versions, kind.GroupVersion().String())
		}
	}
	if err := (expected{versions, of.Kind}).decode(&envelope, m); err != nil {
		return err
	}
	tree, err := reads.TreeOf(m)
	if err != nil {
		return err
	}
	tree["apiVersion"], tree["kind"] = version, of.Kind
	r.Body, err = object.EncodeJSON(tree)
	return registry.BadBody(err)
}

// OpenDeleteOptions returns a body of DeleteOptions, which came as protobuf, as JSON. Errors are Status errors.
func (e Writer) OpenDeleteOptions(body []byte) ([]byte, error) {
	envelope, err := kubeproto.Open(body)
	if err != nil {
		return nil, registry.BadBody(err)
	}
	o := &metav1.DeleteOptions{}
	versions := []string{"v1", "meta.k8s.io/v1", e.APIVersion()}
	if err := (expected{versions, "DeleteOptions"}).decode(&envelope, o); err != nil {
		return nil, err
	}
	tree, err := reads.TreeOf(o)
	if err != nil {
		return nil, err
	}
	raw, err := object.EncodeJSON(tree)
	return raw, registry.BadBody(err)
}

// readMessage is read for a body that came as protobuf. Such a body can't say which of its fields the type doesn't have.
func (w *write) readMessage(body *kubeproto.Envelope) (*object.Object, error) {
	m := w.NewMessage()
	if most := w.mostValues(); most < registry.MaxTypedValues {
		if _, values := kubeproto.Measure(body.Message, registry.MaxTypedWork/max(1, len(body.Message))); values > most {
			return nil, registry.TooManyValues(values, most)
		}
	}
	if err := (expected{[]string{w.APIVersion()}, w.Kind}).decode(body, m); err != nil {
		return nil, err
	}
	w.unlabelled = len(registry.MetaOf(m.(registry.Typed)).Labels) == 0
	if o := w.withValue(m); o != nil {
		return o, nil
	}
	if err := w.Typed.SetDefaults(m.(registry.Typed)); err != nil {
		return nil, err
	}
	tree, err := reads.TreeOf(m)
	if err != nil {
		return nil, err
	}
	tree["apiVersion"], tree["kind"] = w.APIVersion(), w.Kind
	o, _, err := w.split(tree)
	return o, err
}

// withValue returns a new object that keeps the value which a client sent as protobuf for the rules of its type.
// They make the tree of it, and so it's converted once instead of three times. It's nil for objects that others
// look into before those rules: the type's own hooks, whoever tracks fields, and a retry with another name. Hooks
// for all resources look into few objects, of which unfold makes the content. checkValue must follow the rules.
func (w *write) withValue(m registry.Message) *object.Object {
	t, obj := w.Typed, m.(registry.Typed)
	value, copies := obj.(runtime.Object)
	meta := registry.MetaOf(obj)
	hasRules := t.Default != nil || t.Prepare != nil || t.Validate != nil
	if !copies || !t.Holding().Plain || !hasRules || w.targetKey != "" || w.Subresource != registry.Whole || w.Res.Answered || t.Admit != nil ||
		w.Res.Registry.ManagedFieldsAlways || meta.Name == "" || len(meta.ManagedFields) > 0 {
		return nil
	}
	if w.Has(registry.AtStatus) && !statusOf(value).IsValid() { // nobody could drop it
		return nil
	}
	return &object.Object{Meta: *meta, Value: value}
}

// statusOf is the status of a value; invalid if its type has none.
func statusOf(value runtime.Object) reflect.Value {
	return reflect.ValueOf(value).Elem().FieldByName("Status")
}

// unfold makes the content of an object that has a value, with its defaults.
func (w *write) unfold(o *object.Object) error {
	if err := w.Typed.SetDefaults(o.Value.(registry.Typed)); err != nil {
		return err
	}
	tree, err := reads.TreeOf(o.Value.(registry.Message))
	if err != nil {
		return err
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(tree, name)
	}
	o.Content, o.Value = tree, nil
	return nil
}

// checkValue refuses an object whose value, which came as protobuf, has no form as JSON. Trees that readMessage
// has made need no such check.
func (w *write) checkValue(o *object.Object) error {
	tree, err := o.Tree(w.APIVersion(), w.Kind)
	if err != nil {
		return registry.BadBody(object.Undecodable(err))
	}
	if text, ok := reads.BadText(tree); !ok {
		return registry.BadRequest("the body of the request is not valid UTF-8 in %q", clip.Text(text))
	}
	if !farAway(o.Content) {
		return nil
	}
	_, err = w.Typed.FromObject(o)
	return err
}

// farAway tells whether a tree has a text that could be a time before the year 0 or after 9999, which can't be read back.
func farAway(v any) bool {
	if text, ok := v.(string); ok {
		const shortest = len("10000-01-01T00:00:00Z")
		return len(text) >= shortest && text[len(text)-1] == 'Z' && (text[0] == '-' || '0' <= text[0] && text[0] <= '9') && strings.Count(text, ":") == 2
	}
	for child := range jsontree.Children(v) {
		if farAway(child) {
			return true
		}
	}
	return false
}

// answerMade shows what was stored as the message that the write has made of it.
func (w *write) answerMade(stored *kube.Object) (registry.Result, error) {
	m, err := w.shown.Single.MessageFrom(stored, w.made)
	if err != nil {
		return registry.Result{}, w.Unreadable(stored.Name(), err)
	}
	return registry.Result{Object: registry.Enveloped(w.shown.Single, m, stored.Revision)}, nil
}

// answerConverted shows what was stored as a message of the endpoint's version, without the JSON between them, which readers share.
func (w *write) answerConverted(stored *kube.Object) (registry.Result, error) {
	m, err := w.convertedMessage(stored.Raw())
	if err != nil {
		return registry.Result{}, w.Unreadable(stored.Name(), err)
	}
	return registry.Result{Object: registry.Enveloped(w.shown.Single, m, stored.Revision)}, nil
}

func (w *write) convertedMessage(stored []byte) (m kubeproto.Message, err error) {
	tree, err := object.ParseTree(stored)
	if err != nil {
		return m, err
	}
	if err := w.Typed.Stored.From(tree); err != nil {
		return m, err
	}
	obj := w.NewMessage()
	if err := jsontree.Into(tree, obj); err != nil {
		return m, err
	}
	raw, err := registry.MarshalMessage(obj)
	if err != nil {
		return m, err
	}
	return kubeproto.Split(raw)
}

// note makes the messages of what is about to be stored for those who will be shown them: the client, and the watchers. obj is its
// value, and raw its bytes.
func (w *write) note(obj registry.Typed, o *object.Object, raw []byte) {
	w.made = nil
	if obj == nil || w.Messages == nil || w.Res.Storage != w.Endpoint {
		return
	}
	if w.shown == w.Messages {
		w.made = messageOf(obj, o)
	}
	w.Written.Put(raw, func() []byte {
		if w.made != nil {
			return w.made
		}
		return messageOf(obj, o)
	})
}

// messageOf returns the message of what is to be stored, of which obj is the value: what decoding the stored bytes would give, which is
// most of what a message costs. It's nil if the managedFields can't be read, or if the value has no message.
func messageOf(obj registry.Typed, o *object.Object) []byte {
	entries, ok := managed.Entries(o.Managed)
	if !ok {
		return nil
	}
	*registry.MetaOf(obj) = o.Meta
	registry.MetaOf(obj).ManagedFields = entries
	raw, err := registry.MarshalMessage(obj.(registry.Message))
	if err != nil {
		return nil // decoding tells why
	}
	return raw
}
