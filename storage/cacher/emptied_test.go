package cacher

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestEmptiedResource: caches stay when their definitions go, because watches and requests may still have them. What
// bounds their memory is that one without objects weighs little, whatever it has held.
func TestEmptiedResource(t *testing.T) {
	small := defaultBounds
	small.totalLogBytes = 256 << 10
	c := New(nil, Options{})
	c.bounds = small
	var rev storage.Revision
	fill := func(resources int) {
		for n := range resources {
			r := c.Resource(storage.PrefixOf("example.com", fmt.Sprintf("kind%d", n)))
			r.SetFields([]string{"spec.color"})
			const objects = 500
			for i := range 2 * objects {
				rev++
				o := &thing{key: fmt.Sprintf("%sns1/w%d", r.prefix, i%objects), tier: "front", color: "red"}
				change := storage.Change{KeyValue: storage.KeyValue{Key: o.key, Revision: rev}, Deleted: i >= objects}
				if !change.Deleted {
					change.Value = []byte(o.json(0))
				}
				c.feed.applyAll([]storage.Change{change})
				if i%100 == 0 {
					r.Snapshot() // what a list takes
				}
			}
			r.SetFields(nil)
			r.EndWatches(rev) // the definition is gone
		}
	}
	fill(1)
	c.trimLogs()
	before := heap()
	const resources = 60
	fill(resources)
	c.trimLogs()
	each := (heap() - before) / resources
	t.Logf("an emptied resource weighs %d bytes", each)
	const most = 8 << 10 // with its share of totalLogBytes, which is below 5 KiB here
	if each > most {
		t.Errorf("an emptied resource weighs %d bytes, at most %d are expected", each, most)
	}
	runtime.KeepAlive(c)
}

// heap returns how many bytes are in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
