package writes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestAdmissionOfMessages: hooks see an object that came as protobuf as they see the same one that came as JSON, and it's
// stored as they leave it.
func TestAdmissionOfMessages(t *testing.T) {
	var seen []string
	hook := onAll(func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) error {
		if r.Resource.Resource != "pods" {
			return nil
		}
		o := r.Object.DeepCopy()
		delete(o.Object, "metadata") // its name and time
		raw, err := json.Marshal(o.Object)
		seen = append(seen, string(raw))
		return errors.Join(err, unstructured.SetNestedField(r.Object.Object, "chosen", "spec", "nodeName"))
	})
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{hook}}, func(r *registry.Registry) {
		registry.Register(r, registry.Definition[corev1.Pod]{
			Group: "pods.example.com", Version: "v1", Kind: "Pod", Status: true,
			Default:  func(p *corev1.Pod) { p.Spec.SchedulerName = "default" },
			Validate: func(_ context.Context, _, _ *corev1.Pod, _ string) field.ErrorList { return nil },
		})
	})
	pods := s.at("pods.example.com", "v1", "pods")
	asJSON, err := json.Marshal(benchPod("one"))
	if err != nil {
		t.Fatal(err)
	}
	message, err := benchPod("two").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	sent := &registry.Request{Target: registry.Target{Namespace: "default"}, Form: form.Form{Encoding: form.Protobuf}}
	if err := pods.OpenProtobuf(sent, kubeproto.TypeOf("pods.example.com/v1", "Pod").Append(nil, message)); err != nil {
		t.Fatal(err)
	}
	var stored []string
	for name, r := range map[string]*registry.Request{"one": {Target: registry.Target{Namespace: "default"}, Body: asJSON}, "two": sent} {
		if _, err := pods.Writer.Create(s.ctx, r); err != nil {
			t.Fatal(err)
		}
		o := s.ok(pods.Get(s.ctx, "default", name, "", nil))
		delete(o, "metadata")
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, string(raw))
	}
	if len(seen) != 2 || seen[0] != seen[1] {
		t.Errorf("the hook saw\n%s", strings.Join(seen, "\n"))
	}
	if stored[0] != stored[1] || !strings.Contains(stored[0], `"nodeName":"chosen"`) || !strings.Contains(stored[0], `"schedulerName":"default"`) {
		t.Errorf("stored is\n%s", strings.Join(stored, "\n"))
	}
}

// TestTurnsOfMessages: what a write took in a turn that another process had doesn't count as asked for when it begins again.
func TestTurnsOfMessages(t *testing.T) {
	var s *server
	attempts := 0
	s = start(t, "", registry.Options{Shared: true}, func(r *registry.Registry) {
		r.Add(registry.Type{
			Names:    registry.Names{Group: "turns.example.com", Version: "v1", Kind: "Service"},
			New:      func() registry.Typed { return &corev1.Service{} },
			Validate: func(context.Context, registry.Typed, registry.Typed, string) field.ErrorList { return nil },
			Guard: registry.Guard{Claim: func(obj, _ registry.Typed, _ bool) (registry.Settle, error) {
				spec := &obj.(*corev1.Service).Spec
				if spec.ClusterIP != "" {
					t.Errorf("attempt %d asks for %s", attempts, spec.ClusterIP)
				}
				if attempts++; attempts == 1 { // another process is faster
					if _, err := s.Store.Create(s.ctx, storage.Own+"turns/services.turns.example.com", nil); err != nil {
						t.Error(err)
					}
				}
				spec.ClusterIP = fmt.Sprint("attempt-", attempts)
				return func(storage.Revision) {}, nil
			}},
		})
	})
	e := s.at("turns.example.com", "v1", "services")
	message, err := (&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	sent := &registry.Request{Target: registry.Target{Namespace: "default"}, Form: form.Form{Encoding: form.Protobuf}}
	if err := e.OpenProtobuf(sent, kubeproto.TypeOf("turns.example.com/v1", "Service").Append(nil, message)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Writer.Create(s.ctx, sent); err != nil {
		t.Fatal(err)
	}
	if got := s.ok(e.Get(s.ctx, "default", "a", "", nil)).get("spec.clusterIP"); got != "attempt-2" {
		t.Errorf("the service has the address %s", got)
	}
}
