package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// audited is a server with an audit log.
type audited struct {
	*servertest.Server
	t    *testing.T
	path string
}

// newAudited starts a server that audits by the rules of a policy.
func newAudited(t *testing.T, rules string, options ...func(*server.Server)) audited {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "log", "audit.log")
	s := servertest.New(t, append([]func(*server.Server){func(s *server.Server) {
		s.Audit = audit.Options{PolicyFile: policy, Path: path}
	}}, options...)...)
	return audited{s, t, path}
}

// events returns what the log has.
func (a audited) events() (all []auditv1.Event) {
	a.t.Helper()
	text, err := os.ReadFile(a.path)
	if err != nil {
		a.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			a.t.Fatalf("%v in %s", err, line)
		}
		if e.APIVersion != "audit.k8s.io/v1" || e.Kind != "Event" || e.AuditID == "" || e.StageTimestamp.IsZero() || e.RequestReceivedTimestamp.IsZero() {
			a.t.Fatalf("the event %s lacks what each one has", line)
		}
		all = append(all, e)
	}
	return all
}

// wait returns the events once there are n of them.
func (a audited) wait(n int) (all []auditv1.Event) {
	a.t.Helper()
	until(a.t, fmt.Sprintf("%d events", n), func() bool {
		all = a.events()
		return len(all) >= n
	})
	if len(all) > n {
		a.t.Fatalf("%d events, want %d: %s", len(all), n, lines(all))
	}
	return all
}

// last returns the last event of the n that there will be.
func (a audited) last(n int) auditv1.Event {
	a.t.Helper()
	return a.wait(n)[n-1]
}

// lines has a line for each event: stage, verb, what, code.
func lines(events []auditv1.Event) string {
	var out strings.Builder
	for _, e := range events {
		what := e.RequestURI
		if ref := e.ObjectRef; ref != nil {
			what = strings.Join([]string{ref.APIGroup, ref.APIVersion, ref.Resource, ref.Subresource, ref.Namespace, ref.Name}, "/")
		}
		fmt.Fprintf(&out, "%s %s %s", e.Stage, e.Verb, what)
		if s := e.ResponseStatus; s != nil {
			fmt.Fprintf(&out, " %d %s", s.Code, s.Reason)
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// TestAuditStages: each request has the stages that it has with kube-apiserver, and says who did what, and from where.
func TestAuditStages(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "rules: [{level: Metadata}]")
	a.PostYAML(configMaps, "metadata: {name: a}")
	a.Do("GET", configMaps+"/none", "", "Audit-Id", "mine")
	a.Do("GET", configMaps+"?limit=1", "", "User-Agent", strings.Repeat("x", 2000))
	a.Do("PATCH", configMaps+"/a", `{"data":{"k":"v"}}`, "Content-Type", "application/merge-patch+json")
	a.Do("GET", "/version", "")
	a.Do("GET", "/apis/example.com/v1/namespaces/x/things/a/status", "")
	events := a.wait(12)
	want := `RequestReceived create /v1/configmaps//default/
ResponseComplete create /v1/configmaps//default/a 201 
RequestReceived get /v1/configmaps//default/none
ResponseComplete get /v1/configmaps//default/none 404 NotFound
RequestReceived list /v1/configmaps//default/
ResponseComplete list /v1/configmaps//default/ 200 
RequestReceived patch /v1/configmaps//default/a
ResponseComplete patch /v1/configmaps//default/a 200 
RequestReceived get /version
ResponseComplete get /version 200 
RequestReceived get example.com/v1/things/status/x/a
ResponseComplete get example.com/v1/things/status/x/a 404 
`
	if got := lines(events); got != want {
		t.Errorf("the events are\n%swant\n%s", got, want)
	}
	for _, e := range events {
		if e.User.Username != "system:admin" || len(e.SourceIPs) != 1 || e.SourceIPs[0] != "127.0.0.1" || e.RequestObject != nil || e.ResponseObject != nil {
			t.Errorf("an event of %+v from %v with bodies %v, %v; want one of system:admin from 127.0.0.1 without", e.User, e.SourceIPs, e.RequestObject, e.ResponseObject)
		}
	}
	if e := events[3]; e.AuditID != "mine" || e.ResponseStatus.Message != `configmaps "none" not found` {
		t.Errorf("the refusal is %+v", e)
	}
	if agent := events[4].UserAgent; len(agent) > 1100 || !strings.HasSuffix(agent, "...TRUNCATED") {
		t.Errorf("a User-Agent of %d bytes is noted", len(agent))
	}
}

// TestAuditImpersonation: an event has who asks and as whom, and the verb that allowed it if that isn't impersonate.
func TestAuditImpersonation(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("root-token,root,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAudited(t, "omitStages: [RequestReceived]\nrules: [{level: Metadata}]", func(s *server.Server) { s.Access.TokenAuthFile = tokens })
	for i, tc := range []struct {
		headers    []string
		as         string // name, uid, groups, what is extra
		constraint string
	}{
		{nil, "", ""},
		{[]string{"Impersonate-User", "bob", "Impersonate-Uid", "7", "Impersonate-Extra-Example.com%2fa", "b"}, "bob 7 [system:authenticated] map[example.com/a:[b]]", "impersonate:user-info"},
		{[]string{"Impersonate-User", "system:node:n1"}, "system:node:n1  [system:nodes system:authenticated] map[]", "impersonate:arbitrary-node"},
		{[]string{"Impersonate-User", "bob", "Impersonate-Group", "system:masters"}, "bob  [system:masters system:authenticated] map[]", ""},
	} {
		if res, body := a.Do("GET", "/version", "", append(tc.headers, "Authorization", "Bearer root-token")...); res.StatusCode != 200 {
			t.Fatalf("%s %s", res.Status, body)
		}
		e := a.last(i + 1)
		as, constraint := "", ""
		if u := e.ImpersonatedUser; u != nil {
			as = fmt.Sprint(u.Username, " ", u.UID, " ", u.Groups, " ", u.Extra)
		}
		if m := e.AuthenticationMetadata; m != nil {
			constraint = m.ImpersonationConstraint
		}
		if e.User.Username != "root" || as != tc.as || constraint != tc.constraint {
			t.Errorf("%v: %s as %q by %q, want root as %q by %q", tc.headers, e.User.Username, as, constraint, tc.as, tc.constraint)
		}
	}
}

// TestAuditWatch: a watch has an event when it begins and one when it ends, however it's carried.
func TestAuditWatch(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(audited) (end func()){
		"HTTP/1.1": func(a audited) func() {
			stream := a.Watch(configMaps + "?watch=true")
			return func() { stream.Close() }
		},
		"legacy path": func(a audited) func() {
			stream := a.Watch("/api/v1/watch/namespaces/default/configmaps")
			return func() { stream.Close() }
		},
		"HTTP/2": func(a audited) func() {
			var protocols http.Protocols
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: &protocols}
			ctx, cancel := context.WithCancel(a.t.Context())
			r, err := http.NewRequestWithContext(ctx, "GET", a.URL+configMaps+"?watch=true", nil)
			if err != nil {
				a.t.Fatal(err)
			}
			res, err := transport.RoundTrip(r)
			if err != nil {
				a.t.Fatal(err)
			}
			return func() { cancel(); res.Body.Close(); transport.CloseIdleConnections() }
		},
		"WebSocket": func(a audited) func() {
			socket := openSocket(a.t, a.Server, configMaps+"?watch=true", nil)
			return func() { socket.CloseNow() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAudited(t, "rules: [{level: RequestResponse}]")
			end := open(a)
			code := "200"
			if name == "WebSocket" {
				code = "101"
			}
			want := "RequestReceived watch /v1/configmaps//default/\nResponseStarted watch /v1/configmaps//default/ " + code + " \n"
			if got := lines(a.wait(2)); got != want {
				t.Errorf("the events are\n%swant\n%s", got, want)
			}
			end()
			if got := lines(a.wait(3)[2:]); got != "ResponseComplete watch /v1/configmaps//default/ "+code+" \n" {
				t.Errorf("the last event is %s", got)
			}
		})
	}
}

// TestAuditPolicy: the first rule that matches decides on the level, and stages can be omitted.
func TestAuditPolicy(t *testing.T) {
	t.Parallel()
	a := newAudited(t, `
omitStages: [RequestReceived]
rules:
- {level: None, users: [system:admin], verbs: [get], resources: [{resources: [configmaps]}]}
- {level: None, nonResourceURLs: ["/version*"]}
- {level: None, namespaces: [kube-system]}
- {level: Request, verbs: [create], resources: [{group: "", resources: [configmaps], resourceNames: []}]}
- {level: Metadata, userGroups: ["system:masters"], verbs: [delete]}
- {level: None, userGroups: ["system:masters"]}
`)
	a.PostYAML(configMaps, "metadata: {name: a}")
	a.Do("GET", configMaps+"/a", "")
	a.Do("GET", "/version", "")
	a.Do("GET", "/apis", "")
	a.PostYAML("/api/v1/namespaces/kube-system/configmaps", "metadata: {name: a}")
	a.Do("DELETE", configMaps+"/a", "")
	want := "ResponseComplete create /v1/configmaps//default/a 201 \nResponseComplete delete /v1/configmaps//default/a 200 \n"
	events := a.wait(2)
	if got := lines(events); got != want {
		t.Errorf("the events are\n%swant\n%s", got, want)
	}
	if events[0].Level != auditv1.LevelRequest || events[0].RequestObject == nil || events[1].Level != auditv1.LevelMetadata {
		t.Errorf("the levels are %s and %s", events[0].Level, events[1].Level)
	}
}

// TestAuditBodies: bodies are JSON, in whichever form they come and go.
func TestAuditBodies(t *testing.T) {
	t.Parallel()
	object := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}
	asJSON, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, method, path, body, contentType, accept string
		request, response                             string // parts of them; "" for none
	}{
		{"JSON", "POST", "default/configmaps", string(asJSON), "application/json", "", `"data":{"k":"v"}`, `"creationTimestamp":"2`},
		{"YAML", "POST", "default/configmaps", "metadata: {name: a}", "application/yaml", "application/yaml", `{"metadata":{"name":"a"}}`, `"kind":"ConfigMap"`},
		{"protobuf", "POST", "default/configmaps", asProtobuf(t, object), protobufType, protobufType, `"data":{"k":"v"}`, `"creationTimestamp":"2`},
		{"pretty", "GET", "default/configmaps/none?pretty=true", "", "", "", "", `"reason":"NotFound"`},
		{"list", "GET", "default/configmaps", "", "", "", "", `"items":[]`},
		{"list of protobuf", "GET", "kube-system/configmaps", "", "", protobufType, "", `"items":[{`},
		{"metadata of protobuf", "GET", "kube-system/configmaps", "", "", partialsProto, "", `"kind":"PartialObjectMetadataList"`},
		{"table", "GET", "default/configmaps", "", "", "application/json;as=Table;g=meta.k8s.io;v=v1", "", `"kind":"Table"`},
		{"patch", "PATCH", "default/configmaps/none", `[{"op":"add","path":"/data","value":{}}]`, "application/json-patch+json", "", `[{"op":"add"`, `"code":404`},
		{"no JSON", "POST", "default/configmaps", `{`, "application/json", "", "", `"code":400`},
		{"no protobuf", "POST", "default/configmaps", "k8s\x00zzz", protobufType, protobufType, "", `"code":400`},
		{"options", "DELETE", "default/configmaps/none", `{"gracePeriodSeconds":3}`, "application/json", "", `{"gracePeriodSeconds":3}`, `"code":404`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := newAudited(t, "omitStages: [RequestReceived]\nrules: [{level: RequestResponse, namespaces: [default]}, {level: RequestResponse, verbs: [list]}]")
			a.PostYAML("/api/v1/namespaces/kube-system/configmaps", "metadata: {name: b}")
			a.Do(tc.method, "/api/v1/namespaces/"+tc.path, tc.body, "Content-Type", tc.contentType, "Accept", tc.accept)
			e := a.last(1)
			var request, response string
			if e.RequestObject != nil {
				request = string(e.RequestObject.Raw)
			}
			if e.ResponseObject != nil {
				response = string(e.ResponseObject.Raw)
			}
			if !strings.Contains(request, tc.request) || (request == "") != (tc.request == "") {
				t.Errorf("the request is %q, want %q", request, tc.request)
			}
			if !strings.Contains(response, tc.response) || (response == "") != (tc.response == "") {
				t.Errorf("the response is %q, want %q", response, tc.response)
			}
		})
	}
}

// TestAuditManagedFields: omitManagedFields drops them from both bodies, of lists as well.
func TestAuditManagedFields(t *testing.T) {
	t.Parallel()
	for _, omitted := range []bool{false, true} {
		a := newAudited(t, fmt.Sprintf("omitManagedFields: %v\nomitStages: [RequestReceived]\nrules: [{level: RequestResponse, resources: [{resources: [configmaps]}]}]", omitted),
			func(s *server.Server) { s.API.ManagedFieldsAlways = true })
		object := a.PostYAML(configMaps, "{metadata: {name: a}, data: {k: v}}")
		a.Do("PUT", configMaps+"/a", object, "Content-Type", "application/json")
		a.Get(configMaps)
		for _, e := range a.wait(3)[1:] {
			all := string(e.ResponseObject.Raw)
			if e.RequestObject != nil {
				all += string(e.RequestObject.Raw)
			}
			if strings.Contains(all, "managedFields") == omitted {
				t.Errorf("with omitManagedFields: %v a %s is noted as %s", omitted, e.Verb, all)
			}
		}
	}
}

// TestAuditTokens: no token that a client sends or gets is in the log, at any level.
func TestAuditTokens(t *testing.T) {
	t.Parallel()
	const token = "s3cret"
	a := newAudited(t, "rules: [{level: RequestResponse}]", func(s *server.Server) { s.Token = token })
	bearer := []string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}
	a.Do("POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"sa"}}`, bearer...)
	_, answer := a.Do("POST", "/api/v1/namespaces/default/serviceaccounts/sa/token", `{"spec":{"audiences":["x"]}}`, bearer...)
	var made struct{ Status struct{ Token string } }
	if err := json.Unmarshal([]byte(answer), &made); err != nil || made.Status.Token == "" {
		t.Fatalf("no token in %s", answer)
	}
	review := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q}}`, made.Status.Token)
	if res, answer := a.Do("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review, bearer...); res.StatusCode != http.StatusCreated {
		t.Fatalf("the review: %s", answer)
	}
	a.Do("GET", configMaps+"?access_token=s3cret", "", bearer...)
	a.Do("GET", configMaps, "", "Authorization", "Bearer wrong-s3cret")
	a.Do("GET", configMaps, "")
	events := a.wait(4*2 + 2)
	text, err := os.ReadFile(a.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{token, made.Status.Token} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the log has %q", secret)
		}
	}
	want := strings.Repeat("ResponseStarted list /v1/configmaps//default/ 401 Unauthorized\n", 2)
	if got := lines(events[8:]); got != want {
		t.Errorf("requests without a right credential are\n%swant\n%s", got, want)
	}
	for _, e := range events[8:] {
		if e.ResponseStatus.Message != "Unauthorized" || e.User.Username != "" {
			t.Errorf("the failed authentication is noted as %+v of %+v, want that it's Unauthorized, of nobody", e.ResponseStatus, e.User)
		}
	}
}

// TestAuditTimeout: a timeout that can't be read is refused before it's known who asks, and audited as of nobody, as by kube-apiserver.
func TestAuditTimeout(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "rules: [{level: RequestResponse}]")
	a.Do("POST", configMaps+"?timeout=soon", `{"metadata":{"name":"a"}}`)
	e := a.last(1)
	if got, want := lines([]auditv1.Event{e}), "ResponseStarted create /v1/configmaps//default/ 400 BadRequest\n"; got != want {
		t.Errorf("the event is\n%swant\n%s", got, want)
	}
	const why = `invalid timeout specified in the request URL - time: invalid duration "soon"`
	if e.ResponseStatus.Message != why || e.User.Username != "" || e.RequestObject != nil || e.ResponseObject == nil {
		t.Errorf("the event says %+v of %+v with bodies %v, %v; want %q of nobody, and the answer", e.ResponseStatus, e.User, e.RequestObject, e.ResponseObject, why)
	}
}

// TestAuditUnwritable: what can't be written is lost, which the log and the metrics say. Only blocking-strict
// refuses the requests.
func TestAuditUnwritable(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]int{audit.ModeBatch: 201, audit.ModeBlocking: 201, audit.ModeBlockingStrict: 500} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var log await.Log
			a := newAudited(t, "rules: [{level: Metadata, resources: [{resources: [configmaps]}]}]", func(s *server.Server) {
				s.Audit.Path, s.Audit.Mode = "/dev/full", mode
				s.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			res, answer := a.Do("POST", configMaps, `{"metadata":{"name":"a"}}`, "Content-Type", "application/json")
			if res.StatusCode != want {
				t.Errorf("%s, want %d: %s", res.Status, want, answer)
			}
			if strings.Contains(answer, "/dev/full") {
				t.Errorf("the client is told %s", answer)
			}
			until(t, "the loss to be counted", func() bool {
				return strings.Contains(log.String(), `msg="audit events are lost"`) && metricOf(a.Get("/metrics"), "apiserver_audit_error_total") != "0"
			})
			if got := metricOf(a.Get("/metrics"), "apiserver_audit_requests_rejected_total"); (got == "1") != (want == 500) {
				t.Errorf("%s requests are counted as refused", got)
			}
		})
	}
}

// metricOf returns the value of a metric without labels.
func metricOf(page, name string) string {
	_, rest, _ := strings.Cut(page, "\n"+name+" ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// TestAuditPanic: a request that panics has the stage Panic, and none after it.
func TestAuditPanic(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "omitStages: [RequestReceived]\nrules: [{level: Metadata, resources: [{resources: [configmaps]}]}]", func(s *server.Server) {
		s.Log = slog.New(slog.DiscardHandler)
		s.API.Admission = []registry.Admission[unstructured.Unstructured]{registry.AdmissionFunc[unstructured.Unstructured](func(context.Context, *registry.AdmissionRequest[unstructured.Unstructured]) (registry.Verdict, error) {
			panic("broken")
		})}
	})
	a.Do("POST", configMaps, `{"metadata":{"name":"a"}}`, "Content-Type", "application/json")
	if got := lines(a.wait(1)); got != "Panic create /v1/configmaps//default/a 500 InternalError\n" {
		t.Errorf("the event is %s", got)
	}
}

// TestAuditRotation: a file that is full is put aside, and compressed.
func TestAuditRotation(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "rules: [{level: Request, verbs: [create]}]", func(s *server.Server) { s.Audit.MaxSize, s.Audit.Compress = 1, true })
	large := strings.Repeat("x", 300<<10)
	for i := range 5 {
		a.PostYAML(configMaps, fmt.Sprintf("{metadata: {name: a%d}, data: {k: %s}}", i, large))
	}
	until(t, "a compressed file", func() bool {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(a.path), "audit-*.log.gz"))
		plain, _ := filepath.Glob(filepath.Join(filepath.Dir(a.path), "audit-*.log"))
		return err == nil && len(files) > 0 && len(plain) == 0
	})
	a.events() // what is left is whole
}

// TestAuditTooLarge: an event that is larger than the file may be has no bodies.
func TestAuditTooLarge(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "omitStages: [RequestReceived]\nrules: [{level: RequestResponse, verbs: [create]}]", func(s *server.Server) {
		s.Audit.Truncate = audit.Truncate{Enabled: true, MaxEventSize: 10_000}
	})
	a.PostYAML(configMaps, "{metadata: {name: a}, data: {k: "+strings.Repeat("x", 10_000)+"}}")
	if e := a.last(1); e.RequestObject != nil || e.ResponseObject != nil || e.Annotations["audit.k8s.io/truncated"] != "true" {
		t.Errorf("the event has bodies, or doesn't say that it's truncated: %v", e.Annotations)
	}
}

// TestAuditOff: what a policy doesn't want leaves nothing, and without a log the metrics are 0.
func TestAuditOff(t *testing.T) {
	t.Parallel()
	a := newAudited(t, "rules: [{level: None}]")
	a.PostYAML(configMaps, "metadata: {name: a}")
	if n := len(a.events()); n > 0 {
		t.Errorf("%d events, want none", n)
	}
	if got := metricOf(servertest.New(t).Get("/metrics"), "apiserver_audit_event_total"); got != "0" {
		t.Errorf("without a log %s events are counted", got)
	}
}

// TestAuditSettings: settings that can't work stop the start, with one line that names the flag.
func TestAuditSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	files := map[string]string{
		good:                               "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]",
		filepath.Join(dir, "empty.yaml"):   "",
		filepath.Join(dir, "none.yaml"):    "apiVersion: audit.k8s.io/v1\nkind: Policy\n",
		filepath.Join(dir, "level.yaml"):   "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]",
		filepath.Join(dir, "kind.yaml"):    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}",
		filepath.Join(dir, "version.yaml"): "apiVersion: audit.k8s.io/v2\nkind: Policy\nrules: [{level: Metadata}]",
		filepath.Join(dir, "both.yaml"):    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, nonResourceURLs: [/a], namespaces: [b]}]",
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(dir, "audit.log")
	tests := map[string]struct {
		options audit.Options
		want    string
	}{
		"no such policy": {audit.Options{PolicyFile: dir + "/nothing", Path: log}, "--audit-policy-file: "},
		"mode":           {audit.Options{PolicyFile: good, Path: log, Mode: "later"}, "--audit-log-mode "},
		"format":         {audit.Options{PolicyFile: good, Path: log, Format: "legacy"}, "--audit-log-format "},
		"version":        {audit.Options{PolicyFile: good, Path: log, Version: "audit.k8s.io/v1beta1"}, "--audit-log-version "},
		"size":           {audit.Options{PolicyFile: good, Path: log, MaxSize: -1}, "--audit-log-maxsize "},
		"buffer":         {audit.Options{PolicyFile: good, Path: log, Mode: audit.ModeBatch, Batch: audit.Batch{BufferSize: -1}}, "--audit-log-batch-buffer-size "},
		"throttle":       {audit.Options{PolicyFile: good, Path: log, Mode: audit.ModeBatch, Batch: audit.Batch{Throttle: true}}, "--audit-log-batch-throttle-qps "},
		"a directory":    {audit.Options{PolicyFile: good, Path: dir}, "--audit-log-path: "},
		"below a file":   {audit.Options{PolicyFile: good, Path: good + "/audit.log"}, "--audit-log-path: "},
	}
	for path := range files {
		if path != good {
			tests[filepath.Base(path)] = struct {
				options audit.Options
				want    string
			}{audit.Options{PolicyFile: path}, "--audit-policy-file: "}
		}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}, Audit: tc.options, Log: slog.New(slog.DiscardHandler)}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := s.Start(ctx)
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the start says %v, want %s…", err, tc.want)
			}
		})
	}
}
