package kv

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Reader is what every Store has for reading, as it has a Writer for writing: it makes what callers get of what etcd has.
// The zero value works.
type Reader struct {
	// Transformer, if set, makes values of what is stored. Set it before the store is used.
	Transformer storage.Transformer
}

// Decode returns what a key holds. Its value may share kv's bytes. If the Transformer refuses them, they are the value, and the change has
// its error.
func (r *Reader) Decode(kv *mvccpb.KeyValue) storage.Change {
	return r.Transformed(storage.Change{KeyValue: KeyValueOf(kv)})
}

const (
	// pagePart is how many values of a page are worked on together. Whoever stops in the middle of a page has at most so many worked on in vain.
	pagePart = 512
	// pageShare is how many of these a goroutine works on at least: fewer are done before another one has begun.
	pageShare = 32
)

// DecodePage gives what keys hold, in their order, as Decode does. With a Transformer, as many goroutines work on the values as can run: to
// decrypt all Secrets is most of what a start with many of them does.
func (r *Reader) DecodePage(page []*mvccpb.KeyValue) iter.Seq[storage.Change] {
	return func(yield func(storage.Change) bool) {
		if r.Transformer == nil {
			for _, kv := range page {
				if !yield(r.Decode(kv)) {
					return
				}
			}
			return
		}
		for part := range slices.Chunk(page, pagePart) {
			for _, c := range r.decodePart(part) {
				if !yield(c) {
					return
				}
			}
		}
	}
}

func (r *Reader) decodePart(kvs []*mvccpb.KeyValue) []storage.Change {
	part := make([]storage.Change, len(kvs))
	work := func(from, to int) {
		for i := from; i < to; i++ {
			part[i] = r.Decode(kvs[i])
		}
	}
	share := max(pageShare, (len(kvs)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var others sync.WaitGroup
	for from := share; from < len(kvs); from += share {
		others.Go(func() { work(from, min(from+share, len(kvs))) })
	}
	work(0, min(share, len(kvs)))
	others.Wait()
	return part
}

// Transformed is a change whose value is what's stored, as Decode returns it.
func (r *Reader) Transformed(c storage.Change) storage.Change {
	if r.Transformer == nil {
		return c
	}
	value, stale, err := r.Transformer.FromStorage(context.Background(), c.Key, c.Value)
	if err != nil {
		c.Err = fmt.Errorf("read %q: %w", c.Key, err)
		return c
	}
	c.Value, c.Stale = value, stale
	return c
}

// DecodeEvent returns what a watch of etcd's says of a write to a key, as Decode does.
func (r *Reader) DecodeEvent(e *mvccpb.Event) storage.Change {
	if e.Type == mvccpb.Event_DELETE {
		return storage.Change{KeyValue: storage.KeyValue{Key: string(e.Kv.Key), Revision: storage.Revision(e.Kv.ModRevision)}, Deleted: true}
	}
	return r.Transformed(ChangeOf(e.Kv))
}

// ChangeOf returns a write to a key in our form, with what it holds now as it's stored. Its value shares kv's bytes. What it held before is known of one
// that was created by the write.
func ChangeOf(kv *mvccpb.KeyValue) storage.Change {
	c := storage.Change{KeyValue: KeyValueOf(kv)}
	if kv.CreateRevision == kv.ModRevision {
		c.Before = nothing
	}
	return c
}

// nothing is what a key holds before it's created. Nobody changes it.
var nothing = &storage.KeyValue{}

// KeyValueOf returns a key's state in our form. Its value shares kv's bytes.
func KeyValueOf(kv *mvccpb.KeyValue) storage.KeyValue {
	return storage.KeyValue{Key: string(kv.Key), Value: kv.Value, Revision: storage.Revision(kv.ModRevision)}
}

// firstPage is how many keys the first page of a List has at most. Nothing is known of their values then: even if each is
// of the largest size (1.5 MiB), they are 96 MiB.
const firstPage = 64

// Page says how many keys of a List are read at once. The pages of a list double, and stop at bounds: an etcd before 3.6
// counts for each page all keys that follow it, so many small pages would take long, and one large page much memory.
type Page struct {
	MaxKeys  int // that are read at once
	MaxBytes int // of keys and values. A page has more only where values are suddenly larger than those before them

	keys int // of the page that is read next; 0 before the first
}

// Keys returns how many keys to read next.
func (p *Page) Keys() int {
	p.keys = cmp.Or(p.keys, min(firstPage, p.MaxKeys))
	return p.keys
}

// Read notes how many bytes the last page had, as the next one probably has such values, too.
func (p *Page) Read(bytes int) {
	fits := p.Keys() * p.MaxBytes / max(bytes, 1)
	p.keys = max(1, min(fits, 2*p.Keys(), p.MaxKeys))
}
