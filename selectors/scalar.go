package selectors

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"
)

// Type is what a schema says of a field, as far as it matters to comparisons.
type Type uint8

// The types. Times are of RFC 3339. A Composite is an object or a list: it can only be there or not. An IntOrText is compared as text, and
// so are quantities, because of these only the text is stored. Neither has an order.
const (
	Composite Type = iota
	Text
	Integer
	Number
	Boolean
	Time
	IntOrText
)

// String returns what messages call a value of the type.
func (t Type) String() string {
	return [...]string{"an object or a list", "a text", "an integer", "a number", "true or false", "a time such as 2026-01-31T12:00:00Z", "an integer or a text"}[t]
}

// ordered tells whether values of the type are more or less than others.
func (t Type) ordered() bool { return t == Text || t == Integer || t == Number || t == Time }

// signBit makes signed numbers sort as unsigned ones.
const signBit = 1 << 63

// AppendKey appends a value of a type so that keys, compared byte by byte, are in the order of the values. text is a scalar as JSON has it, without
// the quotes of a string. ok is false if the value isn't of the type.
func (t Type) AppendKey(dst, text []byte) (key []byte, ok bool) {
	switch t {
	case Text, IntOrText:
		return append(dst, text...), true
	case Integer:
		n, ok := parseInteger(string(text))
		return binary.BigEndian.AppendUint64(dst, uint64(n)^signBit), ok
	case Number:
		f, err := strconv.ParseFloat(string(text), 64)
		return binary.BigEndian.AppendUint64(dst, orderOf(f)), err == nil && !math.IsNaN(f)
	case Boolean:
		is := string(text) == "true"
		return append(dst, text...), is || string(text) == "false"
	case Time:
		var at time.Time
		if at.UnmarshalText(text) != nil {
			return dst, false
		}
		dst = binary.BigEndian.AppendUint64(dst, uint64(at.Unix())^signBit)
		return binary.BigEndian.AppendUint32(dst, uint32(at.Nanosecond())), true
	}
	return dst, false
}

// orderOf returns the bits of a number so that they sort as the numbers do. Both zeros are one.
func orderOf(f float64) uint64 {
	bits := math.Float64bits(f + 0)
	if bits&signBit != 0 {
		return ^bits
	}
	return bits | signBit
}

// canonical returns a value of the type as all who mean the same have it.
func (t Type) canonical(text string) string {
	switch t {
	case Integer:
		n, _ := parseInteger(text)
		return strconv.FormatInt(n, 10)
	case Number:
		f, _ := strconv.ParseFloat(text, 64)
		return strconv.FormatFloat(f+0, 'g', -1, 64)
	case Time:
		at, _ := time.Parse(time.RFC3339Nano, text)
		return at.UTC().Format(time.RFC3339Nano)
	}
	return text
}

// KeyRange is the keys from From on that are below To; an empty To is no bound.
type KeyRange struct{ From, To string }

// Has tells whether a key is in the range.
func (r KeyRange) Has(key string) bool { return key >= r.From && (r.To == "" || key < r.To) }

// after returns the first key that is above one.
func after(key string) string { return key + "\x00" }

// afterPrefix returns the first text that is above all that begin with a prefix; "" if there is none.
func afterPrefix(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if c := prefix[i]; c < math.MaxUint8 {
			return prefix[:i] + string([]byte{c + 1})
		}
	}
	return ""
}
