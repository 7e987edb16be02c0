package controllers

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAlarms: by the machine's clock keys are queued when their time has come, the earliest of several times counts, and what waits is
// nothing to do yet. A key that is set while it's queued is queued again.
func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		a, began := newAlarms(nil), time.Now()
		a.set("first", began.Add(3*time.Second))
		queued := make(chan string)
		running.Go(func() {
			a.run(ctx, func(key string) {
				if key == "first" && time.Since(began) < 2*time.Second { // as a worker does that is quick
					a.set("first", began.Add(3*time.Second))
				}
				queued <- key + " after " + time.Since(began).String()
			})
		})
		synctest.Wait()
		a.set("second", began.Add(2*time.Second))
		a.set("first", began.Add(time.Second))
		a.set("first", began.Add(4*time.Second))
		a.set("never", time.Time{})
		synctest.Wait()
		if a.ringing() {
			t.Error("something is due")
		}
		for _, want := range []string{"first after 1s", "second after 2s", "first after 3s"} {
			if got := <-queued; got != want {
				t.Errorf("queued %q, want %q", got, want)
			}
		}
		synctest.Wait()
		if len(a.at) > 0 || a.ringing() {
			t.Errorf("left are %v", a.at)
		}
	})
}
