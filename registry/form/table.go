package form

import (
	"bytes"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// table shows objects as rows of a Table. Immutable.
type table struct {
	*columns
	clock          *clock.Clock
	apiVersion     string
	include        metav1.IncludeObjectPolicy // what comes with a row
	link           string                     // as in Form
	whole, partial *kube.View
}

// shown returns the form. A single object is a Table of one row; in a watch only the first event says what
// the columns are.
func (t *table) shown() *Shown {
	single := t.view(t.definitions)
	event := single
	if !t.repeated {
		event = t.view([]byte("null"))
		event.First = single
	}
	return &Shown{
		Single: single,
		Event:  event,
		Item:   &kube.View{APIVersion: t.whole.APIVersion, Kind: t.whole.Kind, Render: t.appendRow, Conversion: t.whole.Conversion},

		ListKind: string(Table), ListVersion: t.apiVersion,
		Members:  []byte(`"columnDefinitions":` + string(t.definitions) + `,"rows":[`),
		NullRows: t.nullRows,
	}
}

// view makes Tables of one row.
func (t *table) view(definitions []byte) *kube.View {
	render := func(dst []byte, o *kube.Object) []byte {
		dst = append(append(dst, `{"kind":"Table","apiVersion":"`...), t.apiVersion...)
		dst = append(dst, `","metadata":{`...)
		if t.link != "" {
			dst = append(append(append(dst, `"selfLink":"`...), t.link...), `",`...)
		}
		dst = append(dst, `"resourceVersion":"`...)
		dst = strconv.AppendInt(dst, int64(o.Revision), 10)
		dst = append(append(dst, `"},"columnDefinitions":`...), definitions...)
		dst = t.appendRow(append(dst, `,"rows":[`...), o)
		return append(dst, `]}`...)
	}
	return &kube.View{APIVersion: t.whole.APIVersion, Kind: t.whole.Kind, Render: render, Conversion: t.whole.Conversion}
}

// maxPooledObject is how large a buffer of wholeObjects may be, in bytes: most objects are far smaller.
const maxPooledObject = 512 << 10

// wholeObjects holds *[]byte, in which objects are put together that are then decoded.
var wholeObjects = sync.Pool{New: func() any { return new([]byte) }}

// appendRow appends one row.
func (t *table) appendRow(dst []byte, o *kube.Object) []byte {
	pooled := wholeObjects.Get().(*[]byte)
	whole := t.whole.Append((*pooled)[:0], o)
	defer func() {
		if cap(whole) <= maxPooledObject {
			*pooled = whole
			wholeObjects.Put(pooled)
		}
	}()
	object := t.wanted.decode(newReader(whole))
	dst = append(dst, `{"cells":[`...)
	if t.nameFirst {
		dst = appendCell(dst, o.Name())
	}
	for i, cell := range t.cells {
		if i > 0 || t.nameFirst {
			dst = append(dst, ',')
		}
		dst = appendCell(dst, Said(cell(object), t.clock.Now))
	}
	dst = append(dst, `],"object":`...)
	switch {
	case t.include == metav1.IncludeObject:
		dst = append(dst, whole...)
	case t.include == metav1.IncludeMetadata || endsState(o):
		dst = t.partial.Append(dst, o)
	default:
		dst = append(dst, "null"...)
	}
	return append(dst, '}')
}

// endsState tells whether an object is the bookmark that ends an initial state. It says so in an annotation
// (KEP-3157), so its row always has the object.
func endsState(o *kube.Object) bool {
	return o.Name() == "" && bytes.Contains(o.Raw(), []byte(metav1.InitialEventsAnnotationKey))
}

// appendCell appends the value of a cell. What is no value of JSON is null.
func appendCell(dst []byte, value any) []byte {
	if with, err := jsontree.Append(dst, value); err == nil {
		return with
	}
	return append(dst, "null"...)
}
