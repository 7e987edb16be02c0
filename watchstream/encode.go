package watchstream

import (
	"encoding/json"
	"fmt"

	jsoniter "github.com/json-iterator/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A frame is one event on the wire: a compact JSON document {"type":"ADDED","object":{...}} and a
// newline. Clients split on newlines, so there's none inside and no indentation ever.
var heads = func() (h [len(typeNames)]string) {
	for t, name := range typeNames {
		h[t] = `{"type":"` + name + `","object":`
	}
	return h
}()

const tail = "}\n"

// AppendHead appends what stands before the object in a frame of type t.
func AppendHead(dst []byte, t Type) []byte { return append(dst, heads[t]...) }

// AppendTail appends what stands after the object in a frame.
func AppendTail(dst []byte) []byte { return append(dst, tail...) }

// InitialEventsEnd is the annotation of the bookmark that ends the initial state (KEP-3157).
const InitialEventsEnd = metav1.InitialEventsAnnotationKey

// BookmarkOf is what a bookmark says: it's an object of the watched kind with nothing but a
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
	s := jsoniter.ConfigFastest.BorrowStream(nil)
	defer jsoniter.ConfigFastest.ReturnStream(s)
	s.WriteRaw(`{"kind":`)
	s.WriteString(b.Kind)
	s.WriteRaw(`,"apiVersion":`)
	s.WriteString(b.APIVersion)
	s.WriteRaw(`,"metadata":{"resourceVersion":`)
	s.WriteString(b.ResourceVersion)
	// A null creationTimestamp is what typed clients of kube-apiserver are used to.
	s.WriteRaw(`,"creationTimestamp":null`)
	if b.InitialEnd {
		s.WriteRaw(`,"annotations":{"` + InitialEventsEnd + `":"true"}`)
	}
	s.WriteRaw(`}}`)
	return append(dst, s.Buffer()...)
}

// AppendError appends an ERROR frame, after which a stream ends.
func AppendError(dst []byte, status *metav1.Status) []byte {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil { // a Status holds strings and numbers
		panic(fmt.Sprintf("encode a Status: %v", err))
	}
	return AppendTail(append(AppendHead(dst, Error), body...))
}
