package fair

import (
	"context"
	"slices"
	"sync"
)

// Weights is a semaphore weighted by what each takes. One flow may have half of it, and nothing that is
// heavier than that gets in: so what one has never waits for another one's alone. Who waits is served in order, past those whose flow has its half.
type Weights struct {
	Most int // together

	mu      sync.Mutex // guards the following
	taken   int
	flows   map[Flow]int // what each flow has taken; none with 0
	waiting []*weightWait
}

// weightWait is somebody who waits for room.
type weightWait struct {
	flow   Flow
	weight int
	room   chan struct{} // closed when it has got it
}

// Enter waits until there is room. Leave must follow its nil. The error is ctx's.
func (b *Weights) Enter(ctx context.Context, flow Flow, weight int) error {
	me := &weightWait{flow: flow, weight: weight, room: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, me)
	b.grantLocked()
	b.mu.Unlock()
	select {
	case <-me.room:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, me); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.grantLocked()
	} else { // it was granted meanwhile
		b.leaveLocked(flow, weight)
	}
	return ctx.Err()
}

// Leave gives back what Enter gave.
func (b *Weights) Leave(flow Flow, weight int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaveLocked(flow, weight)
}

func (b *Weights) leaveLocked(flow Flow, weight int) {
	b.taken -= weight
	if b.flows[flow] -= weight; b.flows[flow] == 0 {
		delete(b.flows, flow)
	}
	b.grantLocked()
}

// grantLocked gives room to who waits, in order. A flow that has its half is passed over; what doesn't fit yet isn't, or
// what is heavy would wait forever.
func (b *Weights) grantLocked() {
	for i := 0; i < len(b.waiting); {
		w := b.waiting[i]
		if b.flows[w.flow]+w.weight > b.Most/2 {
			i++
			continue
		}
		if b.taken+w.weight > b.Most {
			return
		}
		if b.flows == nil {
			b.flows = map[Flow]int{}
		}
		b.taken += w.weight
		b.flows[w.flow] += w.weight
		b.waiting = slices.Delete(b.waiting, i, i+1)
		close(w.room)
	}
}
