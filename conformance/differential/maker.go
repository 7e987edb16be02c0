package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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
		m.own = cmp.Or(m.own, "own-")
	}
	m.setup(k.namespaced)
	return m
}

// setup makes the namespace and the objects that must be there before.
func (m *maker) setup(namespaced bool) {
	if namespaced {
		m.send("setup/namespace", "POST", "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, m.namespace))
		if m.plural != "serviceaccounts" {
			m.send("setup/account", "POST", "/api/v1/namespaces/"+m.namespace+"/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`)
		}
	}
	for i, object := range m.sample.Setup {
		text := m.fill(object, "", 0)
		apiVersion, _ := object["apiVersion"].(string)
		kind, _ := object["kind"].(string)
		plural := strings.ReplaceAll(strings.ToLower(kind)+"s", "sss", "sses")
		path := gvRoot(apiVersion) + "/namespaces/" + m.namespace + "/" + plural
		if !namespaced || slices.Contains([]string{"Node", "PersistentVolume", "RuntimeClass"}, kind) {
			path = gvRoot(apiVersion) + "/" + plural
		}
		m.send("setup/"+strconv.Itoa(i), "POST", path, text)
	}
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
	if given, ok := object["metadata"].(map[string]any); ok {
		maps.Copy(metadata, given)
	}
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

// at is the path of a role's object.
func (m *maker) at(role string) string { return m.path + "/" + m.objectName(role) }

// send adds a request with a body of JSON.
func (m *maker) send(name, method, path, body string) {
	m.add(step{name: name, method: method, path: path, body: body, as: asJSON})
}

// get adds a read, of what is accepted; "" says nothing of it.
func (m *maker) get(name, path, accept string) {
	s := step{name: name, method: "GET", path: path}
	if accept != "" {
		s.header = map[string]string{"Accept": accept}
	}
	m.add(s)
}

// put adds the update of a client that has read the object: the body is what it changes.
func (m *maker) put(name, path, role, body string) {
	m.add(step{name: name, method: "PUT", path: path, over: m.objectName(role), body: body, as: asJSON})
}

// patch adds a patch, or an apply.
func (m *maker) patch(name, path, contentType, body string) {
	m.add(step{name: name, method: "PATCH", path: path, header: map[string]string{"Content-Type": contentType}, body: body})
}

// remove adds a deletion; "" is no options.
func (m *maker) remove(name, path, options string) {
	s := step{name: name, method: "DELETE", path: path, body: options}
	if options != "" {
		s.as = asJSON
	}
	m.add(s)
}
