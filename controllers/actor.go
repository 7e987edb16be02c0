package controllers

import (
	"context"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// actor is the one place that says whether this process acts on what it sees. Every write of a controller goes through it.
// One process owns the store, so it always acts; when several share one, the actor is what an election decides about.
//
// The actor alone makes nothing safe: a process may act for a moment after another one was elected. So every write says
// what it knows (the uid and the revision of what it deletes), and what a write takes for gone was read from etcd.
type actor struct {
	wrote atomic.Int64 // the newest revision that a write of a controller has answered
}

// act does a write if this process is the one that acts, and notes its revision for the barrier. write returns 0 if it
// wrote nothing.
func (a *actor) act(ctx context.Context, write func(ctx context.Context) (storage.Revision, error)) (storage.Revision, error) {
	rev, err := write(ctx)
	for old := a.wrote.Load(); old < int64(rev) && !a.wrote.CompareAndSwap(old, int64(rev)); {
		old = a.wrote.Load()
	}
	return rev, err
}

// last returns the newest revision that a write has answered.
func (a *actor) last() storage.Revision { return storage.Revision(a.wrote.Load()) }
