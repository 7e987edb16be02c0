package ruleset

import (
	"maps"
	"math"
	"slices"
	"strconv"
)

// maxDifferences bounds what Differences returns.
const maxDifferences = 32

// Differences returns the fields that an object had and that have gone, or have become something else, after it was converted
// there and back. apiVersion, kind and metadata don't count, but for annotations. What has been added is no loss: the other version has
// a default. Nor is an object without fields.
func Differences(was, is map[string]any) []string {
	var d differences
	for _, name := range slices.Sorted(maps.Keys(was)) {
		switch name {
		case "apiVersion", "kind":
		case "metadata":
			own, _ := was[name].(map[string]any)
			other, _ := is[name].(map[string]any)
			if annotations, ok := own["annotations"]; ok {
				d.compare(path{name, "annotations"}, annotations, member(other, "annotations"))
			}
		default:
			d.compare(path{name}, was[name], member(is, name))
		}
	}
	return d
}

type differences []string

// compare notes where a value isn't what it was.
func (d *differences) compare(at path, was, is any) {
	if len(*d) == maxDifferences || kept(was, is) {
		return
	}
	switch own := was.(type) {
	case map[string]any:
		if other, ok := is.(map[string]any); ok {
			for _, name := range slices.Sorted(maps.Keys(own)) {
				d.compare(at.child(name), own[name], member(other, name))
			}
			return
		}
	case []any:
		if other, ok := is.([]any); ok && len(own) == len(other) {
			for i, v := range own {
				d.compare(at.child("["+strconv.Itoa(i)+"]"), v, other[i])
			}
			return
		}
	}
	*d = append(*d, at.String())
}

func member(of map[string]any, name string) any {
	if v, ok := of[name]; ok {
		return v
	}
	return absent
}

// kept tells whether a value has all that it had.
func kept(was, is any) bool {
	switch own := was.(type) {
	case map[string]any:
		other, ok := is.(map[string]any)
		if !ok && is != absent {
			return false
		}
		for name, v := range own {
			if !kept(v, member(other, name)) {
				return false
			}
		}
		return true // an object without fields, too
	case []any:
		other, ok := is.([]any)
		return ok && slices.EqualFunc(own, other, kept)
	case float64:
		other, ok := is.(int64)
		return ok && sameNumber(other, own) || is == was
	case int64:
		other, ok := is.(float64)
		return ok && sameNumber(own, other) || is == was
	}
	return is == was
}

// sameNumber compares exactly: of large integers, not all are a float64.
func sameNumber(i int64, f float64) bool {
	return f == float64(i) && f < math.MaxInt64 && int64(f) == i
}
