package remote_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
)

// TestCompact: of two compactors the one that acts removes history, no further than the floor.
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
	for s, acts := range map[*remote.Store]bool{a: true, b: false} {
		go func() {
			ended <- s.Compact(running, remote.Compaction{History: time.Nanosecond, Interval: 50 * time.Millisecond,
				Acts: func() bool { return acts }, Floor: func() storage.Revision { return floor }})
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

// TestCompactTogether: two compactors that both act take neither each other for somebody else nor less than all up to the
// floor, round after round. When somebody else has compacted, neither does.
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

	other := write(1000)
	if _, err := stores[0].Client().Compact(ctx, int64(other)); err != nil {
		t.Fatal(err)
	}
	seen := looks.Load()
	eventually(ctx, t, "that both look", func() bool { return looks.Load() > seen+10 })
	last := write(1001)
	floor.Store(int64(last))
	seen = looks.Load()
	eventually(ctx, t, "that both look again", func() bool { return looks.Load() > seen+10 })
	if got := compacted(); got != other {
		t.Errorf("compacted up to %d after somebody else took %d", got, other)
	}
}
