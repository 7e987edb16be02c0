package controllers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAlarms: by the machine's clock keys are queued when their time has come, the earliest of several times counts, and what waits is
// nothing to do yet.
func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		a, began := newAlarms(nil), time.Now()
		a.set("first", began.Add(3*time.Second))
		var got []string
		running.Go(func() {
			a.run(ctx, func(key string) { got = append(got, key+" after "+time.Since(began).String()) })
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
		time.Sleep(time.Hour) // of the test's own time
		synctest.Wait()
		if want := []string{"first after 1s", "second after 2s"}; !slices.Equal(got, want) || len(a.at) > 0 {
			t.Errorf("queued %q, want %q; left are %v", got, want, a.at)
		}
	})
}
