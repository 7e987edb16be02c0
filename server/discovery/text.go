package discovery

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// text is JSON that is being written. Who writes an object gives its members in the order of their names, as encoding/json does, so that
// equal documents have equal bytes. Commas come by themselves.
type text []byte

// part is a value of a document that is made when it's written. A document of thousands of definitions has more of them than should be in
// memory at once.
type part interface{ write(to *text) error }

func (t *text) open(bracket byte)  { t.separate(); *t = append(*t, bracket) }
func (t *text) close(bracket byte) { *t = append(*t, bracket) }

// separate puts a comma after a value.
func (t *text) separate() {
	if n := len(*t); n > 0 && strings.IndexByte("{[:", (*t)[n-1]) < 0 {
		*t = append(*t, ',')
	}
}

func (t *text) string(s string) {
	t.separate()
	*t = jsontree.AppendString(*t, s)
}

func (t *text) strings(list ...string) {
	t.open('[')
	for _, s := range list {
		t.string(s)
	}
	t.close(']')
}

// name begins a member.
func (t *text) name(name string) {
	t.string(name)
	*t = append(*t, ':')
}

// raw writes a value that is JSON already, in encoding/json's form.
func (t *text) raw(value string) {
	t.separate()
	*t = append(*t, value...)
}

func (t *text) member(name, value string) {
	t.name(name)
	t.string(value)
}

// reference writes an object that refers to a schema.
func (t *text) reference(prefix, schema string) {
	t.open('{')
	t.member("$ref", prefix+schema)
	t.close('}')
}

// any writes what documents consist of: objects, parts, what Kubernetes publishes, and anything else as encoding/json does.
func (t *text) any(v any) error {
	switch v := v.(type) {
	case object:
		t.open('{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			t.name(name)
			if err := t.any(v[name]); err != nil {
				return err
			}
		}
		t.close('}')
		return nil
	case part:
		return v.write(t)
	case json.RawMessage:
		t.raw(string(v))
		return nil
	}
	body, err := json.Marshal(v)
	t.raw(string(body))
	return err
}

// block is how much is written at once.
const block = 64 << 10

// stream writes a document as it's made.
type stream struct {
	to io.Writer
	text
}

// members writes the members of an object, of which others may have been written before.
func (s *stream) members(all object) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s.name(name)
		if err := s.any(all[name]); err != nil {
			return err
		}
		if err := s.flush(block); err != nil {
			return err
		}
	}
	return nil
}

// flush gives on what there is if it's as much as that. One byte is kept, which says whether a comma has to follow.
func (s *stream) flush(least int) error {
	n := len(s.text) - 1
	if n < least {
		return nil
	}
	_, err := s.to.Write(s.text[:n])
	s.text = append(s.text[:0], s.text[n])
	return err
}

// end gives on all that is left.
func (s *stream) end() error {
	_, err := s.to.Write(s.text)
	return err
}
