package writes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

const (
	merge = "application/merge-patch+json"
	apply = "application/apply-patch+yaml"
)

// judging is a hook as a function that says why it refuses a request.
type judging[T any] func(ctx context.Context, r *registry.AdmissionRequest[T]) error

func (f judging[T]) Admit(ctx context.Context, r *registry.AdmissionRequest[T]) (registry.Verdict, error) {
	return registry.Refuse(f(ctx, r)), nil
}

type (
	onGadgets = judging[Gadget]
	onAll     = judging[unstructured.Unstructured]
)

// withGadgets registers Gadgets, as the definition says.
func withGadgets(d registry.Definition[Gadget]) func(*registry.Registry) {
	d.Group, d.Version, d.Kind, d.Status = "go.example.com", "v1", "Gadget", true
	return func(r *registry.Registry) { registry.Register(r, d) }
}

func (s *server) goGadgets() *client { return s.at("go.example.com", "v1", "gadgets") }

func gadget(name, more string) []byte {
	return []byte(`{"apiVersion":"go.example.com/v1","kind":"Gadget","metadata":{"name":"` + name + `"}` + more + `}`)
}

// journal notes what was called.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fmt.Sprintf(format, args...))
}

// take returns what was noted since the last call.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer func() { j.entries = nil }()
	return strings.Join(j.entries, ", ")
}

// note is a hook that notes each request.
func (j *journal) note(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) error {
	j.add("%s %s %s/%s/%s old=%v new=%v dry=%v", r.Operation, r.Resource.Resource, r.Namespace, r.Name, r.Subresource, r.Old != nil, r.Object != nil, r.DryRun)
	return nil
}

func TestAdmissionOrder(t *testing.T) {
	var calls journal
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{
		nil,
		onAll(func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) error {
			size, _, _ := unstructured.NestedInt64(r.Object.Object, "spec", "size")
			calls.add("server %d", size)
			return unstructured.SetNestedField(r.Object.Object, size*2, "spec", "size")
		}),
	}}, withGadgets(registry.Definition[Gadget]{
		Default: func(g *Gadget) {
			if g.Spec.Color == "" {
				calls.add("default %d", g.Spec.Size)
				g.Spec.Color = "grey"
			}
		},
		Admission: []registry.Admission[Gadget]{
			onGadgets(func(_ context.Context, r *registry.AdmissionRequest[Gadget]) error {
				calls.add("first %d %s", r.Object.Spec.Size, r.Object.Spec.Color)
				r.Object.Spec.Size++
				r.Object.Spec.Color = ""
				r.Warn("one")
				return nil
			}),
			nil,
			onGadgets(func(_ context.Context, r *registry.AdmissionRequest[Gadget]) error {
				calls.add("second %d", r.Object.Spec.Size)
				replaced := *r.Object
				replaced.Spec.Size *= 10
				r.Object = &replaced
				r.Warn("two")
				return nil
			}),
		},
		Prepare: func(g, old *Gadget, _ string) { calls.add("prepare %d", g.Spec.Size) },
		Validate: func(_ context.Context, g, _ *Gadget, _ string) (errs field.ErrorList) {
			calls.add("validate %d", g.Spec.Size)
			if g.Spec.Size > 1000 {
				errs = append(errs, field.Invalid(field.NewPath("spec", "size"), g.Spec.Size, "too big"))
			}
			return errs
		},
		Warnings: func(_ context.Context, g, old *Gadget, _ string) []string {
			calls.add("warnings %d", g.Spec.Size)
			return []string{fmt.Sprintf("three of %v", old != nil)}
		},
	}))
	calls.take() // the server's own namespaces, if anything
	e := s.goGadgets()
	res, err := e.Create(s.ctx, "default", nil, gadget("a", `,"spec":{"size":1}`))
	if got := s.ok(res, err); got.get("spec.size") != "40" || got.get("spec.color") != "grey" {
		t.Errorf("created %v", got)
	}
	if got := strings.Join(res.Warnings, " "); got != "one two three of false" {
		t.Errorf("warned %q", got)
	}
	want := "default 1, first 1 grey, second 2, server 20, default 40, prepare 40, validate 40, warnings 40"
	if got := calls.take(); got != want {
		t.Errorf("calls\n%s, want\n%s", got, want)
	}
	res, err = e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":2}}`))
	if got := s.ok(res, err); got.get("spec.size") != "60" || got.get("metadata.generation") != "2" {
		t.Errorf("patched %v", got)
	}
	if got := strings.Join(res.Warnings, " "); got != "one two three of true" {
		t.Errorf("warned %q", got)
	}
	// Validation sees what the hooks made.
	_, err = e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":100}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "spec.size", "2020", "too big")
}

// judge is a hook that changes sizes, notes what it's asked about when the object would be stored, and refuses 13.
type judge struct {
	calls *journal
	only  registry.Operation // "": all
}

func (j judge) Concerns(a *registry.Attributes) bool {
	return a.Resource.Resource == "gadgets" && (j.only == "" || j.only == a.Operation)
}

func (j judge) Admit(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
	j.calls.add("admit %s as %s with %T", r.Operation, r.User.GetName(), r.Options)
	if r.Object == nil {
		return pass, nil
	}
	return pass, unstructured.SetNestedField(r.Object.Object, "seen", "spec", "color")
}

func (j judge) Validate(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
	if r.Object == nil {
		j.calls.add("judge %s", r.Operation)
		return pass, nil
	}
	color, _, _ := unstructured.NestedString(r.Object.Object, "spec", "color")
	size, _, _ := unstructured.NestedInt64(r.Object.Object, "spec", "size")
	j.calls.add("judge %s %s %d", r.Operation, color, size)
	r.Warn("judged")
	if size == 13 {
		return registry.Refuse(errors.New("unlucky")), nil
	}
	return pass, nil
}

// TestValidators: they're asked after validation, with the object as it would be stored, and only about what concerns them.
func TestValidators(t *testing.T) {
	var calls journal
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{judge{calls: &calls}}}, withGadgets(registry.Definition[Gadget]{
		Validate: func(_ context.Context, g, _ *Gadget, _ string) (errs field.ErrorList) {
			if g.Spec.Size > 1000 {
				errs = append(errs, field.Invalid(field.NewPath("spec", "size"), g.Spec.Size, "too big"))
			}
			return errs
		},
	}), func(r *registry.Registry) { r.Use(judge{&calls, registry.Delete}) })
	expect := func(want string) {
		t.Helper()
		if got := calls.take(); got != want {
			t.Errorf("calls\n%s, want\n%s", got, want)
		}
	}
	e := s.goGadgets()
	res, err := e.Create(s.ctx, "default", nil, gadget("a", `,"spec":{"size":1}`))
	s.ok(res, err)
	if got := strings.Join(res.Warnings, " "); got != "judged" {
		t.Errorf("warned %q", got)
	}
	expect("admit CREATE as system:admin with *v1.CreateOptions, judge CREATE seen 1")
	_, err = e.Create(s.ctx, "default", nil, gadget("b", `,"spec":{"size":2000}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "spec.size", "2000", "too big")
	expect("admit CREATE as system:admin with *v1.CreateOptions")
	s.settle()
	_, err = e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":13}}`))
	s.refused(err, 403, metav1.StatusReasonForbidden, "unlucky")
	expect("admit UPDATE as system:admin with *v1.UpdateOptions, judge UPDATE seen 13")
	s.ok(s.at("", "v1", "namespaces").Create(s.ctx, "", nil, []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"other"}}`)))
	expect("")
	s.ok(e.Delete(registry.WithUser(s.ctx, &user.DefaultInfo{Name: "jane"}), "default", "a", nil, nil))
	expect("admit DELETE as jane with *v1.DeleteOptions, admit DELETE as jane with *v1.DeleteOptions, judge DELETE, judge DELETE")
}

// settle waits until the cache has every write: then none is tried twice.
func (s *server) settle() {
	s.t.Helper()
	if _, err := s.Cacher.Barrier(s.ctx); err != nil {
		s.t.Fatal(err)
	}
}

// TestAdmissionRequests: what the hooks for all resources are asked about, and what not.
func TestAdmissionRequests(t *testing.T) {
	var calls journal
	s := start(t, "", registry.Options{AutoCreateNamespaces: true, Admission: []registry.Admission[unstructured.Unstructured]{onAll(calls.note)}}, withGadgets(registry.Definition[Gadget]{}))
	if got := calls.take(); got != "" {
		t.Errorf("asked about the server's own writes: %s", got)
	}
	expect := func(want string) {
		t.Helper()
		if got := calls.take(); got != want {
			t.Errorf("asked about\n%s, want\n%s", got, want)
		}
		s.settle()
	}
	w := s.widgets()
	expect("CREATE customresourcedefinitions /widgets.example.com/ old=false new=true dry=false")
	s.ok(w.Create(s.ctx, "shop", nil, widget("a", "")))
	expect("CREATE widgets shop/a/ old=false new=true dry=false") // and not about the namespace
	s.ok(w.Create(s.ctx, "shop", params("dryRun=All"), widget("b", "")))
	expect("CREATE widgets shop/b/ old=false new=true dry=true")
	s.ok(w.Patch(s.ctx, "shop", "a", "", merge, nil, []byte(`{"spec":{"size":1}}`)))
	expect("UPDATE widgets shop/a/ old=true new=true dry=false")
	s.ok(w.Patch(s.ctx, "shop", "a", "status", merge, nil, []byte(`{"status":{"size":1}}`)))
	expect("UPDATE widgets shop/a/status old=true new=true dry=false")
	s.ok(w.Patch(s.ctx, "shop", "c", "", apply, params("fieldManager=me"), widget("c", "")))
	expect("CREATE widgets shop/c/ old=false new=true dry=false")
	s.ok(w.Patch(s.ctx, "shop", "c", "", apply, params("fieldManager=me"), widget("c", `,"spec":{"size":1}`)))
	expect("UPDATE widgets shop/c/ old=true new=true dry=false")
	beta := s.at("example.com", "v1beta1", "widgets")
	s.ok(beta.Delete(s.ctx, "shop", "c", nil, []byte(`{"dryRun":["All"]}`)))
	s.ok(beta.Delete(s.ctx, "shop", "c", nil, nil))
	expect("DELETE widgets shop/c/ old=true new=false dry=true, DELETE widgets shop/c/ old=true new=false dry=false")
	s.ok(s.goGadgets().Create(s.ctx, "shop", nil, gadget("g", `,"spec":{"size":1}`)))
	expect("CREATE gadgets shop/g/ old=false new=true dry=false")
	if _, err := w.DeleteCollection(s.ctx, "shop", params("dryRun=All"), nil); err != nil {
		t.Fatal(err)
	}
	expect("DELETE widgets shop/a/ old=true new=false dry=true")
	s.ok(w.Create(s.ctx, "shop", nil, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"generateName":"x-"}}`)))
	expect("CREATE widgets shop// old=false new=true dry=false") // before the server decides about the name
	// The namespace's content is deleted by the server.
	s.ok(s.at("", "v1", "namespaces").Delete(s.ctx, "", "shop", nil, nil))
	s.eventually("the namespace is gone", func() bool { return !strings.Contains(names(s.list(s.at("", "v1", "namespaces"), "", nil)), "shop") })
	expect("DELETE namespaces /shop/ old=true new=false dry=false")
}

// TestAdmissionBeforeDecisions: hooks that change objects see what was sent, once, and may name what has no name; Validators see what the server has
// decided.
func TestAdmissionBeforeDecisions(t *testing.T) {
	var admitted, validated []*unstructured.Unstructured
	named := ""
	h := &twoStages{
		admit: func(r *registry.AdmissionRequest[unstructured.Unstructured]) {
			admitted = append(admitted, r.Object.DeepCopy())
			if named != "" {
				r.Object.SetName(named)
			}
		},
		validate: func(r *registry.AdmissionRequest[unstructured.Unstructured]) {
			validated = append(validated, r.Object.DeepCopy())
		},
	}
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{h}})
	w := s.widgets()
	expect := func(seen ...string) {
		t.Helper()
		all := []*unstructured.Unstructured{admitted[len(admitted)-1], validated[len(validated)-1]}
		for i, o := range all {
			got := fmt.Sprintf("name %t, uid %t, created %t, version %q, generation %d, status %v", o.GetName() != "", o.GetUID() != "", !o.GetCreationTimestamp().Time.IsZero(),
				o.GetResourceVersion(), o.GetGeneration(), o.Object["status"])
			if got != seen[i] {
				t.Errorf("stage %d saw\n%s, want\n%s", i, got, seen[i])
			}
		}
		s.settle()
	}
	body := func(metadata string) []byte {
		return []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{` + metadata + `},"status":{"size":9}}`)
	}
	s.ok(w.Create(s.ctx, "default", nil, body(`"generateName":"x-"`)))
	expect(`name false, uid false, created false, version "", generation 0, status map[size:9]`, `name true, uid true, created true, version "", generation 1, status <nil>`)
	if len(admitted) != 2 || len(validated) != 2 { // the definition, and the widget
		t.Errorf("asked %d and %d times", len(admitted), len(validated))
	}
	made := s.ok(w.Create(s.ctx, "default", nil, body(`"name":"a"`)))
	version := made.str("metadata.resourceVersion")
	s.settle()
	s.ok(w.Update(s.ctx, "default", "a", "", nil, body(`"name":"a","resourceVersion":"`+version+`","labels":{"a":"b"}`)))
	expect(`name true, uid false, created false, version "`+version+`", generation 0, status map[size:9]`,
		`name true, uid true, created true, version "`+version+`", generation 1, status <nil>`)
	named = "by-the-hook"
	if got := s.ok(w.Create(s.ctx, "default", nil, body(`"generateName":"x-"`))); got.str("metadata.name") != named {
		t.Errorf("created %v", got)
	}
}

// TestAdmissionOfTakenNames: hooks that change objects are asked once, however many names are tried.
func TestAdmissionOfTakenNames(t *testing.T) {
	admitted, validated := 0, 0
	h := &twoStages{
		admit:    func(*registry.AdmissionRequest[unstructured.Unstructured]) { admitted++ },
		validate: func(*registry.AdmissionRequest[unstructured.Unstructured]) { validated++ },
	}
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{h}}, withGadgets(registry.Definition[Gadget]{Strategy: registry.Strategy{PlainNames: true}}))
	e := s.goGadgets()
	body := []byte(`{"apiVersion":"go.example.com/v1","kind":"Gadget","metadata":{"generateName":"taken"}}`)
	s.ok(e.Create(s.ctx, "default", nil, body))
	admitted, validated = 0, 0
	_, err := e.Create(s.ctx, "default", nil, body)
	s.refused(err, 409, metav1.StatusReasonAlreadyExists, "taken")
	if admitted != 1 || validated != generateTries {
		t.Errorf("asked to change the object %d times and to judge it %d times", admitted, validated)
	}
}

// twoStages is a hook that is a Validator, too.
type twoStages struct {
	admit, validate func(r *registry.AdmissionRequest[unstructured.Unstructured])
}

func (h *twoStages) Admit(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) (registry.Verdict, error) {
	h.admit(r)
	return registry.Verdict{}, nil
}

func (h *twoStages) Validate(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) (registry.Verdict, error) {
	h.validate(r)
	return registry.Verdict{}, nil
}

// TestAdmissionAttributes: who asks, for what, and what the objects look like.
func TestAdmissionAttributes(t *testing.T) {
	var last registry.AdmissionRequest[unstructured.Unstructured]
	s := start(t, "", registry.Options{ManagedFieldsAlways: true, Admission: []registry.Admission[unstructured.Unstructured]{
		onAll(func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) error {
			last = *r
			last.Object, last.Old = r.Object.DeepCopy(), r.Old.DeepCopy()
			return nil
		}),
	}})
	s.widgets()
	beta := s.at("example.com", "v1beta1", "widgets").By("curl/8.1")
	made := s.ok(beta.Create(s.ctx, "default", nil, []byte(`{"apiVersion":"example.com/v1beta1","kind":"Widget","metadata":{"name":"a"},"spec":{"color":"red"}}`)))
	s.settle()
	got := s.ok(beta.Patch(s.ctx, "default", "a", "", merge, params("fieldManager=me"), []byte(`{"spec":{"size":1}}`)))
	want := registry.Attributes{
		Operation: registry.Update, Kind: runtimeschema.GroupVersionKind{Group: "example.com", Version: "v1beta1", Kind: "Widget"},
		Resource:  runtimeschema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "widgets"},
		Namespace: "default", Name: "a", FieldManager: "me", UserAgent: "curl/8.1", User: registry.Everyone,
		Options: &metav1.UpdateOptions{FieldManager: "me"},
	}
	last.Attributes.Course = nil
	if fmt.Sprint(last.Attributes) != fmt.Sprint(want) {
		t.Errorf("attributes %+v, want %+v", last.Attributes, want)
	}
	version := made.str("metadata.resourceVersion")
	for _, u := range []*unstructured.Unstructured{last.Old, last.Object} {
		if u.GetAPIVersion() != "example.com/v1beta1" || u.GetKind() != "Widget" || u.GetResourceVersion() != version || u.GetManagedFields() == nil {
			t.Errorf("a hook sees %v", u.Object)
		}
	}
	if got.get("metadata.managedFields") == nil {
		t.Errorf("managedFields are lost: %v", got)
	}
}

func TestAdmissionRefuses(t *testing.T) {
	conflict := apierrors.NewConflict(runtimeschema.GroupResource{Resource: "quotas"}, "q", errors.New("used up"))
	tests := []struct {
		name   string
		err    error
		code   int32
		reason metav1.StatusReason
		text   string
	}{
		{"an error", errors.New("no more of them"), 403, metav1.StatusReasonForbidden, `gadgets.go.example.com "a" is forbidden: no more of them`},
		{"a wrapped Status", fmt.Errorf("quota: %w", conflict), 409, metav1.StatusReasonConflict, "used up"},
		{"a Status 404", apierrors.NewNotFound(runtimeschema.GroupResource{Resource: "owners"}, "o"), 404, metav1.StatusReasonNotFound, `owners "o" not found`},
		{"a Status 409", apierrors.NewAlreadyExists(runtimeschema.GroupResource{Resource: "owners"}, "o"), 409, metav1.StatusReasonAlreadyExists, `owners "o" already exists`},
		{"a Status 500", apierrors.NewInternalError(errors.New("its disk is full")), 500, metav1.StatusReasonInternalError, "its disk is full"},
		{"no code", &apierrors.StatusError{}, 403, metav1.StatusReasonForbidden, `"a" is forbidden`},
	}
	var refusal error
	s := start(t, "", registry.Options{}, withGadgets(registry.Definition[Gadget]{Admission: []registry.Admission[Gadget]{
		onGadgets(func(context.Context, *registry.AdmissionRequest[Gadget]) error { return refusal }),
	}}))
	e := s.goGadgets()
	s.ok(e.Create(s.ctx, "default", nil, gadget("a", "")))
	before := s.current()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			refusal = test.err
			check := func(_ any, err error) {
				t.Helper()
				wantStatus(t, err, test.code, test.reason, test.text)
			}
			check(e.Create(s.ctx, "default", nil, gadget("a", "")))
			check(e.Create(s.ctx, "default", params("dryRun=All"), gadget("a", "")))
			check(e.Update(s.ctx, "default", "a", "", nil, []byte(`{"metadata":{"name":"a","resourceVersion":"`+before.String()+`"},"spec":{"size":1}}`)))
			check(e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":1}}`)))
			check(e.Patch(s.ctx, "default", "a", "status", merge, nil, []byte(`{"status":{"ready":true}}`)))
			check(e.Patch(s.ctx, "default", "a", "", apply, params("fieldManager=me&force=true"), gadget("a", `,"spec":{"size":1}`)))
			check(e.Delete(s.ctx, "default", "a", nil, nil))
			check(e.DeleteCollection(s.ctx, "default", nil, nil))
		})
	}
	if s.current() != before {
		t.Error("something that was refused was written")
	}
}

// TestAdmissionFails: what storage says to a hook is answered as what it says to a verb; what it says of some key isn't about
// the object. A Status is answered as it is, and any other error is the server's.
func TestAdmissionFails(t *testing.T) {
	tests := []struct {
		name string
		err  error
		code int32 // 0: no Status
	}{
		{"a full disk", fmt.Errorf("update %q: %w", "/a", storage.ErrNoSpace), 507},
		{"no answer", fmt.Errorf("read %q: %w", "/a", storage.ErrUnavailable), 503},
		{"no majority", fmt.Errorf("%w: %w", storage.ErrUnavailable, storage.ErrNoMajority), 503},
		{"an unknown outcome", fmt.Errorf("%w (%w)", storage.ErrUnavailable, storage.ErrUnknownOutcome), 504},
		{"another key is missing", fmt.Errorf("read %q: %w", "/a", storage.ErrNotFound), 0},
		{"another key exists", fmt.Errorf("create %q: %w", "/a", storage.ErrExists), 0},
		{"another key's conflict", fmt.Errorf("update %q: %w", "/a", storage.ErrConflict), 0},
		{"a Status", apierrors.NewServiceUnavailable("later"), 503},
		{"a mistake", errors.New("a mistake"), 0},
	}
	for _, stage := range []string{"Admit", "Validate"} {
		var hook failing
		s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{&hook}}, withGadgets(registry.Definition[Gadget]{}))
		e := s.goGadgets()
		s.ok(e.Create(s.ctx, "default", nil, gadget("a", "")))
		for _, test := range tests {
			t.Run(stage+"/"+test.name, func(t *testing.T) {
				hook = failing{stage, test.err}
				check := func(_ any, err error) {
					t.Helper()
					var status apierrors.APIStatus
					switch {
					case !errors.As(err, &status) && test.code == 0 && errors.Is(err, test.err):
					case !errors.As(err, &status) || status.Status().Code != test.code:
						t.Errorf("the answer is %v, want %d", err, test.code)
					}
				}
				check(e.Create(s.ctx, "default", nil, gadget("b", "")))
				check(e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":1}}`)))
				check(e.Patch(s.ctx, "default", "a", "", apply, params("fieldManager=me&force=true"), gadget("a", `,"spec":{"size":1}`)))
				check(e.Delete(s.ctx, "default", "a", nil, nil))
			})
		}
	}
}

// failing is a hook that can't judge.
type failing struct {
	in  string // one of its methods
	err error
}

func (f *failing) Admit(context.Context, *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
	if f.in == "Admit" {
		err = f.err
	}
	return pass, err
}

func (f *failing) Validate(context.Context, *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
	if f.in == "Validate" {
		err = f.err
	}
	return pass, err
}

// TestAdmissionRefusesApply: what a hook says of something else isn't taken for news of the object, which would make an
// apply try for ever.
func TestAdmissionRefusesApply(t *testing.T) {
	other := runtimeschema.GroupResource{Resource: "owners"}
	s := start(t, "", registry.Options{}, withGadgets(registry.Definition[Gadget]{Admission: []registry.Admission[Gadget]{
		onGadgets(func(_ context.Context, r *registry.AdmissionRequest[Gadget]) error {
			switch {
			case r.Operation == registry.Update:
				return apierrors.NewNotFound(other, "o")
			case r.Name != "a":
				return apierrors.NewAlreadyExists(other, "o")
			}
			return nil
		}),
	}}))
	e := s.goGadgets()
	s.ok(e.Create(s.ctx, "default", nil, gadget("a", "")))
	_, err := e.Patch(s.ctx, "default", "a", "", apply, params("fieldManager=me&force=true"), gadget("a", `,"spec":{"size":1}`))
	s.refused(err, 404, metav1.StatusReasonNotFound, "owners")
	_, err = e.Patch(s.ctx, "default", "b", "", apply, params("fieldManager=me&force=true"), gadget("b", `,"spec":{"size":1}`))
	s.refused(err, 409, metav1.StatusReasonAlreadyExists, "owners")
}

// TestAdmissionSeesStored: when somebody else writes while a hook thinks, it's asked again, with what the write
// then replaces.
func TestAdmissionSeesStored(t *testing.T) {
	var e *client
	var seen journal
	interfere, others := true, 0
	var ctx context.Context
	s := start(t, "", registry.Options{}, withGadgets(registry.Definition[Gadget]{Admission: []registry.Admission[Gadget]{
		onGadgets(func(_ context.Context, r *registry.AdmissionRequest[Gadget]) error {
			if r.UserAgent == "other" || r.Operation == registry.Create {
				return nil
			}
			old, now := r.Old.Spec.Size, int64(-1)
			if r.Object != nil {
				now = r.Object.Spec.Size
				r.Object.Labels = map[string]string{"old": fmt.Sprint(old)}
				r.Warn(fmt.Sprintf("was %d", old))
			}
			seen.add("%d->%d", old, now)
			if interfere {
				interfere, others = false, others+50
				if _, err := e.By("other").Patch(ctx, "default", "a", "", merge, nil, fmt.Appendf(nil, `{"spec":{"size":%d}}`, others)); err != nil {
					t.Error(err)
				}
			}
			return nil
		}),
	}}))
	e, ctx = s.goGadgets(), s.ctx
	s.ok(e.Create(s.ctx, "default", nil, gadget("a", `,"spec":{"size":1}`)))
	s.settle()
	res, err := e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"color":"red"}}`))
	got := s.ok(res, err)
	if got.get("metadata.labels.old") != "50" || got.get("spec.size") != "50" || got.get("spec.color") != "red" {
		t.Errorf("patched %v", got)
	}
	if calls := seen.take(); calls != "1->1, 50->50" {
		t.Errorf("asked about %s", calls)
	}
	if w := strings.Join(res.Warnings, " "); w != "was 50" {
		t.Errorf("warned %q", w)
	}
	interfere = true
	s.settle()
	s.ok(e.Delete(s.ctx, "default", "a", nil, nil))
	if calls := seen.take(); calls != "50->-1, 100->-1" {
		t.Errorf("asked about %s", calls)
	}
}

// quota is a hook with a type of its own.
type quota struct {
	change func(m metav1.Object)
}

func (q *quota) Admit(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
	if r.Object != nil && q.change != nil {
		q.change(r.Object)
	}
	return pass, nil
}

// TestTypesLeaveAlone: what only the server decides can't be changed by a type's functions, and what a hook leaves must be an object.
func TestTypesLeaveAlone(t *testing.T) {
	var q quota
	var defaults, prepare, validate func(g *Gadget)
	do := func(fn *func(g *Gadget), g *Gadget) {
		if *fn != nil {
			(*fn)(g)
		}
	}
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{&q}}, withGadgets(registry.Definition[Gadget]{
		Default: func(g *Gadget) { do(&defaults, g) },
		Prepare: func(g, _ *Gadget, _ string) { do(&prepare, g) },
		Validate: func(_ context.Context, g, _ *Gadget, _ string) field.ErrorList {
			do(&validate, g)
			return nil
		},
	}))
	e := s.goGadgets()
	now, w := metav1.Unix(1, 0), s.widgets()
	s.ok(e.Create(s.ctx, "default", nil, gadget("a", "")))
	s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
	before := s.current()
	for field, change := range map[string]func(m metav1.Object){
		"metadata.name":              func(m metav1.Object) { m.SetName("c") },
		"metadata.namespace":         func(m metav1.Object) { m.SetNamespace("kube-system") },
		"metadata.uid":               func(m metav1.Object) { m.SetUID("1") },
		"metadata.resourceVersion":   func(m metav1.Object) { m.SetResourceVersion("1") },
		"metadata.generation":        func(m metav1.Object) { m.SetGeneration(99) },
		"metadata.creationTimestamp": func(m metav1.Object) { m.SetCreationTimestamp(now) },
		"metadata.deletionTimestamp": func(m metav1.Object) { m.SetDeletionTimestamp(&now) },
	} {
		t.Run(field, func(t *testing.T) {
			for name, fn := range map[string]*func(*Gadget){"Default": &defaults, "Prepare": &prepare, "Validate": &validate} {
				*fn = func(g *Gadget) { change(g) }
				_, err := e.Create(s.ctx, "default", nil, gadget("b", ""))
				wantFailure(t, err, name, field)
				_, err = e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":7}}`))
				wantFailure(t, err, name, field)
				*fn = nil
			}
		})
	}
	for what, change := range map[string]func(u *unstructured.Unstructured){
		"can't be encoded":  func(u *unstructured.Unstructured) { u.Object["spec"] = math.NaN() },
		"can't be  encoded": func(u *unstructured.Unstructured) { u.Object["spec"] = make(chan int) },
	} {
		t.Run(what, func(t *testing.T) {
			q.change = func(m metav1.Object) { change(m.(*unstructured.Unstructured)) }
			_, err := w.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":7}}`))
			wantFailure(t, err, "admission", strings.ReplaceAll(what, "  ", " "))
			q.change = nil
		})
	}
	if s.current() != before {
		t.Error("something was written")
	}
}

// TestAdmissionDecidesNothing: what a hook makes of metadata is judged or dropped as what a client sends is, but for a new object's name.
func TestAdmissionDecidesNothing(t *testing.T) {
	var q quota
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{&q}}, withGadgets(registry.Definition[Gadget]{}))
	kinds := map[string]*client{"gadgets": s.goGadgets(), "widgets": s.widgets()}
	body := map[string]func(name, more string) []byte{"gadgets": gadget, "widgets": widget}
	for kind, e := range kinds {
		s.ok(e.Create(s.ctx, "default", nil, body[kind]("old", "")))
	}
	long := metav1.Unix(1, 0)
	tests := []struct {
		name           string
		change         func(m metav1.Object)
		create, update int32 // the codes of refusals; 0 for none
		says           string
	}{
		{"name", func(m metav1.Object) { m.SetName("renamed") }, 0, 422, "metadata.name"},
		{"no name", func(m metav1.Object) { m.SetName("") }, 422, 422, "metadata.name: Required value"},
		{"namespace", func(m metav1.Object) { m.SetNamespace("kube-system") }, 400, 400, "namespace"},
		{"uid", func(m metav1.Object) { m.SetUID("1") }, 0, 422, "metadata.uid"},
		{"resourceVersion", func(m metav1.Object) { m.SetResourceVersion("1") }, 500, 409, ""},
		{"generation", func(m metav1.Object) { m.SetGeneration(99) }, 0, 0, ""},
		{"creationTimestamp", func(m metav1.Object) { m.SetCreationTimestamp(long) }, 0, 0, ""},
		{"deletionTimestamp", func(m metav1.Object) { m.SetDeletionTimestamp(&long) }, 0, 422, "metadata.deletionTimestamp"},
		{"selfLink", func(m metav1.Object) { m.SetSelfLink("/a") }, 0, 0, ""},
		{"labels of numbers", func(m metav1.Object) {
			m.(*unstructured.Unstructured).Object["metadata"].(map[string]any)["labels"] = map[string]any{"a": int64(1)}
		}, 422, 422, "cannot convert int64 to string"},
	}
	for kind, e := range kinds {
		for _, test := range tests {
			if kind == "gadgets" && test.name == "labels of numbers" {
				continue // what doesn't fit a Go type is a failure of the hook
			}
			t.Run(test.name+" of "+kind, func(t *testing.T) {
				judge := func(err error, code int32) bool {
					t.Helper()
					if code != 0 {
						wantStatus(t, err, code, apierrors.ReasonForError(err), test.says)
					} else if err != nil {
						t.Fatal(err)
					}
					return code == 0
				}
				q.change = test.change
				defer func() { q.change = nil }()
				res, err := e.Create(s.ctx, "default", nil, body[kind]("new", ""))
				if judge(err, test.create) {
					made := parse(t, res.Object)
					if made.get("metadata.generation") != "1" || made.get("metadata.deletionTimestamp") != nil || made.str("metadata.uid") == "1" || made.get("metadata.selfLink") != nil {
						t.Errorf("created %v", made)
					}
					q.change = nil
					if _, err := e.Delete(s.ctx, "default", made.str("metadata.name"), nil, nil); err != nil {
						t.Fatal(err)
					}
				}
				q.change = test.change
				_, err = e.Patch(s.ctx, "default", "old", "", merge, nil, []byte(`{"spec":{"size":7}}`))
				judge(err, test.update)
			})
		}
	}
}

// TestAdmissionResult: what hooks make of custom resources has the schema's form, and only the part that the path
// is about.
func TestAdmissionResult(t *testing.T) {
	change := func(map[string]any) {}
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{
		onAll(func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) error {
			if r.Object != nil && r.Kind.Kind == "Gizmo" {
				change(r.Object.Object)
			}
			return nil
		}),
	}})
	s.ok(s.crds().Create(s.ctx, "", nil, []byte(`{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gizmos.example.com"},
		"spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "gizmos", "kind": "Gizmo"},
		"versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
		"schema": {"openAPIV3Schema": {"type": "object", "properties": {
			"spec": {"type": "object", "default": {}, "properties": {"size": {"type": "integer", "maximum": 10}, "color": {"type": "string", "default": "grey"}}},
			"status": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]}}`)))
	e := s.at("example.com", "v1", "gizmos")
	body := []byte(`{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"a"}}`)
	adds := true
	change = func(o map[string]any) {
		spec := o["spec"].(map[string]any)
		if spec["color"] != "grey" {
			t.Errorf("a hook sees %v, without defaults", o)
		}
		delete(spec, "color") // which is filled in again
		if adds {
			spec["unknown"] = true // which is pruned
		}
		spec["size"] = 3                         // an int, which isn't what decoding gives
		o["status"] = map[string]any{"size": 99} // which has its own path
		o["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "me"}}
	}
	got := s.ok(e.Create(s.ctx, "", nil, body))
	if got.get("spec.color") != "grey" || got.get("spec.size") != "3" || got.get("spec.unknown") != nil || got.get("status") != nil || got.get("metadata.managedFields") != nil {
		t.Errorf("created %v", got)
	}
	s.settle()
	adds = false // it would count as a change
	same := s.ok(e.Patch(s.ctx, "", "a", "", merge, nil, []byte(`{"spec":{"size":4}}`)))
	if same.str("metadata.resourceVersion") != got.str("metadata.resourceVersion") {
		t.Errorf("what a hook took back was written: %v", same)
	}
	got = s.ok(e.Patch(s.ctx, "", "a", "status", merge, nil, []byte(`{"status":{"size":1}}`)))
	if got.get("status.size") != "99" || got.get("spec.size") != "3" || got.get("metadata.generation") != "1" {
		t.Errorf("patched %v", got)
	}
	change = func(o map[string]any) { o["spec"] = map[string]any{"size": int64(11)} }
	_, err := e.Patch(s.ctx, "", "a", "", merge, nil, []byte(`{"spec":{"size":4}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "spec.size")
	// A hook may hold an object in place with a finalizer.
	change = func(o map[string]any) {
		o["metadata"].(map[string]any)["finalizers"] = []any{"example.com/kept"}
	}
	s.ok(e.Patch(s.ctx, "", "a", "", merge, nil, []byte(`{"spec":{"size":4}}`)))
	if got = s.ok(e.Delete(s.ctx, "", "a", nil, nil)); got.str("metadata.deletionTimestamp") == "" {
		t.Errorf("deleted %v", got)
	}
}

// TestAdmissionPanics: the request fails, and nothing else.
func TestAdmissionPanics(t *testing.T) {
	panics := ""
	fail := func(what string) {
		if what == panics {
			panic("of " + what)
		}
	}
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{
		onAll(func(context.Context, *registry.AdmissionRequest[unstructured.Unstructured]) error {
			fail("server")
			return nil
		}),
	}}, withGadgets(registry.Definition[Gadget]{
		Default:   func(*Gadget) { fail("Default") },
		Admission: []registry.Admission[Gadget]{onGadgets(func(context.Context, *registry.AdmissionRequest[Gadget]) error { fail("admission"); return nil })},
		Prepare:   func(_, _ *Gadget, _ string) { fail("Prepare") },
		Validate:  func(context.Context, *Gadget, *Gadget, string) field.ErrorList { fail("Validate"); return nil },
		Warnings:  func(context.Context, *Gadget, *Gadget, string) []string { fail("Warnings"); return nil },
		Deletion: registry.Deletion[*Gadget]{
			Deleting: func(*Gadget) { fail("Deleting") },
			Held:     func(*Gadget) bool { fail("Held"); return false },
		},
	}))
	e := s.goGadgets()
	s.ok(e.Create(s.ctx, "default", nil, gadget("a", "")))
	s.ok(e.Create(s.ctx, "default", nil, gadget("b", "")))
	writes := []string{"Default", "admission", "Prepare", "Validate", "Warnings", "server"}
	deletes := []string{"admission", "Deleting", "Held", "server"}
	for _, panics = range append(slices.Clone(writes), "Deleting", "Held") {
		if slices.Contains(writes, panics) {
			_, err := e.Create(s.ctx, "default", nil, gadget("c", ""))
			wantPanic(t, err, panics)
			_, err = e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(`{"spec":{"size":7}}`))
			wantPanic(t, err, panics)
		}
		if slices.Contains(deletes, panics) {
			_, err := e.Delete(s.ctx, "default", "a", nil, nil)
			wantPanic(t, err, panics)
			_, err = e.DeleteCollection(s.ctx, "default", nil, nil)
			wantPanic(t, err, panics)
		}
		if panics == "server" {
			_, err := s.crds().Create(s.ctx, "", nil, []byte(widgetCRD))
			wantPanic(t, err, panics)
		}
	}
	panics = ""
	s.widgets() // nobody else's turn is left taken
	if _, err := e.DeleteCollection(s.ctx, "default", nil, nil); err != nil {
		t.Error(err)
	}
	if got := names(s.list(e, "", nil)); got != "" {
		t.Errorf("%s are left", got)
	}
}

func wantPanic(t *testing.T, err error, of string) {
	t.Helper()
	var p *registry.PanicError
	if !errors.As(err, &p) || p.Cause != "of "+of || len(p.Stack) == 0 {
		t.Fatalf("got %v, want the panic of %s", err, of)
	}
}

// TestAdmissionOfUnreadable: what nobody can read can be deleted, whatever the hooks say.
func TestAdmissionOfUnreadable(t *testing.T) {
	no := errors.New("no")
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{
		onAll(func(context.Context, *registry.AdmissionRequest[unstructured.Unstructured]) error { return no }),
	}}, withGadgets(registry.Definition[Gadget]{}))
	e := s.goGadgets()
	key, err := e.Key("default", "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Store.Create(s.ctx, key, []byte("{not JSON")); err != nil {
		t.Fatal(err)
	}
	s.ok(e.Delete(s.ctx, "default", "a", url.Values{"ignoreStoreReadErrorWithClusterBreakingPotential": {"true"}}, nil))
}

// TestAdmissionConcurrently writes and deletes at once: no update is lost, though the hook takes part in it.
func TestAdmissionConcurrently(t *testing.T) {
	const writers, writes = 4, 10
	s := start(t, "", registry.Options{}, withGadgets(registry.Definition[Gadget]{Admission: []registry.Admission[Gadget]{
		onGadgets(func(_ context.Context, r *registry.AdmissionRequest[Gadget]) error {
			if r.Operation == registry.Update {
				r.Object.Spec.Size = r.Old.Spec.Size + 1
			}
			return nil
		}),
	}}))
	e := s.goGadgets()
	s.ok(e.Create(s.ctx, "default", nil, gadget("a", "")))
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range writes {
				patch := fmt.Sprintf(`{"metadata":{"labels":{"by":"%d-%d"}}}`, w, i)
				if _, err := e.Patch(s.ctx, "default", "a", "", merge, nil, []byte(patch)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := s.ok(e.Get(s.ctx, "default", "a", "", nil)).get("spec.size"); got != fmt.Sprint(writers*writes) {
		t.Errorf("counted %v, want %d", got, writers*writes)
	}
}
