package selectors

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Bounds of what is asked by field. Beyond them it's refused, because each may cost something with each object.
const (
	// MaxExpression is how many bytes an expression or a list of paths may have.
	MaxExpression = 16 << 10
	// MaxComparisons is how many comparisons an expression may have in all: their outcomes fit into a word.
	MaxComparisons = 64
	// MaxValues is how many values a comparison with `in` or `notin` may have.
	MaxValues = 1024
	// MaxPaths is how many paths a projection may have.
	MaxPaths = 64
	// MaxSteps is how many steps a path may have: objects that people write are less deep.
	MaxSteps = 32
)

// IsLite tells whether a request asks for what this server has besides Kubernetes' own API: its parameter lite is true. No client asks for that by
// accident.
func IsLite(query url.Values) bool { return query.Get("lite") == "true" }

// Path leads from an object to a field of it, and by Elements to the fields of all elements of a list.
type Path []Step

// Step is the name of a member, or all elements of a list.
type Step struct {
	Name     string
	Elements bool
}

// String returns the path as ParsePaths reads it: "spec.ports[*].port", "metadata.annotations['a.b/c']".
func (p Path) String() string {
	var b strings.Builder
	for i, step := range p {
		switch {
		case step.Elements:
			b.WriteString("[*]")
		case i == 0 || !slices.ContainsFunc([]byte(step.Name), func(c byte) bool { return !isNameByte(c) }) && step.Name != "":
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step.Name)
		default:
			b.WriteString("['" + quoteEscaper.Replace(step.Name) + "']")
		}
	}
	return b.String()
}

// quoteEscaper puts the backslashes in that quoted text has.
var quoteEscaper = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

// isNameByte tells whether a byte may be in a name that has no brackets. Others than ASCII may.
func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '$' || c == '/' || c >= 0x80
}

// ParsePaths parses a list of paths with commas between them, such as "metadata.name,spec.ports[*].port". Repeated paths come once. The error
// is a *ParseError: the text has no path, or something else, or is over a bound.
func ParsePaths(s string) ([]Path, error) {
	p := parser{input: s, what: "fields"}
	if err := p.checkLength(); err != nil {
		return nil, err
	}
	var paths []Path
	for {
		p.space()
		path, err := p.path()
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(paths, func(other Path) bool { return slices.Equal(other, path) }) {
			paths = append(paths, path)
		}
		if len(paths) > MaxPaths {
			return nil, p.tooMany("paths", MaxPaths)
		}
		p.space()
		if p.pos == len(s) {
			return paths, nil
		}
		if !p.take(",") {
			return nil, p.expected("',', or the end")
		}
	}
}

// SortKey is by what a list is sorted.
type SortKey struct {
	Path       Path
	Descending bool
}

// ParseSortKey parses a path by which a list is sorted, with a '-' before it for the largest first. The error is a *ParseError.
func ParseSortKey(s string) (k SortKey, err error) {
	p := parser{input: s, what: "sortBy"}
	if err := p.checkLength(); err != nil {
		return k, err
	}
	p.space()
	k.Descending = p.take("-")
	p.space()
	if k.Path, err = p.path(); err != nil {
		return k, err
	}
	if p.space(); p.pos < len(s) {
		return k, p.expected("the end: a list is sorted by one field")
	}
	return k, nil
}

// String returns the canonical form.
func (k SortKey) String() string {
	switch path := k.Path.String(); {
	case k.Descending:
		return "-" + path
	case strings.HasPrefix(path, "-"): // it's of the name
		return "." + path
	default:
		return path
	}
}

// parser reads what is asked by field. Positions are offsets of the input.
type parser struct {
	input string
	what  string // is parsed, for messages
	pos   int
}

// checkLength refuses input that is too long to be looked at.
func (p *parser) checkLength() error {
	if len(p.input) > MaxExpression {
		p.pos = MaxExpression
		return p.fail(p.pos, "found more than %d bytes at position %d, which is as many as it may have", MaxExpression, p.pos)
	}
	return nil
}

func (p *parser) tooMany(of string, most int) error {
	return p.fail(p.pos, "found more than %d %s at position %d, which is as many as it may have", most, of, p.pos)
}

func (p *parser) fail(pos int, format string, args ...any) error {
	return &ParseError{Input: p.input, Pos: pos, Msg: "unable to parse " + p.what + ": " + fmt.Sprintf(format, args...)}
}

// expected is the error of something else than what belongs at the position.
func (p *parser) expected(what string) error {
	found := "the end"
	if rest := p.input[p.pos:]; rest != "" {
		end := 1
		for end < len(rest) && isNameByte(rest[0]) && isNameByte(rest[end]) {
			end++
		}
		found = quote(rest[:end])
	}
	return p.fail(p.pos, "found %s at position %d, expected %s", found, p.pos, what)
}

func (p *parser) space() {
	for p.pos < len(p.input) && strings.IndexByte(" \t\r\n", p.input[p.pos]) >= 0 {
		p.pos++
	}
}

// take goes past a text, if that is what comes.
func (p *parser) take(text string) bool {
	if !strings.HasPrefix(p.input[p.pos:], text) {
		return false
	}
	p.pos += len(text)
	return true
}

// path reads a path, to the first byte that can't be of it.
func (p *parser) path() (path Path, err error) {
	p.take(".")
	for first := true; ; first = false {
		step := Step{}
		switch {
		case !first && p.take("[*]"):
			step.Elements = true
		case !first && p.take("["):
			if step.Name, err = p.bracketed(); err != nil {
				return nil, err
			}
		case first || p.take("."):
			if step.Name = p.name(); step.Name == "" {
				return nil, p.expected("the name of a field, such as spec.size; what isn't letters, digits, '-', '_', '$' or '/' goes into ['...']")
			}
		default:
			return path, nil
		}
		if path = append(path, step); len(path) > MaxSteps {
			return nil, p.tooMany("steps of a path", MaxSteps)
		}
	}
}

// name reads a name without brackets; "" if there's none.
func (p *parser) name() string {
	start := p.pos
	for p.pos < len(p.input) && isNameByte(p.input[p.pos]) {
		p.pos++
	}
	return p.input[start:p.pos]
}

// bracketed reads what follows the opening bracket of a name.
func (p *parser) bracketed() (string, error) {
	if p.pos == len(p.input) || p.input[p.pos] != '\'' && p.input[p.pos] != '"' {
		return "", p.expected("'*' for all elements of a list, or the name of a field in quotes")
	}
	name, err := p.quoted()
	if err == nil && !p.take("]") {
		err = p.expected("']'")
	}
	return name, err
}

// quoted reads a text in quotes of either sort.
func (p *parser) quoted() (string, error) {
	mark := p.input[p.pos]
	p.pos++
	var b strings.Builder
	for p.pos < len(p.input) {
		switch c := p.input[p.pos]; c {
		case mark:
			p.pos++
			return b.String(), nil
		case '\\':
			if err := p.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			p.pos++
		}
	}
	return "", p.expected("the closing " + string(mark))
}

// specials end a value that has no quotes, or belong to what follows. A backslash before one of them makes it a part of the value.
const specials = `\,=|&()'" !<>^`

// escape reads a backslash and what it stands before.
func (p *parser) escape(b *strings.Builder) error {
	if p.pos++; p.pos == len(p.input) || strings.IndexByte(specials, p.input[p.pos]) < 0 {
		return p.expected(`after a backslash one of: ` + specials)
	}
	b.WriteByte(p.input[p.pos])
	p.pos++
	return nil
}
