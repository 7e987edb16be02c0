package width_test

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What one request may cost: of CPU, of all of the process, and of the heap, garbage included. With the race detector, or beside other
// programs, all work costs several times as much CPU: there the bound is so many yardsticks, if that is more. What grows with the square of
// a list is caught all the same.
const (
	maxCPU        = time.Second
	maxYardsticks = 30
	maxHeap       = 300 << 20
	// deadlyHeap is where the test ends at once: soon after it, the system would end other programs instead.
	deadlyHeap = 4 << 30
)

// cost is what something has cost.
type cost struct {
	cpu, most time.Duration // what it has used, and what it might
	heap      uint64        // at most at a time, beyond what was there before
}

// measure does something, which has a name, and says what that has cost the process.
func measure(t testing.TB, name string, do func()) cost {
	t.Helper()
	debug.FreeOSMemory()
	before, begun := heap(), cpu(t)
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := uint64(0)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			if most = max(most, heap()); most > deadlyHeap {
				panic(fmt.Sprintf("%s: %s: the heap has %d MB", t.Name(), name, most>>20))
			}
			select {
			case <-tick.C:
			case <-stop:
				peak <- max(most, heap())
				return
			}
		}
	}()
	do()
	used := cpu(t) - begun
	close(stop)
	most := <-peak
	c := cost{cpu: used, most: maxCPU, heap: most - min(most, before)}
	if c.cpu > maxCPU {
		c.most = max(maxCPU, maxYardsticks*yardstick(t))
	}
	return c
}

// yardstick is what a piece of work that never changes costs at the moment.
func yardstick(t testing.TB) time.Duration {
	t.Helper()
	begun := cpu(t)
	var v any
	if err := json.Unmarshal([]byte("["+strings.Repeat(`{"name":"a","value":1},`, 50_000)+"0]"), &v); err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(v); err != nil {
		t.Fatal(err)
	}
	return cpu(t) - begun
}

// measureAgain measures once more what seems to cost too much: on a busy machine the garbage collector comes late, and what it
// hasn't taken yet isn't the request's. undo is called after each time.
func measureAgain(t testing.TB, name string, do, undo func()) cost {
	t.Helper()
	c := measure(t, name, do)
	undo()
	if c.tooMuch() {
		c = measure(t, name, do)
		undo()
	}
	return c
}

// heap is what the heap has of the machine's memory now.
func heap() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples)
	sum := uint64(0)
	for _, s := range samples {
		sum += s.Value.Uint64()
	}
	return sum
}

// cpu is what the process has used.
func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// check fails the test if a cost is beyond the bounds.
func check(t *testing.T, name string, c cost) {
	t.Helper()
	if c.tooMuch() {
		t.Errorf("%s: %v of CPU and %d MB, at most %v and %d MB", name, c.cpu.Round(time.Millisecond), c.heap>>20, c.most, maxHeap>>20)
	}
}

// tooMuch tells whether a cost is beyond the bounds.
func (c cost) tooMuch() bool { return c.cpu > c.most || c.heap > maxHeap }
