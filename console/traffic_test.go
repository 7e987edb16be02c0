package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
)

// TestTraffic: the view plots what the server did, and names who watches what, as text whatever they call themselves.
func TestTraffic(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+"/api/v1/configmaps?watch=true&lite=true&fieldSelector="+url.QueryEscape(`metadata.name!='<img src=x onerror="window.hacked=1">'`), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", hostile)
	watch, err := http.DefaultClient.Do(r)
	if err != nil || watch.StatusCode != http.StatusOK {
		t.Fatal(watch, err)
	}
	defer watch.Body.Close()
	go io.Copy(io.Discard, watch.Body) // ends with ctx
	for i := range 20 {
		s.ask("POST", "/api/v1/namespaces/default/configmaps", configMap(fmt.Sprint("a", i), ""))
	}
	p := open(t, s.url+"/console#/traffic")
	p.await(`/^Writes a second: .* now, at most [0-9.]*[1-9]/.test(document.querySelector(".plot [role=img]")?.ariaLabel)`)
	p.await(`document.querySelectorAll(".plot canvas").length >= 6 && [...document.querySelectorAll(".plot [role=img]")].some((e) => /^Watchers: [1-9]/.test(e.ariaLabel))`)
	p.await(`[...document.querySelectorAll(".sheet tr")].some((row) => row.innerText.includes("configmaps") && row.textContent.includes("onerror"))`)
	if found := p.eval(`[window.hacked, document.querySelectorAll("main img, main script, main iframe, main [onerror]").length].join()`); found != ",0" {
		t.Errorf("what a watcher calls itself has become markup: %v", found)
	}
}

// TestGlow: a row that has just changed glows, and fades.
func TestGlow(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	s.ask("POST", widgetsPath, widget("a", 1))
	p := open(t, s.url+"/console#/objects?pane=example.com/v1/widgets")
	p.see("1 object · live")
	s.ask("PATCH", widgetsPath+"/a", `{"spec":{"color":"blue"}}`, "Content-Type", "application/merge-patch+json")
	p.await(`!!document.querySelector(".row[data-glow]")`)
	p.await(`!document.querySelector(".row[data-glow]")`)
}
