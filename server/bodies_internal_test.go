package server

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/apiserver-lite/apiserver-lite/fair"
)

// TestBodiesOfOneFlow: whoever sends large bodies has half of the room, however many they are, and who leaves the queue
// gives nothing away that isn't there.
func TestBodiesOfOneFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bodies
		const half = maxBodies / 2
		ann, bob := fair.Flow{Who: "ann"}, fair.Flow{Who: "bob"}
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.enter(ctx, ann, half); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		for range 3 {
			go func() { ended <- b.enter(ctx, ann, half) }()
		}
		synctest.Wait()
		if err := b.enter(ctx, bob, half); err != nil { // which would wait for ever behind ann's
			t.Fatal(err)
		}
		b.leave(ann, half)
		if err := <-ended; err != nil {
			t.Errorf("the next of the same flow: %v", err)
		}
		cancel()
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("a request whose client has left got room that there isn't")
			}
		}
		b.leave(ann, half)
		b.leave(bob, half)
		if b.taken != 0 || len(b.flows) != 0 || len(b.waiting) != 0 {
			t.Errorf("in the end %d bytes are taken by %v, and %d wait", b.taken, b.flows, len(b.waiting))
		}
	})
}
