package ruleset

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/schema"
)

// root is where errors find the annotation.
var root = field.NewPath("metadata", "annotations").Key(Annotation)

// Of returns a definition's annotation.
func Of(d *apiextensionsv1.CustomResourceDefinition) (text string, there bool) {
	text, there = d.Annotations[Annotation]
	return text, there
}

// New reads the rules of a definition whose schemas are valid. The errors say which rules can't be used and why, by their
// place in the annotation: they can't be read, name what isn't there, overlap, or lose what a version's schema keeps.
func New(d *apiextensionsv1.CustomResourceDefinition) (*Rules, field.ErrorList) {
	text, _ := Of(d)
	pairs, err := parse(text)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(root, clip.Text(text), err.Error())}
	}
	n := 0
	for _, p := range pairs {
		n += len(p.Rules)
	}
	if n > MaxRules {
		return nil, field.ErrorList{field.TooMany(root, n, MaxRules)}
	}
	if len(pairs) > MaxPairs {
		return nil, field.ErrorList{field.TooMany(root, len(pairs), MaxPairs)}
	}
	r := &Rules{group: d.Spec.Group, versions: map[string]*version{}}
	schemas := map[string]*structuralschema.Structural{}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		r.versions[v.Name] = &version{name: v.Name}
		if v.Schema == nil {
			continue
		}
		if schemas[v.Name], err = schema.New(v.Schema.OpenAPIV3Schema).Structural(); err != nil {
			return nil, field.ErrorList{field.Invalid(field.NewPath("spec", "versions").Index(i).Child("schema"), "", err.Error())}
		}
	}
	blocks, errs := make([]*block, len(pairs)), field.ErrorList(nil)
	for i, p := range pairs {
		at := root.Index(i)
		if bad := r.checkVersions(p.Versions, at.Child("versions")); bad != nil {
			errs = append(errs, bad)
			continue
		}
		c := &checker{at: at, versions: [2]string(p.Versions), schemas: [2]*structuralschema.Structural{schemas[p.Versions[0]], schemas[p.Versions[1]]}}
		var bad field.ErrorList
		blocks[i], bad = c.block(p.Rules)
		errs = append(errs, bad...)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	if bad := r.connect(pairs, blocks, d.Spec.Versions[0].Name); bad != nil {
		return nil, field.ErrorList{bad}
	}
	return r, nil
}

func (r *Rules) checkVersions(names []string, at *field.Path) *field.Error {
	if len(names) != 2 || names[0] == names[1] {
		return field.Invalid(at, names, "must be two versions of the definition")
	}
	for i, name := range names {
		if !r.Has(name) {
			return field.Invalid(at.Index(i), clip.Text(name), "is no version of the definition")
		}
	}
	return nil
}

// connect makes the tree of versions, with one of them at its root.
func (r *Rules) connect(pairs []pairText, blocks []*block, top string) *field.Error {
	reached := []*version{r.versions[top]}
	used := make([]bool, len(pairs))
	for next := 0; next < len(reached); next++ {
		v := reached[next]
		for i, p := range pairs {
			at := slices.Index(p.Versions, v.name)
			if at < 0 || used[i] {
				continue
			}
			used[i] = true
			other := r.versions[p.Versions[1-at]]
			if slices.Contains(reached, other) {
				return field.Invalid(root.Index(i).Child("versions"), p.Versions, "there's another way between these versions: leave one out")
			}
			other.up, other.depth, other.pair, other.second = v, v.depth+1, blocks[i], at == first
			reached = append(reached, other)
		}
	}
	for name, v := range r.versions {
		if !slices.Contains(reached, v) {
			return field.Invalid(root, clip.Text(name), fmt.Sprintf("no pair leads from %s to this version: add one, without rules if it has the same fields", top))
		}
	}
	return nil
}
