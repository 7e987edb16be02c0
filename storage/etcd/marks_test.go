package etcd

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestCut(t *testing.T) {
	const hour = time.Hour
	list := []mark{{1, 0, 0}, {10, hour / 2, 100}, {20, hour, 200}, {30, 3 * hour / 2, 300}}
	tests := []struct {
		name     string
		at       time.Duration
		bytes    int64 // counted by then; the bound is 1000
		want     int64 // revision to compact
		wantLeft int
	}{
		{"young", hour / 2, 300, 0, 4},
		{"the first mark is old", hour, 300, 0, 4},
		{"the second is old", 3 * hour / 2, 300, 10, 3},
		{"all are old", 5 * hour, 300, 30, 1},
		{"one byte too much", hour / 2, 1001, 10, 3},
		{"just enough", hour / 2, 1000, 0, 4},
		{"far too much", hour / 2, 9000, 30, 1},
		{"old and too much", 3 * hour / 2, 1201, 30, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &marks{keep: hour, maxBytes: 1000, bytes: tt.bytes, list: slices.Clone(list)}
			if got := m.cut(tt.at); got != tt.want || len(m.list) != tt.wantLeft {
				t.Errorf("cut to %d with %d marks left, want %d and %d", got, len(m.list), tt.want, tt.wantLeft)
			}
			if m.cut(tt.at) != 0 {
				t.Error("there's more to cut")
			}
		})
	}
}

func TestHalve(t *testing.T) {
	m := &marks{keep: time.Hour, maxBytes: 1000, bytes: 800, list: []mark{{1, 0, 0}, {2, 0, 200}, {3, 0, 400}, {4, 0, 600}}}
	for _, want := range []int64{3, 4, 0} {
		if got := m.halve(); got != want {
			t.Errorf("halved to %d, want %d", got, want)
		}
	}
}

// Marks are few, however long and fast is written, and history is what was asked for.
func TestMarksAreBounded(t *testing.T) {
	m := &marks{keep: time.Hour, maxBytes: 1 << 20}
	m.set(1, 0)
	for second := range 5 * 3600 {
		at := time.Duration(second) * time.Second
		m.bytes += 100
		if m.due(at) {
			m.set(int64(second)+2, at)
		}
		m.cut(at)
		if len(m.list) > 2*maxMarks+2 {
			t.Fatalf("%d marks", len(m.list))
		}
		if age := m.age(at); at > time.Hour && (age < time.Hour || age > time.Hour+2*time.Minute) {
			t.Fatalf("after %v history is %v", at, age)
		}
	}
}

func oldest(t *testing.T, s *Server, rev int64) error {
	t.Helper()
	_, err := s.Client.Get(t.Context(), "k", clientv3.WithRev(rev))
	return err
}

// What is older than History is compacted, and only that.
func TestCompaction(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir(), History: 200 * time.Millisecond})
	for range 3 {
		if _, err := s.Client.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	soon(t, "revision 3 compacted", func() bool { return errors.Is(oldest(t, s, 3), rpctypes.ErrCompacted) })
	if err := oldest(t, s, s.Local.KV().Rev()); err != nil {
		t.Errorf("the current state can't be read: %v", err)
	}
}

// A restart doesn't forget time, and downtime isn't counted.
func TestMarksSurviveRestart(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, Options{DataDir: dir, History: time.Hour})
	for range 3 {
		if _, err := s.Client.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	s.haltKeeper()
	s.keeper.at += 50 * time.Minute // it has run for that long since
	if err := s.keeper.keepHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := s.Stats()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, historyName), old, old); err != nil {
		t.Fatal(err)
	}

	s = openTest(t, Options{DataDir: dir, History: time.Hour})
	after := s.Stats()
	if after.HistoryKept < before.HistoryKept || after.HistoryKept > before.HistoryKept+10*time.Minute || after.HistoryBytes < before.HistoryBytes {
		t.Errorf("history was %+v, is %+v", before, after)
	}
	if err := oldest(t, s, 2); err != nil {
		t.Errorf("after 50 minutes of an hour: %v", err)
	}
	s.haltKeeper()
	s.keeper.at += 61 * time.Minute
	if err := s.keeper.keepHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	soon(t, "revision 3 compacted", func() bool { return errors.Is(oldest(t, s, 3), rpctypes.ErrCompacted) })
}

// A clock that jumps, forward or backward, makes no history old, and doesn't stop its ageing.
func TestClockThatJumps(t *testing.T) {
	const keep = time.Hour
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // a time of day only: one that was set, or a monotonic clock that jumped
	c, m := historyClock{last: began}, &marks{keep: keep, maxBytes: 1 << 30}
	m.set(1, 0)
	now, real := began, time.Duration(0)
	for i, jump := range []time.Duration{0, 48 * time.Hour, -96 * time.Hour, 0, 1000 * 24 * time.Hour, 0} {
		for range 5 * 60 { // five minutes of looks
			now, real = now.Add(time.Second), real+time.Second
			c.read(now)
		}
		now = now.Add(jump)
		at := c.read(now)
		m.set(int64(i)+2, at)
		if cut := m.cut(at); cut != 0 {
			t.Fatalf("after a jump by %v, %v after the beginning, history is cut to %d", jump, real, cut)
		}
	}
	for range 60 {
		now = now.Add(time.Minute)
		c.read(now)
	}
	if m.cut(c.read(now)) == 0 {
		t.Error("after another hour nothing is old")
	}
}

// Nothing is compacted that the reader of history hasn't taken, for whatever reason, and all of it once the
// reader has.
func TestFloor(t *testing.T) {
	tests := []struct {
		name string
		look func(t *testing.T, s *Server) error
	}{
		{"history has ended", func(t *testing.T, s *Server) error {
			s.keeper.at += 2 * time.Hour
			return s.keeper.keepHistory(t.Context())
		}},
		{"room is needed", func(t *testing.T, s *Server) error { return s.keeper.dropHistory(t.Context(), s.Local.KV().Rev()) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true})
			s.haltKeeper()
			for range 8 {
				if _, err := s.Client.Put(t.Context(), "k", "v"); err != nil {
					t.Fatal(err)
				}
			}
			s.keeper.marks.set(s.Local.KV().Rev(), s.keeper.clock())
			var floor int64 // 0: the reader has nothing yet
			s.SetFloor(func() int64 { return floor })
			if err := tt.look(t, s); err != nil {
				t.Fatal(err)
			}
			if err := oldest(t, s, 2); err != nil {
				t.Fatalf("compacted before the reader had anything: %v", err)
			}
			floor = 5
			if err := s.keeper.keepHistory(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := oldest(t, s, 5); err != nil {
				t.Fatalf("compacted past the reader: %v", err)
			}
			if err := oldest(t, s, 4); !errors.Is(err, rpctypes.ErrCompacted) {
				t.Fatalf("not compacted up to the reader: %v", err)
			}
			floor = 100
			if err := s.keeper.keepHistory(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := oldest(t, s, 8); !errors.Is(err, rpctypes.ErrCompacted) {
				t.Fatalf("what had waited for the reader is still there: %v", err)
			}
		})
	}
}

// When the bytes bound cuts history below five minutes, one log line and Stats say so.
func TestShortHistory(t *testing.T) {
	var log strings.Builder
	s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true, HistoryBytes: 64 << 10, Log: slog.New(slog.NewTextHandler(&log, nil))})
	s.haltKeeper()
	for range 100 {
		if _, err := s.Client.Put(t.Context(), "k", strings.Repeat("v", 4<<10)); err != nil {
			t.Fatal(err)
		}
		if err := s.keeper.keepHistory(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stats := s.Stats()
	if !stats.HistoryShort || stats.HistoryBytes > 64<<10*65/64+8<<10 {
		t.Errorf("stats: %+v", stats)
	}
	if n := strings.Count(log.String(), "history is short"); n != 1 {
		t.Errorf("%d log lines: %s", n, &log)
	}
	if !errors.Is(oldest(t, s, 2), rpctypes.ErrCompacted) {
		t.Error("nothing was compacted")
	}
	s.keeper.at += 6 * time.Minute
	if err := s.keeper.keepHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Stats().HistoryShort {
		t.Error("history still counts as short after six quiet minutes")
	}
}

// An error is logged once while it lasts, and again when it comes back.
func TestComplain(t *testing.T) {
	var log strings.Builder
	k := &keeper{log: slog.New(slog.NewTextHandler(&log, nil))}
	full, other := errors.New("no space"), errors.New("another")
	for _, err := range []error{full, full, nil, full, other, other, full} {
		k.complain(err)
	}
	if n := strings.Count(log.String(), "\n"); n != 4 {
		t.Errorf("%d lines, want 4:\n%s", n, &log)
	}
}

func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &Server{log: slog.New(slog.NewTextHandler(&log, nil)), failed: make(chan struct{})}
		if !s.waitFor("the slow part", func() { time.Sleep(12 * time.Second) }) {
			t.Error("gave up")
		}
		if n := strings.Count(log.String(), `waiting_for="the slow part"`); n != 2 {
			t.Errorf("%d log lines in 12 seconds: %s", n, &log)
		}
		hang := make(chan struct{})
		defer close(hang)
		close(s.failed)
		if s.waitFor("a part that hangs", func() { <-hang }) {
			t.Error("waited for what had failed")
		}
	})
}

func FuzzHistoryFile(f *testing.F) {
	for _, seed := range []string{
		`{"clock":5,"bytes":9,"marks":[{"revision":1,"at":1,"bytes":2},{"revision":4,"at":3,"bytes":9}]}`,
		`{"clock":5,"marks":[]}`, `{"clock":-1,"marks":[{"revision":-1,"at":-1,"bytes":-1}]}`, `{`, ``, `null`,
	} {
		f.Add([]byte(seed))
	}
	d := &dataDir{path: f.TempDir()}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(d.file(historyName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		const rev = 100
		m, clock, err := d.loadMarks(Options{History: time.Hour, HistoryBytes: 1000}, rev)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.list) == 0 || m.age(clock) < 0 || m.size() < 0 {
			t.Fatalf("%+v at %v", m, clock)
		}
		if to := m.cut(clock); to < 0 || to > rev {
			t.Fatalf("would compact %d", to)
		}
		if _, err := json.Marshal(m.file(clock)); err != nil {
			t.Fatal(err)
		}
	})
}
