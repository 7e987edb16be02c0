package selectors

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Shards selects a part of all objects by a hash, as the parameter shardSelector of KEP-5866 says it: FNV-1a with 64 bits of the object's uid
// or namespace. The zero value selects everything.
type Shards struct {
	field  string // "metadata.uid" or "metadata.namespace"
	ranges []hashRange
}

// hashRange has the hashes from the first to the last.
type hashRange struct{ first, last uint64 }

// ParseShards parses `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`, or several of these with || between them. The
// first number is in the range and the second one isn't; numbers have 16 digits, but for 2^64. The error is a *ParseError.
func ParseShards(s string) (Shards, error) {
	p := parser{input: s, what: "shardSelector"}
	if err := p.checkLength(); err != nil {
		return Shards{}, err
	}
	var all Shards
	for {
		p.space()
		start := p.pos
		field, r, err := p.shardRange()
		switch {
		case err != nil:
			return Shards{}, err
		case all.field != "" && all.field != field:
			return Shards{}, p.fail(start, "found a range of another field at position %d: all ranges must be of the same", start)
		case len(all.ranges) == MaxComparisons:
			return Shards{}, p.tooMany("ranges", MaxComparisons)
		}
		all.field, all.ranges = field, append(all.ranges, r)
		if p.space(); p.pos == len(s) {
			slices.SortFunc(all.ranges, func(a, b hashRange) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last)) })
			all.ranges = slices.Compact(all.ranges)
			return all, nil
		}
		if !p.take("||") {
			return Shards{}, p.expected("'||' or the end")
		}
	}
}

// shardRange reads one range.
func (p *parser) shardRange() (field string, r hashRange, err error) {
	for _, part := range []string{"shardRange", "(", "object.metadata."} {
		if p.space(); !p.take(part) {
			return "", r, p.expected("shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')")
		}
	}
	switch {
	case p.word("uid"):
		field = "metadata.uid"
	case p.word("namespace"):
		field = "metadata.namespace"
	default:
		return "", r, p.expected("uid or namespace")
	}
	start := p.pos
	first, none, err := p.hash()
	if err != nil {
		return "", r, err
	}
	end, all, err := p.hash()
	if err != nil {
		return "", r, err
	}
	if p.space(); !p.take(")") {
		return "", r, p.expected("')'")
	}
	if none || !all && first >= end {
		return "", r, p.fail(start, "found a range at position %d that ends where it begins, or before", start)
	}
	if r = (hashRange{first, end - 1}); all {
		r.last = math.MaxUint64
	}
	return field, r, nil
}

// hash reads a comma and a number in quotes. all tells that it's 2^64, which is the end of all.
func (p *parser) hash() (n uint64, all bool, err error) {
	const digits = 16
	if p.space(); !p.take(",") {
		return 0, false, p.expected("','")
	}
	p.space()
	start := p.pos
	text := ""
	if p.pos < len(p.input) && (p.input[p.pos] == '\'' || p.input[p.pos] == '"') {
		if text, err = p.quoted(); err != nil {
			return 0, false, err
		}
	}
	if text == "0x1"+strings.Repeat("0", digits) {
		return 0, true, nil
	}
	hex, ok := strings.CutPrefix(text, "0x")
	n, bad := strconv.ParseUint(hex, 16, 64)
	if !ok || len(hex) != digits || bad != nil || strings.ToLower(hex) != hex {
		p.pos = start
		return 0, false, p.expected("a number of 16 hexadecimal digits in quotes, such as '0x8000000000000000', or '0x10000000000000000' for the end")
	}
	return n, false, nil
}

// Empty reports whether everything is selected.
func (s Shards) Empty() bool { return len(s.ranges) == 0 }

// Field returns the path of the field that is hashed.
func (s Shards) Field() string { return s.field }

// fnv64 are FNV-1a's constants.
const (
	fnv64Offset = 14695981039346656037
	fnv64Prime  = 1099511628211
)

// Has tells whether an object is in one of the ranges whose field has a value. It doesn't allocate.
func (s Shards) Has(value []byte) bool {
	h := uint64(fnv64Offset)
	for _, c := range value {
		h = (h ^ uint64(c)) * fnv64Prime
	}
	for _, r := range s.ranges {
		if r.first <= h && h <= r.last {
			return true
		}
	}
	return false
}

// String returns the canonical form, which ParseShards understands as the same. The zero value prints as the empty string.
func (s Shards) String() string {
	parts := make([]string, len(s.ranges))
	for i, r := range s.ranges {
		end := fmt.Sprintf("0x%016x", r.last+1)
		if r.last == math.MaxUint64 {
			end = "0x10000000000000000"
		}
		parts[i] = fmt.Sprintf("shardRange(object.%s, '0x%016x', '%s')", s.field, r.first, end)
	}
	return strings.Join(parts, " || ")
}
