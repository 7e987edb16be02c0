package kube

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

// MaxConvertedBytes bounds what conversions made and remember: some 200,000 objects of 1 KB. Beyond it those that nobody has asked for
// lately are forgotten, and made again for who asks.
const MaxConvertedBytes = 256 << 20

// convertedOverhead is about how many bytes a result takes besides its own: an Object, and its places in two lists.
const convertedOverhead = 350

// maxSpared is how many results that were asked for lately are looked at before one of them is forgotten all the same, so that nobody
// waits for a look at all of them.
const maxSpared = 64

// Conversions makes Conversions, and counts what they made and is still in memory. What nobody needs any more counts until
// the garbage collector has found it. The zero value has made nothing.
type Conversions struct {
	Most int64 // bounds what is remembered, in bytes. Defaults to MaxConvertedBytes

	objects, bytes atomic.Int64

	mu         sync.Mutex   // guards remembered and held; a leaf
	remembered []rememberer // in the order in which they're looked at when something is to be forgotten
	held       int64        // their bytes
}

// rememberer is an object that remembers what a conversion made of it.
type rememberer struct {
	of   weak.Pointer[Object]     // so that nothing is kept alive
	by   weak.Pointer[Conversion] // it leads to all that a definition is made into
	size int64
}

// converted is what a conversion made of an object. It's a list, with one entry for each conversion, of at most two
// generations of the definition. What it holds lives as long as the object, or until Conversions forgets it.
type converted struct {
	by     *Conversion
	object *Object
	asked  *atomic.Bool // somebody has asked for it since it was looked at
	next   *converted
}

// New returns a Conversion; see its fields.
func (cs *Conversions) New(generation int64, needed func(o *Object) bool, convert Convert) *Conversion {
	return &Conversion{Needed: needed, Convert: convert, Generation: generation, made: cs}
}

// Made returns how many objects the conversions made, and about how many bytes these take.
func (cs *Conversions) Made() (objects, bytes int64) { return cs.objects.Load(), cs.bytes.Load() }

// count counts a result until it's collected.
func (cs *Conversions) count(o *Object) {
	size := convertedSize(o)
	cs.objects.Add(1)
	cs.bytes.Add(size)
	runtime.AddCleanup(o, func(size int64) {
		cs.objects.Add(-1)
		cs.bytes.Add(-size)
	}, size)
}

func convertedSize(o *Object) int64 { return convertedOverhead + int64(len(o.raw)) }

// hold notes that an object remembers a result, and has others forget theirs for it.
func (cs *Conversions) hold(o *Object, by *Conversion, made *Object) {
	most := cs.Most
	if most == 0 {
		most = MaxConvertedBytes
	}
	size := convertedSize(made)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for spared := 0; len(cs.remembered) > 0 && cs.held+size > most; {
		oldest := cs.remembered[0]
		cs.remembered = cs.remembered[1:]
		if of, by := oldest.of.Value(), oldest.by.Value(); of != nil && by != nil {
			if f := of.made(by); f != nil && f.asked.Swap(false) && spared < maxSpared {
				spared++
				cs.remembered = append(cs.remembered, oldest)
				continue
			}
			of.forget(by)
		}
		cs.held -= oldest.size
	}
	cs.remembered = append(cs.remembered, rememberer{of: weak.Make(o), by: weak.Make(by), size: size})
	cs.held += size
}

// made returns what a conversion made of the object, or nil.
func (o *Object) made(by *Conversion) *converted {
	for f := o.converted.Load(); f != nil; f = f.next {
		if f.by == by {
			return f
		}
	}
	return nil
}

// remember keeps the result, and drops those of definitions older than the one before: no reader needs them. The
// definition before may still have readers. A reader of an even older one has what Prepare gave it, or prepares again.
func (o *Object) remember(c *Conversion, shown *Object) {
	o.change(&converted{by: c, object: shown, asked: new(atomic.Bool)}, func(f *converted) bool {
		return f.by != c && f.by.Generation >= c.Generation-1
	})
}

// forget drops what a conversion made of the object.
func (o *Object) forget(by *Conversion) {
	o.change(nil, func(f *converted) bool { return f.by != by })
}

// change replaces the list by one that begins with an entry, if there is one, and goes on with those of the old one that stay.
func (o *Object) change(first *converted, stays func(f *converted) bool) {
	for {
		old := o.converted.Load()
		head := &converted{}
		end := head
		if first != nil {
			end.next = &converted{by: first.by, object: first.object, asked: first.asked}
			end = end.next
		}
		for f := old; f != nil; f = f.next {
			if stays(f) {
				end.next = &converted{by: f.by, object: f.object, asked: f.asked}
				end = end.next
			}
		}
		if o.converted.CompareAndSwap(old, head.next) {
			return
		}
	}
}
