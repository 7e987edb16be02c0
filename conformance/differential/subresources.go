package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// part makes the requests to a subresource.
type part struct {
	*maker
	subresource
	family string // of its requests' names
}

// subresourceSteps are the requests to each subresource.
func (m *maker) subresourceSteps() {
	for _, sub := range m.subresources {
		if !strings.Contains(sub.name, "/") {
			part{m, sub, "subresource " + sub.name + "/"}.steps()
		}
	}
}

func (p part) at(role string) string { return p.maker.at(role) + "/" + p.name }

func (p part) has(verb string) bool { return slices.Contains(p.verbs, verb) }

func (p part) steps() {
	if slices.Contains([]string{"exec", "attach", "portforward", "proxy", "log"}, p.name) {
		p.get(p.family+"GET", p.at("full"), "")
		p.get(p.family+"GET missing", p.at("missing"), "")
		if p.maker.kind.plural == "pods" && p.name != "proxy" {
			p.get(p.family+"GET min", p.at("min"), "")
			p.get(p.family+"GET min container", p.at("min")+"?container=none", "")
			p.get(p.family+"GET container", p.at("full")+"?container=none", "")
			p.send(p.family+"POST min", "POST", p.at("min"), "")
			p.send(p.family+"PUT min", "PUT", p.at("min"), "{}")
		}
		return
	}
	if p.has("get") {
		p.get(p.family+"GET", p.at("full"), "")
		p.get(p.family+"GET missing", p.at("missing"), "")
		p.get(p.family+"GET table", p.at("full"), asTable)
		p.get(p.family+"GET protobuf", p.at("full"), asProtobuf)
	}
	if body, ok := p.sample.Post[p.name]; ok && p.has("create") {
		p.posts(p.fill(body, p.objectName("full"), 3))
	}
	switch {
	case p.name == "scale":
		p.scales()
	case p.has("update") || p.has("patch"):
		p.writes()
	}
}

// posts are those of a body that is answered.
func (p part) posts(body string) {
	p.send(p.family+"POST dry run", "POST", p.at("full")+"?dryRun=All", body)
	p.send(p.family+"POST missing", "POST", p.at("missing"), strings.ReplaceAll(body, p.objectName("full"), p.objectName("missing")))
	p.send(p.family+"POST empty", "POST", p.at("full"), "{}")
	p.send(p.family+"POST", "POST", p.at("full"), body)
	p.send(p.family+"POST again", "POST", p.at("full"), body)
}

// scales are those of a Scale.
func (p part) scales() {
	scale := func(role string, replicas int) string {
		return fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":%d}}`, p.objectName(role), p.namespace, replicas)
	}
	path := p.at("full")
	p.send(p.family+"PUT", "PUT", path, scale("full", 4))
	p.send(p.family+"PUT dry run", "PUT", path+"?dryRun=All", scale("full", 5))
	p.send(p.family+"PUT negative", "PUT", path, scale("full", -1))
	p.send(p.family+"PUT stale", "PUT", path, strings.Replace(scale("full", 6), `"metadata":{`, `"metadata":{"resourceVersion":"1",`, 1))
	p.send(p.family+"PUT missing", "PUT", p.at("missing"), scale("missing", 4))
	p.send(p.family+"PUT other kind", "PUT", path, text(p.full("full")))
	p.patch(p.family+"PATCH merge", path, mergePatch, `{"spec":{"replicas":7}}`)
	p.patch(p.family+"PATCH json", path, jsonPatch, `[{"op":"replace","path":"/spec/replicas","value":8}]`)
	p.patch(p.family+"PATCH strategic", path, strategicPatch, `{"spec":{"replicas":9}}`)
	p.patch(p.family+"apply conflict", path+"?fieldManager=scaler", applyPatch, scale("full", 2))
	p.patch(p.family+"apply", path+"?fieldManager=scaler&force=true", applyPatch, scale("full", 3))
	p.patch(p.family+"apply unknown", path+"?fieldManager=scaler", applyPatch, strings.Replace(scale("full", 3), `"spec":{`, `"spec":{"unknown":1,`, 1))
	p.get(p.family+"after", p.maker.at("full"), "")
}

// writes are those of the object itself, of which a subresource changes a part.
func (p part) writes() {
	change := `{}`
	if p.name == "status" && p.sample.Status != nil {
		change = `{"status":` + p.fill(p.sample.Status, p.objectName("full"), 3) + `}`
	} else if put, ok := p.sample.Put[p.name]; ok {
		change = p.fill(put, p.objectName("full"), 3)
	}
	tree := changed(changed(map[string]any{}, change), `{"metadata":{"labels":{"sub":"yes"},"annotations":{"sub":"yes"},"finalizers":["example.com/sub"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"11111111-1111-1111-1111-111111111111"}]}}`)
	if spec, ok := p.sample.Change["spec"]; ok {
		tree = changed(tree, text(map[string]any{"spec": spec}))
	}
	everything := p.fill(tree, p.objectName("full"), 3)
	path := p.at("full")
	before := len(p.scenario.steps)
	p.put(p.family+"PUT dry run", path+"?dryRun=All", "full", change)
	if p.name == "status" {
		for _, word := range slices.Sorted(maps.Keys(p.sample.Statuses)) {
			p.put(p.family+"PUT more "+word, path+"?dryRun=All", "full", `{"status":`+p.fill(p.sample.Statuses[word], p.objectName("full"), 3)+`}`)
		}
	}
	p.put(p.family+"PUT", path, "full", change)
	p.put(p.family+"PUT with metadata and spec", path, "full", everything)
	p.get(p.family+"GET after", p.maker.at("full"), "")
	p.put(p.family+"PUT stale", path, "full", `{"metadata":{"resourceVersion":"1"}}`)
	p.put(p.family+"PUT unconditional", path, "full", `{"metadata":{"resourceVersion":null,"labels":{"sub":"unconditional"}}}`)
	p.put(p.family+"PUT other name", path, "full", `{"metadata":{"name":"another"}}`)
	p.send(p.family+"PUT missing", "PUT", p.at("missing"), text(p.full("missing")))
	p.patch(p.family+"PATCH merge", p.at("min"), mergePatch, change)
	p.patch(p.family+"PATCH merge with metadata and spec", p.at("min"), mergePatch, everything)
	p.patch(p.family+"PATCH json", path, jsonPatch, `[{"op":"add","path":"/metadata/annotations","value":{"json":"1"}}]`)
	p.patch(p.family+"PATCH strategic", path, strategicPatch, change)
	p.patch(p.family+"PATCH strategic dry run", path+"?dryRun=All", strategicPatch, everything)
	p.patch(p.family+"PATCH missing", p.at("missing"), mergePatch, `{}`)
	nothing := map[string]any{"apiVersion": p.apiVersion(), "kind": p.maker.kind.kind, "metadata": map[string]any{"name": p.objectName("applied")}}
	applied := changed(nothing, change)
	p.patch(p.family+"apply", p.at("applied")+"?fieldManager=sub", applyPatch, text(applied))
	p.patch(p.family+"apply by another", p.at("applied")+"?fieldManager=other", applyPatch, with(applied, `{"metadata":{"labels":{"sub":"apply"}}}`))
	p.patch(p.family+"apply nothing", p.at("applied")+"?fieldManager=sub", applyPatch, text(nothing))
	const release = `{"metadata":{"finalizers":null,"ownerReferences":null}}`
	p.patch(p.family+"release", p.maker.at("full"), mergePatch, release)
	p.patch(p.family+"release min", p.maker.at("min"), mergePatch, release)
	p.send(p.family+"POST", "POST", path, text(p.full("full")))
	p.add(step{name: p.family + "DELETE", method: "DELETE", path: path})
	if p.sample.Stamped {
		p.oneASecond(before)
	}
}

// oneASecond lets another second come before each request from a place on, since the server writes the time into the object.
func (p part) oneASecond(from int) {
	requests := p.scenario.steps[from:]
	p.scenario.steps = slices.Clone(p.scenario.steps[:from])
	for _, s := range requests {
		p.add(step{name: p.family + "another second", method: untilSecond}, s)
	}
}
