package writes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// maxMergeWork bounds a strategic merge patch: the sum of the squares of the lengths of the lists that are merged. The library
// looks for each element of such a list among all others. A list of 1,500 takes it half a second.
const maxMergeWork = 1500 * 1500

// mergeStrategically applies a strategic merge patch to a document. of is the zero value of the type. It refuses to merge lists that
// are too long for that. The result has no managedFields if the patch has none: to those who write, absent ones mean that they stay, and they
// are most of what there is to parse.
func mergeStrategically(doc, patch []byte, of any) (merged patched, err error) {
	is, err := object.ParseTree(patch) // anew each time: the library changes it
	if err != nil {
		return merged, registry.BadBody(err)
	}
	var without []string
	if !mentions(object.Map(is["metadata"]), "managedFields") {
		without = []string{"metadata", "managedFields"}
	}
	tree, _, err := jsontree.DecodeWithout(doc, without...)
	was := object.Map(tree)
	if err != nil || was == nil {
		return merged, registry.BadBody(object.Undecodable(cmp.Or(err, errors.New("is no JSON object"))))
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(of)
	if err != nil {
		return merged, err
	}
	const smallest = 2 // bytes of an element
	if n := (len(doc) + len(patch)) / smallest; n*n > maxMergeWork && mergeWork(meta, was, is) > maxMergeWork {
		return merged, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the strategic merge patch merges lists that are too long: the squares of their lengths may add up to %d; a JSON patch or a merge patch has no such bound", maxMergeWork))
	}
	now, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(was, is, meta)
	switch {
	case err == nil:
		text, err := object.EncodeJSON(now)
		return patched{object.Document{Text: text, Tree: map[string]any(now)}, is}, err
	case malformed(err):
		return merged, registry.BadRequest("%s", clip.Text(err.Error()))
	default:
		return merged, registry.Unforeseen(err.Error())
	}
}

// mentions tells whether a strategic merge patch of an object has a member by a name, or a directive about it.
func mentions(patch map[string]any, name string) bool {
	for key := range patch {
		if _, field, _ := strings.Cut(key, "/"); key == name || field == name {
			return true
		}
	}
	return false
}

// mergeWork is what a strategic merge of a patch into an object costs. It ends soon after that is more than maxMergeWork.
func mergeWork(meta strategicpatch.LookupPatchMeta, was, patch map[string]any) (work int) {
	for name, value := range patch {
		if directive, field, ok := strings.Cut(name, "/"); ok && (directive == "$setElementOrder" || directive == "$deleteFromPrimitiveList") {
			name = field
		}
		switch value := value.(type) {
		case map[string]any:
			if below, _, err := meta.LookupPatchMetadataForStruct(name); err == nil {
				work += mergeWork(below, object.Map(was[name]), value)
			}
		case []any:
			below, of, err := meta.LookupPatchMetadataForSlice(name)
			if err != nil || !slices.Contains(of.GetPatchStrategies(), "merge") {
				continue // it's replaced, or an unknown field, which has no strategy
			}
			list, _ := was[name].([]any)
			n := len(list) + len(value)
			if work += n * n; work <= maxMergeWork {
				work += elementsWork(below, of.GetPatchMergeKey(), list, value)
			}
		}
		if work > maxMergeWork {
			return work
		}
	}
	return work
}

// elementsWork is what merging the elements of lists costs whose merge keys are the same. Elements of the patch that have
// their key in common are merged one after the other into what grows meanwhile: each is counted as if it met all that they
// have.
func elementsWork(meta strategicpatch.LookupPatchMeta, key string, list, patch []any) (work int) {
	if key == "" {
		return 0
	}
	was, same := map[any]map[string]any{}, map[any][]map[string]any{}
	for _, v := range list {
		if m := object.Map(v); m != nil && isScalar(m[key]) {
			was[m[key]] = m
		}
	}
	for _, v := range patch {
		if m := object.Map(v); m != nil && isScalar(m[key]) {
			same[m[key]] = append(same[m[key]], m)
		}
	}
	for k, group := range same {
		if len(group) == 1 {
			work += mergeWork(meta, was[k], group[0])
		} else {
			size := jsontree.Count(was[k])
			for _, m := range group {
				size += jsontree.Count(m)
			}
			work += len(group) * size * size
		}
		if work > maxMergeWork {
			return work
		}
	}
	return work
}

func isScalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}
