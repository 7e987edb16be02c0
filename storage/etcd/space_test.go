package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

func openTest(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// soon waits until cond holds. The keeper or etcd sees to that, mostly within some 100 ms, and tells nobody. Some conds look
// at the stacks of all goroutines, which stops these, so there's a pause between two looks.
func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

// haltKeeper stops the keeper: the test looks in its place.
func (s *Server) haltKeeper() {
	s.stopKeeper()
	s.background.Wait()
}

// restartKeeper stops the keeper and starts it again with another disk, which the test owns.
func (s *Server) restartKeeper(disk func() (diskSpace, error)) {
	s.haltKeeper()
	s.keeper.room.disk = disk
	var ctx context.Context
	ctx, s.stopKeeper = context.WithCancel(context.Background())
	s.background.Go(func() { s.keeper.run(ctx) })
	s.background.Go(func() { s.watchStop(ctx) })
}

// An idle server does nothing: the revision stays, the log gets no entry, the keeper writes no file.
func TestIdle(t *testing.T) {
	for _, ephemeral := range []bool{true, false} {
		s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: ephemeral, History: 80 * time.Millisecond})
		if _, err := s.Client.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		var looks, changed atomic.Int64
		var index atomic.Uint64
		s.restartKeeper(func() (diskSpace, error) {
			looks.Add(1)
			if i := s.Local.AppliedIndex(); i != index.Swap(i) { // etcd's own first entries, and the compaction
				changed.Store(looks.Load())
			}
			return statDisk(s.Dir())
		})
		rev := s.Local.KV().Rev()
		soon(t, "100 looks in a row at which nothing had happened", func() bool { return looks.Load() > changed.Load()+100 })
		if now := s.Local.KV().Rev(); now != rev || rev != 2 {
			t.Errorf("revision %d after one write, %d when idle", rev, now)
		}
	}
}

// On a full disk writes fail and say so, reads and deletions go on; with space, writes go on by themselves.
func TestDiskFull(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir(), History: 80 * time.Millisecond})
	if _, err := s.Client.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	var free atomic.Int64
	free.Store(10 << 20)
	s.restartKeeper(func() (diskSpace, error) { return diskSpace{free: free.Load(), total: 10 << 30}, nil })

	soon(t, "unhealthy", func() bool { return s.Health() != nil })
	if msg := s.Health().Error(); !strings.Contains(msg, "has 10 MiB left and 256 MiB are kept") {
		t.Errorf("health: %s", msg)
	}
	if _, err := s.Client.Put(t.Context(), "k", "w"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a write on a full disk: %v", err)
	}
	if res, err := s.Client.Get(t.Context(), "k"); err != nil || string(res.Kvs[0].Value) != "v" {
		t.Errorf("a read on a full disk: %v, %v", res, err)
	}
	if _, err := s.Client.Delete(t.Context(), "k"); err != nil {
		t.Errorf("a deletion on a full disk: %v", err)
	}
	free.Store(1 << 30)
	soon(t, "healthy", func() bool { return s.Health() == nil })
	if _, err := s.Client.Put(t.Context(), "k", "w"); err != nil {
		t.Errorf("a write after space is back: %v", err)
	}
}

// On a full disk, deleted objects whose history has ended give their space back.
func TestDiskFullShrinks(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true, History: 80 * time.Millisecond})
	for i := range 300 {
		if _, err := s.Client.Put(t.Context(), fmt.Sprint("k", i), strings.Repeat("v", 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	s.keeper.database.commit() // until then the file isn't as large as what it's to hold
	full := s.keeper.database.look().file
	s.restartKeeper(func() (diskSpace, error) {
		return diskSpace{free: 50<<20 + full - s.Local.Backend().Size(), total: 512 << 20}, nil
	})
	soon(t, "unhealthy", func() bool { return s.Health() != nil })
	for i := range 300 {
		if _, err := s.Client.Delete(t.Context(), fmt.Sprint("k", i)); err != nil {
			t.Fatal(err)
		}
	}
	soon(t, "healthy", func() bool { return s.Health() == nil })
}

func TestReserve(t *testing.T) {
	tests := []struct {
		name        string
		total, want int64
	}{
		{"large disk", 1 << 40, 256 << 20},
		{"small disk", 1 << 30, 128 << 20},
		{"tiny disk", 64 << 20, 8 << 20},
	}
	for _, tt := range tests {
		if got := (diskSpace{total: tt.total}).reserve(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// At the quota writes fail, reads go on, and deleting is enough to make them go on.
func TestQuota(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true, QuotaBytes: minQuotaBytes, History: 80 * time.Millisecond, HistoryBytes: 1 << 20})
	value := strings.Repeat("v", 15<<10) // with its key, it leaves little of its pages unused: the quota is reached by objects
	var keys []string
	var err error
	for err == nil {
		key := fmt.Sprint("k", len(keys))
		if _, err = s.Client.Put(t.Context(), key, value); err == nil {
			keys = append(keys, key)
		}
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	soon(t, "unhealthy", func() bool { return s.Health() != nil })
	if msg := s.Health().Error(); !strings.Contains(msg, "its quota is 16 MiB; delete objects") {
		t.Errorf("health: %s", msg)
	}
	if res, err := s.Client.Get(t.Context(), keys[0]); err != nil || len(res.Kvs) != 1 {
		t.Errorf("a read at the quota: %v, %v", res, err)
	}
	for _, key := range keys[:len(keys)/2] {
		if _, err := s.Client.Delete(t.Context(), key); err != nil {
			t.Fatalf("a deletion at the quota: %v", err)
		}
	}
	soon(t, "healthy", func() bool { return s.Health() == nil })
	if _, err := s.Client.Put(t.Context(), "k", value); err != nil {
		t.Errorf("a write after deletions: %v", err)
	}
}

// History alone never reaches the quota: one key is overwritten many times as much.
func TestHistoryNeverReachesQuota(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true, QuotaBytes: minQuotaBytes})
	s.haltKeeper()
	value := strings.Repeat("v", 64<<10)
	for i := range 4 * minQuotaBytes / len(value) {
		if _, err := s.Client.Put(t.Context(), "k", value); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		if i%16 == 0 { // the keeper looks once a second; this writer takes a second for each 16
			if err := errors.Join(s.keeper.keepSpace(t.Context(), &roomState{disk: diskSpace{free: 1 << 40}}), s.keeper.keepHistory(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.keeper.noteAlarms()
	if err := s.Health(); err != nil {
		t.Error(err)
	}
}

// An alarm that an earlier process left is taken back.
func TestAlarmOfEarlierProcess(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, Options{DataDir: dir})
	if err := s.keeper.alarm(t.Context(), s.Local.MemberID(), pb.AlarmRequest_ACTIVATE); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Options{DataDir: dir, History: 80 * time.Millisecond})
	soon(t, "healthy", func() bool { return s.Health() == nil })
	if _, err := s.Client.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
}

// TestAlarmOfARemovedMember: while a member has no space, writes are refused. Once it's removed, nobody else would ever take its
// alarm back, so the others do.
func TestAlarmOfARemovedMember(t *testing.T) {
	voter, learner := openTwo(t)
	id := learner.Local.MemberID()
	if err := voter.keeper.alarm(t.Context(), id, pb.AlarmRequest_ACTIVATE); err != nil {
		t.Fatal(err)
	}
	look := func() error {
		disk, err := voter.keeper.guardDisk(t.Context())
		if err != nil {
			return err
		}
		return voter.keeper.keepSpace(t.Context(), disk)
	}
	write := func() error {
		_, err := voter.Client.Put(t.Context(), "k", "v")
		return err
	}
	soon(t, "the keeper looks at the space", func() bool { return look() == nil })
	soon(t, "a write is refused while the member has no space", func() bool { return errors.Is(write(), rpctypes.ErrNoSpace) })
	soon(t, "the member is removed", func() bool {
		err := voter.RemoveMember(t.Context(), id.String())
		return err == nil || errors.Is(err, ErrNoMember) // by an earlier try
	})
	soon(t, "a write succeeds", func() bool { return look() == nil && write() == nil })
	if err := voter.Health(); err != nil {
		t.Error(err)
	}
}

// TestDeletionWithNote: a deletion goes on at the quota and on a full disk also if it has to leave a note, which takes space. Who was
// judged by the note's revision notices.
func TestDeletionWithNote(t *testing.T) {
	const key, note = "/registry/x/a", "/note"
	for name, fill := range map[string]func(t *testing.T, s *Server){
		"at the quota": func(t *testing.T, s *Server) {
			var err error
			for i := 0; err == nil; i++ {
				_, err = s.Client.Put(t.Context(), fmt.Sprint("k", i), strings.Repeat("v", 1<<20))
			}
			if !errors.Is(err, rpctypes.ErrNoSpace) {
				t.Fatal(err)
			}
		},
		"on a full disk": func(t *testing.T, s *Server) {
			s.keeper.room.disk = func() (diskSpace, error) { return diskSpace{free: 10 << 20, total: 10 << 30}, nil }
			if _, err := s.keeper.guardDisk(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true, QuotaBytes: minQuotaBytes})
			s.haltKeeper()
			w, noting := kv.NewWriter(s.Client), storage.WithNote(t.Context(), note)
			written, err := w.Create(noting, key, []byte("v"))
			if err != nil {
				t.Fatal(err)
			}
			turn := storage.Condition{Key: "/turn"}
			if turn.Revision, err = w.Create(t.Context(), turn.Key, nil); err != nil {
				t.Fatal(err)
			}
			fill(t, s)
			if _, err := w.Update(noting, key, []byte("w"), written); !errors.Is(err, storage.ErrNoSpace) {
				t.Errorf("an update: %v", err)
			}
			if _, err := w.Delete(storage.WithTurn(noting, storage.Condition{Key: "/nobody's"}), key, written); !errors.Is(err, storage.ErrNoSpace) {
				t.Errorf("a deletion in a turn that nobody had before, which needs space: %v", err)
			}
			if _, err := w.Delete(noting, key, written-1); !errors.Is(err, storage.ErrConflict) {
				t.Errorf("a deletion of what was there before: %v", err)
			}
			premise := &storage.Premise{Condition: storage.Condition{Key: note, Revision: written}}
			deleted, err := w.Delete(storage.WithTurn(noting, turn), key, written)
			if err != nil {
				t.Fatalf("a deletion: %v", err)
			}
			for _, gone := range []string{key, note, turn.Key} {
				res, err := s.Client.Get(t.Context(), gone)
				if err != nil || len(res.Kvs) > 0 || res.Header.Revision != int64(deleted) {
					t.Errorf("%s after revision %d: %v, %v", gone, deleted, res, err)
				}
			}
			if _, err := w.Delete(storage.WithPremise(t.Context(), premise), "/turn", turn.Revision); !errors.Is(err, storage.ErrPremise) || !premise.Broken() {
				t.Errorf("a write that was judged before: %v", err)
			}
		})
	}
}

// On a low disk deletions go on, alone and in transactions, also where it would be noted who asked for them.
func TestDiskFullDeletions(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir()})
	s.haltKeeper()
	w := kv.NewWriter(s.Client)
	var revs []storage.Revision
	key := func(i int) string { return fmt.Sprint(storage.Root, "core/configmaps/default/", i) }
	for i := range 6 {
		rev, err := w.Create(t.Context(), key(i), []byte("v"))
		if err != nil {
			t.Fatal(err)
		}
		revs = append(revs, rev)
	}
	s.keeper.room.disk = func() (diskSpace, error) { return diskSpace{free: 10 << 20, total: 8 << 30}, nil }
	if _, err := s.keeper.guardDisk(t.Context()); err != nil {
		t.Fatal(err)
	}
	by := storage.WithAuthor(t.Context(), "jane")
	if _, err := w.Delete(by, key(0), revs[0]); err != nil {
		t.Errorf("alone: %v", err)
	}
	for name, c := range map[string]struct {
		ctx context.Context
		of  []int
	}{"two": {t.Context(), []int{1, 2}}, "one with an author": {by, []int{3}}, "two with an author": {by, []int{4, 5}}} {
		var b storage.Batch
		for _, i := range c.of {
			b.Conditions = append(b.Conditions, storage.Condition{Key: key(i), Revision: revs[i]})
			b.Writes = append(b.Writes, storage.Write{Key: key(i), Removed: true})
		}
		if _, _, err := w.Commit(c.ctx, b); err != nil {
			t.Errorf("a transaction of %s: %v", name, err)
		}
	}
	b := storage.Batch{Writes: []storage.Write{{Key: key(6), Value: []byte("v")}, {Key: key(7), Value: []byte("v")}}}
	if _, _, err := w.Commit(t.Context(), b); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("a transaction that writes: %v", err)
	}
}

// TestLargeConflict: of a transaction that is nearly as large as one may be it's told what doesn't hold.
func TestLargeConflict(t *testing.T) {
	s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true})
	w := kv.NewWriter(s.Client)
	batch := func(round int) (b storage.Batch) {
		for i := range 128 {
			key := fmt.Sprintf(storage.Root+"core/configmaps/default/%d-%d-", round, i)
			key += strings.Repeat("k", 170-len(key))
			b.Writes = append(b.Writes, storage.Write{Key: key, Value: []byte(strings.Repeat("v", transaction.MaxBytes/128))})
			b.Conditions = append(b.Conditions, storage.Condition{Key: key})
		}
		return b
	}
	if _, _, err := w.Commit(t.Context(), batch(0)); err != nil {
		t.Fatal("it's too large in any case:", err)
	}
	b := batch(1)
	b.Conditions[5].Revision = 7
	if _, broken, err := w.Commit(t.Context(), b); !errors.Is(err, storage.ErrConditionFailed) || len(broken) != 1 || broken[0] != b.Conditions[5] {
		t.Errorf("%d conditions are broken, %v", len(broken), err)
	}
}
