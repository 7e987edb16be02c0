package kube

import (
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Object is one stored object: its bytes as etcd has them, without a resourceVersion, and the attributes that
// routing needs. It's never a decoded tree. It's immutable, and readers share it.
type Object struct {
	Key               string
	Revision          storage.Revision // its resourceVersion
	labelBits         LabelBits        // a hash of Labels; it's up here so that a scan reads one cache line of each object
	Labels            selectors.Set
	Err               error  // not nil if the stored bytes aren't an object: then they're kept, and never served
	DeletionTimestamp string // "" when it isn't being deleted

	raw     []byte
	offsets offsets
	Stale   bool     // it would be stored in another way now, by another key: a write that changes nothing is done all the same
	fields  *Fields  // the selectable fields whose values the object carries; nil for none
	values  []string // of these fields, in their order
	nameAt  uint32   // where the name begins in Key
	spaceAt uint32   // where the namespace begins in Key; nameAt when there is none

	converted atomic.Pointer[converted]   // a list of what conversions made of the object; nil for most objects
	messages  atomic.Pointer[keptMessage] // a list of what Encodings made of it; nil if the object isn't in a tree
}

// NewObject scans stored bytes into an Object. The Object keeps raw, and strings that share its bytes, so raw must not
// change any more.
func NewObject(key string, raw []byte, rev storage.Revision) *Object {
	o := keyed(key, raw, rev)
	s := scanner{jsonscan.Scanner{Data: raw}}
	o.Err = s.scan(o)
	o.labelBits = bitsOf(o.Labels)
	return o
}

// keyed is an Object that knows the parts of its key, and nothing of its bytes.
func keyed(key string, raw []byte, rev storage.Revision) *Object {
	o := &Object{Key: key, Revision: rev, raw: raw}
	if p, ns, _, ok := storage.SplitKey(key); ok {
		o.spaceAt = uint32(len(p))
		o.nameAt = o.spaceAt
		if ns != "" {
			o.nameAt += uint32(len(ns)) + 1
		}
	}
	return o
}

// Changed makes the object that a change leaves. If the change couldn't be decoded, the object has its Err.
func Changed(c storage.Change) *Object {
	if c.Err != nil {
		o := keyed(c.Key, c.Value, c.Revision)
		o.Err = c.Err
		return o
	}
	o := NewObject(c.Key, c.Value, c.Revision)
	o.Stale = c.Stale
	return o
}

// At returns a copy of the object, as if rev were its last write. The copy keeps no messages (see Messages.Admit).
func (o *Object) At(rev storage.Revision) *Object {
	last := &Object{
		Key: o.Key, Revision: rev, labelBits: o.labelBits, Labels: o.Labels, Err: o.Err, DeletionTimestamp: o.DeletionTimestamp,
		raw: o.raw, offsets: o.offsets, Stale: o.Stale, fields: o.fields, values: o.values, nameAt: o.nameAt, spaceAt: o.spaceAt,
	}
	last.converted.Store(o.converted.Load())
	return last
}

// Namespace returns the namespace in the object's key, "" for cluster scope.
func (o *Object) Namespace() string {
	if o.spaceAt == o.nameAt {
		return ""
	}
	return o.Key[o.spaceAt : o.nameAt-1]
}

// Name returns the name in the object's key.
func (o *Object) Name() string { return o.Key[o.nameAt:] }

// Raw returns the stored bytes. They're shared: never write to them.
func (o *Object) Raw() []byte { return o.raw }

// Metadata returns the stored bytes of metadata. They're shared: never write to them.
func (o *Object) Metadata() []byte { return o.raw[o.offsets.metadata.from:o.offsets.metadata.to] }
