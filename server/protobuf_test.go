package server_test

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// The tests of protobuf use Kubernetes' Pod as a Go type of a program's own.
const (
	podsPath      = "/apis/pods.example.com/v1/namespaces/default/pods"
	protobufType  = "application/vnd.kubernetes.protobuf"
	partialsProto = protobufType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	partialProto  = protobufType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

func newPods(t testing.TB) *servertest.Server {
	s := servertest.New(t, func(s *server.Server) {
		s.API.Register = func(r *registry.Registry) {
			registry.Register(r, registry.Definition[corev1.Pod]{
				Group: "pods.example.com", Version: "v1", Kind: "Pod", Status: true,
				Default: func(p *corev1.Pod) { p.Spec.DNSPolicy = cmp.Or(p.Spec.DNSPolicy, corev1.DNSClusterFirst) },
			})
		}
	})
	s.Quiescent() // nothing of the start is written any more: two reads of a test, one after the other, see the same revision
	return s
}

// aPod is about as large as an ordinary one.
func aPod(name string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "pods.example.com/v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "web", "tier": "front"}, Finalizers: nil},
		Spec: corev1.PodSpec{
			NodeName: "node-1", ServiceAccountName: "default", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/web:1.2.3", Command: []string{"/bin/web", "--port=8080"},
				Env:   []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
				Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
				}},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	for i := range 12 {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", i), Value: strings.Repeat("v", 20)})
	}
	return p
}

// protobufMessage is what generated types can do.
type protobufMessage interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// asProtobuf is an object as a client sends it.
func asProtobuf(t testing.TB, obj protobufMessage) string {
	t.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	apiVersion, kind := obj.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return string(kubeproto.TypeOf(apiVersion, kind).Append(nil, raw))
}

// fromProtobuf reads what a client is sent, and fails the test if it isn't of the kind that obj says.
func fromProtobuf[P protobufMessage](t testing.TB, body string, obj P) P {
	t.Helper()
	want := obj.GetObjectKind().GroupVersionKind()
	e, err := kubeproto.Open([]byte(body))
	if err != nil {
		t.Fatalf("the answer %s: %q", err, body)
	}
	if gv := want.GroupVersion().String(); e.APIVersion != gv || e.Kind != want.Kind {
		t.Fatalf("the answer is %s %s, want %s %s", e.APIVersion, e.Kind, gv, want.Kind)
	}
	if err := obj.Unmarshal(e.Message); err != nil {
		t.Fatal(err)
	}
	return obj
}

func emptyPod() *corev1.Pod {
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "pods.example.com/v1", Kind: "Pod"}}
}

func failureStatus() *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}}
}

// sameObject fails the test if two objects differ.
func sameObject(t testing.TB, what string, got, want any) {
	t.Helper()
	if !equality.Semantic.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("%s is\n%s\nwant\n%s", what, g, w)
	}
}

// TestProtobufObjects: each verb on one object, with bodies and answers as protobuf, gives what JSON gives.
func TestProtobufObjects(t *testing.T) {
	t.Parallel()
	s := newPods(t)
	send := func(method, path, body string, code int) string {
		t.Helper()
		res, answer := s.Do(method, path, body, "Content-Type", protobufType, "Accept", protobufType+", application/json")
		if res.StatusCode != code || res.Header.Get("Content-Type") != protobufType {
			t.Fatalf("%s %s: %s, %s: %q", method, path, res.Status, res.Header.Get("Content-Type"), answer)
		}
		return answer
	}
	asJSON := func() *corev1.Pod {
		t.Helper()
		pod := decode[corev1.Pod](t, s.Get(podsPath+"/a"))
		return &pod
	}
	dry := fromProtobuf(t, send("POST", podsPath+"?dryRun=All", asProtobuf(t, aPod("a")), 201), emptyPod())
	if dry.ResourceVersion != "" || dry.UID == "" {
		t.Errorf("a dry run shows %+v", dry.ObjectMeta)
	}
	created := fromProtobuf(t, send("POST", podsPath, asProtobuf(t, aPod("a")), 201), emptyPod())
	sameObject(t, "the created object", created, asJSON())
	want := aPod("a").Spec
	want.DNSPolicy = corev1.DNSClusterFirst
	sameObject(t, "its spec", created.Spec, want)
	sameObject(t, "the object", fromProtobuf(t, send("GET", podsPath+"/a", "", 200), emptyPod()), created)

	changed := created.DeepCopy()
	changed.Labels["app"] = "db"
	updated := fromProtobuf(t, send("PUT", podsPath+"/a", asProtobuf(t, changed), 200), emptyPod())
	sameObject(t, "the updated object", updated, asJSON())
	if updated.Labels["app"] != "db" || updated.ResourceVersion == created.ResourceVersion {
		t.Errorf("the update shows %+v", updated.ObjectMeta)
	}
	updated.Status.Phase = corev1.PodRunning
	sameObject(t, "the status", fromProtobuf(t, send("PUT", podsPath+"/a/status", asProtobuf(t, updated), 200), emptyPod()).Status, updated.Status)
	res, answer := s.Do("PATCH", podsPath+"/a", `{"metadata":{"finalizers":["example.com/hold"]}}`, "Content-Type", "application/merge-patch+json", "Accept", protobufType)
	if res.StatusCode != 200 {
		t.Fatalf("%s: %q", res.Status, answer)
	}
	sameObject(t, "the patched object", fromProtobuf(t, answer, emptyPod()), asJSON())
	conflict := fromProtobuf(t, send("PUT", podsPath+"/a", asProtobuf(t, changed), 409), failureStatus())
	if conflict.Reason != metav1.StatusReasonConflict || conflict.Details == nil || conflict.Details.Name != "a" {
		t.Errorf("the conflict is %+v", conflict)
	}

	options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	options.Preconditions = metav1.NewUIDPreconditions("another")
	fromProtobuf(t, send("DELETE", podsPath+"/a", asProtobuf(t, options), 409), failureStatus())
	options.Preconditions = nil
	held := fromProtobuf(t, send("DELETE", podsPath+"/a", asProtobuf(t, options), 200), emptyPod())
	sameObject(t, "the object that a finalizer holds", held, asJSON())
	held.Finalizers = nil
	send("PUT", podsPath+"/a", asProtobuf(t, held), 200)
	fromProtobuf(t, send("GET", podsPath+"/a", "", 404), failureStatus())
	fromProtobuf(t, send("POST", podsPath, asProtobuf(t, aPod("b")), 201), emptyPod())
	if gone := fromProtobuf(t, send("DELETE", podsPath+"/b", "", 200), failureStatus()); gone.Status != metav1.StatusSuccess || gone.Details.Name != "b" {
		t.Errorf("a deletion is answered with %+v", gone)
	}
}

// TestProtobufUnchanged: an object's tag is another one than that of its JSON, and spares the client the answer.
func TestProtobufUnchanged(t *testing.T) {
	t.Parallel()
	s := newPods(t)
	s.PostYAML(podsPath, string(encodeObject(t, aPod("a"))))
	res, _ := s.Do("GET", podsPath+"/a", "", "Accept", protobufType)
	tag := res.Header.Get("ETag")
	if again, body := s.Do("GET", podsPath+"/a", "", "Accept", protobufType, "If-None-Match", tag); again.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("%s: %q", again.Status, body)
	}
	if asJSON, _ := s.Do("GET", podsPath+"/a", "", "If-None-Match", tag); asJSON.StatusCode != http.StatusOK || asJSON.Header.Get("ETag") == tag {
		t.Errorf("%s with the tag %s as JSON, %s as protobuf", asJSON.Status, asJSON.Header.Get("ETag"), tag)
	}
}

func encodeObject(t testing.TB, obj any) []byte {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestProtobufLists: lists, pages, what a deletion of a collection answers, and lists of metadata.
func TestProtobufLists(t *testing.T) {
	t.Parallel()
	s := newPods(t)
	emptyList := func() *corev1.PodList {
		return &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "pods.example.com/v1", Kind: "PodList"}}
	}
	get := func(path string) *corev1.PodList {
		t.Helper()
		res, body := s.Do("GET", path, "", "Accept", protobufType)
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != protobufType {
			t.Fatalf("%s: %q", res.Status, body)
		}
		got, want := fromProtobuf(t, body, emptyList()), decode[corev1.PodList](t, s.Get(path))
		for i := range want.Items {
			want.Items[i].TypeMeta = metav1.TypeMeta{}
		}
		sameObject(t, path, got, &want)
		return got
	}
	if n := len(get(podsPath).Items); n != 0 {
		t.Errorf("%d objects, want none", n)
	}
	for i := range 7 {
		s.PostYAML(podsPath, string(encodeObject(t, aPod(fmt.Sprint("p", i)))))
	}
	if n := len(get(podsPath).Items); n != 7 {
		t.Errorf("%d objects, want 7", n)
	}
	if n := len(get(podsPath + "?labelSelector=app=none").Items); n != 0 {
		t.Errorf("%d objects of none", n)
	}
	page := get(podsPath + "?limit=3")
	if len(page.Items) != 3 || page.Continue == "" || page.RemainingItemCount == nil || *page.RemainingItemCount != 4 {
		t.Errorf("a page has %d objects and %+v", len(page.Items), page.ListMeta)
	}
	s.Do("DELETE", podsPath+"/p5", "")
	if rest := get(podsPath + "?limit=9&continue=" + page.Continue); len(rest.Items) != 4 || rest.ResourceVersion != page.ResourceVersion {
		t.Errorf("the rest has %d objects at %s, want 4 at %s", len(rest.Items), rest.ResourceVersion, page.ResourceVersion)
	}
	if old := get(podsPath + "?resourceVersionMatch=Exact&resourceVersion=" + page.ResourceVersion); len(old.Items) != 7 {
		t.Errorf("the list before the deletion has %d objects, want 7", len(old.Items))
	}

	res, body := s.Do("GET", podsPath, "", "Accept", partialsProto)
	partials := fromProtobuf(t, body, &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}})
	if res.StatusCode != 200 || len(partials.Items) != 6 {
		t.Errorf("%s, %d items", res.Status, len(partials.Items))
	}
	for i, pod := range get(podsPath).Items {
		sameObject(t, "metadata", partials.Items[i].ObjectMeta, pod.ObjectMeta)
	}
	res, body = s.Do("DELETE", podsPath, "", "Accept", protobufType)
	if deleted := fromProtobuf(t, body, emptyList()); res.StatusCode != 200 || len(deleted.Items) != 6 || deleted.Items[0].Name != "p0" {
		t.Errorf("%s: %d objects were deleted, want 6", res.Status, len(deleted.Items))
	}
}

// writePod writes an object as JSON and returns it as it's stored.
func writePod(t testing.TB, s *servertest.Server, method, path string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	res, body := s.Do(method, path, string(encodeObject(t, pod)), "Content-Type", "application/json")
	if res.StatusCode >= 300 {
		t.Fatalf("%s %s: %s: %s", method, path, res.Status, body)
	}
	stored := &corev1.Pod{}
	if err := json.Unmarshal([]byte(body), stored); err != nil {
		t.Fatal(err)
	}
	return stored
}

// protobufWatch reads the events of an open watch.
type protobufWatch struct {
	t    *testing.T
	body io.ReadCloser
}

func watchProtobuf(t *testing.T, s *servertest.Server, path, accept string) *protobufWatch {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	res, err := s.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Header.Get("Content-Type"); res.StatusCode != 200 || got != protobufType+";stream=watch" {
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		t.Fatalf("%s, %s: %q", res.Status, got, body)
	}
	t.Cleanup(func() { res.Body.Close() })
	return &protobufWatch{t, res.Body}
}

// next reads one event; its object must be of the kind that obj says.
func (w *protobufWatch) next(obj protobufMessage) (typ string) {
	w.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(w.body, size[:]); err != nil {
		w.t.Fatal(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w.body, frame); err != nil {
		w.t.Fatal(err)
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame); err != nil {
		w.t.Fatal(err)
	}
	fromProtobuf(w.t, string(event.Object.Raw), obj)
	return event.Type
}

// expect reads one event with an object.
func (w *protobufWatch) expect(typ, version string) *corev1.Pod {
	w.t.Helper()
	pod := emptyPod()
	if got := w.next(pod); got != typ || version != "" && pod.ResourceVersion != version {
		w.t.Fatalf("%s of %s at %s, want %s at %s", got, pod.Name, pod.ResourceVersion, typ, version)
	}
	return pod
}

// TestProtobufWatches: every kind of event, over both protocols.
func TestProtobufWatches(t *testing.T) {
	t.Parallel()
	s := newPods(t)
	a := writePod(t, s, "POST", podsPath, aPod("a"))
	streaming := watchProtobuf(t, s, podsPath+"?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", protobufType+",application/json")
	sameObject(t, "the object", streaming.expect("ADDED", a.ResourceVersion), a)
	if end := streaming.expect("BOOKMARK", a.ResourceVersion); end.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("the state ends with %+v", end)
	}
	selected := watchProtobuf(t, s, podsPath+"?watch=true&labelSelector=app=web&resourceVersion="+a.ResourceVersion, protobufType)
	metadata := watchProtobuf(t, s, podsPath+"?watch=true&resourceVersion="+a.ResourceVersion, partialProto)
	b := writePod(t, s, "POST", podsPath, aPod("b"))
	for _, w := range []*protobufWatch{streaming, selected} {
		sameObject(t, "the event's object", w.expect("ADDED", b.ResourceVersion), b)
	}
	partial := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}}
	if typ := metadata.next(partial); typ != "ADDED" {
		t.Errorf("%s, want ADDED", typ)
	}
	sameObject(t, "the event's metadata", partial.ObjectMeta, b.ObjectMeta)
	b.Labels["app"] = "db"
	b = writePod(t, s, "PUT", podsPath+"/b", b)
	sameObject(t, "the event's object", streaming.expect("MODIFIED", b.ResourceVersion), b)
	if left := selected.expect("DELETED", b.ResourceVersion); left.Labels["app"] != "web" {
		t.Errorf("it left as %+v", left.Labels)
	}
	s.Do("DELETE", podsPath+"/a", "")
	gone := streaming.expect("DELETED", "")
	if gone.ResourceVersion <= b.ResourceVersion || gone.Name != "a" {
		t.Errorf("%s was deleted at %s", gone.Name, gone.ResourceVersion)
	}
	sameObject(t, "the deleted object", selected.expect("DELETED", gone.ResourceVersion), gone)

	end := watchProtobuf(t, s, podsPath+"?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion="+gone.ResourceVersion, protobufType)
	if rest, err := io.ReadAll(end.body); err != nil || len(rest) != 0 && kubeproto.CountFrames(rest) != 1 {
		t.Errorf("a watch ends with %q, %v", rest, err)
	}
	future := failureStatus()
	if typ := watchProtobuf(t, s, podsPath+"?watch=true&resourceVersion=999999999", protobufType).next(future); typ != "ERROR" || future.Code != 410 {
		t.Errorf("%s with %+v", typ, future)
	}
}

// TestProtobufBodies: what is no body of the right kind is refused, and the refusal says what was expected.
func TestProtobufBodies(t *testing.T) {
	t.Parallel()
	s := newPods(t)
	whole := asProtobuf(t, aPod("a"))
	enveloped := func(apiVersion, kind, message string) string {
		return string(kubeproto.TypeOf(apiVersion, kind).Append(nil, []byte(message)))
	}
	message, err := aPod("a").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	nested := "" // in volumes, which nest nowhere
	for range 20_000 {
		nested = "\x0a" + string(binary.AppendUvarint(nil, uint64(len(nested)))) + nested
	}
	config := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	bad := aPod("a")
	bad.Annotations = map[string]string{"text": "\xff\xfe"}
	late := &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, ObjectMeta: metav1.ObjectMeta{Name: "late"},
		Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Date(29_379, 1, 1, 0, 0, 0, 0, time.UTC)}},
	}
	for _, c := range []struct{ name, method, path, body, want string }{
		{"a time that JSON can't have", "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", asProtobuf(t, late), "can't be decoded"},
		{"not protobuf", "POST", podsPath, `{"kind":"Pod"}`, "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"},
		{"empty envelope", "POST", podsPath, "k8s\x00", "is cut: a runtime.Unknown"},
		{"cut in the envelope", "POST", podsPath, whole[:len(whole)/2], "the object provided is unrecognized (must be of type Pod): unexpected EOF"},
		{"cut in the message", "POST", podsPath, enveloped("pods.example.com/v1", "Pod", string(message[:len(message)/2])), "can't be decoded as protobuf of pods.example.com/v1 Pod: it ends in the middle of a field"},
		{"bytes after it", "POST", podsPath, whole + "more", "the object provided is unrecognized (must be of type Pod): unexpected EOF"},
		{"two bodies", "POST", podsPath, whole + whole, "the object provided is unrecognized (must be of type Pod): proto: illegal wireType 7"},
		{"bytes after the message", "POST", podsPath, enveloped("pods.example.com/v1", "Pod", string(message)+"\x00"), "can't be decoded as protobuf of pods.example.com/v1 Pod"},
		{"another kind", "POST", podsPath, asProtobuf(t, config), "is protobuf of v1 ConfigMap: this path takes pods.example.com/v1 Pod"},
		{"another kind for an update", "PUT", podsPath + "/a", asProtobuf(t, config), "is protobuf of v1 ConfigMap: this path takes pods.example.com/v1 Pod"},
		{"another version", "POST", podsPath, enveloped("pods.example.com/v2", "Pod", string(message)), "this path takes pods.example.com/v1 Pod"},
		{"not UTF-8", "POST", podsPath, asProtobuf(t, bad), "not valid UTF-8"},
		{"nested too deeply", "POST", podsPath, enveloped("pods.example.com/v1", "Pod", nested), "nests too deeply for its size"},
		{"an object to a deletion", "DELETE", podsPath + "/a", whole, "is protobuf of pods.example.com/v1 Pod: this path takes v1 DeleteOptions"},
		{"options that are cut", "DELETE", podsPath + "/a", enveloped("v1", "DeleteOptions", "\x0a"), "can't be decoded as protobuf of v1 DeleteOptions"},
		{"an object to a deletion of all", "DELETE", podsPath, whole, "this path takes v1 DeleteOptions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do(c.method, c.path, c.body, "Content-Type", protobufType)
			if got := status(t, res, body); got.Code != 400 || !strings.Contains(got.Message, c.want) {
				t.Errorf("%d %q, want 400 with %q", got.Code, got.Message, c.want)
			}
		})
	}
	for _, c := range []struct{ name, body string }{
		{"a type that is left out", enveloped("", "", string(message))},
		{"a field of a later version", enveloped("pods.example.com/v1", "Pod", string(message)+"\xfa\x7f\x03abc")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.In(t)
			if res, body := s.Do("POST", podsPath+"?dryRun=All", c.body, "Content-Type", protobufType); res.StatusCode != 201 {
				t.Errorf("%s: %s", res.Status, body)
			}
		})
	}
}

// TestProtobufOfCustomResources: they have none, but for their metadata.
func TestProtobufOfCustomResources(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	for _, c := range []struct {
		name, method, path, accept, kind string
		code                             int
	}{
		{"only protobuf", "GET", gadgetsPath + "/a", protobufType, "Status", 406},
		{"only protobuf of a list", "GET", gadgetsPath, protobufType, "Status", 406},
		{"only protobuf of a watch", "GET", gadgetsPath + "?watch=true", protobufType + ";stream=watch", "Status", 406},
		{"only protobuf for a deletion", "DELETE", gadgetsPath + "/none", protobufType, "Status", 406},
		{"metadata", "GET", gadgetsPath + "/a", partialProto, "PartialObjectMetadata", 200},
		{"a list of metadata", "GET", gadgetsPath, partialsProto, "PartialObjectMetadataList", 200},
		{"an error", "GET", gadgetsPath + "/none", protobufType + ", application/json", "Status", 404},
		{"an unknown subresource", "GET", gadgetsPath + "/a/none", protobufType, "Status", 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do(c.method, c.path, "", "Accept", c.accept)
			e, err := kubeproto.Open([]byte(body))
			if err != nil || res.StatusCode != c.code || e.Kind != c.kind || res.Header.Get("Content-Type") != protobufType {
				t.Errorf("%s, %s of %s, %v; want %d, %s", res.Status, e.Kind, res.Header.Get("Content-Type"), err, c.code, c.kind)
			}
		})
	}
	for _, accept := range []string{protobufType + ",application/json", protobufType + ",*/*", protobufType + ";q=0.9,application/json;q=0.1"} {
		res, body := s.Do("GET", gadgetsPath+"/a", "", "Accept", accept)
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/json" || !strings.HasPrefix(body, `{"apiVersion":"example.com/v1"`) {
			t.Errorf("%s: %s: %s", accept, res.Status, body)
		}
	}
	if res, body := s.Do("GET", gadgetsPath, "", "Accept", protobufType+";as=Table;v=v1;g=meta.k8s.io"); res.StatusCode != 406 {
		t.Errorf("only protobuf of a table: %s: %s", res.Status, body)
	}
	options := asProtobuf(t, &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, DryRun: []string{"All"}})
	if res, body := s.Do("DELETE", gadgetsPath+"/a", options, "Content-Type", protobufType); res.StatusCode != 200 {
		t.Errorf("a deletion with options as protobuf: %s: %s", res.Status, body)
	}
	s.Get(gadgetsPath + "/a") // it was a dry run
	w := watchProtobuf(t, s, gadgetsPath+"?watch=true", partialProto)
	partial := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}}
	if typ := w.next(partial); typ != "ADDED" || partial.Name != "a" || partial.ResourceVersion == "" {
		t.Errorf("%s of %+v", typ, partial)
	}
}

// TestProtobufDiscovery: every document of discovery says the same as protobuf.
func TestProtobufDiscovery(t *testing.T) {
	t.Parallel()
	s := newPods(t)
	for path, docs := range map[string][2]protobufMessage{
		"/api":                      {&metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}}, &metav1.APIVersions{}},
		"/apis":                     {&metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}, &metav1.APIGroupList{}},
		"/apis/pods.example.com":    {&metav1.APIGroup{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}}, &metav1.APIGroup{}},
		"/apis/pods.example.com/v1": {&metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}}, &metav1.APIResourceList{}},
	} {
		res, body := s.Do("GET", path, "", "Accept", protobufType+",application/json")
		got, want := fromProtobuf(t, body, docs[0]), docs[1]
		if err := json.Unmarshal([]byte(s.Get(path)), want); err != nil {
			t.Fatal(err)
		}
		want.GetObjectKind().SetGroupVersionKind(got.GetObjectKind().GroupVersionKind())
		sameObject(t, path, got, want)
		if res.Header.Get("Content-Type") != protobufType {
			t.Errorf("%s is %s", path, res.Header.Get("Content-Type"))
		}
	}
	for _, path := range []string{"/api", "/apis"} {
		const form = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		res, body := s.Do("GET", path, "", "Accept", protobufType+form+",application/json"+form)
		got := fromProtobuf(t, body, &apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"}})
		_, asJSON := s.Do("GET", path, "", "Accept", "application/json"+form)
		want := decode[apidiscovery.APIGroupDiscoveryList](t, asJSON)
		sameObject(t, path, got, &want)
		if res.Header.Get("Content-Type") != protobufType+form || res.Header.Get("ETag") == "" {
			t.Errorf("%s is %s with the tag %s", path, res.Header.Get("Content-Type"), res.Header.Get("ETag"))
		}
	}
}

// TestProtobufScale: a Scale is a type of Kubernetes', whatever it's of.
func TestProtobufScale(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, `
metadata: {name: fleets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: fleets, kind: Fleet}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.ships, statusReplicasPath: .status.ships}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {ships: {type: integer}}}}}}
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition`)
	const path = "/apis/example.com/v1/namespaces/default/fleets"
	s.PostYAML(path, "{apiVersion: example.com/v1, kind: Fleet, metadata: {name: a}, spec: {ships: 3}}")
	empty := func() *autoscalingv1.Scale {
		return &autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"}}
	}
	_, body := s.Do("GET", path+"/a/scale", "", "Accept", protobufType)
	scale := fromProtobuf(t, body, empty())
	if scale.Name != "a" || scale.Spec.Replicas != 3 || scale.ResourceVersion == "" {
		t.Errorf("the scale is %+v", scale)
	}
	scale.Spec.Replicas = 5
	_, body = s.Do("PUT", path+"/a/scale", asProtobuf(t, scale), "Content-Type", protobufType, "Accept", protobufType)
	if changed := fromProtobuf(t, body, empty()); changed.Spec.Replicas != 5 || changed.ResourceVersion == scale.ResourceVersion {
		t.Errorf("the scale is then %+v", changed)
	}
	res, body := s.Do("PUT", path+"/a/scale", asProtobuf(t, aPod("a")), "Content-Type", protobufType)
	if got := status(t, res, body); got.Code != 400 || !strings.Contains(got.Message, "this path takes autoscaling/v1 Scale") {
		t.Errorf("another kind: %d %q", got.Code, got.Message)
	}
}

// TestProtobufOverWebSocket: each message is one event, without the length that a stream needs.
func TestProtobufOverWebSocket(t *testing.T) {
	t.Parallel()
	s := newPods(t)
	a := writePod(t, s, "POST", podsPath, aPod("a"))
	header := http.Header{"Accept": {protobufType}}
	socket, res, err := websocket.Dial(t.Context(), s.URL+podsPath+"?watch=true", &websocket.DialOptions{HTTPClient: s.Client, HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	if got := res.Header.Get("Content-Type"); got != protobufType+";stream=watch" {
		t.Errorf("the answer is %s", got)
	}
	typ, message, err := socket.Read(t.Context())
	if err != nil || typ != websocket.MessageBinary {
		t.Fatalf("%v, %v", typ, err)
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(message); err != nil || event.Type != "ADDED" {
		t.Fatalf("%s, %v", event.Type, err)
	}
	sameObject(t, "the object", fromProtobuf(t, string(event.Object.Raw), emptyPod()), a)
}
