package storage

import "sync/atomic"

// Watermark is the highest revision that it was raised to. The zero value is at 0. It's safe for concurrent use.
type Watermark struct{ at atomic.Int64 }

// At returns that revision.
func (w *Watermark) At() Revision { return Revision(w.at.Load()) }

// Raise makes it at least rev.
func (w *Watermark) Raise(rev Revision) {
	for old := w.at.Load(); old < int64(rev) && !w.at.CompareAndSwap(old, int64(rev)); {
		old = w.at.Load()
	}
}

// Reset makes it rev, which may be lower: what it was raised to before means nothing any more.
func (w *Watermark) Reset(rev Revision) { w.at.Store(int64(rev)) }
