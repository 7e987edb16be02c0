package cacher

import (
	"iter"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// labelBits is a Bloom filter of an object's labels: two bits for each pair of key and value. It tells of most
// objects that they don't have a label without a look at anything but the Object itself: a scan of many
// objects costs what it loads from memory.
type labelBits uint64

func bitsOf(labels selectors.Set) (bits labelBits) {
	for key, value := range labels.All() {
		bits |= bitsOfPair(key, value)
	}
	return bits
}

func bitsOfPair(key, value string) labelBits {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h = (h ^ '=') * 1099511628211
	for i := range len(value) {
		h = (h ^ uint64(value[i])) * 1099511628211
	}
	h = (h ^ h>>32) * 0x9e3779b97f4a7c15 // FNV leaves the upper bits of like texts alike
	return 1<<(h>>58) | 1<<(h>>52&63)
}

// maxLabelBits is up to how many values are looked for by their bits: for more it's no gain.
const maxLabelBits = 16

// Labelled yields, in key order, the objects whose keys are in a range, without most of those that don't have a
// label of this name with one of the values.
func (s *Snapshot) Labelled(label string, values []string, keys storage.Range) iter.Seq[*Object] {
	if len(values) > maxLabelBits {
		return s.In(keys)
	}
	wanted := make([]labelBits, len(values))
	for i, v := range values {
		wanted[i] = bitsOfPair(label, v)
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
