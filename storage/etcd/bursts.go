package etcd

import (
	"context"
	"sync"
	"time"
)

// In a cluster each batch of raft's wakes every voter, which syncs its log for it. Left alone, many writers make many small
// batches, since each write goes as soon as it's there. So while mostBursts are out, further writes wait, and go together as
// the next burst. `bench writes --members 3 --clients 64` took an eighth less CPU and an eighth less time for it.

const (
	// fewWrites is how many writes at a time go at once, in no burst. So few make few batches, and waiting for company would
	// only delay them: with 8 clients a write of that benchmark costs the same with bursts as without.
	fewWrites = 8
	// mostBursts is how many bursts are out, so that the disks have the second one while the first one's answers travel.
	mostBursts = 2
	// burstWait is how long a burst is out at most, and so how long a write waits for it. Most bursts take less; one that
	// meets a leader's death takes seconds.
	burstWait = 20 * time.Millisecond
)

// bursts lets writes go together where there are many. The zero value is ready for use.
type bursts struct {
	mu     sync.Mutex // guards what follows, and each burst's writes and late
	writes int        // those that wait, and those that aren't answered
	out    int        // bursts: at most mostBursts
	next   *burst     // nil if no write waits
}

// burst is writes that go together. It is out from when it's sent until all of them are answered, or until burstWait has passed.
type burst struct {
	writes int           // not answered yet
	sent   chan struct{} // closed by send: they may go
	late   *time.Timer   // gives the place away after burstWait; set by send
}

// enter waits until a write may go, for at most burstWait, or until ctx ends. When the write has been answered, or wasn't
// made, leave must be called with enter's result.
func (b *bursts) enter(ctx context.Context) *burst {
	b.mu.Lock()
	b.writes++
	if b.writes <= fewWrites {
		b.mu.Unlock()
		return nil
	}
	if b.next == nil {
		b.next = &burst{sent: make(chan struct{})}
	}
	in := b.next
	in.writes++
	b.send()
	b.mu.Unlock()
	select {
	case <-in.sent:
	case <-ctx.Done():
	}
	return in
}

// leave notes that a write was answered, or wasn't made. in is what enter returned.
func (b *bursts) leave(in *burst) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes--
	if in == nil {
		return
	}
	switch in.writes--; {
	case in.writes > 0:
	case in == b.next: // all who waited gave up
		b.next = nil
	case in.late.Stop():
		b.back()
	}
}

// send lets those go that wait, if there's a place for them; mu must be held.
func (b *bursts) send() {
	in := b.next
	if in == nil || b.out == mostBursts {
		return
	}
	b.next = nil
	b.out++
	close(in.sent)
	in.late = time.AfterFunc(burstWait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.back()
	})
}

// back gives a burst's place to those that wait; mu must be held.
func (b *bursts) back() {
	b.out--
	b.send()
}
