package inflight_test

import (
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/inflight"
)

// TestInflight: after drain nobody is let in, and it's over when all but the watches have left.
func TestInflight(t *testing.T) {
	f := inflight.New()
	for _, class := range []inflight.Class{inflight.Read, inflight.Write, inflight.Long} {
		if !f.Enter(class) {
			t.Fatal("refused before the end")
		}
	}
	idle := f.Drain()
	for _, class := range []inflight.Class{inflight.Read, inflight.Write, inflight.Long} {
		if f.Enter(class) {
			t.Errorf("class %d is let in while draining", class)
		}
	}
	f.Leave(inflight.Read)
	select {
	case <-idle:
		t.Error("idle with a write under way")
	default:
	}
	f.Leave(inflight.Write)
	select {
	case <-idle: // the watch doesn't count
	default:
		t.Error("not idle when all are done")
	}
	f.Leave(inflight.Long)
}

func TestInflightAtOnce(t *testing.T) {
	f := inflight.New()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for range 100 {
				if f.Enter(inflight.Class(i % int(inflight.Classes))) {
					f.Leave(inflight.Class(i % int(inflight.Classes)))
				}
			}
		})
	}
	all.Go(func() { <-f.Drain() })
	all.Wait()
	if got := f.Now(inflight.Read) + f.Now(inflight.Write) + f.Now(inflight.Long); got != 0 {
		t.Errorf("%d are left", got)
	}
}
