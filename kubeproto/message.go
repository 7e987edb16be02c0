package kubeproto

import (
	"errors"
	"math"
	"strconv"
)

// Message is an object as protobuf, without its resourceVersion. It's immutable, and its bytes may be shared.
type Message struct {
	data []byte // metadata without its head, and the fields after it
	at   uint32 // where the length of the resourceVersion is, which is 0
	end  uint32 // of metadata
}

// The fields that this package knows of every object, and of metadata.
const (
	objectMeta = 1

	metaVersion     = 6  // resourceVersion
	metaAnnotations = 12 // a map: each entry is a message of a key (1) and a value (2)
)

// Split makes a Message of an object's encoding, and keeps that. The object must have metadata as its first field, and an empty
// resourceVersion in it, which generated encoders write: otherwise it's an error.
func Split(encoded []byte) (Message, error) {
	bad := errors.New("a message must begin with metadata, in which resourceVersion is empty")
	meta, rest, ok := next(encoded)
	if !ok || meta.number != objectMeta || meta.wire != wireBytes || len(encoded) > math.MaxUint32 {
		return Message{}, bad
	}
	m := Message{data: encoded[len(encoded)-len(rest)-len(meta.content):], end: uint32(len(meta.content))}
	for left := meta.content; len(left) > 0; {
		f, after, ok := next(left)
		switch {
		case !ok || f.number == metaVersion && len(f.content) > 0:
			return Message{}, bad
		case f.number == metaVersion:
			m.at = uint32(len(meta.content) - len(after) - 1)
			return m, nil
		}
		left = after
	}
	return Message{}, bad
}

// Kept is how many bytes a Message keeps alive.
func (m Message) Kept() int { return cap(m.data) }

// digits is how long a resourceVersion is. There is none for 0: the object of a dry run has no revision.
func digits(rev int64) (n int) {
	for ; rev > 0; rev /= 10 {
		n++
	}
	return n
}

// Size is how long the message is with a resourceVersion.
func (m Message) Size(rev int64) int {
	return sizeBytes(int(m.end)+digits(rev)) + len(m.data) - int(m.end)
}

// Append appends the message, without an envelope.
func (m Message) Append(dst []byte, rev int64) []byte {
	n := digits(rev)
	dst = appendHead(dst, objectMeta, int(m.end)+n)
	dst = append(append(dst, m.data[:m.at]...), byte(n)) // at most 19
	if n > 0 {
		dst = strconv.AppendInt(dst, rev, 10)
	}
	return append(dst, m.data[m.at+1:]...)
}

// AppendObject appends the message in its envelope.
func (m Message) AppendObject(dst []byte, t Type, rev int64) []byte {
	return append(m.Append(t.begin(dst, m.Size(rev)), rev), tail...)
}

// ObjectSize is how much AppendObject appends.
func (m Message) ObjectSize(t Type, rev int64) int { return t.size(m.Size(rev)) }

// ItemSize is how much AppendItem appends.
func (m Message) ItemSize(rev int64) int { return sizeBytes(m.Size(rev)) }

// AppendItem appends the message as an item of a list.
func (m Message) AppendItem(dst []byte, rev int64) []byte {
	return m.Append(appendHead(dst, listItems, m.Size(rev)), rev)
}

// The fields of a list, and of its metadata.
const (
	listMeta  = 1
	listItems = 2

	listVersion   = 2
	listContinue  = 3
	listRemaining = 4
	listShard     = 5

	shardSelector = 1
)

// List is what a list says besides its items.
type List struct {
	Revision  int64 // 0: the list has none
	Continue  string
	Remaining int    // 0 for unknown
	Shard     string // the selector of the shard that the list is; "" for none
}

// AppendHead appends what comes before the items of a list, which take size bytes together. AppendListTail must follow them.
func (l List) AppendHead(dst []byte, t Type, size int) []byte {
	version := ""
	if l.Revision > 0 {
		version = strconv.FormatInt(l.Revision, 10)
	}
	meta := append(appendHead(nil, 1, 0), appendText(nil, listVersion, version)...) // the first is an empty selfLink
	meta = appendText(meta, listContinue, l.Continue)
	if l.Remaining > 0 {
		meta = appendVarint(append(meta, tag(listRemaining, wireVarint)), l.Remaining)
	}
	if l.Shard != "" {
		info := appendText(nil, shardSelector, l.Shard)
		meta = append(appendHead(meta, listShard, len(info)), info...)
	}
	dst = t.begin(dst, sizeBytes(len(meta))+size)
	return append(appendHead(dst, listMeta, len(meta)), meta...)
}

// AppendListTail appends what follows the items of a list.
func AppendListTail(dst []byte) []byte { return append(dst, tail...) }
