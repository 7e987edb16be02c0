package kubeproto

import (
	"encoding/binary"
	"iter"
	"strconv"
)

// A frame is one event of a watch: the length of a WatchEvent in four bytes, and the WatchEvent, whose object is in an
// envelope. The WatchEvent itself has none.

// frameHead is how many bytes say how long a frame is.
const frameHead = 4

// The fields of a WatchEvent, and that of the RawExtension in it.
const (
	eventType   = 1
	eventObject = 2

	extensionRaw = 1
)

// eventSize is how long the WatchEvent with an object of n bytes is.
func eventSize(typ string, n int) int { return sizeBytes(len(typ)) + sizeBytes(sizeBytes(n)) }

// beginEvent appends what comes before an object of n bytes in a frame. Nothing follows the object.
func beginEvent(dst []byte, typ string, n int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(eventSize(typ, n)))
	dst = appendText(dst, eventType, typ)
	dst = appendHead(dst, eventObject, sizeBytes(n))
	return appendHead(dst, extensionRaw, n)
}

// EventSize is how much AppendEvent appends.
func (m Message) EventSize(t Type, typ string, rev int64) int {
	return frameHead + eventSize(typ, m.ObjectSize(t, rev))
}

// AppendEvent appends a frame whose type is typ, such as ADDED.
func (m Message) AppendEvent(dst []byte, t Type, typ string, rev int64) []byte {
	return m.AppendObject(beginEvent(dst, typ, m.ObjectSize(t, rev)), t, rev)
}

// AppendBookmark appends a BOOKMARK frame: an object of the watched kind with nothing but a resourceVersion, and with
// an annotation "true" if that isn't "".
func AppendBookmark(dst []byte, t Type, rev int64, annotation string) []byte {
	meta := appendText(nil, metaVersion, strconv.FormatInt(rev, 10))
	if annotation != "" {
		entry := appendText(appendText(nil, 1, annotation), 2, "true")
		meta = append(appendHead(meta, metaAnnotations, len(entry)), entry...)
	}
	message := append(appendHead(nil, objectMeta, len(meta)), meta...)
	return t.Append(beginEvent(dst, "BOOKMARK", t.size(len(message))), message)
}

// The fields of a Status.
const (
	statusStatus  = 2
	statusMessage = 3
	statusReason  = 4
	statusCode    = 6
)

// statusType is a Status's.
var statusType = TypeOf("v1", "Status")

// AppendStatus appends an enveloped Status, given as its message.
func AppendStatus(dst, status []byte) []byte { return statusType.Append(dst, status) }

// AppendError appends an ERROR frame with a Status, given as its message.
func AppendError(dst, status []byte) []byte {
	return statusType.Append(beginEvent(dst, "ERROR", statusType.size(len(status))), status)
}

// Failure returns the message of a Status that tells of a failure.
func Failure(code int, reason, message string) []byte {
	status := appendHead(nil, 1, 0) // metadata
	status = appendText(status, statusStatus, "Failure")
	status = appendText(status, statusMessage, message)
	status = appendText(status, statusReason, reason)
	return appendVarint(append(status, tag(statusCode, wireVarint)), code)
}

// CountFrames counts the frames in p, which are whole.
func CountFrames(p []byte) (n int) {
	for range Frames(p) {
		n++
	}
	return n
}

// Frames yields the WatchEvents in p, which holds whole frames.
func Frames(p []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(p) >= frameHead {
			end := min(frameHead+int(binary.BigEndian.Uint32(p)), len(p))
			if !yield(p[frameHead:end]) {
				return
			}
			p = p[end:]
		}
	}
}
