package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// roles are the objects of a scenario. A kind whose names are numbers counts them in this order, from 2.
var roles = []string{"min", "full", "yaml", "pb", "applied", "strict", "missing", "put", "foreground", "orphan", "background", "held", "precondition", "c1", "c2", "c3", "dry", "mistake", "other", "more", "orphaned", "target"}

// Content types of patches.
const (
	mergePatch     = "application/merge-patch+json"
	jsonPatch      = "application/json-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// What a client accepts that wants a table, or metadata alone.
const (
	asTable       = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asPartial     = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asPartialList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// maker makes the requests of one kind in one scenario.
type maker struct {
	kind
	scenario
	namespace string
	path      string // of the collection
}

// newMaker begins a scenario of a kind: its namespace, and what the sample wants to be there before.
func newMaker(k kind, suffix string) *maker {
	m := &maker{kind: k, scenario: scenario{name: k.name() + suffix}}
	m.namespace = strings.NewReplacer(".", "-").Replace(strings.TrimSuffix(k.plural+"-"+strings.TrimSuffix(strings.TrimSuffix(k.group, ".k8s.io"), ".authorization")+"-"+k.version+suffix, "-"))
	m.namespace = strings.ReplaceAll(strings.ReplaceAll(m.namespace, "--", "-"), "--", "-")
	m.path = root(k.group, k.version) + "/" + k.plural
	if k.namespaced {
		m.path = root(k.group, k.version) + "/namespaces/" + m.namespace + "/" + k.plural
	} else {
		m.own = k.sample.Own
		if m.own == "" {
			m.own = "own-"
		}
	}
	m.setup(k.namespaced)
	return m
}

// setup makes the namespace and the objects that must be there before.
func (m *maker) setup(namespaced bool) {
	if namespaced {
		m.post("setup/namespace", "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, m.namespace))
		if m.plural != "serviceaccounts" {
			m.post("setup/account", "/api/v1/namespaces/"+m.namespace+"/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`)
		}
	}
	for i, object := range m.sample.Setup {
		text := m.fill(object, "", 0)
		apiVersion, _ := object["apiVersion"].(string)
		kind, _ := object["kind"].(string)
		plural := strings.ToLower(kind) + "s"
		path := gvRoot(apiVersion) + "/namespaces/" + m.namespace + "/" + plural
		if !namespaced || slices.Contains([]string{"Node", "PersistentVolume"}, kind) {
			path = gvRoot(apiVersion) + "/" + plural
		}
		m.post("setup/"+strconv.Itoa(i), path, text)
	}
}

func (m *maker) post(name, path, body string) {
	m.add(step{name: name, method: "POST", path: path, body: body, as: asJSON})
}

// objectName is the name of a role's object.
func (m *maker) objectName(role string) string {
	i := slices.Index(roles, role)
	pattern := m.sample.Name
	switch {
	case strings.Contains(pattern, "%d"):
		return fmt.Sprintf(pattern, i+2)
	case strings.Contains(pattern, "%s"):
		return fmt.Sprintf(pattern, role)
	case m.namespaced:
		return role
	}
	return m.own + role
}

// fill puts the name and the like into a sample.
func (m *maker) fill(fields any, name string, n int) string {
	encoded, err := json.Marshal(fields)
	if err != nil {
		panic(err) // it was YAML
	}
	return strings.NewReplacer("$NAME", name, "$NS", m.namespace, "$N", strconv.Itoa(n)).Replace(string(encoded))
}

// object is an object of the kind with some of the sample's fields, as a tree.
func (m *maker) object(role string, fields map[string]any, meta map[string]any) map[string]any {
	name := m.objectName(role)
	var object map[string]any
	if err := json.Unmarshal([]byte(m.fill(fields, name, slices.Index(roles, role)+2)), &object); err != nil {
		panic(err) // likewise
	}
	if object == nil {
		object = map[string]any{}
	}
	metadata := map[string]any{"name": name}
	if !m.namespaced {
		metadata["labels"] = map[string]any{"own": m.plural}
	}
	for key, value := range meta {
		if key == "labels" && !m.namespaced {
			labels := map[string]any{"own": m.plural}
			for l, v := range value.(map[string]any) {
				labels[l] = v
			}
			value = labels
		}
		metadata[key] = value
	}
	if m.sample.Bare {
		metadata = map[string]any{}
		if m.namespaced {
			metadata["namespace"] = m.namespace
		}
	}
	object["apiVersion"], object["kind"], object["metadata"] = m.apiVersion(), m.kind.kind, metadata
	return object
}

func text(tree any) string {
	encoded, err := json.Marshal(tree)
	if err != nil {
		panic(err) // it's made of maps, lists and strings
	}
	return string(encoded)
}

// fullMeta is the metadata of a full object.
func (m *maker) fullMeta() map[string]any {
	meta := map[string]any{"labels": map[string]any{"tier": "front"}, "annotations": map[string]any{"note": "some"}}
	if m.namespaced {
		meta["namespace"] = m.namespace
	}
	return meta
}

func (m *maker) minimal(role string) map[string]any { return m.object(role, m.sample.Minimal, nil) }

func (m *maker) full(role string) map[string]any {
	fields := m.sample.Full
	if fields == nil {
		fields = m.sample.Minimal
	}
	return m.object(role, fields, m.fullMeta())
}

// change is the sample's merge patch of something that may change.
func (m *maker) change(role string) string {
	change := m.sample.Change
	if change == nil {
		change = map[string]any{"metadata": map[string]any{"annotations": map[string]any{"note": "other"}}}
	}
	return m.fill(change, m.objectName(role), slices.Index(roles, role)+2)
}

// changed is an object with a merge patch.
func changed(object map[string]any, patch string) map[string]any {
	merged, err := jsonpatch.MergePatch([]byte(text(object)), []byte(patch))
	if err != nil {
		panic(err) // of our own patches
	}
	var out map[string]any
	if err := json.Unmarshal(merged, &out); err != nil {
		panic(err)
	}
	return out
}

func with(object map[string]any, patch string) string { return text(changed(object, patch)) }

func (m *maker) can(verb string) bool { return slices.Contains(m.verbs, verb) }

// verbsScenario is what can be done with a kind.
func (k kind) verbsScenario() scenario {
	m := newMaker(k, "")
	if m.can("watch") {
		m.watch = m.path
	}
	at := func(role string) string { return m.path + "/" + m.objectName(role) }
	send := func(name, method, path string, object map[string]any) {
		m.add(step{name: name, method: method, path: path, body: text(object), as: asJSON})
	}
	get := func(name, path, accept string) {
		s := step{name: name, method: "GET", path: path}
		if accept != "" {
			s.header = map[string]string{"Accept": accept}
		}
		m.add(s)
	}
	patch := func(name, path, contentType, body string) {
		m.add(step{name: name, method: "PATCH", path: path, header: map[string]string{"Content-Type": contentType}, body: body})
	}

	// Creates.
	if m.can("create") {
		send("create/dry run", "POST", m.path+"?dryRun=All", m.full("full"))
		send("create/minimal", "POST", m.path, m.minimal("min"))
		send("create/again", "POST", m.path, m.minimal("min"))
		send("create/full", "POST", m.path, m.full("full"))
		send("create/manager", "POST", m.path+"?fieldManager=somebody&dryRun=All", m.full("other"))
		send("create/pretty", "POST", m.path+"?pretty=true&dryRun=All", m.minimal("other"))
		for _, validation := range []string{"Strict", "Warn", "Ignore", "Other"} {
			object := m.minimal("strict")
			object["unknown"] = "x"
			send("create/unknown field "+validation, "POST", m.path+"?dryRun=All&fieldValidation="+validation, object)
		}
		generated := m.minimal("other")
		generated["metadata"] = map[string]any{"generateName": m.own + "gen-"}
		send("create/generated name", "POST", m.path+"?dryRun=All", generated)
		send("create/dry run word", "POST", m.path+"?dryRun=Some", m.minimal("other"))
		m.add(step{name: "create/as YAML", method: "POST", path: m.path, body: text(m.full("yaml")), as: asYAML})
		m.add(step{name: "create/as protobuf", method: "POST", path: m.path, body: text(m.full("pb")), as: asProtobuf, header: map[string]string{"Accept": asProtobuf}})
		for _, word := range sortedKeys(m.sample.More) {
			send("create more/"+word, "POST", m.path+"?dryRun=All", m.object("more", m.sample.More[word], nil))
		}
		m.add(step{name: "create/no body", method: "POST", path: m.path, header: map[string]string{"Content-Type": asJSON}})
		m.add(step{name: "create/no JSON", method: "POST", path: m.path, body: "{", header: map[string]string{"Content-Type": asJSON}})
		m.add(step{name: "create/other media type", method: "POST", path: m.path, body: "{}", header: map[string]string{"Content-Type": "text/plain"}})
		m.add(step{name: "create/list", method: "POST", path: m.path, body: `{"apiVersion":"v1","kind":"List","items":[]}`, as: asJSON})
		m.add(step{name: "create/other version", method: "POST", path: m.path, body: with(m.minimal("other"), `{"apiVersion":"other.example.com/v1"}`), as: asJSON})
		m.add(step{name: "create/other kind", method: "POST", path: m.path, body: with(m.minimal("other"), `{"kind":"Other"}`), as: asJSON})
	}
	m.review()

	// Reads.
	if m.can("get") {
		for _, role := range []string{"min", "full", "missing"} {
			get("get/"+role, at(role), "")
			get("get table/"+role, at(role), asTable)
			get("get metadata/"+role, at(role), asPartial)
		}
		get("get/as YAML", at("full"), asYAML)
		get("get/as protobuf", at("full"), asProtobuf)
		get("get/protobuf or JSON", at("pb"), asProtobuf+",application/json")
		get("get/as text", at("full"), "text/plain")
		get("get/version 0", at("full")+"?resourceVersion=0", "")
		get("get/version word", at("full")+"?resourceVersion=x", "")
		get("get table/with object", at("full")+"?includeObject=Object", asTable)
		get("get metadata/as protobuf", at("full"), strings.Replace(asPartial, "application/json", asProtobuf, 1))
		m.add(step{name: "get/HEAD", method: "HEAD", path: at("full")})
	}
	if m.can("list") {
		list := m.path
		and := func(query string) string {
			if !m.namespaced {
				query += "&labelSelector=own%3D" + m.plural
			}
			return list + "?" + strings.TrimPrefix(query, "&")
		}
		get("list/all", and(""), "")
		get("list/as YAML", and(""), asYAML)
		get("list/as protobuf", and(""), asProtobuf)
		get("list table/all", and(""), asTable)
		get("list table/no object", and("&includeObject=None"), asTable)
		get("list table/with object", and("&includeObject=Object"), asTable)
		get("list metadata/all", and(""), asPartialList)
		get("list/version 0", and("&resourceVersion=0"), "")
		get("list/exact", and("&resourceVersion=${rv:"+m.objectName("full")+"}&resourceVersionMatch=Exact"), "")
		get("list/not older", and("&resourceVersion=${rv:"+m.objectName("full")+"}&resourceVersionMatch=NotOlderThan"), "")
		get("list/match alone", and("&resourceVersionMatch=Exact"), "")
		get("list/match word", and("&resourceVersion=1&resourceVersionMatch=Some"), "")
		get("list/version word", and("&resourceVersion=x"), "")
		get("list/page", and("&limit=1"), "")
		get("list/next page", and("&limit=1&continue=${continue}"), "")
		get("list/token word", and("&limit=1&continue=x"), "")
		get("list table/page", and("&limit=1"), asTable)
		get("list/limit word", and("&limit=x"), "")
		get("list/label", list+"?labelSelector=tier%3Dfront"+map[bool]string{false: ",own%3D" + m.plural}[m.namespaced], "")
		get("list/label without", list+"?labelSelector=tier%21%3Dfront"+map[bool]string{false: ",own%3D" + m.plural}[m.namespaced], "")
		get("list/label wrong", list+"?labelSelector=a%3D%3D%3Db", "")
		get("list/name", list+"?fieldSelector=metadata.name%3D"+m.objectName("full"), "")
		get("list/field unknown", list+"?fieldSelector=spec.nothing%3Da", "")
		get("list/field wrong", list+"?fieldSelector=a", "")
		get("list/initial events", and("&sendInitialEvents=true"), "")
		if m.namespaced {
			all := root(m.group, m.version) + "/" + m.plural
			get("list/all namespaces", all+"?fieldSelector=metadata.namespace%3D"+m.namespace, "")
			get("list table/all namespaces", all+"?fieldSelector=metadata.namespace%3D"+m.namespace, asTable)
		}
		get("watch/one second", and("&watch=true&timeoutSeconds=1&resourceVersion=${rv:"+m.objectName("min")+"}&fieldSelector=metadata.name%3D"+m.objectName("full")), "")
		get("watch/table", and("&watch=true&timeoutSeconds=1&resourceVersion=${rv:"+m.objectName("min")+"}&fieldSelector=metadata.name%3D"+m.objectName("full")), asTable)
		get("watch/version word", and("&watch=true&timeoutSeconds=1&resourceVersion=x"), "")
	}

	// Updates.
	if m.can("update") {
		full := m.objectName("full")
		change := m.change("full")
		conditional := `{"metadata":{"resourceVersion":"${rv:` + full + `}"}}`
		send("update/dry run", "PUT", at("full")+"?dryRun=All", changed(changed(m.full("full"), change), conditional))
		m.add(step{name: "update/as read", method: "PUT", path: at("full"), over: full, body: "{}", as: asJSON})
		m.add(step{name: "update/changed", method: "PUT", path: at("full"), over: full, body: change, as: asJSON})
		m.add(step{name: "update/labels", method: "PUT", path: at("full"), over: full, body: `{"metadata":{"labels":{"more":"yes"}}}`, as: asJSON})
		m.add(step{name: "update/as YAML", method: "PUT", path: at("full"), over: full, body: `{"metadata":{"labels":{"more":"yaml"}}}`, as: asYAML})
		m.add(step{name: "update/as protobuf", method: "PUT", path: at("full"), over: full, body: `{"metadata":{"labels":{"more":"pb"}}}`, as: asProtobuf})
		send("update/unconditional", "PUT", at("full"), changed(m.full("full"), `{"metadata":{"labels":{"more":"unconditional"}}}`))
		send("update/unconditional change", "PUT", at("full"), changed(m.full("full"), change))
		send("update/conditional", "PUT", at("full"), changed(m.full("full"), conditional))
		send("update/stale", "PUT", at("full"), changed(m.full("full"), `{"metadata":{"resourceVersion":"1","labels":{"more":"stale"}}}`))
		send("update/version word", "PUT", at("full"), changed(m.full("full"), `{"metadata":{"resourceVersion":"x"}}`))
		send("update/other uid", "PUT", at("full"), changed(m.full("full"), `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`))
		send("update/other name", "PUT", at("full"), m.full("other"))
		send("update/missing", "PUT", at("missing"), m.full("missing"))
		send("update/missing with uid", "PUT", at("put"), changed(m.full("put"), `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`))
		send("update/missing with version", "PUT", at("put"), changed(m.full("put"), `{"metadata":{"resourceVersion":"1"}}`))
		m.add(step{name: "update/generation", method: "PUT", path: at("full"), over: full, body: `{"metadata":{"generation":77,"creationTimestamp":"2020-01-01T00:00:00Z","selfLink":"x","deletionGracePeriodSeconds":5}}`, as: asJSON})
		if m.sample.Status != nil {
			m.add(step{name: "update/with status", method: "PUT", path: at("full"), over: full, body: `{"status":` + m.fill(m.sample.Status, full, 3) + `}`, as: asJSON})
		}
		m.add(step{name: "update/finalizers", method: "PUT", path: at("min"), over: m.objectName("min"), body: `{"metadata":{"finalizers":["example.com/a","example.com/b"]}}`, as: asJSON})
		m.add(step{name: "update/no finalizers", method: "PUT", path: at("min"), over: m.objectName("min"), body: `{"metadata":{"finalizers":null}}`, as: asJSON})
		m.add(step{name: "update/collection", method: "PUT", path: m.path, body: text(m.full("full")), as: asJSON})
	}

	// Patches.
	if m.can("patch") {
		change := m.change("full")
		patch("patch merge/dry run", at("full")+"?dryRun=All", mergePatch, change)
		patch("patch merge/change", at("min"), mergePatch, change)
		patch("patch merge/labels", at("full"), mergePatch, `{"metadata":{"labels":{"merge":"1"},"annotations":{"note":null}}}`)
		patch("patch merge/nothing", at("full"), mergePatch, `{}`)
		patch("patch merge/stale", at("full"), mergePatch, `{"metadata":{"resourceVersion":"1"}}`)
		patch("patch merge/conditional", at("full"), mergePatch, `{"metadata":{"resourceVersion":"${rv:`+m.objectName("full")+`}","labels":{"merge":"2"}}}`)
		patch("patch merge/other uid", at("full"), mergePatch, `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`)
		patch("patch merge/other name", at("full"), mergePatch, `{"metadata":{"name":"another"}}`)
		patch("patch merge/other kind", at("full"), mergePatch, `{"kind":"Another"}`)
		patch("patch merge/other version", at("full"), mergePatch, `{"apiVersion":"another/v1"}`)
		patch("patch merge/unknown", at("full"), mergePatch, `{"unknown":1}`)
		patch("patch merge/unknown strict", at("full")+"?fieldValidation=Strict", mergePatch, `{"unknown":1}`)
		patch("patch merge/no object", at("full"), mergePatch, `[]`)
		patch("patch merge/no JSON", at("full"), mergePatch, `{`)
		patch("patch merge/missing", at("missing"), mergePatch, `{}`)
		patch("patch json/add", at("full"), jsonPatch, `[{"op":"add","path":"/metadata/labels/json","value":"1"}]`)
		patch("patch json/all", at("full"), jsonPatch, `[{"op":"test","path":"/metadata/labels/json","value":"1"},{"op":"copy","from":"/metadata/labels/json","path":"/metadata/labels/copied"},{"op":"move","from":"/metadata/labels/copied","path":"/metadata/labels/moved"},{"op":"replace","path":"/metadata/labels/json","value":"2"},{"op":"remove","path":"/metadata/labels/moved"}]`)
		patch("patch json/test fails", at("full"), jsonPatch, `[{"op":"test","path":"/metadata/labels/json","value":"no"}]`)
		patch("patch json/remove missing", at("full"), jsonPatch, `[{"op":"remove","path":"/metadata/labels/none"}]`)
		patch("patch json/unknown op", at("full"), jsonPatch, `[{"op":"be","path":"/a"}]`)
		patch("patch json/object", at("full"), jsonPatch, `{"op":"remove"}`)
		patch("patch json/unknown field", at("full")+"?fieldValidation=Strict", jsonPatch, `[{"op":"add","path":"/unknown","value":"1"}]`)
		patch("patch json/missing", at("missing"), jsonPatch, `[]`)
		patch("patch strategic/change", at("full"), strategicPatch, change)
		patch("patch strategic/labels", at("full"), strategicPatch, `{"metadata":{"labels":{"strategic":"1"},"finalizers":["example.com/s"]}}`)
		patch("patch strategic/delete finalizer", at("full"), strategicPatch, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/s"]}}`)
		patch("patch strategic/replace labels", at("full"), strategicPatch, `{"metadata":{"labels":{"$patch":"replace","own":"`+m.plural+`"}}}`)
		patch("patch strategic/owners", at("full"), strategicPatch, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"11111111-1111-1111-1111-111111111111"}]}}`)
		patch("patch strategic/more owners", at("full"), strategicPatch, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":"22222222-2222-2222-2222-222222222222"}]}}`)
		patch("patch strategic/delete owner", at("full"), strategicPatch, `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"11111111-1111-1111-1111-111111111111"}]}}`)
		patch("patch strategic/unknown", at("full"), strategicPatch, `{"unknown":1}`)
		patch("patch strategic/wrong directive", at("full"), strategicPatch, `{"metadata":{"$patch":"be"}}`)
		patch("patch strategic/missing", at("missing"), strategicPatch, `{}`)
		patch("patch other/media type", at("full"), "application/json", `{}`)
		patch("patch other/text", at("full"), "text/plain", `{}`)
		patch("patch other/force", at("full")+"?force=true", mergePatch, `{}`)
		patch("patch other/collection", m.path, mergePatch, `{}`)
		patch("patch managers/reset", at("full"), mergePatch, `{"metadata":{"managedFields":[{}]}}`)
		patch("patch managers/wrong", at("full"), mergePatch, `{"metadata":{"managedFields":[{"manager":"a","operation":"Be","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]}}`)

		// Applies.
		apply := func(name, role, query string, object map[string]any) {
			patch("apply/"+name, at(role)+query, applyPatch, text(object))
		}
		applied := m.full("applied")
		apply("no manager", "applied", "", applied)
		apply("dry run", "applied", "?fieldManager=one&dryRun=All", applied)
		apply("create", "applied", "?fieldManager=one", applied)
		apply("again", "applied", "?fieldManager=one", applied)
		apply("conflict", "applied", "?fieldManager=two", changed(applied, m.change("applied")))
		apply("force", "applied", "?fieldManager=two&force=true", changed(applied, m.change("applied")))
		apply("conflict back", "applied", "?fieldManager=one", applied)
		apply("shared", "applied", "?fieldManager=three", changed(applied, m.change("applied")))
		apply("fewer", "applied", "?fieldManager=one&force=true", m.minimal("applied"))
		apply("labels alone", "applied", "?fieldManager=four", map[string]any{"apiVersion": m.apiVersion(), "kind": m.kind.kind, "metadata": map[string]any{"name": m.objectName("applied"), "labels": map[string]any{"four": "4"}}})
		apply("nothing", "applied", "?fieldManager=four", map[string]any{"apiVersion": m.apiVersion(), "kind": m.kind.kind, "metadata": map[string]any{"name": m.objectName("applied")}})
		apply("after update", "full", "?fieldManager=one", m.full("full"))
		apply("after update by force", "full", "?fieldManager=one&force=true", m.full("full"))
		apply("with managers", "applied", "?fieldManager=one", changed(applied, `{"metadata":{"managedFields":[{"manager":"a","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]}}`))
		apply("with version", "applied", "?fieldManager=one", changed(applied, `{"metadata":{"resourceVersion":"1"}}`))
		apply("unknown field", "applied", "?fieldManager=one", changed(applied, `{"unknown":1}`))
		apply("unknown field strict", "applied", "?fieldManager=one&fieldValidation=Strict", changed(applied, `{"unknown":1}`))
		apply("other name", "applied", "?fieldManager=one", m.full("other"))
		apply("other kind", "applied", "?fieldManager=one", changed(applied, `{"kind":"Other"}`))
		apply("other version", "applied", "?fieldManager=one", changed(applied, `{"apiVersion":"other.example.com/v1"}`))
		apply("no version", "applied", "?fieldManager=one", changed(applied, `{"apiVersion":null}`))
		patch("apply/no YAML", at("applied")+"?fieldManager=one", applyPatch, "a: b: c")
		patch("apply/list", at("applied")+"?fieldManager=one", applyPatch, "[]")
		if m.sample.Status != nil {
			apply("with status", "applied", "?fieldManager=five", changed(m.minimal("applied"), `{"status":`+m.fill(m.sample.Status, "", 0)+`}`))
		}
	}
	m.subresourceSteps(at)

	// Deletions.
	remove := func(name, path, body string) {
		s := step{name: "delete/" + name, method: "DELETE", path: path, body: body}
		if body != "" {
			s.as = asJSON
		}
		m.add(s)
	}
	if m.can("delete") {
		remove("dry run", at("full")+"?dryRun=All", "")
		remove("other uid", at("full"), `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`)
		remove("stale", at("full"), `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"1"}}`)
		remove("wrong policy", at("full")+"?propagationPolicy=Some", "")
		remove("two policies", at("full"), `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","orphanDependents":true}`)
		remove("negative period", at("full"), `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":-1}`)
		remove("wrong body", at("full"), `{"apiVersion":"v1","kind":"ConfigMap"}`)
		remove("unknown field", at("full")+"?fieldValidation=Strict", `{"apiVersion":"v1","kind":"DeleteOptions","unknown":1,"preconditions":{"resourceVersion":"1"}}`)
		remove("missing", at("missing"), "")
		for _, d := range []struct{ role, query, body string }{
			{"foreground", "?propagationPolicy=Foreground", ""}, {"orphan", "?propagationPolicy=Orphan", ""}, {"background", "", `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","gracePeriodSeconds":0}`},
			{"precondition", "", `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"${uid:` + m.objectName("precondition") + `}","resourceVersion":"${rv:` + m.objectName("precondition") + `}"}}`},
			{"orphaned", "?orphanDependents=true", ""},
		} {
			if m.can("create") {
				send("delete setup/"+d.role, "POST", m.path, m.minimal(d.role))
			}
			remove(d.role, at(d.role)+d.query, d.body)
			get("delete after/"+d.role, at(d.role), "")
			patch("delete release/"+d.role, at(d.role), mergePatch, `{"metadata":{"finalizers":null}}`)
			remove(d.role+" again", at(d.role), "")
		}
		if m.can("create") {
			send("delete setup/held", "POST", m.path, changed(m.minimal("held"), `{"metadata":{"finalizers":["example.com/hold"]}}`))
			remove("held", at("held"), "")
			remove("held again", at("held"), "")
			get("delete after/held table", at("held"), asTable)
			patch("delete after/change", at("held"), mergePatch, `{"metadata":{"annotations":{"a":"b"}}}`)
			patch("delete after/more finalizers", at("held"), mergePatch, `{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}`)
			patch("delete after/release", at("held"), mergePatch, `{"metadata":{"finalizers":null}}`)
		}
		remove("last", at("full")+"?gracePeriodSeconds=0", "")
		remove("as table", at("yaml")+"?gracePeriodSeconds=0", "")
		remove("default", at("pb"), "")
		remove("default again", at("pb")+"?gracePeriodSeconds=0", "")
	}
	if m.can("deletecollection") {
		if m.can("create") {
			for _, role := range []string{"c1", "c2", "c3"} {
				send("delete collection setup/"+role, "POST", m.path, changed(m.minimal(role), `{"metadata":{"labels":{"collected":"`+map[bool]string{true: "yes", false: "no"}[role != "c3"]+`"}}}`))
			}
		}
		collect := func(name, query, body string) {
			s := step{name: "delete collection/" + name, method: "DELETE", path: m.path + query, body: body}
			if body != "" {
				s.as = asJSON
			}
			m.add(s)
		}
		collect("dry run", "?labelSelector=collected%3Dyes&dryRun=All", "")
		collect("by label", "?labelSelector=collected%3Dyes&gracePeriodSeconds=0", "")
		collect("wrong selector", "?labelSelector=a%3D%3D%3D", "")
		collect("by name", "?fieldSelector=metadata.name%3D"+m.objectName("c3"), `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}`)
		collect("nothing", "?labelSelector=collected%3Dyes", "")
		if m.namespaced {
			collect("rest", "?gracePeriodSeconds=0", "")
		} else {
			collect("rest", "?gracePeriodSeconds=0&labelSelector=own%3D"+m.plural, "")
		}
	}

	// What isn't there.
	m.add(step{name: "method/POST to a name", method: "POST", path: at("full"), body: text(m.minimal("full")), as: asJSON})
	m.add(step{name: "method/OPTIONS", method: "OPTIONS", path: m.path})
	m.add(step{name: "method/below", method: "GET", path: at("full") + "/nothing"})
	return m.scenario
}

// review is a kind that is answered and not stored, or that has no verbs but create: its objects in each encoding.
func (m *maker) review() {
	if m.can("get") || m.can("list") || !m.can("create") {
		return
	}
	m.add(step{name: "review/as protobuf answer", method: "POST", path: m.path, body: text(m.full("full")), as: asJSON, header: map[string]string{"Accept": asProtobuf}})
}

// subresourceSteps are the requests to each subresource.
func (m *maker) subresourceSteps(at func(string) string) {
	full := m.objectName("full")
	for _, sub := range m.subresources {
		if strings.Contains(sub.name, "/") {
			continue
		}
		path := at("full") + "/" + sub.name
		family := "subresource " + sub.name + "/"
		has := func(verb string) bool { return slices.Contains(sub.verbs, verb) }
		if slices.Contains([]string{"exec", "attach", "portforward", "proxy", "log"}, sub.name) {
			m.add(step{name: family + "GET", method: "GET", path: path}, step{name: family + "GET missing", method: "GET", path: at("missing") + "/" + sub.name})
			continue
		}
		if has("get") {
			m.add(step{name: family + "GET", method: "GET", path: path},
				step{name: family + "GET missing", method: "GET", path: at("missing") + "/" + sub.name},
				step{name: family + "GET table", method: "GET", path: path, header: map[string]string{"Accept": asTable}},
				step{name: family + "GET protobuf", method: "GET", path: path, header: map[string]string{"Accept": asProtobuf}})
		}
		if body, ok := m.sample.Post[sub.name]; ok && has("create") {
			filled := m.fill(body, full, 3)
			m.add(step{name: family + "POST dry run", method: "POST", path: path + "?dryRun=All", body: filled, as: asJSON},
				step{name: family + "POST missing", method: "POST", path: at("missing") + "/" + sub.name, body: strings.ReplaceAll(filled, full, m.objectName("missing")), as: asJSON},
				step{name: family + "POST empty", method: "POST", path: path, body: "{}", as: asJSON},
				step{name: family + "POST", method: "POST", path: path, body: filled, as: asJSON},
				step{name: family + "POST again", method: "POST", path: path, body: filled, as: asJSON})
		}
		if sub.name == "scale" {
			scale := fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":%%d}}`, full, m.namespace)
			m.add(step{name: family + "PUT", method: "PUT", path: path, body: fmt.Sprintf(scale, 4), as: asJSON},
				step{name: family + "PUT dry run", method: "PUT", path: path + "?dryRun=All", body: fmt.Sprintf(scale, 5), as: asJSON},
				step{name: family + "PUT negative", method: "PUT", path: path, body: fmt.Sprintf(scale, -1), as: asJSON},
				step{name: family + "PUT stale", method: "PUT", path: path, body: strings.Replace(fmt.Sprintf(scale, 6), `"metadata":{`, `"metadata":{"resourceVersion":"1",`, 1), as: asJSON},
				step{name: family + "PUT missing", method: "PUT", path: at("missing") + "/scale", body: strings.ReplaceAll(fmt.Sprintf(scale, 4), `"`+full+`"`, `"`+m.objectName("missing")+`"`), as: asJSON},
				step{name: family + "PUT other kind", method: "PUT", path: path, body: text(m.full("full")), as: asJSON},
				step{name: family + "PATCH merge", method: "PATCH", path: path, header: map[string]string{"Content-Type": mergePatch}, body: `{"spec":{"replicas":7}}`},
				step{name: family + "PATCH json", method: "PATCH", path: path, header: map[string]string{"Content-Type": jsonPatch}, body: `[{"op":"replace","path":"/spec/replicas","value":8}]`},
				step{name: family + "PATCH strategic", method: "PATCH", path: path, header: map[string]string{"Content-Type": strategicPatch}, body: `{"spec":{"replicas":9}}`},
				step{name: family + "apply conflict", method: "PATCH", path: path + "?fieldManager=scaler", header: map[string]string{"Content-Type": applyPatch}, body: fmt.Sprintf(scale, 2)},
				step{name: family + "apply", method: "PATCH", path: path + "?fieldManager=scaler&force=true", header: map[string]string{"Content-Type": applyPatch}, body: fmt.Sprintf(scale, 3)},
				step{name: family + "apply unknown", method: "PATCH", path: path + "?fieldManager=scaler", header: map[string]string{"Content-Type": applyPatch}, body: strings.Replace(fmt.Sprintf(scale, 3), `"spec":{`, `"spec":{"unknown":1,`, 1)},
				step{name: family + "after", method: "GET", path: at("full")})
			continue
		}
		if !has("update") && !has("patch") {
			continue
		}
		merge := `{}`
		if sub.name == "status" && m.sample.Status != nil {
			merge = `{"status":` + m.fill(m.sample.Status, full, 3) + `}`
		} else if put, ok := m.sample.Put[sub.name]; ok {
			merge = m.fill(put, full, 3)
		}
		everything := changed(changed(map[string]any{}, merge), `{"metadata":{"labels":{"sub":"yes"},"annotations":{"sub":"yes"},"finalizers":["example.com/sub"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"11111111-1111-1111-1111-111111111111"}]}}`)
		if spec, ok := m.sample.Change["spec"]; ok {
			everything = changed(everything, text(map[string]any{"spec": spec}))
		}
		add := m.add
		if m.sample.Stamped {
			add = func(steps ...step) {
				for _, s := range steps {
					m.add(step{name: family + "another second", method: untilSecond}, s)
				}
			}
		}
		add(step{name: family + "PUT dry run", method: "PUT", path: path + "?dryRun=All", over: full, body: merge, as: asJSON},
			step{name: family + "PUT", method: "PUT", path: path, over: full, body: merge, as: asJSON},
			step{name: family + "PUT with metadata and spec", method: "PUT", path: path, over: full, body: m.fill(everything, full, 3), as: asJSON},
			step{name: family + "GET after", method: "GET", path: at("full")},
			step{name: family + "PUT stale", method: "PUT", path: path, over: full, body: `{"metadata":{"resourceVersion":"1"}}`, as: asJSON},
			step{name: family + "PUT unconditional", method: "PUT", path: path, over: full, body: `{"metadata":{"resourceVersion":null,"labels":{"sub":"unconditional"}}}`, as: asJSON},
			step{name: family + "PUT other name", method: "PUT", path: path, over: full, body: `{"metadata":{"name":"another"}}`, as: asJSON},
			step{name: family + "PUT missing", method: "PUT", path: at("missing") + "/" + sub.name, body: text(m.full("missing")), as: asJSON},
			step{name: family + "PATCH merge", method: "PATCH", path: at("min") + "/" + sub.name, header: map[string]string{"Content-Type": mergePatch}, body: merge},
			step{name: family + "PATCH merge with metadata and spec", method: "PATCH", path: at("min") + "/" + sub.name, header: map[string]string{"Content-Type": mergePatch}, body: m.fill(everything, full, 3)},
			step{name: family + "PATCH json", method: "PATCH", path: path, header: map[string]string{"Content-Type": jsonPatch}, body: `[{"op":"add","path":"/metadata/annotations","value":{"json":"1"}}]`},
			step{name: family + "PATCH strategic", method: "PATCH", path: path, header: map[string]string{"Content-Type": strategicPatch}, body: merge},
			step{name: family + "PATCH strategic dry run", method: "PATCH", path: path + "?dryRun=All", header: map[string]string{"Content-Type": strategicPatch}, body: m.fill(everything, full, 3)},
			step{name: family + "PATCH missing", method: "PATCH", path: at("missing") + "/" + sub.name, header: map[string]string{"Content-Type": mergePatch}, body: `{}`})
		applied := changed(map[string]any{"apiVersion": m.apiVersion(), "kind": m.kind.kind, "metadata": map[string]any{"name": m.objectName("applied")}}, merge)
		add(step{name: family + "apply", method: "PATCH", path: at("applied") + "/" + sub.name + "?fieldManager=sub", header: map[string]string{"Content-Type": applyPatch}, body: text(applied)},
			step{name: family + "apply by another", method: "PATCH", path: at("applied") + "/" + sub.name + "?fieldManager=other", header: map[string]string{"Content-Type": applyPatch}, body: with(applied, `{"metadata":{"labels":{"sub":"apply"}}}`)},
			step{name: family + "apply nothing", method: "PATCH", path: at("applied") + "/" + sub.name + "?fieldManager=sub", header: map[string]string{"Content-Type": applyPatch}, body: fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, m.apiVersion(), m.kind.kind, m.objectName("applied"))},
			step{name: family + "release", method: "PATCH", path: at("full"), header: map[string]string{"Content-Type": mergePatch}, body: `{"metadata":{"finalizers":null,"ownerReferences":null}}`},
			step{name: family + "release min", method: "PATCH", path: at("min"), header: map[string]string{"Content-Type": mergePatch}, body: `{"metadata":{"finalizers":null,"ownerReferences":null}}`},
			step{name: family + "POST", method: "POST", path: path, body: text(m.full("full")), as: asJSON},
			step{name: family + "DELETE", method: "DELETE", path: path})
	}
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
