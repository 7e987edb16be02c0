package jsontree

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

// maxDepth is how deep a document may nest, as encoding/json has it.
const maxDepth = 10_000

// ErrTooDeep is returned for a document that nests deeper than that.
var ErrTooDeep = fmt.Errorf("nests deeper than %d levels", maxDepth)

// Decode decodes one JSON document, which must be valid UTF-8. Of members of one object with the same name the
// last counts; repeated tells that there are some, or that it's unknown. Errors are ErrTooDeep and
// those of sigs.k8s.io/json. The tree's strings keep a copy of the document alive.
func Decode(data []byte) (tree any, repeated bool, err error) { return DecodeWithout(data) }

// Raw is the JSON of a part of a tree that nobody has decoded. Decode makes no such parts.
type Raw string

// MarshalJSON returns the JSON.
func (r Raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// Whole returns a tree with its Raw parts decoded. It shares the rest with the tree that it's given, which stays as it is.
func Whole(tree any) (any, error) {
	whole, _, err := expand(tree)
	return whole, err
}

func expand(tree any) (whole any, changed bool, err error) {
	switch v := tree.(type) {
	case Raw:
		whole, _, err = Decode([]byte(v))
		return whole, true, err
	case map[string]any:
		all := v
		for name, member := range v {
			is, differs, err := expand(member)
			if err != nil {
				return nil, false, err
			}
			if differs {
				if !changed {
					all, changed = maps.Clone(v), true
				}
				all[name] = is
			}
		}
		return all, changed, nil
	case []any:
		all := v
		for i, element := range v {
			is, differs, err := expand(element)
			if err != nil {
				return nil, false, err
			}
			if differs {
				if !changed {
					all, changed = slices.Clone(v), true
				}
				all[i] = is
			}
		}
		return all, changed, nil
	}
	return tree, false, nil
}

// EachElement in a path of DecodeKeeping stands for all elements of a list.
const EachElement = ""

// DecodeWithout is Decode without the member at the end of a path of names, which isn't looked at: the document must be valid.
func DecodeWithout(data []byte, path ...string) (tree any, repeated bool, err error) {
	return decode(parser{text: string(data), path: path}, data)
}

// DecodeKeeping is Decode of a document with the members at the end of a path of names as Raw: the document must be valid.
func DecodeKeeping(data []byte, path ...string) (tree any, repeated bool, err error) {
	return decode(parser{text: string(data), path: path, keep: true}, data)
}

func decode(p parser, data []byte) (tree any, repeated bool, err error) {
	p.space()
	tree, ok := p.value(0)
	if p.space(); ok && p.at == len(p.text) {
		return tree, p.repeated, nil
	}
	if p.tooDeep {
		return nil, false, ErrTooDeep
	}
	err = kjson.UnmarshalCaseSensitivePreserveInts(data, &tree)
	return tree, true, err
}

// parser reads what is valid. At anything else it gives up.
type parser struct {
	text     string
	at       int
	repeated bool
	tooDeep  bool
	path     []string // to what is left out, or kept as it is
	keep     bool
	along    int // how many names of the path lead to where the parser is
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// take moves past the next byte if it's c.
func (p *parser) take(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) word(w string) bool {
	ok := strings.HasPrefix(p.text[p.at:], w)
	p.at += len(w)
	return ok
}

func (p *parser) value(depth int) (v any, ok bool) {
	if p.at == len(p.text) {
		return nil, false
	}
	switch p.text[p.at] {
	case '{':
		return p.object(depth + 1)
	case '[':
		return p.array(depth + 1)
	case '"':
		return p.string()
	case 't':
		return true, p.word("true")
	case 'f':
		return false, p.word("false")
	case 'n':
		return nil, p.word("null")
	}
	return p.number()
}

func (p *parser) object(depth int) (any, bool) {
	if p.tooDeep = depth > maxDepth; p.tooDeep {
		return nil, false
	}
	p.at++
	m := map[string]any{}
	if p.space(); p.take('}') {
		return m, true
	}
	for n := 1; ; n++ {
		name, ok := p.string()
		if !ok {
			return nil, false
		}
		if p.space(); !p.take(':') {
			return nil, false
		}
		p.space()
		onPath := p.leads(depth, name)
		if onPath && depth == len(p.path) {
			if raw := p.skip(); p.keep {
				m[name] = raw
			} else {
				n--
			}
		} else {
			if onPath {
				p.along++
			}
			v, ok := p.value(depth)
			if !ok {
				return nil, false
			}
			m[name] = v
			if onPath {
				p.along--
			}
		}
		p.space()
		switch {
		case p.take(','):
			p.space()
		case p.take('}'):
			p.repeated = p.repeated || len(m) != n
			return m, true
		default:
			return nil, false
		}
	}
}

// leads tells whether a name at a depth is the path's next one.
func (p *parser) leads(depth int, name string) bool {
	return p.along == depth-1 && depth <= len(p.path) && p.path[depth-1] == name
}

// skip moves past a value, and returns its text.
func (p *parser) skip() Raw {
	start := p.at
	for level := 0; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '"':
			for p.at++; p.at < len(p.text) && p.text[p.at] != '"'; p.at++ {
				if p.text[p.at] == '\\' {
					p.at++
				}
			}
		case '{', '[':
			level++
		case '}', ']':
			if level--; level < 0 {
				return Raw(strings.TrimSpace(p.text[start:p.at]))
			}
		case ',':
			if level == 0 {
				return Raw(strings.TrimSpace(p.text[start:p.at]))
			}
		}
	}
	return "" // the document ends in it
}

func (p *parser) array(depth int) (any, bool) {
	if p.tooDeep = depth > maxDepth; p.tooDeep {
		return nil, false
	}
	p.at++
	list := []any{}
	if p.space(); p.take(']') {
		return list, true
	}
	if p.leads(depth, EachElement) {
		p.along++
		defer func() { p.along-- }()
	}
	for {
		v, ok := p.value(depth)
		if !ok {
			return nil, false
		}
		list = append(list, v)
		p.space()
		switch {
		case p.take(','):
			p.space()
		case p.take(']'):
			return list, true
		default:
			return nil, false
		}
	}
}

func (p *parser) string() (string, bool) {
	if !p.take('"') {
		return "", false
	}
	start := p.at
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return p.text[start : p.at-1], true
		case c == '\\':
			return p.escaped(start)
		case c < ' ':
			return "", false
		}
		p.at++
	}
	return "", false
}

// escapes are what the letters stand for that follow a backslash; none for a character's number.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escaped reads on in a string that has escapes, as many in managedFields have.
func (p *parser) escaped(start int) (string, bool) {
	var room [64]byte
	made := append(room[:0], p.text[start:p.at]...)
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return string(made), true
		case c == '\\':
			if p.at++; p.at == len(p.text) || escapes[p.text[p.at]] == 0 {
				p.at--
				return p.numbered(start)
			}
			made = append(made, escapes[p.text[p.at]])
		case c < ' ':
			return "", false
		default:
			made = append(made, c)
		}
		p.at++
	}
	return "", false
}

// numbered reads on in a string that has characters by their numbers.
func (p *parser) numbered(start int) (string, bool) {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case '"':
			p.at++
			var s string
			err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(p.text[start-1:p.at]), &s)
			return s, err == nil && utf8.ValidString(s)
		case '\\':
			p.at++
		}
		p.at++
	}
	return "", false
}

func (p *parser) digits() bool {
	start := p.at
	for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
		p.at++
	}
	return p.at > start
}

func (p *parser) number() (any, bool) {
	start, whole := p.at, true
	p.take('-')
	if !p.take('0') && !p.digits() {
		return nil, false
	}
	if p.take('.') {
		if whole = false; !p.digits() {
			return nil, false
		}
	}
	if p.take('e') || p.take('E') {
		if whole = false; !p.take('+') {
			p.take('-')
		}
		if !p.digits() {
			return nil, false
		}
	}
	text := p.text[start:p.at]
	if whole {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, true
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil && !math.IsInf(f, 0)
}
