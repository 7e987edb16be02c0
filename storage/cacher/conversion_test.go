package cacher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// reader marks the context of who reads.
type reader struct{}

// webhook is a conversion that only a reader's context may ask for, while nobody holds a lock. It turns "red" into
// "blue".
type webhook struct {
	t       *testing.T
	bench   *bench
	forgets int // how often what was made is forgotten between two looks, as when the definition changes twice
	fail    error
}

func (w *webhook) view() *View {
	c := w.bench.cacher.NewConversion(1, nil, w.convert)
	c.Needed = func(o *Object) bool {
		if f := o.converted.Load(); w.forgets > 0 && f != nil && f.by == c {
			w.forgets--
			o.remember(&Conversion{Generation: 3}, o)
		}
		return true
	}
	return &View{APIVersion: "example.com/v2", Kind: "Widget", Conversion: c}
}

func (w *webhook) convert(ctx context.Context, objects []*Object) ([][]byte, error) {
	if ctx.Value(reader{}) == nil {
		w.t.Error("converted without the reader's context")
		return nil, errors.New("nobody waits for this")
	}
	if !w.bench.mu.TryLock() {
		w.t.Error("converted under the resource's lock")
	} else {
		w.bench.mu.Unlock()
	}
	for seq := w.bench.log.low; seq < w.bench.log.next; seq++ {
		if e := w.bench.log.at(seq); !e.mu.TryLock() {
			w.t.Error("converted under an event's lock")
		} else {
			e.mu.Unlock()
		}
	}
	if w.fail != nil {
		return nil, w.fail
	}
	made := make([][]byte, len(objects))
	for i, o := range objects {
		made[i] = bytes.ReplaceAll(o.raw, []byte(`"red"`), []byte(`"blue"`))
	}
	return made, nil
}

// open opens a watch in the webhook's form.
func (w *webhook) open(t *testing.T, v *View, start Start) *Cursor {
	t.Helper()
	o := query{}.options(t)
	o.View, o.Start = v, start
	w.bench.mu.Lock()
	defer w.bench.mu.Unlock()
	return w.bench.openLocked(o, o.groupKey())
}

func TestConvertedWatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		start   Start
		forgets int
	}{
		{"events", StartNow, 0},
		{"events, forgotten at each look", StartNow, 1 << 10},
		{"the state", StartState, 0},
		{"the state, forgotten at some looks", StartState, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(defaultBounds)
			w := &webhook{t: t, bench: b, forgets: c.forgets}
			view := w.view()
			ctx := context.WithValue(t.Context(), reader{}, true)
			events := w.open(t, view, StartNow)
			defer events.Close()
			for _, name := range []string{"a", "b"} {
				b.put(widgetNamed(name, "front"))
			}
			b.remove(widgetNamed("a", "").key)
			b.put(widgetNamed("a", "front"))
			cursor, want := events, "A a 1, A b 2, D a 3, A a 4"
			if c.start == StartState {
				cursor, want = w.open(t, view, StartState), "A a 4, A b 2"
				defer cursor.Close()
			}
			var got []string
			for {
				out, wait, err := cursor.Next(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				if wait != nil {
					break
				}
				got = append(got, lines(out)...)
			}
			if summary(got) != want {
				t.Errorf("got %s, want %s", summary(got), want)
			}
			for _, f := range got {
				if !strings.Contains(f, `"example.com/v2"`) || !strings.Contains(f, `"blue"`) {
					t.Errorf("not converted: %s", f)
				}
			}
		})
	}
}

// TestConversionFailsWatch: the stream ends with an ERROR event, and nothing comes that isn't converted.
func TestConversionFailsWatch(t *testing.T) {
	for _, start := range []Start{StartNow, StartState} {
		name := map[Start]string{StartNow: "events", StartState: "the state"}[start]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(defaultBounds)
				w := &webhook{t: t, bench: b, fail: errors.New("secret of the webhook")}
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), reader{}, true), time.Minute)
				defer cancel()
				cursor := w.open(t, w.view(), StartNow)
				b.put(widgetNamed("a", "front"))
				if start == StartState {
					cursor.Close()
					cursor = w.open(t, w.view(), StartState)
				}
				var sink frames
				err := watchstream.Serve(ctx, cursor, watchstream.Options{}, &sink)
				if !errors.Is(err, watchstream.ErrTold) || !errors.Is(err, w.fail) {
					t.Errorf("the stream ended with %v", err)
				}
				var got struct {
					Type   string
					Object struct {
						Kind string
						Code int
					}
				}
				if err := json.Unmarshal(sink, &got); err != nil {
					t.Fatalf("%v: %s", err, sink)
				}
				if got.Type != "ERROR" || got.Object.Kind != "Status" || got.Object.Code != 500 || strings.Contains(string(sink), "secret") {
					t.Errorf("got %s", sink)
				}
			})
		})
	}
}

// frames is a sink that keeps what it gets.
type frames []byte

func (f *frames) Write(buf []byte) error {
	*f = append(*f, buf[watchstream.Headroom:]...)
	return nil
}

// TestPrepareAtOnce: an object is converted once, however many views of a version and readers ask.
func TestPrepareAtOnce(t *testing.T) {
	b := newBench(defaultBounds)
	w := &webhook{t: t, bench: b}
	view := w.view()
	other := &View{APIVersion: "example.com/v2", Kind: "Partial", MetadataOnly: true, Conversion: view.Conversion}
	ctx := context.WithValue(t.Context(), reader{}, true)
	calls := 0
	view.Conversion.Convert = func(ctx context.Context, objects []*Object) ([][]byte, error) {
		calls += len(objects)
		made, err := w.convert(ctx, objects)
		made[0] = nil // stays as it is
		return made, err
	}
	stored := []*Object{
		NewObject(widgetNamed("a", "").key, []byte(widgetNamed("a", "front").json(0)), 1),
		NewObject(widgetNamed("b", "").key, []byte(widgetNamed("b", "front").json(0)), 2),
		{Key: "broken", Revision: storage.Revision(3), Err: errors.New("not an object")},
	}
	for _, v := range []*View{view, other, view} {
		objects := append([]*Object(nil), stored...)
		if err := v.Prepare(ctx, objects); err != nil {
			t.Fatal(err)
		}
		if objects[0] != stored[0] || objects[1] == stored[1] || objects[2] != stored[2] {
			t.Errorf("shown are %v, stored %v", objects, stored)
		}
		again, err := v.Shown(ctx, objects[1])
		if err != nil || again != objects[1] {
			t.Errorf("what is shown of what is shown is another: %v", err)
		}
	}
	if calls != 2 {
		t.Errorf("%d objects were converted, want 2", calls)
	}
}

// TestPrepareApart: different objects are converted at the same time, and one object once: whoever asks for it meanwhile waits
// for the one call, and gets what came of it.
func TestPrepareApart(t *testing.T) {
	const readers = 8
	object := func(i int) *Object {
		w := widgetNamed(fmt.Sprint("w", i), "front")
		return NewObject(w.key, []byte(w.json(0)), storage.Revision(i+1))
	}
	var calls atomic.Int64
	entered, release := make(chan struct{}), make(chan struct{})
	refused := errors.New("the webhook is broken")
	c := &Conversion{
		Needed: func(*Object) bool { return true },
		Convert: func(_ context.Context, objects []*Object) ([][]byte, error) {
			calls.Add(1)
			select {
			case entered <- struct{}{}:
				<-release
			case <-release:
			}
			if objects[0].Revision == 1 {
				return nil, refused
			}
			return [][]byte{[]byte(`{"converted":true}`)}, nil
		},
	}
	view := &View{Conversion: c}
	var group sync.WaitGroup
	for i := range readers {
		o := object(i)
		for range 3 {
			group.Go(func() {
				shown, err := view.Shown(t.Context(), o)
				if o.Revision == 1 && err != refused || o.Revision > 1 && (err != nil || string(shown.Raw()) != `{"converted":true}`) {
					t.Errorf("object %d is shown as %v, %v", o.Revision, shown, err)
				}
			})
		}
	}
	for range readers { // all are under way at once
		<-entered
	}

	close(release)
	group.Wait()
	if n := calls.Load(); n < readers || n > readers+2 { // a late reader of the broken one asks again
		t.Errorf("the webhook was called %d times for %d objects", n, readers)
	}
}

// TestConvertedAreCounted: what conversions made counts once for all readers, and until nobody has it any more.
func TestConvertedAreCounted(t *testing.T) {
	c := New(nil, Options{})
	view := &View{APIVersion: "example.com/v2", Kind: "Widget"}
	view.Conversion = c.NewConversion(1, func(*Object) bool { return true }, func(_ context.Context, objects []*Object) ([][]byte, error) {
		return [][]byte{bytes.Clone(objects[0].raw)}, nil
	})
	o := NewObject("/registry/example.com/widgets/a", []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`), 1)
	for range 2 {
		if _, err := view.Shown(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if n, size := c.conversions.objects.Load(), c.conversions.bytes.Load(); n != 1 || size != convertedOverhead+int64(len(o.raw)) {
		t.Errorf("%d objects of %d bytes count", n, size)
	}
	runtime.KeepAlive(o)
	for end := time.Now().Add(time.Minute); c.conversions.objects.Load() != 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("a result still counts that nobody has")
		}
	}
	if size := c.conversions.bytes.Load(); size != 0 {
		t.Errorf("%d bytes count of no object", size)
	}
}
