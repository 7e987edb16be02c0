package kube

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// offsets say where in the raw bytes the members are that a View replaces.
type offsets struct {
	apiVersion extent // between the quotes
	kind       extent // between the quotes
	metadata   extent // the whole value
	version    extent // of resourceVersion, between the quotes; or where the member is to be inserted
	insert     bool   // there is no resourceVersion: the whole member is inserted
	comma      bool   // and others follow it
	owned      bool   // there are ownerReferences
	ttl        bool   // there is the annotation TTLAnnotation
}

type extent struct{ from, to uint32 }

// maxDepth is how deeply stored JSON may nest: what encoding/json accepts.
const maxDepth = 10_000

// scanner reads stored bytes once. It checks that they are one JSON object, and notes what an Object needs of them.
// It's our own because every event passes through it, and every object at start: BenchmarkScan compares it
// with json-iterator's Iterator.
type scanner struct {
	data  []byte
	pos   int
	depth int
}

type syntaxError struct {
	at   int
	want string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("stored value isn't valid JSON: expected %s at offset %d", e.want, e.at)
}

func (s *scanner) fail(want string) error { return &syntaxError{s.pos, want} }

// maxStored bounds a stored value, in bytes: offsets into it are 32 bits wide.
const maxStored = 1 << 31

// scan fills in the object's attributes.
func (s *scanner) scan(o *Object) error {
	if len(s.data) > maxStored {
		return fmt.Errorf("stored value of %d bytes is too large", len(s.data))
	}
	var seen struct{ apiVersion, kind, metadata bool }
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "apiVersion":
			if seen.apiVersion {
				return fmt.Errorf("stored value has two members apiVersion")
			}
			seen.apiVersion = true
			o.offsets.apiVersion, err = s.stringExtent()
		case "kind":
			if seen.kind {
				return fmt.Errorf("stored value has two members kind")
			}
			seen.kind = true
			o.offsets.kind, err = s.stringExtent()
		case "metadata":
			if seen.metadata {
				return fmt.Errorf("stored value has two members metadata")
			}
			seen.metadata = true
			s.space()
			o.offsets.metadata.from = uint32(s.pos)
			err = s.metadata(o)
			o.offsets.metadata.to = uint32(s.pos)
		default:
			err = s.value()
		}
		return err
	})
	if err != nil {
		return err
	}
	if s.space(); s.pos != len(s.data) {
		return s.fail("the end")
	}
	if !seen.apiVersion || !seen.kind || !seen.metadata {
		return fmt.Errorf("stored value lacks apiVersion, kind or metadata")
	}
	if !utf8.Valid(s.data) {
		return fmt.Errorf("stored value isn't valid UTF-8")
	}
	return nil
}

func (s *scanner) metadata(o *Object) error {
	if s.peek() != '{' {
		return s.fail("an object as metadata")
	}
	goesIn, found, members := uint32(s.pos+1), false, 0
	err := s.object(func(key []byte) (err error) {
		members++
		switch string(key) {
		case "resourceVersion":
			found = true
			o.offsets.version, err = s.stringExtent()
		case "uid": // canonical bytes are sorted: resourceVersion goes just before it
			goesIn = s.keyAt(key)
			err = s.value()
		case "labels":
			o.Labels, err = s.labels()
		case "deletionTimestamp":
			if s.space(); s.peek() == '"' {
				o.DeletionTimestamp, err = s.text()
			} else {
				err = s.value()
			}
		case "ownerReferences":
			o.offsets.owned = true
			err = s.value()
		case "annotations":
			o.offsets.ttl, err = s.annotations()
		default:
			err = s.value()
		}
		return err
	})
	if !found {
		o.offsets.version = extent{goesIn, goesIn}
		o.offsets.insert, o.offsets.comma = true, members > 0
	}
	return err
}

// annotations skips the annotations, and tells whether TTLAnnotation is among them.
func (s *scanner) annotations() (ttl bool, err error) {
	if s.space(); s.peek() != '{' {
		return false, s.value()
	}
	err = s.object(func(key []byte) error {
		ttl = ttl || string(key) == TTLAnnotation
		return s.value()
	})
	return ttl, err
}

// keyAt is where the quoted key that object has just read begins.
func (s *scanner) keyAt(key []byte) uint32 {
	return uint32(cap(s.data)-cap(key)) - 1
}

func (s *scanner) labels() (selectors.Set, error) {
	if s.space(); s.peek() != '{' {
		return nil, s.value() // null, or something that no label selector can match
	}
	var few [2 * 8]string // most objects have at most eight labels, which need no allocation until the end
	set, sorted := few[:0], true
	err := s.object(func(key []byte) error {
		k := unquote(key)
		if s.space(); s.peek() != '"' {
			return s.value()
		}
		v, err := s.text()
		if n := len(set); n > 0 && set[n-2] >= k {
			sorted = false
		}
		set = append(set, k, v)
		return err
	})
	if !sorted {
		set = sortLabels(set)
	}
	return slices.Clone(selectors.Set(set)), err
}

// sortLabels sorts pairs by key. Of two pairs with one key the later one stays, as in encoding/json.
func sortLabels(set []string) []string {
	type pair struct{ k, v string }
	pairs := make([]pair, 0, len(set)/2)
	for i := 0; i < len(set); i += 2 {
		pairs = append(pairs, pair{set[i], set[i+1]})
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.k, b.k) })
	out := set[:0]
	for _, p := range pairs {
		if n := len(out); n > 0 && out[n-2] == p.k {
			out[n-1] = p.v
			continue
		}
		out = append(out, p.k, p.v)
	}
	return out
}

// object reads an object. It calls member before each value, with the raw bytes of the value's key; member must read
// the value.
func (s *scanner) object(member func(key []byte) error) error {
	if s.space(); s.peek() != '{' {
		return s.fail("an object")
	}
	if s.depth++; s.depth > maxDepth {
		return s.fail("less nesting")
	}
	s.pos++
	if s.space(); s.peek() == '}' {
		s.pos++
		s.depth--
		return nil
	}
	for {
		s.space()
		key, err := s.quoted()
		if err != nil {
			return err
		}
		if s.space(); s.peek() != ':' {
			return s.fail("':'")
		}
		s.pos++
		if err := member(key); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			s.depth--
			return nil
		default:
			return s.fail("',' or '}'")
		}
	}
}

// value skips one value.
func (s *scanner) value() error {
	s.space()
	switch c := s.peek(); {
	case c == '"':
		_, err := s.quoted()
		return err
	case c == '{':
		return s.object(func([]byte) error { return s.value() })
	case c == '[':
		return s.array()
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.fail("a value")
}

func (s *scanner) array() error {
	if s.depth++; s.depth > maxDepth {
		return s.fail("less nesting")
	}
	s.pos++
	if s.space(); s.peek() == ']' {
		s.pos++
		s.depth--
		return nil
	}
	for {
		if err := s.value(); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			s.depth--
			return nil
		default:
			return s.fail("',' or ']'")
		}
	}
}

// quoted reads a string and returns the bytes between its quotes, with its escapes.
func (s *scanner) quoted() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.fail("a string")
	}
	s.pos++
	start := s.pos
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.data[start : s.pos-1], nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, s.fail("no control character")
		default:
			s.pos++
		}
	}
	return nil, s.fail("'\"'")
}

func (s *scanner) escape() error {
	s.pos++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			c := s.peek()
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return s.fail("a hexadecimal digit")
			}
			s.pos++
		}
		return nil
	}
	return s.fail("an escape")
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return s.fail("a digit")
	}
	if s.peek() == '.' {
		if s.pos++; !s.digits() {
			return s.fail("a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return s.fail("a digit")
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) literal(word string) error {
	if end := s.pos + len(word); end <= len(s.data) && string(s.data[s.pos:end]) == word {
		s.pos = end
		return nil
	}
	return s.fail(word)
}

// text reads a string value; without escapes it shares the scanned bytes, which never change.
func (s *scanner) text() (string, error) {
	b, err := s.quoted()
	return unquote(b), err
}

func unquote(b []byte) string {
	b = jsonscan.Unquote(b)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (s *scanner) stringExtent() (extent, error) {
	s.space()
	start := s.pos + 1
	_, err := s.quoted()
	return extent{uint32(start), uint32(s.pos - 1)}, err
}

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}
