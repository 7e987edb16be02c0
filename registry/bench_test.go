package registry

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// kilobyte is a widget of about a kilobyte.
func kilobyte(name, more string) []byte {
	var spec []string
	for i := range 20 {
		spec = append(spec, fmt.Sprintf(`"field%02d":{"name":"value-%02d","n":%d}`, i, i, i))
	}
	return []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","labels":{"app":"a","tier":"b"}` + more + `},"spec":{` + strings.Join(spec, ",") + `}}`)
}

// What a create costs before etcd: one decode, the rules, one encode.
func BenchmarkAdmitCreate(b *testing.B) {
	e := fuzzEndpoint()
	body := kilobyte("a", "")
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		d := decoder{endpoint: e, mode: metav1.FieldValidationWarn}
		o, err := d.object(body)
		if err != nil {
			b.Fatal(err)
		}
		if err := e.placeIn(o, "default"); err != nil {
			b.Fatal(err)
		}
		if err := e.initMeta(o); err != nil {
			b.Fatal(err)
		}
		if _, err := e.validNew(context.Background(), o); err != nil {
			b.Fatal(err)
		}
	}
}

// What an update costs before etcd: both objects are decoded.
func BenchmarkAdmitUpdate(b *testing.B) {
	e := fuzzEndpoint()
	d := decoder{endpoint: e, mode: metav1.FieldValidationWarn}
	o, err := d.object(kilobyte("a", `,"uid":"u","namespace":"default"`))
	if err != nil {
		b.Fatal(err)
	}
	raw, err := e.encode(o)
	if err != nil {
		b.Fatal(err)
	}
	old := cacher.NewObject(fuzzKey, raw, 7)
	body := kilobyte("a", `,"uid":"u","namespace":"default","resourceVersion":"7","annotations":{"x":"y"}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		in, err := d.object(body)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.revise(context.Background(), old, in, main); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	s := start(b, "", Options{})
	w := s.widgets()
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := w.Create(ctx, "default", nil, kilobyte(fmt.Sprintf("w%d", i), "")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDefinition(b *testing.B) {
	s := start(b, "", Options{})
	crds := s.crds()
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		plural := fmt.Sprintf("things%d", i)
		if _, err := crds.Create(ctx, "", nil, crdOf(b, plural, strings.ToUpper(plural[:1])+plural[1:])); err != nil {
			b.Fatal(err)
		}
	}
}
