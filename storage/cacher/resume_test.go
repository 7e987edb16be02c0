package cacher

import (
	"fmt"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// BenchmarkResumeAfterRestart resumes watches from 10,000 events back, right after a restart: the time to the
// first event and to the last, of one client and of a hundred at once, and how often history was read.
func BenchmarkResumeAfterRestart(b *testing.B) {
	const events = 10_000
	for _, clients := range []int{1, 100} {
		b.Run(fmt.Sprint(clients, " clients"), func(b *testing.B) {
			r := newRig(b, defaultBounds)
			key := string(widgets) + "ns1/a"
			from, err := r.store.Create(b.Context(), key, widget("a", `"tier":"front"`))
			for rev := from; rev < from+events && err == nil; {
				rev, err = r.store.Update(b.Context(), key, widget("a", fmt.Sprintf(`"n":"%d"`, rev)), rev)
			}
			if err != nil {
				b.Fatal(err)
			}
			r.restart()
			reads := r.store.Reads()
			opts := query{}.options(b)
			opts.After = from
			var first, all time.Duration
			buf := make([]byte, 0, 80<<10)
			b.ResetTimer()
			for range b.N {
				begin := time.Now()
				for i := range clients {
					c, err := r.cacher.Resource(widgets).Open(b.Context(), opts)
					if err != nil {
						b.Fatal(err)
					}
					for n := 0; n < events; {
						out, wait, err := c.Next(b.Context(), buf)
						if err != nil || wait != nil {
							b.Fatalf("after %d events: %v, %v", n, wait, err)
						}
						if n == 0 && i == 0 {
							first += time.Since(begin)
						}
						n += len(lines(out))
					}
					c.Close()
				}
				all += time.Since(begin)
			}
			b.ReportMetric(float64(first.Microseconds())/1000/float64(b.N), "ms-to-first")
			b.ReportMetric(float64(all.Microseconds())/1000/float64(b.N*clients), "ms-to-all/client")
			b.ReportMetric(float64(r.store.Reads()-reads), "history-reads")
		})
	}
}

// BenchmarkFormerValues reads a stretch of history in which each of 2,048 objects of 1 KB was written once: created there, or before, and then its
// former value is read for it.
func BenchmarkFormerValues(b *testing.B) {
	const objects = 2048
	for _, created := range []bool{true, false} {
		b.Run(fmt.Sprint("created=", created), func(b *testing.B) {
			r := newRig(b, defaultBounds)
			r.cacher.bounds.stretchRevisions = 1 << 20 // all is in one
			text, at := widget("a", `"tier":"front"`), make([]storage.Revision, objects)
			from, err := r.store.Barrier(b.Context())
			for i := 0; i < objects && err == nil; i++ {
				at[i], err = r.store.Create(b.Context(), fmt.Sprint(widgets, "ns1/a", i), text)
			}
			last := at[objects-1]
			for i := 0; i < objects && err == nil && !created; i++ {
				from = at[objects-1]
				last, err = r.store.Update(b.Context(), fmt.Sprint(widgets, "ns1/a", i), text, at[i])
			}
			if err != nil {
				b.Fatal(err)
			}
			h, res := &r.cacher.stretches, r.cacher.Resource(widgets)
			b.ReportAllocs()
			for b.Loop() {
				var s stretch
				if err := h.read(b.Context(), stretchKey{res, from}, last, &s); err != nil || len(s.events) != objects {
					b.Fatalf("%d events, %v", len(s.events), err)
				}
				h.uncount(&s)
			}
		})
	}
}
