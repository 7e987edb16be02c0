package cacher

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// FuzzSortByKey: keys come in the order of their bytes.
func FuzzSortByKey(f *testing.F) {
	for _, keys := range []string{"a", "b a", "same same", "/registry/g/r/ns/b /registry/g/r/ns/a /registry/g/r/ns", "prefix12345678x prefix12345678 prefix12345678\x00 prefix"} {
		f.Add(keys)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var objects []listed
		for key := range strings.SplitSeq(text, " ") {
			objects = append(objects, listed{&kube.Object{Key: key}, false})
		}
		want := slices.Clone(objects)
		slices.SortStableFunc(want, func(a, b listed) int { return cmp.Compare(a.Key, b.Key) })
		sortByKey(objects)
		if !slices.EqualFunc(objects, want, func(a, b listed) bool { return a.Key == b.Key }) {
			t.Errorf("%q isn't sorted", text)
		}
	})
}
