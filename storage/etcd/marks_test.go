package etcd

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
)

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
	s.keeper.marks.at += 50 * time.Minute // it has run for that long since
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
	s.keeper.marks.at += 61 * time.Minute
	if err := s.keeper.keepHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	soon(t, "revision 3 compacted", func() bool { return errors.Is(oldest(t, s, 3), rpctypes.ErrCompacted) })
}

// A clock that jumps, forward or backward, makes no history old, and doesn't stop its ageing.
func TestClockThatJumps(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // a time of day only: one that was set, or a monotonic clock that jumped
	m := &marks{keep: history.Bounds{Age: time.Hour, Bytes: 1 << 30}, last: began, list: history.Marks{{Revision: 1}}}
	now, real := began, time.Duration(0)
	for i, jump := range []time.Duration{0, 48 * time.Hour, -96 * time.Hour, 0, 1000 * 24 * time.Hour, 0} {
		for range 5 * 60 { // five minutes of looks
			now, real = now.Add(time.Second), real+time.Second
			m.read(now)
		}
		now = now.Add(jump)
		at := history.Mark{Revision: storage.Revision(i) + 2, At: m.read(now)}
		m.list.Note(at, m.keep)
		if cut := m.list.Cut(at, m.keep); cut != 0 {
			t.Fatalf("after a jump by %v, %v after the beginning, history is cut to %d", jump, real, cut)
		}
	}
	for range 60 {
		now = now.Add(time.Minute)
		m.read(now)
	}
	if m.list.Cut(history.Mark{Revision: 8, At: m.read(now)}, m.keep) == 0 {
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
			s.keeper.marks.at += 2 * time.Hour
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
			s.keeper.marks.list = append(s.keeper.marks.list, s.keeper.marks.now(s.Local.KV().Rev()))
			var floor storage.Revision // 0: the reader has nothing yet
			s.SetFloor(func() storage.Revision { return floor })
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
	s.keeper.marks.at += 6 * time.Minute
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
	k := &keeper{space: &space{past: &past{log: slog.New(slog.NewTextHandler(&log, nil))}}}
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
		m, err := d.loadMarks(Options{History: time.Hour, HistoryBytes: 1000}, rev)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.list) == 0 || m.age() < 0 || m.size() < 0 {
			t.Fatalf("%+v", m)
		}
		if to := m.list.Cut(m.now(rev), m.keep); to < 0 || to > rev {
			t.Fatalf("would compact %d", to)
		}
		if err := d.save(m); err != nil {
			t.Fatal(err)
		}
	})
}
