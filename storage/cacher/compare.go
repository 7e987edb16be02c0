package cacher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Compare returns all differences between the caches and what a store has, and whether nothing was written since it began: otherwise
// they may be of writes meanwhile. It reads all that is stored, for tests. Of resources that have nothing stored it compares those in
// also.
func (c *Cacher) Compare(ctx context.Context, store storage.Store, also map[storage.Prefix]bool) (still bool, err error) {
	stored := map[string]storage.KeyValue{}
	prefixes := maps.Clone(also)
	rev, err := store.List(ctx, storage.Range{Prefix: storage.Root}, 0, func(c storage.Change) error {
		stored[c.Key] = c.KeyValue
		if p, _, _, ok := storage.SplitKey(c.Key); ok {
			prefixes[p] = true
		}
		return nil
	})
	if err != nil {
		return true, err
	}
	if err := c.WaitFor(ctx, rev); err != nil {
		return true, err
	}
	var differences []error
	for p := range prefixes {
		for o := range c.Resource(p).Snapshot().All(string(p)) {
			kv := stored[o.Key]
			delete(stored, o.Key)
			if kv.Revision != o.Revision {
				differences = append(differences, different(o.Key, o.Revision, kv.Revision))
			} else if !bytes.Equal(kv.Value, o.Raw()) {
				differences = append(differences, fmt.Errorf("%s: what is cached of revision %d isn't what is stored", o.Key, o.Revision))
			}
		}
	}
	for _, kv := range stored { // what the caches haven't
		differences = append(differences, different(kv.Key, 0, kv.Revision))
	}
	now, err := c.Barrier(ctx)
	return now == rev, errors.Join(append(differences, err)...)
}

func different(key string, cached, stored storage.Revision) error {
	return fmt.Errorf("%s: revision %d is cached and %d is stored (0: none)", key, cached, stored)
}
