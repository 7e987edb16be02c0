package jsontree

import (
	"math"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Embedded is in values as if its fields were theirs.
type Embedded struct {
	Inner string `json:"inner"`
	Named string `json:"named,omitempty"`
}

// oddities has what types of Kubernetes don't all have.
type oddities struct {
	Embedded `json:",inline"`
	NoTag    string
	Skipped  string               `json:"-"`
	Nil      []string             `json:"nil"`
	Empty    []string             `json:"empty,omitempty"`
	NoMap    map[string]int       `json:"noMap"`
	Map      map[Name]*int32      `json:"map"`
	Bytes    []byte               `json:"bytes"`
	NoBytes  []byte               `json:"noBytes"`
	Any      any                  `json:"any"`
	Nothing  any                  `json:"nothing"`
	Small    uint8                `json:"small"`
	Large    uint64               `json:"large,omitempty"`
	Float    float32              `json:"float"`
	Minus    float64              `json:"minus,omitempty"`
	Zero     time.Duration        `json:"zero,omitzero"`
	Time     metav1.Time          `json:"time,omitempty"`
	Never    *metav1.Time         `json:"never"`
	Raw      runtime.RawExtension `json:"raw"`
	Again    *oddities            `json:"again,omitempty"`
	List     []oddities           `json:"list,omitempty"`
	Quantity resource.Quantity    `json:"quantity"`
	Port     intstr.IntOrString   `json:"port"`
	Struct   struct{}             `json:"struct,omitempty"`
}

// Name is a kind of text.
type Name string

// pointing embeds a pointer, which runtime has to see to.
type pointing struct {
	*Embedded
	Other string `json:"other"`
}

// encoded writes itself.
type encoded struct{ metav1.Time }

// samples are values of which trees are made.
func samples() map[string]any {
	full := &oddities{
		Embedded: Embedded{Inner: "in", Named: "x"}, NoTag: "n", Skipped: "s", Map: map[Name]*int32{"a": ptr.To[int32](1), "b": nil},
		Bytes: []byte{0, 255}, Any: map[string]any{"x": []any{int64(1), "y", Name("z")}}, Small: 7, Large: math.MaxInt64, Float: 1.5,
		Minus: math.Copysign(0, -1), Zero: 3, Time: metav1.NewTime(time.Unix(1, 0)), Raw: runtime.RawExtension{Raw: []byte(`{"a":[1,2.5,null]}`)},
		Quantity: resource.MustParse("1500m"), Port: intstr.FromString("http"),
	}
	full.Again = &oddities{Port: intstr.FromInt32(80), Any: &Embedded{Inner: "deep"}}
	full.List = []oddities{{NoTag: "first"}, {}}
	return map[string]any{
		"zero": &oddities{}, "full": full, "embedded pointer": &pointing{Embedded: &Embedded{Inner: "in"}, Other: "o"}, "no embedded pointer": &pointing{},
		"a list that embeds pointers": &struct {
			List []pointing `json:"list"`
		}{[]pointing{{}, {Embedded: &Embedded{Inner: "in"}}}},
		"too large": &oddities{Large: math.MaxInt64 + 1}, "no JSON": &struct{ F func() }{func() {}}, "no pointer": oddities{}, "nil": (*oddities)(nil), "writes itself": &encoded{},
		"a schema": &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"x"`)}}}},
		"an event": &corev1.Event{EventTime: metav1.NewMicroTime(time.Unix(1, 2345678)), Series: &corev1.EventSeries{}},
		"a pod": &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}}}},
	}
}

func TestOfValue(t *testing.T) {
	for name, v := range samples() {
		t.Run(name, func(t *testing.T) {
			want, wantErr := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
			got, err := OfValue(v)
			if !reflect.DeepEqual(got, want) || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
				t.Errorf("got  %v, %v\nwant %v, %v", got, err, want, wantErr)
			}
			delete(want, "inner")
			if got, _ := OfValue(v, "inner"); !reflect.DeepEqual(got, want) {
				t.Errorf("without a member: got %v, want %v", got, want)
			}
		})
	}
}

func BenchmarkOfValue(b *testing.B) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}}},
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = OfValue(pod, "metadata")
		}
	})
	b.Run("runtime", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		}
	})
}
