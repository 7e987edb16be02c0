package cacher

import "github.com/apiserver-lite/apiserver-lite/storage/kube"

// Usage says how much the cacher holds, and of which bound.
type Usage struct {
	LogBytes       int64 // in the logs of all resources, of totalLogBytes
	Groups         int64 // of watchers that ask for the same; those of open watches, and no others
	RingBytes      int64 // in the rings of groups, at most groupEntries for each open watch
	StretchBytes   int64 // in decoded stretches of etcd's history, of stretchBytes
	Snapshots      int   // kept for continue tokens, of keptSnapshots
	SnapshotBytes  int64 // that those keep alive, of keptBytes
	StateBytes     int64 // in frames of initial states that watchers share, of stateBytes
	StateRetained  int64 // that the snapshots of unfinished initial states keep alive, of stateRetained
	DemandBytes    int64 // in indexes of fields that lists asked for, of demandBytes
	MessageBytes   int64 // in objects as protobuf, of messageBytes
	Converted      int64 // objects that conversions made; without a bound of their own, see package kube
	ConvertedBytes int64 // of these
	Unreadable     int64 // objects that can't be read
	Resources      int   // that have a cache, with objects or without
}

// Usage adds up what the cacher holds. Any goroutine may call it.
func (c *Cacher) Usage() (u Usage) {
	c.mu.RLock()
	for _, r := range c.resources {
		u.LogBytes += r.log.bytes.Load()
		u.Unreadable += r.unreadable.Load()
	}
	u.Resources = len(c.resources)
	c.mu.RUnlock()
	u.Groups = c.stats.groups.Load()
	u.RingBytes, u.StretchBytes = c.stats.ringBytes.Load(), c.stretches.bytes.Load()
	u.StateBytes, u.StateRetained = c.states.bytes.Load(), c.states.retained()
	u.DemandBytes = c.asked.bytes.Load()
	u.MessageBytes = c.messages.Bytes()
	u.Converted, u.ConvertedBytes = c.conversions.Made()
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	u.Snapshots = len(c.kept.list)
	if u.Snapshots > 0 {
		u.SnapshotBytes, _ = c.kept.sumLocked()
	}
	return u
}

// Unreadable returns the objects that can't be read, such as those that are encrypted under a key that the store hasn't got. Any goroutine
// may call it.
func (c *Cacher) Unreadable() (found []*kube.Object) {
	c.each(func(r *Resource) { found = append(found, r.Unreadable()...) })
	return found
}

// Unreadable returns the objects that can't be read, in the order of their keys.
func (r *Resource) Unreadable() (found []*kube.Object) {
	if r.unreadable.Load() == 0 {
		return nil
	}
	r.Snapshot().tree.Ascend(func(o *kube.Object) bool {
		if o.Err != nil {
			found = append(found, o)
		}
		return true
	})
	return found
}

// Counts is what a cacher has counted since it was made.
type Counts struct {
	Encoded     int64 // event frames: one event is encoded once per view and type, however many watchers get it
	Relisted    int64 // how often the feed fell out of etcd's history and listed everything anew
	Undecodable int64 // changes that the store couldn't decode, which are in no cache
	// TapesExpired is how often the reader of a tape had to begin again, because it fell behind or everything changed.
	TapesExpired int64
}

// Counts returns the counters. Any goroutine may call it.
func (c *Cacher) Counts() Counts {
	return Counts{
		Encoded: c.stats.encodings.Load(), Relisted: c.stats.relisted.Load(), Undecodable: c.stats.undecodable.Load(),
		TapesExpired: c.stats.tapesExpired.Load(),
	}
}
