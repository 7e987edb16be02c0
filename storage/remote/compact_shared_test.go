package remote_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
)

// TestCompact: of two compactors one removes history, no further than the floor.
func TestCompact(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, b := open(t, remote.Options{Servers: []string{url}}), open(t, remote.Options{Servers: []string{url}})
	var last storage.Revision
	for i := range 20 {
		var err error
		if last, err = a.Create(ctx, fmt.Sprintf("%s%d", key, i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	floor := last - 5
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 2)
	for _, s := range []*remote.Store{a, b} {
		go func() {
			ended <- s.Compact(running, remote.Compaction{History: time.Nanosecond, Interval: 50 * time.Millisecond,
				Floor: func() storage.Revision { return floor }})
		}()
	}
	for { // asks all the time, so that no compaction beyond the floor is missed
		compacted, _, err := b.Window(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if compacted > floor {
			t.Fatalf("compacted up to %d, beyond the floor %d", compacted, floor)
		}
		if compacted == floor {
			break
		}
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestWindowWhileCompacted: what Window says history was compacted to is a revision that somebody compacted to, though that
// moves on while it's looked for.
func TestWindowWhileCompacted(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	ctx := t.Context()
	writer := open(t, remote.Options{Servers: []string{url}})
	var last storage.Revision
	for i := range 2000 {
		var err error
		if last, err = writer.Create(ctx, fmt.Sprintf("%s%d", key, i), nil); err != nil {
			t.Fatal(err)
		}
	}
	const step = 97
	var compactor sync.WaitGroup
	defer compactor.Wait()
	compactor.Go(func() {
		for at := storage.Revision(step); at < last; at += step {
			if _, err := writer.Client().Compact(ctx, int64(at)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	s := open(t, remote.Options{Servers: []string{url}})
	for at := storage.Revision(0); at < last/step*step; {
		var err error
		if at, _, err = s.Window(ctx); err != nil {
			t.Fatal(err)
		}
		if at%step != 0 {
			t.Fatalf("history is said to be compacted up to %d, where nobody did", at)
		}
	}
}

// TestCompactTogether: two compactors take neither each other for somebody else nor less than all up to the floor, round after
// round. When somebody else has compacted twice, neither does.
func TestCompactTogether(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stores := []*remote.Store{open(t, remote.Options{Servers: []string{url}}), open(t, remote.Options{Servers: []string{url}})}
	var floor, looks atomic.Int64
	running, stop := context.WithCancel(ctx)
	var compactors sync.WaitGroup
	defer compactors.Wait()
	defer stop()
	for n, s := range stores {
		compactors.Go(func() {
			err := s.Compact(running, remote.Compaction{History: time.Nanosecond, Interval: time.Millisecond, Floor: func() storage.Revision {
				looks.Add(1)
				return storage.Revision(floor.Load()) - storage.Revision(n) // they are at different places in the feed
			}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	write := func(round int) storage.Revision {
		rev, err := stores[0].Create(ctx, fmt.Sprintf("%s%d", key, round), []byte("v"))
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	compacted := func() storage.Revision {
		at, _, err := stores[1].Window(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for round := range 30 {
		last := write(round)
		floor.Store(int64(last))
		eventually(ctx, t, "a compaction", func() bool { return compacted() == last })
	}

	compact := func(at storage.Revision) {
		if _, err := stores[0].Client().Compact(ctx, int64(at)); err != nil {
			t.Fatal(err)
		}
		seen := looks.Load()
		eventually(ctx, t, "that both look", func() bool { return looks.Load() > seen+10 })
	}
	compact(write(1000)) // as an operator does
	last := write(1001)
	floor.Store(int64(last))
	eventually(ctx, t, "a compaction", func() bool { return compacted() == last })
	again := write(1002)
	compact(again)
	last = write(1003)
	floor.Store(int64(last))
	seen := looks.Load()
	eventually(ctx, t, "that both look again", func() bool { return looks.Load() > seen+10 })
	if got := compacted(); got != again {
		t.Errorf("compacted up to %d after somebody else took %d, twice", got, again)
	}
}

// TestCompactAfterJumps: neither a clock that jumps nor another process's makes history older than it is; and when a process is
// gone, another one goes on from its state.
func TestCompactAfterJumps(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, other := open(t, remote.Options{Servers: []string{url}}), open(t, remote.Options{Servers: []string{url}})
	const interval, history = 5 * time.Minute, time.Hour
	c := remote.Compaction{History: history, Interval: interval, Floor: noFloor}
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // times of day, as of a monotonic clock that jumps
	n := 0
	look := func(look func(context.Context, time.Time) error) storage.Revision {
		t.Helper()
		n++
		if _, err := s.Create(ctx, fmt.Sprintf("%s%d", key, n), []byte("v")); err != nil {
			t.Fatal(err)
		}
		if err := look(ctx, clock); err != nil {
			t.Fatal(err)
		}
		compacted, _, err := s.Window(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return compacted
	}
	first := s.Look(c)
	begin := look(first)
	for i, jump := range []time.Duration{0, 2 * time.Hour, -48 * time.Hour, 1000 * 24 * time.Hour, 0, 0} {
		clock = clock.Add(interval + jump)
		if got := look(first); got != begin {
			t.Fatalf("look %d, after a jump by %v: compacted up to %d", i, jump, got)
		}
	}
	clock = clock.Add(-365 * 24 * time.Hour) // another machine's
	second := other.Look(c)
	for i := range 3 {
		if got := look(second); got != begin {
			t.Fatalf("look %d of another process: compacted up to %d", i, got)
		}
		clock = clock.Add(2000 * 24 * time.Hour)
	}
	for i := 0; look(second) == begin; i++ {
		if i > int(history/interval) {
			t.Fatal("an hour of looks later nothing was compacted")
		}
		clock = clock.Add(interval)
	}
}

// TestCompactWithoutSpace: where the quota of etcd is reached, it takes no write of the compactor's state. History that is old goes
// all the same, look after look, and an operator then gets space back by what etcd documents. None of that counts as somebody
// else's regular compaction.
func TestCompactWithoutSpace(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), func(c *embed.Config) { c.QuotaBackendBytes = 16 << 20 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, other := open(t, remote.Options{Servers: []string{url}}), open(t, remote.Options{Servers: []string{url}})
	const interval = 5 * time.Minute
	c := remote.Compaction{History: time.Hour, Interval: interval, Floor: noFloor}
	looks := []func(context.Context, time.Time) error{s.Look(c), other.Look(c)}
	now := time.Now()
	for _, look := range append(looks, looks[0]) {
		if err := look(ctx, now); err != nil {
			t.Fatal(err)
		}
		now = now.Add(interval)
	}
	value := make([]byte, 1<<20)
	rev, err := s.Create(ctx, key, value)
	begin := rev
	for ; err == nil; rev, err = s.Update(ctx, key, value, rev) {
		begin = rev
	}
	if !errors.Is(err, storage.ErrNoSpace) {
		t.Fatal(err)
	}
	compacted := storage.Revision(0)
	for i := 0; compacted < begin; i++ {
		if i > 20 {
			t.Fatalf("100 minutes later: compacted up to %d of %d", compacted, begin)
		}
		for _, look := range looks {
			if err := look(ctx, now); err != nil && !errors.Is(err, storage.ErrNoSpace) {
				t.Fatal(err)
			}
		}
		now = now.Add(interval)
		if compacted, _, err = other.Window(ctx); err != nil {
			t.Fatal(err)
		}
	}

	// What etcd documents: https://etcd.io/docs/v3.6/op-guide/maintenance/#space-quota
	if _, err := s.Client().Compact(ctx, int64(begin), clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatal(err)
	}
	if _, err := s.Client().Defragment(ctx, url); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "a write", func() bool { _, err := s.Create(ctx, key+"after", nil); return err == nil })
	after, _, err := s.Window(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; compacted == after; i++ {
		if i > 20 {
			t.Fatalf("100 minutes after the repair: compacted up to %d still", compacted)
		}
		for n, look := range looks {
			if _, err := s.Create(ctx, fmt.Sprintf("%s-%d-%d", key, i, n), nil); err != nil {
				t.Fatal(err)
			}
			if err := look(ctx, now); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(interval)
		if compacted, _, err = s.Window(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// noFloor is that of a process that reads nothing.
func noFloor() storage.Revision { return math.MaxInt64 }
