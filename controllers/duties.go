package controllers

import (
	"context"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Duty is something that the server sees to by itself: that objects are there, and say what they should.
type Duty struct {
	// Name says what it is, for reports and the log.
	Name string
	// Keys are what there is to do at the beginning of a term. They mean something to Do alone.
	Keys []string
	// Every is how often all of Keys is done again; 0 for never.
	Every time.Duration
	// After, if set, returns the keys that are to be done after a change. The event of an object that was there at the beginning
	// has no Prev. It's called by one goroutine, for which all controllers wait.
	After func(e *cacher.Event) []string
	// Do does what a key stands for, as far as it isn't done, and answers with the revision of its last write, or 0. One key isn't
	// done twice at once. An error is a reason to try again.
	Do func(ctx context.Context, served *registry.Catalog, key string) (storage.Revision, error)
}

// duties does the Duties.
type duties struct {
	queued[chore]
	all []Duty

	mu   sync.Mutex  // guards what follows, before the queue's
	next []time.Time // when each is to be done again by a clock that stands still; empty by the machine's, and while no term runs
}

// chore is one key of a Duty, by its place in the list.
type chore struct {
	duty int
	key  string
}

func newDuties(c *Controllers, all []Duty) *duties {
	d := &duties{all: all}
	d.queued = newQueued(c, "duties", func(c chore) Object { return Object{Kind: all[c.duty].Name, Name: c.key} }, d.work)
	return d
}

func (d *duties) complete() {
	for i := range d.all {
		d.due(i, d.all[i].Keys)
	}
}

func (d *duties) observe(e *cacher.Event) {
	for i := range d.all {
		if after := d.all[i].After; after != nil {
			d.due(i, after(e))
		}
	}
}

func (d *duties) due(duty int, keys []string) {
	for _, key := range keys {
		d.queue.add(chore{duty, key})
	}
}

func (d *duties) run(ctx context.Context) {
	var ticking sync.WaitGroup
	defer ticking.Wait()
	if d.controllers.clock.Stands() {
		ticking.Go(func() { d.follow(ctx) })
		d.queue.run(ctx)
		return
	}
	for i := range d.all {
		if d.all[i].Every > 0 {
			ticking.Go(func() { d.tick(ctx, i) })
		}
	}
	d.queue.run(ctx)
}

// follow has the duties done again when the clock has been moved as far.
func (d *duties) follow(ctx context.Context) {
	c := d.controllers.clock
	d.mu.Lock()
	d.next = make([]time.Time, len(d.all))
	for i := range d.all {
		d.next[i] = c.Now().Add(d.all[i].Every)
	}
	d.mu.Unlock()
	for {
		moved := c.Moved()
		d.mu.Lock()
		for _, i := range d.overdueLocked() {
			d.due(i, d.all[i].Keys)
			d.next[i] = c.Now().Add(d.all[i].Every)
		}
		d.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			d.mu.Lock()
			d.next = nil
			d.mu.Unlock()
			return
		}
	}
}

// overdueLocked returns the duties that a clock that stands still has come to, and that aren't queued yet.
func (d *duties) overdueLocked() (all []int) {
	for i, at := range d.next {
		if d.all[i].Every > 0 && !at.After(d.controllers.clock.Now()) {
			all = append(all, i)
		}
	}
	return all
}

// idle tells whether nothing is due.
func (d *duties) idle() bool {
	d.mu.Lock()
	overdue := d.overdueLocked()
	d.mu.Unlock()
	return len(overdue) == 0 && d.queue.idle()
}

// tick has a duty done again and again.
func (d *duties) tick(ctx context.Context, duty int) {
	ticker := time.NewTicker(d.all[duty].Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.due(duty, d.all[duty].Keys)
		case <-ctx.Done():
			return
		}
	}
}

func (d *duties) work(ctx context.Context, served *registry.Catalog, c chore) error {
	_, err := d.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		return d.all[c.duty].Do(ctx, served, c.key)
	})
	return err
}
