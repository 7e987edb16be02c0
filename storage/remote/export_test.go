package remote

import (
	"context"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// RaiseTerm has the store know a later term of raft than etcd has.
func (s *Store) RaiseTerm() {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	s.known.term += 1000
}

// Misremember has the store know a write of a key that etcd doesn't have.
func (s *Store) Misremember(key string, rev storage.Revision) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	s.known.write = write{key, rev}
}

// Try is one try of Connect.
func Try(ctx context.Context, o Options) error {
	c := connector{options: o, log: slog.Default(), begin: func(context.Context, *clientv3.Client) error { return nil }}
	var err error
	if c.tls, err = o.tlsConfig(); err != nil {
		return err
	}
	client, err := c.try(ctx)
	if err == nil {
		client.Close()
	}
	return err
}

// AskEndedWatch ends the watch that is open, and then asks it for its progress, as a request may find it.
func (s *Store) AskEndedWatch(ctx context.Context) error {
	s.followMu.Lock()
	f := s.follower
	s.followMu.Unlock()
	watcher, again := f.open()
	for ; watcher == nil; watcher, again = f.open() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	again()
	for now := watcher; now == watcher; now, _ = f.open() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	watcher.RequestProgress(clientv3.WithRequireLeader(ctx)) // mostly refused
	return nil
}

// Following tells whether Follow was called.
func (s *Store) Following() bool {
	s.followMu.Lock()
	defer s.followMu.Unlock()
	return s.follower != nil
}

func (f *follower) open() (clientv3.Watcher, context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watcher, f.again
}

// Look returns a function that does one look of a compactor, as if it were a time.
func (s *Store) Look(c Compaction) func(ctx context.Context, now time.Time) error {
	return (&compactor{store: s, Compaction: c}).look
}
