package text

import (
	"crypto/sha256"
	"iter"
	"maps"
	"slices"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
)

// id stands for a uid in little memory.
type id [16]byte

func idOf(uid string) id {
	sum := sha256.Sum256([]byte(uid))
	return id(sum[:len(id{})])
}

// ownersOf returns the owners that an object names.
func ownersOf(o document.Object) (all []id) {
	for _, owner := range document.Owners(o) {
		uid, _ := owner["uid"].(string)
		all = append(all, idOf(uid))
	}
	return all
}

// owned is an object that has owners.
type owned struct {
	kind   int // its place among the kinds
	depth  int // how many objects above it own each other; 0: not known yet
	owners []id
}

// ownership has what has owners, by uid.
type ownership map[id]owned

// byDepth finds the depths, and returns for each, from 1 on, the kinds that have objects there. What isn't there owns nothing. In a circle
// the object at which it's noticed counts as if it had no owners.
func (w ownership) byDepth() iter.Seq2[int, []int] {
	kinds := map[int]map[int]bool{}
	for uid := range w {
		depth := w.find(uid)
		if kinds[depth] == nil {
			kinds[depth] = map[int]bool{}
		}
		kinds[depth][w[uid].kind] = true
	}
	return func(yield func(int, []int) bool) {
		for _, depth := range slices.Sorted(maps.Keys(kinds)) {
			if !yield(depth, slices.Sorted(maps.Keys(kinds[depth]))) {
				return
			}
		}
	}
}

func (w ownership) find(uid id) int {
	of, has := w[uid]
	if !has || of.depth > 0 {
		return of.depth
	}
	of.depth = 1
	w[uid] = of // what a circle finds
	deepest := 0
	for _, owner := range of.owners {
		deepest = max(deepest, w.find(owner))
	}
	of.depth += deepest
	w[uid] = of
	return of.depth
}
