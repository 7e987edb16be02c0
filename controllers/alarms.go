package controllers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
)

// alarms are the times at which keys are to be queued. Unlike a key that waits in the queue, one that has an alarm isn't left to do
// until its time has come.
type alarms struct {
	clock *clock.Clock
	wake  chan struct{} // capacity 1: rung when one is set. Never closed

	mu     sync.Mutex // guards the rest
	at     map[string]time.Time
	taking int // keys whose time had come, and that are being queued
}

func newAlarms(c *clock.Clock) *alarms {
	return &alarms{clock: c, wake: make(chan struct{}, 1), at: map[string]time.Time{}}
}

// set has a key queued at a time, or before. The zero time is never.
func (a *alarms) set(key string, at time.Time) {
	if at.IsZero() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, is := a.at[key]; is && !at.Before(before) {
		return
	}
	a.at[key] = at
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run queues keys when their time has come, until ctx ends.
func (a *alarms) run(ctx context.Context, add func(key string)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		moved := a.clock.Moved()
		now := a.clock.Now()
		due, next := a.take(now)
		for _, key := range due {
			add(key)
		}
		a.taken(len(due)) // after that: each key is found here or in the queue
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(next.Sub(now))
		}
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-timer.C:
		case <-moved:
		}
	}
}

// take takes the keys whose time has come, so that they can be set again while they're queued, and returns when that of the next one comes; never if
// that's zero.
func (a *alarms) take(now time.Time) (keys []string, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, at := range a.at {
		switch {
		case !at.After(now):
			keys = append(keys, key)
			delete(a.at, key)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	a.taking += len(keys)
	slices.Sort(keys)
	return keys, next
}

// taken says that so many keys that were taken are queued.
func (a *alarms) taken(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taking -= n
}

// ringing tells whether a key's time has come that isn't queued yet.
func (a *alarms) ringing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	for _, at := range a.at {
		if !at.After(now) {
			return true
		}
	}
	return a.taking > 0
}

// forget forgets all.
func (a *alarms) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.at)
}
