package writes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/crd"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/schema"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// fuzzEndpoint is a custom resource that isn't stored anywhere.
func fuzzEndpoint() *registry.Endpoint {
	res := &registry.Resource{Group: "example.com", Plural: "widgets", Namespaced: true, Registry: &registry.Registry{}}
	e := &registry.Endpoint{Names: registry.Names{Group: "example.com", Version: "v1", Kind: "Widget", Plural: "widgets"}, Namespaced: true, Subresources: []string{registry.AtStatus}, Res: res}
	e.View = &kube.View{APIVersion: "example.com/v1", Kind: "Widget"}
	e.Whole, e.Forms, e.Managers, res.Storage = form.NewWhole(e.View, e.View, e.ListKind), form.New(nil), registry.NewManagers(e), e
	return e
}

const fuzzKey = "/registry/example.com/widgets/default/a"

// fuzzWrite is a write of widget a, in one of the modes of fieldValidation.
func fuzzWrite(e *registry.Endpoint, validation string) *write {
	return &write{Writer: Of(e), Target: registry.Target{Namespace: "default", Name: "a"}, writeOptions: writeOptions{validation: validation, manager: "m"}}
}

// stable encodes an accepted object, and fails unless it reads back as the same and is shown as valid JSON.
func stable(t *testing.T, e *registry.Endpoint, o *object.Object) {
	t.Helper()
	raw, err := e.Encode(context.Background(), o)
	if err != nil {
		if code := wantAny(t, err).Code; code != 413 && code != 400 {
			t.Fatalf("encode: %v", err)
		}
		return
	}
	again, err := object.DecodeStored(raw)
	if err != nil {
		t.Fatalf("what was stored doesn't decode: %v\n%s", err, raw)
	}
	raw2, err := e.Encode(context.Background(), again)
	if err != nil || string(raw) != string(raw2) {
		t.Fatalf("not canonical: %v\n%s\n%s", err, raw, raw2)
	}
	stored := kube.NewObject(fuzzKey, raw, 7)
	if stored.Err != nil {
		t.Fatalf("the cache can't read what was stored: %v\n%s", stored.Err, raw)
	}
	if shown := e.View.Append(nil, stored); !json.Valid(shown) {
		t.Fatalf("shown as invalid JSON: %s", shown)
	}
	if !object.SameContent(o, again, "") {
		t.Fatalf("changed by storing: %v\n%v", o.Content, again.Content)
	}
}

// wellRefused fails unless an error is a Status with a client's code and of bounded size.
func wellRefused(t *testing.T, err error) {
	t.Helper()
	status := wantAny(t, err)
	if status.Code < 400 || status.Code >= 500 {
		t.Fatalf("refused with %d: %s", status.Code, status.Message)
	}
	if b, err := json.Marshal(status); err != nil || len(b) > 256<<10 {
		t.Fatalf("a Status of %d bytes, %v", len(b), err)
	}
}

// unfit tells whether an apply is refused for a configuration that doesn't fit the schema, which has kube-apiserver's code.
func unfit(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && strings.HasPrefix(status.Status().Message, "failed to create typed patch object")
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		string(widget("a", `,"spec":{"size":1,"f":1.50,"e":1e3,"big":9223372036854775808}`)),
		string(widget("a", `,"spec":{"a":1,"a":2},"status":null`)),
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"a":null},"finalizers":["x/y"],"ownerReferences":[{"uid":"1"},{"uid":"1"}]}}`,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2001-01-01T00:00:00.5+07:00","managedFields":[{"fieldsV1":{"f:a":{}}}]}}`,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":[]}`, `{"kind":1}`, `[]`, `null`, ``, "\xff", `{"a":"\ud800"}`, `{"":{"<&>":"\u2028"}}`,
		strings.Repeat(`{"a":`, 10_001),
	} {
		f.Add([]byte(s))
	}
	e := fuzzEndpoint()
	f.Fuzz(func(t *testing.T, body []byte) {
		if doc, err := object.Parse(body); err == nil {
			var tree any
			want, err := kjson.UnmarshalStrict(body, &tree, kjson.DisallowDuplicateFields)
			if got := doc.Repeated(); err != nil || len(got) != len(want) {
				t.Fatalf("fields given twice: %v, the strict decoder finds %v, %v", got, want, err)
			}
		}
		for _, mode := range []string{metav1.FieldValidationStrict, metav1.FieldValidationWarn, metav1.FieldValidationIgnore} {
			o, err := fuzzWrite(e, mode).read(body)
			if err != nil {
				wellRefused(t, err)
				continue
			}
			if err := placeIn(o, "default"); err != nil {
				wellRefused(t, err)
				continue
			}
			o.DropRepeatedOwners(false)
			if err := e.Invalid(o.Meta.Name, Of(e).validateMeta(o, nil)...); err != nil {
				wellRefused(t, err)
				continue
			}
			stable(t, e, o)
		}
	})
}

// fuzzPatched is the object that patches are tried on.
const fuzzPatched = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2001-01-01T00:00:00Z","generation":1,` +
	`"labels":{"a":"b"},"name":"a","namespace":"default","uid":"u"},"spec":{"list":[1,{"a":2},[3]],"size":1,"text":"x"},"status":{"ok":true}}`

func fuzzPatch(f *testing.F, kind types.PatchType, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	e := fuzzEndpoint()
	old := kube.NewObject(fuzzKey, []byte(fuzzPatched), 7)
	prev, err := object.DecodeStored(old.Raw())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, patch []byte) {
		w := fuzzWrite(e, metav1.FieldValidationWarn)
		w.patches = true
		apply, err := w.patch(kind, patch)
		if err != nil {
			wellRefused(t, err)
			return
		}
		made, err := apply(e.View.Append(nil, old))
		if err != nil {
			wellRefused(t, err)
			return
		}
		in, err := w.readPatched(made, func() []byte { return made.Text })
		if err == nil {
			err = w.checkUID(in, prev)
		}
		if err != nil {
			wellRefused(t, err)
			return
		}
		c, err := nextOf(t.Context(), w, old, in)
		if err != nil {
			wellRefused(t, err)
			return
		}
		o, err := object.DecodeStored(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if o.Meta.Name != "a" || o.Meta.Namespace != "default" || o.Meta.UID != "u" || !o.Meta.CreationTimestamp.Equal(&prev.Meta.CreationTimestamp) {
			t.Fatalf("a patch changed what it may not: %s", c.value)
		}
		stable(t, e, o)
	})
}

func FuzzMergePatch(f *testing.F) {
	fuzzPatch(f, types.MergePatchType,
		`{}`, `{"spec":{"size":2}}`, `{"spec":null}`, `{"metadata":null}`, `{"metadata":{"name":null}}`, `{"spec":{"list":null,"a":{"b":null}}}`,
		`null`, `[]`, `"x"`, `{"spec":{"a":1,"a":2}}`, `{"a":1e400}`, `{"spec":`+strings.Repeat(`{"a":`, 300)+`1`+strings.Repeat(`}`, 301))
}

func FuzzJSONPatch(f *testing.F) {
	fuzzPatch(f, types.JSONPatchType,
		`[]`, `[null]`, `{}`, `null`, `"x"`, `[{"op":"add","path":"/spec/a","value":{"b":[1]}}]`, `[{"op":"remove","path":"/spec/list/1"}]`,
		`[{"op":"replace","path":"","value":[]}]`, `[{"op":"replace","path":"","value":null}]`, `[{"op":"test","path":"","value":{}}]`,
		`[{"op":"copy","from":"","path":"/spec/self"}]`, `[{"op":"move","from":"/spec","path":"/spec/in"}]`,
		`[{"op":"add","path":"/spec/list/-","value":1},{"op":"add","path":"/spec/list/99","value":1}]`,
		`[{"op":"add","path":"/spec/list/-1","value":1}]`, `[{"op":"test","path":"/spec/list/-9","value":null}]`,
		`[{"op":"replace","path":"/spec/text","value":null},{"op":"test","path":"/spec/text","value":null},{"op":"remove","path":"/spec/text/x"}]`,
		`[{"op":"add","path":"/a~1b~0/c","value":1}]`, `[{"op":"copy","from":"/spec","path":"/spec/list/0"}]`)
}

// schemaEndpoint is fuzzEndpoint with a schema, of gizmoCRD's first version.
func schemaEndpoint(f *testing.F) *registry.Endpoint {
	var def crd.Definition
	if err := json.Unmarshal([]byte(strings.ReplaceAll(gizmoCRD, "Gizmo", "Widget")), &def); err != nil {
		f.Fatal(err)
	}
	e := fuzzEndpoint()
	e.Schema, e.Scale = schema.New(def.Spec.Versions[0].Schema.OpenAPIV3Schema), def.Spec.Versions[0].Subresources.Scale
	e.Res.Versions = []*registry.Endpoint{e}
	e.Managers = registry.NewManagers(e)
	return e
}

// fuzzShaped is an object that fits the schema, and has been applied.
const fuzzShaped = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2001-01-01T00:00:00Z","generation":1,"managedFields":[` +
	`{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:ports":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:port":{}}},"f:replicas":{}}},"manager":"m","operation":"Apply","time":"2001-01-01T00:00:00Z"},` +
	`{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:size":{}}},"manager":"n","operation":"Update","time":"2001-01-01T00:00:00Z"}],` +
	`"name":"a","namespace":"default","uid":"u"},"spec":{"ports":[{"name":"a","port":1},{"name":"b"}],"replicas":2,"size":"S"},"status":{"phase":"x"}}`

// valid fails unless what a write would store is stable and, read back, fits the schema.
func valid(t *testing.T, e *registry.Endpoint, raw []byte) *object.Object {
	t.Helper()
	o, err := object.DecodeStored(raw)
	if err != nil {
		t.Fatal(err)
	}
	stable(t, e, o)
	w := &write{Writer: Of(e)}
	errs := w.validate(t.Context(), o, nil, w.validateMeta(o, nil))
	if len(errs) > 0 {
		t.Fatalf("what was accepted isn't valid: %v\n%s", errs, raw)
	}
	return o
}

// FuzzApply applies configurations: what is accepted is valid, and applying it again changes nothing.
func FuzzApply(f *testing.F) {
	for _, more := range []string{
		``, `,"spec":{}`, `,"spec":null`, `,"spec":{"size":"L"}`, `,"spec":{"size":"S","ports":[{"name":"a","port":2},{"name":"c"}]}`, `,"spec":{"ports":[{"name":"a"},{"name":"a"}]}`,
		`,"spec":{"ports":[{}]}`, `,"spec":{"ports":null,"replicas":null}`, `,"spec":{"replicas":11}`, `,"spec":{"replicas":1e30}`, `,"spec":{"fixed":"x"}`, `,"spec":{"x":1}`,
		`,"spec":[]`, `,"status":{"phase":"y","replicas":-1}`, `,"spec":{"size":"L","size":"S"}`,
	} {
		for _, force := range []bool{false, true} {
			f.Add(widget("a", more), force, false)
			f.Add(widget("a", more), force, true)
		}
	}
	f.Add([]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","managedFields":[{}],"labels":{"a":null}}}`), true, false)
	f.Add([]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","finalizers":["x.y/z"],"ownerReferences":[{"uid":"1"}],"annotations":{"a":"b"}}}`), true, false)
	e := schemaEndpoint(f)
	f.Fuzz(func(t *testing.T, body []byte, force, ofStatus bool) {
		w := fuzzWrite(e, metav1.FieldValidationWarn)
		w.force, w.Subresource = force, map[bool]string{true: registry.AtStatus}[ofStatus]
		wanted, err := w.readConfiguration(body)
		if err != nil {
			wellRefused(t, err)
			return
		}
		old := kube.NewObject(fuzzKey, []byte(fuzzShaped), 7)
		c, err := applied(t.Context(), w, old, wanted)
		if unfit(err) {
			return
		}
		if err != nil {
			wellRefused(t, err)
			return
		}
		o := valid(t, e, c.value)
		if o.Meta.Name != "a" || o.Meta.Namespace != "default" || o.Meta.UID != "u" || ofStatus && fmt.Sprint(o.Content["spec"]) != fmt.Sprint(valid(t, e, old.Raw()).Content["spec"]) {
			t.Fatalf("an apply changed what it may not: %s", c.value)
		}
		if object.Map(wanted["metadata"])["resourceVersion"] != nil {
			return // it's another one now
		}
		again, err := applied(t.Context(), w, kube.NewObject(fuzzKey, c.value, 8), wanted)
		if err != nil || string(again.value) != string(c.value) {
			t.Fatalf("applied again: %v\n%s\nwas\n%s", err, again.value, c.value)
		}
	})
}

// FuzzShapedPatch patches an object that has a schema: what is accepted is valid.
func FuzzShapedPatch(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"spec":null}`, `{"spec":{"size":null}}`, `{"spec":{"size":"XL"}}`, `{"spec":{"ports":[{"name":"a"},{"name":"a"}]}}`, `{"spec":{"replicas":11}}`, `{"spec":{"replicas":"x","x":1}}`,
		`{"status":{"phase":1}}`, `{"spec":{"replicas":9223372036854775808}}`, `{"metadata":{"managedFields":[{}]}}`, `{"metadata":{"managedFields":[{"manager":"x","operation":"Update","fieldsV1":{"f:a":1}}]}}`,
		`[{"op":"remove","path":"/spec/ports/0/name"}]`, `[{"op":"copy","from":"/spec/ports/0","path":"/spec/ports/-"}]`, `[{"op":"replace","path":"/spec","value":[]}]`, `[{"op":"add","path":"/status/replicas","value":-1}]`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	e := schemaEndpoint(f)
	f.Fuzz(func(t *testing.T, patch []byte, ofStatus bool) {
		w := fuzzWrite(e, metav1.FieldValidationWarn)
		w.manager, w.Subresource = "p", map[bool]string{true: registry.AtStatus}[ofStatus]
		kind := types.MergePatchType
		if strings.HasPrefix(string(patch), "[") {
			kind = types.JSONPatchType
		}
		old := kube.NewObject(fuzzKey, []byte(fuzzShaped), 7)
		apply, err := w.patch(kind, patch)
		var made patched
		if err == nil {
			made, err = apply(e.View.Append(nil, old))
		}
		var in *object.Object
		if err == nil {
			in, err = w.readNamed(made.Text)
		}
		var c outcome
		if err == nil {
			c, err = nextOf(t.Context(), w, old, in)
		}
		if err != nil {
			wellRefused(t, err)
			return
		}
		valid(t, e, c.value)
	})
}

// FuzzProtobuf looks for bodies of protobuf that panic, or are stored as something that can't be read back.
func FuzzProtobuf(f *testing.F) {
	kind := registry.Type{
		Names: registry.Names{Group: "pods.example.com", Version: "v1", Kind: "Pod"}, Status: true,
		New:     func() registry.Typed { return &corev1.Pod{} },
		Default: func(registry.Typed) {},
	}
	lease := registry.Type{
		Names: registry.Names{Group: "leases.example.com", Version: "v1", Kind: "Lease"},
		New:   func() registry.Typed { return &coordinationv1.Lease{} },
	}
	var endpoints []*registry.Endpoint
	for _, t := range []registry.Type{kind, lease} {
		r := registry.New(registry.Options{Cacher: cacher.New(nil, cacher.Options{})})
		r.Add(t)
		endpoints = append(endpoints, r.Catalog().Kind(t.Group+"/v1", t.Kind))
	}
	pod, err := benchPod("a").Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(kubeproto.TypeOf("pods.example.com/v1", "Pod").Append(nil, pod))
	f.Add(kubeproto.TypeOf("", "").Append(nil, []byte("\x0a\x03\x0a\x01a\x12\x0b\x0a\x01b\x22\x06\x08\xff\xff\xff\xff\x0f")))
	f.Add([]byte("k8s\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, e := range endpoints {
			r := &registry.Request{}
			if Of(e).OpenProtobuf(r, body) != nil {
				return
			}
			w := fuzzWrite(e, metav1.FieldValidationWarn)
			w.message, w.targetKey, w.shown = r.Message, "", e.Messages
			o, err := w.readNew(nil)
			if err != nil {
				continue
			}
			e.Written.Take(nil) // somebody watches
			_, raw, err := w.finish(context.Background(), o, nil)
			if err != nil {
				continue
			}
			stored := kube.NewObject(fuzzKey, raw, 7)
			if stored.Err != nil {
				t.Fatalf("%q is stored as %s: %v", body, raw, stored.Err)
			}
			watched := e.Written.Take(raw)
			if _, err := e.Show(context.Background(), e.Messages.Single, stored); err != nil {
				t.Fatalf("%s can't be shown as protobuf: %v", raw, err)
			}
			if w.made == nil {
				continue
			}
			answer, err := w.answerMade(stored)
			read, _ := e.Show(context.Background(), e.Messages.Single, kube.NewObject(fuzzKey, raw, 7))
			if string(watched) != string(w.made) {
				t.Fatalf("watchers are shown %q, and the client %q", watched, w.made)
			}
			if err != nil || string(answer.Object) != string(read) {
				t.Fatalf("the answer is %q (%v), and a get %q", answer.Object, err, read)
			}
		}
	})
}

// nextOf is what becomes of a stored object by what a client sent.
func nextOf(ctx context.Context, w *write, old *kube.Object, in *object.Object) (outcome, error) {
	return w.loaded(ctx, func(prev *object.Object) (outcome, error) { return w.nextFrom(ctx, prev, in) })(old)
}

// applied is what becomes of it by a configuration.
func applied(ctx context.Context, w *write, old *kube.Object, wanted map[string]any) (outcome, error) {
	return w.loaded(ctx, func(prev *object.Object) (outcome, error) { return w.applyTo(ctx, prev, wanted) })(old)
}
