package selectors

import (
	"slices"
	"strings"
)

// ParseLabels parses a label selector, in the syntax that the package comment shows. The empty string
// is the selector of everything. Any error is a *ParseError.
func ParseLabels(s string) (LabelSelector, error) {
	p := labelParser{input: s}
	p.advance()
	if p.token.kind == end {
		return LabelSelector{}, nil
	}
	var requirements []requirement
	for {
		r, err := p.requirement()
		if err != nil {
			return LabelSelector{}, err
		}
		requirements = append(requirements, r)
		if p.token.kind == end {
			return newLabelSelector(requirements), nil
		}
		if !p.token.is(",") {
			return LabelSelector{}, p.expected("',' or the end of the selector")
		}
		p.advance()
	}
}

// token is what the syntax is made of. `in` and `notin` are words: only their place makes them operators.
type token struct {
	kind tokenKind
	text string
	pos  int // byte offset
}

type tokenKind uint8

const (
	end    tokenKind = iota
	word             // a key, a value, in, notin
	symbol           // one of = == != > < ! ( ) ,
)

func (t token) is(sign string) bool { return t.kind == symbol && t.text == sign }

// labelParser goes through the input once, from left to right, with one token of lookahead.
type labelParser struct {
	input string
	pos   int   // after token
	token token // the next one, not consumed
}

// advance consumes the token and reads the one after it. The end is never passed.
func (p *labelParser) advance() {
	for p.pos < len(p.input) && isSpace(p.input[p.pos]) {
		p.pos++
	}
	start := p.pos
	if start == len(p.input) || p.input[start] == 0 {
		p.token = token{kind: end, pos: start}
		return
	}
	kind := word
	if isSymbol(p.input[start]) {
		kind = symbol
		p.pos++
		if c := p.input[start]; (c == '=' || c == '!') && strings.HasPrefix(p.input[p.pos:], "=") {
			p.pos++
		}
	} else {
		for p.pos < len(p.input) && isWord(p.input[p.pos]) {
			p.pos++
		}
	}
	p.token = token{kind, p.input[start:p.pos], start}
	if p.pos < len(p.input) && p.input[p.pos] == 0 {
		p.pos++ // apimachinery's lexer takes a NUL for the token's end, and consumes it
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func isSymbol(c byte) bool { return strings.IndexByte("=!(),><", c) >= 0 }

func isWord(c byte) bool { return c != 0 && !isSpace(c) && !isSymbol(c) }

// expected returns the error for a token that isn't allowed here.
func (p *labelParser) expected(what string) error {
	found := quote(p.token.text)
	if p.token.kind == end {
		found = "the end"
	}
	return labelError(p.input, p.token.pos, "found %s at position %d, expected %s", found, p.token.pos, what)
}

// requirement consumes one requirement, up to the comma or the end after it.
func (p *labelParser) requirement() (requirement, error) {
	negated := p.token.is("!")
	what := "a label key or '!'"
	if negated {
		p.advance()
		what = "a label key"
	}
	if p.token.kind != word {
		return requirement{}, p.expected(what)
	}
	r := requirement{key: p.token.text}
	if problem := keyProblem(r.key); problem != "" {
		return r, p.invalid("label key", problem)
	}
	p.advance()
	if negated {
		r.op = absent
		return r, nil
	}
	if p.token.kind == end || p.token.is(",") {
		r.op = exists
		return r, nil
	}
	err := p.condition(&r)
	return r, err
}

// condition consumes what comes after a key: an operator with its value or values.
func (p *labelParser) condition(r *requirement) (err error) {
	switch p.token.text { // of a word or a symbol; no text is both
	case "=", "==":
		r.op = in
		r.values, err = p.oneValue()
	case "!=":
		r.op = notIn
		r.values, err = p.oneValue()
	case "in":
		r.op = in
		r.values, err = p.valueList()
	case "notin":
		r.op = notIn
		r.values, err = p.valueList()
	case ">":
		r.op = greater
		r.bound, err = p.integer()
	case "<":
		r.op = less
		r.bound, err = p.integer()
	default:
		return p.expected("one of: =, ==, !=, in, notin, >, <, ',' or the end of the selector")
	}
	return err
}

// oneValue consumes an operator and the value after it; no value is the empty value.
func (p *labelParser) oneValue() ([]string, error) {
	p.advance()
	if p.token.kind == end || p.token.is(",") {
		return []string{""}, nil
	}
	value, err := p.value("a label value")
	return []string{value}, err
}

// value consumes a valid label value.
func (p *labelParser) value(what string) (string, error) {
	if p.token.kind != word {
		return "", p.expected(what)
	}
	value := p.token.text
	if problem := valueProblem(value); problem != "" {
		return "", p.invalid("label value", problem)
	}
	p.advance()
	return value, nil
}

// integer consumes `>` or `<` and the number after it. It's a label value too, and these can't begin
// with a sign.
func (p *labelParser) integer() (int64, error) {
	p.advance()
	n, ok := parseInteger(p.token.text)
	if !ok || valueProblem(p.token.text) != "" {
		return 0, p.expected("a non-negative integer below 2^63")
	}
	p.advance()
	return n, nil
}

// valueList consumes `in` or `notin` and a list in parentheses. An empty place in it is the empty value.
func (p *labelParser) valueList() ([]string, error) {
	p.advance()
	if !p.token.is("(") {
		return nil, p.expected("'('")
	}
	p.advance()
	var values []string
	for {
		value := ""
		if !p.token.is(",") && !p.token.is(")") {
			var err error
			if value, err = p.value("a label value, ',' or ')'"); err != nil {
				return nil, err
			}
		}
		values = append(values, value)
		closed := p.token.is(")")
		if !closed && !p.token.is(",") {
			return nil, p.expected("',' or ')'")
		}
		p.advance()
		if closed {
			slices.Sort(values)
			return slices.Compact(values), nil
		}
	}
}

// invalid returns the error for a word that isn't a valid key or value.
func (p *labelParser) invalid(noun, problem string) error {
	return labelError(p.input, p.token.pos, "%s %s at position %d is not valid: %s",
		noun, quote(p.token.text), p.token.pos, problem)
}
