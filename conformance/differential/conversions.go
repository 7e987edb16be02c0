package main

import (
	"net/http"
)

// conversionGroup is the group of the resources that webhooks convert, one for each behaviour.
const conversionGroup = "convert.example.com"

// conversions are what a webhook that converts does, right and wrong, with the answer and its response, whose objects are converted.
var conversions = []struct {
	name   string
	change func(r review, objects []map[string]any)
}{
	{"right", nil},
	{"none", func(r review, _ []map[string]any) { r.response["convertedObjects"] = []any{} }},
	{"null-objects", func(r review, _ []map[string]any) { r.response["convertedObjects"] = nil }},
	{"double", func(r review, objects []map[string]any) {
		r.response["convertedObjects"] = append(objects, objects...)
	}},
	{"wrong-uid", func(r review, _ []map[string]any) { r.response["uid"] = "other" }},
	{"without-uid", func(r review, _ []map[string]any) { delete(r.response, "uid") }},
	{"failure", func(r review, _ []map[string]any) {
		r.response["result"] = map[string]any{"status": "Failure", "message": "not this one", "code": 418}
	}},
	{"failure-silent", func(r review, _ []map[string]any) { r.response["result"] = map[string]any{"status": "Failure"} }},
	{"no-result", func(r review, _ []map[string]any) { delete(r.response, "result") }},
	{"without-response", func(r review, _ []map[string]any) { delete(r.answer, "response") }},
	{"review-kind", func(r review, _ []map[string]any) { r.answer["kind"] = "Other" }},
	{"review-version", func(r review, _ []map[string]any) { r.answer["apiVersion"] = "apiextensions.k8s.io/v1beta1" }},
	{"review-unnamed", func(r review, _ []map[string]any) { delete(r.answer, "apiVersion"); delete(r.answer, "kind") }},
	{"unconverted", func(_ review, objects []map[string]any) { setEach(objects, "apiVersion", conversionGroup+"/v1") }},
	{"version", func(_ review, objects []map[string]any) { setEach(objects, "apiVersion", conversionGroup+"/v3") }},
	{"kind", func(_ review, objects []map[string]any) { setEach(objects, "kind", "Other") }},
	{"kindless", func(_ review, objects []map[string]any) { setEach(objects, "kind", nil) }},
	{"name", func(_ review, objects []map[string]any) { setMeta(objects, "name", "other") }},
	{"namespace", func(_ review, objects []map[string]any) { setMeta(objects, "namespace", "other") }},
	{"object-uid", func(_ review, objects []map[string]any) { setMeta(objects, "uid", "other") }},
	{"finalizers", func(_ review, objects []map[string]any) { setMeta(objects, "finalizers", []string{"a.example.com/b"}) }},
	{"label", func(_ review, objects []map[string]any) { setMeta(objects, "labels", map[string]any{"a": "b"}) }},
	{"label-wrong", func(_ review, objects []map[string]any) { setMeta(objects, "labels", map[string]any{"a b": "c d"}) }},
	{"label-number", func(_ review, objects []map[string]any) { setMeta(objects, "labels", map[string]any{"a": 1}) }},
	{"labels-text", func(_ review, objects []map[string]any) { setMeta(objects, "labels", "a") }},
	{"annotation-wrong", func(_ review, objects []map[string]any) { setMeta(objects, "annotations", map[string]any{"a b": "c"}) }},
	{"metadata-none", func(_ review, objects []map[string]any) { setEach(objects, "metadata", nil) }},
	{"metadata-text", func(_ review, objects []map[string]any) { setEach(objects, "metadata", "a") }},
	{"object-text", func(r review, _ []map[string]any) { r.response["convertedObjects"] = []any{"a"} }},
	{"object-null", func(r review, _ []map[string]any) { r.response["convertedObjects"] = []any{nil} }},
	{"spec-wrong", func(_ review, objects []map[string]any) { setEach(objects, "spec", "a") }},
	{"empty", nil}, // and the others are webhooks' of admission
	{"text", nil},
	{"error", nil},
	{"not-found", nil},
	{"close", nil},
	{"twice", nil},
	{"yaml", nil},
}

// setEach sets or removes a member of each object.
func setEach(objects []map[string]any, name string, to any) {
	for _, o := range objects {
		if to == nil {
			delete(o, name)
		} else {
			o[name] = to
		}
	}
}

func setMeta(objects []map[string]any, name string, to any) {
	for _, o := range objects {
		o["metadata"].(map[string]any)[name] = to
	}
}

// serveConversion is the webhook that converts.
func serveConversion(w http.ResponseWriter, r *http.Request, name string, question asked, body []byte) {
	objects := question.Request.Objects
	setEach(objects, "apiVersion", question.Request.DesiredAPIVersion)
	response := map[string]any{"uid": question.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": objects}
	made := review{response: response, answer: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}, asked: body}
	for _, b := range behaviours {
		if b.name == name && b.serve != nil {
			b.serve(w, r)
			return
		}
	}
	for _, c := range conversions {
		if c.name == name && c.change != nil {
			c.change(made, objects)
		}
	}
	answerReview(w, name, made.answer)
}

// conversionScenario has a resource that a webhook of each behaviour converts, and an object of it.
func conversionScenario() scenario {
	m := &hookMaker{scenario{name: "conversions", alone: true}}
	plural := func(i int) string { return string(rune('a'+i/26)) + string(rune('a'+i%26)) + "s" }
	at := func(version string, i int) string {
		return "/apis/" + conversionGroup + "/" + version + "/namespaces/default/" + plural(i)
	}
	for i, c := range conversions {
		version := func(name string, storage bool) map[string]any {
			return map[string]any{"name": name, "served": true, "storage": storage, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}
		}
		m.send("setup/"+c.name, "POST", definitions, text(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural(i) + "." + conversionGroup},
			"spec": map[string]any{"group": conversionGroup, "scope": "Namespaced", "names": map[string]any{"plural": plural(i), "kind": "K" + plural(i)},
				"versions":   []any{version("v1", true), version("v2", false)},
				"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{"conversionReviewVersions": []string{"v1"}, "clientConfig": hookClient("convert/" + c.name)}}}}))
	}
	for i := range conversions {
		m.add(step{name: "setup/served " + plural(i), method: untilFound, path: at("v1", i)})
		m.add(step{name: "setup/served too " + plural(i), method: untilFound, path: at("v2", i)})
	}
	for i, c := range conversions {
		object := func(version, name string) string {
			return text(map[string]any{"apiVersion": conversionGroup + "/" + version, "kind": "K" + plural(i), "metadata": map[string]any{"name": name, "annotations": map[string]any{"a": "b"}}, "spec": map[string]any{"x": "y"}})
		}
		m.send("convert/"+c.name+" POST", "POST", at("v1", i), object("v1", "one"))
		m.send("convert/"+c.name+" GET", "GET", at("v2", i)+"/one", "")
		m.send("convert/"+c.name+" LIST", "GET", at("v2", i), "")
		m.send("convert/"+c.name+" POST v2", "POST", at("v2", i), object("v2", "two"))
		m.add(step{name: "convert/" + c.name + " PATCH", method: "PATCH", path: at("v2", i) + "/one", body: `{"spec":{"x":"z"}}`, header: map[string]string{"Content-Type": mergePatch}})
		m.send("convert/"+c.name+" DELETE v2", "DELETE", at("v2", i)+"/one", "")
	}
	for i, c := range conversions {
		m.send("end/"+c.name, "DELETE", definitions+"/"+plural(i)+"."+conversionGroup, "")
	}
	for i := range conversions {
		m.add(step{name: "end/gone " + plural(i), method: untilGone, path: definitions + "/" + plural(i) + "." + conversionGroup})
	}
	return m.scenario
}
