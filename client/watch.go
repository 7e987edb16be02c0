package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// The types of events.
const (
	Added    = watchstream.Added    // the object is new, or it's selected from now on
	Modified = watchstream.Modified // the object has changed
	Deleted  = watchstream.Deleted  // the object is gone, or it isn't selected any more
	Bookmark = watchstream.Bookmark // everything up to its ResourceVersion has been given
)

// Watch yields the events of one connection, from the version that Since gives, or else first all that there is as Added.
// It ends without an error where the server ends it, usually after half an hour to an hour. An error is the last that it
// yields: a refusal (also one with a RetryAfter), an ERROR event as a *StatusError (ErrExpired if history is gone), a connection that was cut
// (io.ErrUnexpectedEOF), an object that doesn't fit (ErrType), or why ctx ended. Follow is for who wants more than one
// connection's worth.
func (c Collection[T]) Watch(ctx context.Context, options ...Option) iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		s := newSettings(options)
		if err := s.check(aWatch); err != nil {
			yield(Event[T]{}, err)
			return
		}
		query := s.only(aWatch)
		if s.since != "" {
			query.Set("resourceVersion", s.since)
		}
		if s.bookmarks {
			query.Set("allowWatchBookmarks", "true")
		}
		w, err := c.open(ctx, query)
		if err != nil {
			yield(Event[T]{}, err)
			return
		}
		defer w.close()
		for {
			event, err := w.next(ctx)
			if err == io.EOF || !yield(event.Event, err) || err != nil {
				return
			}
		}
	}
}

// connection is one of a watch.
type connection[T any] struct {
	cancel  context.CancelFunc
	from    Collection[T]
	body    io.ReadCloser
	decoder *watchstream.Decoder
}

// received is an event, and what only this package looks at.
type received[T any] struct {
	Event[T]
	initialEnd bool // a bookmark that ends the initial state
}

// open opens a watch. A refusal is an error at once, with its RetryAfter: those who follow pause. So is
// a server that accepts the connection and sends no head of an answer within the client's timeout; only events are waited for
// without a bound.
func (c Collection[T]) open(ctx context.Context, query url.Values) (*connection[T], error) {
	path := c.path(c.namespace, "", "")
	query.Set("watch", "true")
	if c.merged != nil {
		path, query = mergedPath, c.mergedQuery(query)
	}
	inner, end := context.WithCancelCause(ctx)
	cancel := func() { end(context.Canceled) }
	if c.client.timeout > 0 {
		late := time.AfterFunc(c.client.timeout, func() { end(c.client.late()) })
		defer late.Stop()
	}
	response, err := c.client.try(inner, &request{method: http.MethodGet, path: path, query: query})
	if err != nil {
		cancel()
		return nil, err
	}
	return &connection[T]{cancel, c, response.Body, watchstream.NewDecoder(response.Body)}, nil
}

// forward gives events, and bookmarks, until the connection ends, of which io.EOF is a clean end, or until one isn't taken
// (errLeft). It lets go of the connection.
func (c *connection[T]) forward(ctx context.Context, counters *Counters, give func(Event[T]) (taken bool)) error {
	defer c.close()
	counters.connected(true)
	defer counters.connected(false)
	for {
		event, err := c.next(ctx)
		switch {
		case err != nil:
			return err
		case event.ResourceVersion == "":
			return fmt.Errorf("watch %s: %s %s: %w", c.from, event.Type, event.Key, ErrNoVersion)
		case event.Type != Bookmark:
			counters.Events.Add(1)
		}
		if !give(event.Event) {
			return errLeft
		}
	}
}

// next returns the next event. io.EOF is a clean end.
func (c *connection[T]) next(ctx context.Context) (received[T], error) {
	t, document, err := c.decoder.Next()
	switch {
	case err != nil && ctx.Err() != nil:
		return received[T]{}, context.Cause(ctx)
	case err == io.EOF:
		return received[T]{}, io.EOF
	case err != nil:
		return received[T]{}, fmt.Errorf("watch %s: %w", c.from, err)
	case t == watchstream.Error:
		return received[T]{}, statusError(0, document)
	}
	if t == Bookmark { // which is no object of the program's type, however strict that is
		if !json.Valid(document) {
			return received[T]{}, fmt.Errorf("watch %s: %w: a bookmark that is no JSON", c.from, watchstream.ErrFrame)
		}
		end := text(member(member(member(document, "metadata"), "annotations"), watchstream.InitialEventsEnd)) == "true"
		return received[T]{Event: Event[T]{Type: t, Object: new(T), ResourceVersion: headOf(document).version}, initialEnd: end}, nil
	}
	object, h, err := decode[T](document)
	if err != nil && !errors.Is(err, ErrType) {
		err = fmt.Errorf("%w: %w", watchstream.ErrFrame, err)
	}
	if err != nil {
		return received[T]{}, fmt.Errorf("watch %s: %w", c.from, err)
	}
	return received[T]{Event: Event[T]{Type: t, Object: object, Key: h.Key, ResourceVersion: h.version}}, nil
}

// close lets go of the connection.
func (c *connection[T]) close() {
	c.cancel()
	c.body.Close()
}
