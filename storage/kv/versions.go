package kv

import (
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Past is how a store reads one key's past.
type Past struct {
	Key string
	// At returns what the key held at a revision, or nil, and which revision is the newest. 0 is the present. The error is etcd's.
	At func(storage.Revision) (held *mvccpb.KeyValue, newest int64, err error)
	// Deletion returns the revision of the last deletion up to a revision, or 0 if history has none.
	Deletion func(upTo storage.Revision) (storage.Revision, error)
}

// Versions is storage.Store's: it goes from each version to the one before it. Etcd doesn't lead from a life of the key to the one before, so where one
// begins the deletion before it is looked for.
func (r *Reader) Versions(p Past, upTo storage.Revision, fn func(storage.Version) error) error {
	for at, first := upTo, true; first || at > 0; first = false {
		held, newest, err := p.At(at)
		if err != nil {
			if err = Wrap("versions", p.Key, err); !first && errors.Is(err, storage.ErrCompacted) {
				return nil
			}
			return err
		}
		var v storage.Version
		if held != nil {
			v = storage.Version{Change: r.Decode(held), Created: held.CreateRevision == held.ModRevision}
		} else {
			if at == 0 {
				at = storage.Revision(newest)
			}
			gone, err := p.Deletion(at)
			if gone == 0 || err != nil {
				return err
			}
			v.Change = storage.Change{KeyValue: storage.KeyValue{Key: p.Key, Revision: gone}, Deleted: true}
		}
		if err := fn(v); err != nil {
			return err
		}
		at = v.Revision - 1
	}
	return nil
}
