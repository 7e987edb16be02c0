package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestKeyboard: from the first view to an object's deletion, by keys alone.
func TestKeyboard(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	for i := range 3 {
		s.ask("POST", widgetsPath, widget(fmt.Sprintf("w%d", i), 9-i))
	}
	p := open(t, s.url+"/console")
	p.see("Widget")
	p.with("k")
	p.await(`document.activeElement?.getAttribute("role") === "combobox"`)
	p.key(strings.Split("widgets.ex", "")...)
	p.await(`document.querySelector("[role=option][aria-selected=true]")?.textContent.startsWith("widgets.example.com")`)
	p.key(kb.Enter)
	p.see("3 objects · live")
	p.key("s", "s", "s") // namespace, name, size
	p.await(`document.querySelector("[role=columnheader][aria-sort=ascending]")?.textContent === "Size ↑" && location.hash.includes("sort")`)
	p.await(`document.querySelector(".space .row[aria-rowindex='2']").textContent.startsWith("defaultw27")`)
	p.do(input.DispatchKeyEvent(input.KeyRawDown).WithKey("/")) // without its character, which a browser leaves out
	p.await(`document.activeElement?.getAttribute("aria-label") === "Filter rows"`)
	p.key("w")
	p.await(`location.hash.includes("q%3Dw")`)
	p.key(kb.Escape) // leaves the field, with what was typed
	p.await(`document.activeElement?.getAttribute("role") === "grid" && document.querySelector("[aria-label=\"Filter rows\"]").value === "w"`)
	p.key("j", "j", "k", kb.Enter)
	p.await(`location.hash.endsWith("default/w2")`)
	p.see("creationTimestamp")
	p.key("]", "]")
	p.see("It has neither owners nor dependents.")
	p.key("g", "t")
	p.see("Watchers")
	p.key("?")
	p.see("go to a kind, a view or an action")
	p.key(kb.Escape)
	p.await(`!document.querySelector("dialog[open]")`)
	p.key("g", "k")
	p.await(`!!document.querySelector("[aria-label=\"Search kinds\"]")`)
	p.key("/")
	p.await(`document.activeElement?.getAttribute("aria-label") === "Search kinds"`)
}

// TestBack: the way back from an object leads to its row, whatever has the focus, and keys go from table to table.
func TestBack(t *testing.T) {
	s := start(t)
	s.seed(300)
	p := open(t, s.url+"/console#/objects?pane=core/v1/configmaps&pane=core/v1/namespaces")
	p.see("300 objects · live")
	p.see("4 objects · live")
	p.key(kb.End, "k", kb.Enter)
	p.await(`location.hash.endsWith("default/c000298")`)
	p.see("creationTimestamp")
	p.do(chromedp.NavigateBack())
	const active = `document.getElementById(document.querySelector("[role=grid][aria-label=configmaps]")?.getAttribute("aria-activedescendant"))?.textContent`
	p.await(active + `?.includes("c000298")`)
	p.key("k", kb.Enter)
	p.await(`location.hash.endsWith("default/c000297")`)
	p.do(chromedp.NavigateBack())
	p.await(active + `?.includes("c000297")`)
	p.key("]")
	p.await(`document.activeElement?.getAttribute("aria-label") === "namespaces"`)
	p.key("j", kb.Enter)
	p.await(`location.hash.includes("namespaces/-/default")`)
}

// TestSideBySide: several kinds are side by side, and the address has all of it.
func TestSideBySide(t *testing.T) {
	s := start(t)
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("a", ""))
	p := open(t, s.url+"/console#/objects?pane=core/v1/configmaps")
	p.see("1 object · live")
	p.do(chromedp.Click(`//button[text()="Split"]`, chromedp.BySearch))
	p.await(`document.querySelectorAll(".pane").length === 2`)
	p.eval(`(() => { const all = document.querySelectorAll("select.kind"); all[1].value = "core/v1/namespaces"; all[1].dispatchEvent(new Event("change", { bubbles: true })); })()`)
	p.see("4 objects · live")
	p.do(chromedp.Reload())
	p.see("4 objects · live")
	p.see("1 object · live")
	p.do(chromedp.NavigateBack())
	p.await(`document.querySelectorAll(".pane").length === 2`)
	p.see("1 object · live")
	p.eval(`document.querySelector(".pane:last-child [aria-label='Close pane']").click()`)
	p.await(`document.querySelectorAll(".pane").length === 1`)
	for _, sort := range []string{"Name", "-Name", ""} {
		p.eval(`[...document.querySelectorAll(".row.head button")].find((b) => /^Name( |$)/.test(b.textContent)).click()`)
		p.await(fmt.Sprintf(`decodeURIComponent(decodeURIComponent(location.hash)).replace(/^[^&]*?(sort=|$)/, "") === %q`, sort))
	}
}

// TestShade: the page is light or dark as the system is, until somebody says otherwise.
func TestShade(t *testing.T) {
	s := start(t)
	p := open(t, s.url+"/console", shade("dark"))
	p.await(`document.documentElement.dataset.shade === "dark"`)
	p.do(chromedp.Click("[aria-label='Light colours']"))
	p.await(`document.documentElement.dataset.shade === "light" && !!document.querySelector("[aria-label='Dark colours']")`)
	p.with("k")
	p.await(`document.activeElement?.getAttribute("role") === "combobox"`)
	p.key(strings.Split("light or", "")...)
	p.key(kb.Enter)
	p.await(`document.documentElement.dataset.shade === "dark"`)
}

// watching is what the page's watches are of, one line for each stream.
const watching = `fetch("/debug/watchers").then((r) => r.json()).then((all) => Object.values(Object.groupBy(all.watchers, (w) => w.ageSeconds))
	.map((of) => of.map((w) => w.resource).sort().join()).sort().join("\n"))`

// TestOneStream: kinds side by side with the same question share one stream, in which each gets its own; with another selector a kind has one
// of its own.
func TestOneStream(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("a", "app: web"))
	p := open(t, s.url+"/console#/objects?pane=core/v1/configmaps&pane=example.com/v1/widgets")
	p.see("1 object · live")
	p.await(watching + `.then((all) => all === "configmaps.v1,widgets.v1.example.com")`)
	s.ask("POST", widgetsPath, widget("w1", 5))
	s.ask("POST", widgetsPath, widget("w2", 6))
	p.see("2 objects · live")
	p.await(`document.querySelector("[role=grid][aria-label=\"widgets.example.com\"]").innerText.includes("w2")`)
	s.ask("DELETE", "/api/v1/namespaces/default/configmaps/a", "")
	p.see("0 objects · live")
	p.eval(`document.querySelector("[aria-label='Labels selector']").focus()`)
	p.key(strings.Split("app=web", "")...)
	p.await(watching + `.then((all) => all === "configmaps.v1\nwidgets.v1.example.com")`)
	p.see("2 objects · live")
}

// TestReader: what a screen reader is told, as the browser's accessibility tree has it: a name of all that can be used or holds
// something, in each view and dialog, and what happens elsewhere.
func TestReader(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 5))
	p := open(t, s.url+"/console")
	for _, view := range views {
		p.visit(s.url + view.address)
		p.await(view.ready)
		p.named(view.name)
		if again := p.eval(`[...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i).join()`); again != "" {
			t.Errorf("%s: ids that come twice: %v", view.name, again)
		}
	}
	p.visit(s.url + widgetPage + "a")
	p.await(`document.querySelectorAll("[role=treeitem]").length > 5 && !!document.querySelector("button[aria-keyshortcuts=x]")`)
	for key, role := range map[string]string{"x": `dialog "Delete Widget a"`, "?": `dialog "Keys"`, ":": `dialog "Go to"`} {
		p.key(key)
		p.await(`!!document.querySelector("dialog[open]")`)
		if seen := p.named("the dialog of " + key); !strings.Contains(seen, role) {
			t.Errorf("%s opens no %s: %s", key, role, seen)
		}
		p.key(kb.Escape)
		p.await(`!document.querySelector("dialog[open]")`)
	}
	p.visit(s.url + "/console#/objects?pane=example.com/v1/widgets")
	p.see("1 object · live")
	p.await(`document.querySelector("[aria-live=polite]").textContent === "1 widgets"`)
	seen := p.named("objects")
	for _, part := range []string{`grid "widgets.example.com"`, `columnheader "Size"`, `gridcell "red"`, `StaticText "1 object · live"`, `searchbox "Filter rows"`} {
		if !strings.Contains(seen, part) {
			t.Errorf("the objects have no %s: %s", part, seen)
		}
	}
}

// needNames are the roles that say nothing without a name.
var needNames = []string{"button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "grid", "table", "tree", "treeitem", "tab", "tablist", "tabpanel",
	"dialog", "region", "navigation", "image", "listbox", "option", "columnheader", "toolbar", "heading"}

// named returns what is in the accessibility tree, a line for each role and name. The test fails if a name is missing.
func (p *page) named(where string) string {
	p.t.Helper()
	type value struct {
		Value any `json:"value"`
	}
	var tree struct { // not the package's own type, which knows not all that newer browsers say
		Nodes []struct {
			Ignored  bool   `json:"ignored"`
			Role     value  `json:"role"`
			Name     value  `json:"name"`
			ParentID string `json:"parentId"`
		} `json:"nodes"`
	}
	p.do(chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, accessibility.CommandGetFullAXTree, nil, &tree)
	}))
	var all strings.Builder
	for _, n := range tree.Nodes {
		role, name := fmt.Sprint(n.Role.Value), strings.TrimSpace(fmt.Sprint(cmp.Or(n.Name.Value, any(""))))
		if n.Ignored {
			continue
		}
		if name == "" && slices.Contains(needNames, role) {
			p.t.Errorf("%s: a %s without a name, below %s", where, role, n.ParentID)
		}
		fmt.Fprintf(&all, "%s %q\n", role, name)
	}
	return all.String()
}

// views are the pages that there are, with what says that they're there.
var views = []struct{ name, address, ready string }{
	{"kinds", "/console#/kinds", `document.querySelectorAll("data[value='4']").length > 0`},
	{"objects", "/console#/objects?pane=example.com/v1/widgets", `document.body.innerText.includes("1 object · live")`},
	{"tree", widgetPage + "a", `document.querySelectorAll("[role=treeitem]").length > 5 && !!document.querySelector("button[aria-keyshortcuts=x]")`},
	{"yaml", widgetPage + "a?tab=yaml", `!!document.querySelector(".editor")?.shadowRoot?.textContent.includes("size")`},
	{"graph", widgetPage + "a?tab=graph", `!!document.querySelector("svg")`},
	{"events", widgetPage + "a?tab=events", `document.body.innerText.includes("No event is about it.")`},
	{"history", widgetPage + "a?tab=history", `document.querySelector(".history .diff")?.textContent.includes("size: 5")`},
	{"versions", "/console#/definitions/example.com/v1/widgets?tab=versions", `document.body.innerText.includes("NamesAccepted")`},
	{"schema", "/console#/definitions/example.com/v1/widgets", `document.body.innerText.includes("How large it is.")`},
	{"form", "/console#/definitions/example.com/v1/widgets?tab=form", `!!document.getElementById("f-spec.size")`},
	{"traffic", "/console#/traffic", `document.body.innerText.includes("Watchers")`},
	{"me", "/console#/me", `document.body.innerText.includes("system:masters")`},
}

// TestNarrow: no view is wider than a telephone of 375 px.
func TestNarrow(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 5))
	p := open(t, s.url+"/console")
	p.do(emulation.SetDeviceMetricsOverride(375, 800, 1, true))
	for _, view := range views {
		p.visit(s.url + view.address)
		p.await(view.ready)
		if cut := p.eval(`document.querySelector(".bar nav").scrollWidth - document.querySelector(".bar nav").clientWidth`); cut != 0.0 {
			t.Errorf("%s: %v px of the views' names are cut off", view.address, cut)
		}
		if width := p.eval("[document.documentElement.scrollWidth, document.querySelector('main').scrollWidth].join()"); width != "375,375" {
			t.Errorf("%s is as wide as %v px: %v", view.address, width, p.eval(`[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > 376).slice(0, 5).map((e) => e.outerHTML.slice(0, 150)).join("\n")`))
		}
	}
}
