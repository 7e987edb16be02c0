package selectors

import (
	"cmp"
	"slices"
	"strings"
)

// Fields is what a field selector is matched against: an object whose selectable fields have names. It's an interface
// so that this package needs no object type: the server's is kube.Object.
type Fields interface {
	// Field returns the value of the field with this name as text, "" if the object doesn't have it.
	Field(name string) string
}

// FieldSelector says which values an object's fields must have or must not have. The zero value selects
// everything. It is immutable, safe for concurrent use, and cheap to copy.
type FieldSelector struct {
	terms []FieldTerm // sorted by compareTerms, each once
}

// FieldTerm is `Field=Value`, or `Field!=Value` if Not is set.
type FieldTerm struct {
	Field string
	Not   bool
	Value string
}

// ParseFields parses a field selector, in the syntax that the package comment shows. The empty string is
// the selector of everything. Any error is a *ParseError. Field names aren't looked at: see Names.
func ParseFields(s string) (FieldSelector, error) {
	p := fieldParser{input: s}
	var terms []FieldTerm
	for start := 0; start <= len(s); {
		text := s[start : start+termLength(s[start:])]
		if text != "" {
			t, err := p.term(start, start+len(text))
			if err != nil {
				return FieldSelector{}, err
			}
			if t.Field != "" || t.Value != "" { // else apimachinery drops it, even `!=`
				terms = append(terms, t)
			}
		}
		start += len(text) + len(",")
	}
	slices.SortFunc(terms, compareTerms)
	return FieldSelector{slices.Compact(terms)}, nil
}

// termLength returns how far it is to the first comma without a backslash, or to the end.
func termLength(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ',':
			return i
		}
	}
	return len(s)
}

// fieldParser parses the terms of a field selector. Positions are offsets of the input.
type fieldParser struct{ input string }

// term parses one term, which is from start to end. Nothing is escaped before the operator, so the first `=` or `!=` is
// the operator.
func (p fieldParser) term(start, end int) (FieldTerm, error) {
	text := p.input[start:end]
	before, value, found := strings.Cut(text, "=")
	if !found {
		return FieldTerm{}, fieldError(p.input, start,
			"found %s at position %d, expected field=value, field==value or field!=value", quote(text), start)
	}
	t := FieldTerm{Field: before}
	if strings.HasSuffix(before, "!") {
		t.Field, t.Not = strings.TrimSuffix(before, "!"), true
	} else {
		value = strings.TrimPrefix(value, "=")
	}
	var err error
	t.Value, err = p.unescape(end-len(value), end)
	return t, err
}

// unescape returns the value from start to end without its backslashes.
func (p fieldParser) unescape(start, end int) (string, error) {
	value := p.input[start:end]
	if !strings.ContainsAny(value, `\,=`) {
		return value, nil
	}
	// From here on invalid UTF-8 becomes U+FFFD, and only from here on, as in apimachinery.
	var b strings.Builder
	escaped := false
	for i, r := range value {
		special := r == '\\' || r == ',' || r == '='
		switch {
		case escaped && !special:
			return "", fieldError(p.input, start+i-1, "found %s at position %d, expected one of: %s",
				quote(`\`+string(r)), start+i-1, `\\ \, \=`)
		case !escaped && r == '\\':
			escaped = true
			continue
		case !escaped && special: // `=`; a comma would have ended the term
			return "", fieldError(p.input, start+i, "found %s at position %d, expected ',' or the end of the value; "+
				`in a value write \%c`, quote(string(r)), start+i, r)
		}
		escaped = false
		b.WriteRune(r)
	}
	if escaped {
		return "", fieldError(p.input, len(p.input), "found the end after a backslash at position %d, expected one of: %s",
			len(p.input), `\\ \, \=`)
	}
	return b.String(), nil
}

// Matches reports whether the fields meet all terms. It allocates only what f.Field does.
func (s FieldSelector) Matches(f Fields) bool {
	for _, t := range s.terms {
		if (f.Field(t.Field) == t.Value) == t.Not {
			return false
		}
	}
	return true
}

// Empty reports whether the selector selects everything because it has no terms.
func (s FieldSelector) Empty() bool { return len(s.terms) == 0 }

// valueEscaper puts the backslashes in that unescape takes away.
var valueEscaper = strings.NewReplacer(`\`, `\\`, `,`, `\,`, `=`, `\=`)

// String returns the canonical form, which ParseFields accepts and understands as the same selector.
// Selectors that differ only in the order or repetition of terms, in empty terms, or in `==` for `=`,
// print the same. The empty selector prints as the empty string.
func (s FieldSelector) String() string {
	var b strings.Builder
	for i, t := range s.terms {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(t.Field)
		if t.Not {
			b.WriteByte('!')
		}
		b.WriteByte('=')
		b.WriteString(valueEscaper.Replace(t.Value))
	}
	return b.String()
}

// Names returns the names of the fields that the selector asks about, sorted, each once. The caller
// checks that its objects have such fields; a name may be any text, the empty one included.
func (s FieldSelector) Names() []string {
	var names []string
	for _, t := range s.terms {
		names = append(names, t.Field)
	}
	return slices.Compact(names) // terms are sorted by field
}

// Exact returns the value that the field must have for an object to be selected, if the selector says
// so with `=`. If it asks for two values at once (and so selects nothing), it's the first of them.
func (s FieldSelector) Exact(field string) (value string, ok bool) {
	for _, t := range s.terms {
		if t.Field == field && !t.Not {
			return t.Value, true
		}
	}
	return "", false
}

// Term returns the first equality by which the selector can be indexed: objects match only if the field
// has the value, "" being an absent field's. It passes over metadata.name and metadata.namespace, which
// are part of an object's key: ask for them with Exact. ok is false if there is no such term.
func (s FieldSelector) Term() (field, value string, ok bool) {
	for _, t := range s.terms {
		if !t.Not && t.Field != "metadata.name" && t.Field != "metadata.namespace" {
			return t.Field, t.Value, true
		}
	}
	return "", "", false
}

// Without returns the selector without the equalities that Exact returns for fields, for callers that
// see to these themselves. What else is said about such a field stays: of `a=1,a=2,a!=3`, Without("a")
// leaves `a=2,a!=3`, so that what was contradictory before still selects nothing.
func (s FieldSelector) Without(fields ...string) FieldSelector {
	var rest []FieldTerm
	for i, t := range s.terms {
		first := i == 0 || s.terms[i-1].Field != t.Field
		if first && !t.Not && slices.Contains(fields, t.Field) {
			continue
		}
		rest = append(rest, t)
	}
	return FieldSelector{rest}
}

// Rewrite returns the selector with each term replaced by what fn makes of it.
func (s FieldSelector) Rewrite(fn func(FieldTerm) FieldTerm) FieldSelector {
	terms := make([]FieldTerm, len(s.terms))
	for i, t := range s.terms {
		terms[i] = fn(t)
	}
	slices.SortFunc(terms, compareTerms)
	return FieldSelector{slices.Compact(terms)}
}

// compareTerms sorts by field, equalities first, then by value. Exact, Names and Without build on it.
func compareTerms(a, b FieldTerm) int {
	if c := strings.Compare(a.Field, b.Field); c != 0 {
		return c
	}
	if a.Not != b.Not {
		if a.Not {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.Value, b.Value)
}
