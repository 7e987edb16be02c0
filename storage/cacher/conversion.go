package cacher

import "context"

// Conversion makes the form in which a view shows objects whose stored bytes can't be shown by copying: those
// of another version, or written under an older schema. What it makes is remembered on the object, so that an
// object is converted once for all readers of a view. Its views share one *Conversion.
type Conversion struct {
	// Needed tells cheaply whether an object must be converted.
	Needed func(o *Object) bool
	// Convert returns the bytes to show instead of those of each object, in the same form: without
	// resourceVersion. It may ask a webhook. nil leaves an object as it is.
	Convert func(ctx context.Context, objects []*Object) ([][]byte, error)
	// Generation is that of the definition the conversion is made from: what older ones made is forgotten.
	Generation int64

	turn chan struct{} // held by who converts, so that one event isn't converted by each of its watchers
}

// NewConversion returns a Conversion; see its fields.
func NewConversion(generation int64, needed func(o *Object) bool, convert func(ctx context.Context, objects []*Object) ([][]byte, error)) *Conversion {
	return &Conversion{Needed: needed, Convert: convert, Generation: generation, turn: make(chan struct{}, 1)}
}

// converted is what a conversion made of an object. A list: there is one for each served version that needs it.
type converted struct {
	by     *Conversion
	object *Object
	next   *converted
}

// Shown returns the object whose bytes the view shows for o: o itself, unless it has to be converted. That may
// take a webhook; ctx bounds it.
func (v *View) Shown(ctx context.Context, o *Object) (*Object, error) {
	if v.Conversion == nil {
		return o, nil
	}
	objects := []*Object{o}
	err := v.Prepare(ctx, objects)
	return objects[0], err
}

// Prepare does what Shown does for many objects, in their place.
func (v *View) Prepare(ctx context.Context, objects []*Object) error {
	c := v.Conversion
	if c == nil || len(c.replace(objects)) == 0 {
		return nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	missing := c.replace(objects) // somebody else may have made them meanwhile
	if len(missing) == 0 {
		return nil
	}
	return c.convert(ctx, objects, missing)
}

// replace puts what has been made before in the place of its objects, and returns where something is missing.
func (c *Conversion) replace(objects []*Object) (missing []int) {
	for i, o := range objects {
		if shown := c.find(o); shown != nil {
			objects[i] = shown
		} else {
			missing = append(missing, i)
		}
	}
	return missing
}

// find returns the object whose bytes are shown for o, or nil if it has to be made first.
func (c *Conversion) find(o *Object) *Object {
	if o.Err != nil || !c.Needed(o) {
		return o
	}
	for f := o.converted.Load(); f != nil; f = f.next {
		if f.by == c {
			return f.object
		}
	}
	return nil
}

// convert converts the objects at some places, and remembers the results.
func (c *Conversion) convert(ctx context.Context, objects []*Object, places []int) error {
	stored := make([]*Object, len(places))
	for i, place := range places {
		stored[i] = objects[place]
	}
	made, err := c.Convert(ctx, stored)
	if err != nil {
		return err
	}
	for i, o := range stored {
		shown := o
		if made[i] != nil {
			shown = NewObject(o.Key, made[i], o.Revision)
			shown.converted.Store(&converted{by: c, object: shown})
		}
		o.remember(c, shown)
		objects[places[i]] = shown
	}
	return nil
}

// found returns the object whose bytes the view shows for o, or nil if it has to be made first.
func (v *View) found(o *Object) *Object {
	if v.Conversion == nil {
		return o
	}
	return v.Conversion.find(o)
}

// remember keeps what a conversion made, and forgets what those of definitions before the last made: the last
// may still have readers. A reader of an older one has what Prepare gave it, or prepares again.
func (o *Object) remember(c *Conversion, shown *Object) {
	for {
		old := o.converted.Load()
		next := &converted{by: c, object: shown}
		for f, end := old, next; f != nil; f = f.next {
			if f.by != c && f.by.Generation >= c.Generation-1 {
				end.next = &converted{by: f.by, object: f.object}
				end = end.next
			}
		}
		if o.converted.CompareAndSwap(old, next) {
			return
		}
	}
}
