package main

import (
	"bytes"
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var (
	update  = flag.Bool("update", false, "write the pictures in testdata anew")
	picture = flag.String("picture", "", "a file that gets the README's picture")
)

const (
	// pixelTolerance is how far one of a pixel's colours may be from that of the picture, of 65,535: fonts are drawn a little differently.
	pixelTolerance = 24_000
	// pictureTolerance is which part of the pixels may be further away than that: letters that are elsewhere, ages, versions.
	pictureTolerance = 0.03
	// mostPicture is how large the README's picture may be, in bytes.
	mostPicture = 150_000
)

// shade has the system prefer light or dark, and nothing move.
func shade(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}})
}

// TestPictures: the views look as they did: light and dark, wide and narrow.
func TestPictures(t *testing.T) {
	s := start(t)
	s.defineWidgets()
	for i := range 30 {
		s.ask("POST", widgetsPath, widget(fmt.Sprintf("widget-%02d", i), 1+i*3%90))
	}
	p := open(t, s.url+"/console")
	for _, look := range []struct {
		name, shade, address, ready string
		width                       int64
	}{
		{"kinds-light", "light", "/console#/kinds", `document.querySelectorAll("data[value='30']").length > 0`, 1280},
		{"objects-dark", "dark", "/console#/objects?pane=example.com/v1/widgets", `document.body.innerText.includes("30 objects · live")`, 1280},
		{"form-light", "light", "/console#/definitions/example.com/v1/widgets?tab=form", `!!document.getElementById("f-spec.size")`, 1280},
		{"schema-dark", "dark", "/console#/definitions/example.com/v1/widgets", `document.body.innerText.includes("How large it is.")`, 1280},
		{"objects-narrow", "light", "/console#/objects?pane=example.com/v1/widgets", `document.body.innerText.includes("30 objects · live")`, 375},
	} {
		t.Run(look.name, func(t *testing.T) {
			p := &page{t, p.ctx}
			p.do(emulation.SetDeviceMetricsOverride(look.width, 800, 1, false), shade(look.shade))
			p.visit(s.url + look.address)
			p.await(look.ready)
			p.await(`document.fonts.ready.then(() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => go(true)))))`)
			var got []byte
			p.do(chromedp.CaptureScreenshot(&got))
			file := filepath.Join("testdata", look.name+".png")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if differs := difference(t, want, got); differs > pictureTolerance {
				made := filepath.Join(os.TempDir(), "console-"+look.name+".png")
				os.WriteFile(made, got, 0o644)
				t.Errorf("%.1f%% of the pixels differ from %s: see %s, and run go test -run TestPictures -update if it's as it should be", 100*differs, file, made)
			}
		})
	}
}

// difference returns which part of the pixels of two pictures differ by more than pixelTolerance.
func difference(t *testing.T, want, got []byte) float64 {
	t.Helper()
	a, err := png.Decode(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	b, err := png.Decode(bytes.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	if a.Bounds() != b.Bounds() {
		t.Errorf("the picture has %v, and should have %v", b.Bounds(), a.Bounds())
		return 1
	}
	far := func(x, y uint32) bool { return max(x, y)-min(x, y) > pixelTolerance }
	n := 0
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y++ {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x++ {
			r1, g1, b1, _ := a.At(x, y).RGBA()
			r2, g2, b2, _ := b.At(x, y).RGBA()
			if far(r1, r2) || far(g1, g2) || far(b1, b2) {
				n++
			}
		}
	}
	return float64(n) / float64(a.Bounds().Dx()*a.Bounds().Dy())
}

// TestReadmePicture: the README's picture is there and small. With -picture it's made anew.
func TestReadmePicture(t *testing.T) {
	if *picture != "" {
		makePicture(t, *picture)
	}
	file, err := os.Stat("../docs/console.png")
	if err != nil || file.Size() > mostPicture {
		t.Errorf("%v, %v", file, err)
	}
}

// makePicture shows two kinds side by side, of which some objects have just changed.
func makePicture(t *testing.T, to string) {
	s := start(t)
	s.defineWidgets()
	for i := range 24 {
		s.ask("POST", widgetsPath, widget(fmt.Sprintf("widget-%02d", i), 1+i*37%90))
	}
	for i, name := range []string{"cart", "catalog", "checkout", "payments", "search", "shipping", "storefront"} {
		s.ask("POST", "/apis/apps/v1/namespaces/default/deployments", fmt.Sprintf(`{metadata: {name: %s, labels: {app: %[1]s}}, spec: {replicas: %d, selector: {matchLabels: {app: %[1]s}},
			template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: main, image: "example.com/%[1]s:1.%d"}]}}}}`, name, 1+i%3, i))
	}
	p := open(t, s.url+"/console", emulation.SetDeviceMetricsOverride(1200, 560, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	p.visit(s.url + "/console#/objects?pane=example.com%2Fv1%2Fwidgets%3Fsort%3D-Size&pane=apps%2Fv1%2Fdeployments")
	p.see("24 objects · live")
	p.see("7 objects · live")
	for _, i := range []int{3, 9, 17} {
		s.ask("PATCH", fmt.Sprintf("%s/widget-%02d", widgetsPath, i), fmt.Sprintf(`{"spec":{"size":%d,"color":"blue"}}`, 60+i), "Content-Type", "application/merge-patch+json")
	}
	s.ask("PATCH", "/apis/apps/v1/namespaces/default/deployments/search", `{"spec":{"replicas":5}}`, "Content-Type", "application/merge-patch+json")
	p.await(`[...document.querySelectorAll(".space .row")].some((r) => r.textContent.includes("0/5"))`)
	var got []byte
	p.do(chromedp.CaptureScreenshot(&got))
	if err := os.WriteFile(to, got, 0o644); err != nil {
		t.Fatal(err)
	}
}
