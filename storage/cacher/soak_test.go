//go:build soak

package cacher

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// soak is how long TestSoak runs: the environment's SOAK, or ten minutes.
func soak(t *testing.T) time.Duration {
	d, err := time.ParseDuration(os.Getenv("SOAK"))
	if os.Getenv("SOAK") == "" {
		return 10 * time.Minute
	}
	if err != nil {
		t.Fatal("SOAK must be a duration: ", err)
	}
	return d
}

// TestSoak runs the model over and over, with ever new seeds; before that, for a tenth of the time, writers as
// fast as they go, whom the feed must follow.
func TestSoak(t *testing.T) {
	end := time.Now().Add(soak(t))
	t.Run("the feed keeps up", func(t *testing.T) { soakFeed(t, soak(t)/10) })
	t.Run("watches opened and dropped", soakDropped)
	for seed := uint64(1000); time.Now().Before(end) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("model, seed ", seed), func(t *testing.T) { runModel(t, seed, 1) })
	}
}

// maxLag is how many revisions the feed may be behind at the highest write rate.
const maxLag = 10_000

func soakFeed(t *testing.T, d time.Duration) {
	r := newRig(t, defaultBounds)
	end := time.Now().Add(d)
	var worst atomic.Int64
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			key := fmt.Sprintf("%sns1/w%d", widgets, w)
			rev, err := r.store.Create(t.Context(), key, widget(fmt.Sprint("w", w), `"tier":"front"`))
			for i := 0; err == nil && time.Now().Before(end); i++ {
				rev, err = r.store.Update(t.Context(), key, widget(fmt.Sprint("w", w), fmt.Sprintf(`"n":"%d"`, i)), rev)
				newest, err := r.store.Barrier(t.Context())
				if err != nil {
					t.Error(err)
				}
				if lag := int64(newest - r.cacher.Position()); lag > worst.Load() {
					worst.Store(lag)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d writes, the feed was at most %d revisions behind", r.store.Current(), worst.Load())
	if worst.Load() > maxLag {
		t.Errorf("the feed was %d revisions behind", worst.Load())
	}
}

// soakDropped opens and drops many watches; what they took must come back.
func soakDropped(t *testing.T) {
	r := newRig(t, defaultBounds)
	key := string(widgets) + "ns1/a"
	rev, err := r.store.Create(t.Context(), key, widget("a", `"tier":"front"`))
	if err != nil {
		t.Fatal(err)
	}
	round := func() (goroutines int, heap uint64) {
		var cursors []*Cursor
		for i := range 10_000 {
			q := query{name: fmt.Sprint("w", i)}
			if i%2 == 0 {
				q = query{labels: "tier=front"}
			}
			c, err := r.cacher.Resource(widgets).Open(t.Context(), q.options(t))
			if err != nil {
				t.Fatal(err)
			}
			cursors = append(cursors, c)
		}
		if rev, err = r.store.Update(t.Context(), key, widget("a", `"tier":"back"`), rev); err != nil {
			t.Fatal(err)
		}
		for _, c := range cursors {
			c.Close()
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapInuse
	}
	goroutines, heap := round()
	for range 9 {
		g, h := round()
		if float64(g) > 1.1*float64(goroutines)+2 {
			t.Errorf("%d goroutines, at first there were %d", g, goroutines)
		}
		if float64(h) > 1.1*float64(heap)+float64(8<<20) {
			t.Errorf("%d bytes of heap, at first there were %d", h, heap)
		}
	}
	if n := len(r.cacher.Resource(widgets).groups); n != 0 {
		t.Errorf("%d groups are left", n)
	}
}
