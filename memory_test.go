package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestPercentFor: a small heap may grow to leastHeap before it's collected, a larger one by three quarters, and by more while much is
// allocated.
func TestPercentFor(t *testing.T) {
	for _, tt := range []struct {
		name string
		live int
		rate float64 // MiB a second
		want int
	}{
		{"nothing is known yet", 0, 0, 75},
		{"a byte", 1, 0, 64<<20*100 - 100},
		{"a new server's", 12 << 20, 0, 433},
		{"the largest that grows by more", 36 << 20, 0, 77},
		{"three quarters", 37 << 20, 0, 75},
		{"as much as is collected first", 64 << 20, 0, 75},
		{"large", 4 << 30, 0, 75},
		{"a new server's, and little is allocated", 12 << 20, 100, 433},
		{"a new server's, and much is allocated", 12 << 20, 300, 750},
		{"much", 64 << 20, 400, 187},
		{"very much", 64 << 20, 4000, 200},
		{"large, and very much", 4 << 30, 4000, 75},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := percentFor(tt.live, tt.rate*(1<<20)); got != tt.want {
				t.Errorf("with %d bytes in use, and %v MiB allocated in a second, it's %d %%, want %d %%", tt.live, tt.rate, got, tt.want)
			}
		})
	}
}

// TestCollectionsAfterABurst: the heap grows by more while much is allocated, and is collected when that's over.
func TestCollectionsAfterABurst(t *testing.T) {
	t.Cleanup(func() { debug.SetGCPercent(unset) })
	c := &collector{percent: unset, looked: time.Now(), allocated: heap().allocated}
	keep := make([]byte, leastHeap)
	c.looked = time.Now().Add(-time.Millisecond) // 64 MiB within it
	runtime.GC()
	c.collected()
	c.calm.Stop() // the test calls what it calls
	if c.percent <= growth {
		t.Errorf("while much is allocated, GOGC is %d %%", c.percent)
	}
	c.calmed()
	if c.percent > growth+leastStep {
		t.Errorf("when it's calm, GOGC is %d %%", c.percent)
	}
	runtime.KeepAlive(keep)
}
