package etcd

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"runtime/debug"
	"time"

	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

const (
	// kickInterval is how often a starting member is told to campaign, until it leads. A start takes some 15 ms, so half
	// a millisecond adds little to it.
	kickInterval = 500 * time.Microsecond
	// quietLooks is for members of whose raft nothing is known (see replayed): there, the replay of the WAL counts as
	// over after this many looks without news, which are 10 ms. What is missing then is one step of raft's loop.
	quietLooks = 20
	// startGrace is how long Open still waits for etcd's start after its context has ended: only an etcd that has
	// started can be stopped. A start takes some 15 ms, and on a slow disk a few syncs.
	startGrace = 5 * time.Second
)

func (s *Server) start(ctx context.Context, o Options) error {
	cfg, err := etcdConfig(s.dir, o, s.fail, map[string]func(){
		snapshotBegins:  s.dir.spendSpare,
		snapshotApplies: s.takeover.Lock,
		snapshotApplied: func() {
			s.snapshots.Add(1)
			s.takeover.Unlock()
		},
	})
	if err != nil {
		return err
	}
	var replay uint64
	if !o.Ephemeral {
		if replay, err = s.checkFiles(ctx, o, cfg); err != nil {
			return err
		}
	}
	if err := s.dir.orderWAL(); err != nil {
		return fmt.Errorf("data directory %s: %w", s.dir.path, err)
	}
	if err := s.startEtcd(ctx, func() (*etcdserver.EtcdServer, error) { return runEtcd(cfg) }); err != nil {
		return fmt.Errorf("data directory %s: etcd can't start: %w", s.dir.path, err)
	}
	if err := s.awaitEtcd(ctx, replay); err != nil {
		return fmt.Errorf("data directory %s: etcd doesn't get ready: %w", s.dir.path, err)
	}
	var k *keeper
	if !s.waitFor("the keeper's start", func() { k, err = newKeeper(s, o) }) {
		return s.err
	}
	if err != nil {
		return err
	}
	s.keeper = k
	if !o.Ephemeral && !exists(s.dir.file(historyName)) {
		if err := errors.Join(s.keeper.save(), check.SyncDir(s.dir.path)); err != nil {
			return err
		}
	}
	s.Client = v3client.New(s.Local)
	s.Client.KV = kv.Through(k.room.layer, s.Client.KV)
	s.Client.Lease = newLeases(s.Client, s.Local)
	if s.cluster != nil {
		s.Client.KV = kv.Through(s.cluster.layer, s.Client.KV)
	}
	var kctx context.Context
	kctx, s.stopKeeper = context.WithCancel(context.Background())
	s.background.Go(func() { s.keeper.run(kctx) })
	s.background.Go(func() { s.watchStop(kctx) })
	if s.cluster != nil {
		s.background.Go(func() { s.cluster.run(kctx) })
	}
	return nil
}

// checkFiles has the directory's files checked, and makes the configuration that of a cluster's member if it's to be one.
func (s *Server) checkFiles(ctx context.Context, o Options, cfg *config.ServerConfig) (replay uint64, err error) {
	state, err := s.dir.loadCluster()
	if err != nil {
		return 0, err
	}
	id := uint64(state.Cluster)
	if id == 0 {
		if id, err = clusterID(cfg); err != nil {
			return 0, err
		}
	}
	if replay, err = s.dir.check(o.Log, id); err != nil {
		return 0, err
	}
	if s.cluster, err = openCluster(ctx, o, s.dir, s.port, state); err != nil || s.cluster == nil {
		return replay, err
	}
	if err := s.cluster.configure(cfg); err != nil {
		return 0, err
	}
	return replay, s.cluster.found(cfg, id)
}

// awaitEtcd returns when etcd serves.
func (s *Server) awaitEtcd(ctx context.Context, replay uint64) error {
	if s.cluster == nil {
		if err := s.lead(ctx, replay); err != nil {
			return err
		}
		return s.awaitReady(ctx)
	}
	s.cluster.serve(s.Local)
	if s.cluster.alone() {
		if err := s.lead(ctx, replay); err != nil {
			return err
		}
	}
	if err := s.cluster.awaitMajority(ctx, s); err != nil {
		return err
	}
	return s.cluster.publish(ctx, s.cluster.o.Listen)
}

// startEtcd calls run, which is runEtcd but in tests, in a goroutine of its own: a fatal error ends the goroutine (see newLogger),
// a damaged file that passed the checks may fault, and a disk may not answer. If it gives up, an etcd that starts later is stopped.
func (s *Server) startEtcd(ctx context.Context, run func() (*etcdserver.EtcdServer, error)) error {
	type result struct {
		etcd *etcdserver.EtcdServer
		err  error
	}
	done := make(chan result) // nobody reads it after a failure
	go func() {
		defer func() {
			if r := recover(); r != nil {
				s.fail(fmt.Errorf("panic: %v", r))
			}
		}()
		debug.SetPanicOnFault(true)
		e, err := run()
		select {
		case done <- result{e, err}:
		case <-s.failed:
			if e != nil {
				e.Stop()
			}
		}
	}()
	ended := ctx.Done()
	var giveUp <-chan time.Time
	for {
		select {
		case <-s.failed:
			s.hung = true
			return s.err
		case <-ended:
			ended, giveUp = nil, time.After(startGrace)
		case <-giveUp:
			// Not wrapped: whoever told us to stop would take it for a stop that went well.
			s.fail(fmt.Errorf("etcd didn't start: %v", context.Cause(ctx)))
		case r := <-done:
			if r.err != nil {
				return r.err
			}
			s.Local = r.etcd
			return nil
		}
	}
}

// runEtcd starts a member of etcd, which nobody can reach but through what is returned.
func runEtcd(cfg *config.ServerConfig) (*etcdserver.EtcdServer, error) {
	e, err := etcdserver.NewServer(*cfg)
	if err != nil {
		return nil, err
	}
	e.Start()
	return e, nil
}

// pause waits for a tick, or for what ends the start.
func (s *Server) pause(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.failed:
		return s.err
	case <-tick:
		return nil
	}
}

// lead makes the member campaign at once, and returns when it leads. By itself, etcd would wait for most of a second
// whether another member leads; here there is no other that votes. replay is the last entry of the WAL that the member applies
// before it may campaign, or 0 for a new member.
func (s *Server) lead(ctx context.Context, replay uint64) error {
	ticker := time.NewTicker(kickInterval)
	defer ticker.Stop()
	if err := s.replayed(ctx, replay, ticker.C); err != nil {
		return err
	}
	id := uint64(s.Local.MemberID())
	for s.Local.Leader() == 0 && (s.cluster == nil || s.cluster.alone()) { // the log may tell of other voters
		m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &id, To: &id}
		// Process would wait while raft is busy, and forever if raft has died: then pause returns the error.
		step, cancel := context.WithTimeout(ctx, kickInterval)
		err := s.Local.Process(step, m)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err := s.pause(ctx, ticker.C); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady returns when etcd is ready: until then a restarted member replays entries, and answers "too many requests".
func (s *Server) awaitReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.failed:
		return s.err
	case <-s.Local.ReadyNotify():
		return nil
	}
}

// replayed waits until raft has noted that the WAL's entries up to replay are applied. Raft must not be told to campaign
// earlier: if etcd has dropped those entries from memory by then, raft panics.
func (s *Server) replayed(ctx context.Context, replay uint64, tick <-chan time.Time) error {
	for quiet := 0; replay > 0 && s.Local.Leader() == 0; {
		applied, known := raftApplied(uint64(s.Local.MemberID()))
		if known && applied >= replay {
			return nil
		}
		if !known && s.Local.AppliedIndex() >= replay {
			if quiet++; quiet > quietLooks {
				return nil
			}
		}
		if err := s.pause(ctx, tick); err != nil {
			return err
		}
	}
	return nil
}

// raftApplied is the last entry that a member's raft has noted as applied. etcd publishes that only for the member that
// this process started last; known is false for others.
func raftApplied(id uint64) (index uint64, known bool) {
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return 0, false
	}
	status, ok := published.Value().(raft.Status)
	return status.Applied, ok && status.ID == id
}
