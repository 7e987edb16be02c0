package schema

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// fuzzed returns the schemas in a fixed order, with their oracles.
func fuzzed(f *testing.F) (all []*Schema, oracles []*Oracle) {
	byName := Schemas(f)
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		all, oracles = append(all, New(byName[name])), append(oracles, NewOracle(f, byName[name]))
	}
	for i := range all {
		f.Add(i, []byte(`{}`), []byte(`{"spec":{}}`))
		f.Add(i, []byte(`{"spec":{"a":1,"set":[1,1]},"status":{"n":null}}`), []byte(`{"spec":null}`))
		f.Add(i, []byte(`{"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","none":1}},"any":{"a":2},"x":"http"}`), []byte(`{}`))
		f.Add(i, []byte(`{"i":5.0,"m":9223372036854775807,"n":1e308,"i32":-2147483649,"s":"\u00e4","z":null}`), []byte(`{"i":1}`))
		f.Add(i, []byte(`{"apiVersion":"a/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"frozen":"a","map":{"k":7}}}`), []byte(`{"spec":{"frozen":"b"}}`))
	}
	return all, oracles
}

func decode(data []byte) (object map[string]any) {
	if kjson.UnmarshalCaseSensitivePreserveInts(data, &object) != nil {
		return nil
	}
	return object
}

// FuzzShapeValidate has arbitrary objects: nothing panics, shaping twice is shaping once, an object that was
// accepted is accepted when it's read back, also as an update of itself, and the verdict is upstream's.
func FuzzShapeValidate(f *testing.F) {
	all, oracles := fuzzed(f)
	f.Fuzz(func(t *testing.T, which int, data, oldData []byte) {
		which = int(uint(which) % uint(len(all)))
		s := all[which]
		object, old := decode(data), decode(oldData)
		if object == nil || old == nil {
			return
		}
		if _, err := s.ShapeReporting(object); err != nil {
			return
		}
		if err := s.Shape(old); err != nil {
			return
		}
		again := runtime.DeepCopyJSON(object)
		if unknown, err := s.ShapeReporting(again); err != nil || len(unknown) > 0 || !reflect.DeepEqual(object, again) {
			t.Fatalf("shaped again, %s is %s (unknown %q, %v)", text(t, object), text(t, again), unknown, err)
		}
		errs := s.Validate(t.Context(), object, nil, Found{})
		sameErrors(t, "create", object, nil, errs, oracles[which].Validate(t, object, nil))
		sameErrors(t, "update", object, old, s.Validate(t.Context(), object, old, Found{}), oracles[which].Validate(t, object, old))
		if len(errs) > 0 {
			return
		}
		back := decode([]byte(text(t, object)))
		if unknown, err := s.ShapeReporting(back); err != nil || len(unknown) > 0 {
			t.Fatalf("read back, %s has unknown fields %q (%v)", text(t, object), unknown, err)
		}
		if errs := s.Validate(t.Context(), back, nil, Found{}); len(errs) > 0 {
			t.Fatalf("read back, %s is refused: %v", text(t, object), errs)
		}
	})
}

// FuzzQuick holds quick to accepting nothing that upstream refuses.
func FuzzQuick(f *testing.F) {
	all, oracles := fuzzed(f)
	f.Fuzz(func(t *testing.T, which int, data, _ []byte) {
		which = int(uint(which) % uint(len(all)))
		object := decode(data)
		v, err := all[which].compiledValues()
		if err != nil || object == nil || !v.quick.accepts(object) {
			return
		}
		if errs := validation.ValidateCustomResource(nil, object, oracles[which].Values); len(errs) > 0 {
			t.Errorf("quick accepts %s, upstream says %v", data, errs)
		}
	})
}
