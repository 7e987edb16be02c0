// Package markup is how documents look as text: JSON that is laid out for people, and YAML, of which what is dangerous is refused.
package markup

import (
	"bytes"
	"io"
)

// maxIndent is how many levels are indented; deeper ones stay there. Without it a document that is mostly
// brackets would grow by its depth when it's indented.
const maxIndent = 40

var indentation = func() (text [1 + 2*maxIndent]byte) {
	for i := range text {
		text[i] = ' '
	}
	text[0] = '\n'
	return
}()

// Indenter lays out the JSON document that is written to it, as json.Indent with two spaces does, and
// keeps nothing of it. It expects valid JSON. It has no newline at its end, as with kube-apiserver.
type Indenter struct {
	w   io.Writer
	out []byte

	depth             int
	inString, escaped bool
	opened            bool // the last character was a bracket that may be closed at once
}

// NewIndenter returns one that writes to w.
func NewIndenter(w io.Writer) *Indenter { return &Indenter{w: w} }

// Indented returns a whole document.
func Indented(doc []byte) []byte {
	var out bytes.Buffer
	NewIndenter(&out).Write(doc) // a buffer takes all
	return out.Bytes()
}

// Write takes a piece of the document, cut anywhere.
func (in *Indenter) Write(p []byte) (int, error) {
	in.out = in.out[:0]
	for _, c := range p {
		if in.inString {
			in.out = append(in.out, c)
			switch {
			case in.escaped:
				in.escaped = false
			case c == '\\':
				in.escaped = true
			case c == '"':
				in.inString = false
			}
			continue
		}
		in.structure(c)
	}
	if _, err := in.w.Write(in.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (in *Indenter) structure(c byte) {
	if c == ' ' || c == '\n' || c == '\r' || c == '\t' {
		return
	}
	closes := c == '}' || c == ']'
	if in.opened && !closes {
		in.depth++
		in.newline()
	}
	if closes && !in.opened {
		in.depth--
		in.newline()
	}
	in.opened = c == '{' || c == '['
	in.inString = c == '"'
	in.out = append(in.out, c)
	switch c {
	case ',':
		in.newline()
	case ':':
		in.out = append(in.out, ' ')
	}
}

func (in *Indenter) newline() {
	levels := min(max(in.depth, 0), maxIndent)
	in.out = append(in.out, indentation[:1+2*levels]...)
}

// Extent is how deep a JSON document is, and about how long it gets with each element on a line of its
// own.
type Extent struct {
	Depth    int
	Indented int
}

// Measure looks at brackets and commas outside of strings. The document need not be valid.
func Measure(doc []byte) Extent {
	s := Extent{Indented: len(doc)}
	depth, inString, escaped := 0, false, false
	for _, c := range doc {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped = c == '\\'
			inString = c != '"'
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			depth++
			s.Depth = max(s.Depth, depth)
			s.Indented += 2 * depth
		case c == '}' || c == ']':
			depth--
		case c == ',':
			s.Indented += 2 * max(depth, 0)
		}
	}
	return s
}
