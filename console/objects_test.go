package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func configMap(name, labels string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {%s}}, data: {a: b}}", name, labels)
}

// TestKinds: the first view has all kinds, with counts that move.
func TestKinds(t *testing.T) {
	s := start(t)
	p := open(t, s.url+"/")
	p.see("ConfigMap")
	count := `document.querySelector("a[href*=\"core%2Fv1%2Fconfigmaps\"]").parentElement.querySelector("data").value`
	p.await(count + ` === "0"`)
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("a", ""))
	p.await(count + ` === "1"`)
	p.await(`document.querySelector(".latest")?.textContent.includes("new ConfigMap a default")`)
	s.ask("DELETE", "/api/v1/namespaces/default/configmaps/a", "")
	p.await(count + ` === "0" && document.querySelector(".latest").textContent.includes("gone ConfigMap a default")`)
	p.eval(`document.querySelector("main input[type=search]").focus()`)
	p.key(strings.Split("pod", "")...)
	p.see("PodTemplate")
	p.await(`!document.querySelector(".groups").innerText.includes("ConfigMap")`)
}

// TestKindsAgain: what a stream tells again after a cut isn't counted again.
func TestKindsAgain(t *testing.T) {
	dir := t.TempDir()
	s := start(t, "--data-dir="+dir)
	p := open(t, s.url+"/console")
	count := `document.querySelector("a[href*=\"core%2Fv1%2Fconfigmaps\"]").parentElement.querySelector("data").value`
	p.await(`document.querySelector("a[href*=\"core%2Fv1%2Fconfigmaps\"]") && ` + count + ` === "0"`)
	p.await(`fetch("/debug/watchers").then((r) => r.json()).then((all) => all.watchers.length > 0)`)
	create := func(name string) string {
		return `{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}}`
	}
	s.ask("POST", "/apiserver-lite/v1/transactions", `{"operations":[`+create("a")+`,`+create("b")+`]}`, "Content-Type", "application/json")
	p.await(count + ` === "2"`)
	s.stop()
	again := start(t, "--data-dir="+dir, "--listen="+strings.TrimPrefix(s.url, "http://"))
	again.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("c", ""))
	p.await(`document.querySelector(".latest")?.textContent.includes("new ConfigMap c default")`)
	if got := p.eval(count); got != "3" {
		t.Errorf("it counts %v", got)
	}
}

// TestSort: columns are in the order of what they mean.
func TestSort(t *testing.T) {
	s := start(t)
	for i, size := range []string{"500Mi", "10Gi", "2Gi"} {
		s.ask("POST", "/api/v1/persistentvolumes", fmt.Sprintf("{metadata: {name: v%d}, spec: {capacity: {storage: %s}, accessModes: [ReadWriteOnce], hostPath: {path: /a}}}", i, size))
	}
	for name, ago := range map[string]time.Duration{"old": 3 * time.Hour, "young": 10 * time.Second, "middle": 20 * time.Minute} {
		at := time.Now().Add(-ago).UTC().Format(time.RFC3339)
		s.ask("POST", "/api/v1/namespaces/default/events", fmt.Sprintf("{metadata: {name: %s}, involvedObject: {namespace: default, name: x}, reason: R, message: m, type: Normal, firstTimestamp: %q, lastTimestamp: %[2]q}", name, at))
	}
	p := open(t, s.url+"/console#/objects?pane=core/v1/persistentvolumes%3Fsort%3D-Capacity&pane=core/v1/events%3Fsort%3DLast%2520Seen")
	first := func(label string, cell int) string { // the cells of a column, from above
		return fmt.Sprintf(`[...document.querySelectorAll("[role=grid][aria-label=%s] .space .row")].filter((r) => r.style.display !== "none")
			.sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((r) => r.children[%d].textContent).join()`, label, cell)
	}
	p.await(first("persistentvolumes", 1) + ` === "10Gi,2Gi,500Mi"`)
	p.await(`/^1\ds,20m,3h$/.test(` + first("events", 1) + `)`)
	s.ask("DELETE", "/api/v1/namespaces/default/events/middle", "")
	p.await(`/^[12]\ds,3h$/.test(` + first("events", 1) + `)`)
	p.await(`!/^1\ds/.test(` + first("events", 1) + `)`) // it gets older
}

// TestObjects: a kind's objects are there in its own columns, come and go, and are those that the selector chooses.
func TestObjects(t *testing.T) {
	s := start(t)
	for i := range 5 {
		s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap(fmt.Sprintf("c%d", i), fmt.Sprintf("of: \"%d\"", i%2)))
	}
	p := open(t, s.url+"/console#/objects?pane=core/v1/configmaps")
	p.see("5 objects · live")
	if rows := p.rows(); !strings.HasPrefix(rows, "default c0 1 ") {
		t.Errorf("rows are %s", rows)
	}
	s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap("b", ""))
	s.ask("DELETE", "/api/v1/namespaces/default/configmaps/c3", "")
	p.await(`document.querySelectorAll(".space .row")[0].textContent.startsWith("defaultb1")`)
	p.see("5 objects · live")
	p.eval(`document.querySelector("[aria-label='Labels selector']").focus()`)
	p.key(strings.Split("of=1", "")...)
	p.see("1 object · live")
	p.await(`location.hash.includes("of%253D1")`)
	if rows := p.rows(); !strings.HasPrefix(rows, "default c1 1 ") || strings.Contains(rows, "\n") {
		t.Errorf("rows are %s", rows)
	}
}

// TestWide: the columns that kubectl shows with -o wide are a button away, and the address has that.
func TestWide(t *testing.T) {
	s := start(t)
	s.ask("POST", "/api/v1/namespaces/default/events", "{metadata: {name: named}, involvedObject: {namespace: default, name: x}, reason: R, message: m, type: Normal}")
	p := open(t, s.url+"/console#/objects?pane=core/v1/events")
	p.see("1 object · live")
	if rows := p.rows(); strings.Contains(rows, "named") {
		t.Errorf("rows are %s", rows)
	}
	p.do(chromedp.Click(`//button[text()="Wide"]`, chromedp.BySearch))
	p.await(`document.querySelector(".space .row").textContent.includes("named")`)
	p.do(chromedp.Reload())
	p.await(`document.querySelector(".space .row")?.textContent.includes("named")`)
}

// TestUnwatched: a kind that can't be watched is asked for again and again, alone and beside others.
func TestUnwatched(t *testing.T) {
	s := start(t)
	p := open(t, s.url+"/console#/objects?pane=core/v1/componentstatuses&pane=core/v1/namespaces")
	p.see("1 object · asked for every five seconds")
	p.see("4 objects · live")
	p.key("j", kb.Enter)
	p.await(`location.hash.includes("componentstatuses/-/etcd-0")`)
	p.see("Healthy")
}

// TestAnyField: objects are selected by any field, and a refusal is at the selector that it's about.
func TestAnyField(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	for i := 1; i < 10; i++ {
		s.ask("POST", widgetsPath, widget(fmt.Sprintf("w%d", i), 10*i))
	}
	p := open(t, s.url+"/console#/objects?pane=example.com/v1/widgets&pane=core/v1/configmaps")
	p.see("9 objects · live")
	p.eval(`document.querySelector("[aria-label='Fields selector']").focus()`)
	p.key(strings.Split("spec.size>80||spec.size in (10,20)", "")...)
	p.see("3 objects · live")
	s.ask("PATCH", widgetsPath+"/w1", `{"spec":{"size":50}}`, "Content-Type", "application/merge-patch+json")
	p.see("2 objects · live")
	p.key(strings.Split("||spec.", "")...)
	p.await(`[...document.querySelectorAll("datalist option")].map((o) => o.value).includes("spec.size>80||spec.size in (10,20)||spec.parts[*].")`)
	p.key(strings.Split("sice=1", "")...)
	refusal := `document.getElementById(document.querySelector("[aria-label='Fields selector'][aria-invalid=true]")?.getAttribute("aria-describedby"))?.innerText`
	p.await(refusal + `?.includes("position 36") && ` + refusal + `.includes("the nearest is spec.size")`)
}
