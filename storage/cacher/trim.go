package cacher

const (
	// trimInterval is after how many changes the feed adds up all logs: seldom enough that a thousand resources cost
	// the feed nothing that counts.
	trimInterval = 1024
	// trimBytes is after how many replaced bytes the feed looks at what old snapshots keep alive, and after how many
	// encoded bytes the readers look at what the events keep alive. So the bounds are passed by that much at most.
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

// addFrames counts the bytes of frames that a reader made of events, and trims the logs and the history now and then.
// The feed trims only when something is written; but late readers also make frames when nothing is. No lock may be held.
func (c *Cacher) addFrames(bytes int64) {
	if bytes == 0 || c.stats.framed.Add(bytes) < trimBytes {
		return
	}
	c.stats.framed.Store(0)
	c.trimLogs()
	c.stretches.trim()
}

// TrimToHistory forgets what memory has of the time before Oldest, so that it gives no more than history does. Usually it may: what it has costs nobody
// anything. It's for clocks that are moved, by whose time history is gone. A watch that hasn't taken what it forgets expires.
func (c *Cacher) TrimToHistory() {
	oldest := c.Oldest()
	c.each(func(r *Resource) { r.trimLogTo(oldest) })
	c.kept.dropBefore(oldest)
	c.stretches.drop()
}
