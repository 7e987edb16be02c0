package webhook_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// TestAuditAnnotations reads what calls of webhooks write into the audit log: what the webhooks say, what they changed, with the
// patch where bodies are noted, and which of them failed and were ignored.
func TestAuditAnnotations(t *testing.T) {
	h := newHook(t)
	kind := admissionv1.PatchTypeJSONPatch
	noted := func(note, color string) handler {
		return answer(admissionv1.AdmissionResponse{
			Allowed: true, AuditAnnotations: map[string]string{"note": note}, PatchType: &kind,
			Patch: []byte(`[{"op":"add","path":"/data/color","value":"` + color + `"}]`),
		})
	}
	h.on("/a", noted("first", "blue"))
	h.on("/b", noted("second", "blue"))
	h.on("/broken", raw("nonsense"))
	h.on("/v", answer(admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"note": "fine"}}))
	again, ignore := `reinvocationPolicy="IfNeeded"`, `failurePolicy="Ignore"`
	elsewhere := `rules=[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["secrets"]}]`

	mutation := func(webhook string, mutated bool) string {
		return fmt.Sprintf(`{"configuration":"m","webhook":%q,"mutated":%v}`, webhook, mutated)
	}
	want := map[string]string{
		"a.example.com/note": "first", "b.example.com/note": "second", "v.example.com/note": "fine",
		"mutation.webhook.admission.k8s.io/round_0_index_1":               mutation("a.example.com", true),
		"mutation.webhook.admission.k8s.io/round_0_index_2":               mutation("b.example.com", false),
		"mutation.webhook.admission.k8s.io/round_0_index_3":               mutation("broken.example.com", false),
		"mutation.webhook.admission.k8s.io/round_0_index_4":               mutation("c.example.com", true),
		"mutation.webhook.admission.k8s.io/round_1_index_1":               mutation("a.example.com", true),
		"failed-open.mutation.webhook.admission.k8s.io/round_0_index_3":   "broken.example.com",
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "broken.example.com",
	}
	h.on("/c", patch(`[{"op":"add","path":"/data/color","value":"green"}]`))
	patched := func(webhook, color string) string {
		return fmt.Sprintf(`{"configuration":"m","webhook":%q,"patch":[{"op":"add","path":"/data/color","value":%q}],"patchType":"JSONPatch"}`, webhook, color)
	}
	for _, level := range []auditv1.Level{auditv1.LevelMetadata, auditv1.LevelRequest} {
		t.Run(string(level), func(t *testing.T) {
			dir := t.TempDir()
			rules, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
			text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: " + string(level) + ", verbs: [create], resources: [{resources: [configmaps]}]}]\n"
			if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := start(t, func(s *server.Server) { s.Audit = audit.Options{PolicyFile: rules, Path: log} })
			must(t, s, 201, "POST", mutatingPath, configurationOf("Mutating", "m",
				h.webhook("elsewhere.example.com", "/a", elsewhere), h.webhook("a.example.com", "/a", again), h.webhook("b.example.com", "/b"),
				h.webhook("broken.example.com", "/broken", ignore), h.webhook("c.example.com", "/c")))
			must(t, s, 201, "POST", validatingPath, configurationOf("Validating", "v",
				h.webhook("elsewhere.example.com", "/v", elsewhere), h.webhook("v.example.com", "/v"), h.webhook("broken.example.com", "/broken", ignore)))
			must(t, s, 201, "POST", configMaps, anyConfigMapBody)

			want := copied(want)
			if level == auditv1.LevelRequest {
				want["patch.webhook.admission.k8s.io/round_0_index_1"] = patched("a.example.com", "blue")
				want["patch.webhook.admission.k8s.io/round_0_index_2"] = patched("b.example.com", "blue")
				want["patch.webhook.admission.k8s.io/round_0_index_4"] = patched("c.example.com", "green")
				want["patch.webhook.admission.k8s.io/round_1_index_1"] = patched("a.example.com", "blue")
			}
			var event auditv1.Event
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // the event comes after the answer
				text, err := os.ReadFile(log)
				if err != nil {
					t.Fatal(err)
				}
				if line, _, whole := strings.Cut(string(text), "\n"); whole {
					if err := json.Unmarshal([]byte(line), &event); err != nil {
						t.Fatalf("%v in %s", err, line)
					}
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("no event")
				}
			}
			got := event.Annotations
			delete(got, audit.Decision)
			delete(got, audit.Reason)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the annotations are\n%s\nwant\n%s", indented(got), indented(want))
			}
		})
	}
}

func copied(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func indented(m map[string]string) string {
	b, _ := json.MarshalIndent(m, "", "  ")
	return string(b)
}
