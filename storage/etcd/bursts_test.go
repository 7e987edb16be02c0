package etcd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestBursts: few writes go at once, more of them in bursts, and none waits for longer than burstWait.
func TestBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bursts
		type sent struct {
			in    *burst
			after time.Duration
		}
		begin := func(ctx context.Context, n int) <-chan sent {
			began, all := time.Now(), make(chan sent, n)
			for range n {
				go func() {
					in := b.enter(ctx)
					all <- sent{in, time.Since(began)}
				}()
			}
			synctest.Wait()
			return all
		}
		expect := func(what string, writes <-chan sent, n int) {
			t.Helper()
			synctest.Wait()
			if len(writes) != n {
				t.Fatalf("%s: %d writes went, want %d", what, len(writes), n)
			}
		}
		answer := func(writes <-chan sent, n int) {
			for range n {
				b.leave((<-writes).in)
			}
			synctest.Wait()
		}
		few := begin(t.Context(), fewWrites)
		expect("few", few, fewWrites)
		var alone [mostBursts]<-chan sent
		for i := range alone {
			alone[i] = begin(t.Context(), 1)
			expect("a burst of one", alone[i], 1)
		}

		waiting := begin(t.Context(), 30)
		expect("while bursts are under way", waiting, 0)
		answer(few, fewWrites)
		expect("when others were answered", waiting, 0)
		answer(alone[0], 1)
		expect("when a burst was answered", waiting, 30)
		later := begin(t.Context(), 10)
		answer(waiting, 29)
		expect("before a burst is answered as a whole", later, 0)
		answer(waiting, 1)
		expect("when it is", later, 10)

		late := begin(t.Context(), 5)
		expect("behind bursts that aren't answered", late, 0)
		time.Sleep(burstWait)
		expect("after burstWait", late, 5)
		if first := <-late; first.after != burstWait {
			t.Errorf("a write waited for %v, want %v", first.after, burstWait)
		} else {
			b.leave(first.in)
		}

		ctx, cancel := context.WithCancel(t.Context())
		ended := begin(ctx, 3)
		cancel()
		expect("whose clients are gone", ended, 3)
		answer(ended, 3)
		answer(late, 4)
		answer(later, 10)
		answer(alone[1], 1)
		if b.writes != 0 || b.underWay != 0 || b.next != nil {
			t.Errorf("when all were answered: %d writes, %d bursts, and %v waits", b.writes, b.underWay, b.next)
		}
	})
}
