package writes

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Loose is a type with a field that may hold anything.
type Loose struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Data              map[string]any `json:"data,omitempty"`
}

// TestFunctionsShareNothing: what a function changes inside of a field of any type isn't seen by the next call.
func TestFunctionsShareNothing(t *testing.T) {
	var e *client
	var ctx context.Context
	interfere := false
	list := func(l *Loose) []any { return l.Data["list"].([]any) }
	s := start(t, "", registry.Options{}, func(r *registry.Registry) {
		registry.Register(r, registry.Definition[Loose]{
			Group: "go.example.com", Version: "v1", Kind: "Loose", Plural: "loose", Strategy: registry.Strategy{UnconditionalUpdate: true},
			Admission: []registry.Admission[Loose]{judging[Loose](func(_ context.Context, r *registry.AdmissionRequest[Loose]) error {
				r.Object.Data["deep"].(map[string]any)["more"] = true
				list(r.Object)[0] = list(r.Object)[0].(string) + "+"
				if r.Old != nil {
					list(r.Old)[0] = "of no effect"
				}
				if interfere {
					interfere = false
					if _, err := e.Patch(ctx, "default", "a", "", merge, nil, []byte(`{"metadata":{"labels":{"x":"y"}}}`)); err != nil {
						t.Error(err)
					}
				}
				return nil
			})},
			Prepare: func(l, old *Loose, _ string) {
				list(l)[0] = list(l)[0].(string) + "p"
				if old != nil && list(old)[0] == "of no effect" {
					t.Error("a hook changed the old object")
				}
			},
		})
	})
	e, ctx = s.at("go.example.com", "v1", "loose"), s.ctx
	body := []byte(`{"metadata":{"name":"a"},"data":{"list":["a"],"deep":{}}}`)
	if got := s.ok(e.Create(s.ctx, "default", nil, body)); got.get("data.deep.more") != true || got.get("data.list").([]any)[0] != "a+p" {
		t.Errorf("created %v", got)
	}
	interfere = true // the update is tried again, with the same body
	if got := s.ok(e.Update(s.ctx, "default", "a", "", nil, body)); got.get("data.list").([]any)[0] != "a+p" {
		t.Errorf("updated %v", got)
	}
}

// TestWarnings: a definition's come with what is valid, and only once.
func TestWarnings(t *testing.T) {
	s := start(t, "", registry.Options{}, withGadgets(registry.Definition[Gadget]{
		Validate: func(_ context.Context, g, _ *Gadget, _ string) (errs field.ErrorList) {
			if g.Spec.Size < 0 {
				errs = append(errs, field.Invalid(field.NewPath("spec", "size"), g.Spec.Size, "must not be negative"))
			}
			return errs
		},
		Warnings: func(_ context.Context, g, old *Gadget, subresource string) (texts []string) {
			switch {
			case g.Spec.Size < 0:
				t.Error("asked about an object that isn't valid")
			case old == nil && g.Spec.Size > 100:
				texts = append(texts, "large")
			case old != nil:
				texts = append(texts, "changed "+subresource)
			}
			return texts
		},
	}))
	e := s.goGadgets()
	tests := []struct {
		name string
		do   func() (registry.Result, error)
		want string
	}{
		{"none", func() (registry.Result, error) { return e.Create(s.ctx, "default", nil, gadget("a", "")) }, ""},
		{"create", func() (registry.Result, error) {
			return e.Create(s.ctx, "default", nil, gadget("b", `,"spec":{"size":101}`))
		}, "large"},
		{"dry run", func() (registry.Result, error) {
			return e.Create(s.ctx, "default", params("dryRun=All"), gadget("c", `,"spec":{"size":101}`))
		}, "large"},
		{"patch", func() (registry.Result, error) {
			return e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":1}}`))
		}, "changed "},
		{"patch of the status", func() (registry.Result, error) {
			return e.Patch(s.ctx, "default", "a", registry.AtStatus, merge, nil, []byte(`{"status":{"ready":true}}`))
		}, "changed status"},
		{"apply", func() (registry.Result, error) {
			return e.Patch(s.ctx, "default", "d", "", apply, params("fieldManager=me"), gadget("d", `,"spec":{"size":101}`))
		}, "large"},
		{"delete", func() (registry.Result, error) { return e.Delete(s.ctx, "default", "a", nil, nil) }, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			res, err := test.do()
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(res.Warnings, "|"); got != test.want {
				t.Errorf("warned %q, want %q", got, test.want)
			}
		})
	}
	_, err := e.Create(s.ctx, "default", nil, gadget("e", `,"spec":{"size":-1}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "must not be negative")
}
