package registry

import (
	"log/slog"
	"sync"
	"time"
)

// outageInterval bounds how often it's logged that storage can't answer: while etcd is away, every request meets the same
// cause.
const outageInterval = 10 * time.Second

// outages logs why storage can't answer. Clients aren't told.
type outages struct {
	log *slog.Logger

	mu       sync.Mutex // guards all below
	reported time.Time  // when an error was last logged
	omitted  int        // errors since then
}

// report logs an error, unless one was logged within the last outageInterval.
func (o *outages) report(err error) {
	o.mu.Lock()
	now := time.Now()
	if now.Sub(o.reported) < outageInterval {
		o.omitted++
		o.mu.Unlock()
		return
	}
	omitted := o.omitted
	o.reported, o.omitted = now, 0
	o.mu.Unlock()
	o.log.Error("storage can't answer", "error", err, "omitted", omitted)
}
