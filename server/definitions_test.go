package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// defined returns a small definition in example.com, changed by edits of the form "path=json", where a path has dots
// for steps and ~ for dots.
func defined(t testing.TB, plural, kind string, edits ...string) string {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%s.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"%s","kind":"%s"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{}}}}}}]}}`, plural, plural, kind)
	var doc any
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		path, text, _ := strings.Cut(e, "=")
		var to any
		if err := json.Unmarshal([]byte(text), &to); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		steps := strings.Split(path, ".")
		parent, last := doc, steps[len(steps)-1]
		for _, step := range steps[:len(steps)-1] {
			if list, ok := parent.([]any); ok {
				i, _ := strconv.Atoi(step)
				parent = list[i]
			} else {
				child := parent.(map[string]any)[step]
				if child == nil {
					child = map[string]any{}
					parent.(map[string]any)[step] = child
				}
				parent = child
			}
		}
		if list, ok := parent.([]any); ok {
			i, _ := strconv.Atoi(last)
			list[i] = to
		} else {
			parent.(map[string]any)[strings.ReplaceAll(last, "~", ".")] = to
		}
	}
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const (
	rootPath  = "spec.versions.0.schema.openAPIV3Schema"
	specPath  = rootPath + ".properties.spec"
	propsPath = specPath + ".properties"
	rootField = "spec.validation.openAPIV3Schema" // where kube-apiserver sees a schema that all versions have
	specField = rootField + ".properties[spec]"
	xField    = specField + ".properties[x]"
)

// nested is a schema in levels.
func nested(levels int, inner string) string {
	return strings.Repeat(`{"type":"object","properties":{"a":`, levels) + inner + strings.Repeat(`}}`, levels)
}

// TestBadDefinitions: each is refused by name, nothing is fetched, and the server is as before.
func TestBadDefinitions(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	before := s.Get(definitionsPath)
	x := func(schema string) string { return propsPath + `.x=` + schema }
	rule := func(r string) string { return specPath + `.x-kubernetes-validations=[` + r + `]` }
	twoVersions := func(second string) string {
		return `spec.versions=[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},` + second + `]`
	}
	const ok = `"served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}`
	const longList = `{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"string"}}}}`
	var many, properties []string
	for i := range 9 {
		many = append(many, fmt.Sprintf(`{"jsonPath":".spec.f%d"}`, i))
		properties = append(properties, fmt.Sprintf(`"f%d":{"type":"string"}`, i))
	}
	for _, tc := range []struct{ name, edit, cause string }{
		{"another name", `metadata.name="gadgets.example.org"`, "FieldValueInvalid metadata.name"},
		{"name without group", `metadata.name="gadgets"`, "FieldValueInvalid metadata.name"},
		{"no group", `spec.group=""`, "FieldValueRequired spec.group"},
		{"group in capitals", `spec.group="Example.com"`, "FieldValueInvalid spec.group"},
		{"group without a dot", `spec.group="example"`, "FieldValueInvalid spec.group"},
		{"traversal in the group", `spec.group="../../x.y"`, "FieldValueInvalid spec.group"},
		{"protected group", `spec.group="gadgets.k8s.io"`, "FieldValueRequired metadata.annotations[api-approved.kubernetes.io]"},
		{"the other protected group", `spec.group="x.kubernetes.io"`, "FieldValueRequired metadata.annotations[api-approved.kubernetes.io]"},
		{"no scope", `spec.scope=""`, "FieldValueRequired spec.scope"},
		{"unknown scope", `spec.scope="Galactic"`, "FieldValueNotSupported spec.scope"},
		{"no plural", `spec.names.plural=""`, "FieldValueRequired spec.names.plural"},
		{"traversal in the plural", `spec.names.plural="../../namespaces"`, "FieldValueInvalid spec.names.plural"},
		{"slash in the plural", `spec.names.plural="gadgets/status"`, "FieldValueInvalid spec.names.plural"},
		{"plural in capitals", `spec.names.plural="Gadgets"`, "FieldValueInvalid spec.names.plural"},
		{"singular", `spec.names.singular="a.b"`, "FieldValueInvalid spec.names.singular"},
		{"no kind", `spec.names.kind=""`, "FieldValueRequired spec.names.kind"},
		{"kind", `spec.names.kind="a/b"`, "FieldValueInvalid spec.names.kind"},
		{"kind of the list", `spec.names.listKind="Gadget"`, "FieldValueInvalid spec.names.listKind"},
		{"short name", `spec.names.shortNames=["a b"]`, "FieldValueInvalid spec.names.shortNames[0]"},
		{"category", `spec.names.categories=["a b"]`, "FieldValueInvalid spec.names.categories[0]"},
		{"no versions", `spec.versions=[]`, "FieldValueInvalid spec.versions"},
		{"traversal in a version", `spec.versions.0.name="../v1"`, "FieldValueInvalid spec.versions[0].name"},
		{"a version twice", twoVersions(`{"name":"v1",` + ok + `}`), "FieldValueInvalid spec.versions"},
		{"no storage version", `spec.versions.0.storage=false`, "FieldValueInvalid spec.versions"},
		{"two storage versions", twoVersions(`{"name":"v2","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}`), "FieldValueInvalid spec.versions"},
		{"no schema", `spec.versions.0.schema=null`, "FieldValueRequired spec.versions[0].schema.openAPIV3Schema"},
		{"empty schema", `spec.versions.0.schema={}`, "FieldValueRequired spec.versions[0].schema.openAPIV3Schema"},
		{"preserveUnknownFields", `spec.preserveUnknownFields=true`, "FieldValueInvalid spec.preserveUnknownFields"},
		{"no type", rootPath + `={"properties":{}}`, "FieldValueRequired " + rootField + ".type"},
		{"array at the root", rootPath + `={"type":"array","items":{"type":"string"}}`, "FieldValueInvalid " + rootField + ".type"},
		{"no type inside", x(`{}`), "FieldValueRequired " + xField + ".type"},
		{"unknown type", x(`{"type":"float"}`), "FieldValueNotSupported " + xField + ".type"},
		{"$ref to a file", x(`{"$ref":"file:///etc/passwd"}`), "FieldValueForbidden " + xField + ".$ref"},
		{"$ref to a URL", x(`{"$ref":"URL/x"}`), "FieldValueForbidden " + xField + ".$ref"},
		{"$ref inside", x(`{"$ref":"#/definitions/x"}`), "FieldValueForbidden " + xField + ".$ref"},
		{"$schema to a URL", rootPath + `={"type":"object","$schema":"URL/x"}`, ""},
		{"id", rootPath + `={"type":"object","id":"URL/x"}`, "FieldValueForbidden " + rootField + ".id"},
		{"definitions", rootPath + `={"type":"object","definitions":{"x":{"type":"string"}}}`, "FieldValueForbidden " + rootField + ".definitions"},
		{"dependencies", rootPath + `={"type":"object","dependencies":{"x":["y"]}}`, "FieldValueForbidden " + rootField + ".dependencies"},
		{"patternProperties", x(`{"type":"object","patternProperties":{"a":{"type":"string"}}}`), "FieldValueForbidden " + xField + ".patternProperties"},
		{"additionalItems", x(`{"type":"array","items":{"type":"string"},"additionalItems":true}`), "FieldValueForbidden " + xField + ".additionalItems"},
		{"properties and additionalProperties", x(`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"string"}}`), "FieldValueForbidden " + xField + ".additionalProperties"},
		{"uniqueItems", x(`{"type":"array","items":{"type":"string"},"uniqueItems":true}`), "FieldValueForbidden " + xField + ".uniqueItems"},
		{"list of items", x(`{"type":"array","items":[{"type":"string"}]}`), "FieldValueForbidden " + xField + ".items"},
		{"array without items", x(`{"type":"array"}`), "FieldValueRequired " + xField + ".items"},
		{"type in anyOf", x(`{"type":"object","anyOf":[{"type":"string"}]}`), "FieldValueForbidden " + xField + ".anyOf[0].type"},
		{"pattern", x(`{"type":"string","pattern":"("}`), "FieldValueInvalid " + xField + ".pattern"},
		{"pattern with a back reference", x(`{"type":"string","pattern":"(a)\\1"}`), "FieldValueInvalid " + xField + ".pattern"},
		{"pattern with a look-ahead", x(`{"type":"string","pattern":"(?=a)"}`), "FieldValueInvalid " + xField + ".pattern"},
		{"pattern that repeats a million times", x(`{"type":"string","pattern":"((a{0,100}){0,100}){0,100}"}`), "FieldValueInvalid " + xField + ".pattern"},
		{"default of another type", x(`{"type":"string","default":1}`), "FieldValueTypeInvalid " + xField + ".default"},
		{"default that isn't valid", x(`{"type":"string","enum":["a"],"default":"b"}`), "FieldValueNotSupported " + xField + ".default"},
		{"default with unknown fields", x(`{"type":"object","default":{"a":1}}`), "FieldValueInvalid " + xField + ".default"},
		{"schema of metadata", rootPath + `.properties.metadata={"type":"object","properties":{"labels":{"type":"object"}}}`, "FieldValueForbidden " + rootField + ".properties[metadata]"},
		{"unknown list type", x(`{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"bag"}`), "FieldValueNotSupported " + xField + ".x-kubernetes-list-type"},
		{"list type of a string", x(`{"type":"string","x-kubernetes-list-type":"set"}`), "FieldValueInvalid " + xField + ".type"},
		{"map list without keys", x(`{"type":"array","items":{"type":"object"},"x-kubernetes-list-type":"map"}`), "FieldValueRequired " + xField + ".x-kubernetes-list-map-keys"},
		{"map list with an optional key", x(`{"type":"array","items":{"type":"object","properties":{"k":{"type":"string"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"]}`), "FieldValueRequired " + xField + ".items.properties[k].default"},
		{"set of lists", x(`{"type":"array","items":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},"x-kubernetes-list-type":"set"}`), "FieldValueInvalid " + xField + ".items.x-kubernetes-list-type"},
		{"unknown map type", x(`{"type":"object","x-kubernetes-map-type":"tree"}`), "FieldValueNotSupported " + xField + ".x-kubernetes-map-type"},
		{"embedded string", x(`{"type":"string","x-kubernetes-embedded-resource":true}`), "FieldValueInvalid " + xField + ".type"},
		{"four thousand levels", x(nested(4000, `{"type":"string"}`)), ""},
		{"huge enum of another type", x(`{"type":"string","default":"x","enum":[` + strings.Repeat(`1,`, 90_000) + `1]}`), "FieldValueNotSupported " + xField + ".default"},
		{"scale without paths", `spec.versions.0.subresources={"scale":{}}`, "FieldValueRequired spec.subresources.scale.specReplicasPath"},
		{"scale outside of spec", `spec.versions.0.subresources={"scale":{"specReplicasPath":".status.r","statusReplicasPath":".status.r"}}`, "FieldValueInvalid spec.subresources.scale.specReplicasPath"},
		{"column without a path", `spec.versions.0.additionalPrinterColumns=[{"name":"A","type":"string"}]`, "FieldValueRequired spec.additionalPrinterColumns[0].JSONPath"},
		{"column of an unknown type", `spec.versions.0.additionalPrinterColumns=[{"name":"A","type":"text","jsonPath":".a"}]`, "FieldValueInvalid spec.additionalPrinterColumns[0].type"},
		{"warning of what isn't deprecated", `spec.versions.0.deprecationWarning="x"`, "FieldValueInvalid spec.versions[0].deprecationWarning"},
		{"long warning", `spec.versions.0={"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}},"deprecated":true,"deprecationWarning":"` + strings.Repeat("x", 257) + `"}`, "FieldValueInvalid spec.versions[0].deprecationWarning"},
		{"nine selectable fields", `spec.versions.0={"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{` + strings.Join(properties, ",") + `}}}}},"selectableFields":[` + strings.Join(many, ",") + `]}`, "FieldValueTooMany spec.selectableFields"},
		{"selectable field that isn't there", `spec.versions.0.selectableFields=[{"jsonPath":".spec.none"}]`, "FieldValueInvalid spec.selectableFields[0].jsonPath"},
		{"selectable metadata", `spec.versions.0.selectableFields=[{"jsonPath":".metadata.name"}]`, "FieldValueInvalid spec.selectableFields[0].jsonPath"},
		{"selectable object", `spec.versions.0.selectableFields=[{"jsonPath":".spec"}]`, "FieldValueInvalid spec.selectableFields[0].jsonPath"},
		{"unknown strategy", `spec.conversion={"strategy":"Magic"}`, "FieldValueNotSupported spec.conversion.strategy"},
		{"webhook without one", `spec.conversion={"strategy":"Webhook"}`, "FieldValueRequired spec.conversion.webhookClientConfig"},
		{"webhook without its versions", `spec.conversion={"strategy":"Webhook"}`, "FieldValueRequired spec.conversion.conversionReviewVersions"},
		{"webhook for None", `spec.conversion={"strategy":"None","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://x.example"}}}`, "FieldValueForbidden spec.conversion.webhookClientConfig"},
		{"rule that doesn't parse", rule(`{"rule":"self.x >"}`), "FieldValueInvalid " + specField + ".x-kubernetes-validations[0].rule"},
		{"rule of an unknown field", rule(`{"rule":"self.none == 1"}`), "FieldValueInvalid " + specField + ".x-kubernetes-validations[0].rule"},
		{"rule that is no bool", rule(`{"rule":"1"}`), "FieldValueInvalid " + specField + ".x-kubernetes-validations[0].rule"},
		{"empty rule", rule(`{"rule":""}`), "FieldValueRequired " + specField + ".x-kubernetes-validations[0].rule"},
		{"rule of 1 MiB", rule(`{"rule":"true` + strings.Repeat(" || true", 1<<17) + `"}`), "FieldValueInvalid " + specField + ".x-kubernetes-validations[0].rule"},
		{"rule that nests", rule(`{"rule":"` + strings.Repeat("(", 10_000) + "true" + strings.Repeat(")", 10_000) + `"}`), "FieldValueInvalid " + specField + ".x-kubernetes-validations[0].rule"},
		{"message expression that is no text", rule(`{"rule":"true","messageExpression":"1"}`), "FieldValueInvalid " + specField + ".x-kubernetes-validations[0].messageExpression"},
		{"unknown reason", rule(`{"rule":"true","reason":"Mood"}`), "FieldValueNotSupported " + specField + ".x-kubernetes-validations[0].reason"},
		{"path of an unknown field", rule(`{"rule":"true","fieldPath":".none"}`), "FieldValueInvalid " + specField + ".x-kubernetes-validations[0].fieldPath"},
		{"transition rule of a list", x(`{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}`), "FieldValueInvalid " + xField + ".items.x-kubernetes-validations[0].rule"},
		{"optionalOldSelf without an old self", rule(`{"rule":"true","optionalOldSelf":true}`), "FieldValueInvalid " + specField + ".x-kubernetes-validations[0].optionalOldSelf"},
		{"costly rule", specPath + `={"type":"object","properties":{"l":` + longList + `},"x-kubernetes-validations":[{"rule":"self.l.all(a, a.all(b, b.all(c, self.l.exists(d, d.exists(e, e.exists(f, f == c))))))"}]}`, "FieldValueForbidden " + specField + ".x-kubernetes-validations[0].rule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do("POST", definitionsPath, defined(t, "gadgets", "Gadget", strings.ReplaceAll(tc.edit, "URL", s.URL)))
			if res.StatusCode == 201 {
				send(t, s, 200, "DELETE", definitionsPath+"/gadgets.example.com", "", "")
				t.Fatalf("it's taken: %.1000s", body)
			}
			got := status(t, res, body)
			if tc.cause == "" {
				if res.StatusCode != 422 && res.StatusCode != 400 && res.StatusCode != 413 {
					t.Errorf("%s: %.500s", res.Status, body)
				}
			} else if res.StatusCode != 422 || got.Reason != "Invalid" || got.Details.Kind != "CustomResourceDefinition" || got.Details.Group != "apiextensions.k8s.io" || !slices.Contains(strings.Split(causesOf(got), ", "), tc.cause) {
				t.Errorf("%s, causes %.1000s\nwant %s: %.1000s", res.Status, causesOf(got), tc.cause, got.Message)
			}
			if len(body) > 256<<10 {
				t.Errorf("the Status has %d bytes", len(body))
			}
		})
	}
	if after := s.Get(definitionsPath); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	s.PostYAML(gizmosPath, applied("unharmed", ""))
}

// TestGoodDefinitions: what looks like one of those and is none.
func TestGoodDefinitions(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	const approved = `metadata.annotations.api-approved~kubernetes~io=`
	for i, tc := range []struct {
		name, edit, want string
		more             []string
	}{
		{"approved", `spec.group="gadgets.k8s.io"`, "spec.group=gadgets.k8s.io", []string{approved + `"https://github.com/kubernetes/kubernetes/pull/1"`, `metadata.name="gadgets.gadgets.k8s.io"`}},
		{"not approved", `spec.group="x.kubernetes.io"`, "spec.group=x.kubernetes.io", []string{approved + `"unapproved, an experiment"`, `metadata.name="gadgets.x.kubernetes.io"`}},
		{"cluster scope", `spec.scope="Cluster"`, "spec.scope=Cluster", nil},
		{"nothing served", `spec.versions.0.served=false`, "spec.versions.0.served=false", nil},
		{"not preserveUnknownFields", `spec.preserveUnknownFields=false`, "spec.preserveUnknownFields=", nil},
		{"status from the client", `status={"acceptedNames":{"plural":"x","kind":"X"},"storedVersions":["v9"],"conditions":[]}`, "status.acceptedNames.plural=gadgetsN status.storedVersions=[\"v1\"]", nil},
		{"names", `spec.names.shortNames=["gN"]`, `status.acceptedNames={"kind":"GadgetN","listKind":"GadgetNList","plural":"gadgetsN","shortNames":["gN"],"singular":"gadgetN"} spec.names.singular=gadgetN spec.names.listKind=GadgetNList`, nil},
		{"a thousand levels", propsPath + `.x=` + nested(1000, `{"type":"integer"}`), "", nil},
		{"pattern that would take long elsewhere", propsPath + `.x={"type":"string","pattern":"^(a+)+$"}`, "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			n := strconv.Itoa(i)
			plural, kind := "gadgets"+n, "Gadget"+n
			if tc.more != nil {
				plural = "gadgets"
			}
			edits := append([]string{tc.edit}, tc.more...)
			for i := range edits {
				edits[i] = strings.ReplaceAll(edits[i], "gN", "g"+n)
			}
			made := send(t, s, 201, "POST", definitionsPath, "application/json", defined(t, plural, kind, edits...))
			want := strings.NewReplacer("gadgetsN", plural, "gadgetN", strings.ToLower(kind), "GadgetN", kind, "gN", "g"+n).Replace(tc.want)
			check(t, made, want+` metadata.generation=1 status.conditions.0.type=NamesAccepted status.conditions.0.status=True status.conditions.0.reason=NoConflicts
				status.conditions.1.type=Established status.conditions.1.status=True status.conditions.1.reason=InitialNamesAccepted status.storedVersions=["v1"] spec.conversion.strategy=None`)
			if message := value(made, "status.conditions.0.message"); message != "no conflicts found" {
				t.Errorf("the message is %s", message)
			}
			if path := definitionsPath + "/" + value(made, "metadata.name"); s.Get(path) != made {
				t.Errorf("it is %s\nand was answered with %s", s.Get(path), made)
			}
		})
	}
	deep := strings.Repeat(`{"a":`, 1000) + "%s" + strings.Repeat(`}`, 1000)
	for inner, code := range map[string]int{`1`: 201, `"x"`: 422} {
		send(t, s, code, "POST", "/apis/example.com/v1/namespaces/default/gadgets7", "application/json", `{"apiVersion":"example.com/v1","kind":"Gadget7","metadata":{"name":"x"},"spec":{"x":`+fmt.Sprintf(deep, inner)+`}}`)
	}
	// Matching is linear in the value.
	path := "/apis/example.com/v1/namespaces/default/gadgets8"
	for text, code := range map[string]int{strings.Repeat("a", 1<<20): 201, strings.Repeat("a", 1<<20) + "!": 422} {
		send(t, s, code, "POST", path, "application/json", fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Gadget8","metadata":{"name":"x"},"spec":{"x":"%s"}}`, text))
	}
}

// TestDefinedAtOnce: a type is there when the answer to its definition is, for everybody.
func TestDefinedAtOnce(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			plural, kind := fmt.Sprintf("things%d", i), fmt.Sprintf("Thing%d", i)
			path := "/apis/example.com/v1/namespaces/default/" + plural
			for _, step := range []struct{ method, path, body, part string }{
				{"POST", definitionsPath, defined(t, plural, kind), `"Established"`},
				{"POST", path, `{"apiVersion":"example.com/v1","kind":"` + kind + `","metadata":{"name":"a"}}`, `"uid"`},
				{"GET", path, "", `"` + kind + `List"`},
				{"GET", "/apis/example.com/v1", "", `"` + plural + `"`},
				{"GET", "/openapi/v3/apis/example.com/v1", "", `"` + kind + `"`},
				{"GET", path + "/a", "", `"` + kind + `"`},
			} {
				if res, body := s.Do(step.method, step.path, step.body); res.StatusCode >= 300 || !strings.Contains(body, step.part) {
					t.Errorf("%s %s: %s %.500s", step.method, step.path, res.Status, body)
				}
			}
		})
	}
	all.Wait()
}

// seek reads a watch to the event of which done is true, and returns its object.
func seek(t *testing.T, w *servertest.Stream, what string, done func(kind, object string) bool) string {
	t.Helper()
	for {
		line, err := w.Next()
		if err != nil {
			t.Fatalf("the watch ended before %s: %v", what, err)
		}
		e := decode[struct {
			Type   string
			Object json.RawMessage
		}](t, line)
		if done(e.Type, string(e.Object)) {
			return string(e.Object)
		}
	}
}

// unserved waits until a path is answered 404. What is served follows the removal of a definition: for a moment its
// objects' paths are still there, with nothing in them.
func unserved(t *testing.T, s *servertest.Server, path string) {
	t.Helper()
	until(t, path+" isn't served any more", func() bool {
		res, _ := s.Do("GET", path, "")
		return res.StatusCode == http.StatusNotFound
	})
	res, body := s.Do("GET", path, "")
	if body == "404 page not found\n" { // of a group of which nothing is served
		return
	}
	if got := status(t, res, body); got.Code != http.StatusNotFound {
		t.Errorf("GET %s: %s", path, body)
	}
}

// TestNameConflicts: who comes second isn't served, until the first is gone.
func TestNameConflicts(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, widgets)
	for _, tc := range []struct {
		name, plural, kind string
		edits              []string
		reason, part       string
	}{
		{"kind", "a1s", "Widget", nil, "ListKindConflict", `"WidgetList" is already in use`},
		{"kind alone", "a2s", "Widget", []string{`spec.names.listKind="A2List"`}, "KindConflict", `"Widget" is already in use`},
		{"short name", "a3s", "A3", []string{`spec.names.shortNames=["wd"]`}, "ShortNamesConflict", `"wd" is already in use`},
		{"plural as a short name", "a4s", "A4", []string{`spec.names.shortNames=["widgets"]`}, "ShortNamesConflict", `"widgets" is already in use`},
		{"singular", "a5s", "A5", []string{`spec.names.singular="widget"`}, "SingularConflict", `"widget" is already in use`},
		{"plural", "wd", "A6", nil, "PluralConflict", `"wd" is already in use`},
	} {
		made := s.PostYAML(definitionsPath, defined(t, tc.plural, tc.kind, tc.edits...))
		check(t, made, "status.conditions.0.type=NamesAccepted status.conditions.0.status=False status.conditions.0.reason="+tc.reason+
			" status.conditions.1.type=Established status.conditions.1.status=False status.conditions.1.reason=NotAccepted")
		if message := value(made, "status.conditions.0.message"); !strings.Contains(message, tc.part) {
			t.Errorf("%s: %s", tc.name, message)
		}
		send(t, s, 404, "GET", "/apis/example.com/v1/"+tc.plural, "", "")
		if strings.Contains(s.Get("/apis/example.com/v1"), `"name":"`+tc.plural+`"`) {
			t.Errorf("%s is in discovery", tc.plural)
		}
	}
	s.PostYAML(widgetsPath, widget("a"))          // the first isn't disturbed
	for _, name := range []string{"a2s", "a5s"} { // they want the same names as a1s, and might get them before it does
		send(t, s, 200, "DELETE", definitionsPath+"/"+name+".example.com", "", "")
	}
	w := s.Watch(definitionsPath + "?watch=true&fieldSelector=metadata.name%3Da1s.example.com")
	send(t, s, 200, "DELETE", definitionsPath+"/widgets.example.com", "", "")
	got := seek(t, w, "a1s is established", func(_, object string) bool { return value(object, "status.conditions.1.status") == "True" })
	check(t, got, "status.conditions.0.status=True status.acceptedNames.kind=Widget")
	if l := decode[listed](t, s.Get("/apis/example.com/v1/a1s")); len(l.Items) != 0 || l.Kind != "WidgetList" {
		t.Errorf("the second has %+v", l)
	}
	send(t, s, 201, "POST", "/apis/example.com/v1/namespaces/default/a1s", "", widget("b"))
}

// TestDefinitionDeleted: objects go first, those that are held keep it, and what comes after knows nothing of it.
func TestDefinitionDeleted(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.PostYAML(widgetsPath, strings.Replace(widget("held"), `"name"`, `"finalizers":["x.y/z"],"name"`, 1))
	old := s.Get(widgetsPath + "/a")
	const path = definitionsPath + "/widgets.example.com"
	objects, definitions := s.Watch(widgetsPath+"?watch=true"), s.Watch(path+"?watch=true")
	marked := send(t, s, 200, "DELETE", path, "", "")
	check(t, marked, `metadata.finalizers=["customresourcecleanup.apiextensions.k8s.io"] metadata.deletionTimestamp!= status.conditions.2.type=Terminating status.conditions.2.status=True status.conditions.2.reason=InstanceDeletionInProgress`)
	res, body := s.Do("POST", widgetsPath, widget("late"))
	if got := status(t, res, body); res.StatusCode != 403 || got.Reason != "Forbidden" || got.Details.Kind != "widgets" || !strings.Contains(got.Message, "create not allowed while custom resource definition is terminating") {
		t.Errorf("a create: %s %s", res.Status, body)
	}
	res, body = s.Do("PATCH", widgetsPath+"/late?fieldManager=m", widget("late"), "Content-Type", applyPatch)
	if status(t, res, body); res.StatusCode != 403 {
		t.Errorf("an apply: %s %s", res.Status, body)
	}
	seek(t, definitions, "an object is held", func(_, object string) bool {
		return value(object, "status.conditions.2.reason") == "InstanceDeletionCheck"
	})
	send(t, s, 404, "GET", widgetsPath+"/a", "", "")
	check(t, s.Get(widgetsPath+"/held"), "metadata.deletionTimestamp!= metadata.generation=2")
	send(t, s, 200, "PATCH", path, mergePatch, `{"metadata":{"labels":{"a":"b"}}}`) // it can still be changed
	send(t, s, 200, "PATCH", widgetsPath+"/held", mergePatch, `{"metadata":{"finalizers":null}}`)
	seek(t, definitions, "the definition is gone", func(kind, _ string) bool { return kind == "DELETED" })
	var last string
	for {
		line, err := objects.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("the watch ended with %v", err)
			}
			break
		}
		last = line
	}
	if !strings.HasPrefix(last, `{"type":"DELETED"`) {
		t.Errorf("the last event is %s", last)
	}
	for _, gone := range []string{widgetsPath, widgetsPath + "/held", path} {
		unserved(t, s, gone)
	}
	for _, gone := range []string{"/apis/example.com/v1", "/apis/example.com"} {
		if res, body := s.Do("GET", gone, ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %s %s", gone, res.Status, body)
		}
	}

	// The next of that name.
	again := s.PostYAML(definitionsPath, widgets)
	if value(again, "metadata.uid") == value(marked, "metadata.uid") || value(again, "metadata.generation") != "1" {
		t.Errorf("made again: %s", again)
	}
	if l := list(t, s, widgetsPath); len(l.Items) != 0 {
		t.Errorf("there is %s", l.names())
	}
	anew := s.PostYAML(widgetsPath, widget("a"))
	if value(anew, "metadata.uid") == value(old, "metadata.uid") {
		t.Errorf("it has the uid of the old one: %s", anew)
	}
	w := s.Watch(widgetsPath + "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
	if e := next(t, w); e.String() != "ADDED a" || e.Object.Metadata.ResourceVersion != value(anew, "metadata.resourceVersion") {
		t.Errorf("the first event is %s", e)
	}
	if e := next(t, w); e.Type != "BOOKMARK" {
		t.Errorf("the second event is %s", e)
	}
	// Nothing that the old one's clients have is good for the new one.
	res, body = s.Do("DELETE", widgetsPath+"/a", `{"preconditions":{"uid":"`+value(old, "metadata.uid")+`"}}`)
	if status(t, res, body); res.StatusCode != 409 {
		t.Errorf("with the old uid: %s %s", res.Status, body)
	}
	res, body = s.Do("PUT", widgetsPath+"/a", old)
	if status(t, res, body); res.StatusCode != 409 {
		t.Errorf("with the old object: %s %s", res.Status, body)
	}
}

// TestSchemas: what a schema does to objects.
func TestSchemas(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	// A search costs a hundredth of the product of both lengths, and takes no time.
	schema := `{"type":"object","required":["spec"],"properties":{
		"spec":{"type":"object","x-kubernetes-validations":[
			{"rule":"!has(self.low) || !has(self.high) || self.low <= self.high","messageExpression":"self.low > 5 ? 'low is large' : 'low is above high'","fieldPath":".low","reason":"FieldValueForbidden"},
			{"rule":"!has(self.costly) || !self.costly.contains('` + strings.Repeat("b", 6_000) + `')","message":"too much"}],
			"properties":{
			"known":{"type":"object","properties":{"a":{"type":"string"}}},
			"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"shut":{"type":"object","properties":{"a":{"type":"string"}}}}},
			"map":{"type":"object","maxProperties":2,"additionalProperties":{"type":"integer"}},
			"d":{"type":"object","default":{},"properties":{"a":{"type":"string","default":"x"},"b":{"type":"array","items":{"type":"object","properties":{"c":{"type":"integer","default":7}}}}}},
			"null":{"type":"string","nullable":true,"default":"x"},
			"notNull":{"type":"string","default":"x"},
			"bare":{"type":"string"},
			"port":{"x-kubernetes-int-or-string":true},
			"pod":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"data":{"type":"string"}}},
			"raw":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
			"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
			"keyed":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","p"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"p":{"type":"string","default":"TCP"}}}},
			"atomic":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"string"}},
			"n":{"type":"number","minimum":1,"exclusiveMinimum":true,"maximum":10,"multipleOf":0.5},
			"text":{"type":"string","minLength":2,"maxLength":4,"pattern":"^a"},
			"date":{"type":"string","format":"date-time"},
			"one":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"oneOf":[{"required":["a"]},{"required":["b"]}]},
			"low":{"type":"integer"},"high":{"type":"integer"},
			"costly":{"type":"string","maxLength":20000},
			"once":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf","message":"is set once"}]},
			"grows":{"type":"integer","x-kubernetes-validations":[{"rule":"oldSelf.hasValue() ? self >= oldSelf.value() : self == 1","optionalOldSelf":true,"message":"begins with 1 and grows"}]}
		}}}}`
	made := s.PostYAML(definitionsPath, defined(t, "things", "Thing", rootPath+"="+schema))
	check(t, made, "status.conditions.1.status=True")
	things := collection{"/apis/example.com/v1/namespaces/default/things", "example.com/v1", "Thing", "things"}
	const at = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"@NAME"}`
	n := 0
	post := func(name, spec string, code int, more ...string) attempt {
		n++
		a := attempt{name: name, method: "POST", body: strings.Replace(at, "@NAME", fmt.Sprintf("p%d", n), 1) + `,"spec":` + spec + `}`, path: "?fieldValidation=Ignore", code: code}
		fillIn(&a, more)
		return a
	}
	patch := func(name, before, after string, code int, more ...string) attempt {
		a := attempt{name: name, object: `},"spec":` + before, method: "PATCH", media: mergePatch, body: `{"spec":` + after + `}`, code: code}
		fillIn(&a, more)
		return a
	}
	const defaults = ` spec.d={"a":"x"} spec.notNull=x`
	things.try(t, s, []attempt{
		{name: "no spec", method: "POST", body: strings.Replace(at, "@NAME", "x", 1) + "}", code: 422, message: `Thing.example.com "x" is invalid: [spec: Required value`, causes: "FieldValueRequired spec" + notChecked},
		post("pruned", `{"known":{"a":"x","b":1},"x":1}`, 201, `spec.known={"a":"x"} spec.x=`+defaults),
		post("preserved", `{"free":{"x":{"y":[1]},"shut":{"a":"x","b":1}}}`, 201, `spec.free={"shut":{"a":"x"},"x":{"y":[1]}}`),
		post("map", `{"map":{"a":1,"b":2}}`, 201, `spec.map={"a":1,"b":2}`),
		post("map of another type", `{"map":{"a":"x"}}`, 422, "spec.map.a: Invalid value", "FieldValueTypeInvalid spec.map.a"+notChecked),
		post("map that is too large", `{"map":{"a":1,"b":2,"c":3}}`, 422, "spec.map: Too many", "FieldValueTooMany spec.map"+notChecked),
		post("defaults", `{"d":{"b":[{},{"c":1}]}}`, 201, `spec.d={"a":"x","b":[{"c":7},{"c":1}]} spec.null=x spec.notNull=x spec.known=`),
		post("null where it's allowed", `{"null":null}`, 201, `spec.null=null`),
		post("null where there's a default", `{"notNull":null,"d":null}`, 201, `spec.notNull=x spec.d={"a":"x"}`),
		post("null where there's none", `{"bare":null}`, 201, "spec.bare="+defaults),
		post("int", `{"port":80}`, 201, `spec.port=80`),
		post("or string", `{"port":"http"}`, 201, `spec.port=http`),
		post("or nothing else", `{"port":1.5}`, 422, "spec.port", "FieldValueTypeInvalid spec.port"+notChecked),
		post("embedded", `{"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b"},"x":1},"data":"x","y":1}}`, 201, `spec.pod={"apiVersion":"v1","data":"x","kind":"Pod","metadata":{"labels":{"a":"b"},"name":"a"}}`),
		post("embedded and preserved", `{"raw":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"any":{"x":1}}}`, 201, `spec.raw={"any":{"x":1},"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`),
		post("embedded without kind", `{"pod":{"apiVersion":"v1"}}`, 422, "spec.pod.kind: Required value", "FieldValueRequired spec.pod.kind"+notChecked),
		post("embedded with a bad name", `{"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a/b"}}}`, 422, "spec.pod.metadata.name", "FieldValueInvalid spec.pod.metadata.name"),
		post("set", `{"set":["a","b","a"]}`, 422, `spec.set[2]: Duplicate value: "a"`, "FieldValueDuplicate spec.set[2]"),
		post("keyed", `{"keyed":[{"k":"a"},{"k":"a","p":"UDP"}]}`, 201, `spec.keyed=[{"k":"a","p":"TCP"},{"k":"a","p":"UDP"}]`),
		post("keyed twice", `{"keyed":[{"k":"a"},{"k":"a","p":"TCP"}]}`, 422, `spec.keyed[1]: Duplicate value`, "FieldValueDuplicate spec.keyed[1]"),
		post("atomic", `{"atomic":["a","a"]}`, 201, `spec.atomic=["a","a"]`),
		post("number", `{"n":2.5}`, 201, `spec.n=2.5`),
		post("number at the limit", `{"n":1}`, 422, "spec.n", "FieldValueInvalid spec.n, FieldValueInvalid spec.n"),
		post("number above", `{"n":11}`, 422, "spec.n", "FieldValueInvalid spec.n, FieldValueInvalid spec.n"),
		post("number between", `{"n":1.7}`, 422, "spec.n", "FieldValueInvalid spec.n"),
		post("short text", `{"text":"a"}`, 422, "spec.text", "FieldValueInvalid spec.text"),
		post("long text", `{"text":"aaaaa"}`, 422, "spec.text: Too long", "FieldValueTooLong spec.text"+notChecked),
		post("other text", `{"text":"bbb"}`, 422, "spec.text", "FieldValueInvalid spec.text"),
		post("date", `{"date":"yesterday"}`, 422, "spec.date", "FieldValueTypeInvalid spec.date"+notChecked),
		post("one of", `{"one":{"a":"x"}}`, 201),
		post("two of", `{"one":{"a":"x","b":"x"}}`, 422, "spec.one", notChecked[2:]),
		post("rule", `{"low":2,"high":1}`, 422, "spec.low: Forbidden: low is above high", "FieldValueForbidden spec.low"),
		post("within its budget", `{"costly":"aaa"}`, 201),
		post("beyond its budget", `{"costly":"`+strings.Repeat("a", 20_000)+`"}`, 422, "call cost exceeds limit", "FieldValueInvalid spec"),
		post("optionalOldSelf", `{"grows":2}`, 422, "begins with 1 and grows", "FieldValueInvalid spec.grows"),
		patch("transition", `{"once":"a"}`, `{"once":"b"}`, 422, "is set once", "FieldValueInvalid spec.once"),
		patch("no transition", `{"once":"a"}`, `{"once":"a","low":1}`, 200, "spec.once=a"),
		patch("removed", `{"once":"a"}`, `{"once":null}`, 200, "spec.once="),
		patch("grows", `{"grows":1}`, `{"grows":2}`, 200, "spec.grows=2"),
		patch("shrinks", `{"grows":1}`, `{"grows":0}`, 422, "begins with 1 and grows", "FieldValueInvalid spec.grows"),
	})
}

// TestDefinitionTightened: what is stored gets new defaults when it's read, and what it has that is no longer valid is
// let be until it's changed (KEP-4008).
func TestDefinitionTightened(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, defined(t, "things", "Thing", propsPath+`={"text":{"type":"string"},"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"string"}}}},"gone":{"type":"string"}}`))
	const path, one = "/apis/example.com/v1/namespaces/default/things", "/apis/example.com/v1/namespaces/default/things/a"
	s.PostYAML(path, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"text":"long","gone":"x","list":[{"k":"a","v":"long"},{"k":"b","v":"b"}]}}`)
	watch := s.Watch(path + "?watch=true")
	next(t, watch)
	send(t, s, 200, "PATCH", definitionsPath+"/things.example.com", mergePatch, `{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
		"text":{"type":"string","maxLength":2},"extra":{"type":"string","default":"new"},
		"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"string","maxLength":2,"x-kubernetes-validations":[{"rule":"self != 'no'"}]}}}}}}}}}}]}}`)
	if line, err := watch.Next(); !errors.Is(err, io.EOF) || line != "" {
		t.Errorf("the watch goes on with %q, %v", line, err)
	}
	check(t, s.Get(one), "spec.extra=new spec.text=long spec.gone= metadata.generation=1")
	check(t, s.Get(path), "items.0.spec.extra=new items.0.spec.gone=")
	seek(t, s.Watch(path+"?watch=true"), "the object", func(_, object string) bool {
		check(t, object, "spec.extra=new spec.gone=")
		return true
	})
	for _, tc := range []struct {
		patch  string
		code   int
		causes string
	}{
		{`{"metadata":{"labels":{"a":"b"}}}`, 200, ""},
		{`{"spec":{"extra":"x"}}`, 200, ""},
		{`{"spec":{"list":[{"k":"b","v":"c"},{"k":"a","v":"long"}]}}`, 200, ""}, // by their keys
		{`{"spec":{"text":"longer"}}`, 422, "FieldValueTooLong spec.text"},
		{`{"spec":{"list":[{"k":"b","v":"long"},{"k":"a","v":"long"}]}}`, 422, "FieldValueTooLong spec.list[0].v"},
		{`{"spec":{"text":"ok"}}`, 200, ""},
		{`{"spec":{"text":"long"}}`, 422, "FieldValueTooLong spec.text"},
	} {
		res, body := s.Do("PATCH", one, tc.patch, "Content-Type", mergePatch)
		if res.StatusCode != tc.code || tc.code == 422 && !strings.Contains(causesOf(status(t, res, body)), tc.causes) {
			t.Errorf("%s: %s %s", tc.patch, res.Status, body)
		}
	}
}

// TestSelectableFields: lists and watches select by what a definition declares, and by nothing else.
func TestSelectableFields(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	var fields, properties []string
	for i := range 8 {
		fields = append(fields, fmt.Sprintf(`{"jsonPath":".spec.f%d"}`, i))
		properties = append(properties, fmt.Sprintf(`"f%d":{"type":"%s"}`, i, []string{"string", "integer", "boolean"}[i%3]))
	}
	s.PostYAML(definitionsPath, defined(t, "things", "Thing", propsPath+"={"+strings.Join(properties, ",")+`,"other":{"type":"string"}}`, `spec.versions.0.selectableFields=[`+strings.Join(fields, ",")+`]`))
	const path = "/apis/example.com/v1/namespaces/default/things"
	thing := func(name, spec string) string {
		return `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
	}
	for name, spec := range map[string]string{"a": `{"f0":"x","f1":1,"f2":true}`, "b": `{"f0":"y","f1":-1,"f2":false}`, "c": `{}`, "d": `{"f0":"x","f1":9007199254740993}`} {
		s.PostYAML(path, thing(name, spec))
	}
	for selector, want := range map[string]string{
		"spec.f0=x": "a d", "spec.f0==x": "a d", "spec.f0!=x": "b c", "spec.f0=": "c", "spec.f1=1": "a", "spec.f1=-1": "b", "spec.f1=9007199254740993": "d", "spec.f2=true": "a", "spec.f2=false": "b",
		"spec.f2=": "c d", "spec.f0=x,spec.f1=1": "a", "spec.f0=x,metadata.name=d": "d", "spec.f7=": "a b c d", "metadata.namespace=default": "a b c d", "spec.f0=X": "",
	} {
		l := decode[listed](t, s.Get(path+"?fieldSelector="+url.QueryEscape(selector)))
		if l.names() != want {
			t.Errorf("%s selects %s, want %s", selector, l.names(), want)
		}
	}
	for _, query := range []string{"?", "?watch=true&", "?limit=1&"} {
		for _, label := range []string{"spec.other", "spec.f8", "status.phase", "f0", ".spec.f0", "metadata.labels"} {
			res, body := s.Do("GET", path+query+"fieldSelector="+label+"%3Dx", "")
			if got := status(t, res, body); res.StatusCode != 400 || !strings.Contains(got.Message, "field label not supported: "+label) {
				t.Errorf("%s%s: %s %s", query, label, res.Status, body)
			}
		}
	}
	w := s.Watch(path + "?watch=true&fieldSelector=spec.f0%3Dy")
	for _, tc := range []struct{ name, spec, want string }{
		{"", "", "ADDED b"}, {"a", `{"f0":"y"}`, "ADDED a"}, {"d", `{"f1":2}`, ""}, {"a", `{"f1":3}`, "MODIFIED a"}, {"b", `{"f0":null}`, "DELETED b"}, {"c", `{"f0":"y"}`, "ADDED c"},
	} {
		if tc.name != "" {
			send(t, s, 200, "PATCH", path+"/"+tc.name, mergePatch, `{"spec":`+tc.spec+`}`)
		}
		if tc.want != "" {
			if e := next(t, w); e.String() != tc.want {
				t.Errorf("%s %s: %s, want %s", tc.name, tc.spec, e, tc.want)
			}
		}
	}
}
