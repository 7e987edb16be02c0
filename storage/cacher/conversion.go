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

// Prepare converts what the view needs converted. It must be called before Append, unless the view has no
// Conversion. ctx bounds it.
func (v *View) Prepare(ctx context.Context, objects ...*Object) error {
	c := v.Conversion
	if c == nil || len(c.missing(objects)) == 0 {
		return nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	objects = c.missing(objects) // somebody else may have made them meanwhile
	if len(objects) == 0 {
		return nil
	}
	return c.convert(ctx, objects)
}

// convert converts objects and remembers the results.
func (c *Conversion) convert(ctx context.Context, objects []*Object) error {
	made, err := c.Convert(ctx, objects)
	if err != nil {
		return err
	}
	for i, o := range objects {
		as := o
		if made[i] != nil {
			as = NewObject(o.Key, made[i], o.Revision)
			as.converted.Store(&converted{by: c, object: as})
		}
		o.remember(c, as)
	}
	return nil
}

func (c *Conversion) missing(objects []*Object) []*Object {
	var missing []*Object
	for _, o := range objects {
		if o != nil && o.Err == nil && c.Needed(o) && o.convertedBy(c) == nil {
			missing = append(missing, o)
		}
	}
	return missing
}

func (o *Object) convertedBy(c *Conversion) *Object {
	for f := o.converted.Load(); f != nil; f = f.next {
		if f.by == c {
			return f.object
		}
	}
	return nil
}

// remember keeps what a conversion made, and forgets what those of definitions before the last made: the last
// may still have readers.
func (o *Object) remember(c *Conversion, as *Object) {
	for {
		old := o.converted.Load()
		next := &converted{by: c, object: as}
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

// prepared tells whether an object can be shown.
func (v *View) prepared(o *Object) bool {
	c := v.Conversion
	return c == nil || !c.Needed(o) || o.convertedBy(c) != nil
}

// Shown returns the object whose bytes are shown for o: o itself unless it was converted. It must have been
// prepared. What two changes of the definition have made forgotten since then is converted again.
func (v *View) Shown(o *Object) *Object {
	c := v.Conversion
	if c == nil || o.Key == "" || !c.Needed(o) { // a bookmark has no key
		return o
	}
	as := o.convertedBy(c)
	if as == nil && c.convert(context.Background(), []*Object{o}) == nil {
		as = o.convertedBy(c)
	}
	if as == nil {
		return o
	}
	return as
}
