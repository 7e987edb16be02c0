package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Objects are stored as JSON. Those of Go types that have generated messages go to and from clients as protobuf, too: their
// bodies are read here, and package cacher keeps and copies the messages that newMessages makes of them.

// Message is what a Go type can do that has a protobuf form.
type Message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// NewMessage returns a new object of the endpoint's type, nil if that has no protobuf form.
func (e *Endpoint) NewMessage() Message {
	if e.Typed == nil {
		return nil
	}
	m, _ := e.Typed.New().(Message)
	return m
}

// newMessages returns the form of the endpoint's objects as protobuf, or nil if there is none: for custom resources, and for
// types whose message isn't as in Kubernetes.
func (e *Endpoint) newMessages() *form.Shown {
	m := e.NewMessage()
	if m == nil {
		return nil
	}
	if raw, err := MarshalMessage(m); err != nil {
		return nil
	} else if _, err := kubeproto.Split(raw); err != nil {
		return nil
	}
	e.Written = &written{}
	return form.NewProtobuf(e.View, &kube.Encoding{Encode: func(o *kube.Object) ([]byte, error) {
		if raw := e.Written.Take(o.Raw()); raw != nil {
			return raw, nil
		}
		m := e.NewMessage()
		if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Raw(), m); err != nil {
			return nil, err
		}
		return MarshalMessage(m)
	}}, e.ListKind)
}

// MarshalMessage encodes a message without its resourceVersion, which stored bytes don't have unless somebody else stored them.
func MarshalMessage(m Message) (raw []byte, err error) {
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
	switch of := e.BodyKind(subresource); {
	case k == form.Table:
		return false
	case !of.Empty():
		return k == form.Whole && PartMessages[of] != nil
	}
	return k == form.MetadataOnly || e.Messages != nil
}

// Tabular tells whether the answers about a target can be a Table. Of questions that are answered, and of subresources other
// than scale and status, there is none, nor of some kinds' status.
func (e *Endpoint) Tabular(subresource string) bool {
	if t := e.Typed; t != nil && (t.Unstored.Answer != nil || subresource == "status" && t.NoStatusTable) {
		return false
	}
	return e.Part(subresource) == nil && (subresource == AtScale || e.BodyKind(subresource).Empty())
}

// BodyKind returns the kind of a subresource's bodies, empty for that of the object itself.
func (e *Endpoint) BodyKind(subresource string) runtimeschema.GroupVersionKind {
	if subresource == AtScale {
		return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	}
	if part := e.Part(subresource); part != nil {
		return part.Kind
	}
	if e.Typed != nil && e.Typed.Unstored.Forward != nil {
		return e.GVK()
	}
	return runtimeschema.GroupVersionKind{}
}

// PartMessages make messages of the kinds of subresources.
var PartMessages = map[runtimeschema.GroupVersionKind]func() Message{
	autoscalingv1.SchemeGroupVersion.WithKind("Scale"):           func() Message { return &autoscalingv1.Scale{} },
	corev1.SchemeGroupVersion.WithKind("Binding"):                func() Message { return &corev1.Binding{} },
	policyv1.SchemeGroupVersion.WithKind("Eviction"):             func() Message { return &policyv1.Eviction{} },
	authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"): func() Message { return &authenticationv1.TokenRequest{} },
}

// apart is the form of answers as protobuf that aren't objects of an endpoint.
var apart = &form.Shown{Key: form.Key{Form: form.Form{Encoding: form.Protobuf}}}

// EncodeApart encodes an answer that isn't an object of an endpoint's, such as a Scale or a Status: as JSON, or
// if the client is shown protobuf, as that.
func EncodeApart(shown *form.Shown, meta metav1.TypeMeta, answer Message) ([]byte, error) {
	if shown.Encoding != form.Protobuf {
		return json.Marshal(answer)
	}
	raw, err := answer.Marshal()
	return kubeproto.TypeOf(meta.APIVersion, meta.Kind).Append(nil, raw), err
}

// TakesProtobuf tells whether bodies for the target may be protobuf: those for Go types that have such a form, and Scales.
func (e *Endpoint) TakesProtobuf(subresource string) bool {
	if of := e.BodyKind(subresource); !of.Empty() {
		return PartMessages[of] != nil
	}
	return e.Messages != nil
}

func UnmarshalMessage(raw []byte, into Message) (err error) {
	defer recovered(&err)
	return into.Unmarshal(raw)
}

const (
	// keptWritten is how many writes of one kind a watcher may be behind: more than are under way at a time, as on a busy machine the
	// watchers wait for a core, too.
	keptWritten = 64
	// maxWritten bounds the bytes of one write that are kept: to decode more costs little beside storing them.
	maxWritten = 16 << 10
)

// written has the messages of what was stored lately, by the bytes that were stored. The cache asks for them an instant later, to show
// them to watchers of protobuf; and a write has its object as a value, from which a message costs a tenth of what it costs from bytes.
type written struct {
	mu     sync.Mutex
	recent [keptWritten]struct{ raw, message []byte } // a ring; guarded by mu
	next   int                                        // in recent; guarded by mu
	wanted int                                        // so many more are kept until somebody asks; guarded by mu
}

// Put keeps the message of what is about to be stored, if messages are asked for.
func (w *written) Put(raw []byte, message func() []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wanted == 0 || len(raw) > maxWritten {
		return
	}
	w.wanted--
	at := &w.recent[w.next%keptWritten]
	w.next++
	at.raw, at.message = raw, message()
}

// Take returns the message of stored bytes, which it forgets; nil if there is none.
func (w *written) Take(raw []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = keptWritten
	for i := range w.recent {
		if at := &w.recent[i]; at.raw != nil && bytes.Equal(at.raw, raw) {
			message := at.message
			at.raw, at.message = nil, nil
			return message
		}
	}
	return nil
}
