package policy_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/admission/policy"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// store runs a registry with the built-in kinds, without a server.
func store(b *testing.B) *registry.Registry {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	st, _ := storagetest.Embedded(b)
	c := cacher.New(st, cacher.Options{Log: log})
	r := registry.New(registry.Options{Store: st, Cacher: c, Log: log})
	writes.InitialNamespaces(r)
	builtin.Register(r, builtin.Options{})
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{c.Run, r.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				b.Error(err)
				cancel() // nothing gets ready then
			}
		})
	}
	b.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	select {
	case <-r.Ready():
	case <-ctx.Done():
		b.FailNow()
	}
	return r
}

// create creates the objects of a text as apply does.
func create(b *testing.B, r *registry.Registry, objects string) {
	b.Helper()
	plurals := map[string]string{
		"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
		"MutatingAdmissionPolicy": "mutatingadmissionpolicies", "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
	}
	for _, text := range strings.Split(objects, "\n---\n") {
		body, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			b.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(body, &u.Object); err != nil {
			b.Fatal(err)
		}
		gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: plurals[u.GetKind()]}
		request := &registry.Request{Body: body}
		if u.GetKind() == "ConfigMap" {
			gvr = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
			request.Namespace = "default"
		}
		e, err := r.Lookup(b.Context(), gvr)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := writes.Of(e).Create(b.Context(), request); err != nil {
			b.Fatal(err)
		}
	}
}

// write is the creation of a ConfigMap, as admission is asked about it.
func write() *registry.AdmissionRequest[unstructured.Unstructured] {
	return &registry.AdmissionRequest[unstructured.Unstructured]{
		Attributes: registry.Attributes{
			Operation: registry.Create, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "default", Name: "a", User: registry.Everyone,
		},
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default", "labels": map[string]any{"app": "a"}},
			"data": map[string]any{"color": "red", "size": "3"},
		}},
	}
}

type everybody struct{}

func (everybody) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// three are the rules of a policy.
const three = `
- {expression: "object.data.color in ['red', 'green', 'blue']", message: "unknown color"}
- {expression: "int(object.data.size) <= 5", messageExpression: "'too large: ' + string(object.data.size)"}
- {expression: "has(object.metadata.labels) && 'app' in object.metadata.labels"}
`

// BenchmarkValidating is what policies add to a write, from the question whether they're about it.
func BenchmarkValidating(b *testing.B) {
	param := "kind: ConfigMap\nmetadata: {name: limits}\ndata: {max: '5'}\n---\n"
	var others []string
	for i := range 100 {
		others = append(others, validating(fmt.Sprintf("p%d", i), strings.Replace(configMapRules, "configmaps", "pods", 1)+"validations:"+three))
	}
	for _, test := range []struct{ name, objects string }{
		{"none", ""},
		{"three expressions", validating("p", "validations:"+three)},
		{"three expressions and params", param + validating("p", "paramKind: {apiVersion: v1, kind: ConfigMap}\nvalidations:"+strings.Replace(three, "<= 5", "<= int(params.data.max)", 1),
			"validationActions: [Deny]\nparamRef: {name: limits, parameterNotFoundAction: Deny}")},
		{"a hundred that don't match", strings.Join(others, "\n---\n")},
	} {
		b.Run(test.name, func(b *testing.B) {
			r := store(b)
			v := policy.NewValidating(policy.Config{Registry: r, Authorizer: everybody{}, Metrics: policy.NewMetrics(), Log: slog.New(slog.DiscardHandler)})
			if test.objects != "" {
				create(b, r, test.objects)
			}
			w := write()
			b.ReportAllocs()
			for b.Loop() {
				if !v.Concerns(&w.Attributes) {
					continue
				}
				if said, err := v.Validate(b.Context(), w); err != nil || said.Refused() {
					b.Fatal(said.Why(), err)
				}
			}
		})
	}
}

// BenchmarkMutating is what a policy costs that changes the object.
func BenchmarkMutating(b *testing.B) {
	for _, test := range []struct{ name, objects string }{
		{"configuration", mutating("p", applying("Object{metadata: Object.metadata{labels: {'a': 'b'}}}"))},
		{"patch", mutating("p", patching("[JSONPatch{op: 'add', path: '/metadata/labels/a', value: 'b'}]"))},
	} {
		b.Run(test.name, func(b *testing.B) {
			r := store(b)
			m := policy.NewMutating(policy.Config{Registry: r, Authorizer: everybody{}, Metrics: policy.NewMetrics(), Log: slog.New(slog.DiscardHandler)})
			create(b, r, test.objects)
			b.ReportAllocs()
			for b.Loop() {
				if said, err := m.Admit(b.Context(), write()); err != nil || said.Refused() {
					b.Fatal(said.Why(), err)
				}
			}
		})
	}
}
