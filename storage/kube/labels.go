package kube

import "github.com/apiserver-lite/apiserver-lite/selectors"

// LabelBits is a Bloom filter of an object's labels: two bits for each pair of key and value. A scan learns from it
// that an object doesn't have a label, and needs to look at the labels of few objects. What a scan of many objects
// costs is mostly the memory that it loads, and the labels are elsewhere in memory than the Object.
type LabelBits uint64

// MayHave tells whether the object may have the label whose bits these are. Most objects that don't have it are told apart.
func (o *Object) MayHave(label LabelBits) bool { return o.labelBits&label == label }

func bitsOf(labels selectors.Set) (bits LabelBits) {
	for key, value := range labels.All() {
		bits |= BitsOf(key, value)
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

// BitsOf returns the bits of one label.
func BitsOf(key, value string) LabelBits {
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
