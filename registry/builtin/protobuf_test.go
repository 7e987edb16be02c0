package builtin_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// message is what each kind's Go type can do.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// TestProtobufRoundTrip takes an object of each built-in kind and version, with all fields filled, through protobuf: what is
// sent so is stored as what is sent as JSON, and each answer says what the one as JSON says.
func TestProtobufRoundTrip(t *testing.T) {
	s := servertest.New(t, all, uncounted)
	for _, line := range builtin.Lines() {
		t.Run(strings.ReplaceAll(apiVersion(line)+" "+line.Kind, "/", "."), func(t *testing.T) {
			if !stored(line) || servers(line) {
				return // see TestBindings and TestComponents
			}
			body := withType(t, line, filled(t, line))
			sent := line.New()
			if err := json.Unmarshal([]byte(body), sent); err != nil {
				t.Fatal(err)
			}
			if line.Unstored.Answer != nil {
				asJSON := parse(t, must(t, s, http.MethodPost, collection(line), body, http.StatusCreated))
				compare(t, "the answer", asJSON, answered(t, line, send(t, s, http.MethodPost, collection(line), line, sent)))
				return
			}
			created := answered(t, line, send(t, s, http.MethodPost, collection(line), line, sent))
			path := collection(line) + "/" + str(at(created, "metadata.name"))
			if line.Status {
				full := sent
				*full.GetObjectMeta().(*metav1.ObjectMeta) = metaOf(t, created)
				created = answered(t, line, send(t, s, http.MethodPut, path+"/status", line, full))
			}
			stored := parse(t, must(t, s, http.MethodGet, path, "", http.StatusOK))
			compare(t, "stored", normalized(t, line, body), stored)
			identical(t, "the answer to the write", stored, created)
			identical(t, "the answer to a get", stored, answered(t, line, must(t, s, http.MethodGet, path, "", http.StatusOK, "Accept", protobufType)))
			identical(t, "the item", stored, item(t, line, stored, must(t, s, http.MethodGet, collection(line), "", http.StatusOK, "Accept", protobufType)))
			identical(t, "the event's object", stored, answered(t, line, event(t, s, collection(line)+"?watch=true&fieldSelector=metadata.name="+str(at(stored, "metadata.name")))))
			must(t, s, http.MethodPatch, path, `{"metadata":{"finalizers":null}}`, http.StatusOK, "Content-Type", "application/merge-patch+json", "Accept", protobufType)
			must(t, s, http.MethodDelete, path, "", http.StatusOK, "Accept", protobufType)
		})
	}
}

// send writes an object as protobuf.
func send(t *testing.T, s *servertest.Server, method, path string, line registry.Type, obj registry.Typed) string {
	t.Helper()
	m, ok := obj.(message)
	if !ok {
		t.Fatalf("%T has no protobuf form", obj)
	}
	raw, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	body := kubeproto.TypeOf(apiVersion(line), line.Kind).Append(nil, raw)
	res, text := s.Do(method, path, string(body), "Content-Type", protobufType, "Accept", protobufType)
	if res.StatusCode >= 300 || res.Header.Get("Content-Type") != protobufType {
		t.Fatalf("%s %s: %s %q", method, path, res.Status, text)
	}
	return text
}

// answered decodes an answer, as JSON would have it.
func answered(t *testing.T, line registry.Type, text string) map[string]any {
	t.Helper()
	e, err := kubeproto.Open([]byte(text))
	if err != nil {
		t.Fatalf("the answer %v", err)
	}
	if e.APIVersion != apiVersion(line) || e.Kind != line.Kind {
		t.Fatalf("the answer is %s %s", e.APIVersion, e.Kind)
	}
	return decoded(t, line, e.Message)
}

func decoded(t *testing.T, line registry.Type, raw []byte) map[string]any {
	t.Helper()
	obj := line.New()
	if err := obj.(message).Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	if set, ok := obj.(*appsv1.StatefulSet); ok { // messages don't say of what kind an object inside another is
		for i := range set.Spec.VolumeClaimTemplates {
			set.Spec.VolumeClaimTemplates[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		}
	}
	return parse(t, withType(t, line, obj))
}

// identical compares two objects with their metadata.
func identical(t *testing.T, what string, want, got map[string]any) {
	t.Helper()
	for _, problem := range differences("", want, got) {
		t.Errorf("%s: %s", what, problem)
	}
}

// item finds an object in a list.
func item(t *testing.T, line registry.Type, like map[string]any, list string) map[string]any {
	t.Helper()
	e, err := kubeproto.Open([]byte(list))
	if err != nil {
		t.Fatalf("the list %v", err)
	}
	const items = 2
	for rest := e.Message; len(rest) > 0; {
		number, typ, n := protowire.ConsumeTag(rest)
		content, m := protowire.ConsumeBytes(rest[max(n, 0):])
		if n < 0 || m < 0 || typ != protowire.BytesType {
			t.Fatalf("the list is malformed: %q", list)
		}
		if rest = rest[n+m:]; number == items {
			if obj := decoded(t, line, content); at(obj, "metadata.name") == at(like, "metadata.name") {
				return obj
			}
		}
	}
	t.Fatal("it isn't in the list")
	return nil
}

// event returns the object of a watch's first event.
func event(t *testing.T, s *servertest.Server, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", protobufType)
	res, err := s.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var size [4]byte
	if _, err := io.ReadFull(res.Body, size[:]); err != nil {
		t.Fatalf("%s: %v", res.Status, err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(res.Body, frame); err != nil {
		t.Fatal(err)
	}
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame); err != nil || e.Type != "ADDED" {
		t.Fatalf("the event is %s, %v", e.Type, err)
	}
	return string(e.Object.Raw)
}

func metaOf(t *testing.T, obj map[string]any) (m metav1.ObjectMeta) {
	t.Helper()
	raw, err := json.Marshal(obj["metadata"])
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}
