package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func widget(name string, size int) string {
	return fmt.Sprintf("{apiVersion: example.com/v1, kind: Widget, metadata: {name: %s}, spec: {color: red, size: %d}}", name, size)
}

const widgetPage = "/console#/object/example.com/v1/widgets/default/"

// with presses a key with Control.
func (p *page) with(key string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(key, chromedp.KeyModifiers(input.ModifierCtrl)))
}

// bareEnter is the key without its character, which a browser leaves out where the page takes the key.
var bareEnter = input.DispatchKeyEvent(input.KeyRawDown).WithKey("Enter").WithWindowsVirtualKeyCode(13)

// inEditor is the editor's text, as far as it's on screen.
const inEditor = `document.querySelector(".editor").shadowRoot.querySelector(".cm-content").innerText`

// TestTree: an object is a tree, in which the field glows that has changed.
func TestTree(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 5))
	p := open(t, s.url+widgetPage+"a")
	p.await(`[...document.querySelectorAll("[role=treeitem]")].some((l) => l.textContent.includes("size5"))`)
	s.ask("PATCH", widgetsPath+"/a", `{"spec": {"size": 7}}`, "Content-Type", "application/merge-patch+json")
	p.await(`[...document.querySelectorAll(".line.changed")].some((l) => l.textContent === "size7")`)
	if changed := p.eval(`[...document.querySelectorAll(".line.changed")].map((l) => l.textContent).sort().join(" ")`); strings.Contains(fmt.Sprint(changed), "color") {
		t.Errorf("what glows is %v", changed)
	}
	s.ask("DELETE", widgetsPath+"/a", "")
	p.see("deleted")
}

// TestHistory: an object's versions are a line, and what each changed is shown where one drags to.
func TestHistory(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 5))
	for _, size := range []int{7, 8} {
		s.ask("PATCH", widgetsPath+"/a", fmt.Sprintf(`{"spec": {"size": %d}}`, size), "Content-Type", "application/merge-patch+json")
	}
	p := open(t, s.url+widgetPage+"a?tab=history")
	const changes = `document.querySelector(".history .diff")?.textContent`
	p.await(changes + `?.includes("-   size: 7") && ` + changes + `.includes("+   size: 8")`)
	p.see("changed")
	p.eval(`document.querySelector(".history input").focus()`)
	p.key(kb.ArrowLeft)
	p.await(changes + `?.includes("-   size: 5") && ` + changes + `.includes("+   size: 7")`)
	p.key(kb.ArrowLeft)
	p.await(changes + `?.includes("+   size: 5")`)
	p.see("created")
	s.ask("PATCH", widgetsPath+"/a", `{"spec": {"size": 9}}`, "Content-Type", "application/merge-patch+json")
	p.see("1 of 4") // it stays where it was dragged to
	p.do(chromedp.Reload())
	p.see("1 of 4") // which the address has
	p.eval(`document.querySelector(".history input").focus()`)
	p.key(kb.End)
	p.await(changes + `?.includes("+   size: 9")`)
	s.ask("DELETE", widgetsPath+"/a", "")
	p.await(changes + `?.includes("-   size: 9")`)
}

// TestEdit: by keys alone an object is edited, refused at the line, completed, compared, checked and stored.
func TestEdit(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 5))
	p := open(t, s.url+widgetPage+"a")
	p.await(`!!document.querySelector("button[aria-keyshortcuts=e]")`)
	p.see("size")
	p.key("e")
	p.await(`document.querySelector(".editor")?.shadowRoot?.activeElement?.isContentEditable === true && ` + inEditor + `.includes("size: 5")`)
	p.with(kb.End)
	p.key(kb.ArrowLeft, "0", "0")
	p.with(kb.Enter)
	p.see("should be less than or equal to 100")
	p.await(`document.querySelector(".editor").shadowRoot.querySelector(".cm-lintRange-error")?.textContent === "size"`)
	p.key(kb.Backspace, kb.Backspace, kb.Backspace, "8")
	p.do(input.InsertText(": 3"))
	p.with(kb.Enter)
	p.see("This isn't YAML")
	p.await(`document.querySelector(".editor").shadowRoot.querySelector(".cm-lintRange-error, .cm-lintPoint-error")?.closest(".cm-line").textContent.includes("size: 8: 3")`)
	p.key(kb.Backspace, kb.Backspace, kb.Backspace)
	p.do(input.InsertText("\n  "))
	p.key(strings.Split("fra", "")...)
	p.await(`document.querySelector(".editor").shadowRoot.querySelector(".cm-tooltip-autocomplete")?.textContent.includes("fragile")`)
	p.eval(`new Promise((go) => setTimeout(go, 100))`) // the list takes no key in its first moments, so that none is taken by mistake
	p.do(bareEnter)
	p.await(inEditor + `.includes("fragile: ")`)
	p.key(strings.Split("true", "")...)
	p.key(kb.Escape, kb.Escape)
	p.await(`document.activeElement?.id === "apply"`)
	p.key(kb.Tab, kb.Tab, kb.Enter)
	p.await(`document.querySelector(".diff")?.textContent.includes("+   size: 8") && document.querySelector(".diff").textContent.includes("-   size: 5")`)
	if stored := s.ask("GET", widgetsPath+"/a", ""); !strings.Contains(stored, `"size":5`) {
		t.Errorf("a difference has stored %s", stored)
	}
	p.eval(`document.getElementById("apply").focus()`)
	p.key(kb.Tab, kb.Enter)
	p.see("The server would take this.")
	p.eval(`document.getElementById("apply").focus()`)
	p.key(kb.Enter)
	p.await(`!document.getElementById("apply")`)
	var stored struct {
		Spec struct {
			Size    int
			Fragile bool
		}
	}
	if err := json.Unmarshal([]byte(s.ask("GET", widgetsPath+"/a", "")), &stored); err != nil || stored.Spec.Size != 8 || !stored.Spec.Fragile {
		t.Errorf("stored is %+v, %v", stored, err)
	}
}

// TestDelete: it's said what follows from a deletion, and a graph of owners and dependents can be walked.
func TestDelete(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 5))
	var owner struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(s.ask("GET", widgetsPath+"/a", "")), &owner); err != nil {
		t.Fatal(err)
	}
	s.ask("POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{metadata: {name: part, ownerReferences: [{apiVersion: example.com/v1, kind: Widget, name: a, uid: %s}]}}`, owner.Metadata.UID))
	p := open(t, s.url+"/console#/object/core/v1/configmaps/default/part?tab=graph")
	p.await(`!!document.querySelector("svg a[aria-label=\"widgets.example.com a\"]")`)
	p.eval(`document.querySelector("svg a").focus()`)
	p.key(kb.Enter)
	p.await(`!!document.querySelector("svg a[aria-label=\"configmaps part\"]") && location.hash.includes("widgets")`)
	s.ask("POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{metadata: {name: later, ownerReferences: [{apiVersion: example.com/v1, kind: Widget, name: a, uid: %s}]}}`, owner.Metadata.UID))
	p.do(chromedp.Click(`//button[text()="Look again"]`, chromedp.BySearch))
	p.await(`!!document.querySelector("svg a[aria-label=\"configmaps later\"]")`)
	s.ask("DELETE", "/api/v1/namespaces/default/configmaps/later", "")
	p.key("x")
	p.see("One object goes with it")
	p.await(`document.querySelector("dialog .relatives").textContent.includes("part")`)
	p.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(input.ModifierShift)), chromedp.KeyEvent(kb.Enter))
	p.see("deleted")
	p.await(fmt.Sprintf(`fetch(%q).then((r) => r.status === 404)`, "/api/v1/namespaces/default/configmaps/part"))
}

// TestDeleteNamespace: it's said what is in a namespace.
func TestDeleteNamespace(t *testing.T) {
	s := start(t)
	s.ask("POST", "/api/v1/namespaces", "{metadata: {name: shop}}")
	for i := range 3 {
		s.ask("POST", "/api/v1/namespaces/shop/configmaps", configMap(fmt.Sprint("c", i), ""))
	}
	p := open(t, s.url+"/console#/object/core/v1/namespaces/-/shop")
	p.await(`!!document.querySelector("button[aria-keyshortcuts=x]")`)
	p.see("creationTimestamp")
	p.key("x")
	p.see("Everything in this namespace is deleted with it: 3 configmaps, 1 serviceaccounts.")
}

// TestDeletePolicies: a deletion that orphans leaves the dependents, without their owner; one in the foreground waits for them.
func TestDeletePolicies(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	own := func(name string) {
		s.ask("POST", widgetsPath, widget(name, 5))
		var owner struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal([]byte(s.ask("GET", widgetsPath+"/"+name, "")), &owner); err != nil {
			t.Fatal(err)
		}
		s.ask("POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{metadata: {name: part-of-%s, finalizers: [example.com/wait], ownerReferences: [{apiVersion: example.com/v1, kind: Widget, name: %[1]s, uid: %s, blockOwnerDeletion: true}]}}`, name, owner.Metadata.UID))
	}
	remove := func(p *page, policy, says string) {
		p.await(`!!document.querySelector("button[aria-keyshortcuts=x]")`)
		p.see("size")
		p.key("x")
		p.await(`document.querySelector("dialog .relatives")?.textContent.includes("part-of")`)
		p.do(chromedp.Click(`//label[contains(., "`+policy+`")]`, chromedp.BySearch))
		p.see(says)
		p.do(chromedp.Click(`//dialog//button[text()="Delete"]`, chromedp.BySearch))
	}
	own("a")
	p := open(t, s.url+widgetPage+"a")
	remove(p, "Orphan", "1 that depend on it stay, and lose their owner.")
	p.await(`document.querySelector(".tag.bad")?.innerText === "deleted"`)
	if part := s.ask("GET", "/api/v1/namespaces/default/configmaps/part-of-a", ""); strings.Contains(part, "ownerReferences") || strings.Contains(part, "deletionTimestamp") {
		t.Errorf("the orphan is %s", part)
	}
	own("b")
	p.visit(s.url + widgetPage + "b")
	remove(p, "Foreground", "One object goes with it")
	p.see("is being deleted, waits for foregroundDeletion")
	s.ask("PATCH", "/api/v1/namespaces/default/configmaps/part-of-b", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
	p.await(`document.querySelector(".tag.bad")?.innerText === "deleted"`)
	p.await(`fetch("/api/v1/namespaces/default/configmaps/part-of-b").then((r) => r.status === 404)`)
}

// TestEditStays: what is edited stays while another tab or another page is looked at, and not when it's cancelled.
func TestEditStays(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 5))
	p := open(t, s.url+widgetPage+"a?tab=yaml")
	p.await(`!!document.querySelector("button[aria-keyshortcuts=e]") && ` + inEditor + `.includes("size: 5")`)
	p.key("e")
	p.await(`document.querySelector(".editor")?.shadowRoot?.activeElement?.isContentEditable === true`)
	p.with(kb.End)
	p.key(kb.ArrowLeft, "7")
	p.do(chromedp.Click("#tab-events"))
	p.see("No event is about it.")
	p.do(chromedp.Click("#tab-yaml"))
	p.await(`document.activeElement.id === "tab-yaml" && ` + inEditor + `.includes("size: 57")`)
	p.do(chromedp.Click(`//button[text()="Cancel"]`, chromedp.BySearch))
	p.await(inEditor + `.includes("size: 5\n") && !document.getElementById("apply")`)
	p.key("e")
	p.await(`document.querySelector(".editor").shadowRoot.activeElement?.isContentEditable === true && ` + inEditor + `.includes("size: 5\n")`)
	p.with(kb.End)
	p.key(kb.ArrowLeft, "7")
	p.visit(s.url + "/console#/traffic")
	p.see("Watchers")
	p.visit(s.url + widgetPage + "a")
	p.await(`!!document.querySelector("button[aria-keyshortcuts=e]")`)
	p.see("size")
	p.key("e")
	p.see("This is what you were writing when you left it.")
	p.await(inEditor + `.includes("size: 57")`)
	p.do(chromedp.Click("#apply"))
	p.await(`!document.getElementById("apply")`)
	if stored := s.ask("GET", widgetsPath+"/a", ""); !strings.Contains(stored, `"size":57`) {
		t.Errorf("stored is %s", stored)
	}
}

// TestApply: server-side apply is refused where another manager has a field, and takes it by force.
func TestApply(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("PATCH", widgetsPath+"/a?fieldManager=robot", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {color: red, size: 5}\n", "Content-Type", "application/apply-patch+yaml")
	p := open(t, s.url+widgetPage+"a?tab=yaml")
	p.await(`!!document.querySelector("button[aria-keyshortcuts=e]")`)
	p.await(inEditor + `.includes("size: 5")`)
	p.key("e")
	p.await(`document.querySelector(".editor")?.shadowRoot?.activeElement?.isContentEditable === true`)
	choose := func(mode string) {
		p.eval(fmt.Sprintf(`(() => { const how = document.querySelector("[aria-label=\"How it's stored\"]"); how.value = %q; how.dispatchEvent(new Event("change", { bubbles: true })); })()`, mode))
	}
	choose("apply")
	p.eval(`document.querySelector(".editor").shadowRoot.querySelector(".cm-content").focus()`)
	p.with("a")
	p.key(kb.Backspace)
	p.do(input.InsertText("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 6}\n"))
	p.with(kb.Enter)
	p.see("conflict with \"robot\"")
	p.eval(`document.querySelector(".editor").shadowRoot.querySelector(".cm-content").focus()`)
	p.with("a")
	p.key(kb.Backspace)
	p.do(input.InsertText("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec:\n  size: 6\n  parts:\n  - name: x\n    weight: 3\n"))
	p.with(kb.Enter)
	p.see("field not declared in schema")
	p.await(`document.querySelector(".editor").shadowRoot.querySelector(".cm-lintRange-error")?.textContent === "weight"`)
	p.eval(`document.querySelector(".editor").shadowRoot.querySelector(".cm-content").focus()`)
	p.with("a")
	p.key(kb.Backspace)
	p.do(input.InsertText("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 6}\n"))
	choose("force")
	p.do(chromedp.Click("#apply"))
	p.await(`!document.getElementById("apply")`)
	if stored := s.ask("GET", widgetsPath+"/a", ""); !strings.Contains(stored, `"size":6`) || !strings.Contains(stored, `"manager":"console","operation":"Apply"`) {
		t.Errorf("stored is %s", stored)
	}
}

// TestEvents: the events about an object are with it.
func TestEvents(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 5))
	var about struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(s.ask("GET", widgetsPath+"/a", "")), &about); err != nil {
		t.Fatal(err)
	}
	p := open(t, s.url+widgetPage+"a?tab=events")
	p.see("No event is about it.")
	s.ask("POST", "/api/v1/namespaces/default/events", fmt.Sprintf(`{metadata: {name: e}, involvedObject: {apiVersion: example.com/v1, kind: Widget, name: a, namespace: default, uid: %s},
		reason: Painted, message: It is red now, type: Normal, source: {component: painter}}`, about.Metadata.UID))
	p.see("It is red now")
}

// TestDefinitions: a schema is a page, and makes a form by which an object is made, with refusals at its fields.
func TestDefinitions(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	p := open(t, s.url+"/console#/definitions/example.com/v1/widgets")
	p.see("How large it is.")
	p.see("at most 100")
	p.do(chromedp.Navigate(s.url + "/console#/definitions/example.com/v1/widgets?tab=versions"))
	p.see("NamesAccepted")
	s.ask("PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", `[
		{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/description", "value": "How heavy it is."},
		{"op": "add", "path": "/spec/versions/0/deprecated", "value": true}]`, "Content-Type", "application/json-patch+json")
	p.see("deprecated")
	p.do(chromedp.Click(`//button[text()="Schema"]`, chromedp.BySearch))
	p.see("How heavy it is.")
	p.do(chromedp.Navigate(s.url + "/console#/definitions/example.com/v1/widgets?tab=form"))
	p.await(`!!document.getElementById("f-spec.size")`)
	p.do(chromedp.SendKeys("#new-name", "made"), chromedp.SendKeys(`[id="f-spec.size"]`, "1000"))
	p.key(kb.Enter)
	p.await(`document.getElementById("f-spec.size").getAttribute("aria-invalid") === "true"`)
	p.key(kb.Backspace, kb.Enter)
	p.await(`location.hash.includes("widgets/default/made")`)
	p.see("size")
	if stored := s.ask("GET", widgetsPath+"/made", ""); !strings.Contains(stored, `"size":100`) {
		t.Errorf("stored is %s", stored)
	}
}

// TestForm: a form has lists, maps and fields that aren't set; it says what it would send, and whether the server would take that.
func TestForm(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	p := open(t, s.url+"/console#/definitions/example.com/v1/widgets?tab=form")
	p.await(`!!document.getElementById("f-spec.size")`)
	click := func(title string) {
		p.t.Helper()
		p.do(chromedp.Click(`//button[.="`+title+`" or @aria-label="`+title+`"]`, chromedp.BySearch))
	}
	p.do(chromedp.SendKeys("#new-name", "made"), chromedp.SendKeys(`[id="f-spec.size"]`, "7"), chromedp.SetValue(`[id="f-spec.color"]`, `"blue"`))
	p.eval(`document.getElementById("f-spec.color").dispatchEvent(new Event("change", { bubbles: true }))`)
	click("Add to parts")
	p.do(chromedp.SendKeys(`[id="f-spec.parts.0.name"]`, "wheel"))
	click("Add to parts")
	p.do(chromedp.SendKeys(`[id="f-spec.parts.1.name"]`, "door"))
	click("Remove element 0 of parts")
	p.do(chromedp.SendKeys(`[aria-label="New name in tags"]`, "shelf"))
	click("Add to tags")
	p.do(chromedp.SendKeys(`[id="f-spec.tags.shelf"]`, "three"))
	p.do(chromedp.SendKeys(`[aria-label="New name in labels"]`, "app"), bareEnter)
	click("Remove app of labels")
	click("As YAML")
	p.await(`document.querySelector(".preview")?.textContent === "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: made\n  namespace: default\nspec:\n  size: 7\n  color: blue\n  parts:\n    - name: door\n  tags:\n    shelf: three\n"`)
	click("Dry run")
	p.see("The server would take this.")
	if found := s.ask("GET", widgetsPath, ""); strings.Contains(found, "made") {
		t.Errorf("a dry run has stored %s", found)
	}
	click("Create")
	p.await(`location.hash.includes("widgets/default/made")`)
	if stored := s.ask("GET", widgetsPath+"/made", ""); !strings.Contains(stored, `"spec":{"color":"blue","parts":[{"name":"door"}],"size":7,"tags":{"shelf":"three"}}`) || strings.Contains(stored, "labels") {
		t.Errorf("stored is %s", stored)
	}
}

// TestFormTexts: what may be a number or a text is taken as it's written, and what isn't JSON where JSON is needed isn't left out unseen.
func TestFormTexts(t *testing.T) {
	s := start(t)
	s.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `
metadata: {name: gates.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gates, singular: gate, kind: Gate}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {port: {x-kubernetes-int-or-string: true}, any: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`)
	p := open(t, s.url+"/console#/definitions/example.com/v1/gates?tab=form")
	p.await(`!!document.getElementById("f-port")`)
	p.do(chromedp.SendKeys("#new-name", "g"), chromedp.SendKeys("#f-port", "http"), chromedp.SendKeys("#f-any", `{"a": `))
	p.do(chromedp.Click(`//button[text()="Create"]`, chromedp.BySearch))
	p.await(`document.activeElement?.id === "f-any" && document.activeElement.validationMessage === "This isn't JSON."`)
	p.key(strings.Split("8080}", "")...)
	p.do(chromedp.Click(`//button[text()="Create"]`, chromedp.BySearch))
	p.await(`location.hash.includes("gates/default/g")`)
	if stored := s.ask("GET", "/apis/example.com/v1/namespaces/default/gates/g", ""); !strings.Contains(stored, `"port":"http"`) || !strings.Contains(stored, `"any":{"a":8080}`) {
		t.Errorf("stored is %s", stored)
	}
}

// TestMistyped: a refusal that names a field in its words alone is at the field's line.
func TestMistyped(t *testing.T) {
	s := start(t)
	const path = "/apis/apps/v1/namespaces/default/deployments"
	s.ask("POST", path, "{metadata: {name: d}, spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}}}")
	p := open(t, s.url+"/console#/object/apps/v1/deployments/default/d?tab=yaml")
	p.await(`!!document.querySelector("button[aria-keyshortcuts=e]") && ` + inEditor + `.includes("replicas: 0")`)
	p.key("e")
	p.await(`document.querySelector(".editor")?.shadowRoot?.activeElement?.isContentEditable === true`)
	p.with("a")
	p.key(kb.Backspace)
	p.do(input.InsertText("metadata: {name: d}\nspec:\n  replicas: many\n  selector: {matchLabels: {a: b}}\n"))
	p.with(kb.Enter)
	p.see("cannot unmarshal string")
	p.await(`document.querySelector(".editor").shadowRoot.querySelector(".cm-lintRange-error")?.textContent === "replicas"`)
}
