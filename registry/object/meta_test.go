package object

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDropRepeatedOwners(t *testing.T) {
	yes, alsoYes, no := true, true, false
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "K", Name: "n", UID: "1"}
	but := func(change func(r *metav1.OwnerReference)) metav1.OwnerReference {
		r := owner
		change(&r)
		return r
	}
	for _, tc := range []struct {
		name   string
		second metav1.OwnerReference
		drops  bool
	}{
		{"the same", owner, true},
		{"another uid", but(func(r *metav1.OwnerReference) { r.UID = "2" }), false},
		{"another name", but(func(r *metav1.OwnerReference) { r.Name = "m" }), false},
		{"another kind", but(func(r *metav1.OwnerReference) { r.Kind = "L" }), false},
		{"another version", but(func(r *metav1.OwnerReference) { r.APIVersion = "v2" }), false},
		{"a controller", but(func(r *metav1.OwnerReference) { r.Controller = &yes }), false},
		{"no controller, as it says", but(func(r *metav1.OwnerReference) { r.Controller = &no }), false},
		{"one that blocks", but(func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = &yes }), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			third := tc.second // with pointers of its own
			if third.Controller != nil && *third.Controller {
				third.Controller = &alsoYes
			}
			o := &Object{Meta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner, tc.second, third}}}
			warnings := o.DropRepeatedOwners(false)
			want := []metav1.OwnerReference{owner, tc.second}
			if tc.drops {
				want = want[:1]
			}
			if got := o.Meta.OwnerReferences; !slices.EqualFunc(got, want, func(a, b metav1.OwnerReference) bool { return a.String() == b.String() }) {
				t.Errorf("left %+v", got)
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0], string(tc.second.UID)) { // the third is always one too many
				t.Errorf("warnings %q", warnings)
			}
		})
	}
}
