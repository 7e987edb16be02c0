package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// defaultPageSize is how many objects a page has, as of kubectl and client-go.
const defaultPageSize = 500

// List is what a collection had at one version. Its first page has been fetched, the others are as one iterates.
type List[T any] struct {
	// ResourceVersion is the version that all of the list's objects are of: follow from here.
	ResourceVersion string
	// Remaining is how many objects there are besides those of the first page; 0 if the server doesn't say.
	Remaining int

	from     Collection[T]
	settings *settings
	first    page
}

// page is a part of a list.
type page struct {
	typed   typeMeta // of items that don't say it
	version string
	next    string // token of the next page; empty if this is the last
	rest    int    // how many follow, if the server says it
	size    int    // how many the next page should have at most; 0: all
	items   []byte // a JSON array
}

// List lists the collection: the newest state, unless an option says otherwise.
func (c Collection[T]) List(ctx context.Context, options ...Option) (*List[T], error) {
	s := newSettings(options)
	if err := s.check(aList); err != nil {
		return nil, err
	}
	first, err := c.page(ctx, s, s.pageSize, "")
	if err != nil {
		return nil, err
	}
	return &List[T]{ResourceVersion: first.version, Remaining: first.rest, from: c, settings: s, first: first}, nil
}

// All yields the objects, and fetches pages as it comes to them. An error is the last that it yields. When the list's
// version expires between two pages that's ErrExpired, unless AllowInconsistent was given. Calling All again begins with
// the first object again. Many goroutines may do so at once, but not with AllowInconsistent, which changes ResourceVersion.
func (l *List[T]) All(ctx context.Context) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for event, err := range l.events(ctx) {
			if !yield(event.Object, err) || err != nil {
				return
			}
		}
	}
}

// Slice returns all objects.
func (l *List[T]) Slice(ctx context.Context) ([]*T, error) {
	var all []*T
	for object, err := range l.All(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return all, nil
}

// events yields the objects as Added, with their keys.
func (l *List[T]) events(ctx context.Context) iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		p := l.first
		for {
			for item, err := range elements(p.items) {
				var object *T
				var h head
				if err == nil {
					object, h, err = decodeItem[T](item, p.typed)
				}
				if err != nil {
					yield(Event[T]{}, fmt.Errorf("list %s: %w", l.from, err))
					return
				}
				if !yield(Event[T]{Type: Added, Object: object, Key: h.Key, ResourceVersion: h.version}, nil) {
					return
				}
			}
			if p.next == "" {
				return
			}
			var err error
			if p, err = l.from.page(ctx, l.settings, p.size, p.next); err != nil {
				yield(Event[T]{}, err)
				return
			}
			if p.version != l.ResourceVersion { // only after AllowInconsistent
				l.ResourceVersion = p.version
			}
		}
	}
}

// page fetches one page of size objects at most, or 0 for all: the first, or the one that a token stands for. One that is too large is fetched
// with fewer objects.
func (c Collection[T]) page(ctx context.Context, s *settings, size int, token string) (page, error) {
	for {
		r := &request{method: http.MethodGet, path: c.path(c.namespace, "", ""), query: s.page(size, token)}
		if size > 1 {
			r.most = int64(s.pageBytes)
		}
		document, err := c.client.answer(ctx, r)
		var refusal *StatusError
		switch {
		case s.inconsistent && token != "" && errors.Is(err, ErrExpired) && errors.As(err, &refusal) && refusal.continuation != "" && refusal.continuation != token:
			token = refusal.continuation
			continue
		case errors.Is(err, errTooLong) && size > 1:
			size /= 2
			continue
		case err != nil:
			return page{}, err
		}
		p, err := readPage(document)
		if p.size = size; len(document) < s.pageBytes/4 {
			p.size = min(2*size, s.pageSize)
		}
		return p, err
	}
}

// readPage takes a list apart. What isn't JSON is an error, here or, within the items, when they're decoded.
func readPage(document []byte) (p page, err error) {
	sound := true
	err = scanObject(document, func(name, value []byte) bool {
		isItems := string(name) == "items"
		sound = json.Valid(slices.Concat([]byte{'"'}, name, []byte{'"'})) && (isItems || json.Valid(value))
		switch string(name) {
		case "apiVersion":
			p.typed.apiVersion = text(value)
		case "kind":
			p.typed.kind = strings.TrimSuffix(text(value), "List")
		case "metadata":
			p.version, p.next = text(member(value, "resourceVersion")), text(member(value, "continue"))
			p.rest, _ = strconv.Atoi(string(member(value, "remainingItemCount"))) // optional
		case "items":
			if p.items != nil { // of two, only the last would be looked at
				sound = false
			}
			p.items = value
		}
		return sound
	})
	if err != nil || !sound || p.version == "" || p.items == nil {
		return page{}, fmt.Errorf("the answer is no list: %.*q", maxQuoted, document)
	}
	return p, nil
}
