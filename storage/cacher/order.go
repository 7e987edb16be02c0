package cacher

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// byKey is an object, and the beginning of what tells its key from others.
type byKey struct {
	head   uint64
	object listed
}

// sortByKey sorts objects. Most keys differ soon after what they all begin with, so few are looked at again.
func sortByKey(objects []listed) {
	same := objects[0].Key
	for _, o := range objects {
		n := 0
		for n < len(same) && n < len(o.Key) && same[n] == o.Key[n] {
			n++
		}
		same = same[:n]
	}
	sorted := make([]byKey, len(objects))
	for i, o := range objects {
		var head [8]byte
		copy(head[:], o.Key[len(same):])
		sorted[i] = byKey{binary.BigEndian.Uint64(head[:]), o}
	}
	slices.SortFunc(sorted, func(a, b byKey) int {
		if c := cmp.Compare(a.head, b.head); c != 0 {
			return c
		}
		return strings.Compare(a.object.Key, b.object.Key)
	})
	for i, o := range sorted {
		objects[i] = o.object
	}
}
