package form

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unsafe"

	kjson "sigs.k8s.io/json"
)

// reader goes through valid JSON once. It's our own because a table reads each object of a list: it looks at the names of
// members where they are, and skips most values. What isn't JSON leaves out the rest.
type reader struct {
	data []byte
	pos  int
}

// peek returns the next byte that isn't white space, 0 at the end.
func (r *reader) peek() byte {
	for ; r.pos < len(r.data); r.pos++ {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// members reads an object. It calls member before each value; member must read the value. A name is valid until then.
func (r *reader) members(member func(name []byte)) {
	r.pos++ // the brace
	for r.peek() == '"' {
		name := r.quoted()
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(unquote(name))
		}
		if r.peek() != ':' {
			break
		}
		r.pos++
		member(name)
		if r.peek() != ',' {
			break
		}
		r.pos++
	}
	if r.peek() == '}' {
		r.pos++
		return
	}
	r.pos = len(r.data)
}

// quoted reads a string, and returns what is between its quotes.
func (r *reader) quoted() []byte {
	r.pos++
	from := r.pos
	for ; r.pos < len(r.data); r.pos++ {
		switch r.data[r.pos] {
		case '"':
			r.pos++
			return r.data[from : r.pos-1]
		case '\\':
			r.pos++
		}
	}
	r.pos = len(r.data)
	return nil
}

// unquote returns the text that is between quotes.
func unquote(b []byte) (text string) {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	quoted := append(append(append(make([]byte, 0, len(b)+2), '"'), b...), '"')
	_ = json.Unmarshal(quoted, &text) // of valid JSON it can't fail
	return text
}

// skip skips a value, and returns its bytes.
func (r *reader) skip() []byte {
	first, from := r.peek(), r.pos
	switch first {
	case '"':
		r.quoted()
	case '{', '[':
		r.skipNested()
	default:
		for r.pos < len(r.data) && !endsScalar(r.data[r.pos]) {
			r.pos++
		}
	}
	return r.data[from:r.pos]
}

// skipNested skips an object or a list.
func (r *reader) skipNested() {
	for depth := 0; r.pos < len(r.data); {
		switch r.data[r.pos] {
		case '"':
			r.quoted()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if r.pos++; depth == 0 {
			return
		}
	}
}

func endsScalar(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// value reads a value. Numbers become int64 where they fit, else float64.
func (r *reader) value() (value any) {
	first := r.peek()
	if first == '"' {
		return unquote(r.quoted())
	}
	text := r.skip()
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
