package jsontree

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Append appends a tree as encoding/json writes it: compact, members sorted by name, HTML escaped. An error is
// encoding/json's, about a value that JSON doesn't have.
func Append(dst []byte, tree any) ([]byte, error) {
	switch v := tree.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return AppendString(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case float64:
		return appendFloat(dst, v)
	case map[string]any:
		if v != nil {
			return appendObject(dst, v)
		}
	case []any:
		if v != nil {
			return appendArray(dst, v)
		}
	case Raw:
		return append(dst, v...), nil
	}
	text, err := json.Marshal(tree)
	return append(dst, text...), err
}

// A member of an object that is being written.
type named struct {
	name  string
	value any
}

// members holds *[]named, in which the members of an object are sorted.
var members = sync.Pool{New: func() any { return new([]named) }}

func appendObject(dst []byte, m map[string]any) (_ []byte, err error) {
	pooled := members.Get().(*[]named)
	sorted := (*pooled)[:0]
	for name, v := range m {
		sorted = append(sorted, named{name, v})
	}
	slices.SortFunc(sorted, func(a, b named) int { return strings.Compare(a.name, b.name) })
	dst = append(dst, '{')
	for i, member := range sorted {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, member.name), ':')
		if dst, err = Append(dst, member.value); err != nil {
			return nil, err
		}
	}
	if cap(sorted) <= maxPooledMembers {
		clear(sorted)
		*pooled = sorted
		members.Put(pooled)
	}
	return append(dst, '}'), nil
}

// maxPooledMembers bounds what the pool keeps.
const maxPooledMembers = 1024

func appendArray(dst []byte, list []any) (_ []byte, err error) {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = Append(dst, v); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

// AppendString appends a string with its quotes.
func AppendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x80 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return appendEscaped(dst, s, i)
		}
	}
	dst = append(append(dst, '"'), s...)
	return append(dst, '"')
}

// appendEscaped appends a string that is plain before the byte at next. What has only quotes to be escaped, as much in managedFields,
// needs no encoder.
func appendEscaped(dst []byte, s string, next int) []byte {
	start, from := len(dst), 0 // from: what of s isn't appended yet
	dst = append(dst, '"')
	for i := next; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(append(dst, s[from:i]...), '\\', c)
			from = i + 1
		case c < ' ' || c >= 0x80 || c == '<' || c == '>' || c == '&':
			text, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string always encodes
			}
			return append(dst[:start], text...)
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

func appendFloat(dst []byte, f float64) ([]byte, error) {
	if abs := math.Abs(f); abs == 0 || 1e-6 <= abs && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64), nil
	}
	text, err := json.Marshal(f)
	return append(dst, text...), err
}
