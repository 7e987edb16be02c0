// Package jsonscan goes through a JSON document once, as it's written, for those who need little of it: it makes no values. How
// objects and lists are put together is checked. A value that is skipped is only looked at as far as it takes to find its end.
// FuzzScan of package client, and FuzzReader of registry/form, compare with encoding/json.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Scanner is a place in a document.
type Scanner struct {
	Data []byte
	Pos  int
}

// Peek returns the next byte that isn't white space, 0 at the end.
func (s *Scanner) Peek() byte {
	for ; s.Pos < len(s.Data); s.Pos++ {
		switch c := s.Data[s.Pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// Members reads the object that comes next, and skips any other value. It calls member before each value, with the name as it's
// between the quotes; member must read the value. It reports whether it was an object, and whole.
func (s *Scanner) Members(member func(name []byte)) bool {
	return s.each('{', '}', func() bool {
		name := s.quoted()
		if name == nil || s.Peek() != ':' {
			return false
		}
		s.Pos++
		member(name)
		return true
	})
}

// Elements reads the list that comes next, and skips any other value. It calls element before each element, which it must read. It
// reports whether it was a list, and whole.
func (s *Scanner) Elements(element func()) bool {
	return s.each('[', ']', func() bool {
		element()
		return true
	})
}

// each calls one for each of what stands between brackets, until that returns false.
func (s *Scanner) each(opens, closes byte, one func() bool) bool {
	if s.Peek() != opens {
		s.Skip()
		return false
	}
	s.Pos++
	if s.Peek() == closes {
		s.Pos++
		return true
	}
	for one() {
		switch s.Peek() {
		case ',':
			s.Pos++
		case closes:
			s.Pos++
			return true
		default:
			return false
		}
	}
	return false
}

// AtEnd reports whether nothing but white space follows.
func (s *Scanner) AtEnd() bool { return s.Peek() == 0 && s.Pos == len(s.Data) }

// End goes to the end of the document, so that nothing more is found.
func (s *Scanner) End() { s.Pos = len(s.Data) }

// quoted reads a string, and returns what is between its quotes; nil if it's none.
func (s *Scanner) quoted() []byte {
	if s.Peek() != '"' {
		return nil
	}
	from := s.Pos + 1
	for i := from; i < len(s.Data); i++ {
		switch s.Data[i] {
		case '"':
			s.Pos = i + 1
			return s.Data[from:i]
		case '\\':
			i++
		}
	}
	s.End()
	return nil
}

// Text reads a value, and returns what is between its quotes; nil if it's no string.
func (s *Scanner) Text() []byte {
	if s.Peek() != '"' {
		s.Skip()
		return nil
	}
	return Unquote(s.quoted())
}

// Unquote returns the text that is between quotes: the bytes themselves if it has no escapes.
func Unquote(b []byte) []byte {
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	var text string
	_ = json.Unmarshal(slices.Concat([]byte{'"'}, b, []byte{'"'}), &text) // of valid JSON it can't fail
	return []byte(text)
}

// Skip skips a value, and returns its bytes; nil if there's none, or it has no end.
func (s *Scanner) Skip() []byte {
	first, from := s.Peek(), s.Pos
	ends := true
	switch first {
	case '"':
		ends = s.quoted() != nil
	case '{', '[':
		ends = s.nested()
	default:
		for s.Pos < len(s.Data) && s.Data[s.Pos] > ' ' && s.Data[s.Pos] != ',' && s.Data[s.Pos] != '}' && s.Data[s.Pos] != ']' {
			s.Pos++
		}
		ends = s.Pos > from
	}
	if !ends {
		return nil
	}
	return s.Data[from:s.Pos]
}

// nested skips an object or a list, and reports whether it has an end.
func (s *Scanner) nested() bool {
	for depth := 0; s.Pos < len(s.Data); {
		switch s.Data[s.Pos] {
		case '"':
			s.quoted()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if s.Pos++; depth == 0 {
			return true
		}
	}
	return false
}
