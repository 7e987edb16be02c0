package jsontree

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"
)

// TestInto: what runtime makes of a tree, and of trees with one value that doesn't fit, Into makes, too.
func TestInto(t *testing.T) {
	now := metav1.Now()
	full := &oddities{
		Embedded: Embedded{Inner: "in"}, NoTag: "n", Map: map[Name]*int32{"a": ptr.To[int32](1), "b": nil}, Bytes: []byte{0, 255}, Any: "x", Small: 7, Float: 1.5,
		Minus: 2, Zero: 3, Time: now, Never: &now, Raw: runtime.RawExtension{Raw: []byte(`{"a":[1]}`)}, Quantity: resource.MustParse("1500m"),
		Port: intstr.FromString("http"), List: []oddities{{NoTag: "first"}}, Again: &oddities{Nil: []string{"x"}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "a"}, CreationTimestamp: now, DeletionTimestamp: &now},
		Spec: corev1.PodSpec{NodeName: "n", Priority: ptr.To[int32](1), Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}, LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}}}}},
	}
	for name, v := range map[string]any{"oddities": full, "a pod": pod, "an event": &corev1.Event{EventTime: metav1.NowMicro(), Series: &corev1.EventSeries{}}, "a secret": &corev1.Secret{Data: map[string][]byte{"a": []byte("b"), "c": nil}}, "embeds a pointer": &pointing{Other: "o"}} {
		t.Run(name, func(t *testing.T) {
			tree, err := OfValue(v)
			if err != nil {
				t.Fatal(err)
			}
			check := func(what string) {
				t.Helper()
				want, got := reflect.New(reflect.TypeOf(v).Elem()).Interface(), reflect.New(reflect.TypeOf(v).Elem()).Interface()
				wantErr, err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, want), Into(tree, got)
				if fmt.Sprint(err) != fmt.Sprint(wantErr) || err == nil && !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got\n%+v, %v, want\n%+v, %v", what, got, err, want, wantErr)
				}
				// What fits is what a strict decoder of the JSON takes, and takes for the same.
				text, err := Append(nil, tree)
				if err != nil {
					t.Fatal(err)
				}
				want, got = reflect.New(reflect.TypeOf(v).Elem()).Interface(), reflect.New(reflect.TypeOf(v).Elem()).Interface()
				complaints, wantErr := kjson.UnmarshalStrict(text, want, kjson.DisallowUnknownFields)
				sent, _, err := Decode(text)
				if err != nil {
					t.Fatal(err)
				}
				if Fits(sent.(map[string]any), got) && (wantErr != nil || len(complaints) > 0 || !equality.Semantic.DeepEqual(got, want)) {
					t.Errorf("%s fits: got\n%+v, want\n%+v, %v %v", what, got, want, complaints, wantErr)
				}
			}
			check("as it is")
			if _, ok := v.(runtime.Object); ok && !Fits(tree, reflect.New(reflect.TypeOf(v).Elem()).Interface()) {
				t.Error("it doesn't fit its own type")
			}
			eachPlace(tree, "", func(at string, set func(any)) {
				for _, other := range []any{nil, "", "x", "1", int64(1), int64(1) << 40, 1.5, 2.0, true, []any{}, []any{nil}, []any(nil), []any{"x"}, map[string]any{}, map[string]any(nil), map[string]any{"x": nil}} {
					set(other)
					check(fmt.Sprintf("%s is %#v", at, other))
				}
			})
		})
	}
}

// eachPlace calls f for each value in a tree, with what sets another one there; afterwards it's what it was.
func eachPlace(tree any, at string, f func(at string, set func(any))) {
	switch tree := tree.(type) {
	case map[string]any:
		for name, was := range tree {
			f(at+"."+name, func(v any) { tree[name] = v })
			tree[name] = was
			eachPlace(was, at+"."+name, f)
		}
	case []any:
		for i, was := range tree {
			f(fmt.Sprintf("%s[%d]", at, i), func(v any) { tree[i] = v })
			tree[i] = was
			eachPlace(was, fmt.Sprintf("%s[%d]", at, i), f)
		}
	}
}

func BenchmarkInto(b *testing.B) {
	tree, err := OfValue(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, into := range map[string]func(map[string]any, any) error{"ours": Into, "runtime": runtime.DefaultUnstructuredConverter.FromUnstructured} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := into(tree, &corev1.Pod{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
