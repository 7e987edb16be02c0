package watchstream

import (
	"bytes"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// ServerSentMedia is the media type of server-sent events, in which a browser's EventSource reads a stream. Source: the HTML Living
// Standard, section 9.2. An event is
//
//	event: ADDED
//	id: 42
//	data: {...}
//
// and an empty line. A client that comes back sends the last id that it got.
const ServerSentMedia = "text/event-stream"

// AppendServerSentHead appends what comes before the object in a server-sent event of type t. The event has no id for 0.
func AppendServerSentHead(dst []byte, t Type, id int64) []byte {
	dst = append(append(append(dst, "event: "...), typeNames[t]...), '\n')
	if id != 0 {
		dst = append(appendServerSentID(dst, id), '\n')
	}
	return append(dst, "data: "...)
}

// AppendServerSentTail appends what follows the object in a server-sent event.
func AppendServerSentTail(dst []byte) []byte { return append(dst, ServerSentEnd...) }

// ServerSentEnd is what ends each server-sent event. No JSON in one has a newline.
const ServerSentEnd = "\n\n"

// ServerSentEvents yields the events in a batch of whole ones, without their ends.
func ServerSentEvents(frames []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(frames) > 0 {
			event, rest, _ := bytes.Cut(frames, []byte(ServerSentEnd))
			if !yield(event) {
				return
			}
			frames = rest
		}
	}
}

// AppendServerSentID appends an id without data: the client takes note of the id, and its program isn't told.
func AppendServerSentID(dst []byte, id int64) []byte {
	return AppendServerSentTail(appendServerSentID(dst, id))
}

// ServerSentWithoutID returns a copy of an event of AppendServerSentHead and AppendServerSentTail without its id: others of the same id
// follow, and who has got one of them hasn't got all.
func ServerSentWithoutID(event []byte) []byte {
	head, rest, _ := bytes.Cut(event, []byte("id: "))
	_, rest, _ = bytes.Cut(rest, []byte("\n"))
	return append(slices.Clone(head), rest...)
}

func appendServerSentID(dst []byte, id int64) []byte {
	return strconv.AppendInt(append(dst, "id: "...), id, 10)
}

// Advised adds to the message of a Status with a code what a page has to do after it, which a browser does by itself.
func Advised(message string, code int) string {
	if code == codeExpired {
		message = strings.TrimSuffix(message, ".") + ": come back without an id, and get the state"
	}
	return message
}

// AppendServerSentError appends an ERROR event, after which a stream ends. status is a Status of meta/v1 as compact JSON, with that code.
// If history is gone, the client forgets the id, so that it doesn't come back with it.
func AppendServerSentError(dst, status []byte, code int) []byte {
	dst = append(dst, "event: ERROR\n"...)
	if code == codeExpired {
		dst = append(dst, "id:\n"...)
	}
	return AppendServerSentTail(append(append(dst, "data: "...), status...))
}
