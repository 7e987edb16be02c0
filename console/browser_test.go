package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take for what a test waits for.
const patience = 20 * time.Second

// The browser that all tests use, in which each has a page of its own.
var (
	browserOnce sync.Once
	browser     context.Context
	stopBrowser = func() {}
)

// page is a tab.
type page struct {
	t   testing.TB
	ctx context.Context
}

// open opens an address in a tab of its own. The test fails if the page logs an error or throws one.
func open(t testing.TB, address string, before ...chromedp.Action) *page {
	t.Helper()
	browserOnce.Do(func() {
		options := chromedp.DefaultExecAllocatorOptions[:]
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox) // which needs another user
		}
		allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
		browser, _ = chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // of events that are newer than the package
		stopBrowser = stop
		if err := chromedp.Run(browser); err != nil {
			t.Fatalf("chromium doesn't start: %v", err)
		}
	})
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	if err := chromedp.Run(ctx); err != nil { // the tab lives as long as the context of its first Run
		t.Fatal(err)
	}
	p := &page{t, ctx}
	chromedp.ListenTarget(ctx, p.hear)
	p.do(append([]chromedp.Action{log.Enable(), emulation.SetDeviceMetricsOverride(1280, 800, 1, false)}, append(before, chromedp.Navigate(address))...)...)
	return p
}

// hear fails the test on what the page complains of. That an answer was a refusal isn't a fault of the page.
func (p *page) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.t.Errorf("the page throws: %s", e.ExceptionDetails.Exception.Description)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError && e.Entry.Source != log.SourceNetwork {
			p.t.Errorf("the page logs: %s", e.Entry.Text)
		}
	}
}

func (p *page) do(actions ...chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns what a script says.
func (p *page) eval(script string) any {
	p.t.Helper()
	result, err := p.try(script)
	if err != nil {
		p.t.Fatal(err)
	}
	return result
}

// visit goes to another address of the console, as a link in it does.
func (p *page) visit(address string) {
	p.t.Helper()
	p.eval(fmt.Sprintf("void (location.href = %q)", address))
}

// try returns what a script says, or an error where the page is about to be another one.
func (p *page) try(script string) (result any, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	err = chromedp.Run(ctx, chromedp.Evaluate(script, &result, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return result, err
}

// await waits until a script says true.
func (p *page) await(script string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if got, _ := p.try(script); got == true {
			return
		} else if time.Now().After(deadline) {
			p.t.Fatalf("never true: %s (%v) at %s\n%s", script, got, p.eval("location.hash"), p.eval("document.body.innerText.slice(0, 3000)"))
		}
	}
}

// see waits until the page has a text.
func (p *page) see(text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// key presses keys, one after the other.
func (p *page) key(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		p.do(chromedp.KeyEvent(k))
	}
}

// rows returns the texts of the rows on screen, in the order in which they're shown.
func (p *page) rows() string {
	p.t.Helper()
	return strings.TrimSpace(fmt.Sprint(p.eval(`[...document.querySelectorAll(".space .row")].filter((r) => r.style.display !== "none")
		.sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((r) => [...r.children].map((c) => c.textContent).join(" ")).join("\n")`)))
}
