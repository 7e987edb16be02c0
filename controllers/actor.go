package controllers

import (
	"context"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// actor is the way that every write of a controller takes.
//
// Where several processes share a store, one is elected and runs the controllers. The election alone makes nothing safe: a
// process may go on for a moment after another one was elected, or be stopped in the middle of a write and go on much later.
// So the context of what it runs has a fence, which lets no write be done after its term. Besides that every write says
// what it knows (the uid and the revision of what it deletes), and what a write takes for gone was read from etcd.
type actor struct {
	wrote atomic.Int64 // the newest revision that a write of a controller has answered
}

// act does a write, and notes its revision for the barrier. write returns 0 if it wrote nothing.
func (a *actor) act(ctx context.Context, write func(ctx context.Context) (storage.Revision, error)) (storage.Revision, error) {
	rev, err := write(ctx)
	for old := a.wrote.Load(); old < int64(rev) && !a.wrote.CompareAndSwap(old, int64(rev)); {
		old = a.wrote.Load()
	}
	return rev, err
}

// last returns the newest revision that a write has answered.
func (a *actor) last() storage.Revision { return storage.Revision(a.wrote.Load()) }
