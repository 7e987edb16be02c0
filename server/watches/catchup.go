package watches

import (
	"context"
	"slices"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

const (
	// catchUpTime is how long CatchUp waits: a client that takes something takes it sooner.
	catchUpTime = time.Second
	// catchUpPoll is how long it waits between two looks.
	catchUpPoll = time.Millisecond
)

// CatchUp returns when each watch has taken the events that the caches have, or doesn't take them. The error is ctx's.
func (ws *Set) CatchUp(ctx context.Context) error {
	tick := time.NewTicker(catchUpPoll)
	defer tick.Stop()
	over := time.NewTimer(catchUpTime)
	defer over.Stop()
	for slices.ContainsFunc(ws.All(), (*Watch).behind) {
		select {
		case <-tick.C:
		case <-over.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// behind tells whether there is something that the watch hasn't taken.
func (w *Watch) behind() bool {
	return slices.ContainsFunc(w.Source.Reports(time.Now()), func(r cacher.Report) bool { return r.LagEvents > 0 })
}
