package embedded_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for voters := 0; voters < min(n, 3); {
		members, err := all[0].Members(ctx)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			t.Fatalf("the members are %+v: %v", members, err)
		}
		voters = 0
		for _, m := range members {
			if m.Voter {
				voters++
			}
		}
		// The leader looks every half second whom to promote. Asking without a pause would only take time from the members.
		time.Sleep(20 * time.Millisecond)
	}
	return all
}

// storeOf is the store of one member.
func storeOf(t testing.TB, s *etcd.Server) *embedded.Store {
	t.Helper()
	store, err := embedded.New(s.Client, s.Local)
	if err != nil {
		t.Fatal(err)
	}
	store.ReadIndex = s.ReadIndex()
	t.Cleanup(store.Close)
	return store
}

// patient is a member's store that asks again when the members can't answer for a while: on a busy machine the leader changes.
type patient struct{ storage.Store }

// ask asks until there's an answer.
func ask[T any](ctx context.Context, question func() (T, error)) (answer T, err error) {
	for {
		answer, err = question()
		if !errors.Is(err, storage.ErrUnavailable) || ctx.Err() != nil {
			return answer, err
		}
	}
}

func (p patient) Get(ctx context.Context, key string) (storage.KeyValue, error) {
	return ask(ctx, func() (storage.KeyValue, error) { return p.Store.Get(ctx, key) })
}

func (p patient) List(ctx context.Context, r storage.Range, at storage.Revision, fn func(storage.Change) error) (storage.Revision, error) {
	return ask(ctx, func() (storage.Revision, error) { return p.Store.List(ctx, r, at, fn) })
}

func (p patient) Count(ctx context.Context, r storage.Range, at storage.Revision) (int, error) {
	return ask(ctx, func() (int, error) { return p.Store.Count(ctx, r, at) })
}

func (p patient) Barrier(ctx context.Context) (storage.Revision, error) {
	return ask(ctx, func() (storage.Revision, error) { return p.Store.Barrier(ctx) })
}

func (p patient) Create(ctx context.Context, key string, value []byte, conditions ...storage.Condition) (storage.Revision, error) {
	return p.write(ctx, key, func() (storage.Revision, error) { return p.Store.Create(ctx, key, value, conditions...) })
}

func (p patient) Update(ctx context.Context, key string, value []byte, at storage.Revision, conditions ...storage.Condition) (storage.Revision, error) {
	return p.write(ctx, key, func() (storage.Revision, error) { return p.Store.Update(ctx, key, value, at, conditions...) })
}

func (p patient) Delete(ctx context.Context, key string, at storage.Revision) (storage.Revision, error) {
	return p.write(ctx, key, func() (storage.Revision, error) { return p.Store.Delete(ctx, key, at) })
}

// write writes until there's an answer. If an earlier try had happened, that's the answer.
func (p patient) write(ctx context.Context, key string, try func() (storage.Revision, error)) (storage.Revision, error) {
	_, before, err := p.Window(ctx) // with all that this member has written
	if err != nil {
		return 0, err
	}
	rev, err := try()
	if !errors.Is(err, storage.ErrUnavailable) {
		return rev, err
	}
	rev, err = ask(ctx, try)
	if err == nil {
		return rev, nil
	}
	changes, _, lost := p.Changes(ctx, storage.Stretch{After: before})
	for _, c := range changes {
		if c.Key == key {
			return c.Revision, nil
		}
	}
	return 0, errors.Join(err, lost)
}

// TestStorageOfMembers runs the suite at a follower.
func TestStorageOfMembers(t *testing.T) {
	all := startMembers(t, 3)
	storagetest.Run(t, func(t testing.TB) storage.Store {
		at := slices.IndexFunc(all, func(s *etcd.Server) bool { return s.Local.Leader() != s.Local.MemberID() })
		s := patient{storeOf(t, all[at])}
		again(t.Context(), t, func() error {
			_, err := all[at].Client.Delete(t.Context(), storage.Root, clientv3.WithPrefix())
			return err
		})
		return s
	})
}

// leaderAndOther returns the member that leads, and another one.
func leaderAndOther(all []*etcd.Server) (lead, other *etcd.Server) {
	for _, s := range all {
		if s.Local.Leader() == s.Local.MemberID() {
			lead = s
		} else {
			other = s
		}
	}
	return lead, other
}

// TestSnapshotFromAnotherMember cuts a follower off until the leader hasn't got the entries any more that it lacks. Then it
// gets the whole database, and its store goes on: it has everything that was acknowledged, and its changes have no gap.
func TestSnapshotFromAnotherMember(t *testing.T) {
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted=%v", compact), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			all := startMembers(t, 3)
			lead, cut := leaderAndOther(all)
			writer, reader := storeOf(t, lead), storeOf(t, cut)
			var position storage.Revision
			again(ctx, t, func() (err error) {
				position, err = reader.Barrier(ctx)
				return err
			})
			was := cut.Local.Backend()
			for _, s := range all { // whoever leads in the end
				if s != cut {
					s.Local.CutPeer(cut.Local.MemberID())
				}
			}
			last := writeMany(ctx, t, writer)
			if compact {
				again(ctx, t, func() error {
					_, err := lead.Client.Compact(ctx, int64(last))
					if errors.Is(err, rpctypes.ErrCompacted) { // by an earlier try
						return nil
					}
					return err
				})
			}
			for _, s := range all {
				if s != cut {
					s.Local.MendPeer(cut.Local.MemberID())
				}
			}
			var at storage.Revision
			again(ctx, t, func() (err error) {
				at, err = reader.Barrier(ctx)
				return err
			})
			if at < last {
				t.Fatalf("the barrier is at %d; %d was acknowledged", at, last)
			}
			if cut.Local.Backend() == was {
				t.Fatal("the follower got no snapshot: the test shows nothing")
			}
			// For a while etcd doesn't tell a watch that was there before the snapshot what is written.
			for i := range 200 {
				written, err := writer.Create(ctx, fmt.Sprint("/registry/x/then-", i), []byte("v"))
				if err != nil {
					continue // it isn't acknowledged
				}
				again(ctx, t, func() (err error) {
					at, err = reader.Barrier(ctx)
					return err
				})
				if at < written {
					t.Fatalf("after %d writes the barrier is at %d; %d was acknowledged", i, at, written)
				}
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
			again(ctx, t, func() error {
				_, err := writer.Create(ctx, "/registry/x/after", []byte("v"))
				if errors.Is(err, storage.ErrExists) {
					return nil
				}
				return err
			})
			for next := last + 1; position < next; {
				_, upTo, err := reader.Follow(ctx, position)
				if err != nil {
					t.Fatal(err)
				}
				position = upTo
			}
			again(ctx, t, func() error {
				_, err := reader.Get(ctx, "/registry/x/after")
				return err
			})
		})
	}
}

// again calls f until it succeeds: on a busy machine the leader changes, and then a request isn't answered in time.
func again(ctx context.Context, t testing.TB, f func() error) {
	t.Helper()
	err := f()
	for err != nil && ctx.Err() == nil {
		err = f()
	}
	if err != nil {
		t.Error(err)
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
				key := fmt.Sprintf("/registry/x/%d-%d", w, i)
				again(ctx, t, func() error {
					_, err := s.Create(ctx, key, []byte("v"))
					if errors.Is(err, storage.ErrExists) { // by an earlier try
						return nil
					}
					return err
				})
			}
		})
	}
	all.Wait()
	var at storage.Revision
	again(ctx, t, func() (err error) {
		at, err = s.Barrier(ctx)
		return err
	})
	return at
}
