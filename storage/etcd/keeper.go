package etcd

import (
	"context"
	"errors"
	"time"
)

const (
	// keeperInterval is how often the keeper looks after history and space. In a second a fast writer adds some ten
	// megabytes, which is little of the quota.
	keeperInterval = time.Second
	// minKeeperInterval bounds how often it looks when history is kept for seconds only, as in tests.
	minKeeperInterval = 10 * time.Millisecond
	// looksPerHistory is how often it looks, at least, in the time that history is kept: so history of a few seconds is kept
	// at most an eighth longer than asked.
	looksPerHistory = 8
	// diskInterval is how often it looks at the disk, so that Health is right on an idle server. Writers look at the
	// disk by themselves.
	diskInterval = 500 * time.Millisecond
	// forgetInterval is how often it takes the database's pages out of memory, which takes a millisecond for each 100 MB that are there.
	forgetInterval = 5 * time.Second
)

// keeper keeps history and space within their bounds. Its work is done by one goroutine: see run.
type keeper struct {
	*space
	complaint string            // what was logged last; "" after a look at which nothing failed
	asks      chan chan<- error // for a look at history at once, see Server.KeepHistory. Never closed
}

func newKeeper(s *Server, o Options) (*keeper, error) {
	db := newDatabase(s)
	room, err := newRoom(s.dir, db, o.Log)
	if err != nil {
		return nil, err
	}
	p, err := newPast(s, o, room)
	if err != nil {
		return nil, err
	}
	k := &keeper{space: &space{past: p, database: db, quota: o.QuotaBytes}, asks: make(chan chan<- error)}
	k.noteAlarms()
	return k, nil
}

// run looks at the disk, at space and at history, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	interval := max(minKeeperInterval, min(keeperInterval, k.marks.keep.Age/looksPerHistory))
	pause := interval / ((interval + diskInterval - 1) / diskInterval) // at most diskInterval, and several make an interval
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	next := k.marks.clock()
	forget := next + keeperInterval // for the first time soon after the start
	for {
		select {
		case <-ctx.Done():
			return
		case done := <-k.asks:
			k.pin()
			done <- k.keepHistory(ctx)
			continue
		case <-ticker.C:
		}
		k.database.look()
		disk, err := k.guardDisk(ctx)
		if err != nil {
			return // ctx has ended
		}
		at := k.marks.clock()
		if at >= forget {
			forget = at + forgetInterval
			_ = k.database.forget() // in vain, the process is as large as without it
		}
		if at+pause/2 >= next { // a tick is never quite in time
			next = at + interval
			err := errors.Join(k.keepSpace(ctx, disk), k.keepHistory(ctx))
			if ctx.Err() == nil {
				k.complain(err)
			}
		}
	}
}

// KeepHistory drops the history that is too old by now, and returns when it's gone. It's for those who move Options.Clock: they call it before, because
// history is told apart only where it was called, and after. The error is ctx's, or says why the store can't drop it.
func (s *Server) KeepHistory(ctx context.Context) error {
	done := make(chan error, 1) // capacity 1: the keeper waits for nobody
	select {
	case s.keeper.asks <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// complain logs an error, unless the last look had the same one.
func (k *keeper) complain(err error) {
	if err == nil {
		k.complaint = ""
		return
	}
	if text := err.Error(); text != k.complaint {
		k.complaint = text
		k.log.Error("the store can't be kept within its bounds; trying again", "error", err)
	}
}
