package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// hostile is text that does harm where it's taken for markup, a script, an address, a style or a pattern.
const hostile = `"><img src=x onerror="window.hacked=1"><script>window.hacked=2</script><svg/onload=window.hacked=3>javascript:window.hacked=4 ${7*7} {{7*7}} </style><style>*{display:none}</style> \u202e%00`

// TestHostile: what objects, schemas and events contain is text, in each view. Names that Kubernetes restricts are as hostile as they may be.
func TestHostile(t *testing.T) {
	s := start(t)
	said, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	asJSON := []string{"Content-Type", "application/json"}
	fill := func(text string) string { return strings.ReplaceAll(text, "HOSTILE", string(said)) }
	s.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fill(`{"metadata":{"name":"traps.constructor.example.com","annotations":{"a":HOSTILE}},"spec":{
		"group":"constructor.example.com","scope":"Namespaced","names":{"plural":"traps","singular":"trap","kind":"Trap"},"versions":[{"name":"v1","served":true,"storage":true,
		"deprecated":true,"deprecationWarning":"<img src=x onerror=window.hacked=5>",
		"additionalPrinterColumns":[{"name":HOSTILE,"type":"string","description":HOSTILE,"jsonPath":".spec.text"},{"name":"Name","type":"string","jsonPath":".metadata.name"}],
		"schema":{"openAPIV3Schema":{"type":"object","description":HOSTILE,"properties":{"spec":{"type":"object","description":HOSTILE,"properties":{
			"text":{"type":"string","description":HOSTILE,"default":HOSTILE},
			"__proto__":{"type":"string","description":HOSTILE},
			"choice":{"type":"string","enum":[HOSTILE,"b"]},
			"<b>bold</b>":{"type":"string","description":HOSTILE}}}}}}}]}}`), asJSON...)
	s.ask("POST", "/apis/constructor.example.com/v1/namespaces/default/traps", fill(`{"apiVersion":"constructor.example.com/v1","kind":"Trap","metadata":{"name":"constructor","annotations":{"a":HOSTILE},
		"finalizers":["example.com/toString"],"ownerReferences":[{"apiVersion":"<script>/v1","kind":"<img>","name":HOSTILE,"uid":HOSTILE}]},"spec":{"text":HOSTILE,"choice":HOSTILE,"<b>bold</b>":HOSTILE}}`), asJSON...)
	var trap struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(s.ask("GET", "/apis/constructor.example.com/v1/namespaces/default/traps/constructor", "")), &trap); err != nil {
		t.Fatal(err)
	}
	s.ask("POST", "/api/v1/namespaces/default/events", fill(fmt.Sprintf(`{"metadata":{"name":"e"},"involvedObject":{"namespace":"default","uid":%q},"reason":"R","message":HOSTILE,"type":"Normal","source":{"component":HOSTILE}}`, trap.Metadata.UID)), asJSON...)
	s.ask("POST", "/api/v1/namespaces/default/configmaps", fill(fmt.Sprintf(`{"metadata":{"name":"part","ownerReferences":[{"apiVersion":"constructor.example.com/v1","kind":"Trap","name":"constructor","uid":%q}]},"data":{"a":HOSTILE}}`, trap.Metadata.UID)), asJSON...)

	const trapPage = "/console#/object/constructor.example.com/v1/traps/default/constructor"
	p := open(t, s.url+"/console", cdppage.Enable())
	chromedp.ListenTarget(p.ctx, func(event any) {
		if e, ok := event.(*cdppage.EventJavascriptDialogOpening); ok {
			t.Errorf("a dialog opens: %s", e.Message)
		}
	})
	const part = `onerror="window.hacked=1"`
	inShadow := `[...document.querySelectorAll("*")].some((e) => e.shadowRoot?.textContent.includes('` + part + `'))`
	for _, view := range []struct{ address, sees string }{
		{"/console#/kinds?q=trap", `document.body.innerText.includes("Trap")`},
		{"/console#/objects?pane=constructor.example.com%2Fv1%2Ftraps", ""},
		{trapPage, ""},
		{trapPage + "?tab=yaml", inShadow},
		{trapPage + "?tab=graph", `!!document.querySelector("svg a")`},
		{trapPage + "?tab=events", ""},
		{"/console#/definitions/constructor.example.com/v1/traps", ""},
		{"/console#/definitions/constructor.example.com/v1/traps?tab=form", `!!document.getElementById("new-name")`},
		{"/console#/definitions/constructor.example.com/v1/traps?tab=versions", `document.body.innerText.includes("NamesAccepted")`},
		{"/console#/objects?pane=" + hostile, `document.body.innerText.includes("isn't served here")`},
		{"/console#/object/" + hostile + "/" + hostile, `document.body.innerText.includes("isn't served here")`},
		{"/console#/me?ns=" + hostile, `document.body.innerText.includes("system:masters")`},
	} {
		p.visit(s.url + view.address)
		if view.sees == "" {
			view.sees = `document.body.innerText.includes('` + part + `')`
		}
		p.await(view.sees)
		if found := p.eval(`[window.hacked, document.querySelectorAll("img, main script, main style, iframe, object, embed, b > b, [onerror], [onload]").length, ({}).polluted,
			[...document.querySelectorAll("a[href]")].filter((a) => /^\s*javascript:/i.test(a.getAttribute("href"))).length].join()`); found != ",0,,0" {
			t.Errorf("%s has become markup: %v", view.address, found)
		}
	}
	p.visit(s.url + trapPage)
	p.await(`!!document.querySelector("button[aria-keyshortcuts=x]")`)
	p.key("x")
	p.see("example.com/toString")
	p.see("part")
	if hacked := p.eval(`window.hacked === undefined && document.querySelectorAll("img").length === 0`); hacked != true {
		t.Error("the dialog of a deletion has become markup")
	}
}
