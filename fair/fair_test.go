package fair

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var alice, bob = Flow{Who: "alice"}, Flow{Who: "bob"}

// enterAll takes seats one by one until the next would have to wait.
func enterAll(t *testing.T, l *Level, f Flow) (seats []*Seat) {
	t.Helper()
	for {
		s, err := l.Enter(t.Context(), f, 1, 0)
		if errors.Is(err, ErrFull) {
			return seats
		}
		if err != nil {
			t.Fatal(err)
		}
		seats = append(seats, &s)
	}
}

// TestOneFlowLeavesSeats: whatever one flow takes, another finds seats.
func TestOneFlowLeavesSeats(t *testing.T) {
	for most, want := range map[int]int{1: 1, 2: 1, 10: 5, 49: 24, 400: 200} {
		l := NewLevel(Limits{Most: most})
		first := enterAll(t, l, alice)
		if len(first) != want {
			t.Errorf("one flow gets %d of %d seats, want %d", len(first), most, want)
		}
		if _, err := l.Enter(t.Context(), bob, 1, 0); (err == nil) != (most > 1) {
			t.Errorf("the other flow, of %d seats: %v", most, err)
		}
		for _, s := range first {
			s.Leave()
			s.Leave() // again
		}
		if used, _ := l.Now(); used > 1 {
			t.Errorf("%d seats are still taken", used)
		}
	}
}

// TestInTurn: with one seat, a flow that has a hundred requests waiting goes every other time when another one comes.
func TestInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLevel(Limits{Most: 1, PerFlow: 100, Waiting: 200})
		held, err := l.Enter(t.Context(), alice, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan Flow, 8)
		ask := func(f Flow) {
			go func() {
				s, err := l.Enter(t.Context(), f, 1, time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				served <- f
				s.Leave()
			}()
			synctest.Wait()
		}
		for range 4 {
			ask(alice)
		}
		for range 4 {
			ask(bob)
		}
		held.Leave()
		synctest.Wait()
		counts := map[string]int{}
		for i := range 8 {
			counts[(<-served).Who]++
			if d := counts["alice"] - counts["bob"]; d > 1 || d < -1 {
				t.Errorf("after %d: %v", i+1, counts)
			}
		}
	})
}

// TestWaitEnds: a request waits for no longer than it says, and what waits is bounded.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLevel(Limits{Most: 1, PerFlow: 2, Waiting: 3})
		held, _ := l.Enter(t.Context(), alice, 1, 0)
		var all sync.WaitGroup
		wait := func(f Flow, ctx context.Context, want error) {
			all.Go(func() {
				if _, err := l.Enter(ctx, f, 1, time.Second); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		wait(alice, t.Context(), ErrTimeout)
		wait(alice, gone, context.Canceled)
		wait(alice, t.Context(), ErrFull)
		wait(bob, t.Context(), ErrTimeout)
		wait(Flow{Who: "carol"}, t.Context(), ErrFull)
		cancel()
		all.Wait()
		held.Leave()
		if used, waiting := l.Now(); used != 0 || waiting != 0 || len(l.flows) != 0 {
			t.Errorf("%d seats, %d wait, %d flows", used, waiting, len(l.flows))
		}
	})
}

// TestLevels: a level has what is reserved for it, whatever the others take, and more while they leave it.
func TestLevels(t *testing.T) {
	p := NewPool(20)
	leases, rest := p.Add(Limits{Reserved: 4, Most: 4}), p.Add(Limits{Reserved: 6, Most: 26})
	for i := range 10 {
		enterAll(t, rest, Flow{Who: string(rune('a' + i))})
	}
	if used, _ := rest.Now(); used != 26 {
		t.Errorf("%d seats of the large level are taken, want all 26", used)
	}
	if got := len(enterAll(t, leases, alice)); got != 2 {
		t.Errorf("%d of 4 reserved seats, want 2", got)
	}
}

// TestMany: nothing is lost or taken twice, whatever many do at once.
func TestMany(t *testing.T) {
	p := NewPool(5)
	levels := []*Level{p.Add(Limits{Reserved: 2, Most: 7, PerFlow: 50, Waiting: 100}), p.Add(Limits{Reserved: 1, Most: 6, PerFlow: 50, Waiting: 100})}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					cancel()
				}
				s, err := levels[i%2].Enter(ctx, Flow{Who: string(rune('a' + i%5))}, 1+i%3, time.Duration(rand.IntN(1000))*time.Microsecond)
				if err == nil {
					s.Leave()
				}
				cancel()
			}
		})
	}
	all.Wait()
	for _, l := range levels {
		if used, waiting := l.Now(); used != 0 || waiting != 0 || p.lent != 0 || p.waiting != 0 || len(l.flows) != 0 || len(l.queue) != 0 {
			t.Errorf("%d seats, %d wait, %d lent, %d flows", used, waiting, p.lent, len(l.flows))
		}
	}
}

// BenchmarkEnter is what a request pays that needn't wait, and what one pays that does. It reports the process's CPU time.
func BenchmarkEnter(b *testing.B) {
	cpu := func() time.Duration {
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.Run("free", func(b *testing.B) {
		l := NewLevel(Limits{Most: 400})
		b.ReportAllocs()
		before := cpu()
		for b.Loop() {
			s, _ := l.Enter(context.Background(), alice, 1, time.Second)
			s.Leave()
		}
		b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	})
	b.Run("waiting", func(b *testing.B) {
		l := NewLevel(Limits{Most: 1, PerFlow: 1000, Waiting: 1000})
		b.ReportAllocs()
		before := cpu()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s, err := l.Enter(context.Background(), alice, 1, time.Minute)
				if err != nil {
					b.Error(err)
					return
				}
				s.Leave()
			}
		})
		b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	})
}

// TestShare: new limits count for those who wait already, and a level that is gone still serves what it has.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(0)
		old, other := p.Add(Limits{Reserved: 1, Most: 1, PerFlow: 9, Waiting: 9}), p.Add(Limits{Reserved: 1, Most: 1, PerFlow: 9, Waiting: 9})
		held, _ := old.Enter(t.Context(), alice, 1, 0)
		got := make(chan Seat)
		for _, l := range []*Level{old, other, other} {
			go func() {
				s, err := l.Enter(t.Context(), bob, 1, time.Hour)
				if err != nil {
					t.Error(err)
				}
				got <- s
			}()
		}
		first := <-got
		synctest.Wait()
		p.Share(0, map[*Level]Limits{other: {Reserved: 2, Most: 4, PerFlow: 9, Waiting: 9}})
		first.Leave()
		second := <-got
		held.Leave()
		second.Leave()
		p.Share(1, map[*Level]Limits{other: {Reserved: 2, Most: 4}})
		third := <-got
		third.Leave()
		p.Share(1, map[*Level]Limits{other: {Reserved: 2, Most: 4}})
		if len(p.levels) != 1 || p.lent != 0 {
			t.Errorf("%d levels, %d lent", len(p.levels), p.lent)
		}
	})
}
