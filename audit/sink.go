package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
)

const (
	// maxBufferSize is the most that --audit-log-batch-buffer-size may be. A larger number is a slip.
	maxBufferSize = 10_000_000
	// maxQueuedBytes bounds what waits to be written, in bytes: events with bodies can have megabytes each.
	maxQueuedBytes = 64 << 20
	// maxWrite is how many bytes of a batch are written at once, unless one event has more. It's the least size of a
	// rotated file.
	maxWrite = 1 << 20
	// writeTimeout is how long a request waits for its event to be written to a file. When a write has taken longer, requests
	// don't wait any more, and their events are lost until it ends.
	writeTimeout = 5 * time.Second
	// closeTimeout is how long close waits for what is queued.
	closeTimeout = 2 * time.Second
	// reportInterval is how often the log says that events are lost.
	reportInterval = 10 * time.Second
)

// Why events are lost.
var (
	errFull   = errors.New("the buffer is full")
	errHangs  = errors.New("a write of the audit log takes too long")
	errClosed = errors.New("the server is closing")
)

// destination is where lines go.
type destination struct {
	io.WriteCloser
	flag     string        // that names it
	patience time.Duration // how long a request waits for a write
	most     int           // bytes of a line
	atOnce   int           // writes at once; less than 2: one after the other
	abandon  func()        // ends writes that hang; nil: nothing can
}

// sink writes lines to a destination, from one goroutine: a request can wait for that for a while, but not for a write that hangs.
type sink struct {
	destination
	log   *slog.Logger
	mode  string
	batch Batch
	limit *rate.Limiter // nil: none

	atWork chan struct{}  // has an entry for each write besides run; nil: there are none
	flying sync.WaitGroup // of those

	queue  chan line     // buffered in ModeBatch only, so that a request doesn't wait
	queued atomic.Int64  // bytes in queue
	done   chan struct{} // closed when the goroutine has ended
	stop   context.CancelFunc
	began  atomic.Int64 // when the write began that is under way, in Unix nanoseconds; 0 if there's none, or there may be several

	lost atomic.Int64 // events, for the metric

	mu       sync.Mutex // guards the following
	reported time.Time  // when the log said last that events are lost
	since    int        // how many were lost since then
}

// line is an event on its way to the file.
type line struct {
	text    []byte
	written chan<- error // gets the outcome if a request waits for it; has room for it
}

// newSink starts a sink. It must be closed.
func newSink(to destination, d delivery, log *slog.Logger) *sink {
	ctx, stop := context.WithCancel(context.Background())
	s := &sink{destination: to, mode: d.Mode, log: log, batch: d.Batch, done: make(chan struct{}), stop: stop}
	if d.Mode == ModeBatch {
		s.queue = make(chan line, d.Batch.BufferSize)
		if d.Batch.Throttle {
			s.limit = rate.NewLimiter(rate.Limit(d.Batch.QPS), d.Batch.Burst)
		}
	} else {
		s.queue = make(chan line)
		s.batch = Batch{MaxSize: 1}
	}
	if to.atOnce > 1 {
		s.atWork = make(chan struct{}, to.atOnce)
	}
	go s.run(ctx)
	return s
}

// deliver writes a line, as the mode says. Its error has been counted.
func (s *sink) deliver(ctx context.Context, text []byte) error {
	if s.mode == ModeBatch {
		return s.put(text)
	}
	return s.write(ctx, text)
}

// put queues an event without waiting for anything. It's lost if there's no room.
func (s *sink) put(text []byte) error {
	if s.queued.Add(int64(len(text))) <= maxQueuedBytes {
		select {
		case s.queue <- line{text: text}:
			return nil
		default:
		}
	}
	s.queued.Add(-int64(len(text)))
	return s.lose(1, errFull)
}

// write waits until an event is written, but no longer than ctx and the destination's patience.
func (s *sink) write(ctx context.Context, text []byte) error {
	if s.hangs() {
		return s.lose(1, errHangs)
	}
	written := make(chan error, 1) // capacity 1: nobody may wait for it any more
	timeout := time.NewTimer(s.patience)
	defer timeout.Stop()
	select {
	case s.queue <- line{text, written}:
		s.queued.Add(int64(len(text)))
	case <-s.done:
		return s.lose(1, errClosed)
	case <-timeout.C:
		return s.lose(1, errHangs)
	case <-ctx.Done():
		return s.lose(1, ctx.Err())
	}
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err() // it's being written
	case <-timeout.C:
		return s.lose(1, errHangs) // it may be written all the same
	}
}

// hangs tells whether a write has been under way for longer than anybody should wait.
func (s *sink) hangs() bool {
	began := s.began.Load()
	return began != 0 && time.Since(time.Unix(0, began)) > s.patience
}

// run writes what is queued until ctx ends, and then what is still in the queue.
func (s *sink) run(ctx context.Context) {
	defer close(s.done)
	for {
		batch := s.collect(ctx)
		if len(batch) == 0 {
			break
		}
		if s.limit != nil {
			s.limit.Wait(ctx) // an error means that the server closes, or a batch beyond the limit: write it at once
		}
		s.writeBatch(batch)
	}
	s.flying.Wait()
	if err := s.WriteCloser.Close(); err != nil {
		s.log.Error("the audit log wasn't closed cleanly", "error", err)
	}
}

// collect returns the next batch. When ctx has ended it doesn't wait, so that an empty batch means that there's no more.
func (s *sink) collect(ctx context.Context) (batch []line) {
	var full <-chan time.Time // when a batch has waited for long enough; nil before its first event
	for len(batch) < s.batch.MaxSize {
		if len(batch) > 0 && s.batch.MaxWait == 0 || ctx.Err() != nil {
			select {
			case l := <-s.queue:
				batch = append(batch, l)
				continue
			default:
				return batch
			}
		}
		select {
		case l := <-s.queue:
			batch = append(batch, l)
			if full == nil && s.batch.MaxWait > 0 {
				full = time.After(s.batch.MaxWait)
			}
		case <-full:
			return batch
		case <-ctx.Done():
		}
	}
	return batch
}

// writeBatch writes lines in pieces of at most maxWrite, and tells those who wait.
func (s *sink) writeBatch(batch []line) {
	for len(batch) > 0 {
		n, size := 1, len(batch[0].text)
		for n < len(batch) && size+len(batch[n].text) <= maxWrite {
			size += len(batch[n].text)
			n++
		}
		text := batch[0].text
		if n > 1 {
			var piece bytes.Buffer
			piece.Grow(size)
			for _, l := range batch[:n] {
				piece.Write(l.text)
			}
			text = piece.Bytes()
		}
		piece := batch[:n]
		if s.atWork == nil {
			s.writePiece(piece, text, size)
		} else {
			s.atWork <- struct{}{}
			s.flying.Go(func() {
				defer func() { <-s.atWork }()
				s.writePiece(piece, text, size)
			})
		}
		batch = batch[n:]
	}
}

// writePiece writes the text of some lines, of so many bytes, and tells those who wait.
func (s *sink) writePiece(lines []line, text []byte, size int) {
	if s.atWork == nil {
		s.began.Store(time.Now().UnixNano())
	}
	_, err := s.Write(text)
	s.began.Store(0)
	if err != nil {
		s.lose(len(lines), err)
	}
	s.queued.Add(-int64(size))
	for _, l := range lines {
		if l.written != nil {
			l.written <- err
		}
	}
}

// lose counts events that didn't get there, and says so in the log, once in a while. It returns why.
func (s *sink) lose(n int, why error) error {
	s.lost.Add(int64(n))
	s.mu.Lock()
	s.since += n
	since, now := s.since, time.Now()
	report := now.Sub(s.reported) >= reportInterval
	if report {
		s.reported, s.since = now, 0
	}
	s.mu.Unlock()
	if report {
		s.log.Error("audit events are lost", "events", since, "error", why)
	}
	return why
}

// close writes what is queued and closes the destination. It gives up after closeTimeout.
func (s *sink) close() error {
	s.stop()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-s.done:
		return nil
	case <-timeout.C:
	}
	left := s.queued.Load()
	if s.abandon != nil {
		s.abandon()
		<-s.done
	}
	return fmt.Errorf("%s: %d bytes of events weren't delivered within %v", s.flag, left, closeTimeout)
}

// openFile opens the file of the options, and shows that it can be written.
func openFile(o Options) (io.WriteCloser, error) {
	if o.Path == "-" {
		return keptOpen{os.Stdout}, nil
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, err
	}
	if err := private.Place(o.Path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(o.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil || o.MaxSize == 0 {
		return f, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	l := &lumberjack.Logger{Filename: o.Path, MaxSize: o.MaxSize, MaxAge: o.MaxAge, MaxBackups: o.MaxBackups, Compress: o.Compress}
	opened := make(chan error)
	go func() {
		// The first write starts the library's goroutine, which removes and compresses old files, and never ends. It
		// is no goroutine of a server, and so it has no labels of one.
		pprof.SetGoroutineLabels(context.Background())
		_, err := l.Write(nil)
		opened <- err
	}()
	return l, <-opened
}

// maxLine is how many bytes a line of the file may have, with its newline: what fits into a file, and no more than may wait.
func maxLine(o Options) int {
	most := maxQueuedBytes / 4
	if o.MaxSize > 0 && o.Path != "-" {
		most = min(most, o.MaxSize<<20)
	}
	if o.Truncate.Enabled {
		most = min(most, int(o.Truncate.MaxEventSize))
	}
	return most
}

// keptOpen is a file that isn't ours to close.
type keptOpen struct{ io.Writer }

func (keptOpen) Close() error { return nil }
