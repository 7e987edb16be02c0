package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	// reconnectInterval is how often Follow connects at most after clean ends, as client-go's RetryWatcher does.
	reconnectInterval = time.Second
	// followFirst and followMost are the pauses after failures.
	followFirst = time.Second
	followMost  = 30 * time.Second
)

// Follow yields each event after the version exactly once and in order, through as many connections as it takes. It
// begins at a version that a list, an object or an event has; "", "0" and what is no number are ErrVersion.
//
// A connection that ends, cleanly or not, is replaced: at once after a clean end, but at most once a second; after an error
// with growing pauses (see Backoff), of which the first is a second, the longest is half a minute, and which begin anew with
// the next event; and never before a Retry-After is over. Bookmarks are asked for, and move the version from which Follow
// goes on; the option Bookmarks yields them, too.
//
// It ends with an error, never silently, and the error is the last that it yields:
//
//   - ErrExpired when history is gone, whether an event or an HTTP answer says so: list again (Track does);
//   - ErrForbidden or ErrUnauthorized;
//   - another refusal that says that the request itself is wrong (400, 405, 406, 415, 422);
//   - ErrType for an object that doesn't fit T, ErrNoVersion for one without a resourceVersion;
//   - why ctx ended.
//
// All else is logged as a warning, and tried again: also a resource that isn't there (404), because a definition may
// come back.
func (c Collection[T]) Follow(ctx context.Context, version string, options ...Option) iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		s := newSettings(options)
		err := s.check(aWatch)
		if n, no := strconv.ParseUint(version, 10, 64); no != nil || n == 0 { // with which a server would refuse each connection, or begin anywhere
			err = fmt.Errorf("%w: %q", ErrVersion, version)
		}
		if err != nil {
			yield(Event[T]{}, err)
			return
		}
		f := follower[T]{from: c, settings: s, version: version, backoff: s.backoff(followFirst, followMost)}
		for {
			opened := time.Now()
			err := f.connection(ctx, yield)
			if err == errLeft {
				return
			}
			if final(ctx, err) {
				yield(Event[T]{}, err)
				return
			}
			if err := sleep(ctx, f.pauseAfter(opened, err)); err != nil {
				yield(Event[T]{}, err)
				return
			}
		}
	}
}

// follower is one Follow.
type follower[T any] struct {
	from     Collection[T]
	settings *settings
	version  string // everything up to it has been yielded
	backoff  *backoff
}

// connection yields the events of one connection. io.EOF is a clean end.
func (f *follower[T]) connection(ctx context.Context, yield func(Event[T], error) bool) error {
	query := f.settings.only(aWatch)
	query.Set("resourceVersion", f.version)
	query.Set("allowWatchBookmarks", "true")
	f.settings.counters.Watches.Add(1)
	w, err := f.from.open(ctx, query)
	if err != nil {
		return err
	}
	return w.forward(ctx, f.settings.counters, func(event Event[T]) bool {
		f.version = event.ResourceVersion
		f.backoff.reset()
		return event.Type == Bookmark && !f.settings.bookmarks || yield(event, nil)
	})
}

// pauseAfter returns how long to wait after a connection that was opened at a time and ended with err.
func (f *follower[T]) pauseAfter(opened time.Time, err error) time.Duration {
	if err == io.EOF {
		f.from.client.log.Debug("watch ended, going on", "resource", f.from.String(), "version", f.version)
		return reconnectInterval - time.Since(opened)
	}
	pause := f.backoff.after(err)
	f.settings.counters.Failures.Add(1)
	f.from.client.log.Warn("watch failed, going on", "resource", f.from.String(), "version", f.version, "after", pause.Round(time.Millisecond), "error", err)
	return pause
}

// final tells whether an error ends a watch for good.
func final(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, ErrType) || errors.Is(err, ErrNoVersion) {
		return true
	}
	refusal, ok := errors.AsType[*StatusError](err)
	if !ok {
		return false
	}
	switch refusal.Code {
	case http.StatusGone, http.StatusForbidden, http.StatusUnauthorized,
		http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// backoff is the pauses after failures: each about twice as long as the one before, up to a bound, and up to half longer
// by chance, so that clients that failed together don't come back together. If the first is the longest, all are that.
type backoff struct {
	first, most time.Duration
	now         time.Duration // the next pause, without chance
}

// backoff returns the pauses that the options ask for, or else those given.
func (s *settings) backoff(first, most time.Duration) *backoff {
	if s.firstPause > 0 {
		first, most = s.firstPause, s.longestPause
	}
	return &backoff{first: first, most: most, now: first}
}

func (b *backoff) next() time.Duration {
	pause := b.now
	if b.first == b.most {
		return pause
	}
	b.now = min(2*b.now, b.most)
	return pause + rand.N(pause/2+1)
}

// after is next after a failure, and never before a RetryAfter is over.
func (b *backoff) after(err error) time.Duration {
	pause := b.next()
	if refusal, ok := errors.AsType[*StatusError](err); ok {
		pause = max(pause, refusal.comeBack())
	}
	return pause
}

func (b *backoff) reset() { b.now = b.first }

// Counters count what Follow, Track and Reflect do. They may be read at any time.
type Counters struct {
	Lists    atomic.Int64 // states that were fetched: as pages, or at the beginning of a watch
	Relists  atomic.Int64 // those of them that weren't the first
	Watches  atomic.Int64 // connections that were opened, or tried
	Events   atomic.Int64 // without bookmarks
	Failures atomic.Int64 // after which there was a pause

	since atomic.Int64 // when the last connection ended, in Unix nanoseconds; 0 while there is one
}

// Lag is for how long there has been no connection, so that events may have been missed for the time being: 0 while there
// is one, and before the first.
func (c *Counters) Lag() time.Duration {
	since := c.since.Load()
	if since == 0 {
		return 0
	}
	return max(time.Since(time.Unix(0, since)), 1)
}

func (c *Counters) connected(is bool) {
	if is {
		c.since.Store(0)
	} else {
		c.since.Store(time.Now().UnixNano())
	}
}
