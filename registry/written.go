package registry

import (
	"bytes"
	"sync"
)

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
