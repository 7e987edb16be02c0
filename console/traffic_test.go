package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
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
	plots := `[...document.querySelectorAll(".plot")].filter((e) => e.querySelector("canvas")).map((e) => e.querySelector("[role=img]").ariaLabel.split(":")[0]).join("\n")`
	p.await(plots + " === " + fmt.Sprintf("%q", strings.Join([]string{"Writes a second", "Events sent a second", "Watchers", "How far the last watcher is behind", "Memory",
		"How far back history reaches", "Refusals a second"}, "\n")))
	p.await(`[...document.querySelectorAll(".plot [role=img]")].some((e) => /^Watchers: [1-9]/.test(e.ariaLabel))`)
	p.see("This server has its store alone")
	p.await(`[...document.querySelectorAll(".sheet tr")].some((row) => row.innerText.includes("configmaps") && row.textContent.includes("onerror"))`)
	if found := p.eval(`[window.hacked, document.querySelectorAll("main img, main script, main iframe, main [onerror]").length].join()`); found != ",0" {
		t.Errorf("what a watcher calls itself has become markup: %v", found)
	}
}

// TestReplicas: the processes that serve one store are named, which of them acts, and which members have the store.
func TestReplicas(t *testing.T) {
	dir := t.TempDir()
	address, other := freeAddress(t), freeAddress(t)
	one := start(t, "--data-dir="+dir+"/one", "--cluster-listen="+address)
	start(t, "--data-dir="+dir+"/two", "--cluster-listen="+other, "--join="+address, "--join-token-file="+dir+"/one/join-token")
	p := open(t, one.url+"/console#/traffic")
	row := func(table, has string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("[aria-label='%s'] tbody tr")].filter((r) => r.innerText.includes(%q)).length`, table, has)
	}
	p.await(row("Replicas", "acts for all") + ` === 1 && ` + row("Replicas", "takes over") + ` === 1 && ` + row("Replicas", "this one") + ` === 1`)
	p.await(row("Members of the store", address) + ` === 1 && ` + row("Members of the store", other) + ` === 1 && ` + row("Members of the store", "leader") + ` === 1`)
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

// freeAddress returns an address of this machine that no other process takes by chance: one of its own in 127.0.0.0/8.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
