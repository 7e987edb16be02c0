package cacher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// tapeReader keeps what a tape gave since it last began.
type tapeReader struct {
	tape   *Tape
	state  []Event
	events []Event
	since  storage.Revision // the revision of the state; 0 while it isn't complete
	upTo   storage.Revision
	begun  int // how often the tape began
}

// read takes what the tape has until it's past a revision.
func (r *tapeReader) read(ctx context.Context, until storage.Revision) error {
	for r.upTo < until {
		events, upTo, err := r.tape.Next(ctx)
		switch {
		case errors.Is(err, watchstream.ErrExpired):
			*r = tapeReader{tape: r.tape, begun: r.begun + 1}
			continue
		case err != nil:
			return fmt.Errorf("at %d of %d: %w", r.upTo, until, err)
		}
		for _, e := range events {
			if r.since == 0 {
				r.state = append(r.state, e)
			} else {
				r.events = append(r.events, e)
			}
		}
		if r.since == 0 {
			r.since = upTo
		} else if upTo < r.upTo {
			return fmt.Errorf("upTo went back from %d to %d", r.upTo, upTo)
		}
		r.upTo = upTo
	}
	return nil
}

func text(o *kube.Object) string {
	if o == nil {
		return "nothing"
	}
	return string(o.Raw())
}

func textOf(o *thing) string {
	if o == nil {
		return "nothing"
	}
	return o.json(0)
}

// verify compares what a reader got with what was written.
func (r *tapeReader) verify(t *testing.T, writes []written) {
	t.Helper()
	state := map[string]written{}
	var follow []written
	for _, w := range writes {
		switch {
		case w.rev > r.upTo:
		case w.rev > r.since:
			follow = append(follow, w)
		case w.cur == nil:
			delete(state, w.key)
		default:
			state[w.key] = w
		}
	}
	if len(r.state) != len(state) {
		t.Errorf("the state at %d has %d objects, want %d", r.since, len(r.state), len(state))
	}
	for _, e := range r.state {
		if w := state[e.Cur.Key]; e.Prev != nil || e.Revision != 0 || w.rev != e.Cur.Revision || text(e.Cur) != textOf(w.cur) {
			t.Errorf("the state at %d has %s at %d, want %+v", r.since, e.Cur.Key, e.Cur.Revision, w)
		}
	}
	if len(r.events) != len(follow) {
		t.Fatalf("%d events from %d to %d, want %d", len(r.events), r.since, r.upTo, len(follow))
	}
	for i, e := range r.events {
		w := follow[i]
		p, _, _, _ := storage.SplitKey(w.key)
		if e.Revision != w.rev || e.Prefix != p || e.Object().Key != w.key || text(e.Prev) != textOf(w.prev) || text(e.Cur) != textOf(w.cur) {
			t.Errorf("event %d is of %s at %d: %s after %s, want %+v", i, e.Object().Key, e.Revision, text(e.Cur), text(e.Prev), w)
		}
	}
}

// TestTape reads tapes while random writers write: from before the first write, from the middle, and now and then with
// pauses. Each reader gets the state of one revision and then every change of all resources, in revision order.
func TestTape(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			b := smallBounds
			b.logEvents = defaultBounds.logEvents // nobody falls off the logs
			r := newRig(t, b)
			rng := rand.New(rand.NewPCG(seed, 0))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			const writers, writes, readers = 4, 150, 6
			m := &model{}
			var writing, reading sync.WaitGroup
			target := r.store.Current() + writers*writes
			for i := range writers {
				rng := rand.New(rand.NewPCG(seed, rng.Uint64()))
				writing.Go(func() { m.write(t, r.store, i, writes, rng, map[string]written{}) })
			}
			all := make([]*tapeReader, readers)
			for i := range all {
				begin := rng.IntN(writers * writes)
				reading.Go(func() {
					if err := r.cacher.WaitFor(ctx, target-writers*writes+storage.Revision(begin)); err != nil {
						t.Error(err)
						return
					}
					all[i] = &tapeReader{tape: r.cacher.Tape()}
					defer all[i].tape.Close()
					if err := all[i].read(ctx, target); err != nil {
						t.Error(err)
					}
				})
			}
			writing.Wait()
			reading.Wait()
			if t.Failed() {
				return
			}
			for _, reader := range all {
				reader.verify(t, m.sorted())
			}
		})
	}
}

// TestTapeFallsOff: a reader that is late is told so, and begins again with the state.
func TestTapeFallsOff(t *testing.T) {
	for name, fall := range map[string]func(b *bench){
		"the log dropped events": func(b *bench) {
			for i := range 3 * smallBounds.logEvents {
				b.put(widgetNamed(fmt.Sprint("w", i%5), "back"))
			}
		},
		"too many notes": func(b *bench) {
			for range 3 {
				b.cacher.tapes.hand(make([]note, tapeNotes/2), b.rev)
			}
		},
		"the feed listed anew": func(b *bench) {
			b.cacher.feed.install(nil, b.rev)
			b.cacher.tapes.expire()
			b.put(widgetNamed("other", "back"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(smallBounds)
			b.put(widgetNamed("w0", "front"))
			r := &tapeReader{tape: b.cacher.Tape()}
			at := b.put(widgetNamed("w0", "back"), widgetNamed("w1", "front"))
			if err := r.read(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			if len(r.state) != 1 || len(r.events) != 2 {
				t.Fatalf("got %d objects and %d events", len(r.state), len(r.events))
			}
			fall(b)
			at = b.put(widgetNamed("last", "back"))
			if err := r.read(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			if n := b.cacher.Counts().TapesExpired; r.begun != 1 || n != 1 {
				t.Errorf("the tape began again %d times, and %d were counted", r.begun, n)
			}
			var got, want []string
			for _, e := range r.state {
				got = append(got, e.Cur.Key)
			}
			for o := range b.Snapshot().All("") {
				want = append(want, o.Key)
			}
			if !slices.Equal(got, want) || len(r.events) > 0 {
				t.Errorf("the new state is %v with %d events, want %v", got, len(r.events), want)
			}
			r.tape.Close()
			if b.put(widgetNamed("w1", "back")); len(b.cacher.feed.noted) != 0 || b.cacher.feed.noting {
				t.Error("the feed goes on noting for nobody")
			}
		})
	}
}

// TestTapePieces: the state and the changes come in pieces, and a piece that ends within a revision doesn't say that the
// revision was given.
func TestTapePieces(t *testing.T) {
	b := newBench(defaultBounds)
	var things []*thing
	for i := range 3*tapeBatch + 1 {
		things = append(things, widgetNamed(fmt.Sprintf("w%04d", i), "front"))
	}
	b.put(things...)
	tape := b.cacher.Tape()
	defer tape.Close()
	for _, of := range []string{"the state", "one revision"} {
		var keys []string
		for last := storage.Revision(0); last < b.rev; {
			events, upTo, err := tape.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last = upTo
			for _, e := range events {
				keys = append(keys, e.Cur.Key)
			}
			if whole := len(keys) == len(things); whole != (last == b.rev) {
				t.Errorf("%s: upTo is %d of %d after %d objects", of, last, b.rev, len(keys))
			}
		}
		if !slices.IsSorted(keys) || len(keys) != len(things) {
			t.Errorf("%s: got %d objects, sorted: %t", of, len(keys), slices.IsSorted(keys))
		}
		b.put(things...)
	}
}

// TestTapeEnds: an empty cache has a complete state, a reader that waits is woken by a change, and its context ends the
// wait.
func TestTapeEnds(t *testing.T) {
	b := newBench(defaultBounds)
	b.cacher.feed.moveTo(7)
	b.rev = 7
	tape := b.cacher.Tape()
	defer tape.Close()
	if events, upTo, err := tape.Next(t.Context()); err != nil || len(events) > 0 || upTo != 7 {
		t.Fatalf("got %+v up to %d, %v", events, upTo, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	type batch struct {
		events []Event
		upTo   storage.Revision
	}
	came := make(chan batch, 1)
	ended := make(chan error, 1)
	go func() {
		events, upTo, _ := tape.Next(ctx)
		came <- batch{slices.Clone(events), upTo}
		_, _, err := tape.Next(ctx)
		ended <- err
	}()
	b.put(widgetNamed("a", "front"))
	if got := <-came; got.upTo != 8 || len(got.events) != 1 {
		t.Errorf("got %+v", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkFeed is what the feed pays for one change, without a tape and with one that a reader reads.
func BenchmarkFeed(b *testing.B) {
	for _, tapes := range []int{0, 1} {
		b.Run(fmt.Sprint(tapes, " tapes"), func(b *testing.B) {
			r := newBench(defaultBounds)
			raw, key := widget("a", `"tier":"front"`), string(widgets)+"ns1/a"
			ctx, cancel := context.WithCancel(b.Context())
			var reading sync.WaitGroup
			for range tapes {
				reader := &tapeReader{tape: r.cacher.Tape()}
				reading.Go(func() {
					for ctx.Err() == nil {
						_, _, _ = reader.tape.Next(ctx)
					}
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				r.rev++
				r.cacher.feed.applyAll([]storage.Change{{KeyValue: storage.KeyValue{Key: key, Value: raw, Revision: r.rev}}})
			}
			b.StopTimer()
			cancel()
			reading.Wait()
		})
	}
}
