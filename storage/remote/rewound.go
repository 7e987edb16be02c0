package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// known is what was last seen of etcd.
type known struct {
	mu      sync.Mutex // guards the rest
	cluster uint64
	marker  storage.Revision // of the write of the marker
	seen
	told    bool      // Follow has returned rewound
	failing time.Time // since when it hasn't answered; zero if it does
	failure error
}

// seen is how far etcd was.
type seen struct {
	term     uint64           // of raft
	revision storage.Revision // the newest that etcd has told
	write    write            // the newest one that was seen and isn't a deletion
	rewound  error            // why what the caches hold means nothing any more; nil while it does
}

// now returns how far etcd is, as far as known.
func (k *known) now() seen {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen
}

// identify claims the prefix, and begins to know the store as it is now.
func (s *Store) identify(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, readTries*readTimeout)
	defer cancel()
	_, at, err := Claim(within, s.client)
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: no answer within %v", storage.ErrUnavailable, readTries*readTimeout)
		}
		return err
	}
	res, err := s.get(ctx, readTimeout, storage.MarkerKey, clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	k := &s.known
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cluster, k.term, k.revision = res.Header.ClusterId, res.Header.RaftTerm, storage.Revision(res.Header.Revision)
	k.marker, k.write = at, write{}
	s.compacted.Reset(at) // what came before the marker isn't the store's own history
	return nil
}

// seeMarker reads the marker, and looks whether the store is still the one it was. It asks for progress up to the
// revision that it returns.
func (s *Store) seeMarker() (storage.Revision, error) {
	before, failed, asked := s.known.now(), s.Health() != nil, time.Now()
	res, err := s.get(s.ctx, readTimeout, storage.MarkerKey, clientv3.WithKeysOnly())
	if err != nil {
		s.known.fail(err, asked)
		return 0, err
	}
	err = s.known.see(before, res)
	if err == nil && (failed || res.Header.RaftTerm != before.term) {
		err = s.remember()
	}
	switch {
	case errors.Is(err, storage.ErrRewound):
		s.ringFollower()
		return 0, fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	case err != nil:
		s.known.fail(err, asked)
		return 0, err
	}
	rev := storage.Revision(res.Header.Revision)
	s.want(rev)
	return rev, nil
}

// write is a write of a key.
type write struct {
	key      string
	revision storage.Revision
}

// remember looks whether the newest write that the store has seen is still in etcd's history, where raft's term has changed or
// etcd hasn't answered before. Both alone prove nothing: a member that caught up by a snapshot has the term of what it applied
// itself, until it applies something else, and any new leader has a higher one. But an etcd that was brought back from a copy may
// have any term, and it may have come further than it was between two looks.
func (s *Store) remember() error {
	w := s.known.now().write
	if w.revision == 0 {
		return nil
	}
	res, err := s.get(s.ctx, readTimeout, w.key, clientv3.WithKeysOnly(), clientv3.WithRev(int64(w.revision)))
	switch {
	case errors.Is(kv.Wrap("", "", err), storage.ErrCompacted):
		return nil // nobody knows
	case err != nil:
		return err
	case len(res.Kvs) == 0 || storage.Revision(res.Kvs[0].ModRevision) != w.revision:
		return s.known.forget(w)
	}
	return nil
}

// see notes a linearizable read of the marker, and returns an error if the store certainly isn't the one it was: it has
// another cluster id or marker, or a lower revision than was known when the read began, which is before.
func (k *known) see(before seen, res *clientv3.GetResponse) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failing, k.failure = time.Time{}, nil
	h := res.Header
	switch {
	case k.rewound != nil:
	case h.ClusterId != k.cluster:
		k.rewound = fmt.Errorf("%w: cluster %x became %x", storage.ErrRewound, k.cluster, h.ClusterId)
	case storage.Revision(h.Revision) < before.revision:
		k.rewound = fmt.Errorf("%w: its revision went back from %d to %d", storage.ErrRewound, before.revision, h.Revision)
	case len(res.Kvs) == 0 || storage.Revision(res.Kvs[0].ModRevision) != k.marker:
		k.rewound = fmt.Errorf("%w: %s isn't the one it was", storage.ErrRewound, storage.MarkerKey)
	default:
		k.term, k.revision = max(k.term, h.RaftTerm), max(k.revision, storage.Revision(h.Revision))
	}
	return k.rewound
}

// seeHeader notes the header of a response to the watch, which tells the cluster. Its revision proves nothing: a member
// that lags has an old one.
func (k *known) seeHeader(h *pb.ResponseHeader) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rewound == nil && h.ClusterId != k.cluster {
		k.rewound = fmt.Errorf("%w: cluster %x became %x", storage.ErrRewound, k.cluster, h.ClusterId)
	}
	return k.rewound
}

// seeChange notes a change that the watch brought.
func (k *known) seeChange(rev storage.Revision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revision = max(k.revision, rev)
}

// seeWrite notes a write.
func (k *known) seeWrite(w write) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.revision > k.write.revision {
		k.write = w
	}
}

// forget notes that etcd doesn't have a write that was seen.
func (k *known) forget(w write) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rewound == nil {
		k.rewound = fmt.Errorf("%w: %s wasn't written at revision %d, as it was before", storage.ErrRewound, w.key, w.revision)
	}
	return k.rewound
}

// tell returns why what was read of the store means nothing any more, but once only; nil while it means something.
func (k *known) tell() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.told || k.rewound == nil {
		return nil
	}
	k.told = true
	return kv.Wrap("follow", storage.Root, k.rewound)
}

// begin ends a rewind that was told: the caches have what the store is now. One that wasn't is still to be told.
func (k *known) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.told {
		k.rewound, k.told = nil, false
	}
}

// fail notes that etcd hasn't answered what it was asked at a time.
func (k *known) fail(err error, asked time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failing.IsZero() {
		k.failing = asked
	}
	k.failure = err
}

// givenUp is for how long etcd hasn't to answer until only the prober asks it: a new leader takes less.
const givenUp = 3 * time.Second

// down returns an error if nobody but the prober need ask etcd now: it doesn't answer, or the caches are of another store.
func (k *known) down() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rewound != nil {
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, k.rewound)
	}
	return k.silentLocked()
}

// silentLocked returns an error if etcd hasn't answered for a while. The caller holds the lock.
func (k *known) silentLocked() error {
	if k.failing.IsZero() || time.Since(k.failing) < givenUp {
		return nil
	}
	return fmt.Errorf("%w: %w: no answer since %s: %w", storage.ErrUnavailable, storage.ErrNoMajority, k.failing.UTC().Format(time.RFC3339), k.failure)
}

// silent is silentLocked, for what isn't sent then: reads, and transactions.
func (k *known) silent() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.silentLocked()
}

// Health returns why the store can't read and write now, and since when; nil if it can. It returns at once.
func (s *Store) Health() error {
	k := &s.known
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.rewound != nil:
		return k.rewound
	case !k.failing.IsZero():
		return fmt.Errorf("etcd hasn't answered since %s: %w", k.failing.UTC().Format(time.RFC3339), k.failure)
	}
	return nil
}
