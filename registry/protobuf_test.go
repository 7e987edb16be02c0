package registry

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// TestAdmissionOfMessages: hooks see an object that came as protobuf as they see the same one that came as JSON, and it's
// stored as they leave it.
func TestAdmissionOfMessages(t *testing.T) {
	var seen []string
	hook := onAll(func(_ context.Context, r *AdmissionRequest[unstructured.Unstructured]) error {
		if r.Resource.Resource != "pods" {
			return nil
		}
		o := r.Object.DeepCopy()
		delete(o.Object, "metadata") // its name and time
		raw, err := json.Marshal(o.Object)
		seen = append(seen, string(raw))
		return errors.Join(err, unstructured.SetNestedField(r.Object.Object, "chosen", "spec", "nodeName"))
	})
	s := start(t, "", Options{Admission: []Admission[unstructured.Unstructured]{hook}}, func(r *Registry) {
		Register(r, Definition[corev1.Pod]{
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
	sent := &Request{Target: Target{Namespace: "default"}, Form: form.Form{Encoding: form.Protobuf}}
	if err := pods.OpenProtobuf(sent, kubeproto.TypeOf("pods.example.com/v1", "Pod").Append(nil, message)); err != nil {
		t.Fatal(err)
	}
	var stored []string
	for name, r := range map[string]*Request{"one": {Target: Target{Namespace: "default"}, Body: asJSON}, "two": sent} {
		if _, err := pods.Endpoint.Create(s.ctx, r); err != nil {
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
