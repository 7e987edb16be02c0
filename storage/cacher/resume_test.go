package cacher

import (
	"fmt"
	"testing"
	"time"
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
