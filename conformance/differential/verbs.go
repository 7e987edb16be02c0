package main

import (
	"maps"
	"slices"
	"strings"
)

// verbsScenario is what can be done with a kind.
func (k kind) verbsScenario() scenario {
	m := newMaker(k, "")
	if m.can("watch") {
		m.watch = m.path
	}
	m.when("create", m.creates)
	m.review()
	m.when("get", m.gets)
	m.when("list", m.lists)
	m.when("update", m.updates)
	m.when("patch", m.patches)
	m.when("patch", m.applies)
	m.subresourceSteps()
	m.when("delete", m.deletions)
	m.when("deletecollection", m.collectionDeletions)
	m.send("method/POST to a name", "POST", m.at("full"), text(m.minimal("full")))
	m.add(step{name: "method/OPTIONS", method: "OPTIONS", path: m.path})
	m.get("method/below", m.at("full")+"/nothing", "")
	return m.scenario
}

// when makes requests if the kind has the verb.
func (m *maker) when(verb string, requests func()) {
	if m.can(verb) {
		requests()
	}
}

func (m *maker) creates() {
	create := func(name, query, body string) { m.send("create/"+name, "POST", m.path+query, body) }
	bare := func(name, contentType, body string) {
		m.add(step{name: "create/" + name, method: "POST", path: m.path, body: body, header: map[string]string{"Content-Type": contentType}})
	}
	create("dry run", "?dryRun=All", text(m.full("full")))
	create("minimal", "", text(m.minimal("min")))
	create("again", "", text(m.minimal("min")))
	create("full", "", text(m.full("full")))
	create("manager", "?fieldManager=somebody&dryRun=All", text(m.full("other")))
	create("pretty", "?pretty=true&dryRun=All", text(m.minimal("other")))
	for _, validation := range []string{"Strict", "Warn", "Ignore", "Other"} {
		object := m.minimal("strict")
		object["unknown"] = "x"
		create("unknown field "+validation, "?dryRun=All&fieldValidation="+validation, text(object))
	}
	generated := m.minimal("other")
	generated["metadata"] = map[string]any{"generateName": m.own + "gen-"}
	create("generated name", "?dryRun=All", text(generated))
	create("dry run word", "?dryRun=Some", text(m.minimal("other")))
	m.add(step{name: "create/as YAML", method: "POST", path: m.path, body: text(m.full("yaml")), as: asYAML})
	m.add(step{name: "create/as protobuf", method: "POST", path: m.path, body: text(m.full("pb")), as: asProtobuf, header: map[string]string{"Accept": asProtobuf}})
	for _, word := range slices.Sorted(maps.Keys(m.sample.More)) {
		m.send("create more/"+word, "POST", m.path+"?dryRun=All", text(m.object("more", m.sample.More[word], nil)))
	}
	bare("no body", asJSON, "")
	bare("no JSON", asJSON, "{")
	bare("other media type", "text/plain", "{}")
	create("list", "", `{"apiVersion":"v1","kind":"List","items":[]}`)
	create("other version", "", with(m.minimal("other"), `{"apiVersion":"other.example.com/v1"}`))
	create("other kind", "", with(m.minimal("other"), `{"kind":"Other"}`))
}

// review is a kind that is answered and not stored, or that has no verbs but create: its objects in each encoding.
func (m *maker) review() {
	if m.can("get") || m.can("list") || !m.can("create") {
		return
	}
	m.add(step{name: "review/as protobuf answer", method: "POST", path: m.path, body: text(m.full("full")), as: asJSON, header: map[string]string{"Accept": asProtobuf}})
}

func (m *maker) gets() {
	for _, role := range []string{"min", "full", "missing"} {
		m.get("get/"+role, m.at(role), "")
		m.get("get table/"+role, m.at(role), asTable)
		m.get("get metadata/"+role, m.at(role), asPartial)
	}
	m.get("get/as YAML", m.at("full"), asYAML)
	m.get("get/as protobuf", m.at("full"), asProtobuf)
	m.get("get/protobuf or JSON", m.at("pb"), asProtobuf+",application/json")
	m.get("get/as text", m.at("full"), "text/plain")
	m.get("get/version 0", m.at("full")+"?resourceVersion=0", "")
	m.get("get/version word", m.at("full")+"?resourceVersion=x", "")
	m.get("get table/with object", m.at("full")+"?includeObject=Object", asTable)
	m.get("get metadata/as protobuf", m.at("full"), strings.Replace(asPartial, "application/json", asProtobuf, 1))
	m.add(step{name: "get/HEAD", method: "HEAD", path: m.at("full")})
}

func (m *maker) lists() {
	full := m.objectName("full")
	and := func(query string) string {
		if !m.namespaced {
			query += "&labelSelector=own%3D" + m.plural
		}
		return m.path + "?" + strings.TrimPrefix(query, "&")
	}
	m.get("list/all", and(""), "")
	m.get("list/as YAML", and(""), asYAML)
	m.get("list/as protobuf", and(""), asProtobuf)
	m.get("list table/all", and(""), asTable)
	m.get("list table/no object", and("&includeObject=None"), asTable)
	m.get("list table/with object", and("&includeObject=Object"), asTable)
	m.get("list metadata/all", and(""), asPartialList)
	m.get("list/version 0", and("&resourceVersion=0"), "")
	m.get("list/exact", and("&resourceVersion=${rv:"+full+"}&resourceVersionMatch=Exact"), "")
	m.get("list/not older", and("&resourceVersion=${rv:"+full+"}&resourceVersionMatch=NotOlderThan"), "")
	m.get("list/match alone", and("&resourceVersionMatch=Exact"), "")
	m.get("list/match word", and("&resourceVersion=1&resourceVersionMatch=Some"), "")
	m.get("list/version word", and("&resourceVersion=x"), "")
	m.get("list/page", and("&limit=1"), "")
	m.get("list/next page", and("&limit=1&continue=${continue}"), "")
	m.get("list/token word", and("&limit=1&continue=x"), "")
	m.get("list table/page", and("&limit=1"), asTable)
	m.get("list/limit word", and("&limit=x"), "")
	m.get("list/label", m.path+"?labelSelector=tier%3Dfront"+map[bool]string{false: ",own%3D" + m.plural}[m.namespaced], "")
	m.get("list/label without", m.path+"?labelSelector=tier%21%3Dfront"+map[bool]string{false: ",own%3D" + m.plural}[m.namespaced], "")
	m.get("list/label wrong", m.path+"?labelSelector=a%3D%3D%3Db", "")
	m.get("list/name", m.path+"?fieldSelector=metadata.name%3D"+full, "")
	m.get("list/field unknown", m.path+"?fieldSelector=spec.nothing%3Da", "")
	m.get("list/field wrong", m.path+"?fieldSelector=a", "")
	m.get("list/initial events", and("&sendInitialEvents=true"), "")
	if m.namespaced {
		all := root(m.group, m.version) + "/" + m.plural
		m.get("list/all namespaces", all+"?fieldSelector=metadata.namespace%3D"+m.namespace, "")
		m.get("list table/all namespaces", all+"?fieldSelector=metadata.namespace%3D"+m.namespace, asTable)
	}
	m.get("watch/one second", and("&watch=true&timeoutSeconds=1&resourceVersion=${rv:"+m.objectName("min")+"}&fieldSelector=metadata.name%3D"+full), "")
	m.get("watch/table", and("&watch=true&timeoutSeconds=1&resourceVersion=${rv:"+m.objectName("min")+"}&fieldSelector=metadata.name%3D"+full), asTable)
	m.get("watch/version word", and("&watch=true&timeoutSeconds=1&resourceVersion=x"), "")
}

func (m *maker) updates() {
	change := m.change("full")
	conditional := `{"metadata":{"resourceVersion":"${rv:` + m.objectName("full") + `}"}}`
	m.send("update/dry run", "PUT", m.at("full")+"?dryRun=All", text(changed(changed(m.full("full"), change), conditional)))
	m.put("update/as read", m.at("full"), "full", "{}")
	m.put("update/changed", m.at("full"), "full", change)
	m.put("update/labels", m.at("full"), "full", `{"metadata":{"labels":{"more":"yes"}}}`)
	m.add(step{name: "update/as YAML", method: "PUT", path: m.at("full"), over: m.objectName("full"), body: `{"metadata":{"labels":{"more":"yaml"}}}`, as: asYAML})
	m.add(step{name: "update/as protobuf", method: "PUT", path: m.at("full"), over: m.objectName("full"), body: `{"metadata":{"labels":{"more":"pb"}}}`, as: asProtobuf})
	m.send("update/unconditional", "PUT", m.at("full"), with(m.full("full"), `{"metadata":{"labels":{"more":"unconditional"}}}`))
	m.send("update/unconditional change", "PUT", m.at("full"), with(m.full("full"), change))
	m.send("update/conditional", "PUT", m.at("full"), with(m.full("full"), conditional))
	m.send("update/stale", "PUT", m.at("full"), with(m.full("full"), `{"metadata":{"resourceVersion":"1","labels":{"more":"stale"}}}`))
	m.send("update/version word", "PUT", m.at("full"), with(m.full("full"), `{"metadata":{"resourceVersion":"x"}}`))
	m.send("update/other uid", "PUT", m.at("full"), with(m.full("full"), `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`))
	m.send("update/other name", "PUT", m.at("full"), text(m.full("other")))
	m.send("update/missing", "PUT", m.at("missing"), text(m.full("missing")))
	m.send("update/missing with uid", "PUT", m.at("put"), with(m.full("put"), `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`))
	m.send("update/missing with version", "PUT", m.at("put"), with(m.full("put"), `{"metadata":{"resourceVersion":"1"}}`))
	m.put("update/generation", m.at("full"), "full", `{"metadata":{"generation":77,"creationTimestamp":"2020-01-01T00:00:00Z","selfLink":"x","deletionGracePeriodSeconds":5}}`)
	if m.sample.Status != nil {
		m.put("update/with status", m.at("full"), "full", `{"status":`+m.fill(m.sample.Status, m.objectName("full"), 3)+`}`)
	}
	m.put("update/finalizers", m.at("min"), "min", `{"metadata":{"finalizers":["example.com/a","example.com/b"]}}`)
	m.put("update/no finalizers", m.at("min"), "min", `{"metadata":{"finalizers":null}}`)
	m.send("update/collection", "PUT", m.path, text(m.full("full")))
}

func (m *maker) patches() {
	change := m.change("full")
	m.patch("patch merge/dry run", m.at("full")+"?dryRun=All", mergePatch, change)
	m.patch("patch merge/change", m.at("min"), mergePatch, change)
	m.patch("patch merge/labels", m.at("full"), mergePatch, `{"metadata":{"labels":{"merge":"1"},"annotations":{"note":null}}}`)
	m.patch("patch merge/nothing", m.at("full"), mergePatch, `{}`)
	m.patch("patch merge/stale", m.at("full"), mergePatch, `{"metadata":{"resourceVersion":"1"}}`)
	m.patch("patch merge/conditional", m.at("full"), mergePatch, `{"metadata":{"resourceVersion":"${rv:`+m.objectName("full")+`}","labels":{"merge":"2"}}}`)
	m.patch("patch merge/other uid", m.at("full"), mergePatch, `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`)
	m.patch("patch merge/other name", m.at("full"), mergePatch, `{"metadata":{"name":"another"}}`)
	m.patch("patch merge/other kind", m.at("full"), mergePatch, `{"kind":"Another"}`)
	m.patch("patch merge/other version", m.at("full"), mergePatch, `{"apiVersion":"another/v1"}`)
	m.patch("patch merge/unknown", m.at("full"), mergePatch, `{"unknown":1}`)
	m.patch("patch merge/unknown strict", m.at("full")+"?fieldValidation=Strict", mergePatch, `{"unknown":1}`)
	m.patch("patch merge/no object", m.at("full"), mergePatch, `[]`)
	m.patch("patch merge/no JSON", m.at("full"), mergePatch, `{`)
	m.patch("patch merge/missing", m.at("missing"), mergePatch, `{}`)
	m.patch("patch json/add", m.at("full"), jsonPatch, `[{"op":"add","path":"/metadata/labels/json","value":"1"}]`)
	m.patch("patch json/all", m.at("full"), jsonPatch, `[{"op":"test","path":"/metadata/labels/json","value":"1"},{"op":"copy","from":"/metadata/labels/json","path":"/metadata/labels/copied"},{"op":"move","from":"/metadata/labels/copied","path":"/metadata/labels/moved"},{"op":"replace","path":"/metadata/labels/json","value":"2"},{"op":"remove","path":"/metadata/labels/moved"}]`)
	m.patch("patch json/test fails", m.at("full"), jsonPatch, `[{"op":"test","path":"/metadata/labels/json","value":"no"}]`)
	m.patch("patch json/remove missing", m.at("full"), jsonPatch, `[{"op":"remove","path":"/metadata/labels/none"}]`)
	m.patch("patch json/unknown op", m.at("full"), jsonPatch, `[{"op":"be","path":"/a"}]`)
	m.patch("patch json/object", m.at("full"), jsonPatch, `{"op":"remove"}`)
	m.patch("patch json/unknown field", m.at("full")+"?fieldValidation=Strict", jsonPatch, `[{"op":"add","path":"/unknown","value":"1"}]`)
	m.patch("patch json/missing", m.at("missing"), jsonPatch, `[]`)
	m.patch("patch strategic/change", m.at("full"), strategicPatch, change)
	m.patch("patch strategic/labels", m.at("full"), strategicPatch, `{"metadata":{"labels":{"strategic":"1"},"finalizers":["example.com/s"]}}`)
	m.patch("patch strategic/delete finalizer", m.at("full"), strategicPatch, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/s"]}}`)
	m.patch("patch strategic/replace labels", m.at("full"), strategicPatch, `{"metadata":{"labels":{"$patch":"replace","own":"`+m.plural+`"}}}`)
	m.patch("patch strategic/owners", m.at("full"), strategicPatch, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"11111111-1111-1111-1111-111111111111"}]}}`)
	m.patch("patch strategic/more owners", m.at("full"), strategicPatch, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":"22222222-2222-2222-2222-222222222222"}]}}`)
	m.patch("patch strategic/delete owner", m.at("full"), strategicPatch, `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"11111111-1111-1111-1111-111111111111"}]}}`)
	m.patch("patch strategic/unknown", m.at("full"), strategicPatch, `{"unknown":1}`)
	m.patch("patch strategic/wrong directive", m.at("full"), strategicPatch, `{"metadata":{"$patch":"be"}}`)
	m.patch("patch strategic/missing", m.at("missing"), strategicPatch, `{}`)
	m.patch("patch other/media type", m.at("full"), "application/json", `{}`)
	m.patch("patch other/text", m.at("full"), "text/plain", `{}`)
	m.patch("patch other/force", m.at("full")+"?force=true", mergePatch, `{}`)
	m.patch("patch other/collection", m.path, mergePatch, `{}`)
	m.patch("patch managers/reset", m.at("full"), mergePatch, `{"metadata":{"managedFields":[{}]}}`)
	m.patch("patch managers/wrong", m.at("full"), mergePatch, `{"metadata":{"managedFields":[{"manager":"a","operation":"Be","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]}}`)
}

func (m *maker) applies() {
	apply := func(name, role, query string, object map[string]any) {
		m.patch("apply/"+name, m.at(role)+query, applyPatch, text(object))
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
	m.patch("apply/no YAML", m.at("applied")+"?fieldManager=one", applyPatch, "a: b: c")
	m.patch("apply/list", m.at("applied")+"?fieldManager=one", applyPatch, "[]")
	if m.sample.Status != nil {
		apply("with status", "applied", "?fieldManager=five", changed(m.minimal("applied"), `{"status":`+m.fill(m.sample.Status, "", 0)+`}`))
	}
}

func (m *maker) deletions() {
	m.remove("delete/dry run", m.at("full")+"?dryRun=All", "")
	m.remove("delete/other uid", m.at("full"), `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`)
	m.remove("delete/stale", m.at("full"), `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"1"}}`)
	m.remove("delete/wrong policy", m.at("full")+"?propagationPolicy=Some", "")
	m.remove("delete/two policies", m.at("full"), `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","orphanDependents":true}`)
	m.remove("delete/negative period", m.at("full"), `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":-1}`)
	m.remove("delete/wrong body", m.at("full"), `{"apiVersion":"v1","kind":"ConfigMap"}`)
	m.remove("delete/unknown field", m.at("full")+"?fieldValidation=Strict", `{"apiVersion":"v1","kind":"DeleteOptions","unknown":1,"preconditions":{"resourceVersion":"1"}}`)
	m.remove("delete/missing", m.at("missing"), "")
	for _, d := range []struct{ role, query, body string }{
		{"foreground", "?propagationPolicy=Foreground", ""}, {"orphan", "?propagationPolicy=Orphan", ""}, {"background", "", `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","gracePeriodSeconds":0}`},
		{"precondition", "", `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"${uid:` + m.objectName("precondition") + `}","resourceVersion":"${rv:` + m.objectName("precondition") + `}"}}`},
		{"orphaned", "?orphanDependents=true", ""},
	} {
		if m.can("create") {
			m.send("delete setup/"+d.role, "POST", m.path, text(m.minimal(d.role)))
		}
		m.remove("delete/"+d.role, m.at(d.role)+d.query, d.body)
		m.get("delete after/"+d.role, m.at(d.role), "")
		m.patch("delete release/"+d.role, m.at(d.role), mergePatch, `{"metadata":{"finalizers":null}}`)
		m.remove("delete/"+d.role+" again", m.at(d.role), "")
	}
	if m.can("create") {
		m.send("delete setup/held", "POST", m.path, with(m.minimal("held"), `{"metadata":{"finalizers":["example.com/hold"]}}`))
		m.remove("delete/held", m.at("held"), "")
		m.remove("delete/held again", m.at("held"), "")
		m.get("delete after/held table", m.at("held"), asTable)
		m.patch("delete after/change", m.at("held"), mergePatch, `{"metadata":{"annotations":{"a":"b"}}}`)
		m.patch("delete after/more finalizers", m.at("held"), mergePatch, `{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}`)
		m.patch("delete after/release", m.at("held"), mergePatch, `{"metadata":{"finalizers":null}}`)
	}
	m.remove("delete/last", m.at("full")+"?gracePeriodSeconds=0", "")
	m.remove("delete/as table", m.at("yaml")+"?gracePeriodSeconds=0", "")
	m.remove("delete/default", m.at("pb"), "")
	m.remove("delete/default again", m.at("pb")+"?gracePeriodSeconds=0", "")
}

func (m *maker) collectionDeletions() {
	if m.can("create") {
		for _, role := range []string{"c1", "c2", "c3"} {
			m.send("delete collection setup/"+role, "POST", m.path, with(m.minimal(role), `{"metadata":{"labels":{"collected":"`+map[bool]string{true: "yes", false: "no"}[role != "c3"]+`"}}}`))
		}
	}
	collect := func(name, query, options string) { m.remove("delete collection/"+name, m.path+query, options) }
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
