package expression_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	celtypes "github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry/expression"
)

// readers lets alice read what has a name.
type readers struct{}

func (readers) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "alice" && a.GetVerb() == "get" && a.GetName() != "" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// input is the update of a Deployment in the namespace default.
func input() *expression.Input {
	deployments := metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	kind := metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	return &expression.Input{
		Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "namespace": "default"},
			"spec": map[string]any{"replicas": int64(3), "items": []any{"a", "b"}},
		},
		OldObject: map[string]any{"spec": map[string]any{"replicas": int64(1)}},
		Params:    map[string]any{"data": map[string]any{"max": "5"}},
		Request: &admissionv1.AdmissionRequest{
			Kind: kind, Resource: deployments, RequestKind: &kind, RequestResource: &deployments,
			Name: "web", Namespace: "default", Operation: admissionv1.Update,
			UserInfo: authenticationv1.UserInfo{Username: "alice", Groups: []string{"dev"}},
		},
		Namespace: func() (*corev1.Namespace, error) {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"env": "test"}}}, nil
		},
		User:       &user.DefaultInfo{Name: "alice"},
		Authorizer: readers{},
	}
}

func TestEvaluate(t *testing.T) {
	tests := []struct {
		name, text string
		use        expression.Use
		want       any    // the value
		fails      string // part of the error
	}{
		{name: "object", text: "object.spec.replicas <= 5", want: true},
		{name: "old object", text: "object.spec.replicas > oldObject.spec.replicas", want: true},
		{name: "params", text: "object.spec.replicas <= int(params.data.max)", want: true},
		{name: "request", text: "request.operation == 'UPDATE' && request.userInfo.username == 'alice' && request.resource.resource == 'deployments'", want: true},
		{name: "what a request leaves out is absent", text: "has(request.subResource)", want: false},
		{name: "namespace", text: "namespaceObject.metadata.labels['env'] == 'test'", want: true},
		{name: "authorizer", text: "authorizer.group('apps').resource('deployments').namespace('default').name('web').check('get').allowed()", want: true},
		{name: "authorizer refuses", text: "authorizer.group('apps').resource('deployments').check('delete').allowed()", want: false},
		{name: "authorizer of the request", text: "authorizer.requestResource.check('get').allowed()", want: true},
		{name: "variable", text: "variables.double == 6", want: true},
		{name: "variable of a variable", text: "variables.quadruple == 12", want: true},
		{name: "message", text: "'has ' + string(variables.double)", use: expression.Message, want: "has 6"},
		{name: "annotation", text: "object.spec.replicas > 2 ? 'many' : ''", use: expression.Annotation, want: "many"},
		{name: "no annotation", text: "null", use: expression.Annotation, want: nil},
		{name: "absent field", text: "object.spec.color == 'red'", fails: "expression 'object.spec.color == 'red'' resulted in error: no such key: color"},
		{name: "variable that fails", text: "variables.broken", fails: `composited variable "broken" fails to evaluate: no such key: absent`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := expression.New(true)
			for _, v := range [][2]string{{"double", "object.spec.replicas * 2"}, {"quadruple", "variables.double * 2"}, {"broken", "object.absent == 1"}} {
				if err := set.Define(v[0], v[1]); err != nil {
					t.Fatal(err)
				}
			}
			p, err := set.Compile(test.text, test.use)
			if err != nil {
				t.Fatal(err)
			}
			v, err := set.Run(input(), celconfig.RuntimeCELCostBudget).Evaluate(t.Context(), p)
			switch {
			case test.fails != "":
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want one with %q", err, test.fails)
				}
			case err != nil:
				t.Error(err)
			case test.want == nil:
				if v != celtypes.NullValue {
					t.Errorf("got %v, want null", v)
				}
			case v.Value() != test.want:
				t.Errorf("got %v, want %v", v.Value(), test.want)
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	tests := []struct {
		name, text string
		use        expression.Use
		want       string // part of the error
	}{
		{"syntax", "object.spec.", expression.Condition, "compilation failed: ERROR: <input>:1:13: Syntax error"},
		{"unknown name", "nobody == 1", expression.Condition, "undeclared reference to 'nobody'"},
		{"params where there are none", "params.x == 1", expression.Condition, "undeclared reference to 'params'"},
		{"authorizer in a message", "string(authorizer.requestResource.check('get').allowed())", expression.Message, "undeclared reference to 'authorizer"},
		{"type of a condition", "'text'", expression.Condition, "must evaluate to bool but got string"},
		{"type of a message", "1", expression.Message, "must evaluate to string but got int"},
		{"type of an annotation", "1", expression.Annotation, "must evaluate to one of [string null_type] but got int"},
		{"type of a configuration", "[1]", expression.ApplyConfiguration, "must evaluate to Object but got list(int)"},
		{"type of a patch", "Object{}", expression.JSONPatch, "must evaluate to list(JSONPatch) but got Object"},
		{"patch types in a condition", "has(Object{}.spec)", expression.Condition, "undeclared reference to 'Object'"},
		{"field that a request hasn't", "request.color == ''", expression.Condition, "undefined field 'color'"},
		{"variable that isn't defined", "variables.x == 1", expression.Condition, "undeclared reference to 'variables'"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := expression.New(false)
			p, err := set.Compile(test.text, test.use)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
			if _, err := set.Run(input(), celconfig.RuntimeCELCostBudget).Evaluate(t.Context(), p); err == nil {
				t.Error("an expression that doesn't compile was evaluated")
			}
		})
	}
}

func TestCosts(t *testing.T) {
	nested := "object.spec.items.all(a, object.spec.items.all(b, true))"
	tests := []struct {
		name, text string
		items      int
		budget     int64
		want       string // part of the error
		over       bool   // the budget
	}{
		{name: "one expression", text: nested, items: 2000, budget: celconfig.RuntimeCELCostBudget, want: "operation cancelled: actual cost limit exceeded"},
		{name: "all of them", text: nested, items: 100, budget: 100, want: "running out of cost budget", over: true},
		{name: "enough", text: nested, items: 100, budget: celconfig.RuntimeCELCostBudget},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set, in := expression.New(false), input()
			in.Object = map[string]any{"spec": map[string]any{"items": make([]any, test.items)}}
			p, err := set.Compile(test.text, expression.Condition)
			if err != nil {
				t.Fatal(err)
			}
			_, err = set.Run(in, test.budget).Evaluate(t.Context(), p)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if errors.Is(err, expression.ErrBudget) != test.over {
				t.Errorf("error %v, want ErrBudget: %v", err, test.over)
			}
		})
	}
}

func TestVariablesAreEvaluatedOnce(t *testing.T) {
	asked := 0
	set, in := expression.New(false), input()
	in.Namespace = func() (*corev1.Namespace, error) { asked++; return nil, nil }
	if err := set.Define("unused", "namespaceObject.metadata.name"); err != nil {
		t.Fatal(err)
	}
	p, err := set.Compile("object.spec.replicas == 3", expression.Condition)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Run(in, celconfig.RuntimeCELCostBudget).Evaluate(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if asked != 0 {
		t.Error("a variable that nothing uses was evaluated")
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	set, in := expression.New(false), input()
	in.Object = map[string]any{"spec": map[string]any{"items": make([]any, 500)}}
	p, err := set.Compile("object.spec.items.all(a, object.spec.items.all(b, true))", expression.Condition)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Run(in, celconfig.RuntimeCELCostBudget).Evaluate(ctx, p); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error %v, want one that says it was interrupted", err)
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		set := expression.New(true)
		for _, text := range []string{"object.spec.replicas <= 5", "has(object.metadata.labels)", "request.operation != 'DELETE'"} {
			if _, err := set.Compile(text, expression.Condition); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkEvaluateThree(b *testing.B) {
	set := expression.New(true)
	var programs []*expression.Program
	for _, text := range []string{"object.spec.replicas <= int(params.data.max)", "!has(object.metadata.labels)", "request.operation != 'DELETE'"} {
		p, err := set.Compile(text, expression.Condition)
		if err != nil {
			b.Fatal(err)
		}
		programs = append(programs, p)
	}
	in := input()
	b.ReportAllocs()
	for b.Loop() {
		run := set.Run(in, celconfig.RuntimeCELCostBudget)
		for _, p := range programs {
			if v, err := run.Evaluate(b.Context(), p); err != nil || v != celtypes.True {
				b.Fatal(v, err)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	text := spec.StringProperty()
	widget := expression.Schema{Root: "Widget", Schemas: map[string]*spec.Schema{
		"Widget": new(spec.Schema).Typed("object", "").SetProperty("spec", *spec.RefSchema("#/definitions/Spec")),
		"Spec": new(spec.Schema).Typed("object", "").SetProperty("color", *text).SetProperty("size", *spec.Int64Property()).
			SetProperty("child", spec.Schema{SchemaProps: spec.SchemaProps{AllOf: []spec.Schema{*spec.RefSchema("#/definitions/Spec")}}}).
			SetProperty("tags", *spec.ArrayProperty(text)),
	}}
	tests := []struct {
		name, text string
		params     *expression.Schema
		want       string // part of the error; "" for none
	}{
		{name: "known field", text: "object.spec.color == 'red' && oldObject.spec.size > 1"},
		{name: "unknown field", text: "object.spec.colour == 'red'", want: "ERROR: <input>:1:12: undefined field 'colour'"},
		{name: "wrong type", text: "object.spec.size > 'x'", want: "found no matching overload for '_>_' applied to '(int, string)'"},
		{name: "inside itself", text: "object.spec.child.anything == 1", want: "undefined field 'anything'"},
		{name: "list", text: "object.spec.tags.all(t, t.startsWith('a'))"},
		{name: "wrong params", text: "params.spec.nothing == 1", params: &widget, want: "undefined field 'nothing'"},
		{name: "params of which nothing is known", text: "params.spec.nothing == 1", params: &expression.Schema{}},
		{name: "variable with a type", text: "variables.color > 1", want: "found no matching overload"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := expression.NewChecks([]expression.Schema{widget}, test.params)[0]
			if err := set.Define("color", "object.spec.color"); err != nil {
				t.Fatal(err)
			}
			_, err := set.Compile(test.text, expression.Condition)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestChecksParseOnce: what is checked for ten kinds of objects is parsed once, which is half of the work.
func TestChecksParseOnce(t *testing.T) {
	const kinds, text = 10, "object.spec.replicas > 3 && object.metadata.name.startsWith('a') && object.metadata.labels.all(k, k.size() < 10)"
	cost := func(kinds int) float64 {
		sets := expression.NewChecks(make([]expression.Schema, kinds), nil)
		for _, set := range sets {
			set.Compile("true", expression.Condition) // makes its environment
		}
		n := 0
		return testing.AllocsPerRun(5, func() {
			n++
			for _, set := range sets {
				if _, err := set.Compile(fmt.Sprintf("%s && %d > 0", text, n), expression.Condition); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if one, all := cost(1), cost(kinds); all > one*kinds*3/4 {
		t.Errorf("%d kinds make %v allocations, and one makes %v", kinds, all, one)
	}
}
