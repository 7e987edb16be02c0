package form

import (
	"strconv"
	"unsafe"

	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
)

// reader reads stored JSON, which is valid: a table reads each object of a list. It looks at the names of members where they are, and
// skips most values. What isn't JSON leaves out the rest.
type reader struct{ jsonscan.Scanner }

func newReader(data []byte) *reader { return &reader{jsonscan.Scanner{Data: data}} }

// value reads a value. Numbers become int64 where they fit, else float64.
func (r *reader) value() (value any) {
	first := r.Peek()
	if first == '"' {
		return string(r.Text())
	}
	text := r.Skip()
	if first == '-' || '0' <= first && first <= '9' {
		if n, err := strconv.ParseInt(unsafe.String(unsafe.SliceData(text), len(text)), 10, 64); err == nil {
			return n
		}
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &value) != nil {
		return nil
	}
	return value
}
