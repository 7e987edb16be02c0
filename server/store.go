package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/server/replica"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// sharedEtcd is the etcd of another Server, for tests, and a client of it, which is the Server's own.
type sharedEtcd struct {
	etcd      *etcd.Server
	client    *clientv3.Client
	reads     storage.Transformer                  // of the Server's store
	readIndex func(context.Context) (int64, error) // of the Server's store, instead of etcd's; nil: etcd's
}

// openStore opens the store that the flags ask for, and makes the cacher over it.
func (in *instance) openStore(ctx context.Context, s *Server) error {
	open := in.openEmbedded
	if s.Etcd.On() {
		open = in.openRemote
	}
	if err := open(ctx, s); err != nil {
		return err
	}
	in.cacher = cacher.New(in.backing.store, cacher.Options{Log: in.log})
	if in.backing.etcd != nil {
		in.backing.etcd.SetFloor(in.cacher.Position)
	}
	if in.backing.client != nil {
		in.joinReplicas(s)
	}
	return nil
}

// joinReplicas makes the server one of several over its store.
func (in *instance) joinReplicas(s *Server) {
	in.replica = replica.New(replica.Options{
		Name: replicaName(in.port.Addr(), s.System), Client: in.backing.client, Store: in.backing.store, Cacher: in.cacher,
		Longest: readDeadline, Log: in.log,
	})
}

// openEmbedded starts etcd in this process.
func (in *instance) openEmbedded(ctx context.Context, s *Server) (err error) {
	options := etcd.Options{DataDir: s.dataDir(), Ephemeral: s.Data.Ephemeral, Bulk: s.Data.Ephemeral, Encrypted: s.Data.Encryption.File != "", History: cmp.Or(s.Data.History, DefaultHistory), Cluster: s.Cluster, Clock: in.content.clock, Log: in.log}
	if s.tests.shares != nil {
		in.backing.etcd, in.backing.borrowed = s.tests.shares.etcd, s.tests.shares.client
	} else if in.backing.etcd, err = etcd.Open(ctx, options); err != nil {
		return err
	}
	if in.backing.borrowed == nil {
		in.backing.dataDir = in.backing.etcd.Dir()
	}
	store, err := embedded.New(cmp.Or(in.backing.borrowed, in.backing.etcd.Client), in.backing.etcd.Local)
	if err != nil {
		return err
	}
	in.backing.backup, in.backing.times = in.backing.etcd.Snapshot, in.backing.etcd.Times()
	in.backing.etcd.SetCompacted(store.NoteCompacted)
	store.ReadIndex = in.backing.etcd.ReadIndex()
	store.SetTransformer(in.transformer(s))
	if s.Data.Ephemeral {
		store.AllowReplace()
	}
	if s.tests.shares != nil {
		if s.tests.shares.readIndex != nil {
			store.ReadIndex = s.tests.shares.readIndex
		}
	}
	in.backing.store = store
	if s.tests.shares != nil || store.ReadIndex != nil { // there are other members
		in.backing.client = cmp.Or(in.backing.borrowed, in.backing.etcd.Client)
	}
	return nil
}

// openRemote connects to an etcd cluster. A data directory then holds only what belongs to this process alone, as the
// certificate of --tls. Nobody locks it. It's made when the cluster has answered, so that refused flags leave none.
func (in *instance) openRemote(ctx context.Context, s *Server) (err error) {
	if _, err := os.Stat(s.Data.Dir); s.Data.Dir != "" && err == nil {
		if err := private.Dir(s.Data.Dir); err != nil {
			return fmt.Errorf("data directory %s %w", s.Data.Dir, err)
		}
	}
	options := s.Etcd
	options.Way = in.backing.way
	options.Log, options.Transformer = in.log, in.transformer(s)
	if in.backing.remote, err = remote.Open(ctx, options); err != nil {
		return err
	}
	in.backing.backup = func(ctx context.Context) (*snapshot.Snapshot, error) {
		return in.backing.remote.Snapshot(ctx, cmp.Or(s.Data.Backups.Dir, s.Data.Dir, os.TempDir()))
	}
	in.backing.dataDir, in.backing.store, in.backing.client, in.backing.times = s.Data.Dir, in.backing.remote, in.backing.remote.Client(), in.backing.remote.Times()
	if s.Data.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.Data.Dir, 0o700); err != nil {
		return err
	}
	if err := private.Dir(s.Data.Dir); err != nil { // somebody may have made it meanwhile
		return fmt.Errorf("data directory %s %w", s.Data.Dir, err)
	}
	return nil
}

// transformer is what values go through on their way to etcd and back; nil for nothing.
func (in *instance) transformer(s *Server) storage.Transformer {
	switch {
	case s.tests.shares != nil && s.tests.shares.reads != nil:
		return s.tests.shares.reads
	case in.backing.keys != nil:
		return in.backing.keys
	}
	return nil
}

// compact removes old history from an etcd cluster, which the servers over it agree about, until ctx ends.
func (in *instance) compact(ctx context.Context, s *Server) error {
	return in.backing.remote.Compact(ctx, remote.Compaction{
		History: cmp.Or(s.Data.History, DefaultHistory), Interval: cmp.Or(s.Etcd.CompactionInterval, remote.DefaultCompactionInterval),
		Floor: in.cacher.Position,
	})
}

// storeDone is closed once the store has failed for good, as etcd in this process can; nil if it can't.
func (in *instance) storeDone() <-chan struct{} {
	if in.backing.etcd == nil {
		return nil
	}
	return in.backing.etcd.Done()
}

// storeHealth returns why the store can't serve now.
func (in *instance) storeHealth() error {
	if in.backing.etcd == nil {
		return in.backing.remote.Health()
	}
	return in.backing.etcd.Health()
}

// storeGone reports whether the store has failed for good.
func (in *instance) storeGone() bool { return in.backing.etcd != nil && in.backing.etcd.Err() != nil }

// validateEtcd tells the first setting that can't work with a store elsewhere.
func (s *Server) validateEtcd() error {
	if err := s.Etcd.Validate(); err != nil || !s.Etcd.On() {
		return err
	}
	switch {
	case s.Cluster.Listen != "" || s.Cluster.Join != "":
		return errors.New("--cluster-listen and --join are for a store of our own members: leave it out with --etcd-servers")
	case s.Data.Ephemeral:
		return errors.New("--ephemeral is for a data directory: leave it out with --etcd-servers")
	case s.TLS.On && s.Data.Dir == "" && s.TLS.Dir == "":
		return errors.New("--tls keeps its certificate in --data-dir, and --etcd-servers doesn't need one: set it, or --tls-cert-file")
	}
	return nil
}
