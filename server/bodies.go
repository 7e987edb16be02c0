package server

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/fair"
)

// What bodies take in memory, by estimate, while they're decoded, checked and stored.
const (
	// perByte is for each byte of a body: it's there as text, as values, and as what is stored.
	perByte = 8
	// perValue is for each value: the largest type of Kubernetes' with nothing in it, with what is said against it.
	perValue = 2 << 10
	// freeBody is an estimate up to which a body needn't wait: the 600 requests that may have seats take 300 MiB then at
	// worst, so that bodies of any size together stay below 1 GiB. An object of 200 values and 12 KiB is within it.
	freeBody = 512 << 10
	// maxBodies is what all others may take together. The largest body that is taken has half of it.
	maxBodies = 512 << 20
	// maxRaw is what bodies of more than trustedBody take together as they are sent: while they come, and until there is room
	// for what is made of them. It's 42 of the largest.
	maxRaw = 128 << 20
	// rawUnit is what one seat of seats.raw stands for.
	rawUnit = 64 << 10
)

// All of that stays below 1 GiB, with what is on its way of small bodies; otherwise this doesn't compile. One body may go beyond
// maxRaw (package fair).
const _ = uint(1<<30 - maxBodies - maxRaw - maxBody - maxUploads*trustedBody - (DefaultMaxReads+DefaultMaxWrites)*freeBody)

// rawSeats returns how many seats of seats.raw a body takes.
func rawSeats(size int) int { return (size + rawUnit - 1) / rawUnit }

// enterRaw waits until there is room for a body as it's sent. Flows share it, so that slow uploads of one leave room for others.
func (w *response) enterRaw(r *http.Request, size int) (err error) {
	wait := writeDeadline / waitShare
	if deadline, ok := r.Context().Deadline(); ok {
		wait = time.Until(deadline) / waitShare
	}
	w.share.raw, err = enter(r.Context(), w.seats.raw, w.share.flow, rawSeats(size), wait, "too many large bodies are on their way, please try again later")
	return err
}

// bodies is a semaphore weighted by what bodies take. One flow may have half of it, and a body that is larger than that all
// of its half: so what one client sends never waits for another client's bodies alone. Who waits is served in order, past
// those whose flow has its half. The zero value is ready.
type bodies struct {
	mu      sync.Mutex // guards the following
	taken   int
	flows   map[fair.Flow]int // what each flow has taken; none with 0
	waiting []*bodyWait
}

// bodyWait is a request that waits for room.
type bodyWait struct {
	flow   fair.Flow
	weight int
	room   chan struct{} // closed when it has got it
}

// weigh estimates what a body takes.
func weigh(size, values int) int { return min(size*perByte+values*perValue, maxBodies/2) }

// enter waits until there is room. leave must follow its nil. The error is ctx's.
func (b *bodies) enter(ctx context.Context, flow fair.Flow, weight int) error {
	me := &bodyWait{flow: flow, weight: weight, room: make(chan struct{})}
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

func (b *bodies) leave(flow fair.Flow, weight int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaveLocked(flow, weight)
}

func (b *bodies) leaveLocked(flow fair.Flow, weight int) {
	b.taken -= weight
	if b.flows[flow] -= weight; b.flows[flow] == 0 {
		delete(b.flows, flow)
	}
	b.grantLocked()
}

// grantLocked gives room to who waits, in order. A flow that has its half is passed over; what doesn't fit yet isn't, or
// large bodies would wait forever.
func (b *bodies) grantLocked() {
	for i := 0; i < len(b.waiting); {
		w := b.waiting[i]
		if b.flows[w.flow]+w.weight > maxBodies/2 {
			i++
			continue
		}
		if b.taken+w.weight > maxBodies {
			return
		}
		if b.flows == nil {
			b.flows = map[fair.Flow]int{}
		}
		b.taken += w.weight
		b.flows[w.flow] += w.weight
		b.waiting = slices.Delete(b.waiting, i, i+1)
		close(w.room)
	}
}

// enterBody waits until there is room for what is made of a body of so many values, unless that is little.
func (w *response) enterBody(r *http.Request, data []byte, values int) error {
	weight := weigh(len(data), values)
	if weight <= freeBody {
		return nil
	}
	flow := w.share.flow
	if err := w.bodies.enter(r.Context(), flow, weight); err != nil {
		return err
	}
	w.upload.leave = func() { w.bodies.leave(flow, weight) }
	w.share.raw.Leave() // the weight is that of the text, too
	return nil
}
