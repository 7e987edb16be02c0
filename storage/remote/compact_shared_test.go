package remote_test

import (
	"context"
	"fmt"
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
	for {
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
