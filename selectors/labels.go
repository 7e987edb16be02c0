package selectors

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// LabelSelector says which labels an object must have, may have and must not have. The zero value
// selects everything. It is immutable, safe for concurrent use, and cheap to copy.
type LabelSelector struct {
	requirements []requirement // sorted by compareRequirements, each once
}

// requirement is one condition on one key. `k=v` is `k in (v)` and `k!=v` is `k notin (v)`: they mean
// the same, so that they have one form here and print alike.
type requirement struct {
	key    string
	op     operator
	values []string // of in and notIn: sorted, each once, at least one
	bound  int64    // of greater and less
}

type operator uint8

const (
	exists operator = iota
	absent
	in
	notIn
	greater
	less
)

// Matches reports whether labels meet all requirements. It doesn't allocate.
func (s LabelSelector) Matches(labels Set) bool {
	for i := range s.requirements {
		if !s.requirements[i].matches(labels) {
			return false
		}
	}
	return true
}

func (r *requirement) matches(labels Set) bool {
	value, ok := labels.Get(r.key)
	switch r.op {
	case exists:
		return ok
	case absent:
		return !ok
	case in:
		return ok && r.hasValue(value)
	case notIn:
		return !ok || !r.hasValue(value)
	}
	if !ok {
		return false
	}
	n, ok := parseInteger(value)
	if r.op == greater {
		return ok && n > r.bound
	}
	return ok && n < r.bound
}

func (r *requirement) hasValue(value string) bool {
	if len(r.values) == 1 { // nearly always; equality looks at the lengths first
		return r.values[0] == value
	}
	_, found := slices.BinarySearch(r.values, value)
	return found
}

// parseInteger is strconv.ParseInt(s, 10, 64) without the allocation of an error: a label compared by
// `>` or `<` may be any text, on every object.
func parseInteger(s string) (n int64, ok bool) {
	digits, limit, sign := s, uint64(1)<<63-1, int64(1)
	if s != "" && (s[0] == '-' || s[0] == '+') {
		digits = s[1:]
		if s[0] == '-' {
			limit, sign = 1<<63, -1
		}
	}
	var sum uint64
	for i := range len(digits) {
		digit := uint64(digits[i] - '0') // a byte: what is below '0' wraps to above 9
		if digit > 9 || sum > (limit-digit)/10 {
			return 0, false
		}
		sum = sum*10 + digit
	}
	return sign * int64(sum), digits != "" // -(1<<63) wraps to itself
}

// Empty reports whether the selector selects everything because it has no requirements.
func (s LabelSelector) Empty() bool { return len(s.requirements) == 0 }

// String returns the canonical form, which ParseLabels accepts and understands as the same selector.
// Selectors that differ only in the order or repetition of requirements and values, in `==` for `=`, in
// `in (v)` for `=v` and `notin (v)` for `!=v`, or in leading zeros of an integer, print the same. The
// empty selector prints as the empty string.
func (s LabelSelector) String() string {
	var b strings.Builder
	for i := range s.requirements {
		if i > 0 {
			b.WriteByte(',')
		}
		s.requirements[i].print(&b)
	}
	return b.String()
}

func (r *requirement) print(b *strings.Builder) {
	if r.op == absent {
		b.WriteByte('!')
	}
	b.WriteString(r.key)
	switch r.op {
	case in:
		r.printValues(b, "=", " in (")
	case notIn:
		r.printValues(b, "!=", " notin (")
	case greater:
		b.WriteString(">" + strconv.FormatInt(r.bound, 10))
	case less:
		b.WriteString("<" + strconv.FormatInt(r.bound, 10))
	}
}

// printValues writes the values with the sign that fits one of them, or the opening of a list.
func (r *requirement) printValues(b *strings.Builder, sign, list string) {
	if len(r.values) == 1 {
		b.WriteString(sign)
		b.WriteString(r.values[0])
		return
	}
	b.WriteString(list)
	for i, value := range r.values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(value)
	}
	b.WriteByte(')')
}

// Term returns the requirement by which the selector can best be indexed: objects match only if they
// have the label key with one of values (sorted, each once; the empty value is a value, and isn't the
// same as no label). It is an equality if there is one, else the `in` with the fewest values; among
// equals the first key. ok is false if there is neither. The caller must not write to values.
func (s LabelSelector) Term() (key string, values []string, ok bool) {
	var best *requirement
	for i := range s.requirements {
		r := &s.requirements[i]
		if r.op == in && (best == nil || len(r.values) < len(best.values)) {
			best = r
		}
	}
	if best == nil {
		return "", nil, false
	}
	return best.key, best.values, true
}

// newLabelSelector takes over requirements and brings them into canonical form.
func newLabelSelector(requirements []requirement) LabelSelector {
	slices.SortFunc(requirements, compareRequirements)
	return LabelSelector{slices.CompactFunc(requirements, func(a, b requirement) bool {
		return compareRequirements(a, b) == 0
	})}
}

func compareRequirements(a, b requirement) int {
	return cmp.Or(
		strings.Compare(a.key, b.key),
		cmp.Compare(a.op, b.op),
		slices.Compare(a.values, b.values),
		cmp.Compare(a.bound, b.bound),
	)
}
