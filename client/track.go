package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	// trackFirst and trackMost are the pauses after failures, those of client-go's reflector.
	trackFirst = 800 * time.Millisecond
	trackMost  = 30 * time.Second
	// quietTime without a failure makes the pauses begin anew.
	quietTime = 2 * time.Minute
	// minTrackWatch to maxTrackWatch is how long Track asks the server to serve one connection, by chance: connections
	// then move to other servers now and then, and not all at once.
	minTrackWatch = 5 * time.Minute
	maxTrackWatch = 10 * time.Minute
	// shortWatch that gives nothing counts as a failure, so that a server that ends each watch isn't asked all the time.
	shortWatch = time.Second
)

// Step is what Track yields: a state of the collection, or a change of it.
type Step[T any] struct {
	State *State[T] // the collection has exactly this. nil for a change
	Event Event[T]  // what has changed
}

// State is what a collection has at a version.
type State[T any] struct {
	Objects []Event[T] // each is Added
	Version string
}

// Track yields what there is, and then each change, for ever: also over cut connections, restarts and errors. When history is
// gone it lists anew, and what there is then is a State again: the caller finds out by comparing what has changed or vanished.
//
// An error that it yields isn't the last one: it goes on after a pause, whatever the error is, so that who doesn't want that
// leaves the loop. The pauses are those of Reflect (see Backoff). Only when ctx has ended it yields why, and ends, and so it does
// when an option is wrong.
//
// With Since it begins after that version, without a State. The other options narrow the collection (Labels, Fields), and say how
// (PageSize, Backoff, Bookmarks, CountIn).
func (c Collection[T]) Track(ctx context.Context, options ...Option) iter.Seq2[Step[T], error] {
	t := newTracker(c, newSettings(options))
	t.paged = true
	return t.run(ctx)
}

// tracker is one Track. Reflect is one that takes the state from the beginning of a watch where the server has that.
type tracker[T any] struct {
	from     Collection[T]
	settings *settings
	backoff  *backoff
	yield    func(Step[T], error) bool

	current  bool   // the state at version was given, so that a watch can go on from it
	version  string // the last one seen; empty if none has been, or if the server doesn't know it any more
	paged    bool   // the state is listed, because the server doesn't give it at the beginning of a watch
	progress bool   // the last connection gave something
	lastFail time.Time
	pause    time.Duration // the pause after it
}

func newTracker[T any](from Collection[T], s *settings) *tracker[T] {
	return &tracker[T]{from: from, settings: s, backoff: s.backoff(trackFirst, trackMost)}
}

// errLeft says that the loop over what is yielded was left.
var errLeft = errors.New("the loop was left")

// run is Track, once.
func (t *tracker[T]) run(ctx context.Context) iter.Seq2[Step[T], error] {
	return func(yield func(Step[T], error) bool) {
		if err := t.settings.check(aWatch); err != nil {
			yield(Step[T]{}, err)
			return
		}
		t.yield = yield
		if t.settings.since != "" {
			t.version, t.current = t.settings.since, true
		}
		for {
			opened := time.Now()
			err := t.once(ctx)
			switch {
			case err == errLeft:
				return
			case ctx.Err() != nil:
				yield(Step[T]{}, context.Cause(ctx))
				return
			case err == io.EOF && (t.progress || time.Since(opened) >= shortWatch):
				continue
			}
			t.failed(err)
			if !yield(Step[T]{}, err) {
				return
			}
			if ended := sleep(ctx, t.pause); ended != nil {
				yield(Step[T]{}, ended)
				return
			}
		}
	}
}

// failed works out how long to wait after an error.
func (t *tracker[T]) failed(err error) {
	now := time.Now()
	if now.Sub(t.lastFail) > quietTime {
		t.backoff.reset()
	}
	t.lastFail, t.pause = now, t.backoff.after(err)
	t.settings.counters.Failures.Add(1)
}

// once fetches the state if need be, and follows it for one connection. io.EOF is a clean end.
func (t *tracker[T]) once(ctx context.Context) error {
	t.progress = false
	w, err := t.connect(ctx)
	if err == nil {
		err = w.forward(ctx, t.settings.counters, t.apply)
	}
	if errors.Is(err, ErrExpired) || errors.Is(err, ErrVersionTooLarge) || errors.Is(err, ErrType) {
		t.current = false // ErrType: the object may be gone or mended in the next state
	}
	return err
}

// apply yields what a connection has given.
func (t *tracker[T]) apply(event Event[T]) bool {
	t.version, t.progress = event.ResourceVersion, true
	return event.Type == Bookmark && !t.settings.bookmarks || t.yield(Step[T]{Event: event}, nil)
}

// connect returns a watch that goes on from what was yielded.
func (t *tracker[T]) connect(ctx context.Context) (*connection[T], error) {
	if t.current {
		return t.watch(ctx, map[string]string{"resourceVersion": t.version})
	}
	w, err := t.state(ctx)
	if t.version != "" && (errors.Is(err, ErrExpired) || errors.Is(err, ErrVersionTooLarge)) {
		t.version, t.current = "", false // this server doesn't know it: whatever it has
		w, err = t.state(ctx)            // once: a server that doesn't know its own version either is a failure, with its pause
	}
	return w, err
}

// state yields the state, at least as new as version, and returns a watch that goes on from it.
func (t *tracker[T]) state(ctx context.Context) (*connection[T], error) {
	if !t.paged {
		w, err := t.stream(ctx)
		if !unsupported(err) || t.from.merged != nil { // which can't be listed
			return w, err
		}
		t.paged = true
	}
	if err := t.list(ctx); err != nil {
		return nil, err
	}
	return t.watch(ctx, map[string]string{"resourceVersion": t.version})
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
func (t *tracker[T]) stream(ctx context.Context) (w *connection[T], err error) {
	query := map[string]string{"sendInitialEvents": "true", "resourceVersionMatch": matchNotOlderThan, "resourceVersion": t.version}
	if w, err = t.watch(ctx, query); err != nil {
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
			return w, fmt.Errorf("watch %s: %w within the initial state", t.from, io.ErrUnexpectedEOF)
		case err != nil:
			return w, err
		case event.Type == Bookmark && !event.initialEnd:
			return w, errNoInitialEnd
		case event.Type == Bookmark:
			return w, t.replace(state.objects, event.ResourceVersion)
		default:
			state.take(event.Event)
		}
	}
}

// initialState is what a watch has given of its initial state.
type initialState[T any] struct {
	objects []Event[T]       // each is Added, and none is there twice
	at      map[identity]int // where an object is in objects; nil until a change comes between them, which is seldom
}

// identity tells objects apart, also those of several resources.
type identity struct {
	apiVersion, kind string
	Key
}

func identityOf[T any](event Event[T]) identity {
	if o, ok := any(event.Object).(*Object); ok {
		return identity{o.APIVersion(), o.Kind(), event.Key}
	}
	return identity{Key: event.Key}
}

// take takes the next event. While the state is given, objects change: one that has been given is replaced, or goes.
func (s *initialState[T]) take(event Event[T]) {
	if s.at == nil {
		if event.Type == Added {
			s.objects = append(s.objects, event)
			return
		}
		s.at = make(map[identity]int, len(s.objects))
		for i, given := range s.objects {
			s.at[identityOf(given)] = i
		}
	}
	id := identityOf(event)
	i, given := s.at[id]
	switch {
	case event.Type == Deleted && given:
		last := len(s.objects) - 1
		s.objects[i] = s.objects[last]
		s.at[identityOf(s.objects[i])] = i
		s.objects = slices.Delete(s.objects, last, last+1)
		delete(s.at, id)
	case event.Type == Deleted:
	case given:
		event.Type = Added
		s.objects[i] = event
	default:
		event.Type = Added
		s.at[id] = len(s.objects)
		s.objects = append(s.objects, event)
	}
}

// list takes the state from a list. A list that expires between its pages is fetched again as one page.
func (t *tracker[T]) list(ctx context.Context) error {
	s := *t.settings
	for {
		s.query = t.settings.only(aWatch)
		if t.version != "" {
			s.query.Set("resourceVersion", t.version)
			s.query.Set("resourceVersionMatch", matchNotOlderThan)
		}
		first, err := t.from.page(ctx, &s, s.pageSize, "")
		if err != nil {
			return err
		}
		list := List[T]{ResourceVersion: first.version, from: t.from, settings: &s, first: first}
		var state []Event[T]
		for event, failed := range list.events(ctx) {
			if err = failed; err == nil {
				state = append(state, event)
			}
		}
		if errors.Is(err, ErrExpired) && s.pageSize > 0 {
			s.pageSize = 0
			continue
		}
		if err != nil {
			return err
		}
		return t.replace(state, list.ResourceVersion)
	}
}

// replace yields the state.
func (t *tracker[T]) replace(objects []Event[T], version string) error {
	if t.settings.counters.Lists.Add(1) > 1 {
		t.settings.counters.Relists.Add(1)
	}
	t.version, t.current, t.progress = version, true, true
	if !t.yield(Step[T]{State: &State[T]{objects, version}}, nil) {
		return errLeft
	}
	return nil
}

// watch opens a connection with what is in the query besides the options.
func (t *tracker[T]) watch(ctx context.Context, with map[string]string) (*connection[T], error) {
	query := t.settings.only(aWatch)
	for name, value := range with {
		query.Set(name, value)
	}
	timeout := minTrackWatch + rand.N(maxTrackWatch-minTrackWatch)
	query.Set("allowWatchBookmarks", "true")
	query.Set("timeoutSeconds", strconv.Itoa(int(timeout/time.Second)))
	t.settings.counters.Watches.Add(1)
	return t.from.open(ctx, query)
}
