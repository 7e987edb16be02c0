package server_test

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// pastOthers is how many writes of others BenchmarkHistory has between an object's versions, which are a thousand:
//
//	go test ./server -run '^$' -bench History -past-others 1000
var pastOthers = flag.Int("past-others", 10, "writes of others between an object's versions in BenchmarkHistory")

// BenchmarkHistory reads the history of an object of 1 KB that has a thousand versions, on disk, among the writes of others: all of it, a page of
// 50, and that of an object that was deleted and created before all those.
func BenchmarkHistory(b *testing.B) {
	s := newWidgets(b, func(s *server.Server) { s.Data.Ephemeral = false })
	body := func(name string, i int) string {
		padding := 700
		if strings.HasPrefix(name, "other-") {
			padding = 0 // so that history has room for a million
		}
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"n":"%d","k":%q}}`, name, i, strings.Repeat("x", padding))
	}
	do := func(method, path, body string) {
		if r, text := s.Do(method, path, body); r.StatusCode > http.StatusCreated {
			b.Error(text)
		}
	}
	do(http.MethodPost, configMaps, body("reborn", 0))
	do(http.MethodDelete, configMaps+"/reborn", "")
	do(http.MethodPost, configMaps, body("reborn", 1))
	do(http.MethodPost, configMaps, body("a", 0))
	const writers = 32
	for w := range writers {
		do(http.MethodPost, configMaps, body(fmt.Sprint("other-", w), 0))
	}
	versions := sized(1000)
	for i := 1; i < versions; i++ {
		do(http.MethodPut, configMaps+"/a", body("a", i))
		var all sync.WaitGroup
		for w := range min(writers, *pastOthers) {
			all.Go(func() {
				for n := w; n < *pastOthers; n += writers {
					do(http.MethodPut, fmt.Sprint(configMaps, "/other-", w), body(fmt.Sprint("other-", w), i*1_000_000+n))
				}
			})
		}
		all.Wait()
	}
	for _, c := range []struct {
		name, path string
		items      int
	}{{"all", "/a?history=true", versions}, {"page", "/a?history=true&limit=50", 50}, {"former life", "/reborn?history=true", 3}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if n := strings.Count(s.Get(configMaps+c.path), `"change"`); n != c.items {
					b.Fatalf("%d items", n)
				}
			}
		})
	}
}

// BenchmarkPast lists 10,000 objects of 1 KB, on disk: as they are, and as they were before each was written again, by a version and by the clock.
func BenchmarkPast(b *testing.B) {
	s := servertest.New(b, func(s *server.Server) { s.Data.Ephemeral = false })
	objects := sized(10_000)
	write := func(method string, path func(name string) string, round int) {
		var all sync.WaitGroup
		for w := range 32 {
			all.Go(func() {
				for i := w; i < objects; i += 32 {
					name := fmt.Sprint("c", i)
					body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"n":"%d","k":%q}}`, name, round, strings.Repeat("x", 700))
					if r, text := s.Do(method, path(name), body); r.StatusCode > http.StatusCreated {
						b.Error(text)
					}
				}
			})
		}
		all.Wait()
	}
	write(http.MethodPost, func(string) string { return configMaps }, 0)
	version := fmt.Sprint(versionIn(s.Get(configMaps)))
	instant := time.Now()
	for time.Since(instant) < 3*time.Second { // by then the server has looked at its clock
		s.Get("/readyz")
	}
	instant = instant.Add(2 * time.Second)
	write(http.MethodPut, func(name string) string { return configMaps + "/" + name }, 1)
	for _, c := range []struct{ name, query string }{
		{"now", ""},
		{"version", "?resourceVersion=" + version + "&resourceVersionMatch=Exact"},
		{"at", "?at=" + instant.UTC().Format(time.RFC3339)},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if n := strings.Count(s.Get(configMaps+c.query), `"name":"c`); n != objects {
					b.Fatalf("%d items", n)
				}
			}
		})
	}
}
