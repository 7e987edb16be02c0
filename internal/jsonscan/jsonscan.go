// Package jsonscan goes through a JSON document once, as it's written, for those who need little of it: it makes no values. All that
// it goes through is checked, also what is skipped. It's our own because every event passes through it, and every object at start:
// BenchmarkScan of storage/kube compares it with json-iterator's Iterator. FuzzScan there, FuzzScan of package client, and FuzzReader of
// registry/form compare with encoding/json.
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
)

// MaxDepth is how deeply a document may nest: what encoding/json accepts.
const MaxDepth = 10_000

// Scanner is a place in a document. What isn't JSON takes it to the end, where nothing more is found, and Err says what it was.
type Scanner struct {
	Data  []byte
	Pos   int
	depth int
	ended bool // by End: what is missing then is no mistake
	err   error
}

// Err returns the first mistake in what was read, nil for none.
func (s *Scanner) Err() error { return s.err }

// Fail notes that something else was expected at this place, and goes to the end. It returns false.
func (s *Scanner) Fail(want string) bool {
	if s.err == nil && !s.ended {
		s.err = fmt.Errorf("expected %s at offset %d", want, s.Pos)
	}
	s.End()
	return false
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

// next returns the next byte, 0 at the end.
func (s *Scanner) next() byte {
	if s.Pos < len(s.Data) {
		return s.Data[s.Pos]
	}
	return 0
}

// Members reads the object that comes next, and skips any other value. It calls member before each value, with the name as it's
// between the quotes; member must read the value. It reports whether it was an object, and whole.
func (s *Scanner) Members(member func(name []byte)) bool { return s.each('{', '}', member, nil) }

// Elements reads the list that comes next, and skips any other value. It calls element before each element, which it must read. It
// reports whether it was a list, and whole.
func (s *Scanner) Elements(element func()) bool { return s.each('[', ']', nil, element) }

// each goes through what stands between brackets. What neither function is for is skipped, without a closure: those of a recursion would
// be on the heap.
func (s *Scanner) each(opens, closes byte, member func(name []byte), element func()) bool {
	if s.Peek() != opens {
		s.Skip()
		return false
	}
	if s.depth++; s.depth > MaxDepth {
		return s.Fail("less nesting")
	}
	s.Pos++
	if s.Peek() == closes {
		s.Pos++
		s.depth--
		return true
	}
	for {
		var name []byte
		if opens == '{' {
			if name = s.Quoted(); name == nil {
				return false
			}
			if s.Peek() != ':' {
				return s.Fail("':'")
			}
			s.Pos++
		}
		switch {
		case member != nil:
			member(name)
		case element != nil:
			element()
		default:
			s.Skip()
		}
		switch s.Peek() {
		case ',':
			s.Pos++
		case closes:
			s.Pos++
			s.depth--
			return true
		default:
			if closes == ']' {
				return s.Fail("',' or ']'")
			}
			return s.Fail("',' or '}'")
		}
	}
}

// AtEnd reports whether nothing but white space follows.
func (s *Scanner) AtEnd() bool { return s.Peek() == 0 && s.Pos == len(s.Data) }

// End goes to the end of the document, so that nothing more is found.
func (s *Scanner) End() { s.Pos, s.ended = len(s.Data), true }

// Quoted reads a string, and returns what is between its quotes, with its escapes; nil if it's none, which is a mistake.
func (s *Scanner) Quoted() []byte {
	if s.Peek() != '"' {
		s.Fail("a string")
		return nil
	}
	from := s.Pos + 1
	for i := from + plain(s.Data[from:]); i < len(s.Data); i++ {
		switch c := s.Data[i]; {
		case c == '"':
			s.Pos = i + 1
			return s.Data[from:i]
		case c == '\\':
			s.Pos = i + 1
			if !s.escape() {
				return nil
			}
			i = s.Pos + plain(s.Data[s.Pos:]) - 1
		case c < ' ':
			s.Pos = i
			s.Fail("no control character")
			return nil
		}
	}
	s.Pos = len(s.Data)
	s.Fail("'\"'")
	return nil
}

// plain returns how many bytes at the beginning of a text are certainly neither quotes, backslashes nor control characters. It looks at eight at a time,
// and not at what is left at the end.
func plain(text []byte) (n int) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; n+8 <= len(text); n += 8 {
		word := binary.LittleEndian.Uint64(text[n:])
		quote, backslash := word^'"'*ones, word^'\\'*ones // their bytes are 0 where the text has one
		// A byte minus a larger one sets its top bit. It also borrows from the byte above it, whose bit may be set then without cause. So the lowest bit
		// that is set is right, which is the first byte's.
		found := ((quote-ones)&^quote | (backslash-ones)&^backslash | (word-' '*ones)&^word) & tops
		if found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	return n
}

// escape reads what follows a backslash.
func (s *Scanner) escape() bool {
	switch s.next() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.Pos++
		return true
	case 'u':
		s.Pos++
		for range 4 {
			c := s.next()
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return s.Fail("a hexadecimal digit")
			}
			s.Pos++
		}
		return true
	}
	return s.Fail("an escape")
}

// Text reads a value, and returns what is between its quotes; nil if it's no string.
func (s *Scanner) Text() []byte {
	if s.Peek() != '"' {
		s.Skip()
		return nil
	}
	return Unquote(s.Quoted())
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

// Skip skips a value, and returns its bytes; nil if there's none, or a mistake in it.
func (s *Scanner) Skip() []byte {
	first, from := s.Peek(), s.Pos
	valid := false
	switch {
	case first == '"':
		valid = s.Quoted() != nil
	case first == '{':
		valid = s.each('{', '}', nil, nil)
	case first == '[':
		valid = s.each('[', ']', nil, nil)
	case first == '-' || '0' <= first && first <= '9':
		valid = s.number()
	case first == 't':
		valid = s.literal("true")
	case first == 'f':
		valid = s.literal("false")
	case first == 'n':
		valid = s.literal("null")
	default:
		s.Fail("a value")
	}
	if !valid {
		return nil
	}
	return s.Data[from:s.Pos]
}

func (s *Scanner) number() bool {
	if s.next() == '-' {
		s.Pos++
	}
	if s.next() == '0' {
		s.Pos++
	} else if !s.digits() {
		return false
	}
	if s.next() == '.' {
		if s.Pos++; !s.digits() {
			return false
		}
	}
	if c := s.next(); c == 'e' || c == 'E' {
		s.Pos++
		if c := s.next(); c == '+' || c == '-' {
			s.Pos++
		}
		return s.digits()
	}
	return true
}

func (s *Scanner) digits() bool {
	from := s.Pos
	for c := s.next(); '0' <= c && c <= '9'; c = s.next() {
		s.Pos++
	}
	return s.Pos > from || s.Fail("a digit")
}

func (s *Scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.Data[s.Pos:], []byte(word)) {
		return s.Fail(word)
	}
	s.Pos += len(word)
	return true
}
