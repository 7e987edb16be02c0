package cacher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
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

	made   map[*kube.Object]bool // the stored objects whose result is remembered
	forgot map[*kube.Object]bool // the results that don't remember themselves any more
}

func (w *webhook) view() *kube.View {
	w.made, w.forgot = map[*kube.Object]bool{}, map[*kube.Object]bool{}
	c := w.bench.cacher.Conversions().New(1, nil, w.convert)
	c.Needed = func(o *kube.Object) bool {
		result := bytes.Contains(o.Raw(), []byte(`"blue"`))
		if w.forgets > 0 && (w.made[o] || result && !w.forgot[o]) {
			w.forgets--
			w.made[o], w.forgot[o] = false, true
			later(w.t, o)
		}
		return true
	}
	return &kube.View{APIVersion: "example.com/v2", Kind: "Widget", Conversion: c}
}

// later shows an object under a definition that was changed twice since, so that what was made under the first is forgotten.
func later(t *testing.T, o *kube.Object) {
	v := &kube.View{Conversion: &kube.Conversion{
		Generation: 3,
		Needed:     func(*kube.Object) bool { return true },
		Convert:    func(context.Context, []*kube.Object) ([][]byte, error) { return [][]byte{nil}, nil },
	}}
	if _, err := v.Shown(t.Context(), o); err != nil {
		t.Error(err)
	}
}

func (w *webhook) convert(ctx context.Context, objects []*kube.Object) ([][]byte, error) {
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
		made[i] = bytes.ReplaceAll(o.Raw(), []byte(`"red"`), []byte(`"blue"`))
		w.made[o] = true
	}
	return made, nil
}

// open opens a watch in the webhook's form.
func (w *webhook) open(t *testing.T, v *kube.View, start Start) *Cursor {
	t.Helper()
	o := query{}.options(t)
	o.View, o.Start = v, start
	w.bench.mu.Lock()
	defer w.bench.mu.Unlock()
	return w.bench.openLocked(o, o.groupKey(), nil)
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
	other := &kube.View{APIVersion: "example.com/v2", Kind: "Partial", MetadataOnly: true, Conversion: view.Conversion}
	ctx := context.WithValue(t.Context(), reader{}, true)
	calls := 0
	view.Conversion.Convert = func(ctx context.Context, objects []*kube.Object) ([][]byte, error) {
		calls += len(objects)
		made, err := w.convert(ctx, objects)
		made[0] = nil // stays as it is
		return made, err
	}
	stored := []*kube.Object{
		kube.NewObject(widgetNamed("a", "").key, []byte(widgetNamed("a", "front").json(0)), 1),
		kube.NewObject(widgetNamed("b", "").key, []byte(widgetNamed("b", "front").json(0)), 2),
		{Key: "broken", Revision: storage.Revision(3), Err: errors.New("not an object")},
	}
	for _, v := range []*kube.View{view, other, view} {
		objects := append([]*kube.Object(nil), stored...)
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
