package watchstream

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// sweeping runs a test with a sweeper.
func sweeping(t *testing.T, test func(t *testing.T, s *Sweeper)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := new(Sweeper)
		var run sync.WaitGroup
		run.Go(func() { s.Run(ctx) })
		test(t, s)
		cancel()
		run.Wait()
		if n := s.waiting(); n != 0 {
			t.Errorf("%d rounds are left", n)
		}
	})
}

// waiting returns for how many rounds somebody waits.
func (s *Sweeper) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rounds)
}

func TestSweeper(t *testing.T) {
	for _, after := range []time.Duration{-time.Hour, 0, 1, time.Second - 1, time.Second, time.Second + 1, time.Minute} {
		t.Run(after.String(), func(t *testing.T) {
			sweeping(t, func(t *testing.T, s *Sweeper) {
				time.Sleep(1234567 * time.Microsecond)
				at := time.Now().Add(after)
				due := max(after, 0)
				a := s.set(at)
				defer s.stop(a)
				begin := time.Now()
				<-a.due
				if took := time.Since(begin); took < due || took > due+sweepInterval {
					t.Errorf("an alarm for %v went off after %v", after, took)
				}
			})
		})
	}
}

// TestSweeperReleases: streams that end before their times leave nothing behind, however distinct those are.
func TestSweeperReleases(t *testing.T) {
	sweeping(t, func(t *testing.T, s *Sweeper) {
		const streams = 100
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range streams {
			f := newFake()
			timeout := time.Hour + time.Duration(i)*time.Minute
			wg.Go(func() { Serve(ctx, f, Options{Timeout: timeout, Sweeper: s}, f) })
		}
		synctest.Wait()
		if n := s.waiting(); n != streams {
			t.Errorf("%d rounds for %d deadlines", n, streams)
		}
		cancel()
		wg.Wait()
		if n := s.waiting(); n != 0 {
			t.Errorf("%d rounds are left when all streams have ended", n)
		}
	})
}

// TestSweeperShares: a round goes when the last who waits for it has left, and not before.
func TestSweeperShares(t *testing.T) {
	sweeping(t, func(t *testing.T, s *Sweeper) {
		at := time.Now().Add(time.Minute)
		first, second := s.set(at), s.set(at.Add(-1))
		s.stop(first)
		if n := s.waiting(); n != 1 {
			t.Fatalf("%d rounds while one waits", n)
		}
		<-second.due
		third := s.set(at) // the same round again, too late: it goes off with the next
		s.stop(second)     // has gone off, and isn't the third's
		<-third.due
		s.stop(third)
	})
}

// TestEventsKeepTheAlarm: an event takes no new alarm.
func TestEventsKeepTheAlarm(t *testing.T) {
	sweeping(t, func(t *testing.T, s *Sweeper) {
		f := newFake()
		var stream sync.WaitGroup
		stream.Go(func() { Serve(t.Context(), f, Options{Timeout: time.Hour, Sweeper: s}, f) })
		synctest.Wait()
		taken := func() (all []*round) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, r := range s.rounds {
				all = append(all, r)
			}
			return all
		}
		before := taken()
		f.put("a")
		synctest.Wait()
		if after := taken(); len(before) != 1 || len(after) != 1 || after[0] != before[0] {
			t.Errorf("the alarm is another after an event: %v, before %v", after, before)
		}
		stream.Wait()
	})
}

// TestLongTimeouts: a deadline may be as far away as a number can say; bookmarks come as ever, and the stream
// goes on.
func TestLongTimeouts(t *testing.T) {
	for _, timeout := range []time.Duration{math.MaxInt64, math.MaxInt64 / time.Second * time.Second, maxTimeout, maxTimeout - 1} {
		t.Run(timeout.String(), func(t *testing.T) {
			for _, name := range []string{"with a sweeper", "with a timer"} {
				t.Run(name, func(t *testing.T) {
					sweeping(t, func(t *testing.T, s *Sweeper) {
						if name == "with a timer" {
							s = nil
						}
						f := newFake()
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						if err := Serve(ctx, f, Options{Timeout: timeout, Bookmarks: true, Sweeper: s}, f); err == nil {
							t.Error("the stream ended by itself")
						}
						if n := len(f.got); n < 54 || n > 66 {
							t.Errorf("%d bookmarks in an hour", n)
						}
						quiet := newFake()
						ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						if err := Serve(ctx, quiet, Options{Timeout: timeout, Sweeper: s}, quiet); err == nil {
							t.Error("the stream without bookmarks ended by itself")
						}
					})
				})
			}
		})
	}
}

// TestClockSetBack: alarms keep their times when the wall clock is set back by a day. Nothing waits
// here, so it needs no fake clock, which has no monotonic reading.
func TestClockSetBack(t *testing.T) {
	s := new(Sweeper)
	s.beginLocked() // nobody else has it
	begin := s.start
	alarms := []alarm{s.set(begin.Add(time.Minute)), s.set(setBack(begin.Add(time.Minute)))}
	s.sweep(setBack(begin.Add(59 * time.Second)))
	for i, a := range alarms {
		select {
		case <-a.due:
			t.Errorf("alarm %d went off too early", i)
		default:
		}
	}
	s.sweep(setBack(begin.Add(60 * time.Second)))
	for i, a := range alarms {
		select {
		case <-a.due:
		default:
			t.Errorf("alarm %d didn't go off", i)
		}
	}
}

// setBack returns what time.Now would have returned if somebody had set the clock back by a day since the process
// started: the monotonic reading is the same. No function of the standard library makes such a time, so it's made
// from its parts: the wall clock's seconds are above 30 bits of nanoseconds.
func setBack(t time.Time) time.Time {
	const daySeconds = 24 * 60 * 60
	wall := t
	(*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&wall)).wall -= daySeconds << 30
	if t.Sub(wall) != 0 || t.Unix()-wall.Unix() != daySeconds {
		panic("time.Time has other parts than in Go 1.26")
	}
	return wall
}

// TestSweepWaitsForWhoBegins: whoever moves a clock that stands still waits for the bookmark of a stream that its client can know, though the stream
// hasn't come to wait for anything.
func TestSweepWaitsForWhoBegins(t *testing.T) {
	type begun struct {
		*Sweeper
		stream Options
		clock  atomic.Int64 // seconds
	}
	begin := func() *begun {
		b := &begun{stream: Options{Bookmarks: true}}
		b.Sweeper = &Sweeper{Clock: func() time.Time { return time.Unix(b.clock.Load(), 0) }}
		b.stream.Begin(b.Sweeper)
		return b
	}
	// advance moves the clock, and returns whether somebody has to be waited for.
	advance := func(t *testing.T, b *begun) (waited func() bool) {
		var swept atomic.Bool
		b.clock.Add(65)
		go func() {
			b.Sweep(t.Context())
			swept.Store(true)
		}()
		synctest.Wait()
		return func() bool { synctest.Wait(); return !swept.Load() }
	}
	for _, c := range []struct {
		name string
		then func(t *testing.T, b *begun)
	}{
		{"not served yet", func(t *testing.T, b *begun) {
			waits := advance(t, b)
			if !waits() {
				t.Error("the sweep doesn't wait for a stream that isn't served yet")
			}
			f := newFake()
			go Serve(t.Context(), f, b.stream, f)
			if waits() || len(f.got) != 1 {
				t.Errorf("the stream is served, and has %q", f.got)
			}
		}},
		{"served, and busy with its state", func(t *testing.T, b *begun) {
			f, reads := newFake("a"), make(chan struct{})
			b.stream.InitialEnd = true
			go Serve(t.Context(), f, b.stream, slowSink{f, reads})
			waits := advance(t, b)
			if !waits() {
				t.Error("the sweep doesn't wait for a stream that writes its state")
			}
			close(reads)
			if waits() || len(f.got) != 3 {
				t.Errorf("the client reads on, and has %q", f.got)
			}
		}},
		{"abandoned", func(t *testing.T, b *begun) {
			b.stream.Abandon()
			if waits := advance(t, b); waits() {
				t.Error("the sweep waits for a stream that was given up")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.then(t, begin()) })
		})
	}
}

// slowSink is the sink of a client that reads only when the channel is closed.
type slowSink struct {
	*fake
	reads chan struct{}
}

func (s slowSink) Write(frames []byte) error {
	<-s.reads
	return s.fake.Write(frames)
}
