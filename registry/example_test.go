package registry_test

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Gadget is a type of this program.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              GadgetSpec `json:"spec"`
}

// GadgetSpec says what a Gadget is.
type GadgetSpec struct {
	Size int64 `json:"size"`
}

// A Go type is served like a built-in kind, with its own rules, at /apis/example.com/v1/gadgets.
func ExampleRegister() {
	var store storage.Store // over a running etcd
	r := registry.New(registry.Options{Store: store, Cacher: cacher.New(store, cacher.Options{})})
	registry.Register(r, registry.Definition[Gadget]{
		Group: "example.com", Version: "v1", Kind: "Gadget",
		Default: func(g *Gadget) {
			if g.Spec.Size == 0 {
				g.Spec.Size = 1
			}
		},
		Validate: func(_ context.Context, g, _ *Gadget, _ string) (errs field.ErrorList) {
			if g.Spec.Size < 0 {
				errs = append(errs, field.Invalid(field.NewPath("spec", "size"), g.Spec.Size, "must not be negative"))
			}
			return errs
		},
	})
}
