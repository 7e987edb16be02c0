package watchstream

import "encoding/json"

// heads are the beginnings of frames, by type. A frame is one event on the wire: a compact JSON document
// {"type":"ADDED","object":{...}} and a newline. Clients split on newlines, so a frame has no newline inside.
var heads = func() (h [len(typeNames)]string) {
	for t, name := range typeNames {
		h[t] = `{"type":"` + name + `","object":`
	}
	return h
}()

const tail = "}\n"

// AppendHead appends what comes before the object in a frame of type t.
func AppendHead(dst []byte, t Type) []byte { return append(dst, heads[t]...) }

// AppendTail appends what follows the object in a frame.
func AppendTail(dst []byte) []byte { return append(dst, tail...) }

// InitialEventsEnd is the annotation of the bookmark that ends the initial state (KEP-3157).
const InitialEventsEnd = "k8s.io/initial-events-end"

// BookmarkOf is what a bookmark says. A bookmark is an object of the watched kind that has nothing but a
// resourceVersion (KEP-956).
type BookmarkOf struct {
	APIVersion, Kind, ResourceVersion string
	InitialEnd                        bool // carries the annotation InitialEventsEnd
}

// AppendBookmark appends a BOOKMARK frame.
func AppendBookmark(dst []byte, b BookmarkOf) []byte {
	return AppendTail(b.AppendObject(AppendHead(dst, Bookmark)))
}

// AppendObject appends the bookmark's object, without a frame.
func (b BookmarkOf) AppendObject(dst []byte) []byte {
	dst = appendString(append(dst, `{"kind":`...), b.Kind)
	dst = appendString(append(dst, `,"apiVersion":`...), b.APIVersion)
	dst = appendString(append(dst, `,"metadata":{"resourceVersion":`...), b.ResourceVersion)
	if b.InitialEnd {
		dst = append(dst, `,"annotations":{"`+InitialEventsEnd+`":"true"}`...)
	}
	return append(dst, `}}`...)
}

// appendString appends a JSON string. Names of kinds and versions need no escapes.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			escaped, _ := json.Marshal(s) // of a string can't fail
			return append(dst, escaped...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}

// AppendError appends an ERROR frame, after which a stream ends. status is a Status of meta/v1 as compact JSON.
func AppendError(dst, status []byte) []byte {
	return AppendTail(append(AppendHead(dst, Error), status...))
}
