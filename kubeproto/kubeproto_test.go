package kubeproto_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
)

var configMapType = kubeproto.TypeOf("v1", "ConfigMap")

// configMap returns an object with n bytes of data at a version, "" for none.
func configMap(name, version string, n int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: "u", ResourceVersion: version, Generation: 3, Labels: map[string]string{"a": "b"},
			CreationTimestamp: metav1.Unix(1_700_000_000, 0), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Data: map[string]string{"key": strings.Repeat("x", n)},
	}
}

// encode is what apimachinery's serializer makes of an object.
func encode(t testing.TB, obj runtime.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(obj, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func split(t testing.TB, m interface{ Marshal() ([]byte, error) }) kubeproto.Message {
	t.Helper()
	raw, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	message, err := kubeproto.Split(raw)
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// TestSameAsUpstream: objects, lists and events have the bytes that apimachinery's serializers write, whatever the lengths are.
func TestSameAsUpstream(t *testing.T) {
	for _, c := range []struct {
		name string
		rev  int64
		data int
	}{
		{"small", 7, 1},
		{"without a revision", 0, 1},
		{"metadata passes 127 bytes with its version", 1_234_567_890_123_456_789, 30},
		{"large", 99_999, 300},
		{"larger", 100_000, 20_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			version := ""
			if c.rev > 0 {
				version = fmt.Sprint(c.rev)
			}
			for name := range 128 { // every length of metadata about where its own length gets a byte more
				obj := configMap(strings.Repeat("n", name), version, c.data)
				want := encode(t, obj)
				m := split(t, configMap(strings.Repeat("n", name), "", c.data))
				if got := m.AppendObject(nil, configMapType, c.rev); !bytes.Equal(got, want) || len(got) != m.ObjectSize(configMapType, c.rev) {
					t.Fatalf("an object with a name of %d bytes is\n%q, want\n%q", name, got, want)
				}
				event := metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: want}}
				raw, err := event.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				framed := append([]byte{byte(len(raw) >> 24), byte(len(raw) >> 16), byte(len(raw) >> 8), byte(len(raw))}, raw...)
				if got := m.AppendEvent([]byte("-"), configMapType, "MODIFIED", c.rev)[1:]; !bytes.Equal(got, framed) || len(got) != m.EventSize(configMapType, "MODIFIED", c.rev) {
					t.Fatalf("an event with a name of %d bytes is\n%q, want\n%q", name, got, framed)
				}
			}
		})
	}
}

func TestLists(t *testing.T) {
	remaining := int64(300)
	for _, c := range []struct {
		name  string
		head  kubeproto.List
		items int
	}{
		{"empty", kubeproto.List{Revision: 5}, 0},
		{"some", kubeproto.List{Revision: 12345}, 3},
		{"a page", kubeproto.List{Revision: 12345, Continue: "token", Remaining: int(remaining)}, 200},
		{"a shard", kubeproto.List{Revision: 5, Shard: "shardRange(object.metadata.uid, ...)"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
			want.ResourceVersion, want.Continue = fmt.Sprint(c.head.Revision), c.head.Continue
			if c.head.Remaining > 0 {
				want.RemainingItemCount = &remaining
			}
			if c.head.Shard != "" {
				want.ShardInfo = &metav1.ShardInfo{Selector: c.head.Shard}
			}
			size := 0
			var items []byte
			for i := range c.items {
				name, rev := fmt.Sprint("cm", i), int64(90+i)
				want.Items = append(want.Items, *configMap(name, fmt.Sprint(rev), i))
				m := split(t, configMap(name, "", i))
				size += m.ItemSize(rev)
				items = m.AppendItem(items, rev)
			}
			if len(items) != size {
				t.Errorf("the items take %d bytes, want %d", len(items), size)
			}
			got := kubeproto.AppendListTail(append(c.head.AppendHead(nil, kubeproto.TypeOf("v1", "ConfigMapList"), size), items...))
			if want := encode(t, want); !bytes.Equal(got, want) {
				t.Errorf("got\n%q, want\n%q", got, want)
			}
		})
	}
}

// event reads a frame as a client does.
func event(t *testing.T, frame []byte) (typ string, object []byte) {
	t.Helper()
	if n := kubeproto.CountFrames(frame); n != 1 {
		t.Fatalf("%d frames in %q", n, frame)
	}
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame[4:]); err != nil {
		t.Fatal(err)
	}
	return e.Type, e.Object.Raw
}

func TestBookmark(t *testing.T) {
	for _, annotation := range []string{"", metav1.InitialEventsAnnotationKey} {
		typ, raw := event(t, kubeproto.AppendBookmark(nil, configMapType, 42, annotation))
		e, err := kubeproto.Open(raw)
		if err != nil {
			t.Fatal(err)
		}
		var got corev1.ConfigMap
		if err := got.Unmarshal(e.Message); err != nil {
			t.Fatal(err)
		}
		if typ != "BOOKMARK" || e.Kind != "ConfigMap" || got.ResourceVersion != "42" || (annotation != "") != (got.Annotations[annotation] == "true") {
			t.Errorf("%s of %s: %+v", typ, e.Kind, got)
		}
	}
}

func TestFailure(t *testing.T) {
	typ, raw := event(t, kubeproto.AppendError(nil, kubeproto.Failure(410, "Expired", "too old")))
	want := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Message: "too old", Reason: "Expired", Code: 410}
	e, err := kubeproto.Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	var got metav1.Status
	if err := got.Unmarshal(e.Message); err != nil {
		t.Fatal(err)
	}
	got.TypeMeta = metav1.TypeMeta{APIVersion: e.APIVersion, Kind: e.Kind}
	if typ != "ERROR" || got.String() != want.String() {
		t.Errorf("%s with %+v, want %+v", typ, got, want)
	}
}

func TestOpen(t *testing.T) {
	whole := string(encode(t, configMap("a", "", 3)))
	for _, c := range []struct{ name, body, want string }{
		{"empty", "", "must begin with k8s and a zero byte"},
		{"JSON", `{"kind":"ConfigMap"}`, "must begin with k8s and a zero byte"},
		{"nothing after the prefix", "k8s\x00", "is cut: a runtime.Unknown"},
		{"no message", "k8s\x00\n\x00", "is cut: a runtime.Unknown"},
		{"cut in the message", whole[:len(whole)-9], "is cut, or has bytes after its end"},
		{"cut in the type", whole[:9], "is cut, or has bytes after its end"},
		{"zeros after it", whole + "\x00\x00", "is cut, or has bytes after its end"},
		{"text after it", whole + "xyz", "bytes after its end"},
		{"another body after it", whole + whole, "bytes after its end"},
		{"a second message", whole + "\x12\x00", "bytes after its end"},
		{"a type that is none", "k8s\x00\n\x02\xff\xff\x12\x00", "its first field must be a runtime.TypeMeta"},
		{"compressed", "k8s\x00\x12\x00\x1a\x04gzip", "contentEncoding must be empty"},
		{"JSON in it", "k8s\x00\x12\x02{}\x22\x10application/json", "contentType empty or application/vnd.kubernetes.protobuf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := kubeproto.Open([]byte(c.body))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one with %q", err, c.want)
			}
		})
	}
	for _, body := range []string{whole, "k8s\x00\x12\x00", "k8s\x00\x12\x00\x1a\x00\x22\x23application/vnd.kubernetes.protobuf"} {
		if _, err := kubeproto.Open([]byte(body)); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestSplitRefuses(t *testing.T) {
	for _, c := range []struct{ name, message string }{
		{"nothing", ""},
		{"no metadata first", "\x12\x00"},
		{"metadata that is cut", "\x0a\x05\x32\x00"},
		{"metadata without a version", "\x0a\x02\x0a\x00"},
		{"a version already", "\x0a\x03\x32\x017"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := kubeproto.Split([]byte(c.message)); err == nil {
				t.Error("it's taken")
			}
		})
	}
}

func TestMeasure(t *testing.T) {
	nested := func(n int) (m []byte) {
		for range n {
			m = append(append([]byte{0x0a}, varint(len(m))...), m...)
		}
		return m
	}
	for _, c := range []struct {
		name    string
		message []byte
		most    int
		want    int
	}{
		{"empty", nil, 10, 1},
		{"flat", []byte("\x08\x01\x10\x02"), 10, 1},
		{"three", nested(3), 10, 3},
		{"as many as may be", nested(10), 10, 10},
		{"too many", nested(5000), 10, 11},
		{"a text", append([]byte{0x0a, 4}, "text"...), 10, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _ := kubeproto.Measure(c.message, c.most); got != c.want {
				t.Errorf("%d levels, want %d", got, c.want)
			}
		})
	}
}

func varint(n int) (b []byte) {
	for ; n > 127; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

// FuzzOpen: whatever comes is refused or read as apimachinery reads it, and what Split takes it gives back.
func FuzzOpen(f *testing.F) {
	f.Add(encode(f, configMap("a", "", 3)))
	f.Add([]byte("k8s\x00\x12\x00"))
	f.Add([]byte("k8s\x00\n\x06\n\x02v1\x12\x00\x12\x04\x0a\x02\x32\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := kubeproto.Open(body)
		if err != nil {
			return
		}
		var want runtime.Unknown
		if err := want.Unmarshal(body[4:]); err != nil || !bytes.Equal(want.Raw, e.Message) || want.APIVersion != e.APIVersion || want.Kind != e.Kind {
			t.Errorf("%q is %+v, and for apimachinery %+v (%v)", body, e, want, err)
		}
		kubeproto.Measure(e.Message, 100)
		if m, err := kubeproto.Split(e.Message); err == nil {
			if got := m.Append(nil, 1234); len(got) != m.Size(1234) {
				t.Errorf("%d bytes, want %d", len(got), m.Size(1234))
			}
		}
	})
}
