package recording

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSchedule: whatever changes touch, each is done once, after all earlier ones that have for themselves what it touches, or touch what it has
// for itself.
func TestSchedule(t *testing.T) {
	t.Parallel()
	const changes, workers, window = 20_000, 16, 64
	s := newSchedule(window)
	own, shares := make([][]string, changes), make([][]string, changes)
	for i := range changes {
		own[i] = []string{fmt.Sprint(rand.N(20))}
		for range rand.N(3) {
			if key := fmt.Sprint(rand.N(20)); key != own[i][0] {
				shares[i] = append(shares[i], key)
			}
		}
		if rand.N(50) == 0 {
			own[i] = append(own[i], "all")
		} else {
			shares[i] = append(shares[i], "all")
		}
	}
	meet := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(key string) bool { return slices.Contains(b, key) })
	}
	var mu sync.Mutex // guards both below
	done, all := make([]bool, changes), 0
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for c := range s.ready {
				mu.Lock()
				for before := max(0, c.at-window); before < c.at; before++ { // few that are older can be undone
					waits := meet(own[before], own[c.at]) || meet(own[before], shares[c.at]) || meet(shares[before], own[c.at])
					if waits && !done[before] {
						t.Errorf("change %d begins before %d is done", c.at, before)
					}
				}
				mu.Unlock()
				for range rand.N(10) {
					runtime.Gosched() // so that others overtake it
				}
				mu.Lock()
				if done[c.at] {
					t.Errorf("change %d is done twice", c.at)
				}
				done[c.at] = true
				all++
				mu.Unlock()
				s.finish(c)
			}
		})
	}
	for i := range changes {
		if err := s.add(t.Context(), &change{at: i, size: 1}, own[i], shares[i]); err != nil {
			t.Fatal(err)
		}
	}
	s.idle()
	close(s.ready)
	working.Wait()
	if all != changes || len(s.slots) > 0 || s.bytes != 0 {
		t.Errorf("%d of %d changes are done, and %d slots and %d bytes are left", all, changes, len(s.slots), s.bytes)
	}
}

// TestWindow: large changes wait for room, and one that is larger than all of it comes alone.
func TestWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(windowChanges)
		var added []int
		go func() {
			for i, size := range []int{windowBytes / 2, windowBytes / 2, 1, 2 * windowBytes} {
				if err := s.add(t.Context(), &change{at: i, size: size}, []string{fmt.Sprint(i)}, nil); err != nil {
					t.Error(err)
				}
				added = append(added, i)
			}
		}()
		for _, want := range [][]int{{0, 1}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2, 3}} {
			synctest.Wait()
			if !slices.Equal(added, want) {
				t.Errorf("%v are added, want %v", added, want)
			}
			s.finish(<-s.ready)
		}
	})
}

// TestPace: changes are as far apart as they were recorded, divided by the speed, and what is late comes at once.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pace
		began, recorded := time.Now(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, test := range []struct{ at, want time.Duration }{{0, 0}, {20 * time.Second, 2 * time.Second}, {10 * time.Second, 2 * time.Second}, {time.Hour, 6 * time.Minute}} {
			if err := p.wait(t.Context(), recorded.Add(test.at), 10); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got != test.want {
				t.Errorf("a change of %v is replayed after %v, want %v", test.at, got, test.want)
			}
		}
	})
}
