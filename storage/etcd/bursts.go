package etcd

import (
	"context"
	"sync"
	"time"
)

// In a cluster each batch of raft's wakes every voter, which syncs its log for it. Left alone, many writers make many small
// batches, since each write goes as soon as it's there. So while many writes are under way, those that come wait until a
// burst has been answered, and go together as the next one. With 64 writers that took an eighth of a write's CPU away, and
// as much of its time: `bench writes --members 3 --clients 64`.

const (
	// fewWrites is how many writes may be under way without any of them having waited.
	fewWrites = 8
	// mostBursts is how many bursts are under way: while one is on its way back, the logs take the other.
	mostBursts = 2
	// burstWait bounds how long a write waits for those before it, which may take seconds when a leader dies.
	burstWait = 20 * time.Millisecond
)

// bursts lets writes go together where there are many. The zero value is ready for use.
type bursts struct {
	mu       sync.Mutex // guards what follows, and each burst's writes
	writes   int        // under way, or waiting
	underWay int        // bursts
	next     *burst     // nil if no write waits
}

// burst is writes that go together.
type burst struct {
	writes int           // not answered yet
	sent   chan struct{} // closed when they may go
	late   *time.Timer   // lets them go after burstWait
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
	in := b.next
	if in == nil {
		in = &burst{sent: make(chan struct{})}
		in.late = time.AfterFunc(burstWait, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.next == in {
				b.send()
			}
		})
		b.next = in
	}
	in.writes++
	if b.underWay < mostBursts {
		b.send()
	}
	b.mu.Unlock()
	select {
	case <-in.sent:
	case <-ctx.Done():
	}
	return in
}

// send lets those go that wait; mu must be held, and next be set.
func (b *bursts) send() {
	b.next.late.Stop()
	close(b.next.sent)
	b.next = nil
	b.underWay++
}

// leave notes that a write is no longer under way. in is what enter returned.
func (b *bursts) leave(in *burst) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes--
	if in == nil {
		return
	}
	if in.writes--; in.writes > 0 {
		return
	}
	if in == b.next { // all who waited gave up
		in.late.Stop()
		b.next = nil
		return
	}
	if b.underWay--; b.next != nil && b.underWay < mostBursts {
		b.send()
	}
}
