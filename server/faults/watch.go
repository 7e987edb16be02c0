package faults

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// How a watch ends.
const (
	endClean   = "clean"
	endCut     = "cut"
	endExpired = "expired"
)

// hitKey marks the context of a request whose watch has met a fault.
type hitKey struct{}

func hitOf(ctx context.Context) *Hit {
	h, _ := ctx.Value(hitKey{}).(*Hit)
	return h
}

// what says in the log what happens to a watch.
func (w *Watch) what() string {
	if w.Expired {
		return "refused as expired"
	}
	var does []string
	if w.End != "" {
		does = append(does, "end "+w.End)
	}
	if w.NoBookmarks {
		does = append(does, "no bookmarks")
	}
	return strings.Join(does, ", ")
}

// Open opens a watch, unless its request has met the fault that the version from which it resumes is gone.
func Open(ctx context.Context, open func() (watches.Source, watchstream.Options, error)) (watches.Source, watchstream.Options, error) {
	if h := hitOf(ctx); h != nil && h.rule.Watch.Expired {
		why := fmt.Sprintf("too old resource version: the rule %s for faults says so on purpose: list again", h.rule.name)
		return nil, watchstream.Options{}, &reads.StreamError{StatusError: apierrors.NewResourceExpired(why)}
	}
	return open()
}

// Source returns what a watch gives: from, unless its request has met a fault. cancel cuts the stream off.
func Source(ctx context.Context, from watches.Source, in *wire.Framing, cancel context.CancelCauseFunc) watches.Source {
	h := hitOf(ctx)
	if h == nil {
		return from
	}
	s := &source{Source: from, Watch: *h.rule.Watch, framing: in, cancel: cancel}
	if s.After.Duration > 0 {
		s.over, s.closed = make(chan struct{}), make(chan struct{})
		s.due = time.AfterFunc(s.After.Duration, func() { close(s.over) })
	}
	return s
}

// source is what a watch gives that has met a fault. It's used by one goroutine, that of the stream, as every Source.
type source struct {
	watches.Source
	Watch
	framing *wire.Framing
	cancel  context.CancelCauseFunc
	given   int // events

	due    *time.Timer   // closes over; nil: the watch doesn't end by time
	over   chan struct{} // closed when the watch's time is over
	closed chan struct{} // closed by Close
	close  sync.Once
	waker  sync.WaitGroup
	news   <-chan struct{} // that the waker waits for
	either <-chan struct{} // that it closes
}

// Next gives what the source has, up to the end of the watch.
func (s *source) Next(ctx context.Context, dst []byte) ([]byte, <-chan struct{}, error) {
	if s.End == "" {
		return s.Source.Next(ctx, dst)
	}
	if s.ended() {
		return dst, nil, s.end(ctx)
	}
	out, wait, err := s.Source.Next(ctx, dst)
	if err != nil {
		return out, wait, err
	}
	most := -1
	if s.AfterEvents > 0 {
		most = s.AfterEvents - s.given
	}
	length, n := first(s.framing, out[len(dst):], most)
	s.given += n
	out = out[:len(dst)+length]
	if s.AfterEvents > 0 && s.given >= s.AfterEvents {
		return out, nil, s.end(ctx)
	}
	return out, s.orDue(wait), nil
}

// ended tells whether the watch gives nothing more.
func (s *source) ended() bool {
	if s.due == nil {
		return s.AfterEvents == 0 || s.given >= s.AfterEvents
	}
	select {
	case <-s.over:
		return true
	default:
		return s.AfterEvents > 0 && s.given >= s.AfterEvents
	}
}

// end returns the error with which the watch ends.
func (s *source) end(ctx context.Context) error {
	switch s.End {
	case endClean:
		return io.EOF
	case endExpired:
		return watchstream.ErrExpired
	}
	s.cancel(errCut)
	return context.Cause(ctx)
}

// orDue returns a channel that is closed when there may be news, or the watch is over.
func (s *source) orDue(news <-chan struct{}) <-chan struct{} {
	if s.due == nil || news == nil {
		return news
	}
	if news == s.news { // asked again for another reason
		return s.either
	}
	either := make(chan struct{})
	s.news, s.either = news, either
	s.waker.Go(func() {
		defer close(either)
		select {
		case <-news:
		case <-s.over:
		case <-s.closed:
		}
	})
	return either
}

// AppendBookmark appends nothing where bookmarks are withheld.
func (s *source) AppendBookmark(dst []byte) []byte {
	if s.NoBookmarks {
		return dst
	}
	return s.Source.AppendBookmark(dst)
}

// Close ends what waits for the watch's time, and releases the source.
func (s *source) Close() {
	s.close.Do(func() {
		if s.due != nil {
			s.due.Stop()
			close(s.closed)
			s.waker.Wait()
		}
	})
	s.Source.Close()
}

// first returns the length of the first events in frames, most of them at most, and how many those are. With a negative most it's all.
func first(in *wire.Framing, frames []byte, most int) (length, n int) {
	count, bytes := 0, 0
	for event := range in.Messages(frames) {
		count, bytes = count+1, bytes+len(event)
	}
	if most < 0 || count <= most {
		return len(frames), count
	}
	around := (len(frames) - bytes) / count // what each has around it
	for event := range in.Messages(frames) {
		if n == most {
			break
		}
		n, length = n+1, length+len(event)+around
	}
	return length, n
}
