package main

import (
	"encoding/base64"
	"strings"
)

// changes are what webhooks make of objects, of what the server decides or the path says.
var changes = []struct{ name, patch string }{
	{"rename", `[{"op":"replace","path":"/metadata/name","value":"renamed-CHANGE"}]`},
	{"rename-bad", `[{"op":"replace","path":"/metadata/name","value":"Bad Name"}]`},
	{"named", `[{"op":"add","path":"/metadata/name","value":"named-CHANGE"}]`},
	{"unname", `[{"op":"add","path":"/metadata/name","value":""}]`},
	{"generate", `[{"op":"add","path":"/metadata/generateName","value":"gen-"}]`},
	{"respace", `[{"op":"add","path":"/metadata/namespace","value":"other"}]`},
	{"unspace", `[{"op":"remove","path":"/metadata/namespace"}]`},
	{"new-uid", `[{"op":"add","path":"/metadata/uid","value":"11111111-2222-3333-4444-555555555555"}]`},
	{"old-uid", `[{"op":"add","path":"/metadata/uid","value":"OLD-UID"}]`},
	{"no-uid", `[{"op":"add","path":"/metadata/uid","value":""}]`},
	{"new-version", `[{"op":"add","path":"/metadata/resourceVersion","value":"1"}]`},
	{"old-version", `[{"op":"add","path":"/metadata/resourceVersion","value":"OLD-VERSION"}]`},
	{"no-version", `[{"op":"add","path":"/metadata/resourceVersion","value":""}]`},
	{"bad-version", `[{"op":"add","path":"/metadata/resourceVersion","value":"x"}]`},
	{"created", `[{"op":"add","path":"/metadata/creationTimestamp","value":"2001-02-03T04:05:06Z"}]`},
	{"uncreated", `[{"op":"add","path":"/metadata/creationTimestamp","value":null}]`},
	{"bad-time", `[{"op":"add","path":"/metadata/creationTimestamp","value":"yesterday"}]`},
	{"deleted", `[{"op":"add","path":"/metadata/deletionTimestamp","value":"2001-02-03T04:05:06Z"},{"op":"add","path":"/metadata/deletionGracePeriodSeconds","value":7}]`},
	{"generation", `[{"op":"add","path":"/metadata/generation","value":7}]`},
	{"self-link", `[{"op":"add","path":"/metadata/selfLink","value":"/a"}]`},
	{"no-fields", `[{"op":"add","path":"/metadata/managedFields","value":[]}]`},
	{"fields", `[{"op":"add","path":"/metadata/managedFields","value":[{"manager":"hook","operation":"Update","apiVersion":"v1","time":"2001-02-03T04:05:06Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]}]`},
	{"bad-fields", `[{"op":"add","path":"/metadata/managedFields","value":[{"manager":"hook","operation":"x"}]}]`},
	{"finalizers", `[{"op":"add","path":"/metadata/finalizers","value":["hooks.example.com/a"]},{"op":"remove","path":"/metadata/finalizers"}]`},
	{"owner", `[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":""}]}]`},
	{"unlabelled", `[{"op":"remove","path":"/metadata/labels"}]`},
	{"label-number", `[{"op":"add","path":"/metadata/labels/a","value":1}]`},
	{"no-metadata", `[{"op":"remove","path":"/metadata"}]`},
	{"null-metadata", `[{"op":"replace","path":"/metadata","value":null}]`},
	{"text-metadata", `[{"op":"replace","path":"/metadata","value":"a"}]`},
	{"unknown-field", `[{"op":"add","path":"/unknown","value":1},{"op":"add","path":"/metadata/unknown","value":1}]`},
	{"other-kind", `[{"op":"remove","path":"/data"},{"op":"replace","path":"/kind","value":"Secret"}]`},
	{"unknown-kind", `[{"op":"replace","path":"/kind","value":"Unknown"}]`},
	{"no-kind", `[{"op":"remove","path":"/kind"}]`},
	{"other-group", `[{"op":"replace","path":"/apiVersion","value":"apps/v1"}]`},
	{"bad-group", `[{"op":"replace","path":"/apiVersion","value":"a/b/c"}]`},
	{"no-group", `[{"op":"remove","path":"/apiVersion"}]`},
	{"whole", `[{"op":"replace","path":"","value":{}}]`},
	{"whole-list", `[{"op":"replace","path":"","value":[]}]`},
	{"whole-null", `[{"op":"replace","path":"","value":null}]`},
	{"data-list", `[{"op":"replace","path":"/data","value":["a"]}]`},
	{"data-null", `[{"op":"replace","path":"/data","value":null}]`},
	{"data-number", `[{"op":"replace","path":"/data/x","value":1}]`},
}

const (
	changesNamespace = "hook-changes"
	hookedGroup      = "hooked.example.com"
)

// changeScenario has a webhook make each of the changes of a new object and of one that is there, of a built-in kind and of a custom one.
func changeScenario() scenario {
	m := &hookMaker{scenario{name: "webhooks-changes", watch: "/api/v1/namespaces/" + changesNamespace + "/configmaps", alone: true}}
	m.send("setup/namespace", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+changesNamespace+`"}}`)
	m.define("gadgets", "Gadget", "None")
	for _, c := range changes {
		m.configureIn(changesNamespace, "Mutating", c.name, map[string]any{
			"clientConfig": hookClient("patch/" + base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(c.patch, "CHANGE", c.name)))),
			"rules":        []any{rule("*", []string{"", hookedGroup}, "v1", "configmaps", "gadgets")},
		})
	}
	m.add(step{name: "setup/effect", method: untilEffect, path: "/"})
	for _, kind := range []struct {
		name, apiVersion, kind, path string
		version                      func(name string) string // that an update names
	}{
		{"built-in", "v1", "ConfigMap", "/api/v1/namespaces/" + changesNamespace + "/configmaps", func(string) string { return "" }},
		{"custom", hookedGroup + "/v1", "Gadget", "/apis/" + hookedGroup + "/v1/namespaces/" + changesNamespace + "/gadgets", func(name string) string { return "${rv:" + name + "}" }},
	} {
		for _, c := range changes {
			object := func(name string, labelled bool, version string) string {
				meta := map[string]any{"name": name}
				if name == "" {
					meta = map[string]any{"generateName": "g-"}
				}
				if labelled {
					meta["labels"] = map[string]any{"hook": hookLabel("Mutating", c.name)}
				}
				if version != "" {
					meta["resourceVersion"] = version
				}
				return text(map[string]any{"apiVersion": kind.apiVersion, "kind": kind.kind, "metadata": meta, "data": map[string]any{"x": "y"}})
			}
			begin, old := kind.name+" "+c.name+"/", "old-"+c.name
			m.send(begin+"create", "POST", kind.path, object(c.name, true, ""))
			m.send(begin+"create generated", "POST", kind.path+"?dryRun=All", object("", true, ""))
			m.send(begin+"before", "POST", kind.path, object(old, false, ""))
			m.send(begin+"update", "PUT", kind.path+"/"+old, object(old, true, kind.version(old)))
			m.add(step{name: begin + "patch", method: "PATCH", path: kind.path + "/" + old, body: `{"metadata":{"labels":{"hook":"` + hookLabel("Mutating", c.name) + `"}},"data":{"x":"z"}}`, header: map[string]string{"Content-Type": mergePatch}})
			m.add(step{name: begin + "apply", method: "PATCH", path: kind.path + "/applied-" + c.name + "?fieldManager=a", body: object("applied-"+c.name, true, ""), header: map[string]string{"Content-Type": applyPatch}})
			m.send(begin+"delete", "DELETE", kind.path+"/"+old, "")
		}
		for _, version := range []string{"1", "x"} { // that a client names
			m.add(step{name: kind.name + " version " + version + "/apply", method: "PATCH", path: kind.path + "/version-" + version + "?fieldManager=a", header: map[string]string{"Content-Type": applyPatch},
				body: text(map[string]any{"apiVersion": kind.apiVersion, "kind": kind.kind, "metadata": map[string]any{"name": "version-" + version, "resourceVersion": version}})})
			m.send(kind.name+" version "+version+"/create", "POST", kind.path, text(map[string]any{"apiVersion": kind.apiVersion, "kind": kind.kind, "metadata": map[string]any{"name": "new-version-" + version, "resourceVersion": version}}))
		}
		m.send(kind.name+"/list", "GET", kind.path, "")
	}
	for _, c := range changes {
		m.endIn(changesNamespace, "Mutating", c.name)
	}
	m.undefine("gadgets")
	return m.scenario
}
