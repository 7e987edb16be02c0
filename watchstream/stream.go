package watchstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// Source is where a stream takes its events from. It's used by one goroutine. It's an interface because this package,
// which clients link, imports nothing of ours: the server's is cacher.Cursor. Tests have a fake, because synctest's clock
// needs a source without sockets.
type Source interface {
	// Next appends whole frames to dst, about MaxBatch bytes of them at most, or a single larger one.
	// When there's nothing to append, it returns a channel that's closed when there may be something. It may return neither:
	// the end of an initial state that gave nothing more. Then it's asked again.
	// Frames of an initial state don't come in one call with later ones. Any error ends the stream: io.EOF
	// cleanly, ErrExpired with the ERROR event that tells the client to list again, others with an
	// ERROR event that tells the client to resume.
	Next(ctx context.Context, dst []byte) (out []byte, wait <-chan struct{}, err error)
	// Synced tells whether the initial state, if there is one, has been given.
	Synced() bool
	// Revision is what a bookmark says: everything up to it has been given.
	Revision() int64
	// AppendBookmark appends a BOOKMARK frame at Revision, or nothing where it's withheld.
	AppendBookmark(dst []byte) []byte
	// AppendInitialEnd appends the BOOKMARK frame that ends the initial state.
	AppendInitialEnd(dst []byte) []byte
	// AppendError appends the ERROR frame that tells the client of an error of Next, by FailureOf.
	AppendError(dst []byte, err error) []byte
	// Close releases the source.
	Close()
}

// Sink is where a stream's bytes go. The server has one for HTTP/1.1, one for HTTP/2 and one for WebSockets.
type Sink interface {
	// Write sends whole frames: those in buf[Headroom:]. The sink may fill the bytes before them and the
	// capacity after them, so that it can frame a batch without a copy. It returns when the socket
	// has taken the frames, and doesn't keep buf. An error ends the stream.
	Write(buf []byte) error
}

// Headroom is how many bytes a sink finds free before the frames: enough for the size line of an HTTP/1.1 chunk, which is
// hexadecimal digits and CRLF.
const Headroom = 16

var (
	// ErrExpired is returned by a Source when events that it should give are no longer in history.
	ErrExpired = errors.New("history is gone")
	// ErrTold is in Serve's error when the source failed and the client got an ERROR event, so that the stream
	// can end cleanly: cut off, it might lose that event.
	ErrTold = errors.New("the watcher was told of an error")
	// ErrShutdown is the cause with which a stream's context ends when the server is going away: the
	// stream gives what has happened until then and a last bookmark.
	ErrShutdown = errors.New("the server is shutting down")
	// ErrRevoked is the cause with which a stream's context ends when its user may no longer watch: the stream ends cleanly
	// and at once.
	ErrRevoked = errors.New("the user may no longer watch")
)

// MaxBatch is about how many bytes are handed to the socket at once. One write then carries dozens of objects of a usual
// size, and each stream that is being written to can have a buffer of that size.
const MaxBatch = 64 << 10

const (
	// Bookmarks come about once a minute, as from kube-apiserver. The interval is random between these, so that
	// watchers that were opened together don't wake together.
	minBookmarkInterval = 55 * time.Second
	maxBookmarkInterval = 65 * time.Second
	// lastBookmark is how long before its deadline a stream gets one more, as from kube-apiserver.
	lastBookmark = 2 * time.Second
	// bookmarkRoom is enough for most bookmarks.
	bookmarkRoom = 256
	// maxTimeout is how far in the future a deadline can be. That's as good as never, and no sum of times overflows.
	maxTimeout = 100 * 365 * 24 * time.Hour
	// maxDrain bounds how long a stream still gives events when the server is going away: the server waits two seconds
	// for its connections.
	maxDrain = 2 * time.Second
)

// Options of a stream.
type Options struct {
	// Bookmarks says that the client takes BOOKMARK events (allowWatchBookmarks).
	Bookmarks bool
	// InitialEnd asks for the bookmark that ends the initial state. It takes Bookmarks.
	InitialEnd bool
	// Timeout is after what time the stream ends cleanly, at most maxTimeout; 0 means never.
	Timeout time.Duration
	// Sweeper wakes the stream for bookmarks and for its end. Defaults to timers of its own.
	Sweeper *Sweeper

	bookmark time.Time // when the next one is due; zero for none
	alarm    alarm     // for that or the stream's deadline, whichever is earlier
}

// Begin sets the Sweeper of a stream whose client can't know yet that it begins. By a clock that stands still the stream has its alarm from now on, so
// that whoever moves the clock, because the client knows, waits for the stream's bookmark. Serve takes the alarm over; a stream that isn't served
// gives it up with Abandon.
func (o *Options) Begin(s *Sweeper) {
	if o.Sweeper = s; s.stands() && o.Bookmarks {
		o.bookmark = nextBookmark(s.Now())
		o.alarm = s.set(o.bookmark)
	}
}

// Abandon undoes Begin.
func (o *Options) Abandon() { o.Sweeper.stop(o.alarm) }

// stream is one Serve.
type stream struct {
	Options
	src      Source
	sink     Sink
	deadline time.Time       // zero for none, and if the clock stands still
	end      <-chan struct{} // closed at the deadline if the clock stands still; else nil

	owesInitialEnd bool // the bookmark that ends the initial state is still to come
}

// Serve writes the source's events to the sink until the source ends, the time is over, ctx ends, or the sink
// fails. Then it closes the source. It returns
//
//   - nil after a clean end, from which the client may resume. That includes ErrExpired, of which the client was
//     told with an ERROR event, and a ctx that ended with ErrShutdown or ErrRevoked;
//   - the cause of ctx when that ended for another reason;
//   - an error that wraps ErrTold and the source's, when the source failed and the client was told with an ERROR event;
//   - the sink's error.
func Serve(ctx context.Context, src Source, o Options, sink Sink) error {
	defer src.Close()
	s := stream{Options: o, src: src, sink: sink, owesInitialEnd: o.InitialEnd && o.Bookmarks}
	defer func() { s.Sweeper.stop(s.alarm) }()
	now := s.Sweeper.Now()
	switch timeout := min(o.Timeout, maxTimeout); {
	case timeout > 0 && s.Sweeper.stands():
		timer := (*Sweeper)(nil).set(time.Now().Add(timeout))
		defer (*Sweeper)(nil).stop(timer)
		s.end = timer.due
	case timeout > 0:
		s.deadline = now.Add(timeout)
	}
	if s.bookmark.IsZero() {
		s.schedule(now)
	}
	for {
		wait, err := s.forward(ctx)
		now := s.Sweeper.Now()
		switch {
		case ctx.Err() != nil:
			return s.leave(ctx)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case wait == nil && s.src.Synced() && s.over(now): // there may always be more
			return nil
		case wait == nil:
			continue
		}
		if over, err := s.tick(now); over || err != nil {
			return err
		}
		s.setAlarm()
		select {
		case <-ctx.Done():
		case <-wait:
		case <-s.end: // likewise
		case <-s.alarm.due: // ask the source once more first: a bookmark should say its newest revision
		}
	}
}

// forward moves what's ready from the source to the sink. It returns the source's channel to wait for, nil to go on at once.
func (s *stream) forward(ctx context.Context) (wait <-chan struct{}, err error) {
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	synced := s.src.Synced()
	out, wait, err := s.src.Next(ctx, (*buf)[:Headroom])
	if s.owesInitialEnd && err == nil && (synced || s.src.Synced()) {
		s.owesInitialEnd = false
		out = s.src.AppendInitialEnd(out)
	}
	cause := err
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		out = s.src.AppendError(out, err)
		if errors.Is(err, ErrExpired) {
			err = io.EOF // no failure of the server: nothing to log
		} else {
			err = fmt.Errorf("%w: %w", ErrTold, err)
		}
	}
	*buf = out
	if len(out) == Headroom {
		return wait, err
	}
	if failed := s.write(out); failed != nil {
		if errors.Is(cause, io.EOF) || errors.Is(cause, ErrExpired) {
			cause = nil // no clean end: the client lacks what came before it
		}
		return nil, errors.Join(cause, failed) // not ErrTold either
	}
	return nil, err
}

func (s *stream) write(buf []byte) error {
	if err := s.sink.Write(buf); err != nil {
		return fmt.Errorf("write to the watcher: %w", err)
	}
	return nil
}

// schedule sets when the next bookmark is due.
func (s *stream) schedule(now time.Time) {
	if !s.Bookmarks {
		return
	}
	s.bookmark = nextBookmark(now)
	if last := s.deadline.Add(-lastBookmark); !s.deadline.IsZero() && last.Before(s.bookmark) {
		if s.bookmark = last; !last.After(now) {
			s.bookmark = time.Time{} // that was the last
		}
	}
}

// nextBookmark is when the next one is due, by the interval alone.
func nextBookmark(now time.Time) time.Time {
	return now.Add(minBookmarkInterval + rand.N(maxBookmarkInterval-minBookmarkInterval))
}

// due is when the stream has something to do besides events; zero for never.
func (s *stream) due() time.Time {
	if s.bookmark.IsZero() || !s.deadline.IsZero() && s.deadline.Before(s.bookmark) {
		return s.deadline
	}
	return s.bookmark
}

// setAlarm sets the alarm for what is due next. While that doesn't change, the alarm stays.
func (s *stream) setAlarm() {
	if due := s.due(); !due.Equal(s.alarm.at) {
		s.alarm = s.Sweeper.move(s.alarm, due)
	}
}

// tick does what is due. It's called only when the source has just had nothing to give, so that a bookmark is
// current and can't overtake an event.
func (s *stream) tick(now time.Time) (over bool, err error) {
	over = s.over(now)
	if !s.bookmark.IsZero() && (!now.Before(s.bookmark) || over && s.end != nil) { // where time stands still, the last one comes at the end
		err = s.sendBookmark()
		s.schedule(now)
	}
	return over, err
}

// over tells whether the deadline has passed.
func (s *stream) over(now time.Time) bool {
	select {
	case <-s.end:
		return true
	default:
		return !s.deadline.IsZero() && !now.Before(s.deadline)
	}
}

func (s *stream) sendBookmark() error {
	buf := s.src.AppendBookmark(make([]byte, Headroom, bookmarkRoom))
	if len(buf) == Headroom {
		return nil
	}
	return s.write(buf)
}

// leave ends a stream whose context has ended.
func (s *stream) leave(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrRevoked):
		return nil
	case !errors.Is(cause, ErrShutdown):
		return cause
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxDrain)
	defer cancel()
	for {
		wait, err := s.forward(drain)
		if err != nil || drain.Err() != nil {
			return nil // the client resumes from what it has
		}
		if wait == nil {
			continue
		}
		if s.Bookmarks && !s.owesInitialEnd {
			s.sendBookmark()
		}
		return nil
	}
}

const (
	// pooledSlack is how much longer than MaxBatch a buffer begins: the headroom, the last frame of a batch, and a
	// sink's own ending mostly fit without a copy.
	pooledSlack = 4 << 10
	// maxPooled is the largest buffer that goes back to the pool, so that single large events don't stay in memory.
	maxPooled = 4 * MaxBatch
)

// buffers hold batches on their way to a socket. A stream has one while it asks its Source and writes, and none while it
// sleeps.
var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, MaxBatch+pooledSlack)
	return &b
}}

func putBuffer(b *[]byte) {
	if cap(*b) <= maxPooled {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}
