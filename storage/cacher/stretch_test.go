package cacher

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// impatient is a context that ends when it has been looked at so many times.
type impatient struct {
	context.Context
	looks atomic.Int64
	done  chan struct{}
}

func endsAfter(ctx context.Context, looks int) *impatient {
	c := &impatient{Context: ctx, done: make(chan struct{})}
	c.looks.Store(int64(looks))
	return c
}

func (c *impatient) look() {
	if c.looks.Add(-1) == 0 {
		close(c.done)
	}
}

func (c *impatient) Done() <-chan struct{} { c.look(); return c.done }

func (c *impatient) Err() error {
	c.look()
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// TestHistoryGivenUp: a reader that gives up while it reads history, wherever it does, leaves nothing counted.
func TestHistoryGivenUp(t *testing.T) {
	r := newRig(t, smallBounds)
	ctx := t.Context()
	var begin, last storage.Revision
	for i := range 4 {
		last = r.createWidgets(10*i, 10*i+1)
	}
	begin = last
	for i := range 4 { // each has a state before the stretch, which is read for itself
		key := widgetNamed(fmt.Sprintf("w%03d", 10*i), "").key
		kv, err := r.store.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if last, err = r.store.Update(ctx, key, []byte(widgetNamed(fmt.Sprintf("w%03d", 10*i), "back").json(0)), kv.Revision); err != nil {
			t.Fatal(err)
		}
	}
	h, res := &r.cacher.stretches, r.cacher.Resource(widgets)
	gaveUp := 0
	for looks := 1; ; looks++ {
		s, err := h.get(endsAfter(ctx, looks), stretchKey{res, begin}, last)
		if err == nil {
			if len(s.events) != 4 || h.bytes.Load() == 0 {
				t.Errorf("the stretch has %d events and %d bytes", len(s.events), h.bytes.Load())
			}
			break
		}
		if gaveUp++; !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d looks: %v", looks, err)
		}
		if n := h.bytes.Load(); n != 0 || len(h.known) != 0 || len(h.order) != 0 {
			t.Fatalf("given up after %d looks: %d bytes are counted, %d stretches known, %d in order", looks, n, len(h.known), len(h.order))
		}
	}
	if gaveUp < 4 {
		t.Errorf("gave up at %d points only", gaveUp)
	}
}

// TestQuietStretches: stretches without events count, too, so that their number is bounded.
func TestQuietStretches(t *testing.T) {
	const most = 10
	small := smallBounds
	small.stretchBytes = most * stretchOverhead
	r := newRig(t, small)
	begin := r.write(widgetNamed("a", "front"))
	r.write(widgetNamed("a", "back"))
	r.catchUp()
	st := &r.cacher.stretches
	for i := range 5 * most {
		quiet := r.cacher.Resource(storage.PrefixOf("example.com", fmt.Sprint("quiet", i)))
		if _, err := st.seek(t.Context(), quiet, storage.Stretch{After: begin, Through: r.cacher.Position()}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(st.known); n > most+1 || n != len(st.order) || st.bytes.Load() != int64(n)*stretchOverhead {
		t.Errorf("%d stretches are kept, %d in order, with %d bytes; want at most %d", n, len(st.order), st.bytes.Load(), most+1)
	}
}

// TestForgetOwn: a reader that failed doesn't forget the stretch that another one has read meanwhile.
func TestForgetOwn(t *testing.T) {
	k, other := stretchKey{after: 1}, &stretch{}
	st := &stretches{known: map[stretchKey]*stretch{k: other}, order: []stretchKey{k}}
	if st.forget(k, &stretch{}); st.known[k] != other || len(st.order) != 1 {
		t.Error("another reader's stretch is forgotten")
	}
	if st.forget(k, other); len(st.known) != 0 || len(st.order) != 0 {
		t.Error("its own isn't")
	}
}
