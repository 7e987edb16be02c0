package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// startMembers starts members of one cluster, and waits until three vote.
func startMembers(t *testing.T, n int) (all []*etcd.Server) {
	t.Helper()
	var first etcd.Options
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := etcd.Options{DataDir: filepath.Join(t.TempDir(), "data"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		o.Cluster.Listen = l.Addr().String()
		l.Close()
		if i == 0 {
			first = o
		} else {
			o.Cluster.Join, o.Cluster.JoinTokenFile = first.Cluster.Listen, filepath.Join(first.DataDir, "join-token")
		}
		s, err := etcd.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		all = append(all, s)
	}
	for voters := 0; voters < min(n, 3); {
		members, err := all[0].Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		voters = 0
		for _, m := range members {
			if m.Voter {
				voters++
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return all
}

// storeOf is the store of one member.
func storeOf(t *testing.T, s *etcd.Server) *embedded.Store {
	t.Helper()
	store, err := embedded.New(s.Client, s.Local)
	if err != nil {
		t.Fatal(err)
	}
	store.ReadIndex = s.ReadIndex()
	t.Cleanup(store.Close)
	return store
}

// TestSnapshotFromAnotherMember cuts a follower off until the leader hasn't got the entries any more that it lacks. Then it
// gets the whole database, and its store goes on: it has everything that was acknowledged, and its changes have no gap.
func TestSnapshotFromAnotherMember(t *testing.T) {
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted=%v", compact), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			all := startMembers(t, 3)
			var lead, cut *etcd.Server
			for _, s := range all {
				if s.Local.Leader() == s.Local.MemberID() {
					lead = s
				} else {
					cut = s
				}
			}
			writer, reader := storeOf(t, lead), storeOf(t, cut)
			if _, err := writer.Create(ctx, "/registry/x/before", []byte("v")); err != nil {
				t.Fatal(err)
			}
			position, err := reader.Barrier(ctx)
			if err != nil {
				t.Fatal(err)
			}
			was := cut.Local.Backend()
			lead.Local.CutPeer(cut.Local.MemberID())
			last := writeMany(ctx, t, writer)
			if compact {
				if _, err := lead.Client.Compact(ctx, int64(last)); err != nil {
					t.Fatal(err)
				}
			}
			lead.Local.MendPeer(cut.Local.MemberID())

			at, err := reader.Barrier(ctx)
			for ; errors.Is(err, storage.ErrUnavailable); at, err = reader.Barrier(ctx) { // it was cut off
			}
			if err != nil || at < last {
				t.Fatalf("the barrier is at %d, %v; %d was acknowledged", at, err, last)
			}
			if cut.Local.Backend() == was {
				t.Fatal("the follower got no snapshot: the test shows nothing")
			}
			for position < last {
				changes, upTo, err := reader.Follow(ctx, position)
				if compact && errors.Is(err, storage.ErrCompacted) {
					position = at // the feed lists anew
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range changes {
					if position++; c.Revision != position {
						t.Fatalf("revision %d follows %d", c.Revision, position-1)
					}
				}
				position = upTo
			}
			next, err := writer.Create(ctx, "/registry/x/after", []byte("v"))
			if err != nil {
				t.Fatal(err)
			}
			for position < next {
				if _, position, err = reader.Follow(ctx, position); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := reader.Get(ctx, "/registry/x/after"); err != nil {
				t.Error(err)
			}
		})
	}
}

// writeMany writes more than the leader keeps for members that lag, and returns the last revision.
func writeMany(ctx context.Context, t *testing.T, s *embedded.Store) storage.Revision {
	t.Helper()
	const writers, each = 32, 80
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				if _, err := s.Create(ctx, fmt.Sprintf("/registry/x/%d-%d", w, i), []byte("v")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	at, err := s.Barrier(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
