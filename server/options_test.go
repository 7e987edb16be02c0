package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestDryRuns: each write is answered as if it were one, and isn't. Then it's made, and answered the same.
func TestDryRuns(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	const namespacesPath = "/api/v1/namespaces"
	object := func(n int, more string) { s.PostYAML(gizmosPath, applied(fmt.Sprintf("o%d", n), more)) }
	for i := range 18 {
		object(i, `},"spec":{"size":"S","replicas":1}`)
	}
	object(18, `,"finalizers":["x.y/z"]`)
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		s.PostYAML(namespacesPath, `{"metadata":{"name":"`+name+`"}}`)
	}
	s.PostYAML("/apis/example.com/v1/namespaces/n4/gizmos", applied("deleted", ""))
	s.PostYAML(definitionsPath, widgets)
	s.PostYAML(definitionsPath, gadgets)
	other := strings.NewReplacer("widget", "wodget", "Widget", "Wodget", "wd", "wo").Replace(widgets)
	put := func(name, more string) string {
		return applied(name, `,"resourceVersion":"`+value(s.Get(gizmosPath+"/"+name), "metadata.resourceVersion")+`"`+more)
	}
	scale := func(name string) string {
		return strings.Replace(s.Get(gizmosPath+"/"+name+"/scale"), `"replicas":1}`, `"replicas":5}`, 1)
	}
	const fresh, kept = "metadata.resourceVersion= metadata.uid!= metadata.generation=1", "metadata.resourceVersion!= metadata.uid!="
	steps := []struct {
		method, path, media, body string
		code                      int
		want                      string // of the dry run
	}{
		{"POST", gizmosPath, "", applied("new", ""), 201, fresh + " metadata.name=new"},
		{"POST", gizmosPath, "", applied("", `,"generateName":"g-"`), 201, fresh + " metadata.name!="},
		{"POST", gizmosPath, "", applied("o0", ""), 409, "reason=AlreadyExists"},
		{"POST", gizmosPath, "", applied("o0", `},"spec":{"size":"XL"}`), 422, "reason=Invalid"},
		{"POST", "/apis/example.com/v1/namespaces/nowhere/gizmos", "", applied("o0", ""), 404, "details.kind=namespaces"},
		{"PUT", gizmosPath + "/o1", "", put("o1", `},"spec":{"size":"L"}`), 200, kept + " spec.size=L metadata.generation=2"},
		{"PUT", gizmosPath + "/o1", "", put("o2", ``), 400, ""},
		{"PUT", gizmosPath + "/o2/status", "", put("o2", `},"status":{"phase":"x"}`), 200, kept + " status.phase=x spec.size=S"},
		{"PUT", gizmosPath + "/o3/scale", "", scale("o3"), 200, kept + " kind=Scale spec.replicas=5"},
		{"PUT", gizmosPath + "/missing", "", put("o2", ``), 400, ""},
		{"PATCH", gizmosPath + "/o4", mergePatch, `{"spec":{"size":"L"}}`, 200, kept + " spec.size=L metadata.generation=2"},
		{"PATCH", gizmosPath + "/o5", jsonPatch, `[{"op":"remove","path":"/spec/size"}]`, 200, kept + " spec.size=M"},
		{"PATCH", gizmosPath + "/o5", jsonPatch, `[{"op":"remove","path":"/spec/nothing"}]`, 422, ""},
		{"PATCH", gizmosPath + "/o6?fieldManager=m", applyPatch, applied("o6", `},"spec":{"text":"x"}`), 200, kept + " spec.text=x spec.size=S metadata.managedFields.0.manager=m"},
		{"PATCH", gizmosPath + "/o7?fieldManager=m", applyPatch, applied("o7", `},"spec":{"size":"L"}`), 409, "details.causes.0.field=.spec.size"},
		{"PATCH", gizmosPath + "/made?fieldManager=m", applyPatch, applied("made", `},"spec":{"text":"x"}`), 201, fresh + " spec.size=M metadata.managedFields.0.manager=m"},
		{"PATCH", gizmosPath + "/o8/status", mergePatch, `{"status":{"phase":"x"}}`, 200, kept + " status.phase=x"},
		{"PATCH", gizmosPath + "/o9/status?fieldManager=m", applyPatch, applied("o9", `},"status":{"phase":"x"}`), 200, kept + " status.phase=x"},
		{"PATCH", gizmosPath + "/o10/scale", mergePatch, `{"spec":{"replicas":7}}`, 200, kept + " kind=Scale spec.replicas=7"},
		{"PATCH", gizmosPath + "/missing", mergePatch, `{}`, 404, ""},
		{"DELETE", gizmosPath + "/o11", "", "", 200, "kind=Status status=Success details.name=o11 details.kind=gizmos details.uid!="},
		{"DELETE", gizmosPath + "/o12", "", `{"kind":"DeleteOptions","apiVersion":"v1"}`, 200, "kind=Status details.name=o12"},
		{"DELETE", gizmosPath + "/o18", "", "", 200, "kind=Gizmo metadata.deletionTimestamp!= metadata.generation=2"},
		{"DELETE", gizmosPath + "/missing", "", "", 404, ""},
		{"DELETE", "/apis/example.com/v1/namespaces/n4/gizmos", "", "", 200, "kind=GizmoList items.0.metadata.name=deleted items.1="},
		{"POST", namespacesPath, "", `{"metadata":{"name":"n5"}}`, 201, "metadata.resourceVersion= metadata.uid!= status.phase=Active"},
		{"PUT", namespacesPath + "/n1", "", `{"metadata":{"name":"n1","labels":{"a":"b"}}}`, 200, kept + " metadata.labels.a=b"},
		{"PATCH", namespacesPath + "/n2", strategicPatch, `{"metadata":{"labels":{"a":"b"}}}`, 200, kept + " metadata.labels.a=b"},
		{"PUT", namespacesPath + "/n3/finalize", "", `{"metadata":{"name":"n3"},"spec":{}}`, 200, kept + " spec.finalizers="},
		{"DELETE", namespacesPath + "/default", "", "", 403, ""},
		{"PATCH", definitionsPath + "/widgets.example.com", mergePatch, `{"spec":{"names":{"shortNames":["wx"]}}}`, 200, kept + ` status.acceptedNames.shortNames=["wx"] metadata.generation=2`},
		{"POST", definitionsPath, "application/yaml", other, 201, fresh + ` status.acceptedNames.plural=wodgets status.conditions.0.status=True`},
		{"DELETE", definitionsPath + "/gadgets.example.com", "", "", 200, "kind=CustomResourceDefinition metadata.deletionTimestamp!="},
	}
	kinds := []string{gizmosPath, "/apis/example.com/v1/gizmos", namespacesPath, definitionsPath, "/apis/example.com/v1"}
	state := func() (all []string) {
		for _, path := range kinds {
			all = append(all, s.Get(path))
		}
		return all
	}
	s.Quiescent() // the namespaces have their ServiceAccounts
	before := state()
	rv := value(before[0], "metadata.resourceVersion")
	w := s.Watch("/apis/example.com/v1/gizmos?watch=true&resourceVersion=" + rv)
	w2 := s.Watch(namespacesPath + "?watch=true&resourceVersion=" + rv)
	w3 := s.Watch(definitionsPath + "?watch=true&resourceVersion=" + rv)
	answers := make([]string, len(steps))
	for i, step := range steps {
		join := map[bool]string{true: "&", false: "?"}[strings.Contains(step.path, "?")]
		answers[i] = send(t, s, step.code, step.method, step.path+join+"dryRun=All", step.media, step.body)
		check(t, answers[i], step.want)
	}
	send(t, s, 200, "DELETE", gizmosPath+"/o13", "", `{"dryRun":["All"]}`) // in the body, too
	if after := state(); !slices.Equal(before, after) {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	if rv != value(s.Get(gizmosPath), "metadata.resourceVersion") {
		t.Error("something was written")
	}
	for i, step := range steps {
		if answer := send(t, s, step.code, step.method, step.path, step.media, step.body); same(t, answer) != same(t, answers[i]) {
			t.Errorf("%s %s: %s\nthe dry run had %s", step.method, step.path, same(t, answer), same(t, answers[i]))
		}
	}
	for i, want := range []string{"ADDED new", "MODIFIED n1", "MODIFIED widgets.example.com"} {
		for { // a namespace more
			e := next(t, []*servertest.Stream{w, w2, w3}[i])
			if e.String() == "ADDED n5" {
				continue
			}
			if e.String() != want {
				t.Errorf("the first event is %s, want %s", e, want)
			}
			break
		}
	}
}

// same is an answer without what differs from one time to the other.
func same(t *testing.T, answer string) string {
	t.Helper()
	var drop func(v any)
	drop = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range []string{"resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "time", "lastTransitionTime"} {
				delete(v, name)
			}
			if base, ok := v["generateName"].(string); ok {
				v["name"] = base
			}
			for _, child := range v {
				drop(child)
			}
		case []any:
			for _, child := range v {
				drop(child)
			}
		}
	}
	tree := decode[any](t, answer)
	drop(tree)
	text, _ := json.Marshal(tree)
	return string(text)
}

// TestOtherOptions: what options may not be, for every verb.
func TestOtherOptions(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	made := s.PostYAML(gizmosPath, applied("a", `},"spec":{"replicas":1}`))
	one := gizmosPath + "/a"
	type verb struct{ method, path, media, body, kind string }
	writes := []verb{
		{"POST", gizmosPath, "", applied("b", ""), "CreateOptions"},
		{"PUT", one, "", made, "UpdateOptions"},
		{"PUT", one + "/status", "", made, "UpdateOptions"},
		{"PUT", one + "/scale", "", `{"spec":{"replicas":2}}`, "UpdateOptions"},
		{"PATCH", one, mergePatch, `{}`, "PatchOptions"},
		{"PATCH", one, jsonPatch, `[]`, "PatchOptions"},
		{"PATCH", one + "/status", mergePatch, `{}`, "PatchOptions"},
		{"PATCH", one + "/scale", mergePatch, `{}`, "PatchOptions"},
		{"PATCH", one, applyPatch, applied("a", ""), "PatchOptions"},
	}
	deletes := []verb{{"DELETE", one, "", "", "DeleteOptions"}, {"DELETE", gizmosPath, "", "", "DeleteOptions"}}
	both := append(slices.Clone(writes), deletes...)
	for _, tc := range []struct {
		query  string
		verbs  []verb
		code   int
		causes string
	}{
		{"dryRun=all", both, 422, "FieldValueNotSupported dryRun"},
		{"dryRun=true", both, 422, "FieldValueNotSupported dryRun"},
		{"dryRun=All&dryRun=Some", both, 422, "FieldValueNotSupported dryRun"},
		{"dryRun=All,All", both, 422, "FieldValueNotSupported dryRun"},
		{"fieldValidation=strict", writes, 422, "FieldValueNotSupported fieldValidation"},
		{"fieldValidation=Loose", writes, 422, "FieldValueNotSupported fieldValidation"},
		{"gracePeriodSeconds=x", deletes, 400, ""},
		{"propagationPolicy=Sideways", deletes, 422, "FieldValueNotSupported propagationPolicy"},
		{"propagationPolicy=", deletes, 422, "FieldValueNotSupported propagationPolicy"},
		{"propagationPolicy=Background&orphanDependents=false", deletes, 422, "FieldValueInvalid propagationPolicy"},
	} {
		for _, v := range tc.verbs {
			query := "?" + tc.query
			if v.media == applyPatch {
				query += "&fieldManager=m"
			}
			res, body := s.Do(v.method, v.path+query, v.body, "Content-Type", v.media)
			got := status(t, res, body)
			if res.StatusCode != tc.code || causesOf(got) != tc.causes || tc.code == 422 && (got.Details.Kind != v.kind || got.Details.Group != "meta.k8s.io") {
				t.Errorf("%s %s%s: %s: %s", v.method, v.path, query, res.Status, body)
			}
		}
	}
	if s.Get(one) != made {
		t.Errorf("it was\n%s\nand is\n%s", made, s.Get(one))
	}
}

// TestDryCreateWithVersion: controller-runtime's DryRunClient sends the version that an object has elsewhere. As in kube-apiserver
// the answer has it.
func TestDryCreateWithVersion(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	versioned := applied("a", `,"resourceVersion":"7"`)
	check(t, send(t, s, 201, "POST", gizmosPath+"?dryRun=All", "", versioned), "metadata.name=a metadata.resourceVersion=7 metadata.uid!=")
	send(t, s, 500, "POST", gizmosPath, "", versioned)
	send(t, s, 404, "GET", gizmosPath+"/a", "", "")
}

// TestWarningsOfWhatIsRefused: who is told that an object isn't valid is told of its unknown fields, too.
func TestWarningsOfWhatIsRefused(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	made := s.PostYAML(gizmosPath, applied("a", `},"spec":{"size":"S"}`))
	versioned := `,"resourceVersion":"` + value(made, "metadata.resourceVersion") + `"`
	s.PostYAML(definitionsPath, defined(t, "things", "Thing", "spec.versions=["+versionOf("v1", true, true, `"n":{"type":"integer","x-kubernetes-validations":[{"rule":"self < 3"}]}`)+"]"))
	for _, tc := range []struct{ name, method, path, media, body, want string }{
		{"create", "POST", gizmosPath, "", applied("b", `},"spec":{"size":"XL","sise":1}`), `unknown field "spec.sise"`},
		{"create, given twice", "POST", gizmosPath, "", applied("b", `},"spec":{"size":"XL","size":"XL"}`), `duplicate field "spec.size"`},
		{"create, by a rule", "POST", thingsPath, "", thing("v1", "b", `,"spec":{"n":3,"m":1}`), `unknown field "spec.m"`},
		{"update", "PUT", gizmosPath + "/a", "", applied("a", versioned+`},"spec":{"size":"XL","sise":1}`), `unknown field "spec.sise"`},
		{"patch", "PATCH", gizmosPath + "/a", mergePatch, `{"spec":{"size":"XL","sise":1}}`, `unknown field "spec.sise"`},
		{"Go type", "POST", "/api/v1/namespaces", "", `{"metadata":{"name":"A","nmae":"x"}}`, `unknown field "metadata.nmae"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do(tc.method, tc.path, tc.body, "Content-Type", tc.media)
			if got := strings.Join(warningsOf(t, res), "|"); res.StatusCode != 422 || got != tc.want {
				t.Errorf("%s, warnings %q, want %q: %s", res.Status, got, tc.want, body)
			}
		})
	}
}

// TestNamespaceFinalizers: what holds a namespace is changed by its own subresource, in every form in which clients send it.
func TestNamespaceFinalizers(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	const one = "/api/v1/namespaces/team"
	s.PostYAML("/api/v1/namespaces", "metadata: {name: team}")
	for _, body := range []string{
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team"},"spec":{"finalizers":["kubernetes","example.com/x"]}}`,
		`{"metadata":{"name":"team"},"spec":{"finalizers":["kubernetes"]}}`,
	} {
		if res, answer := s.Do("PUT", one+"/finalize", body, "Content-Type", "application/json"); res.StatusCode != 200 || strings.Contains(answer, "example.com/x") != strings.Contains(body, "example.com/x") {
			t.Errorf("%s: %s", res.Status, answer)
		}
	}
	if res, answer := s.Do("GET", one+"/finalize", ""); res.StatusCode != 405 {
		t.Errorf("GET: %s: %s", res.Status, answer)
	}
	if res, answer := s.Do("PUT", "/api/v1/namespaces/missing/finalize", `{"metadata":{"name":"missing"}}`); res.StatusCode != 404 || status(t, res, answer).Details.Kind != "namespaces" {
		t.Errorf("of what is missing: %s: %s", res.Status, answer)
	}
}

// TestFieldValidation: what Strict refuses, Warn warns of and Ignore swallows, in every form of a body.
func TestFieldValidation(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	nested := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"i"%s},"data":"x"%s}`
	type list []string
	for n, tc := range []struct {
		name, path, media, body string // %d is a number
		complaints              list
	}{
		{"known", gizmosPath, "", applied("g%d", `},"spec":{"size":"S","any":{"x":1}}`), nil},
		{"unknown", gizmosPath, "", applied("g%d", `},"spec":{"sise":"S"}`), list{`unknown field "spec.sise"`}},
		{"in another case", gizmosPath, "", applied("g%d", `},"spec":{"Size":"S"},"Spec":{}`), list{`unknown field "Spec"`, `unknown field "spec.Size"`}},
		{"unknown at the top", gizmosPath, "", applied("g%d", `},"specs":{}`), list{`unknown field "specs"`}},
		{"unknown in status", gizmosPath, "", applied("g%d", `},"status":{"fase":"x"}`), list{`unknown field "status.fase"`}},
		{"unknown in metadata", gizmosPath, "", applied("g%d", `,"lables":{}`), list{`unknown field "metadata.lables"`}},
		{"unknown in an owner", gizmosPath, "", applied("g%d", `,"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"p","uid":"1","uuid":"2"}]`), list{`unknown field "metadata.ownerReferences[0].uuid"`}},
		{"unknown in lists", gizmosPath, "", applied("g%d", `},"spec":{"ports":[{"name":"a","prot":1}],"atoms":[{"a":1},{"b":2}]}`), list{`unknown field "spec.atoms[1].b"`, `unknown field "spec.ports[0].prot"`}},
		{"unknown in an embedded resource", gizmosPath, "", applied("g%d", `},"spec":{"inner":`+fmt.Sprintf(nested, `,"nmae":"j"`, `,"dat":1`)+`}`), list{`unknown field "spec.inner.dat"`, `unknown field "spec.inner.metadata.nmae"`}},
		{"twice", gizmosPath, "", applied("g%d", `},"spec":{"size":"L","size":"S"}`), list{`duplicate field "spec.size"`}},
		{"three times", gizmosPath, "", applied("g%d", `},"spec":{"size":"L","size":"M","size":"S"}`), list{`duplicate field "spec.size"`}},
		{"twice in many places", gizmosPath, "", applied("g%d", `,"labels":{"a":"b","a":"c"}},"spec":{"any":{"x":[{"y":1,"y":2}]}},"spec":{"any":{"z":1}}`), list{`duplicate field "metadata.labels.a"`, `duplicate field "spec"`, `duplicate field "spec.any.x[0].y"`}},
		{"unknown and twice", gizmosPath, "", applied("g%d", `},"spec":{"x":1,"x":2}`), list{`duplicate field "spec.x"`, `unknown field "spec.x"`}},
		{"unknown in YAML", gizmosPath, "application/yaml", "apiVersion: example.com/v1\nkind: Gizmo\nmetadata: {name: g%d}\nspec:\n  sise: S\n  ports:\n  - {name: a, prot: 1}\n", list{`unknown field "spec.ports[0].prot"`, `unknown field "spec.sise"`}},
		{"twice in YAML", gizmosPath, "application/yaml", "apiVersion: example.com/v1\nkind: Gizmo\nmetadata: {name: g%d}\nspec:\n  size: S\n  size: L\n", list{`line 6: key "size" already set in map`}},
		{"Go type", "/api/v1/namespaces", "", `{"metadata":{"name":"g%d","nmae":"x"},"spec":{"finalizer":[]},"spce":{}}`, list{`unknown field "metadata.nmae"`, `unknown field "spce"`, `unknown field "spec.finalizer"`}},
		{"Go type in another case", "/api/v1/namespaces", "", `{"metadata":{"name":"g%d"},"Spec":{}}`, list{`unknown field "Spec"`}},
		{"Go type twice", "/api/v1/namespaces", "", `{"metadata":{"name":"g%d","labels":{"a":"b","a":"c"}}}`, list{`duplicate field "metadata.labels.a"`}},
		{"Go type in YAML", "/api/v1/namespaces", "application/yaml", "metadata: {name: g%d}\nspce: {}\n", list{`unknown field "spce"`}},
		{"Go type twice in YAML", "/api/v1/namespaces", "application/yaml", "metadata: {name: x, name: g%d}\n", list{`line 1: key "name" already set in map`}},
		{"definition", definitionsPath, "", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"as%d.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"as%d","kind":"A%d","short":["x"]},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","propertys":{}}}}]}}`, list{`unknown field "spec.names.short"`, `unknown field "spec.versions[0].schema.openAPIV3Schema.propertys"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			for i, mode := range []string{"Strict", "Warn", "Ignore", ""} {
				body := strings.ReplaceAll(tc.body, "%d", fmt.Sprintf("%02d%d", n, i))
				query := "?fieldValidation=" + mode
				if mode == "" {
					query = ""
				}
				res, answer := s.Do("POST", tc.path+query, body, "Content-Type", tc.media)
				warnings := warningsOf(t, res)
				slices.Sort(warnings)
				switch {
				case mode == "Strict" && tc.complaints != nil:
					got := status(t, res, answer)
					before, text, ok := strings.Cut(got.Message, "strict decoding error: ")
					if before != "" { // kube-apiserver says of a Go type what it isn't
						ok = ok && regexp.MustCompile(`^(\w+) in version "v1" cannot be handled as a (\w+): $`).MatchString(before)
					}
					text = strings.TrimPrefix(text, "yaml: unmarshal errors:\n  ") // before the keys that a mapping has twice
					if res.StatusCode != 400 || got.Reason != metav1.StatusReasonBadRequest || !ok || sorted(text) != strings.Join(tc.complaints, ", ") || warnings != nil {
						t.Errorf("Strict: %s %s, warnings %q", res.Status, answer, warnings)
					}
				case res.StatusCode != 201:
					t.Errorf("%s: %s %s", mode, res.Status, answer)
				case mode == "Ignore" && warnings != nil || mode != "Ignore" && !slices.Equal(warnings, tc.complaints):
					t.Errorf("%s: warnings %q, want %q", mode, warnings, tc.complaints)
				}
			}
		})
	}
	made := s.PostYAML(gizmosPath, applied("a", ""))
	for _, tc := range []struct{ method, path, media, body, complaints string }{
		{"PUT", "", "", strings.Replace(made, `"metadata"`, `"specs":1,"metadata"`, 1), `unknown field "specs"`},
		{"PUT", "/status", "", strings.Replace(made, `"metadata"`, `"status":{"fase":1},"metadata"`, 1), `unknown field "status.fase"`},
		{"PATCH", "", mergePatch, `{"spec":{"sise":1}}`, `unknown field "spec.sise"`},
		{"PATCH", "", mergePatch, `{"spec":{"text":"a","text":"b"}}`, `duplicate field "spec.text"`},
		{"PATCH", "", jsonPatch, `[{"op":"add","path":"/specs","value":1}]`, `unknown field "specs"`},
		{"PATCH", "", jsonPatch, `[{"op":"test","op":"add","path":"/data","value":"a"}]`, `duplicate field "[0].op"`},
		{"PATCH", "/status", mergePatch, `{"status":{"fase":1}}`, `unknown field "status.fase"`},
		{"PATCH", "?fieldManager=m", applyPatch, applied("a", `},"spec":{"text":"a","text":"b"}`), `duplicate field "spec.text"`},
	} {
		query := map[bool]string{true: "&", false: "?"}[strings.Contains(tc.path, "?")] + "dryRun=All&fieldValidation="
		res, body := s.Do(tc.method, gizmosPath+"/a"+tc.path+query+"Strict", tc.body, "Content-Type", tc.media)
		code := 400
		if tc.media == mergePatch || tc.media == jsonPatch { // then it's what the patch makes that is refused, as with kube-apiserver
			code = 422
		}
		if got := status(t, res, body); res.StatusCode != code || !strings.HasSuffix(got.Message, "strict decoding error: "+tc.complaints) {
			t.Errorf("%s %s strictly: %s %s", tc.method, tc.body, res.Status, body)
		}
		for mode, want := range map[string]string{"Warn": tc.complaints, "": tc.complaints, "Ignore": ""} {
			res, body := s.Do(tc.method, gizmosPath+"/a"+tc.path+query+mode, tc.body, "Content-Type", tc.media)
			if got := strings.Join(warningsOf(t, res), "|"); res.StatusCode != 200 || got != want {
				t.Errorf("%s %s with %q: %s %q, want %q: %s", tc.method, tc.body, mode, res.Status, got, want, body)
			}
		}
	}
}

// TestWarningsAreBounded: one line each, none twice, 256 runes each when they're more than 4096 together.
func TestWarningsAreBounded(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	fields := map[string]int{}
	for i := range 40 {
		fields[fmt.Sprintf("%03d%s", i, strings.Repeat("ä", 300))] = i
	}
	spec, _ := json.Marshal(fields)
	res, body := s.Do("POST", gizmosPath, applied("a", `},"spec":`+string(spec)))
	total, all := 0, res.Header.Values("Warning")
	for i, text := range warningsOf(t, res) {
		n := utf8.RuneCountInString(text)
		if total += n; n > 256+len("...") || !strings.HasPrefix(text, `unknown field "spec.`) || !utf8.ValidString(text) || slices.Contains(all[:i], all[i]) {
			t.Errorf("%d runes: %s", n, text)
		}
	}
	if res.StatusCode != 201 || total > 4096 || len(all) < 10 {
		t.Errorf("%s, %d warnings of %d runes: %.300s", res.Status, len(all), total, body)
	}
	odd := map[string]int{"quote\"d": 1, `back\slash`: 2, "line\r\nX-Evil: 1": 3}
	spec, _ = json.Marshal(odd)
	res, _ = s.Do("POST", gizmosPath, applied("b", `},"spec":`+string(spec)))
	if got := warningsOf(t, res); len(got) != len(odd) || res.Header.Get("X-Evil") != "" {
		t.Errorf("%q of %q", got, slices.Sorted(maps.Keys(odd)))
	}
}

// A request that is refused is warned as well: of what the client would otherwise only learn at its next try.
func TestRefusalsWarn(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	for _, tc := range []struct{ name, method, path, body string }{
		{"create", "POST", gizmosPath, applied("a", `},"spec":{"nope":1,"size":"XL"}`)},
		{"definition", "POST", definitionsPath, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"a.example.com"},"spec":{"nope":1}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do(tc.method, tc.path, tc.body, "Content-Type", "application/json")
			if got := warningsOf(t, res); res.StatusCode != 422 || !slices.Contains(got, `unknown field "spec.nope"`) {
				t.Errorf("%s, warned %q: %s", res.Status, got, body)
			}
		})
	}
}

// TestDeprecatedVersions warn with every answer, whatever it is.
func TestDeprecatedVersions(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	for version, want := range map[string]string{"v1": "", "v1beta1": `299 - "example.com/v1beta1 Gizmo is deprecated; use example.com/v1 Gizmo"`, "v1alpha1": `299 - "use \"v1\""`} {
		t.Run(version, func(t *testing.T) {
			s := s.In(t)
			path := strings.Replace(gizmosPath, "/v1/", "/"+version+"/", 1)
			body := strings.Replace(applied(version, ""), "example.com/v1", "example.com/"+version, 1)
			for _, tc := range []struct {
				method, path, media, body string
				code                      int
			}{
				{"POST", path, "", body, 201}, {"POST", path, "", body, 409}, {"POST", path, "", "{", 400},
				{"GET", path, "", "", 200}, {"GET", path + "/" + version, "", "", 200}, {"HEAD", path + "/" + version, "", "", 200}, {"GET", path + "/missing", "", "", 404},
				{"GET", path + "?watch=true&resourceVersion=x", "", "", 500}, {"GET", path + "?limit=x", "", "", 400},
				{"GET", path + "/" + version + "/status", "", "", 200}, {"PATCH", path + "/" + version, mergePatch, `{"metadata":{"labels":{"a":"b"}}}`, 200},
				{"PATCH", path + "/" + version + "/status", mergePatch, `{"status":{}}`, 200}, {"PATCH", path + "/" + version + "?fieldManager=m", applyPatch, body, 200},
				{"PUT", path + "/" + version, "", body, 422}, {"POST", path + "/" + version, "", "", 400}, {"POST", path + "/" + version + "/status", "", "", 405},
				{"DELETE", path + "/" + version, "", "", 200}, {"DELETE", path, "", "", 200},
			} {
				res, answer := s.Do(tc.method, tc.path, tc.body, "Content-Type", tc.media)
				if got := strings.Join(res.Header.Values("Warning"), "|"); res.StatusCode != tc.code || got != want {
					t.Errorf("%s %s: %s %s, warnings %s, want %s", tc.method, tc.path, res.Status, answer, got, want)
				}
			}
			w, err := http.Get(s.URL + path + "?watch=true") // before there is an event
			if err != nil {
				t.Fatal(err)
			}
			defer w.Body.Close()
			if got := w.Header.Get("Warning"); got != want {
				t.Errorf("a watch warns with %s", got)
			}
		})
	}
}
