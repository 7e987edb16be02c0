package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// applied is a configuration of a gizmo.
func applied(name, more string) string { return gizmoCollection.object(name, more) }

// records is managedFields, an entry per line: "manager operation subresource: fields".
func records(t *testing.T, doc string) string {
	t.Helper()
	var lines []string
	for _, e := range decode[metav1.PartialObjectMetadata](t, doc).ManagedFields {
		if e.APIVersion == "" || e.FieldsType != "FieldsV1" {
			t.Errorf("an entry is %+v", e)
		}
		var fields map[string]any
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", e.Manager, e.Operation, e.Subresource, strings.Join(leaves("", fields), " ")))
	}
	return strings.Join(lines, "\n")
}

// appliedScale is a configuration of a Scale.
func appliedScale(replicas string) string {
	return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":` + replicas + `}}`
}

// leaves are the paths of a set of fields, sorted.
func leaves(path string, fields map[string]any) (all []string) {
	if len(fields) == 0 {
		return []string{strings.TrimPrefix(path, ".")}
	}
	names, _ := json.Marshal(fields) // sorts
	d := json.NewDecoder(strings.NewReader(string(names)))
	var order []string
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			break
		}
		switch token := token.(type) {
		case json.Delim:
			depth += map[json.Delim]int{'{': 1, '}': -1}[token]
		case string:
			if depth == 1 {
				order = append(order, token)
			}
		}
	}
	for _, name := range order {
		child, _ := fields[name].(map[string]any)
		if name == "." {
			continue
		}
		all = append(all, leaves(path+"."+strings.TrimPrefix(name, "f:"), child)...)
	}
	return all
}

func TestApply(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	const old = `},"spec":{"size":"S","ports":[{"name":"a","port":1}]}`
	apply := func(name, query, body string, code int, more ...string) attempt {
		a := attempt{name: name, object: old, method: "PATCH", path: "?" + query, media: applyPatch, body: body, code: code}
		fillIn(&a, more)
		return a
	}
	onto := func(object string, a attempt) attempt { a.object = object; return a }
	at := func(path string, a attempt) attempt { a.path = path + a.path; return a }
	config := func(more string) string { return applied("@NAME", more) }
	const m, size = "fieldManager=m", `},"spec":{"size":"L"}`
	gizmoCollection.try(t, s, []attempt{
		// What the query must say.
		apply("by nobody", "", config(size), 422, `PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch`, "FieldValueRequired fieldManager"),
		apply("by an empty name", "fieldManager=", config(size), 422, "fieldManager: Required value", "FieldValueRequired fieldManager"),
		apply("by a long name", "fieldManager="+strings.Repeat("x", 129), config(size), 422, "fieldManager", "FieldValueTooLong fieldManager"),
		apply("by what doesn't print", "fieldManager=a%0Ab", config(size), 422, "fieldManager", "FieldValueInvalid fieldManager"),
		apply("odd dryRun", m+"&dryRun=Some", config(size), 422, "dryRun", "FieldValueNotSupported dryRun"),
		apply("odd fieldValidation", m+"&fieldValidation=Some", config(size), 422, "fieldValidation", "FieldValueNotSupported fieldValidation"),
		// What the body must be.
		apply("no body", m, "", 400),
		apply("malformed", m, "{", 400),
		apply("malformed YAML", m, "a: [", 400, "error encoding patch: yaml"),
		apply("null", m, "null", 400),
		apply("array", m, "[]", 400),
		apply("no apiVersion", m, `{"kind":"Gizmo","metadata":{"name":"@NAME"}}`, 400, "invalid object type: /, Kind=Gizmo"),
		apply("no kind", m, `{"apiVersion":"example.com/v1","metadata":{"name":"@NAME"}}`, 400, "invalid object type: example.com/v1, Kind="),
		// The name on the URL is enough for an object that exists.
		apply("no metadata", m, `{"apiVersion":"example.com/v1","kind":"Gizmo","spec":{"text":"x"}}`, 200, "spec.text=x spec.size=S metadata.name=@NAME metadata.managedFields.0.manager=m"),
		apply("no name", m, aMeta+`{"labels":{"a":"b"}}}`, 200, "metadata.labels.a=b metadata.name=@NAME metadata.namespace=default"),
		apply("no name in another namespace", m, aMeta+`{"namespace":"kube-system"}}`, 400, "the namespace of the object (kube-system) does not match the namespace on the request (default)"),
		at("/status", apply("no name for the status", m, aMeta+`{},"status":{"phase":"x"}}`, 200, "status.phase=x")),
		onto("none", apply("no name for a new object", m, aMeta+`{}}`, 400, "the name of the object (@NAME based on URL) was undeterminable")),
		onto("none", apply("no metadata for a new object", m, `{"apiVersion":"example.com/v1","kind":"Gizmo"}`, 400, "the name of the object (@NAME based on URL) was undeterminable")),
		apply("another name", m, applied("other", ""), 400, "the name of the object (other) does not match the name on the URL (@NAME)"),
		apply("another namespace", m, config(`,"namespace":"kube-system"`), 400, "the namespace of the object (kube-system) does not match the namespace on the request (default)"),
		apply("another kind", m, strings.Replace(config(""), "Gizmo", "Gadget", 1), 400, "invalid object type: example.com/v1, Kind=Gadget"),
		apply("another version", m, strings.Replace(config(""), "/v1", "/v1beta1", 1), 400, "invalid object type: example.com/v1beta1, Kind=Gizmo"),
		apply("managedFields", m, config(`,"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"example.com/v1"}]`), 400, "metadata.managedFields must be nil"),
		apply("empty managedFields", m, config(`,"managedFields":[]`), 400, "metadata.managedFields must be nil"),
		apply("null managedFields", m, config(`,"managedFields":null`+`},"spec":{"size":"S"}`), 200, "spec.size=S"),
		apply("unknown field", m, config(`},"spec":{"sise":"L"}`), 500, ".spec.sise: field not declared in schema"),
		apply("wrong type", m, config(`},"spec":{"size":1}`), 500, ".spec.size"),
		apply("a port twice", m, config(`},"spec":{"ports":[{"name":"b"},{"name":"b"}]}`), 500, `ports`),
		apply("a port without its key", m, config(`},"spec":{"ports":[{"port":1}]}`), 500, `ports`),
		apply("int64 overflow", m, config(`},"spec":{"big":9223372036854775808}`), 422, "spec.big", "FieldValueTypeInvalid spec.big"+notChecked+notChecked),
		apply("enum", m+"&force=true", config(`},"spec":{"size":"XL"}`), 422, `spec.size: Unsupported value: "XL"`, "FieldValueNotSupported spec.size"+notChecked),
		apply("strict duplicate", m+"&fieldValidation=Strict", config(`},"spec":{"text":"a","text":"b"}`), 400, `strict decoding error: duplicate field "spec.text"`),
		{name: "duplicate", object: old, method: "PATCH", path: "?" + m, media: applyPatch, body: config(`},"spec":{"text":"a","text":"b"}`), code: 200, want: "spec.text=b", warnings: `duplicate field "spec.text"`},
		// Preconditions.
		apply("its version and uid", m+"&force=true", config(`,"resourceVersion":"@RV","uid":"@UID"`+size), 200, "spec.size=L metadata.uid=@UID"),
		apply("stale version", m+"&force=true", config(`,"resourceVersion":"1"`+size), 409, "please apply your changes to the latest version and try again"),
		apply("another uid", m+"&force=true", config(`,"uid":"mine"`+size), 422, `metadata.uid: Invalid value: "mine": field is immutable`, "FieldValueInvalid metadata.uid"),
		onto("none", apply("uid of a missing object", m, config(`,"uid":"mine"`+size), 409, "")),
		onto("none", apply("version of a missing object", m, config(`,"resourceVersion":"1"`+size), 201, "spec.size=L")),
		onto("none", apply("no version of a missing object", m, config(`,"resourceVersion":"x"`+size), 500, `strconv.ParseUint: parsing "x": invalid syntax`)),
		// What comes of it.
		onto("none", apply("create", m, config(`,"labels":{"a":"b"}`+size), 201, "spec.size=L metadata.generation=1 metadata.managedFields.0.manager=m metadata.managedFields.0.operation=Apply metadata.managedFields.1= metadata.namespace=default")),
		onto("none", apply("create from YAML", m, "apiVersion: example.com/v1\nkind: Gizmo\nmetadata: {name: @NAME}\nspec: {size: L}\n", 201, "spec.size=L")),
		onto("none", apply("create with defaults", m, config(""), 201, "metadata.generation=1 spec=")),
		onto("none", apply("create without status", m, config(`},"status":{"phase":"x"}`), 201, "status=")),
		onto("none", apply("create what isn't valid", m, config(`},"spec":{"size":"XL"}`), 422, "spec.size", "FieldValueNotSupported spec.size"+notChecked)),
		onto("none", apply("create what isn't valid in metadata", m, config(`,"labels":{"a b":"x"}`), 422, "metadata.labels", "FieldValueInvalid metadata.labels")),
		onto("none", at("/status", apply("status of a missing object", m, config(`},"status":{"phase":"x"}`), 404, `gizmos.example.com "@NAME" not found`))),
		apply("what others don't have", m, config(`},"spec":{"text":"x","ports":[{"name":"b","port":2}]}`), 200, `spec.text=x spec.size=S spec.ports=[{"name":"a","port":1},{"name":"b","port":2}] metadata.generation=2`),
		apply("the same value", m, config(`},"spec":{"size":"S"}`), 200, "spec.size=S metadata.generation=1 metadata.resourceVersion!=@RV"),
		apply("conflict", m, config(size), 409, `Apply failed with 1 conflict: conflict with "before-first-apply" using example.com/v1: .spec.size`, "FieldManagerConflict .spec.size"),
		apply("conflicts", m, config(`},"spec":{"size":"L","ports":[{"name":"a","port":2}]}`), 409,
			"Apply failed with 2 conflicts: conflicts with \"before-first-apply\" using example.com/v1:\n- .spec.size\n- .spec.ports[name=\"a\"].port", `FieldManagerConflict .spec.ports[name="a"].port, FieldManagerConflict .spec.size`),
		apply("force", m+"&force=true", config(size), 200, "spec.size=L metadata.generation=2"),
		apply("no force", m+"&force=false", config(size), 409, "conflict with", "FieldManagerConflict .spec.size"),
		apply("status by the main path", m, config(`},"status":{"phase":"x"}`), 200, "status= metadata.generation=1"),
		at("/status", apply("status", m, config(`,"labels":{"a":"b"}},"spec":{"size":"L"},"status":{"phase":"x"}`), 200, "status.phase=x spec.size=S metadata.labels= metadata.generation=1 metadata.managedFields.0.manager=m metadata.managedFields.0.subresource=status metadata.managedFields.0.operation=Apply")),
		at("/status", apply("status that isn't valid", m, config(`},"status":{"replicas":"x"}`), 500, ".status.replicas")),
		apply("finalizer without a domain", m, config(`,"labels":{"a":"b"}`), 200, "metadata.labels.a=b"),
	})
	checkConflict(t, s)
}

// TestApplyScale: an applied Scale sets the number of replicas, which is its manager's then, and nothing else.
func TestApplyScale(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	const m, none = "fieldManager=m", `},"spec":{"size":"S"}`
	apply := func(name, query, body string, code int, more ...string) attempt {
		a := attempt{name: name, object: `},"spec":{"size":"S","replicas":1}`, method: "PATCH", path: "/scale?" + query, media: applyPatch, body: body, code: code}
		fillIn(&a, more)
		return a
	}
	onto := func(object string, a attempt) attempt { a.object = object; return a }
	scale := func(metadata, spec string) string {
		return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"@NAME"` + metadata + `},"spec":{` + spec + `}}`
	}
	two := scale("", `"replicas":2`)
	gizmoCollection.try(t, s, []attempt{
		onto(none, apply("YAML as kubectl sends it", m+"&fieldValidation=Strict", `apiVersion: autoscaling/v1
kind: Scale
metadata:
  name: @NAME
  namespace: default
spec:
  replicas: 2
`, 200, "kind=Scale apiVersion=autoscaling/v1 metadata.name=@NAME metadata.uid=@UID metadata.managedFields= spec.replicas=2")),
		onto(none, apply("no name", m, `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":2}}`, 200, "spec.replicas=2")),
		onto(none, apply("no replicas for an object without", m, scale("", ""), 400, `the spec replicas field ".spec.replicas" cannot be empty`)),
		onto("none", apply("missing object", m, two, 404, `gizmos.example.com "@NAME" not found`)),
		apply("no replicas", m, scale("", ""), 200, "spec.replicas=1"),
		apply("the same number", m, scale("", `"replicas":1`), 200, "spec.replicas=1"),
		apply("conflict", m, two, 409, `Apply failed with 1 conflict: conflict with "before-first-apply"|using example.com/v1: .spec.replicas`, "FieldManagerConflict .spec.replicas"),
		apply("force", m+"&force=true", two, 200, "spec.replicas=2"),
		apply("dry run", m+"&force=true&dryRun=All", two, 200, "spec.replicas=2 metadata.resourceVersion=@RV"),
		apply("by nobody", "force=true", two, 422, "fieldManager: Required value: is required for apply patch", "FieldValueRequired fieldManager"),
		apply("its version and uid", m+"&force=true", scale(`,"resourceVersion":"@RV","uid":"@UID"`, `"replicas":2`), 200, "spec.replicas=2"),
		apply("stale version", m+"&force=true", scale(`,"resourceVersion":"1"`, `"replicas":2`), 409, "please apply your changes to the latest version and try again"),
		apply("another uid", m+"&force=true", scale(`,"uid":"mine"`, `"replicas":2`), 422, `metadata.uid: Invalid value: "mine": field is immutable`, "FieldValueInvalid metadata.uid"),
		apply("fewer than none", m+"&force=true", scale("", `"replicas":-1`), 422, ".spec.replicas: Invalid value: -1: should be a non-negative integer", "FieldValueInvalid .spec.replicas"),
		apply("more than fit", m+"&force=true", scale("", `"replicas":2147483648`), 400, "replicas"),
		apply("no number", m+"&force=true", scale("", `"replicas":"2"`), 400, "replicas"),
		apply("unknown field", m+"&force=true", scale("", `"replicas":2,"size":"L"`), 400, `unknown field "spec.size"`),
		apply("strict duplicate", m+"&force=true&fieldValidation=Strict", scale("", `"replicas":2,"replicas":3`), 400, `strict decoding error: duplicate field "spec.replicas"`),
		apply("managedFields", m, scale(`,"managedFields":[]`, `"replicas":2`), 400, "metadata.managedFields must be nil"),
		apply("another name", m, strings.Replace(two, "@NAME", "other", 1), 400, "the name of the object (other) does not match the name on the URL (@NAME)"),
		apply("another namespace", m, scale(`,"namespace":"kube-system"`, `"replicas":2`), 400, "does not match the namespace sent on the request"),
		apply("another kind", m, strings.Replace(two, "Scale", "Gizmo", 1), 400, "no kind is registered for the type v1.Scale"),
		apply("no kind", m, `{"spec":{"replicas":2}}`, 400, "apiVersion and kind are needed"),
		apply("malformed", m, "{", 400),
	})
	path, config := gizmosPath+"/kept/scale?fieldManager=m", strings.Replace(appliedScale("2"), `"a"`, `"kept"`, 1)
	s.PostYAML(gizmosPath, applied("kept", `},"spec":{"size":"L"}`))
	send(t, s, 200, "PATCH", path, applyPatch, config)
	was := s.Get(gizmosPath + "/kept")
	check(t, was, "spec.replicas=2 spec.size=L metadata.generation=2")
	send(t, s, 200, "PATCH", path, applyPatch, config)
	if got := s.Get(gizmosPath + "/kept"); got != was {
		t.Errorf("applied again it's %s\nwas %s", got, was)
	}
	send(t, s, 200, "PATCH", path, applyPatch, `{"apiVersion":"autoscaling/v1","kind":"Scale"}`)
	check(t, s.Get(gizmosPath+"/kept"), "spec.replicas=2 metadata.generation=2") // withdrawn
}

// checkConflict looks at the message of a cause.
func checkConflict(t *testing.T, s *servertest.Server) {
	t.Helper()
	send(t, s, 201, "PATCH", gizmosPath+"/c?fieldManager=one", applyPatch, applied("c", `},"spec":{"size":"S"}`))
	res, body := s.Do("PATCH", gizmosPath+"/c?fieldManager=two", applied("c", `},"spec":{"size":"L"}`), "Content-Type", applyPatch)
	got := status(t, res, body)
	if c := got.Details.Causes; got.Reason != "Conflict" || len(c) != 1 || c[0].Message != `conflict with "one"` || got.Message != `Apply failed with 1 conflict: conflict with "one": .spec.size` {
		t.Errorf("a conflict with who applied: %s", body)
	}
	send(t, s, 200, "PATCH", gizmosPath+"/c?fieldManager=three&force=true", applyPatch, applied("c", `},"spec":{"size":"M"}`))
	send(t, s, 200, "PATCH", gizmosPath+"/c?fieldManager=kubectl-edit", mergePatch, `{"spec":{"text":"x"}}`)
	_, body = s.Do("PATCH", gizmosPath+"/c?fieldManager=two", applied("c", `},"spec":{"text":"y"}`), "Content-Type", applyPatch)
	if message := value(body, "details.causes.0.message"); message != `conflict with "kubectl-edit" using example.com/v1` {
		t.Errorf("a conflict with who updated: %s", body)
	}
}

// TestApplyWithdraws: what a manager no longer applies goes, unless others have it.
func TestApplyWithdraws(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	path := gizmosPath + "/a"
	by := func(code int, manager, spec string) string {
		t.Helper()
		return send(t, s, code, "PATCH", path+"?fieldManager="+manager, applyPatch, applied("a", `},"spec":`+spec))
	}
	by(201, "one", `{"text":"x","big":1,"tags":["a","b"],"ports":[{"name":"p","port":1},{"name":"q"}],"atoms":[{"a":1},{"a":2}]}`)
	by(200, "two", `{"text":"x","tags":["b","c"],"ports":[{"name":"q"}]}`)
	got := by(200, "one", `{"tags":["a"]}`)
	check(t, got, `spec.text=x spec.big= spec.tags=["a","b","c"] spec.ports=[{"name":"q"}] spec.atoms= metadata.generation=3`)
	got = by(200, "two", `{}`)
	check(t, got, `spec.text= spec.tags=["a"] spec.ports= metadata.generation=4`)
	got = by(200, "one", `{"size":"L"}`)
	check(t, got, `spec.size=L spec.tags=`)
	got = by(200, "one", `{"text":"y"}`)
	check(t, got, `spec.size=M spec.text=y`)
}

// TestManagedFields: who is recorded for what, by default and with the option.
func TestManagedFields(t *testing.T) {
	t.Parallel()
	type step struct{ name, method, path, media, agent, body, records string }
	for _, tc := range []struct {
		name   string
		always bool
		steps  []step
	}{
		{"by default", false, []step{
			{"create", "POST", "", "", "kubectl/v1", applied("a", `},"spec":{"size":"S"}`), ""},
			{"update", "PATCH", "/a", mergePatch, "kubectl/v1", `{"spec":{"text":"x"}}`, ""},
			{"claims", "PATCH", "/a", mergePatch, "kubectl/v1", `{"spec":{"text":"y"},"metadata":{"managedFields":[]}}`, ""},
			{"status", "PATCH", "/a/status", mergePatch, "controller/v1", `{"status":{"phase":"x"}}`, ""},
			{"apply", "PATCH", "/a?fieldManager=m", applyPatch, "kubectl/v1", applied("a", `},"spec":{"big":1}`),
				"m Apply : spec.big\nbefore-first-apply Update : spec.size spec.text"},
			{"update after an apply", "PATCH", "/a", mergePatch, "curl/8.5.0 (x)", `{"spec":{"text":"z"}}`,
				"m Apply : spec.big\nbefore-first-apply Update : spec.size\ncurl Update : spec.text"},
			{"by a name", "PATCH", "/a?fieldManager=n", mergePatch, "curl/8", `{"spec":{"replicas":1}}`,
				"m Apply : spec.big\nbefore-first-apply Update : spec.size\ncurl Update : spec.text\nn Update : spec.replicas"},
			{"status after an apply", "PATCH", "/a/status", jsonPatch, "controller/v1", `[{"op":"replace","path":"/status/phase","value":"y"}]`,
				"m Apply : spec.big\nbefore-first-apply Update : spec.size\ncurl Update : spec.text\nn Update : spec.replicas\ncontroller Update status: status.phase"},
			{"scale", "PATCH", "/a/scale", mergePatch, "scaler/v1", `{"spec":{"replicas":2}}`,
				"m Apply : spec.big\nbefore-first-apply Update : spec.size\ncurl Update : spec.text\ncontroller Update status: status.phase\nscaler Update scale: spec.replicas"},
			{"what its applier sets", "PATCH", "/a", mergePatch, "curl/8", `{"spec":{"big":2}}`,
				"before-first-apply Update : spec.size\ncontroller Update status: status.phase\ncurl Update : spec.big spec.text\nscaler Update scale: spec.replicas"},
			{"reset through status", "PATCH", "/a/status", mergePatch, "curl/8", `{"metadata":{"managedFields":[{}]}}`,
				"before-first-apply Update : spec.size\ncontroller Update status: status.phase\ncurl Update : spec.big spec.text\nscaler Update scale: spec.replicas"},
			{"reset", "PATCH", "/a", mergePatch, "curl/8", `{"metadata":{"managedFields":[{}]}}`, ""},
			{"update after a reset", "PATCH", "/a", mergePatch, "curl/8", `{"spec":{"big":3}}`, ""},
			{"apply after a reset", "PATCH", "/a?fieldManager=m", applyPatch, "x", applied("a", `},"spec":{"size":"S"}`),
				"m Apply : spec.size\nbefore-first-apply Update : spec.big spec.replicas spec.size spec.text"},
			{"delete", "PATCH", "/a", jsonPatch, "curl/8", `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`, ""},
		}},
		{"scale", false, []step{
			{"create", "POST", "", "", "kubectl/v1", applied("a", `},"spec":{"size":"S"}`), ""},
			{"merge patch", "PATCH", "/a/scale", mergePatch, "scaler/v1", `{"spec":{"replicas":1}}`, ""},
			{"apply", "PATCH", "/a/scale?fieldManager=m&force=true", applyPatch, "x", appliedScale("2"),
				"m Apply scale: spec.replicas\nbefore-first-apply Update scale: spec.size"},
			{"apply again", "PATCH", "/a/scale?fieldManager=m", applyPatch, "x", appliedScale("3"),
				"m Apply scale: spec.replicas\nbefore-first-apply Update scale: spec.size"},
			{"the same by another", "PATCH", "/a/scale?fieldManager=n", applyPatch, "x", appliedScale("3"),
				"m Apply scale: spec.replicas\nn Apply scale: spec.replicas\nbefore-first-apply Update scale: spec.size"},
			{"by the object", "PATCH", "/a?fieldManager=o", applyPatch, "x", applied("a", `},"spec":{"replicas":3}`),
				"m Apply scale: spec.replicas\nn Apply scale: spec.replicas\no Apply : spec.replicas\nbefore-first-apply Update scale: spec.size"},
			{"withdrawn", "PATCH", "/a/scale?fieldManager=m", applyPatch, "x", `{"apiVersion":"autoscaling/v1","kind":"Scale"}`,
				"n Apply scale: spec.replicas\no Apply : spec.replicas\nbefore-first-apply Update scale: spec.size"},
			{"replaced", "PUT", "/a/scale", "", "scaler/v1", appliedScale("4"),
				"before-first-apply Update scale: spec.size\nscaler Update scale: spec.replicas"},
			{"forced", "PATCH", "/a/scale?fieldManager=m&force=true", applyPatch, "x", appliedScale("5"),
				"m Apply scale: spec.replicas\nbefore-first-apply Update scale: spec.size"},
			{"withdrawn by the last", "PATCH", "/a/scale?fieldManager=m", applyPatch, "x", `{"apiVersion":"autoscaling/v1","kind":"Scale"}`,
				"before-first-apply Update scale: spec.size"},
			{"applied once more", "PATCH", "/a/scale?fieldManager=m", applyPatch, "x", appliedScale("6"),
				"m Apply scale: spec.replicas\nbefore-first-apply Update scale: spec.size"},
		}},
		{"always", true, []step{
			{"create", "POST", "", "", "kubectl/v1", applied("a", `,"labels":{"a":"b"}},"spec":{"size":"S"}`), "kubectl Update : metadata.labels.a spec.size"},
			{"by a name", "POST", "?fieldManager=n", "", "kubectl/v1", applied("b", `},"spec":{"size":"S"}`), "n Update : spec.size"},
			{"update", "PATCH", "/a", mergePatch, "curl/8", `{"spec":{"text":"x"}}`, "kubectl Update : metadata.labels.a spec.size\ncurl Update : spec.text"},
			{"status", "PATCH", "/a/status", mergePatch, strings.Repeat("c", 200) + "/v1", `{"status":{"phase":"x"}}`,
				"kubectl Update : metadata.labels.a spec.size\ncurl Update : spec.text\n" + strings.Repeat("c", 128) + " Update status: status.phase"},
			{"conflict's other side", "PATCH", "/a?fieldManager=m&force=true", applyPatch, "x", applied("a", `},"spec":{"size":"L"}`),
				"m Apply : spec.size\nkubectl Update : metadata.labels.a spec\ncurl Update : spec.text\n" + strings.Repeat("c", 128) + " Update status: status.phase"},
			{"reset", "PATCH", "/a", mergePatch, "curl/8", `{"metadata":{"managedFields":[{}]}}`, ""},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := servertest.New(t, func(s *server.Server) { s.API.ManagedFieldsAlways = tc.always })
			s.PostYAML(definitionsPath, gizmosDefinition())
			for _, step := range tc.steps {
				res, body := s.Do(step.method, gizmosPath+step.path, step.body, "Content-Type", step.media, "User-Agent", step.agent)
				if res.StatusCode >= 300 {
					t.Fatalf("%s: %s: %s", step.name, res.Status, body)
				}
				name := "a"
				if value(body, "metadata.name") == "b" {
					name = "b"
				}
				if got := records(t, s.Get(gizmosPath+"/"+name)); !sameLines(got, step.records) {
					t.Errorf("after %s it's\n%s\nwant\n%s", step.name, got, step.records)
				}
			}
		})
	}
}

// sameLines compares texts whose lines may be in any order: entries of one second are sorted by their names.
func sameLines(a, b string) bool {
	return sorted(strings.ReplaceAll(a, "\n", ", ")) == sorted(strings.ReplaceAll(b, "\n", ", "))
}

// TestAppliesAtOnce: each manager has its field in the end, whoever created the object.
func TestAppliesAtOnce(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	var all sync.WaitGroup
	const managers, rounds = 6, 5
	for i := range managers {
		all.Go(func() {
			for n := range rounds {
				body := applied("a", fmt.Sprintf(`},"spec":{"any":{"f%d":%d},"ports":[{"name":"p%d","port":%d}]}`, i, n, i, n))
				res, answer := s.Do("PATCH", fmt.Sprintf("%s/a?fieldManager=m%d", gizmosPath, i), body, "Content-Type", applyPatch)
				if res.StatusCode != 200 && res.StatusCode != 201 {
					t.Errorf("%s: %s", res.Status, answer)
				}
			}
		})
	}
	all.Wait()
	got := s.Get(gizmosPath + "/a")
	for i := range managers {
		check(t, got, fmt.Sprintf("spec.any.f%d=%d", i, rounds-1))
	}
	if n := strings.Count(records(t, got), " Apply "); n != managers {
		t.Errorf("%d managers are recorded: %s", n, got)
	}
}
