package audit

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowFile is a file whose writes wait until it's opened.
type slowFile struct {
	opened chan struct{}

	mu     sync.Mutex // guards the following
	writes []string
	closed bool
}

func newSlowFile() *slowFile { return &slowFile{opened: make(chan struct{})} }

func (f *slowFile) Write(p []byte) (int, error) {
	<-f.opened
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, string(p))
	return len(p), nil
}

func (f *slowFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// has returns what was written, one text for each write.
func (f *slowFile) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.writes, "|")
}

func start(out io.WriteCloser, o Options) *sink {
	o = o.withDefaults()
	to := destination{WriteCloser: out, flag: "--audit-log-path", patience: writeTimeout, most: maxLine(o)}
	return newSink(to, delivery{o.Mode, o.Batch, o.Truncate}, slog.New(slog.DiscardHandler))
}

// TestSinkHangs: a request doesn't wait for a write that hangs longer than it may, later ones don't wait at all, and what comes
// after the write has ended is written.
func TestSinkHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSlowFile()
		s := start(f, Options{})
		began := time.Now()
		if err := s.write(t.Context(), []byte("a")); !errors.Is(err, errHangs) || time.Since(began) != writeTimeout {
			t.Errorf("the first event: %v after %v, want %v after %v", err, time.Since(began), errHangs, writeTimeout)
		}
		time.Sleep(time.Second)
		began = time.Now()
		if err := s.write(t.Context(), []byte("b")); !errors.Is(err, errHangs) || time.Since(began) != 0 {
			t.Errorf("the second event: %v after %v, want %v at once", err, time.Since(began), errHangs)
		}
		close(f.opened)
		synctest.Wait()
		if err := s.write(t.Context(), []byte("c")); err != nil {
			t.Errorf("the third event: %v", err)
		}
		if err := s.close(); err != nil || f.has() != "a|c" || !f.closed {
			t.Errorf("closed with %v; the file has %q, want a and c", err, f.has())
		}
		if err := s.write(t.Context(), []byte("d")); !errors.Is(err, errClosed) {
			t.Errorf("after the end: %v, want %v", err, errClosed)
		}
	})
}

// TestSinkCloseHangs: a file that doesn't take what is queued doesn't keep the server from closing.
func TestSinkCloseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSlowFile()
		s := start(f, Options{Mode: ModeBatch})
		s.put([]byte("a"))
		if err := s.close(); err == nil || !strings.Contains(err.Error(), "--audit-log-path") {
			t.Errorf("the close says %v, want what isn't written", err)
		}
		close(f.opened)
	})
}

// TestSinkBatches: with ModeBatch nobody waits, batches are as large as they may be, and what is beyond the buffer is lost.
func TestSinkBatches(t *testing.T) {
	for name, tc := range map[string]struct {
		batch  Batch
		events int
		want   string
		lost   int64
	}{
		"one by one": {Batch{}, 3, "x|x|x", 0},
		"by two":     {Batch{MaxSize: 2, MaxWait: time.Minute}, 4, "xx|xx", 0},
		"by time":    {Batch{MaxSize: 10, MaxWait: time.Second}, 3, "xxx", 0},
		"full":       {Batch{BufferSize: 2}, 5, "x|x|x", 2}, // the first is with the writer
		"throttled":  {Batch{Throttle: true, QPS: 0.5, Burst: 1}, 3, "x|x|x", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newSlowFile()
				s := start(f, Options{Mode: ModeBatch, Batch: tc.batch})
				for range tc.events {
					s.put([]byte("x"))
					synctest.Wait()
				}
				close(f.opened)
				time.Sleep(time.Minute)
				if got := f.has(); got != tc.want || s.lost.Load() != tc.lost || s.queued.Load() != 0 {
					t.Errorf("the writes are %q with %d events lost, want %q and %d; %d bytes count as queued", got, s.lost.Load(), tc.want, tc.lost, s.queued.Load())
				}
				if err := s.close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestSinkBytes: events with large bodies don't fill the memory, however few they are.
func TestSinkBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSlowFile()
		s := start(f, Options{Mode: ModeBatch})
		large := make([]byte, maxQueuedBytes/2)
		for i, want := range []error{nil, nil, errFull} {
			if err := s.put(large); !errors.Is(err, want) {
				t.Errorf("event %d: %v, want %v", i, err, want)
			}
		}
		close(f.opened)
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSinkLeaves: a request that ends doesn't go on waiting for its event to be taken, nor to be written.
func TestSinkLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSlowFile()
		s := start(f, Options{})
		for _, text := range []string{"a", "b"} { // the second one isn't taken while the first one is written
			ctx, leave := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			if err := s.write(ctx, []byte(text)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%s: %v after %v", text, err, time.Since(began))
			}
			leave()
		}
		close(f.opened)
		if err := s.close(); err != nil || f.has() != "a" || s.lost.Load() != 1 {
			t.Errorf("%q is written and %d are lost: %v", f.has(), s.lost.Load(), err)
		}
	})
}
