package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// spent is what a tab's thread has worked since it was opened.
type spent struct{ script, layout, all time.Duration }

func (p *page) spent() (s spent) {
	p.t.Helper()
	p.do(chromedp.ActionFunc(func(ctx context.Context) error {
		metrics, err := performance.GetMetrics().Do(ctx)
		for _, m := range metrics {
			d := time.Duration(m.Value * float64(time.Second))
			switch m.Name {
			case "ScriptDuration":
				s.script = d
			case "LayoutDuration", "RecalcStyleDuration":
				s.layout += d
			case "TaskDuration":
				s.all = d
			}
		}
		return err
	}))
	return s
}

// seed stores n ConfigMaps.
func (p *process) seed(n int) {
	p.t.Helper()
	const writers = 8
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for i := w; i < n; i += writers {
				p.ask("POST", "/api/v1/namespaces/default/configmaps", configMap(fmt.Sprintf("c%06d", i), "app: web"))
			}
		})
	}
	wait.Wait()
}

// BenchmarkScroll scrolls through 100,000 rows: script and layout a frame, on average and at most.
func BenchmarkScroll(b *testing.B) {
	rows := 100_000
	if testing.Short() {
		rows = 500
	}
	s := start(b)
	s.seed(rows)
	p := open(b, s.url+"/console#/objects?pane=core/v1/configmaps", performance.Enable())
	p.await(fmt.Sprintf(`document.querySelector(".pane .foot").innerText.includes("live") && document.querySelector("[role=grid]").ariaRowCount === "%d"`, rows+1))
	for b.Loop() {
		before := p.spent()
		const frames = 300
		longest := p.eval(fmt.Sprintf(`(async () => {
			const scroller = document.querySelector(".scroller"), step = (scroller.scrollHeight - scroller.clientHeight) / %d;
			let begun = 0, longest = 0;
			scroller.addEventListener("scroll", () => { begun = performance.now(); }, { capture: true });
			for (let i = 1; i <= %[1]d; i++) {
				scroller.scrollTop = i * step;
				await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => go())));
			}
			for (let i = 1; i <= 60; i++) {
				scroller.scrollTop = i * 170;
				await new Promise((go) => scroller.addEventListener("scroll", () => requestAnimationFrame(() => { document.body.offsetHeight; longest = Math.max(longest, performance.now() - begun); go(); }), { once: true }));
			}
			return longest;
		})()`, frames))
		after := p.spent()
		worked := after.script + after.layout - before.script - before.layout
		b.ReportMetric(float64(worked.Microseconds())/1000/(frames+60), "ms/frame")
		b.ReportMetric(longest.(float64), "ms/longest")
	}
}

// BenchmarkUpdates has 200 objects change each second, while a page shows them, while a program watches them as the page does, and while
// nobody does: which share of a core the tab's script and layout take, and which share the server takes.
func BenchmarkUpdates(b *testing.B) {
	for _, who := range []string{"nobody", "watcher", "page"} {
		b.Run(who, func(b *testing.B) {
			s := start(b)
			s.seed(updated)
			var p *page
			switch who {
			case "watcher":
				s.watchTables(b)
			case "page":
				p = open(b, s.url+"/console#/objects?pane=core/v1/configmaps", performance.Enable())
				p.see(fmt.Sprintf("%d objects · live", updated))
			}
			for b.Loop() {
				s.measureUpdates(b, p)
			}
		})
	}
}

// updated is how many objects change again and again.
const updated = 40

// watchTables watches ConfigMaps as a page does, until the benchmark ends.
func (p *process) watchTables(b *testing.B) {
	r, err := http.NewRequestWithContext(b.Context(), "GET", p.url+"/api/v1/configmaps?watch=true", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatal(res, err)
	}
	go func() { // ends with the benchmark's context
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}()
}

// measureUpdates changes objects for some seconds. tab is nil without one.
func (p *process) measureUpdates(b *testing.B, tab *page) {
	seconds := 10
	if testing.Short() {
		seconds = 1
	}
	var before spent
	if tab != nil {
		before = tab.spent()
	}
	used, began := processorTime(b, p.cmd.Process.Pid), time.Now()
	tick := time.NewTicker(time.Second / 200)
	defer tick.Stop()
	for i := range 200 * seconds {
		<-tick.C
		go func() {
			r, _ := http.NewRequest("PATCH", fmt.Sprintf("%s/api/v1/namespaces/default/configmaps/c%06d", p.url, i%updated), strings.NewReader(fmt.Sprintf(`{"data":{"k%d":"v"}}`, i/updated%50)))
			r.Header.Set("Content-Type", "application/merge-patch+json")
			if res, err := http.DefaultClient.Do(r); err == nil {
				res.Body.Close()
			}
		}()
	}
	share := func(d time.Duration) float64 { return 100 * float64(d) / float64(time.Since(began)) }
	b.ReportMetric(share(processorTime(b, p.cmd.Process.Pid)-used), "%server")
	if tab != nil {
		after := tab.spent()
		b.ReportMetric(share(after.script+after.layout-before.script-before.layout), "%script+layout")
		b.ReportMetric(share(after.all-before.all), "%all")
	}
}

// BenchmarkFirstView loads the page again and again, as a browser does that has its files: how long it takes until the kinds are on
// screen. That's when the first frame that has their rows is presented, as the browser's element timing says it: after script,
// layout, paint and raster. Each load begins when the one before has its counts. ms/shown counts from the beginning of the navigation, ms/shown-after-load from the end of the load event.
func BenchmarkFirstView(b *testing.B) {
	s := start(b)
	p := open(b, s.url+"/console", performance.Enable())
	p.see("ConfigMap")
	var shown, afterLoad float64
	for b.Loop() {
		p.await(`[...document.querySelectorAll(".count")].every((n) => n.innerText !== "·")`) // the load before is over
		p.do(chromedp.Reload())
		times := p.eval(`new Promise((go) => new PerformanceObserver((seen) => {
			const rows = seen.getEntries()[0].renderTime, load = performance.getEntriesByType("navigation")[0].loadEventEnd;
			go([rows, rows - load]);
		}).observe({ type: "element", buffered: true }))`).([]any)
		shown += times[0].(float64)
		afterLoad += times[1].(float64)
	}
	last := p.spent() // counted from the last load
	b.ReportMetric(shown/float64(b.N), "ms/shown")
	b.ReportMetric(afterLoad/float64(b.N), "ms/shown-after-load")
	b.ReportMetric(float64(last.script.Microseconds())/1000, "ms-script/view")
	b.ReportMetric(float64(last.layout.Microseconds())/1000, "ms-layout/view")
}

// BenchmarkIdleView is what a server takes for a page that shows kinds, and for one that shows objects, while nothing happens.
func BenchmarkIdleView(b *testing.B) {
	for _, view := range []string{"kinds", "objects?pane=core/v1/configmaps"} {
		b.Run(strings.SplitN(view, "?", 2)[0], func(b *testing.B) {
			s := start(b)
			p := open(b, s.url+"/console#/"+view)
			p.await(`document.querySelectorAll("main *").length > 20`)
			seconds := 10
			if testing.Short() {
				seconds = 1
			}
			for b.Loop() {
				before := processorTime(b, s.cmd.Process.Pid)
				time.Sleep(time.Duration(seconds) * time.Second)
				b.ReportMetric(100*(processorTime(b, s.cmd.Process.Pid)-before).Seconds()/float64(seconds), "%server")
			}
		})
	}
}

// processorTime is what a process has used of its processors.
func processorTime(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // a tick of the kernel
}
