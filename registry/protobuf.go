package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Objects are stored as JSON. Those of Go types that have generated messages go to and from clients as protobuf, too: their
// bodies are read here, and package cacher keeps and copies the messages that newMessages makes of them.

// message is what a Go type can do that has a protobuf form.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// newMessage returns a new object of the endpoint's type, nil if that has no protobuf form.
func (e *Endpoint) newMessage() message {
	if e.typed == nil {
		return nil
	}
	m, _ := e.typed.New().(message)
	return m
}

// newMessages returns the form of the endpoint's objects as protobuf, or nil if there is none: for custom resources, and for
// types whose message isn't as in Kubernetes.
func (e *Endpoint) newMessages() *form.Shown {
	m := e.newMessage()
	if m == nil {
		return nil
	}
	if raw, err := marshal(m); err != nil {
		return nil
	} else if _, err := kubeproto.Split(raw); err != nil {
		return nil
	}
	e.written = &written{}
	return form.NewProtobuf(e.view, &kube.Encoding{Encode: func(o *kube.Object) ([]byte, error) {
		if raw := e.written.take(o.Raw()); raw != nil {
			return raw, nil
		}
		m := e.newMessage()
		if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Raw(), m); err != nil {
			return nil, err
		}
		return marshal(m)
	}}, e.ListKind)
}

// marshal encodes a message without its resourceVersion, which stored bytes don't have unless somebody else stored them.
func marshal(m message) (raw []byte, err error) {
	defer recovered(&err)
	if of, ok := m.(metav1.ObjectMetaAccessor); ok {
		of.GetObjectMeta().SetResourceVersion("")
	}
	return m.Marshal()
}

// recovered makes an error of a panic: generated code has panicked on garbage before.
func recovered(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("malformed: %v", cause)
	}
}

// Encodes tells whether the answers about a target, which are objects or lists of them, can be protobuf in a form.
func (e *Endpoint) Encodes(subresource string, k form.Kind) bool {
	switch of := e.bodyKind(subresource); {
	case k == form.Table:
		return false
	case !of.Empty():
		return k == form.Whole && partMessages[of] != nil
	}
	return k == form.MetadataOnly || e.messages != nil
}

// Tabular tells whether the answers about a target can be a Table. Of questions that are answered, and of subresources other
// than scale and status, there is none, nor of some kinds' status.
func (e *Endpoint) Tabular(subresource string) bool {
	if t := e.typed; t != nil && (t.Answer != nil || subresource == "status" && t.NoStatusTable) {
		return false
	}
	return e.part(subresource) == nil && (subresource == scale || e.bodyKind(subresource).Empty())
}

// bodyKind returns the kind of a subresource's bodies, empty for that of the object itself.
func (e *Endpoint) bodyKind(subresource string) runtimeschema.GroupVersionKind {
	if subresource == scale {
		return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	}
	if part := e.part(subresource); part != nil {
		return part.Kind
	}
	if e.typed != nil && e.typed.Forward != nil {
		return e.kind()
	}
	return runtimeschema.GroupVersionKind{}
}

// partMessages make messages of the kinds of subresources.
var partMessages = map[runtimeschema.GroupVersionKind]func() message{
	autoscalingv1.SchemeGroupVersion.WithKind("Scale"):           func() message { return &autoscalingv1.Scale{} },
	corev1.SchemeGroupVersion.WithKind("Binding"):                func() message { return &corev1.Binding{} },
	policyv1.SchemeGroupVersion.WithKind("Eviction"):             func() message { return &policyv1.Eviction{} },
	authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"): func() message { return &authenticationv1.TokenRequest{} },
}

// apart is the form of answers as protobuf that aren't objects of an endpoint.
var apart = &form.Shown{Key: form.Key{Form: form.Form{Encoding: form.Protobuf}}}

// encodeApart encodes an answer that isn't an object of an endpoint's, such as a Scale or a Status: as JSON, or
// if the client is shown protobuf, as that.
func encodeApart(shown *form.Shown, meta metav1.TypeMeta, answer message) ([]byte, error) {
	if shown.Encoding != form.Protobuf {
		return json.Marshal(answer)
	}
	raw, err := answer.Marshal()
	return kubeproto.TypeOf(meta.APIVersion, meta.Kind).Append(nil, raw), err
}

// TakesProtobuf tells whether bodies for the target may be protobuf: those for Go types that have such a form, and Scales.
func (e *Endpoint) TakesProtobuf(subresource string) bool {
	if of := e.bodyKind(subresource); !of.Empty() {
		return partMessages[of] != nil
	}
	return e.messages != nil
}

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
	return badRequest("the body of the request is protobuf of %s %s: this path takes %s %s",
		clip.Text(body.APIVersion), clip.Text(body.Kind), x.apiVersions[0], x.kind)
}

// decode decodes a body into a message of what's expected.
func (x expected) decode(body *kubeproto.Envelope, into message) (err error) {
	if err := x.check(body); err != nil {
		return err
	}
	most := maxTypedWork / max(1, len(body.Message))
	switch levels, values := kubeproto.Measure(body.Message, most); {
	case levels > most:
		return badRequest("the body of the request nests too deeply for its size: more than %d levels in %d bytes", most, len(body.Message))
	case values > maxTypedValues:
		return tooManyValues(values, maxTypedValues)
	}
	if err := unmarshal(body.Message, into); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ends in the middle of a field")
		}
		return badBody(fmt.Errorf("can't be decoded as protobuf of %s %s: %s", x.apiVersions[0], x.kind, clip.Text(err.Error())))
	}
	return nil
}

func unmarshal(raw []byte, into message) (err error) {
	defer recovered(&err)
	return into.Unmarshal(raw)
}

// OpenProtobuf reads a body of a create or an update of the target into a request: as its Message, or as a Body
// of JSON. Errors are Status errors.
func (e *Endpoint) OpenProtobuf(r *Request, body []byte) error {
	envelope, err := kubeproto.Open(body)
	if err != nil {
		return e.badEnvelope(body, err)
	}
	of := e.bodyKind(r.Subresource)
	if of.Empty() {
		r.Message = &envelope
		return nil
	}
	m, version := partMessages[of](), of.GroupVersion().String()
	if err := (expected{[]string{version}, of.Kind}).decode(&envelope, m); err != nil {
		return err
	}
	tree, err := treeOf(m)
	if err != nil {
		return err
	}
	tree["apiVersion"], tree["kind"] = version, of.Kind
	r.Body, err = object.EncodeJSON(tree)
	return badBody(err)
}

// treeOf returns the content of a message that a client sent.
func treeOf(m message) (map[string]any, error) {
	tree, err := jsontree.OfValue(m)
	if err != nil {
		return nil, badBody(object.Undecodable(err))
	}
	if text, ok := badText(tree); !ok {
		return nil, badRequest("the body of the request is not valid UTF-8 in %q", clip.Text(text))
	}
	return tree, nil
}

// OpenDeleteOptions returns a body of DeleteOptions, which came as protobuf, as JSON. Errors are Status errors.
func (e *Endpoint) OpenDeleteOptions(body []byte) ([]byte, error) {
	envelope, err := kubeproto.Open(body)
	if err != nil {
		return nil, badBody(err)
	}
	o := &metav1.DeleteOptions{}
	versions := []string{"v1", "meta.k8s.io/v1", e.apiVersion()}
	if err := (expected{versions, "DeleteOptions"}).decode(&envelope, o); err != nil {
		return nil, err
	}
	tree, err := treeOf(o)
	if err != nil {
		return nil, err
	}
	raw, err := object.EncodeJSON(tree)
	return raw, badBody(err)
}

// readMessage is read for a body that came as protobuf. Such a body can't say which of its fields the type doesn't have.
func (w *write) readMessage(body *kubeproto.Envelope) (*object.Object, error) {
	m := w.newMessage()
	if most := w.mostValues(); most < maxTypedValues {
		if _, values := kubeproto.Measure(body.Message, maxTypedWork/max(1, len(body.Message))); values > most {
			return nil, tooManyValues(values, most)
		}
	}
	if err := (expected{[]string{w.apiVersion()}, w.Kind}).decode(body, m); err != nil {
		return nil, err
	}
	if o := w.withValue(m); o != nil {
		return o, nil
	}
	if err := w.typed.setDefaults(m.(Typed)); err != nil {
		return nil, err
	}
	tree, err := treeOf(m)
	if err != nil {
		return nil, err
	}
	tree["apiVersion"], tree["kind"] = w.apiVersion(), w.Kind
	o, _, err := w.split(tree)
	return o, err
}

// withValue returns a new object that keeps the value which a client sent as protobuf for the rules of its type.
// They make the tree of it, and so it's converted once instead of three times. It's nil for objects that others
// look into before those rules: the type's own hooks, whoever tracks fields, and a retry with another name. Hooks
// for all resources look into few objects, of which unfold makes the content. checkValue must follow the rules.
func (w *write) withValue(m message) *object.Object {
	t, obj := w.typed, m.(Typed)
	value, copies := obj.(runtime.Object)
	meta := metaOf(obj)
	hasRules := t.Default != nil || t.Prepare != nil || t.Validate != nil
	if !copies || !t.holding().plain || !hasRules || w.targetKey != "" || w.Subresource != whole || w.res.answered || t.admit != nil ||
		w.res.registry.trackAlways || meta.Name == "" || len(meta.ManagedFields) > 0 {
		return nil
	}
	if w.has(status) && !statusOf(value).IsValid() { // nobody could drop it
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
	if err := w.typed.setDefaults(o.Value.(Typed)); err != nil {
		return err
	}
	tree, err := treeOf(o.Value.(message))
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
	tree, err := o.Tree(w.apiVersion(), w.Kind)
	if err != nil {
		return badBody(object.Undecodable(err))
	}
	if text, ok := badText(tree); !ok {
		return badRequest("the body of the request is not valid UTF-8 in %q", clip.Text(text))
	}
	if !farAway(o.Content) {
		return nil
	}
	_, err = w.typed.fromObject(o)
	return err
}

// farAway tells whether a tree has a text that could be a time before the year 0 or after 9999, which can't be read back.
func farAway(v any) bool {
	switch v := v.(type) {
	case string:
		const shortest = len("10000-01-01T00:00:00Z")
		return len(v) >= shortest && v[len(v)-1] == 'Z' && (v[0] == '-' || '0' <= v[0] && v[0] <= '9') && strings.Count(v, ":") == 2
	case map[string]any:
		for _, v := range v {
			if farAway(v) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, farAway)
	}
	return false
}

// answerMade shows what was stored as the message that the write has made of it.
func (w *write) answerMade(stored *kube.Object) (Result, error) {
	m, err := w.shown.Single.MessageFrom(stored, w.made)
	if err != nil {
		return Result{}, w.unreadable(stored.Name(), err)
	}
	return Result{Object: enveloped(w.shown.Single, m, stored.Revision)}, nil
}

// badText looks for a text in a tree that isn't UTF-8. Decoders of protobuf let such texts pass, which JSON can't have.
func badText(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, utf8.ValidString(v)
	case map[string]any:
		for k, v := range v {
			if !utf8.ValidString(k) {
				return k, false
			}
			if text, ok := badText(v); !ok {
				return text, false
			}
		}
	case []any:
		for _, v := range v {
			if text, ok := badText(v); !ok {
				return text, false
			}
		}
	}
	return "", true
}

// writeProtobuf is Write for a list of protobuf. The envelope begins with the length of the whole list, so the
// items are gone through twice: what isn't kept of them is encoded twice, too.
func (l *List) writeProtobuf(ctx context.Context, w io.Writer) error {
	view, size := l.shown.Item, 0
	item := func(o *kube.Object, err error) (kubeproto.Message, error) {
		if err != nil {
			return kubeproto.Message{}, l.failed(err)
		}
		m, err := view.Message(o)
		if err != nil {
			err = l.endpoint.unreadable(o.Name(), err)
		}
		return m, err
	}
	for o, err := range l.converted(ctx) {
		m, err := item(o, err)
		if err != nil {
			return err
		}
		size += m.ItemSize(int64(o.Revision))
	}
	out := newListWriter(w)
	defer out.drop()
	head := kubeproto.List{Revision: int64(l.Revision()), Continue: l.continues, Remaining: l.remaining}
	out.buf = head.AppendHead(out.buf, kubeproto.TypeOf(l.shown.ListVersion, l.shown.ListKind), size)
	for o, err := range l.converted(ctx) {
		m, err := item(o, err)
		if err != nil {
			return err
		}
		before := len(out.buf)
		out.buf = m.AppendItem(out.buf, int64(o.Revision))
		size -= len(out.buf) - before
		if err := out.flush(listBuffer); err != nil {
			return err
		}
	}
	if size != 0 { // history was compacted, or a webhook converts an object in another way each time
		return fmt.Errorf("%s: the list has changed while it was written", l.endpoint.resource())
	}
	out.buf = kubeproto.AppendListTail(out.buf)
	return out.flush(0)
}
