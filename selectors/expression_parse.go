package selectors

import "strings"

// ParseExpression parses a selector by any field, in the syntax that the package comment shows. The empty string selects everything. Any error
// is a *ParseError; also what is over a bound. Which fields there are, and of which types, Resolve asks.
func ParseExpression(s string) (Expression, error) {
	p := parser{input: s, what: "field selector"}
	if err := p.checkLength(); err != nil {
		return Expression{}, err
	}
	var e Expression
	if p.space(); p.pos == len(s) {
		return e, nil
	}
	for left := MaxComparisons; ; {
		alternative, err := p.alternative(&left)
		if err != nil {
			return Expression{}, err
		}
		e.any = append(e.any, alternative)
		if p.pos == len(s) {
			return e, nil
		}
		if !p.take("||") {
			return Expression{}, p.expected("',' or '||' or the end; a value with such signs goes into quotes")
		}
	}
}

// alternative reads comparisons with commas between them. left is how many there may still be. Empty ones are skipped, as in a field selector, but
// one must be there.
func (p *parser) alternative(left *int) (all []Comparison, err error) {
	for {
		if p.space(); p.take(",") {
			continue
		}
		if len(all) > 0 && (p.pos == len(p.input) || p.input[p.pos] == '|') { // after a comma
			return all, nil
		}
		c, err := p.comparison()
		if err != nil {
			return nil, err
		}
		if *left--; *left < 0 {
			return nil, p.tooMany("comparisons", MaxComparisons)
		}
		all = append(all, c)
		if p.space(); !p.take(",") {
			return all, nil
		}
	}
}

// comparison reads one comparison.
func (p *parser) comparison() (c Comparison, err error) {
	c.pos = p.pos
	if p.take("!") {
		c.Not = true
		p.space()
	}
	if c.Path, err = p.path(); err != nil {
		return c, err
	}
	end := p.pos
	if p.space(); c.Not { // `!` and a path are all of it
		return c, nil
	}
	list := false
	switch {
	case p.take("=="), p.take("="):
		c.Op = In
	case p.take("!="):
		c.Op, c.Not = In, true
	case p.take("^="):
		c.Op = Prefix
	case p.take(">="):
		c.Op = GreaterOrEqual
	case p.take("<="):
		c.Op = LessOrEqual
	case p.take(">"):
		c.Op = Greater
	case p.take("<"):
		c.Op = Less
	case p.pos > end && p.word("in"):
		c.Op, list = In, true
	case p.pos > end && p.word("notin"):
		c.Op, c.Not, list = In, true, true
	default:
		if p.pos < len(p.input) && p.input[p.pos] != ',' && p.input[p.pos] != '|' {
			return c, p.expected("an operator (=, ==, !=, >, >=, <, <=, ^=, in, notin), ',' or '||' or the end")
		}
		return c, nil // the field is there
	}
	if list {
		return c, p.list(&c)
	}
	v, err := p.value()
	c.values = []operand{v}
	return c, err
}

// word goes past a word that a list follows.
func (p *parser) word(text string) bool {
	start := p.pos
	if p.take(text) && (p.pos == len(p.input) || !isNameByte(p.input[p.pos])) {
		return true
	}
	p.pos = start
	return false
}

// list reads values in parentheses.
func (p *parser) list(c *Comparison) error {
	if p.space(); !p.take("(") {
		return p.expected("'(' and a list of values")
	}
	for {
		v, err := p.value()
		if err != nil {
			return err
		}
		if c.values = append(c.values, v); len(c.values) > MaxValues {
			return p.tooMany("values", MaxValues)
		}
		if p.space(); p.take(")") {
			return nil
		}
		if !p.take(",") {
			return p.expected("',' or ')'")
		}
	}
}

// value reads a value: in quotes, or up to what can't be of it. White space around it doesn't count.
func (p *parser) value() (v operand, err error) {
	p.space()
	v.pos = p.pos
	if p.pos < len(p.input) && (p.input[p.pos] == '\'' || p.input[p.pos] == '"') {
		v.text, err = p.quoted()
		return v, err
	}
	var b strings.Builder
	for p.pos < len(p.input) {
		c := p.input[p.pos]
		if c == '\\' {
			if err := p.escape(&b); err != nil {
				return v, err
			}
			continue
		}
		if strings.IndexByte(specials+"\t\r\n", c) >= 0 {
			break
		}
		b.WriteByte(c)
		p.pos++
	}
	v.text = b.String()
	return v, nil
}
