package watchstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTransition(t *testing.T) {
	for _, c := range []struct {
		name string
		Matches
		want string
	}{
		{"enters or is created", Matches{false, true}, "ADDED"},
		{"stays", Matches{true, true}, "MODIFIED"},
		{"leaves or is deleted", Matches{true, false}, "DELETED"},
		{"never matches", Matches{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Transition(c.Matches).String(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// fake is a source and a sink in one: what a test puts in comes out, with the time it came.
type fake struct {
	mu     sync.Mutex // guards all below
	ready  []string
	state  int // how many of ready are the initial state
	news   chan struct{}
	rev    int64
	pos    int64 // what rev becomes when there's nothing to give
	busy   bool  // there is always more
	fail   error
	sink   error
	closed bool
	start  time.Time
	got    []string
}

func newFake(state ...string) *fake {
	return &fake{ready: state, state: len(state), news: make(chan struct{}), rev: int64(len(state)), start: time.Now()}
}

func (f *fake) put(frames ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = append(f.ready, frames...)
	close(f.news)
	f.news = make(chan struct{})
}

func (f *fake) end(err error) {
	f.mu.Lock()
	f.fail = err
	f.mu.Unlock()
	f.put()
}

func (f *fake) Next(ctx context.Context, dst []byte) ([]byte, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ready) > 0 {
		if f.state > 0 {
			f.state--
		} else {
			f.rev++
		}
		frame := f.ready[0]
		f.ready = f.ready[1:]
		return append(dst, frame+"\n"...), nil, nil
	}
	if f.fail != nil {
		return dst, nil, f.fail
	}
	if f.busy {
		time.Sleep(time.Second)
		return append(dst, "more\n"...), nil, nil
	}
	f.rev = max(f.rev, f.pos)
	return dst, f.news, ctx.Err()
}

func (f *fake) Synced() bool    { f.mu.Lock(); defer f.mu.Unlock(); return f.state == 0 }
func (f *fake) Revision() int64 { f.mu.Lock(); defer f.mu.Unlock(); return f.rev }
func (f *fake) Close()          { f.closed = true }
func (f *fake) AppendBookmark(dst []byte) []byte {
	return fmt.Appendf(dst, "MARK %d\n", f.Revision())
}
func (f *fake) AppendInitialEnd(dst []byte) []byte {
	return fmt.Appendf(dst, "END %d\n", f.Revision())
}

func (f *fake) AppendError(dst []byte, err error) []byte {
	return AppendError(dst, FailureOf(err).Status())
}

func (f *fake) Write(p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for line := range strings.Lines(string(p[Headroom:])) {
		f.got = append(f.got, fmt.Sprintf("%s@%ds", strings.TrimSuffix(line, "\n"), int(time.Since(f.start).Seconds())))
	}
	return f.sink
}

func (f *fake) want(t *testing.T, frames ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if got, want := strings.Join(f.got, "\n"), strings.Join(frames, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestServe(t *testing.T) {
	t.Run("events as they come, then the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			time.AfterFunc(3*time.Second, func() { f.put("a", "b") })
			if err := Serve(t.Context(), f, Options{Timeout: 10 * time.Second}, f); err != nil {
				t.Error(err)
			}
			f.want(t, "a@3s", "b@3s")
			if since := time.Since(f.start); since != 10*time.Second || !f.closed {
				t.Errorf("ended after %v, source closed: %t", since, f.closed)
			}
		})
	})
	t.Run("a bookmark two seconds before the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			Serve(t.Context(), f, Options{Timeout: 30 * time.Second, Bookmarks: true}, f)
			f.want(t, "MARK 0@28s")
		})
	})
	t.Run("a bookmark says where the source is by then", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			time.AfterFunc(20*time.Second, func() { f.mu.Lock(); defer f.mu.Unlock(); f.pos = 7 })
			Serve(t.Context(), f, Options{Timeout: 30 * time.Second, Bookmarks: true}, f)
			f.want(t, "MARK 7@28s")
		})
	})
	t.Run("a source that never rests", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake("s1")
			f.busy = true
			if err := Serve(t.Context(), f, Options{Timeout: 2 * time.Second}, f); err != nil {
				t.Error(err)
			}
			f.want(t, "s1@0s", "more@1s", "more@2s")
		})
	})
	t.Run("a bookmark about every minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			Serve(t.Context(), f, Options{Timeout: 30 * time.Minute, Bookmarks: true}, f)
			if n := len(f.got); n < 27 || n > 33 {
				t.Errorf("%d bookmarks in 30 minutes", n)
			}
		})
	})
	t.Run("no bookmark for who didn't ask", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake("s1")
			Serve(t.Context(), f, Options{Timeout: 30 * time.Minute, InitialEnd: true}, f)
			f.want(t, "s1@0s")
		})
	})
	t.Run("the end of the initial state comes once, between it and events", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake("s1", "s2")
			f.ready = append(f.ready, "e1")
			Serve(t.Context(), f, Options{Timeout: time.Second, Bookmarks: true, InitialEnd: true}, f)
			f.want(t, "s1@0s", "s2@0s", "END 2@0s", "e1@0s")
		})
	})
	t.Run("the end of an empty initial state", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			Serve(t.Context(), f, Options{Timeout: time.Second, Bookmarks: true, InitialEnd: true}, f)
			f.want(t, "END 0@0s")
		})
	})
	t.Run("shutdown gives what's there and a last bookmark", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Second, func() {
				f.mu.Lock() // until both are done, the stream can't ask for what there is
				defer f.mu.Unlock()
				cancel(ErrShutdown)
				f.ready = append(f.ready, "late")
			})
			if err := Serve(ctx, f, Options{Bookmarks: true}, f); err != nil {
				t.Error(err)
			}
			f.want(t, "late@5s", "MARK 1@5s")
		})
	})
	t.Run("shutdown doesn't wait for a source that always has more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.busy = true
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(500*time.Millisecond, func() { cancel(ErrShutdown) })
			began := time.Now()
			if err := Serve(ctx, f, Options{}, f); err != nil {
				t.Error(err)
			}
			// It notices after a second, when the source has answered, and gives what there is for maxDrain.
			if took := time.Since(began); took < maxDrain || took > time.Second+maxDrain+time.Second {
				t.Errorf("ended after %v", took)
			}
		})
	})
	t.Run("a client that left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Second, cancel)
			if err := Serve(ctx, f, Options{Bookmarks: true}, f); !errors.Is(err, context.Canceled) {
				t.Errorf("error is %v", err)
			}
			f.want(t)
		})
	})
	t.Run("a socket that fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake("s1")
			f.sink = io.ErrClosedPipe
			if err := Serve(t.Context(), f, Options{}, f); !errors.Is(err, io.ErrClosedPipe) || !f.closed {
				t.Errorf("error is %v, source closed: %t", err, f.closed)
			}
		})
	})
	t.Run("a source that ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			time.AfterFunc(time.Second, func() { f.put("a"); f.end(io.EOF) })
			if err := Serve(t.Context(), f, Options{}, f); err != nil {
				t.Error(err)
			}
			f.want(t, "a@1s")
		})
	})
	t.Run("a sink that fails at the end", func(t *testing.T) {
		for _, end := range []error{ErrExpired, errors.New("secret detail"), io.EOF} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.sink = io.ErrClosedPipe
				f.put("a")
				f.end(fmt.Errorf("read: %w", end))
				if err := Serve(t.Context(), f, Options{}, f); !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, ErrTold) {
					t.Errorf("after %v: %v", end, err)
				}
			})
		}
	})
	for name, c := range map[string]struct {
		err    error
		code   float64
		reason string
	}{
		"history is gone":   {ErrExpired, 410, "Expired"},
		"the source breaks": {errors.New("secret detail"), 500, "InternalError"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				time.AfterFunc(time.Second, func() { f.end(fmt.Errorf("read: %w", c.err)) })
				if err := Serve(t.Context(), f, Options{}, f); errors.Is(err, ErrTold) == errors.Is(c.err, ErrExpired) {
					t.Errorf("error is %v", err)
				}
				var got struct {
					Type   string
					Object map[string]any
				}
				if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.Join(f.got, ""), "@1s")), &got); err != nil {
					t.Fatal(err, f.got)
				}
				o := got.Object
				if got.Type != "ERROR" || o["kind"] != "Status" || o["code"] != c.code || o["reason"] != c.reason || strings.Contains(fmt.Sprint(o), "secret") {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

func TestServeWithSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		sweeper := new(Sweeper)
		var wg sync.WaitGroup
		wg.Go(func() { sweeper.Run(ctx) })
		var fakes []*fake
		var streams sync.WaitGroup
		for range 100 {
			f := newFake()
			fakes = append(fakes, f)
			streams.Go(func() { Serve(ctx, f, Options{Timeout: 90 * time.Second, Bookmarks: true, Sweeper: sweeper}, f) })
		}
		streams.Wait()
		if since := time.Since(fakes[0].start); since < 90*time.Second || since > 92*time.Second {
			t.Errorf("ended after %v", since)
		}
		for _, f := range fakes {
			if len(f.got) != 2 {
				t.Errorf("bookmarks: %v", f.got)
			}
		}
		cancel()
		wg.Wait()
		if n := len(sweeper.rounds); n != 0 {
			t.Errorf("%d rounds are left", n)
		}
	})
}

func TestBookmarkFrame(t *testing.T) {
	got := string(AppendBookmark(nil, BookmarkOf{APIVersion: "example.com/v1", Kind: "Widget", ResourceVersion: "12", InitialEnd: true}))
	want := `{"type":"BOOKMARK","object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"12","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// TestBookmarkNames: whatever a kind is called, its bookmark is JSON on one line.
func TestBookmarkNames(t *testing.T) {
	for _, name := range []string{"", "Widget", "a b", `quo"te`, `back\slash`, "new\nline", "\x00\x1f\x7f", "Grüße", "\u2028", "<&>"} {
		t.Run(name, func(t *testing.T) {
			frame := AppendBookmark(nil, BookmarkOf{APIVersion: name, Kind: name, ResourceVersion: "7"})
			var got struct {
				Type   string
				Object metav1.PartialObjectMetadata
			}
			if err := json.Unmarshal(frame, &got); err != nil {
				t.Fatalf("%s: %v", frame, err)
			}
			if got.Type != "BOOKMARK" || got.Object.Kind != name || got.Object.APIVersion != name || got.Object.ResourceVersion != "7" {
				t.Errorf("got %s", frame)
			}
			if n := strings.Count(string(frame), "\n"); n != 1 {
				t.Errorf("the frame has %d newlines: %s", n, frame)
			}
		})
	}
}

// TestStatuses: what we write by hand is what apimachinery makes of such an error.
func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []byte
		want *apierrors.StatusError
	}{
		{"expired", FailureOf(ErrExpired).Status(), apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")},
		{"failed", FailureOf(io.ErrUnexpectedEOF).Status(), apierrors.NewInternalError(errors.New("the watch can't go on; resume it from the last resourceVersion seen"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			status := c.want.Status()
			status.Kind, status.APIVersion, status.Details = "Status", "v1", nil
			want, err := json.Marshal(status)
			if err != nil {
				t.Fatal(err)
			}
			if string(c.got) != string(want) {
				t.Errorf("got  %s\nwant %s", c.got, want)
			}
		})
	}
}

func TestErrorFrame(t *testing.T) {
	if got, want := string(AppendError(nil, []byte(`{"code":410}`))), `{"type":"ERROR","object":{"code":410}}`+"\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}
