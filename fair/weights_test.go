package fair

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestBodiesOfOneFlow: whoever sends large bodies has half of the room, however many they are, and who leaves the queue
// gives nothing away that isn't there.
func TestBodiesOfOneFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const half = 256 << 20
		b := Weights{Most: 2 * half}
		ann, bob := Flow{Who: "ann"}, Flow{Who: "bob"}
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.Enter(ctx, ann, half); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		for range 3 {
			go func() { ended <- b.Enter(ctx, ann, half) }()
		}
		synctest.Wait()
		if err := b.Enter(ctx, bob, half); err != nil { // which would wait for ever behind ann's
			t.Fatal(err)
		}
		b.Leave(ann, half)
		if err := <-ended; err != nil {
			t.Errorf("the next of the same flow: %v", err)
		}
		cancel()
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("a request whose client has left got room that there isn't")
			}
		}
		b.Leave(ann, half)
		b.Leave(bob, half)
		if b.taken != 0 || len(b.flows) != 0 || len(b.waiting) != 0 {
			t.Errorf("in the end %d bytes are taken by %v, and %d wait", b.taken, b.flows, len(b.waiting))
		}
	})
}
