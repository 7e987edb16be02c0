package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Store takes what Reflect finds. Its methods are called by one goroutine at a time, and the objects are the store's.
type Store[T any] interface {
	// Replace says that the collection has exactly these objects, in this version: each is an Added. It's the first call of all,
	// and comes again when events may have been missed. The store finds out by comparing what has changed or vanished.
	Replace(state []Event[T], version string)
	// Apply says what has changed: Added, Modified or Deleted. A Bookmark says that nothing else has changed up to its
	// version.
	Apply(event Event[T])
	// Resync is called as often as the option Resync says, once the store has a state.
	Resync()
}

const (
	// reflectFirst and reflectMost are the pauses after failures, those of client-go's reflector.
	reflectFirst = 800 * time.Millisecond
	reflectMost  = 30 * time.Second
	// quietTime without a failure makes the pauses begin anew.
	quietTime = 2 * time.Minute
	// minReflectWatch to maxReflectWatch is how long Reflect asks the server to serve one connection, by chance: connections
	// then move to other servers now and then, and not all at once.
	minReflectWatch = 5 * time.Minute
	maxReflectWatch = 10 * time.Minute
	// shortWatch that gives nothing counts as a failure, so that a server that ends each watch isn't asked all the time.
	shortWatch = time.Second
)

// Reflect keeps the store the same as the collection until ctx ends, and returns why it did.
//
// It begins with the state: as the beginning of a watch where the server has that (sendInitialEvents), else as a list in
// pages; one line in the log says which. Then it follows. When history is gone it fetches the state again: from the last
// version it has seen on, or, if that's unknown to the server, whatever the server has. After failures it pauses, at first
// 0.8 s, at most half a minute (see Backoff), beginning anew after two minutes without one; each is logged as a warning.
// Refusals are tried again as well: what is forbidden or missing now may not be later. If ctx ends before the store has had a
// state, the error wraps the last failure, too: errors.Is then tells whether it was ErrForbidden or ErrNotFound, for example.
//
// The options narrow the collection (Labels, Fields), and say how (PageSize, Backoff, Resync, CountIn).
func Reflect[T any](ctx context.Context, from Collection[T], store Store[T], options ...Option) error {
	c := newCall(options)
	if c.err != nil {
		return c.err
	}
	f := &reflector[T]{from: from, call: c, store: store, pause: c.backoff(reflectFirst, reflectMost)}
	var resync sync.WaitGroup
	defer resync.Wait()
	if c.resync > 0 {
		resync.Go(func() { f.resync(ctx) })
	}
	for {
		opened := time.Now()
		err := f.once(ctx)
		if ctx.Err() != nil {
			return f.ended(ctx)
		}
		if err == io.EOF && (f.progress || time.Since(opened) >= shortWatch) {
			continue
		}
		if sleep(ctx, f.failed(err)) != nil {
			return f.ended(ctx)
		}
	}
}

// ended returns why Reflect ended.
func (f *reflector[T]) ended(ctx context.Context) error {
	if f.given || f.lastFailure == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: the last failure: %w", context.Cause(ctx), f.lastFailure)
}

// reflector is one Reflect.
type reflector[T any] struct {
	from        Collection[T]
	call        *call
	pause       *backoff
	lastFail    time.Time
	lastFailure error // nil before the first

	current  bool   // the store has the state at version, so that a watch can go on from it
	version  string // the last one seen; empty if none has been, or if the server doesn't know it any more
	paged    bool   // the server doesn't give the state at the beginning of a watch
	told     bool   // the log says how the state is fetched
	progress bool   // the last connection gave something

	mu    sync.Mutex // guards both below: resync calls the store, too
	store Store[T]
	given bool // the store has had a state; only Reflect's own goroutine writes it
}

// once fetches the state if need be, and follows it for one connection. io.EOF is a clean end.
func (f *reflector[T]) once(ctx context.Context) error {
	f.progress = false
	w, err := f.connect(ctx)
	if err == nil {
		f.call.counters.connected(true)
		err = f.forward(ctx, w)
		w.close()
		f.call.counters.connected(false)
	}
	if errors.Is(err, ErrExpired) || errors.Is(err, ErrVersionTooLarge) || errors.Is(err, ErrType) {
		f.current = false // ErrType: the object may be gone or mended in the next state
	}
	return err
}

// connect returns a watch that goes on where the store is.
func (f *reflector[T]) connect(ctx context.Context) (*connection[T], error) {
	if f.current {
		return f.watch(ctx, map[string]string{"resourceVersion": f.version})
	}
	w, err := f.state(ctx)
	if f.version != "" && (errors.Is(err, ErrExpired) || errors.Is(err, ErrVersionTooLarge)) {
		f.version, f.current = "", false // this server doesn't know it: whatever it has
		w, err = f.state(ctx)            // once: a server that doesn't know its own version either is a failure, with its pause
	}
	return w, err
}

// state gives the store the state, at least as new as version, and returns a watch that goes on from it.
func (f *reflector[T]) state(ctx context.Context) (*connection[T], error) {
	if !f.paged {
		w, err := f.stream(ctx)
		if !unsupported(err) {
			return w, err
		}
		f.paged = true
	}
	if err := f.list(ctx); err != nil {
		return nil, err
	}
	return f.watch(ctx, map[string]string{"resourceVersion": f.version})
}

// errNoInitialEnd is of a server that ignores sendInitialEvents, as those before 1.27 do.
var errNoInitialEnd = errors.New("the server doesn't say where the initial state ends")

// unsupported tells whether the server doesn't give the state at the beginning of a watch.
func unsupported(err error) bool {
	if errors.Is(err, errNoInitialEnd) {
		return true
	}
	refusal, ok := errors.AsType[*StatusError](err)
	return ok && (refusal.Code == http.StatusBadRequest || refusal.Code == http.StatusUnprocessableEntity)
}

// stream takes the state from the beginning of a watch.
func (f *reflector[T]) stream(ctx context.Context) (w *connection[T], err error) {
	query := map[string]string{"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": f.version}
	if w, err = f.watch(ctx, query); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	var state initialState[T]
	for {
		event, err := w.next(ctx)
		switch {
		case err == io.EOF:
			return w, fmt.Errorf("watch %s: %w within the initial state", f.from, io.ErrUnexpectedEOF)
		case err != nil:
			return w, err
		case event.Type == Bookmark && !event.initialEnd:
			return w, errNoInitialEnd
		case event.Type == Bookmark:
			f.replace(ctx, state.objects, event.ResourceVersion, "at the beginning of a watch")
			return w, nil
		default:
			state.take(event.Event)
		}
	}
}

// initialState is what a watch has given of its initial state.
type initialState[T any] struct {
	objects []Event[T]  // each is Added, and no key is there twice
	at      map[Key]int // where an object is in objects; nil until a change comes between them, which is seldom
}

// take takes the next event. While the state is given, objects change: one that has been given is replaced, or goes.
func (s *initialState[T]) take(event Event[T]) {
	if s.at == nil {
		if event.Type == Added {
			s.objects = append(s.objects, event)
			return
		}
		s.at = make(map[Key]int, len(s.objects))
		for i, given := range s.objects {
			s.at[given.Key] = i
		}
	}
	i, given := s.at[event.Key]
	switch {
	case event.Type == Deleted && given:
		last := len(s.objects) - 1
		s.objects[i] = s.objects[last]
		s.at[s.objects[i].Key] = i
		s.objects = slices.Delete(s.objects, last, last+1)
		delete(s.at, event.Key)
	case event.Type == Deleted:
	case given:
		event.Type = Added
		s.objects[i] = event
	default:
		event.Type = Added
		s.at[event.Key] = len(s.objects)
		s.objects = append(s.objects, event)
	}
}

// list takes the state from a list. A list that expires between its pages is fetched again as one page.
func (f *reflector[T]) list(ctx context.Context) error {
	c := *f.call
	for {
		c.query = f.query(nil)
		if f.version != "" {
			c.query.Set("resourceVersion", f.version)
			c.query.Set("resourceVersionMatch", "NotOlderThan")
		}
		first, err := f.from.page(ctx, &c, "")
		if err != nil {
			return err
		}
		list := List[T]{ResourceVersion: first.version, from: f.from, call: &c, first: first}
		var state []Event[T]
		for event, failed := range list.events(ctx) {
			if err = failed; err == nil {
				state = append(state, event)
			}
		}
		if errors.Is(err, ErrExpired) && c.pageSize > 0 {
			c.pageSize = 0
			continue
		}
		if err == nil {
			f.replace(ctx, state, list.ResourceVersion, "by a list in pages")
		}
		return err
	}
}

// replace hands the state to the store.
func (f *reflector[T]) replace(ctx context.Context, state []Event[T], version, how string) {
	if !f.told {
		f.told = true
		f.from.c.log.InfoContext(ctx, "reflecting a collection", "resource", f.from.String(), "state", how, "objects", len(state), "version", version)
	}
	if f.call.counters.Lists.Add(1) > 1 {
		f.call.counters.Relists.Add(1)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.Replace(state, version)
	f.version, f.current, f.progress, f.given = version, true, true, true
}

// watch opens a connection with what is in the query besides the options.
func (f *reflector[T]) watch(ctx context.Context, with map[string]string) (*connection[T], error) {
	query := f.query(with)
	timeout := minReflectWatch + rand.N(maxReflectWatch-minReflectWatch)
	query.Set("timeoutSeconds", strconv.Itoa(int(timeout/time.Second)))
	f.call.counters.Watches.Add(1)
	return f.from.open(ctx, query, true)
}

// query returns the options' query with more in it.
func (f *reflector[T]) query(with map[string]string) url.Values {
	query := url.Values{}
	for _, name := range []string{"labelSelector", "fieldSelector"} {
		if value := f.call.query.Get(name); value != "" {
			query.Set(name, value)
		}
	}
	for name, value := range with {
		query.Set(name, value)
	}
	return query
}

// forward hands events to the store until the connection ends.
func (f *reflector[T]) forward(ctx context.Context, w *connection[T]) error {
	for {
		event, err := w.next(ctx)
		if err != nil {
			return err
		}
		if event.ResourceVersion == "" {
			return fmt.Errorf("watch %s: %s %s: %w", f.from, event.Type, event.Key, ErrNoVersion)
		}
		if event.Type != Bookmark {
			f.call.counters.Events.Add(1)
		}
		f.apply(event.Event)
	}
}

func (f *reflector[T]) apply(event Event[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.Apply(event)
	f.version, f.progress = event.ResourceVersion, true
}

// failed returns how long to wait after an error.
func (f *reflector[T]) failed(err error) time.Duration {
	now := time.Now()
	if now.Sub(f.lastFail) > quietTime {
		f.pause.reset()
	}
	f.lastFail, f.lastFailure = now, err
	pause := f.pause.after(err)
	f.call.counters.Failures.Add(1)
	f.from.c.log.Warn("reflecting failed, going on", "resource", f.from.String(), "version", f.version, "after", pause.Round(time.Millisecond), "error", err)
	return pause
}

// resync calls the store from time to time.
func (f *reflector[T]) resync(ctx context.Context) {
	tick := time.NewTicker(f.call.resync)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.mu.Lock()
			if f.given {
				f.store.Resync()
			}
			f.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}
