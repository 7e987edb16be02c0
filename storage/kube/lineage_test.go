package kube

import (
	"fmt"
	"reflect"
	"testing"
)

func TestLineage(t *testing.T) {
	const object = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":%s,"spec":{"ownerReferences":[{"uid":"no"}]}}`
	for _, c := range []struct {
		name, metadata string
		owned          bool
		want           Lineage
	}{
		{"nobody's", `{"name":"a","uid":"u"}`, false, Lineage{UID: "u"}},
		{"one owner", `{"name":"a","ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Thing","name":"b","uid":"v"}],"uid":"u"}`,
			true, Lineage{UID: "u", Owners: []Owner{{"v1", "Thing", "b", "v", true}}}},
		{"several, with spaces", ` { "ownerReferences" : [ { "uid" : "v" , "name":"b" } , {"uid":"w","blockOwnerDeletion":false} ] , "uid" : "u" } `,
			true, Lineage{UID: "u", Owners: []Owner{{Name: "b", UID: "v"}, {UID: "w"}}}},
		{"finalizers", `{"finalizers":["a/b","orphan"],"uid":"u"}`, false, Lineage{UID: "u", Finalizers: []string{"a/b", "orphan"}}},
		{"labels of these names", `{"labels":{"uid":"x","finalizers":"y"},"uid":"u"}`, false, Lineage{UID: "u"}},
		{"managedFields of these names", `{"managedFields":[{"fieldsV1":{"f:metadata":{"f:ownerReferences":{"ownerReferences":[]}}}}],"uid":"u"}`, false, Lineage{UID: "u"}},
		{"empty lists", `{"finalizers":[],"ownerReferences":[ ],"uid":"u"}`, true, Lineage{UID: "u"}},
		{"null", `{"finalizers":null,"ownerReferences":null,"uid":null}`, true, Lineage{}},
		{"wrong types", `{"finalizers":{"a":1},"ownerReferences":[7,{"uid":7,"blockOwnerDeletion":"true"}],"uid":["u"]}`, true, Lineage{Owners: []Owner{{}, {}}}},
		{"escapes", `{"ownerReferences":[{"name":"a\u0022b","uid":"v\\"}],"uid":"\u0075"}`, true, Lineage{UID: "u", Owners: []Owner{{Name: `a"b`, UID: `v\`}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := NewObject(widgetKey, fmt.Appendf(nil, object, c.metadata), 7)
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if got := o.Lineage(); !reflect.DeepEqual(got, c.want) || o.Owned() != c.owned {
				t.Errorf("lineage is %+v (owned: %v), want %+v (%v)", got, o.Owned(), c.want, c.owned)
			}
		})
	}
	if l := NewObject(widgetKey, []byte("x"), 7).Lineage(); !reflect.DeepEqual(l, Lineage{}) {
		t.Errorf("lineage of what isn't an object is %+v", l)
	}
}

// A lineage is read with each event of an object that has owners.
func BenchmarkLineage(b *testing.B) {
	o := NewObject(widgetKey, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generateName":"web-","labels":{"app":"web","tier":"front"},`+
		`"name":"web-x2x4c","namespace":"default","ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web","uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}],`+
		`"uid":"6ba7b811-9dad-11d1-80b4-00c04fd430c8"},"spec":{}}`), 7)
	b.ReportAllocs()
	for b.Loop() {
		if len(o.Lineage().Owners) != 1 {
			b.Fatal("no owner")
		}
	}
}
