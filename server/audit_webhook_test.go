package server_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
)

const everythingAtMetadata = "rules: [{level: Metadata}]\n"

// taken answers an EventList.
func taken(map[string]any) (map[string]any, int) { return nil, http.StatusOK }

// stages are those of the events that a webhook has got, of objects below a path.
func (a *asked) stages(path string) (all []string) {
	for _, list := range a.reviews() {
		if list["kind"] != "EventList" || list["apiVersion"] != "audit.k8s.io/v1" {
			a.t.Errorf("the webhook got a %v of %v", list["kind"], list["apiVersion"])
		}
		for _, item := range list["items"].([]any) {
			e := item.(map[string]any)
			if e["kind"] != nil || e["level"] != "Metadata" {
				a.t.Errorf("an item is %v, want one without a type", e)
			}
			if strings.HasPrefix(e["requestURI"].(string), path) {
				all = append(all, e["stage"].(string))
			}
		}
	}
	return all
}

// TestAuditWebhook: events are sent, in batches or before a request goes on, beside the file or without one. The kubeconfig is read again.
func TestAuditWebhook(t *testing.T) {
	hook := newAsked(t, taken)
	for name, test := range map[string]struct {
		mode string
		file bool
	}{"batch": {audit.ModeBatch, false}, "blocking": {audit.ModeBlocking, false}, "strict, and a file": {audit.ModeBlockingStrict, true}} {
		t.Run(name, func(t *testing.T) {
			kubeconfig, second := hook.kubeconfig(), newAsked(t, taken)
			a := newAudited(t, everythingAtMetadata, func(s *server.Server) {
				if !test.file {
					s.Audit.Path = ""
				}
				s.Audit.Webhook = audit.Webhook{ConfigFile: kubeconfig, Mode: test.mode, Batch: audit.Batch{MaxWait: time.Millisecond}}
			})
			hook.reviews()
			a.Get(configMaps)
			var stages []string
			await.Until(t, "both stages of the list are sent", func() bool { stages = append(stages, hook.stages(configMaps)...); return len(stages) == 2 })
			if got := strings.Join(stages, " "); test.mode != audit.ModeBatch && got != "RequestReceived ResponseComplete" {
				t.Errorf("the webhook got %s", got)
			}
			if test.file {
				await.Until(t, "the file has them, too", func() bool {
					return strings.Contains(lines(a.events()), "ResponseComplete list /v1/configmaps//default/ 200")
				})
			}
			second.writeKubeconfig(kubeconfig)
			await.Until(t, "the kubeconfig's new server gets events", func() bool { a.Get(configMaps); return len(second.stages(configMaps)) > 0 })
		})
	}
}

// TestAuditWebhookFails: events are sent again after a pause, and in the mode blocking-strict a request whose event isn't taken is refused.
func TestAuditWebhookFails(t *testing.T) {
	hook := newAsked(t, broken)
	a := newAudited(t, everythingAtMetadata, func(s *server.Server) {
		s.Audit.Webhook = audit.Webhook{ConfigFile: hook.kubeconfig(), Mode: audit.ModeBlockingStrict, InitialBackoff: time.Millisecond}
	})
	res, text := a.Do("GET", configMaps, "")
	if res.StatusCode != http.StatusInternalServerError || !strings.Contains(text, `"reason":"InternalError"`) {
		t.Errorf("a request that can't be audited: %d %s", res.StatusCode, text)
	}
	if n := len(hook.reviews()); n < 5 {
		t.Errorf("the event was sent %d times, want 5", n)
	}
	hook.set(taken)
	if text := a.Get("/metrics"); !strings.Contains(text, "apiserver_audit_requests_rejected_total 1\n") {
		t.Error("no metric of the refused request")
	}
}

// TestAuditWebhookHangs: a webhook to which events would be sent again in an hour holds up no request in the mode batch, and no close, whose error
// says what is lost.
func TestAuditWebhookHangs(t *testing.T) {
	hook := newAsked(t, broken)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\n"+everythingAtMetadata)
	s := &server.Server{Audit: audit.Options{PolicyFile: policy, Webhook: audit.Webhook{ConfigFile: hook.kubeconfig(), InitialBackoff: time.Hour, Batch: audit.Batch{MaxWait: time.Millisecond}}}}
	s.Serving.Listen, s.Data.Ephemeral = "127.0.0.1:0", true
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		res, err := http.Get(s.URL() + configMaps)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	await.Until(t, "the webhook was called", func() bool { return len(hook.reviews()) > 0 })
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "--audit-webhook-config-file: ") || !strings.Contains(err.Error(), "weren't delivered within") {
		t.Errorf("the close says %v", err)
	}
}

// TestAuditWebhookRefusals: what can't be used refuses the start, in one line.
func TestAuditWebhookRefusals(t *testing.T) {
	hook := newAsked(t, taken).kubeconfig()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\n"+everythingAtMetadata)
	for name, test := range map[string]struct {
		webhook audit.Webhook
		want    string
	}{
		"no file":  {audit.Webhook{ConfigFile: hook + "s"}, "--audit-webhook-config-file: stat"},
		"mode":     {audit.Webhook{ConfigFile: hook, Mode: "later"}, "--audit-webhook-mode must be"},
		"version":  {audit.Webhook{ConfigFile: hook, Version: "audit.k8s.io/v1beta1"}, "--audit-webhook-version must be"},
		"backoff":  {audit.Webhook{ConfigFile: hook, InitialBackoff: -1}, "--audit-webhook-initial-backoff must not be negative"},
		"throttle": {audit.Webhook{ConfigFile: hook, Batch: audit.Batch{Throttle: true}}, "--audit-webhook-batch-throttle-qps must be positive"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server.Server{Audit: audit.Options{PolicyFile: policy, Webhook: test.webhook}}
			s.Serving.Listen, s.Data.Dir = "127.0.0.1:0", filepath.Join(t.TempDir(), "data")
			err := s.Start(t.Context())
			if err == nil {
				s.Close()
				t.Fatal("it starts")
			}
			if text := err.Error(); !strings.Contains(text, test.want) || strings.Contains(text, "\n") {
				t.Errorf("the error is %q, want one line with %q", text, test.want)
			}
		})
	}
}
