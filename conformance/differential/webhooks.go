package main

import (
	"maps"
	"strconv"
	"strings"
)

// hookMaker makes the requests about webhooks.
type hookMaker struct{ scenario }

const (
	hookNamespace  = "webhooks" // in which webhooks are called
	hookObjects    = "/api/v1/namespaces/" + hookNamespace + "/configmaps"
	configurations = "/apis/admissionregistration.k8s.io/v1/"
	definitions    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// particular are webhooks that allow, by what their configurations have of their own.
var particular = []struct {
	name string
	hook map[string]any
}{
	{"untrusted", map[string]any{"clientConfig": map[string]any{"url": "${cap:hook}/allow"}}},
	{"nobody", map[string]any{"clientConfig": map[string]any{"url": "https://127.0.0.1:1/allow", "caBundle": "${cap:ca}"}}},
	{"no-service", map[string]any{"clientConfig": map[string]any{"service": map[string]any{"namespace": hookNamespace, "name": "none", "path": "/allow"}, "caBundle": "${cap:ca}"}}},
	{"condition", map[string]any{"matchConditions": []any{map[string]any{"name": "c", "expression": "object.data['a'] == 'b'"}}}},
	{"condition-false", map[string]any{"matchConditions": []any{map[string]any{"name": "c", "expression": "request.operation == 'DELETE'"}}}},
	{"old-review", map[string]any{"admissionReviewVersions": []string{"v1beta1"}}},
	{"old-answer", map[string]any{"admissionReviewVersions": []string{"v1beta1"}, "clientConfig": hookClient("old-version")}},
	{"old-patched", map[string]any{"admissionReviewVersions": []string{"v1beta1"}, "clientConfig": hookClient("old-patch")}},
	{"old-echo", map[string]any{"admissionReviewVersions": []string{"v1beta1"}, "clientConfig": hookClient("echo")}},
	{"new-reviews", map[string]any{"admissionReviewVersions": []string{"v3", "v2", "v1"}}},
	{"some-effects", map[string]any{"sideEffects": "NoneOnDryRun"}},
}

// webhookScenario has a webhook of each behaviour, for one object each, mutating and validating, with both failure policies.
func webhookScenario() scenario {
	m := &hookMaker{scenario{name: "webhooks"}}
	m.send("setup/namespace", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+hookNamespace+`"}}`)
	kinds := []string{"Validating", "Mutating"}
	for _, kind := range kinds {
		for _, b := range behaviours {
			m.configure(kind, b.name, nil)
			m.configure(kind, b.name+"-ignored", map[string]any{"clientConfig": hookClient(b.name), "failurePolicy": "Ignore"})
		}
		for _, p := range particular {
			m.configure(kind, p.name, p.hook)
		}
	}
	m.add(step{name: "setup/effect", method: untilEffect, path: "/"})
	for _, kind := range kinds {
		for _, b := range behaviours {
			m.try(kind, b.name)
			m.try(kind, b.name+"-ignored")
		}
		for _, p := range particular {
			m.try(kind, p.name)
		}
		m.ask(kind)
	}
	for _, kind := range kinds {
		for _, p := range particular {
			m.end(kind, p.name)
		}
		for _, b := range behaviours {
			m.end(kind, b.name)
		}
	}
	return m.scenario
}

func (m *hookMaker) send(name, method, path, body string) {
	m.add(step{name: name, method: method, path: path, body: body, header: map[string]string{"Content-Type": asJSON}})
}

// hookClient is how the webhook is called that has a behaviour.
func hookClient(name string) map[string]any {
	return map[string]any{"url": "${cap:hook}/" + name, "caBundle": "${cap:ca}"}
}

// hookLabel selects the webhook of a name.
func hookLabel(kind, name string) string { return strings.ToLower(kind[:1]) + "-" + name }

// rule is one about operations on resources.
func rule(operation string, groups []string, version string, resources ...string) map[string]any {
	return map[string]any{"operations": []string{operation}, "apiGroups": groups, "apiVersions": []string{version}, "resources": resources}
}

// configure makes a configuration, with what it has besides the usual.
func (m *hookMaker) configure(kind, name string, more map[string]any) {
	m.configureIn(hookNamespace, kind, name, more)
}

// configureIn makes one of webhooks that are called in a namespace, each with what it has besides the usual.
func (m *hookMaker) configureIn(namespace, kind, name string, each ...map[string]any) {
	var all []any
	for i, more := range each {
		webhook := map[string]any{
			"name": name + ".example.com", "clientConfig": hookClient(name),
			"rules":             []any{rule("*", []string{""}, "v1", "configmaps")},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}},
			"objectSelector":    map[string]any{"matchLabels": map[string]any{"hook": hookLabel(kind, name)}},
			"sideEffects":       "None", "timeoutSeconds": hookTimeout, "admissionReviewVersions": []string{"v1", "v1beta1"}, "failurePolicy": "Fail",
		}
		if i > 0 {
			webhook["name"] = name + "-" + strconv.Itoa(i) + ".example.com"
		}
		if strings.HasPrefix(name, "slow") {
			webhook["timeoutSeconds"] = slowTimeout
		}
		maps.Copy(webhook, more)
		all = append(all, webhook)
	}
	m.send("setup/"+kind+" "+name, "POST", configurations+strings.ToLower(kind)+"webhookconfigurations", text(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind + "WebhookConfiguration", "metadata": map[string]any{"name": namespace + "-" + hookLabel(kind, name)}, "webhooks": all}))
}

// define makes a definition of a resource with two versions, for webhooks to be asked about, and waits for it.
func (m *hookMaker) define(plural, kind, conversion string) {
	version := func(name string, storage bool) map[string]any {
		return map[string]any{"name": name, "served": true, "storage": storage, "subresources": map[string]any{"status": map[string]any{}, "scale": map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"data":   map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
				"spec":   map[string]any{"type": "object", "properties": map[string]any{"replicas": map[string]any{"type": "integer"}, "color": map[string]any{"type": "string", "default": "red"}}},
				"status": map[string]any{"type": "object", "properties": map[string]any{"replicas": map[string]any{"type": "integer"}}}}}}}
	}
	how := map[string]any{"strategy": conversion}
	if conversion == "Webhook" {
		how["webhook"] = map[string]any{"conversionReviewVersions": []string{"v1"}, "clientConfig": hookClient("convert/right")}
	}
	m.send("setup/"+plural, "POST", definitions, text(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + hookedGroup},
		"spec": map[string]any{"group": hookedGroup, "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": kind}, "versions": []any{version("v1", true), version("v2", false)}, "conversion": how}}))
	m.add(step{name: "setup/served " + plural, method: untilFound, path: "/apis/" + hookedGroup + "/v1/" + plural},
		step{name: "setup/served too " + plural, method: untilFound, path: "/apis/" + hookedGroup + "/v2/" + plural})
}

// undefine takes a definition away.
func (m *hookMaker) undefine(plural string) {
	m.send("end/"+plural, "DELETE", definitions+"/"+plural+"."+hookedGroup, "")
	m.add(step{name: "end/gone " + plural, method: untilGone, path: definitions + "/" + plural + "." + hookedGroup})
}

// try makes an object that a webhook is asked about.
func (m *hookMaker) try(kind, name string) {
	m.send("hook "+kind+"/"+name, "POST", hookObjects+"?dryRun=All", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`","labels":{"hook":"`+hookLabel(kind, name)+`"}},"data":{"x":"y"}}`)
}

// ask has a webhook say what it's asked at each verb.
func (m *hookMaker) ask(kind string) {
	name, label := hookLabel(kind, "asked"), `"labels":{"hook":"`+hookLabel(kind, "echo")+`"}`
	body := func(metadata string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + metadata + `}}`
	}
	patch := func(verb, path, contentType, body string) {
		m.add(step{name: "hook asked/" + kind + " " + verb, method: "PATCH", path: path, body: body, header: map[string]string{"Content-Type": contentType}})
	}
	named := `"name":"` + name + `"`
	m.send("hook asked/"+kind+" POST", "POST", hookObjects, body(named))
	m.send("hook asked/"+kind+" PUT", "PUT", hookObjects+"/"+name, body(named+","+label))
	patch("PATCH", hookObjects+"/"+name, mergePatch, `{"metadata":{`+label+`}}`)
	patch("apply", hookObjects+"/"+name+"?fieldManager=a&force=true", applyPatch, body(named+","+label))
	patch("apply create", hookObjects+"/"+name+"-new?fieldManager=a", applyPatch, body(`"name":"`+name+`-new",`+label))
	m.send("hook asked/"+kind+" generated", "POST", hookObjects+"?dryRun=All", body(`"generateName":"g-",`+label))
}

// end takes a configuration away.
func (m *hookMaker) end(kind, name string) { m.endIn(hookNamespace, kind, name) }

func (m *hookMaker) endIn(namespace, kind, name string) {
	lower := strings.ToLower(kind)
	m.send("end/"+lower+" "+name, "DELETE", configurations+lower+"webhookconfigurations/"+namespace+"-"+hookLabel(kind, name), "")
}
