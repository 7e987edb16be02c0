package server_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// judge is an admission webhook that allows everything, after a time.
type judge struct {
	*httptest.Server
	mu      sync.Mutex // guards parents
	parents []string   // the headers traceparent that it got
}

func newJudge(t *testing.T, takes time.Duration) *judge {
	j := &judge{}
	j.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called := time.Now()
		var review struct {
			Request struct {
				UID string `json:"uid"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		j.mu.Lock()
		j.parents = append(j.parents, r.Header.Get("traceparent"))
		j.mu.Unlock()
		await.Until(t, "the call has taken long enough", func() bool { return time.Since(called) >= takes })
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
	}))
	t.Cleanup(j.Close)
	return j
}

// of is its configuration, for ConfigMaps.
func (j *judge) of() string {
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: j.Certificate().Raw}))
	return fmt.Sprintf(`{"metadata":{"name":"judge"},"webhooks":[{"name":"judge.example.com","sideEffects":"None","admissionReviewVersions":["v1"],
		"clientConfig":{"url":"%s/","caBundle":%q},"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`, j.URL, authority)
}

// taken returns the headers traceparent since the last call.
func (j *judge) taken() (all []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	all, j.parents = j.parents, nil
	return all
}

// local lets webhooks be called here.
func local(s *server.Server) {
	s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

const configMapsPath = "/api/v1/namespaces/default/configmaps"

// TestSlowRequests: the log says of a request that took long where its time went, by the names of what it waited for. It says nothing of
// others, nor of a watch.
func TestSlowRequests(t *testing.T) {
	t.Parallel()
	var log await.Log
	s := servertest.New(t, local, func(s *server.Server) { s.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	j := newJudge(t, tracing.Slow+50*time.Millisecond)
	s.PostYAML("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", j.of())
	s.Get(configMapsPath + "?watch=true&timeoutSeconds=1")
	s.PostYAML(configMapsPath, `{"metadata":{"name":"a"}}`)
	await.Until(t, "the line", func() bool { return strings.Contains(log.String(), "method=POST path="+configMapsPath+" ") })
	found := false
	for line := range strings.Lines(log.Take()) {
		if !strings.Contains(line, "a request was slow") || !strings.Contains(line, "method=POST path="+configMapsPath+" ") {
			continue
		}
		found = true
		for _, name := range []string{"took", "admission"} {
			_, after, _ := strings.Cut(line, " "+name+"=")
			text, _, _ := strings.Cut(after, " ")
			if took, err := time.ParseDuration(text); err != nil || took < tracing.Slow {
				t.Errorf("%s is %q, want a duration of %v at least: %s", name, text, tracing.Slow, line)
			}
		}
		for _, want := range []string{"code=201", " etcd=", "admission ValidatingAdmissionWebhook ", "webhook judge.example.com ", "audit_id="} {
			if !strings.Contains(line, want) {
				t.Errorf("the line lacks %q: %s", want, line)
			}
		}
	}
	if !found {
		t.Error("no line is about the slow request")
	}
}

// collector takes traces.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	at string

	mu    sync.Mutex // guards spans
	spans []*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, s := &collector{at: listener.Addr().String()}, grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(s, c)
	go s.Serve(listener)
	t.Cleanup(s.Stop)
	return c
}

// Export implements collectorpb.TraceServiceServer.
func (c *collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, in := range of.ScopeSpans {
			c.spans = append(c.spans, in.Spans...)
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// tracedTo has a server send traces of so many of a million requests.
func tracedTo(t *testing.T, at string, rate int) func(*server.Server) {
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	text := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: %d\n", at, rate)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(s *server.Server) { s.Telemetry.Tracing.ConfigFile = file }
}

// TestTraces: a request is one trace, from its arrival to the answer, with what it waited for, down to etcd. Webhooks are called as a
// part of it, and what wasn't sent when the server is closed is sent then.
func TestTraces(t *testing.T) {
	t.Parallel()
	c, j := newCollector(t), newJudge(t, 0)
	s := servertest.New(t, local, tracedTo(t, c.at, 1_000_000))
	s.PostYAML("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", j.of())
	s.PostYAML(configMapsPath, `{"metadata":{"name":"a"}}`)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spans, func(s *tracepb.Span) bool {
		return s.Name == "POST /api/v1/namespaces/{:namespace}/configmaps"
	})
	if i < 0 {
		t.Fatalf("there's no span of the request: %v", c.spans)
	}
	root, names := c.spans[i], map[string]*tracepb.Span{}
	for _, s := range c.spans {
		if string(s.TraceId) == string(root.TraceId) {
			names[s.Name] = s
		}
	}
	for child, parent := range map[string]string{
		"wait for a seat": root.Name, "read the body": root.Name, "admission ValidatingAdmissionWebhook": root.Name, "webhook judge.example.com": "admission ValidatingAdmissionWebhook",
		"etcd create": root.Name, "write the answer": root.Name,
	} {
		if s := names[child]; s == nil || string(s.ParentSpanId) != string(names[parent].SpanId) {
			t.Errorf("the span %q isn't one below %q: %v", child, parent, s)
		} else if s.StartTimeUnixNano < root.StartTimeUnixNano || s.EndTimeUnixNano > root.EndTimeUnixNano || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("the span %q isn't within the request's time", child)
		}
	}
	attributes := map[string]string{}
	for _, a := range root.Attributes {
		attributes[a.Key] = strings.Trim(a.Value.String(), `"`)
	}
	for _, key := range []string{"http.request.method", "url.path", "http.target", "http.response.status_code", "user_agent.original", "client.address", "audit-id"} {
		if attributes[key] == "" {
			t.Errorf("the request's span has no %s: %v", key, attributes)
		}
	}
	want := "00-" + hex.EncodeToString(root.TraceId) + "-" + hex.EncodeToString(names["webhook judge.example.com"].SpanId) + "-01"
	if got := j.taken(); !slices.Equal(got, []string{want}) {
		t.Errorf("the webhook was called with %q, want %q", got, want)
	}
}

// TestTraceparent: a client of the system's own groups has its requests traced, and nobody else; webhooks hear of the trace in any case.
func TestTraceparent(t *testing.T) {
	t.Parallel()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for _, tc := range []struct {
		name, user, flags string
		traced            bool
	}{
		{"an administrator's", "root", "01", true},
		{"an administrator's that isn't traced", "root", "00", false},
		{"somebody's", "ann", "01", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, j := newCollector(t), newJudge(t, 0)
			s := newRuled(t, local, tracedTo(t, c.at, 0))
			s.expect("root", "POST /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", j.of(), 201, "")
			s.expect("root", "POST "+rbacPath+"/clusterrolebindings", `{"metadata":{"name":"ann"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","name":"ann"}]}`, 201, "")
			res, body := s.Do("POST", configMapsPath, `{"metadata":{"name":"a"}}`, "Content-Type", "application/json", "Authorization", "Bearer "+tc.user, "traceparent", "00-"+trace+"-b7ad6b7169203331-"+tc.flags)
			if res.StatusCode != 201 {
				t.Fatalf("%s %s", res.Status, body)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := j.taken(); len(got) != 1 || !strings.HasPrefix(got[0], "00-"+trace+"-") || !strings.HasSuffix(got[0], tc.flags) {
				t.Errorf("the webhook was called with %q", got)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if traced := len(c.spans) > 0; traced != tc.traced {
				t.Errorf("%d spans", len(c.spans))
			}
			for _, s := range c.spans {
				if hex.EncodeToString(s.TraceId) != trace {
					t.Errorf("a span of another trace: %v", s)
				}
			}
		})
	}
}

// TestTracesWithoutCollector: a collector that isn't there costs a line of the log, and no request.
func TestTracesWithoutCollector(t *testing.T) {
	t.Parallel()
	var log await.Log
	s := servertest.New(t, tracedTo(t, "127.0.0.1:1", 1_000_000), func(s *server.Server) { s.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	s.PostYAML(configMapsPath, `{"metadata":{"name":"a"}}`)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "traces couldn't be sent to the collector") {
		t.Errorf("the log says nothing: %s", log.String())
	}
}

// BenchmarkTraced is the creation of a ConfigMap without traces, and with some.
func BenchmarkTraced(b *testing.B) {
	for name, rate := range map[string]int{"off": -1, "1%": 10_000, "all": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			var options []func(*server.Server)
			if rate >= 0 {
				options = append(options, func(s *server.Server) {
					file := filepath.Join(b.TempDir(), "tracing.yaml")
					os.WriteFile(file, fmt.Appendf(nil, "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: 127.0.0.1:1\nsamplingRatePerMillion: %d\n", rate), 0o600)
					s.Telemetry.Tracing.ConfigFile = file
				})
			}
			s := servertest.New(b, options...)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				s.PostYAML(configMapsPath, fmt.Sprintf(`{"metadata":{"name":"a%d"}}`, n))
			}
		})
	}
}
