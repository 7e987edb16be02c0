package server

import (
	"net/http"

	"github.com/apiserver-lite/apiserver-lite/server/bounds"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
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
	// rawUnit is what one seat of capacity.raw stands for.
	rawUnit = 64 << 10
)

// All of that stays below 1 GiB, with what is on its way of small bodies; otherwise this doesn't compile. One body may go beyond
// maxRaw (package fair).
const _ = uint(1<<30 - maxBodies - maxRaw - maxBody - maxUploads*trustedBody - (bounds.DefaultMaxReads+bounds.DefaultMaxWrites)*freeBody)

// rawSeats returns how many seats of capacity.raw a body takes.
func rawSeats(size int) int { return (size + rawUnit - 1) / rawUnit }

// enterRaw waits until there is room for a body as it's sent. Flows share it, so that slow uploads of one leave room for others.
func (w *response) enterRaw(r *http.Request, size int) (err error) {
	w.held.raw, err = w.capacity.raw.enter(r.Context(), w.held.flow, rawSeats(size), waitFor(r.Context()))
	return err
}

// weigh estimates what a body takes.
func weigh(size, values int) int { return min(size*perByte+values*perValue, maxBodies/2) }

// enterBody waits until there is room for what is made of a body of so many values, unless that is little.
func (w *response) enterBody(r *http.Request, data []byte, values int) error {
	weight := weigh(len(data), values)
	if weight <= freeBody || transaction.Of(r.Context()) != nil { // whose operations were weighed together
		return nil
	}
	flow := w.held.flow
	if err := w.capacity.bodyMemory.Enter(r.Context(), flow, weight); err != nil {
		return err
	}
	w.upload.leave = func() { w.capacity.bodyMemory.Leave(flow, weight) }
	w.held.raw.Leave() // the weight is that of the text, too
	return nil
}
