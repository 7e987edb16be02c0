package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
	"github.com/apiserver-lite/apiserver-lite/server/flowcontrol"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// What tests outside of the package may see and bring about.

// Share makes a server that hasn't started a replica over an etcd.
func Share(s *Server, e *etcd.Server) {
	s.tests.shares = &sharedEtcd{etcd: e, client: v3client.New(e.Local)}
}

// Lag makes a replica that hasn't started slow to hear of what is written: whatever it reads, and so each change, takes it
// some time.
func Lag(s *Server, d time.Duration) {
	s.tests.shares.reads = storagetest.OnRead(func(string) error {
		time.Sleep(d)
		return nil
	})
}

// Hold makes a replica that hasn't started hear of nothing that is written, from hold to release.
func Hold(s *Server) (hold, release func()) {
	var reading sync.Mutex
	s.tests.shares.reads = storagetest.OnRead(func(string) error {
		reading.Lock()
		defer reading.Unlock()
		return nil
	})
	return reading.Lock, sync.OnceFunc(reading.Unlock)
}

// Barriers are those that a replica has asked its store for.
type Barriers struct {
	seen   atomic.Int64
	failed atomic.Bool
}

// WatchBarriers counts the barriers of a replica that hasn't started.
func WatchBarriers(s *Server) *Barriers {
	b := &Barriers{}
	s.tests.shares.readIndex = func(context.Context) (int64, error) {
		b.seen.Add(1)
		if b.failed.Load() {
			return 0, etcderrors.ErrNoLeader
		}
		return 0, nil
	}
	return b
}

// Seen returns how many there were.
func (b *Barriers) Seen() int64 { return b.seen.Load() }

// Fail makes them fail as they do without a majority, or ends that.
func (b *Barriers) Fail(fail bool) { b.failed.Store(fail) }

// OnResign has a function called whenever a replica that hasn't started yet is about to give up its part in the election.
func OnResign(s *Server, f func()) {
	s.tests.shares.client.Lease = resigning{s.tests.shares.client.Lease, f}
}

type resigning struct {
	clientv3.Lease
	before func()
}

func (r resigning) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	r.before()
	return r.Lease.Revoke(ctx, id)
}

// Leads tells whether a replica acts for all.
func Leads(s *Server) bool {
	_, leads := s.life.in.replica.Leading()
	return leads
}

// HistoryReads returns how many stretches of history the server has read, for its feed and for watchers.
func HistoryReads(s *Server) int64 { return s.life.in.backing.store.Reads() }

// Etcd returns a client of the server's etcd.
func Etcd(s *Server) *clientv3.Client { return s.life.in.backing.etcd.Client }

// Quotas returns the ledger of what is charged to quotas.
func Quotas(s *Server) *quota.Ledger { return s.life.in.quotas }

// Position returns the revision up to which every change is in the server's caches.
func Position(s *Server) storage.Revision { return s.life.in.cacher.Position() }

// Database returns the database of the server's etcd.
func Database(s *Server) backend.Backend { return s.life.in.backing.etcd.Local.Backend() }

// FillDatabase makes the database of the server's etcd so much larger, without its log.
func FillDatabase(s *Server, mebibytes int) {
	const size = 8 << 10
	be, value := Database(s), make([]byte, size-64) // with its key it fills pages
	tx := be.BatchTx()
	for i := range mebibytes << 20 / size {
		tx.LockOutsideApply()
		tx.UnsafeCreateBucket(schema.Test)
		tx.UnsafeSeqPut(schema.Test, binary.BigEndian.AppendUint64(nil, uint64(i)), value)
		tx.Unlock()
	}
	be.ForceCommit()
}

// Defragment writes the database of the server's etcd anew.
func Defragment(s *Server) error { return s.life.in.backing.etcd.Local.Defragment() }

// GiveTime lets clients take as long as a test does over their headers and bodies.
func GiveTime(s *Server) {
	const long = time.Hour
	s.tests.timeouts = timeouts{Timeouts: wire.Timeouts{Header: long, Body: long, Idle: long}}
}

// OccupySeats has one address take as many of the seats of requests as it may have, until the function it returns is
// called.
func OccupySeats(t *testing.T, s *Server, address string) (release func()) {
	t.Helper()
	return occupy(t, levelOf(s.life.in.handler, flowcontrol.DefaultLevel), fair.Flow{Who: address})
}

// occupy takes as many seats for a flow as it may have.
func occupy(t *testing.T, l *fair.Level, f fair.Flow) (release func()) {
	var held []fair.Seat
	for {
		seat, err := l.Enter(t.Context(), f, 1, 0)
		if err != nil {
			break
		}
		held = append(held, seat)
	}
	return sync.OnceFunc(func() {
		for i := range held {
			held[i].Leave()
		}
	})
}

// FillArrivals has many addresses take all places of requests that arrive, and returns how many those are. FillWaits does
// that for requests that wait for the controllers.
func FillArrivals(t *testing.T, s *Server) (taken int, release func()) {
	return fill(t, s.life.in.handler.capacity.arrivals.Level)
}

// FillWaits is like FillArrivals.
func FillWaits(t *testing.T, s *Server) (taken int, release func()) {
	return fill(t, s.life.in.handler.capacity.quiescent.Level)
}

// fill takes all seats of a level, each flow as many as it may have.
func fill(t *testing.T, l *fair.Level) (used int, release func()) {
	var releases []func()
	for used = -1; used < l.Taken(); {
		used = l.Taken()
		releases = append(releases, occupy(t, l, fair.Flow{Who: fmt.Sprint("flow ", len(releases))}))
	}
	return used, func() {
		for _, release := range releases {
			release()
		}
	}
}

// WaitingForSeats returns how many requests have seats, and how many wait for one.
func WaitingForSeats(s *Server) (taken, waiting int) {
	return levelOf(s.life.in.handler, flowcontrol.DefaultLevel).Now()
}

// StalledAnswers returns how many large answers have a place, and how many have none because their clients take nothing.
func StalledAnswers(s *Server) (writing, stalled int) {
	c := s.life.in.handler.capacity
	return c.large.Taken(), c.stalled.Taken()
}

// RecheckSoon makes a server check often whether users may still watch.
func RecheckSoon(s *Server) { s.tests.timeouts.recheck = 50 * time.Millisecond }

// Routes returns the patterns of all paths that the server knows.
func Routes(s *Server) (patterns []string) {
	routes := s.life.in.handler.routes.(chi.Routes)
	chi.Walk(routes, func(_, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !slices.Contains(patterns, pattern) {
			patterns = append(patterns, pattern)
		}
		return nil
	})
	return patterns
}

// Presumes tells whether a replica's next write may be judged without asking the store where it is.
func Presumes(s *Server) bool {
	_, may := s.life.in.registry.Presume(context.Background())
	return may
}

// OccupyLevel has one user take as many of the seats of a level as he may have, until the function it returns is called.
func OccupyLevel(t *testing.T, s *Server, level, user string) (release func()) {
	t.Helper()
	return occupy(t, levelOf(s.life.in.handler, level), fair.Flow{Rule: level, Who: user})
}

// levelOf returns a level of requests by its name.
func levelOf(h *handler, name string) *fair.Level {
	all := h.capacity.levels.Levels()
	return all[slices.IndexFunc(all, func(l flowcontrol.Level) bool { return l.Name == name })].Level
}

// HealthWhileStopping returns what a server answers to a request for its health while it isn't ready.
func HealthWhileStopping(t *testing.T, s *Server, path, token string) (code int, body string) {
	t.Helper()
	s.life.in.stopping.Store(true)
	defer s.life.in.stopping.Store(false)
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	rec := httptest.NewRecorder()
	s.life.in.handler.ServeHTTP(rec, r)
	return rec.Code, rec.Body.String()
}

// LargestBody is the bound of a body, and HalfOfRaw half of what large ones may take together as they're sent.
const (
	LargestBody = maxBody
	HalfOfRaw   = maxRaw / 2
)

// RawBodies returns how many bytes large bodies have taken that are on their way, and how many bodies wait for that.
func RawBodies(s *Server) (taken, waiting int) {
	taken, waiting = s.life.in.handler.capacity.raw.Now()
	return taken * rawUnit, waiting
}

// OccupyBodies has two others take all the room for what large bodies become, until the function it returns is called.
func OccupyBodies(t *testing.T, s *Server) (release func()) {
	t.Helper()
	b, others := s.life.in.handler.capacity.bodyMemory, []fair.Flow{{Who: "one"}, {Who: "another"}}
	for _, f := range others {
		if err := b.Enter(t.Context(), f, maxBodies/2); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, f := range others {
			b.Leave(f, maxBodies/2)
		}
	}
}
