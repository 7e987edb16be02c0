package selectors

import (
	"iter"
	"maps"
	"slices"
	"strings"
)

// Set is an object's labels: key, value, key, value, ..., sorted by key (bytewise), each key once. It is
// flat because objects are kept by the hundred thousand, and a map costs more than the labels in it.
// A Set is immutable: whoever made it doesn't write to it again. nil is the set without labels.
type Set []string

// SetOf returns the labels of a map, which it doesn't keep. It's for clients, which have labels as a map.
func SetOf(m map[string]string) Set {
	if len(m) == 0 {
		return nil
	}
	s := make(Set, 0, 2*len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		s = append(s, key, m[key])
	}
	return s
}

// Get returns the value of a key, and whether the set has it at all. It doesn't allocate.
func (s Set) Get(key string) (value string, ok bool) {
	low, high := 0, len(s)/2 // pairs
	for low < high {
		middle := int(uint(low+high) / 2)
		switch c := strings.Compare(s[2*middle], key); {
		case c == 0:
			return s[2*middle+1], true
		case c < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	return "", false
}

// All yields each key with its value, sorted by key.
func (s Set) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for i := 0; i+1 < len(s); i += 2 {
			if !yield(s[i], s[i+1]) {
				return
			}
		}
	}
}
