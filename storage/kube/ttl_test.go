package kube

import "testing"

func TestLife(t *testing.T) {
	for _, tc := range []struct {
		name, metadata string
		hasTTL         bool
		want           Life
	}{
		{"nothing", `{"name":"a"}`, false, Life{}},
		{"a ttl", `{"annotations":{"a":"b","apiserver-lite/ttl":"1h","c":{}},"creationTimestamp":"2026-01-02T03:04:05Z"}`, true, Life{"1h", "2026-01-02T03:04:05Z"}},
		{"other annotations", `{"annotations":{"apiserver-lite/ttl2":"1h"}}`, false, Life{}},
		{"a label", `{"labels":{"apiserver-lite/ttl":"1h"}}`, false, Life{}},
		{"no text", `{"annotations":{"apiserver-lite/ttl":5},"creationTimestamp":null}`, true, Life{}},
		{"no annotations", `{"annotations":[{"apiserver-lite/ttl":"1h"}]}`, false, Life{}},
		{"deeper", `{"x":{"annotations":{"apiserver-lite/ttl":"1h"}}}`, false, Life{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := NewObject("/registry/g/r/a", []byte(`{"apiVersion":"g/v1","kind":"R","metadata":`+tc.metadata+`}`), 1)
			if o.Err != nil || o.HasTTL() != tc.hasTTL || o.Life() != tc.want {
				t.Errorf("%v, %t, %+v", o.Err, o.HasTTL(), o.Life())
			}
		})
	}
	broken := NewObject("/registry/g/r/a", []byte(`{"metadata":{"annotations":{"apiserver-lite/ttl":"1h"}}`), 1)
	if broken.Err == nil || broken.Life() != (Life{}) {
		t.Errorf("%v, %+v", broken.Err, broken.Life())
	}
}
