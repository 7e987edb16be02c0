package registry

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// fuzzEndpoint is a custom resource that isn't stored anywhere.
func fuzzEndpoint() *Endpoint {
	res := &resource{group: "example.com", plural: "widgets", storageVersion: "v1", namespaced: true, registry: &Registry{}}
	e := &Endpoint{Group: "example.com", Version: "v1", Kind: "Widget", Plural: "widgets", Namespaced: true, Subresources: []string{status}, res: res}
	e.view = &cacher.View{APIVersion: "example.com/v1", Kind: "Widget"}
	e.shown, e.managers, res.stored = e.wholeForm(e.view), newManagers(e), e
	return e
}

const fuzzKey = "/registry/example.com/widgets/default/a"

// stable encodes an accepted object, and fails unless it reads back as the same and is shown as valid JSON.
func stable(t *testing.T, e *Endpoint, o *object) {
	t.Helper()
	raw, err := e.encode(context.Background(), o)
	if err != nil {
		if code := wantAny(t, err).Code; code != 413 && code != 400 {
			t.Fatalf("encode: %v", err)
		}
		return
	}
	again, err := decodeStored(raw)
	if err != nil {
		t.Fatalf("what was stored doesn't decode: %v\n%s", err, raw)
	}
	raw2, err := e.encode(context.Background(), again)
	if err != nil || string(raw) != string(raw2) {
		t.Fatalf("not canonical: %v\n%s\n%s", err, raw, raw2)
	}
	stored := cacher.NewObject(fuzzKey, raw, 7)
	if stored.Err != nil {
		t.Fatalf("the cache can't read what was stored: %v\n%s", stored.Err, raw)
	}
	if shown := appendObject(e.view, stored); !json.Valid(shown) {
		t.Fatalf("shown as invalid JSON: %s", shown)
	}
	if !sameContent(o, again, "") {
		t.Fatalf("changed by storing: %v\n%v", o.content, again.content)
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
		var tree any
		if document(body, &tree) == nil {
			d := decoder{writeOptions: writeOptions{validation: metav1.FieldValidationWarn}}
			want, err := kjson.UnmarshalStrict(body, &tree, kjson.DisallowDuplicateFields)
			if got := d.repeated(body, tree); err != nil || len(got) != len(want) {
				t.Fatalf("fields given twice: %v, the strict decoder finds %v, %v", got, want, err)
			}
		}
		for _, mode := range []string{metav1.FieldValidationStrict, metav1.FieldValidationWarn, metav1.FieldValidationIgnore} {
			d := decoder{endpoint: e, writeOptions: writeOptions{validation: mode}}
			o, err := d.object(body)
			if err != nil {
				wellRefused(t, err)
				continue
			}
			if err := e.placeIn(o, "default"); err != nil {
				wellRefused(t, err)
				continue
			}
			o.dropRepeatedOwners()
			if err := e.invalid(o.meta.Name, e.validateNew(o)...); err != nil {
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
	old := cacher.NewObject(fuzzKey, []byte(fuzzPatched), 7)
	prev, err := decodeStored(old.Raw())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, patch []byte) {
		d := decoder{endpoint: e, writeOptions: writeOptions{validation: metav1.FieldValidationWarn}}
		apply, err := d.patch(kind, main, patch)
		if err != nil {
			wellRefused(t, err)
			return
		}
		body, err := apply(appendObject(e.view, old))
		if err != nil {
			wellRefused(t, err)
			return
		}
		in, err := d.object(body)
		if err == nil {
			err = e.checkNamed(in, "default", "a")
		}
		if err == nil {
			err = e.checkPrecondition(old, prev, in)
		}
		if err != nil {
			wellRefused(t, err)
			return
		}
		c, err := e.revise(t.Context(), &d, old, in, main)
		if err != nil {
			wellRefused(t, err)
			return
		}
		o, err := decodeStored(c.raw)
		if err != nil {
			t.Fatal(err)
		}
		if o.meta.Name != "a" || o.meta.Namespace != "default" || o.meta.UID != "u" || !o.meta.CreationTimestamp.Equal(&prev.meta.CreationTimestamp) {
			t.Fatalf("a patch changed what it may not: %s", c.raw)
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
		`[]`, `[null]`, `{}`, `[{"op":"add","path":"/spec/a","value":{"b":[1]}}]`, `[{"op":"remove","path":"/spec/list/1"}]`,
		`[{"op":"replace","path":"","value":[]}]`, `[{"op":"replace","path":"","value":null}]`, `[{"op":"test","path":"","value":{}}]`,
		`[{"op":"copy","from":"","path":"/spec/self"}]`, `[{"op":"move","from":"/spec","path":"/spec/in"}]`,
		`[{"op":"add","path":"/spec/list/-","value":1},{"op":"add","path":"/spec/list/99","value":1}]`,
		`[{"op":"add","path":"/spec/list/-1","value":1}]`, `[{"op":"test","path":"/spec/list/-9","value":null}]`,
		`[{"op":"replace","path":"/spec/text","value":null},{"op":"test","path":"/spec/text","value":null},{"op":"remove","path":"/spec/text/x"}]`,
		`[{"op":"add","path":"/a~1b~0/c","value":1}]`, `[{"op":"copy","from":"/spec","path":"/spec/list/0"}]`)
}
