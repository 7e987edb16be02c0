package cacher

const (
	// trimInterval is how many changes are applied between two looks at the sum of all logs.
	trimInterval = 1024
	// trimBytes is how much is replaced between two looks at what old snapshots keep alive, and how much readers
	// encode between two looks at what the events keep alive.
	trimBytes = 1 << 20
)

// trimLogs brings each log within its bound, and then halves the largest until all together are within theirs.
func (c *Cacher) trimLogs() {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for {
		var sum, most int64
		var largest *Resource
		for _, r := range c.resources {
			if r.log.bytes.Load() > c.bounds.logBytes {
				r.trimLog(c.bounds.logBytes)
			}
			n := r.log.bytes.Load()
			if sum += n; n > most {
				most, largest = n, r
			}
		}
		if sum <= c.bounds.totalLogBytes || largest == nil {
			return
		}
		largest.trimLog(most / 2)
	}
}

// addFrames counts the bytes of frames that a reader made of events. Late readers make them of events that no change
// evicts, because nothing is written meanwhile: so it's they who keep the logs and the history within their bounds.
// No lock may be held.
func (c *Cacher) addFrames(bytes int64) {
	if bytes == 0 || c.framed.Add(bytes) < trimBytes {
		return
	}
	c.framed.Store(0)
	c.trimLogs()
	c.stretches.trim()
}
