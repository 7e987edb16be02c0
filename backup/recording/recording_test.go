package recording_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/backup/own"
	"github.com/apiserver-lite/apiserver-lite/backup/recording"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func all(s *server.Server) { s.API.Builtin = builtin.All }

func clientOf(t *testing.T, s *servertest.Server) *client.Client {
	t.Helper()
	c, err := client.New(s.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// running is a Record that runs.
type running struct {
	t      *testing.T
	server *servertest.Server
	file   *lockedBuffer
	stop   context.CancelFunc
	result chan error
	what   recording.Recorded
}

// record starts a Record, and returns when it has begun.
func record(t *testing.T, s *servertest.Server, o recording.RecordOptions) *running {
	t.Helper()
	return recordBy(t, s, clientOf(t, s), o)
}

// recordBy is record by a client.
func recordBy(t *testing.T, s *servertest.Server, c *client.Client, o recording.RecordOptions) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{t: t, server: s, file: &lockedBuffer{}, stop: stop, result: make(chan error, 1)}
	begun := make(chan struct{})
	o.Begun = func(string, int) { close(begun) }
	go func() {
		var err error
		r.what, err = recording.Record(ctx, c, r.file, o)
		r.result <- err
	}()
	select {
	case <-begun:
	case err := <-r.result:
		t.Fatalf("the recording ends with %v", err)
	}
	return r
}

// until waits until the file has a text so many times.
func (r *running) until(text string, times int) {
	r.t.Helper()
	await.Until(r.t, fmt.Sprintf("%s is recorded %d times", text, times), func() bool {
		select {
		case err := <-r.result:
			r.t.Fatalf("the recording ends with %v", err)
		default:
		}
		return strings.Count(r.file.unpacked(), text) >= times
	})
}

// end waits until the recording has what was done by now, and returns it.
func (r *running) end() []byte {
	r.t.Helper()
	r.server.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: the-end}")
	r.until(`"name":"the-end"`, 1)
	r.stop()
	if err := <-r.result; err != nil {
		r.t.Fatal(err)
	}
	return r.file.bytes()
}

// put sends a write, and fails the test unless it's done.
func put(t *testing.T, s *servertest.Server, method, path, body string) string {
	t.Helper()
	kind := "application/json"
	if method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	res, answer := s.Do(method, path, body, "Content-Type", kind)
	if res.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s", method, path, res.Status, answer)
	}
	return answer
}

const widgets = "/apis/example.com/v1/namespaces/default/widgets"

// live does what happens to a server while it's recorded: creates, updates, status, owners, finalizers, deletions, re-creations, and
// definitions and namespaces that come and go.
func live(t *testing.T, s *servertest.Server) {
	t.Helper()
	uidOf := func(answer string) string { return client.Object(answer).UID() }
	define(t, s)
	owner := uidOf(put(t, s, "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"owner"},"spec":{"size":1}}`))
	owned := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Widget","name":"owner","uid":%q}]},"data":{"a":"b"}}`, name, owner)
	}
	configmaps := "/api/v1/namespaces/default/configmaps"
	for i := range 20 {
		put(t, s, "POST", configmaps, owned(fmt.Sprint("owned", i)))
		put(t, s, "PATCH", widgets+"/owner/status", fmt.Sprintf(`{"status":{"phase":"p%d"}}`, i))
		put(t, s, "PATCH", widgets+"/owner", fmt.Sprintf(`{"spec":{"size":%d}}`, i+2))
	}
	put(t, s, "DELETE", configmaps+"/owned3", "")
	put(t, s, "POST", configmaps, owned("owned3"))
	// Deleted with what it owns, and made anew.
	passing := uidOf(put(t, s, "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"passing"}}`))
	put(t, s, "POST", configmaps, fmt.Sprintf(`{"metadata":{"name":"goes-too","ownerReferences":[{"apiVersion":"example.com/v1","kind":"Widget","name":"passing","uid":%q,"blockOwnerDeletion":true}]}}`, passing))
	put(t, s, "DELETE", widgets+"/passing", `{"propagationPolicy":"Foreground"}`)
	s.Quiescent()
	put(t, s, "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"passing","labels":{"life":"second"}},"spec":{"size":7}}`)
	// Finalizers: one deletion that ends, one that doesn't.
	for _, name := range []string{"held", "freed"} {
		put(t, s, "POST", widgets, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"finalizers":["example.com/a","example.com/b"]}}`, name))
		put(t, s, "DELETE", widgets+"/"+name, "")
		put(t, s, "PATCH", widgets+"/"+name, `{"metadata":{"finalizers":["example.com/b"],"labels":{"is":"going"}}}`)
	}
	put(t, s, "PATCH", widgets+"/freed", `{"metadata":{"finalizers":null}}`)
	put(t, s, "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"freed"},"spec":{"color":"green"}}`)
	// A namespace with something in it, that is deleted and made anew.
	for life := range 2 {
		put(t, s, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
		for i := range 3 + life {
			put(t, s, "POST", "/api/v1/namespaces/shop/configmaps", fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{"life":"%d"}}`, i, life))
		}
		if life == 0 {
			put(t, s, "DELETE", "/api/v1/namespaces/shop", "")
			s.Quiescent()
		}
	}
}

// builtins does what needs Kubernetes' own kinds.
func builtins(t *testing.T, s *servertest.Server) {
	t.Helper()
	pod := `{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}],"restartPolicy":"Never"}}`
	put(t, s, "POST", "/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"d"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	put(t, s, "PATCH", "/apis/apps/v1/namespaces/default/deployments/d", `{"spec":{"replicas":3}}`)
	put(t, s, "PATCH", "/apis/apps/v1/namespaces/default/deployments/d/status", `{"status":{"replicas":3,"observedGeneration":2}}`)
	put(t, s, "POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}],"selector":{"app":"a"}}}`)
	put(t, s, "PATCH", "/api/v1/namespaces/default/services/s", `{"spec":{"ports":[{"port":81}]}}`)
	put(t, s, "POST", "/apis/batch/v1/namespaces/default/jobs", `{"metadata":{"name":"j"},"spec":{"template":`+pod+`}}`)
	put(t, s, "PATCH", "/apis/batch/v1/namespaces/default/jobs/j", `{"spec":{"suspend":true}}`)
	put(t, s, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},`+pod[strings.Index(pod, `"spec"`):])
	put(t, s, "POST", "/api/v1/namespaces/default/pods/p/binding", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`)
	put(t, s, "PATCH", "/api/v1/namespaces/default/pods/p/status", `{"status":{"phase":"Running"}}`)
	put(t, s, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"a":"b"}}`)
	_, key, _ := ed25519.GenerateKey(nil)
	request, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	csrs := "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	put(t, s, "POST", csrs, fmt.Sprintf(`{"metadata":{"name":"r"},"spec":{"signerName":"example.com/s","usages":["client auth"],"request":%q}}`,
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))))
	put(t, s, "PATCH", csrs+"/r/approval", `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"R"}]}}`)
	put(t, s, "POST", "/api/v1/namespaces/default/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"configmaps":"100"}}}`)
}

// define creates the definition of widgets.
func define(t *testing.T, s *servertest.Server) {
	t.Helper()
	text, err := os.ReadFile("../../testdata/crds/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.PostYAML("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(text))
}

// stateOf returns what a server has, apart from what each server makes by itself, as lines. Owners are those with their uid, which must be
// there.
func stateOf(t *testing.T, s *servertest.Server) (lines []string) {
	t.Helper()
	s.Quiescent()
	c := clientOf(t, s)
	kinds, err := own.Kinds(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	names, objects := map[string]string{}, []document.Object{}
	for _, kind := range kinds {
		list, err := client.Resource[client.Object](c, kind.APIVersion, kind.Plural).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for o, err := range list.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			d, err := document.Decode(*o)
			if err != nil {
				t.Fatal(err)
			}
			names[o.UID()] = o.Kind() + " " + o.Name()
			deleting, status := o.Field("metadata", "deletionTimestamp") != nil, d["status"]
			own.Strip(d, true)
			if own.ServerMakes(d) {
				continue
			}
			if own.Strip(d, false); !slices.Contains([]string{"Namespace", "CustomResourceDefinition", "ResourceQuota"}, o.Kind()) {
				d["status"] = status
			}
			d["deleting"] = deleting
			objects = append(objects, d)
		}
	}
	for _, o := range objects {
		for _, owner := range document.Owners(o) {
			uid, _ := owner["uid"].(string)
			owner["uid"] = "that of " + names[uid]
		}
		line, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	return lines
}

// compare fails the test for each object that only one of two servers has.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("lost: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("more: %s", line)
		}
	}
}

// replayInto replays a file, and fails the test unless all of it can be.
func replayInto(t *testing.T, s *servertest.Server, file []byte, speed recording.Speed) recording.Result {
	t.Helper()
	result, err := recording.Replay(t.Context(), clientOf(t, s), bytes.NewReader(file), recording.Options{Speed: speed})
	for _, f := range result.Failures {
		t.Error(f)
	}
	if err != nil || result.Failed > 0 {
		t.Errorf("the replay ends with %v, %+v", err, result)
	}
	return result
}

// TestReplay: what has happened to a server and is replayed at another, at any speed, leaves the same state there.
func TestReplay(t *testing.T) {
	t.Parallel()
	source := servertest.New(t, all)
	source.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: was-there}")
	r := record(t, source, recording.RecordOptions{Secrets: true})
	live(t, source)
	builtins(t, source)
	file := r.end()
	replaysEqually(t, source, file, r.what.Changes, map[string]recording.Speed{"step": recording.Step, "ten times": 10, "max": recording.Max})
}

// replaysEqually replays a file at several speeds, each of which makes the source's state of an empty server, by so many changes.
func replaysEqually(t *testing.T, source *servertest.Server, file []byte, changes int, speeds map[string]recording.Speed) {
	t.Helper()
	want := stateOf(t, source)
	for name, speed := range speeds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := servertest.New(t, all)
			result := replayInto(t, target, file, speed)
			compare(t, stateOf(t, target), want)
			if result.Changes != changes || result.Ownerless > 0 {
				t.Errorf("the result is %+v, and the recording has %d changes", result, changes)
			}
		})
	}
}
