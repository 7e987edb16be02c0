package cacher

import (
	"iter"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// labelBits is a Bloom filter of an object's labels: two bits for each pair of key and value. A scan learns from it
// that an object doesn't have a label, and needs to look at the labels of few objects. What a scan of many objects
// costs is mostly the memory that it loads, and the labels are elsewhere in memory than the Object.
type labelBits uint64

func bitsOf(labels selectors.Set) (bits labelBits) {
	for key, value := range labels.All() {
		bits |= bitsOfPair(key, value)
	}
	return bits
}

// Constants of the hash of a pair.
const (
	fnvOffset = 14695981039346656037 // of FNV-1a with 64 bits
	fnvPrime  = 1099511628211
	// goldenRatio is 2^64 divided by the golden ratio. Multiplied by it, each bit of a number changes the upper bits,
	// which FNV leaves alike for texts that are alike.
	goldenRatio = 0x9e3779b97f4a7c15
	// bitIndex is how many bits of the hash choose one of the 64 bits.
	bitIndex = 6
)

func bitsOfPair(key, value string) labelBits {
	h := uint64(fnvOffset)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * fnvPrime
	}
	h = (h ^ '=') * fnvPrime
	for i := range len(value) {
		h = (h ^ uint64(value[i])) * fnvPrime
	}
	h = (h ^ h>>32) * goldenRatio
	first, second := h>>(64-bitIndex), h>>(64-2*bitIndex)&(1<<bitIndex-1)
	return 1<<first | 1<<second
}

// maxLabelBits is for how many values Labelled compares bits. For more values the filter saves nothing.
const maxLabelBits = 16

// Labelled yields, in key order, the objects whose keys are in a range and that may have a label with this key and one
// of the values. It leaves out most objects that don't have it; the caller checks those that come.
func (s *Snapshot) Labelled(key string, values []string, keys storage.Range) iter.Seq[*Object] {
	if len(values) > maxLabelBits {
		return s.In(keys)
	}
	wanted := make([]labelBits, len(values))
	for i, v := range values {
		wanted[i] = bitsOfPair(key, v)
	}
	covers := s.covers(keys.Prefix) // then no key is looked at
	return func(yield func(*Object) bool) {
		s.ascend(keys.First(), func(o *Object) bool {
			if !covers && !strings.HasPrefix(o.Key, keys.Prefix) {
				return false
			}
			for _, w := range wanted {
				if o.labelBits&w == w {
					return yield(o)
				}
			}
			return true
		})
	}
}
