package object

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reading and writing metadata by hand comes to what apimachinery's converter does.
func FuzzMetadata(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"name":"a","namespace":"b","generateName":"c-","uid":"u","resourceVersion":"7","generation":3}`,
		`{"creationTimestamp":"2026-01-02T03:04:05Z","deletionTimestamp":"2026-01-02T03:04:05+02:00","deletionGracePeriodSeconds":0}`,
		`{"labels":{"a":"b","":""},"annotations":{},"finalizers":["x/y"]}`, `{"labels":null}`, `{"labels":{"a":null}}`, `{"finalizers":[null]}`,
		`{"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u","controller":true}]}`, `{"selfLink":"x"}`, `{"name":1}`, `{"generation":1.5}`,
		`{"creationTimestamp":null}`, `{"creationTimestamp":""}`, `{"creationTimestamp":"0001-01-01T00:00:00Z"}`, `{"nmae":"x"}`,
		`{"creationTimestamp":"2026-01-02T03:04:05.999999Z"}`, `{"deletionTimestamp":"0001-01-01T00:00:00Z"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := ParseTree(data)
		if err != nil {
			return
		}
		var got, want metav1.ObjectMeta
		if !plainMeta(tree, &got) {
			return
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, &want, true); err != nil {
			t.Fatalf("the converter refuses it: %v", err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("read\n%#v, want\n%#v", got, want)
		}
		wantTree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
		if err != nil {
			t.Fatal(err)
		}
		if gotTree, err := metaTree(&got); err != nil || !reflect.DeepEqual(gotTree, wantTree) {
			t.Fatalf("written %v, %v, want %v", gotTree, err, wantTree)
		}
	})
}
