package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

const (
	// pulseInterval is how often a replica asks the store where it is: rarely enough to cost nothing, and often enough that
	// health checks, which come every few seconds, hear of the last one.
	pulseInterval = time.Second
	// pulseTimeout is how long it waits for the answer, and then for its caches to get there: what a consistent read waits.
	pulseTimeout = 3 * time.Second
)

// Pulse is whether a replica hears of the store, and how far its caches are behind.
type Pulse struct {
	store  storage.Store
	cacher *cacher.Cacher

	mu     sync.Mutex // guards what follows
	lost   time.Time  // since when the store hasn't answered; zero while it answers
	cause  error      // of that
	behind time.Time  // since when the caches haven't been where the store was pulseTimeout before; zero while they are
	lag    time.Duration
}

// Run looks again and again until ctx ends.
func (p *Pulse) Run(ctx context.Context) { wait.NonSlidingUntilWithContext(ctx, p.look, pulseInterval) }

// look asks the store where it is, and waits until the caches are there.
func (p *Pulse) look(ctx context.Context) {
	asked := time.Now()
	bounded, cancel := context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	rev, err := p.store.Barrier(bounded)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.cause = err; p.lost.IsZero() {
			p.lost = asked
		}
		return
	}
	p.heard()
	heard := time.Now()
	bounded, cancel = context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	err = p.cacher.WaitFor(bounded, rev)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.lag = time.Since(heard); {
	case err == nil:
		p.behind = time.Time{}
	case ctx.Err() == nil && p.behind.IsZero():
		p.behind = heard
	}
}

// heard notes that the store has answered.
func (p *Pulse) heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost, p.cause = time.Time{}, nil
}

// Reached is nil while the store answers, and else says since when it doesn't.
func (p *Pulse) Reached() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost.IsZero() {
		return nil
	}
	return fmt.Errorf("the store hasn't answered since %s (%v): %w", p.lost.UTC().Format(time.RFC3339), time.Since(p.lost).Round(time.Second), p.cause)
}

// Follows is nil while the caches keep up with the store.
func (p *Pulse) Follows() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.behind.IsZero() {
		return nil
	}
	return fmt.Errorf("the caches are behind the store since %s (%v), at resourceVersion %d",
		p.behind.UTC().Format(time.RFC3339), time.Since(p.behind).Round(time.Second), p.cacher.Position())
}

// Lagging is how long the caches took lately to get to where the store was; longer while they're still on the way.
func (p *Pulse) Lagging() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.behind.IsZero() {
		return time.Since(p.behind)
	}
	return p.lag
}
