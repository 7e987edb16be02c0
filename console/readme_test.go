package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeScript: what the README shows for a page of one's own works in a browser: the page knows what there is, over a restart of the
// server, too.
func TestReadmeScript(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```js\n(.*?)```").FindSubmatch(readme)
	if script == nil {
		t.Fatal("the README has no script")
	}
	dir := t.TempDir()
	s := start(t, "--data-dir="+dir)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 1))
	s.ask("POST", widgetsPath, widget("b", 1))
	p := open(t, s.url+"/version")
	p.eval(string(script[1]) + "\n;0")
	const names = `[...seen.values()].map(o => o.metadata.name + o.spec.size).sort().join()`
	p.await(names + ` === "a1,b1"`)
	s.ask("PATCH", widgetsPath+"/a", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	s.ask("DELETE", widgetsPath+"/b", "")
	p.await(names + ` === "a2"`)
	s.stop()
	again := start(t, "--data-dir="+dir, "--listen="+strings.TrimPrefix(s.url, "http://"))
	again.ask("POST", widgetsPath, widget("c", 3))
	again.ask("DELETE", widgetsPath+"/a", "")
	p.await(names + ` === "c3"`)
}
