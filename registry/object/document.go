package object

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// Document is a JSON document, parsed once.
type Document struct {
	Text []byte
	Tree any // the last of several members with one name counts

	repeats         bool // a member may be given twice
	members, levels int  // see Size; 0 before it's measured
}

// Parse parses one JSON document. It refuses what comes after it, invalid UTF-8, and nesting deeper than
// encoding/json's bound of 10,000 levels. Integers stay int64 where they fit, and names keep their case. The
// Document keeps the text, which nobody may change any more. The error completes "the body of the request …".
func Parse(text []byte) (Document, error) {
	if err := checkText(text); err != nil {
		return Document{}, err
	}
	tree, repeats, err := jsontree.Decode(text)
	switch {
	case errors.Is(err, jsontree.ErrTooDeep):
		return Document{}, err
	case err != nil:
		return Document{}, Undecodable(err)
	}
	return Document{Text: text, Tree: tree, repeats: repeats}, nil
}

// ParseObject is Parse for a document that must be a JSON object, which it returns as well: it's the Document's tree. Errors
// are Parse's, or say what the document is instead.
func ParseObject(text []byte) (Document, map[string]any, error) {
	d, err := Parse(text)
	if err != nil {
		return Document{}, nil, err
	}
	switch tree := d.Tree.(type) {
	case map[string]any:
		return d, tree, nil
	case nil:
		return Document{}, nil, errors.New("must be a JSON object, not null")
	}
	var tree map[string]any
	return Document{}, nil, Decode(text, &tree) // which says what it is instead
}

// ParseTree is ParseObject where only the tree matters.
func ParseTree(text []byte) (map[string]any, error) {
	_, tree, err := ParseObject(text)
	return tree, err
}

// Decode decodes one JSON document into a Go value, and refuses what Parse refuses. It doesn't keep the text. Its
// errors are in the form of Parse's.
func Decode(text []byte, into any) error {
	if err := checkText(text); err != nil {
		return err
	}
	return Undecodable(kjson.UnmarshalCaseSensitivePreserveInts(text, into))
}

// DecodeError is the error of a decoder.
type DecodeError struct {
	Cause string // what the decoder said, shortened
}

func (d *DecodeError) Error() string { return "can't be decoded: " + d.Cause }

// Undecodable is a decoder's error as a DecodeError; nil for none.
func Undecodable(err error) error {
	if err == nil {
		return nil
	}
	return &DecodeError{clip.Text(err.Error())}
}

func checkText(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return errors.New("is empty: send a JSON or YAML document")
	}
	if !utf8.Valid(text) {
		return fmt.Errorf("is not valid UTF-8 (byte %d)", invalidAt(text))
	}
	return nil
}

// invalidAt returns where the first byte is that isn't UTF-8.
func invalidAt(b []byte) int {
	at := 0
	for {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// MaxComplaintWork bounds what looking for wrong members may cost: complaints times levels of nesting; about a tenth
// of a second. The strict decoder builds the whole path of each member that it complains of, before it drops all but
// the first hundred: three megabytes of duplicates, nested deeply, keep it busy for minutes. So it's only asked when
// there is something to find, and not about such documents.
const MaxComplaintWork = 2 << 20

var errManyRepeated = errors.New("so many fields are given twice that they aren't listed")

// Repeated returns complaints about the members that are given twice. There are none exactly if the tree has as many
// members as the text.
func (d *Document) Repeated() []error {
	if !d.repeats {
		return nil
	}
	members, levels := d.Size()
	more := members - countMembers(d.Tree)
	if more == 0 {
		return nil
	}
	if more*levels > MaxComplaintWork {
		return []error{errManyRepeated}
	}
	var again any
	complaints, err := kjson.UnmarshalStrict(d.Text, &again, kjson.DisallowDuplicateFields)
	if err != nil { // it was decoded before
		return []error{err}
	}
	return complaints
}

// Size counts the members of all objects in the text, and its levels of nesting.
func (d *Document) Size() (members, levels int) {
	if d.levels == 0 {
		d.members, d.levels = measure(d.Text)
	}
	return d.members, d.levels
}

// measure is Size of a valid JSON text.
func measure(text []byte) (members, levels int) {
	level := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case ':':
			members++
		case '{', '[':
			level++
			levels = max(levels, level)
		case '}', ']':
			level--
		}
	}
	return members, levels
}

// CountValues returns about how many values a JSON text has: members of objects, elements of lists, and one for each empty
// object or list. Up to enough it may count what is in strings, too, which is quicker. The text need not be valid.
func CountValues(text []byte, enough int) int {
	n := bytes.Count(text, []byte{','}) + bytes.Count(text, []byte{'{'}) + bytes.Count(text, []byte{'['})
	if n <= enough {
		return n
	}
	n = 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case ',', '{', '[':
			n++
		}
	}
	return n
}

// Widest returns how many elements the longest list of a tree has.
func Widest(v any) (n int) {
	if list, ok := v.([]any); ok {
		n = len(list)
	}
	for child := range jsontree.Children(v) {
		n = max(n, Widest(child))
	}
	return n
}

func countMembers(v any) int {
	n := len(Map(v))
	for child := range jsontree.Children(v) {
		n += countMembers(child)
	}
	return n
}
