package kube

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// Conversion makes the form in which a view shows objects whose stored bytes can't be copied: those of another version,
// and those written under an older schema. The result is kept with the object, so that an object is converted once
// for all readers, until more is remembered than Conversions may. The views of one served version share one *Conversion. The zero value converts nothing.
type Conversion struct {
	// Needed tells cheaply whether an object must be converted. It may be called while a lock of the cacher is held,
	// for which only readers of the same state wait: it must not block or call the cacher. Defaults to none that must.
	Needed func(o *Object) bool
	// Convert returns, for each object, the bytes to show instead of the stored ones, or nil to show these. They have
	// no resourceVersion either. Convert may ask a webhook: it's called without a lock, and for several objects at once,
	// but for each object once at a time.
	Convert Convert
	// Generation is that of the definition from which the conversion is made. See remember.
	Generation int64

	mu     sync.Mutex          // guards flying; a leaf
	flying map[*Object]*flight // objects that a reader is converting now, so that the watchers of an event don't all do
	made   *Conversions        // nil if nobody counts
}

// Convert converts objects; see Conversion.
type Convert = func(ctx context.Context, objects []*Object) ([][]byte, error)

// flight is one call of Convert.
type flight struct {
	done chan struct{} // closed when it has ended
	err  error         // how; set before that
}

// Shown returns the object whose bytes the view shows for o: o itself, unless it has to be converted. A conversion
// may ask a webhook; ctx bounds the time. The error is ctx's, or that of Convert.
func (v *View) Shown(ctx context.Context, o *Object) (*Object, error) {
	if v.Conversion == nil {
		return o, nil
	}
	objects := []*Object{o}
	err := v.Prepare(ctx, objects)
	return objects[0], err
}

// Prepare replaces each object by the one that Shown returns for it, and converts those that are missing in one call. On
// an error some are replaced and others aren't.
func (v *View) Prepare(ctx context.Context, objects []*Object) error {
	c := v.Conversion
	for c != nil {
		missing := c.showKnown(objects)
		if len(missing) == 0 {
			return nil
		}
		mine, others := c.depart(objects, missing)
		if mine != nil {
			if err := c.convert(ctx, objects, mine); err != nil {
				return err
			}
		}
		for _, other := range others {
			if err := other.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// departure is what one reader converts: the objects at some places.
type departure struct {
	*flight
	places []int
}

// depart takes those of the objects at some places that nobody is converting now; nil if there are none. others convert the
// rest.
func (c *Conversion) depart(objects []*Object, missing []int) (mine *departure, others []*flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, place := range missing {
		o := objects[place]
		f := c.flying[o]
		switch {
		case f != nil && (mine == nil || f != mine.flight):
			if !slices.Contains(others, f) {
				others = append(others, f)
			}
			continue
		case f != nil: // the list has it twice
			continue
		case c.find(o) != nil: // just made
			continue
		case mine == nil:
			mine = &departure{flight: &flight{done: make(chan struct{})}}
		}
		if c.flying == nil {
			c.flying = map[*Object]*flight{}
		}
		c.flying[o] = mine.flight
		mine.places = append(mine.places, place)
	}
	return mine, others
}

// wait waits for the end of somebody else's call, and returns its error, or ctx's. If the other reader has left, that's no
// error: the call may be made again.
func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if errors.Is(f.err, context.Canceled) || errors.Is(f.err, context.DeadlineExceeded) {
		return nil
	}
	return f.err
}

// showKnown replaces the objects that were converted before, or needn't be, and returns the places of the others.
func (c *Conversion) showKnown(objects []*Object) (missing []int) {
	for i, o := range objects {
		if shown := c.find(o); shown != nil {
			objects[i] = shown
		} else {
			missing = append(missing, i)
		}
	}
	return missing
}

// find returns the object whose bytes are shown for o, or nil if o has to be converted first.
func (c *Conversion) find(o *Object) *Object {
	if o.Err != nil || c.Needed == nil || !c.Needed(o) {
		return o
	}
	f := o.made(c)
	if f == nil {
		return nil
	}
	if !f.asked.Load() {
		f.asked.Store(true)
	}
	return f.object
}

// convert converts what was taken of the objects, and remembers the results.
func (c *Conversion) convert(ctx context.Context, objects []*Object, mine *departure) (err error) {
	stored := make([]*Object, len(mine.places))
	for i, place := range mine.places {
		stored[i] = objects[place]
	}
	mine.err = context.Canceled // for the others, if Convert panics
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, o := range stored {
			delete(c.flying, o)
		}
		close(mine.done)
	}()
	made, err := c.Convert(ctx, stored)
	if mine.err = err; err != nil {
		return err
	}
	for i, o := range stored {
		shown := o
		if made[i] != nil {
			shown = NewObject(o.Key, made[i], o.Revision)
			shown.converted.Store(&converted{by: c, object: shown, asked: new(atomic.Bool)})
			if c.made != nil {
				c.made.count(shown)
			}
		}
		o.remember(c, shown)
		if shown != o && c.made != nil {
			c.made.hold(o, c, shown)
		}
		objects[mine.places[i]] = shown
	}
	return nil
}

// Found returns the object whose bytes the view shows for o, or nil if o has to be converted first.
func (v *View) Found(o *Object) *Object {
	if v.Conversion == nil {
		return o
	}
	return v.Conversion.find(o)
}
