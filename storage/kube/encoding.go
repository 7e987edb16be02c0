package kube

import (
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
)

// Encoding makes messages of objects, for the views that show them as protobuf. What it makes is kept with the object while
// that is in the tree, up to the bound of Messages for all objects together. Beyond the bound each reader makes its own.
type Encoding struct {
	// Encode returns an object as the message of its kind, with metadata in front and without a resourceVersion. It may be
	// called while a lock of the cacher is held, for which only readers of the same event or the same state wait: it
	// must not block or call the cacher.
	Encode func(o *Object) ([]byte, error)
}

// Protobuf returns a view of the same objects as protobuf.
func (v *View) Protobuf(e *Encoding) *View {
	return &View{APIVersion: v.APIVersion, Kind: v.Kind, Conversion: v.Conversion, Encoding: e, envelope: kubeproto.TypeOf(v.APIVersion, v.Kind)}
}

// Envelope is the Type of what a view of protobuf shows.
func (v *View) Envelope() kubeproto.Type { return v.envelope }

// Message returns an object as a view of protobuf shows it. Where the view has a Conversion, the object must come from Shown
// or Prepare. The error is that of the Encoding.
func (v *View) Message(o *Object) (kubeproto.Message, error) {
	if f := o.messages.Load().find(v.Encoding); f != nil {
		return f.message, nil
	}
	raw, err := v.Encoding.Encode(o)
	if err != nil {
		return kubeproto.Message{}, err
	}
	return v.MessageFrom(o, raw)
}

// MessageFrom is Message for an object of which the caller has made what Encode would.
func (v *View) MessageFrom(o *Object, raw []byte) (kubeproto.Message, error) {
	m, err := kubeproto.Split(raw)
	if err == nil {
		o.keep(v.Encoding, m)
	}
	return m, err
}

// Messages are what all Encodings made of the objects that it has admitted and that weren't dropped. Make one with NewMessages.
type Messages struct {
	bound *int64
	bytes atomic.Int64
	none  keptMessage // the last entry of each object's list
}

// NewMessages returns a keeper of at most so many bytes. What has no room isn't kept. The bound may change until the first
// object is admitted.
func NewMessages(bound *int64) *Messages {
	ms := &Messages{bound: bound}
	ms.none.of = ms
	return ms
}

// Bytes returns how many bytes are kept.
func (ms *Messages) Bytes() int64 { return ms.bytes.Load() }

// keptMessage is what an Encoding made of an object. It's a list, with one entry for each Encoding, whose last entry has
// nothing but of. Immutable.
type keptMessage struct {
	by      *Encoding
	message kubeproto.Message
	next    *keptMessage
	of      *Messages
}

// messageOverhead is about how many bytes a message takes besides its own.
const messageOverhead = 64

func (f *keptMessage) size() int64 { return messageOverhead + int64(f.message.Kept()) }

func (f *keptMessage) find(e *Encoding) *keptMessage {
	for ; f != nil; f = f.next {
		if f.by == e {
			return f
		}
	}
	return nil
}

// Admit lets an object keep messages, because it comes into a tree. Nobody else has it yet.
func (ms *Messages) Admit(o *Object) { o.messages.Store(&ms.none) }

// keep keeps what an Encoding made of the object, if the object is in a tree and there is room.
func (o *Object) keep(e *Encoding, m kubeproto.Message) {
	f := &keptMessage{by: e, message: m}
	for {
		f.next = o.messages.Load()
		if f.next == nil || f.next.find(e) != nil {
			return
		}
		if f.of = f.next.of; f.of.bytes.Load()+f.size() > *f.of.bound {
			return
		}
		if o.messages.CompareAndSwap(f.next, f) {
			f.of.bytes.Add(f.size())
			return
		}
	}
}

// DropMessages forgets what was kept of an object, which has left its tree, and keeps nothing from then on.
func (o *Object) DropMessages() {
	for f := o.messages.Swap(nil); f != nil && f.by != nil; f = f.next {
		f.of.bytes.Add(-f.size())
	}
}
