package etcd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// TestBursts: few writes go at once, more of them in bursts, and none waits for longer than burstWait.
func TestBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bursts
		type gone struct {
			in    *burst
			after time.Duration
		}
		begin := func(ctx context.Context, n int) <-chan gone {
			began, all := time.Now(), make(chan gone, n)
			for range n {
				go func() {
					in := b.enter(ctx)
					all <- gone{in, time.Since(began)}
				}()
			}
			synctest.Wait()
			return all
		}
		expect := func(what string, writes <-chan gone, n int) {
			t.Helper()
			synctest.Wait()
			if len(writes) != n {
				t.Fatalf("%s: %d writes went, want %d", what, len(writes), n)
			}
		}
		answer := func(writes <-chan gone, n int) {
			for range n {
				b.leave((<-writes).in)
			}
		}
		ctx := t.Context()
		few := begin(ctx, fewWrites)
		expect("few", few, fewWrites)
		first, second := begin(ctx, 1), begin(ctx, 1)
		expect("a burst of one", first, 1)
		expect("another one", second, 1)

		third := begin(ctx, 30)
		expect("while two bursts are out", third, 0)
		answer(first, 1)
		expect("when one is back", third, 30)
		fourth := begin(ctx, 10)
		answer(third, 29)
		expect("while one answer is missing", fourth, 0)
		answer(third, 1)
		expect("when it's there", fourth, 10)

		// second and fourth are out and stay so.
		ended, cancel := context.WithCancel(ctx)
		unsent := begin(ended, 3)
		cancel()
		expect("whose clients are gone", unsent, 3)
		answer(unsent, 1)
		time.Sleep(burstWait / 2)
		late := begin(ctx, 5)
		answer(unsent, 2)
		expect("in a burst that some have left", late, 0)
		time.Sleep(burstWait / 2)
		expect("when the others are out for burstWait", late, 5)
		if w := <-late; w.after != burstWait/2 {
			t.Errorf("a write waited for %v, want %v", w.after, burstWait/2)
		} else {
			b.leave(w.in)
		}
		answer(second, 1)
		answer(fourth, 10)
		if b.out != 1 {
			t.Errorf("%d bursts are out, want one: those that come back late have given their places away", b.out)
		}
		answer(late, 4)

		fifth, sixth := begin(ctx, 1), begin(ctx, 1)
		ended, cancel = context.WithCancel(ctx)
		unsent = begin(ended, 3)
		cancel()
		answer(unsent, 3)
		answer(fifth, 1)
		answer(sixth, 1)
		answer(few, fewWrites)
		if b.writes != 0 || b.out != 0 || b.next != nil {
			t.Errorf("when all were answered: %d writes, %d bursts are out, some wait: %v", b.writes, b.out, b.next != nil)
		}
	})
}

// TestBurstsOfTransactions: a member's transactions are counted from when they're committed until they end.
func TestBurstsOfTransactions(t *testing.T) {
	s := openMember(t)
	const n = fewWrites + mostBursts + 1
	got := make(chan struct{}, n)
	deaf := func(ctx context.Context, _ kv.Call) error { // it answers nothing before the context ends
		got <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	client := kv.Through(s.cluster.layer, kv.Through(deaf, s.Client.KV))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, n)
	for range n {
		go func() {
			_, err := client.Txn(ctx).Commit()
			ended <- err
		}()
	}
	for range n {
		<-got
	}
	count := func() int {
		s.cluster.bursts.mu.Lock()
		defer s.cluster.bursts.mu.Unlock()
		return s.cluster.bursts.writes
	}
	if got := count(); got != n {
		t.Errorf("%d transactions are under way, want %d", got, n)
	}
	cancel()
	for range n {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
	}
	if got := count(); got != 0 {
		t.Errorf("%d transactions are under way when all have ended", got)
	}
}
