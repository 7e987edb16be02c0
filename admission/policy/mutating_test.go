package policy_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const widgetRules = `
matchConstraints:
  resourceRules:
  - {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [widgets]}
`

// applying is a mutation by an Object, and patching one by a JSON patch.
func applying(expression string) string {
	return "mutations:\n- patchType: ApplyConfiguration\n  applyConfiguration: {expression: \"" + expression + "\"}\n"
}

func patching(expression string) string {
	return "mutations:\n- patchType: JSONPatch\n  jsonPatch: {expression: \"" + expression + "\"}\n"
}

func TestMutating(t *testing.T) {
	s := servertest.New(t)
	apply(t, s, definitions)
	s.Snapshot("base")
	widgets := paths["Widget"]
	widget := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"color":"red","tags":["a"],"ports":[{"name":"x","number":1}]}}`
	created := request{path: widgets, body: widget}
	refused := func(want string) request {
		return request{path: widgets, body: widget, code: 403, want: want}
	}
	again := "reinvocationPolicy: IfNeeded\n"
	tests := []struct {
		name    string
		objects string
		request
		after map[string]any // by paths
	}{
		{"configuration", mutating("p", widgetRules+applying("Object{metadata: Object.metadata{labels: {'a': 'b'}}, spec: Object.spec{size: 3}}")), created,
			map[string]any{"metadata.labels.a": "b", "spec.size": 3.0, "spec.color": "red"}},
		{"configuration of lists", mutating("p", widgetRules+applying("Object{spec: Object.spec{tags: ['b'], ports: [Object.spec.ports{name: 'y'}]}}")), created,
			map[string]any{"spec.tags": []any{"a", "b"}, "spec.ports": []any{map[string]any{"name": "x", "number": 1.0}, map[string]any{"name": "y", "number": 80.0}}}},
		{"configuration of a list that is one value", mutating("p", widgetRules+applying("Object{spec: Object.spec{points: [1]}}")),
			refused("policy 'p' with binding 'p-binding' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.points"), nil},
		{"configuration that doesn't fit", mutating("p", widgetRules+applying("Object{spec: Object.spec{size: 'big'}}")), refused("denied request: error applying patch: failed to convert patch object to typed object"), nil},
		{"configuration of another type", mutating("p", widgetRules+applying("Object{spec: Object.status{size: 1}}")), refused("denied request: type mismatch: unexpected type name"), nil},
		{"configuration that fails, and is ignored", mutating("p", "failurePolicy: Ignore\n"+widgetRules+applying("Object{spec: Object.spec{size: 'big'}}")), created, map[string]any{"spec.size": 1.0}},
		{"conditional field", mutating("p", widgetRules+applying("Object{spec: Object.spec{?size: object.spec.color == 'red' ? optional.of(7) : optional.none()}}")), created, map[string]any{"spec.size": 7.0}},
		{"a built-in kind", mutating("p", applying("Object{data: {'color': object.data.color + 'dish'}}")), request{}, nil},
		{"expression that fails", mutating("p", widgetRules+applying("Object{spec: Object.spec{size: object.none}}")), refused("resulted in error: no such key: none"), nil},

		{"patch", mutating("p", widgetRules+patching("[JSONPatch{op: 'replace', path: '/spec/color', value: 'blue'}, JSONPatch{op: 'add', path: '/metadata/labels', value: {'x': 'y'}}]")), created,
			map[string]any{"spec.color": "blue", "metadata.labels.x": "y"}},
		{"patch with an Object", mutating("p", widgetRules+patching("[JSONPatch{op: 'add', path: '/spec/ports/-', value: Object.spec.ports{name: 'z', number: 2}}]")), created,
			map[string]any{"spec.ports": []any{map[string]any{"name": "x", "number": 1.0}, map[string]any{"name": "z", "number": 2.0}}}},
		{"patch with an escaped key", mutating("p", widgetRules+patching("[JSONPatch{op: 'add', path: '/metadata/labels', value: {}}, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/a'), value: 'b'}]")), created,
			map[string]any{"metadata.labels": map[string]any{"example.com/a": "b"}}},
		{"patch whose test fails", mutating("p", widgetRules+patching("[JSONPatch{op: 'test', path: '/spec/color', value: 'green'}, JSONPatch{op: 'replace', path: '/spec/color', value: 'blue'}]")), created, map[string]any{"spec.color": "red"}},
		{"patch that doesn't apply", mutating("p", widgetRules+patching("[JSONPatch{op: 'remove', path: '/spec/none'}]")), refused("denied request: JSON Patch: "), nil},
		{"patch that makes it invalid", mutating("p", widgetRules+patching("[JSONPatch{op: 'replace', path: '/spec/color', value: 1}]")), request{path: widgets, body: widget, code: 422, want: "spec.color: Invalid value"}, nil},
		{"move and copy", mutating("p", widgetRules+patching("[JSONPatch{op: 'copy', from: '/spec/color', path: '/metadata/annotations/c'}]")+"matchConditions: [{name: has, expression: \"has(object.metadata.annotations)\"}]"), created, map[string]any{"metadata.annotations": nil}},

		{"order", mutating("b", widgetRules+patching("[JSONPatch{op: 'replace', path: '/spec/color', value: object.spec.color + 'b'}]")) + "\n---\n" +
			mutating("a", widgetRules+patching("[JSONPatch{op: 'replace', path: '/spec/color', value: object.spec.color + 'a'}]")), created, map[string]any{"spec.color": "redab"}},
		{"two mutations", mutating("p", widgetRules+"variables: [{name: color, expression: \"object.spec.color\"}]\n"+patching("[JSONPatch{op: 'replace', path: '/spec/color', value: 'a'}]")+
			"- patchType: JSONPatch\n  jsonPatch: {expression: \"[JSONPatch{op: 'replace', path: '/spec/color', value: string(variables.color) + 'b'}]\"}"), created, map[string]any{"spec.color": "ab"}},
		{"asked again", mutating("a", again+widgetRules+applying("Object{spec: Object.spec{size: object.spec.color == 'blue' ? 9 : 2}}")) + "\n---\n" +
			mutating("b", widgetRules+applying("Object{spec: Object.spec{color: 'blue'}}")), created, map[string]any{"spec.size": 9.0, "spec.color": "blue"}},
		{"not asked again", mutating("a", widgetRules+applying("Object{spec: Object.spec{size: object.spec.color == 'blue' ? 9 : 2}}")) + "\n---\n" +
			mutating("b", widgetRules+applying("Object{spec: Object.spec{color: 'blue'}}")), created, map[string]any{"spec.size": 2.0}},
		{"two that undo each other end", mutating("a", again+widgetRules+applying("Object{spec: Object.spec{size: object.spec.size + 1}}")) + "\n---\n" +
			mutating("b", again+widgetRules+applying("Object{spec: Object.spec{size: object.spec.size + 10}}")), created, map[string]any{"spec.size": 23.0}},
		{"validated afterwards", mutating("p", widgetRules+applying("Object{spec: Object.spec{size: 5}}")) + "\n---\n" +
			validating("v", widgetRules+`validations: [{expression: "object.spec.size < 5"}]`), request{path: widgets, body: widget, code: 422, want: "ValidatingAdmissionPolicy 'v'"}, nil},
		{"params", "kind: Limit\napiVersion: example.com/v1\nmetadata: {name: l}\nmax: 4\n---\n" + mutating("p", "paramKind: {apiVersion: example.com/v1, kind: Limit}\n"+widgetRules+applying("Object{spec: Object.spec{size: params.max}}"),
			"paramRef: {name: l, parameterNotFoundAction: Deny}"), created, map[string]any{"spec.size": 4.0}},
		{"no params", mutating("p", "paramKind: {apiVersion: example.com/v1, kind: Limit}\n"+widgetRules+applying("Object{spec: Object.spec{size: params.max}}"),
			"paramRef: {name: l, parameterNotFoundAction: Deny}"), refused("denied request: failed to configure binding: no params found"), nil},
		{"match condition", mutating("p", widgetRules+applying("Object{spec: Object.spec{size: 5}}")+`matchConditions: [{name: blue, expression: "object.spec.color == 'blue'"}]`), created, map[string]any{"spec.size": 1.0}},
		{"the binding selects", mutating("p", widgetRules+applying("Object{spec: Object.spec{size: 5}}"), "matchResources: {objectSelector: {matchLabels: {a: b}}}"), created, map[string]any{"spec.size": 1.0}},
		{"another version", mutating("p", widgetRules+applying("Object{spec: Object.spec{size: 5}}")),
			request{path: strings.Replace(widgets, "v1", "v2", 1), body: strings.Replace(widget, "example.com/v1", "example.com/v2", 1)}, map[string]any{"apiVersion": "example.com/v2", "spec.size": 5.0}},
		{"a name", mutating("p", widgetRules+applying("Object{metadata: Object.metadata{name: 'other'}}")), created, map[string]any{"metadata.name": "other"}},
		{"scale", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {replicas: 1}\n---\n" + mutating("p", strings.Replace(widgetRules, "resources: [widgets]", "resources: [widgets/scale]", 1)+applying("Object{spec: Object.spec{replicas: 3}}")),
			request{method: http.MethodPatch, path: widgets + "/w/scale", body: `{"spec":{"replicas":4}}`, contentType: "application/merge-patch+json"}, map[string]any{"spec.replicas": 3.0}},
		{"a deletion", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n---\n" + mutating("p", strings.Replace(widgetRules, "CREATE, UPDATE", "'*'", 1)+applying("Object{spec: Object.spec{size: 5}}")),
			request{method: http.MethodDelete, path: widgets + "/w"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			s.ResetTo("base")
			apply(t, s, test.objects)
			answer := test.send(t, s)
			for path, want := range test.after {
				var got any = answer
				for _, name := range strings.Split(path, ".") {
					m, _ := got.(map[string]any)
					got = m[name]
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s is %v, want %v", path, got, want)
				}
			}
		})
	}
}

// TestConversionFails: whether an object passes that can't be converted into the version that a policy is written for is up to
// its failurePolicy.
func TestConversionFails(t *testing.T) {
	converter := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(converter.Close)
	s := servertest.New(t, func(s *server.Server) { s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	const widgetNames = "names: {plural: widgets, kind: Widget}"
	broken := strings.Replace(definitions, widgetNames, widgetNames+"\n  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: '"+converter.URL+"'}}}", 1)
	if broken == definitions {
		t.Fatal("the definitions have another form")
	}
	apply(t, s, broken)
	s.Snapshot("base")
	stored := request{path: paths["Widget"], body: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"color":"red"}}`}
	rules := strings.Replace(widgetRules, "[v1]", "[v2]", 1)
	refused := func(code int, want string) request {
		q := stored
		q.code, q.want = code, want
		return q
	}
	const why = "conversion webhook for example.com/v1, Kind=Widget failed"
	for _, test := range []struct {
		name, objects string
		request
	}{
		{"validating", validating("p", rules+`validations: [{expression: "true"}]`), refused(422, "denied request: failed to configure binding: failed to convert object version: "+why)},
		{"validating, ignored", validating("p", "failurePolicy: Ignore\n"+rules+`validations: [{expression: "true"}]`), stored},
		{"mutating", mutating("p", rules+applying("Object{spec: Object.spec{size: 3}}")), refused(403, `policy "p" denied request: failed to configure policy: `+why)},
		{"mutating, ignored", mutating("p", "failurePolicy: Ignore\n"+rules+applying("Object{spec: Object.spec{size: 3}}")), stored},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			s.ResetTo("base")
			apply(t, s, test.objects)
			test.send(t, s)
		})
	}
}

// TestMetrics: what policies decide is counted under Kubernetes' names, and the series of a policy go with it.
func TestMetrics(t *testing.T) {
	s := servertest.New(t)
	fails := `validations: [{expression: "object.data.none == 'x'"}]`
	apply(t, s, validating("warns", forbidden, "validationActions: [Warn, Audit]")+"\n---\n"+validating("denies", forbidden)+"\n---\n"+
		validating("fails", fails)+"\n---\n"+validating("ignored", "failurePolicy: Ignore\n"+fails)+"\n---\n"+validating("passes", `validations: [{expression: "true"}]`)+"\n---\n"+
		mutating("m", applying("Object{data: {'more': 'yes'}}")))
	request{code: 422, want: "denied", warning: "Validation failed for ValidatingAdmissionPolicy 'warns'"}.send(t, s)

	series := func() (all []string) {
		for _, line := range strings.Split(s.Get("/metrics"), "\n") {
			if strings.HasPrefix(line, "apiserver_validating_admission_policy_check_total{") || strings.HasPrefix(line, "apiserver_mutating_admission_policy_check_total{") ||
				strings.Contains(line, "_admission_policy_check_duration_seconds_count{") {
				all = append(all, strings.TrimPrefix(line, "apiserver_"))
			}
		}
		slices.Sort(all)
		return all
	}
	var want []string
	for _, labels := range []string{
		`validating_admission_policy_check_%s{enforcement_action="warn",error_type="invalid_error",policy="warns",policy_binding="warns-binding"} 1`,
		`validating_admission_policy_check_%s{enforcement_action="audit",error_type="invalid_error",policy="warns",policy_binding="warns-binding"} 1`,
		`validating_admission_policy_check_%s{enforcement_action="deny",error_type="invalid_error",policy="denies",policy_binding="denies-binding"} 1`,
		`validating_admission_policy_check_%s{enforcement_action="deny",error_type="invalid_error",policy="fails",policy_binding="fails-binding"} 1`,
		`validating_admission_policy_check_%s{enforcement_action="allow",error_type="invalid_error",policy="ignored",policy_binding="ignored-binding"} 1`,
		`mutating_admission_policy_check_%s{error_type="no_error",policy="m",policy_binding="m-binding"} 1`,
	} {
		want = append(want, strings.Replace(labels, "%s", "total", 1), strings.Replace(labels, "%s", "duration_seconds_count", 1))
	}
	slices.Sort(want)
	if got := series(); !slices.Equal(got, want) {
		t.Errorf("the series are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, name := range []string{"warns", "denies", "fails", "ignored", "passes"} {
		request{method: http.MethodDelete, path: paths["ValidatingAdmissionPolicy"] + "/" + name}.send(t, s)
	}
	request{method: http.MethodDelete, path: paths["MutatingAdmissionPolicy"] + "/m"}.send(t, s)
	request{}.send(t, s)
	if got := series(); len(got) > 0 {
		t.Errorf("of policies that are gone there are %q", got)
	}
}
