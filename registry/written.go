package registry

import (
	"bytes"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

const (
	// keptWritten is how many writes of one kind the watch cache may be behind. It's behind by those that are under way.
	keptWritten = 32
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

// put keeps the message of what is about to be stored, if messages are asked for.
func (w *written) put(raw []byte, message func() []byte) {
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

// take returns the message of stored bytes, which it forgets; nil if there is none.
func (w *written) take(raw []byte) []byte {
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

// note makes the messages of what is about to be stored for those who will be shown them: the client, and the watchers. obj is its
// value, and raw its bytes.
func (w *write) note(obj Typed, o *object.Object, raw []byte) {
	w.made = nil
	if obj == nil || w.messages == nil || w.res.storage != w.Endpoint {
		return
	}
	if w.shown == w.messages {
		w.made = messageOf(obj, o)
	}
	w.written.put(raw, func() []byte {
		if w.made != nil {
			return w.made
		}
		return messageOf(obj, o)
	})
}

// messageOf returns the message of what is to be stored, of which obj is the value: what decoding the stored bytes would give, which is
// most of what a message costs. It's nil if the managedFields can't be read, or if the value has no message.
func messageOf(obj Typed, o *object.Object) []byte {
	entries, ok := managed.Entries(o.Managed)
	if !ok {
		return nil
	}
	*metaOf(obj) = o.Meta
	metaOf(obj).ManagedFields = entries
	raw, err := marshal(obj.(message))
	if err != nil {
		return nil // decoding tells why
	}
	return raw
}
