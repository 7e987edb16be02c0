package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// Store implements storage.Store over an etcd cluster that other processes use, too: replicas of this program, and whoever
// has other prefixes there.
type Store struct {
	kv.Reader
	*kv.Writer

	client *clientv3.Client
	prefix string // of all keys, for watchers of the store's own
	log    *slog.Logger

	looks    looks
	known    known
	progress progress

	followed

	compacted storage.Watermark // the revision up to which history is gone, as far as known
	reads     atomic.Int64      // stretches of history read
	times     history.Times     // by the looks of the process that compacts; none where none does

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // prober and progress
	once   sync.Once
}

// followed is the watch that Follow takes from.
type followed struct {
	followMu sync.Mutex // guards follower
	follower *follower  // nil until Follow is called
}

// Open connects to a cluster, claims the prefix, and returns its store. ctx bounds the start and nothing after it. It waits as
// Connect does, also for the claim. Errors as for Connect and Claim.
func Open(ctx context.Context, o Options) (*Store, error) {
	log := cmp.Or(o.Log, slog.Default())
	s := &Store{Reader: kv.Reader{Transformer: o.Transformer}, prefix: o.prefix(), log: log}
	s.progress.wanted = make(chan struct{}, 1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	_, err := connect(ctx, o, func(ctx context.Context, client *clientv3.Client) error {
		client.KV = kv.Through(s.unlessGone, client.KV)
		s.Writer, s.client = kv.NewWriter(client), client
		s.Writer.Transformer = o.Transformer
		return s.identify(ctx)
	})
	if err != nil {
		s.cancel()
		return nil, err
	}
	s.wg.Go(s.probe)
	s.wg.Go(s.request)
	return s, nil
}

// Times returns when revisions were written, as far as the looks of the process that compacts tell.
func (s *Store) Times() *history.Times { return &s.times }

// Client returns the store's client of etcd, whose keys, watches and leases are below the prefix.
func (s *Store) Client() *clientv3.Client { return s.client }

// Close ends the watch, the goroutines and the client. It is idempotent, and waits for them.
func (s *Store) Close() {
	s.once.Do(func() {
		s.looks.close()
		s.cancel()
		s.followMu.Lock()
		if s.follower != nil {
			s.follower.stop()
		}
		s.followMu.Unlock()
		s.wg.Wait()
		s.looks.wg.Wait()
		s.client.Close()
	})
}

const (
	// readTimeout is for one read of one key, or for one of a few words: a new leader takes less. etcd's client takes the members
	// in turn, over all requests: a second try goes to another member unless other requests came in between.
	readTimeout = 2 * time.Second
	readTries   = 2
	// pageTimeout is for one page of a list, and for a compaction: listBytes over a slow line, from a slow disk.
	pageTimeout = 30 * time.Second
)

// get is etcd's Range, linearizable, which is tried again if no answer comes, mostly at another member. The errors are
// etcd's and ctx's; no answer in time is ErrUnavailable.
func (s *Store) get(ctx context.Context, timeout time.Duration, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	for try := 1; ; try++ {
		within, cancel := context.WithTimeout(ctx, timeout)
		res, err := s.client.Get(within, key, options...)
		late := within.Err() != nil
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return res, err
		case !late:
			return nil, err
		case try == readTries || s.ctx.Err() != nil:
			return nil, fmt.Errorf("%w: no answer within %v", storage.ErrUnavailable, readTries*timeout)
		}
	}
}

// ask is get for whoever needn't find out whether etcd answers again.
func (s *Store) ask(ctx context.Context, timeout time.Duration, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := s.known.silent(); err != nil {
		return nil, err
	}
	return s.get(ctx, timeout, key, options...)
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) (storage.KeyValue, error) {
	return s.GetAt(ctx, key, 0)
}

// GetAt implements storage.Store. It's linearizable, also for revision 0.
func (s *Store) GetAt(ctx context.Context, key string, at storage.Revision) (storage.KeyValue, error) {
	ctx, step := tracing.Begin(ctx, tracing.Etcd, "etcd get")
	began := time.Now()
	res, err := s.ask(ctx, readTimeout, key, clientv3.WithRev(int64(at)))
	s.Took(began, "get", key)
	step.End(err)
	if err != nil {
		return storage.KeyValue{}, kv.Wrap("get", key, err)
	}
	if len(res.Kvs) == 0 {
		return storage.KeyValue{}, kv.Wrap("get", key, storage.ErrNotFound)
	}
	c := s.Decode(res.Kvs[0])
	return c.KeyValue, c.Err
}

// What List reads at once. With pages of 1000 keys an etcd before 3.6 would take minutes for a million (see kv.Page).
const (
	listKeys  = 50_000
	listBytes = 8 << 20 // about so much is in memory twice: as etcd's answer and decoded
)

// List implements storage.Store.
func (s *Store) List(ctx context.Context, keys storage.Range, at storage.Revision, fn func(storage.Change) error) (storage.Revision, error) {
	from, end := keys.First(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(keys.Prefix))
	var newest write
	for page := (kv.Page{MaxKeys: listKeys, MaxBytes: listBytes}); ; {
		res, err := s.ask(ctx, pageTimeout, from, end, clientv3.WithRev(int64(at)), clientv3.WithLimit(int64(page.Keys())))
		if err != nil {
			return 0, kv.Wrap("list", keys.Prefix, err)
		}
		if at == 0 {
			at = storage.Revision(res.Header.Revision)
		}
		bytes := 0
		for c := range s.DecodePage(res.Kvs) {
			bytes += len(c.Key) + len(c.Value)
			if c.Revision > newest.revision {
				newest = write{c.Key, c.Revision}
			}
			if err := fn(c); err != nil {
				return 0, err
			}
		}
		if !res.More {
			s.known.seeWrite(newest)
			return at, nil
		}
		from = string(res.Kvs[len(res.Kvs)-1].Key) + "\x00"
		page.Read(bytes)
	}
}

// Count implements storage.Store.
func (s *Store) Count(ctx context.Context, keys storage.Range, at storage.Revision) (int, error) {
	res, err := s.ask(ctx, pageTimeout, keys.First(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(keys.Prefix)), clientv3.WithRev(int64(at)), clientv3.WithCountOnly())
	if err != nil {
		return 0, kv.Wrap("count", keys.Prefix, err)
	}
	return int(res.Count), nil
}

// Window implements storage.Store. After ErrRewound it's the first look at what the store is now.
func (s *Store) Window(ctx context.Context) (compacted, newest storage.Revision, err error) {
	if s.known.now().rewound != nil {
		if err := s.identify(ctx); err != nil {
			return 0, 0, kv.Wrap("window", storage.Root, err)
		}
	}
	for found := false; !found; {
		res, err := s.get(ctx, readTimeout, storage.MarkerKey, clientv3.WithKeysOnly())
		if err != nil {
			return 0, 0, kv.Wrap("window", storage.Root, err)
		}
		newest = storage.Revision(res.Header.Revision)
		if found, err = s.findCompacted(ctx, newest); err != nil {
			return 0, 0, kv.Wrap("window", storage.Root, err)
		}
	}
	return s.Compacted(), newest, nil
}

// findCompacted looks for the revision up to which history is gone. etcd tells it to those only who ask for what is gone,
// so it's found by halving: a key can be read at it, and can't be read before it. A compaction meanwhile makes halving end
// between the two; so what was found counts only when the next call can still read it.
func (s *Store) findCompacted(ctx context.Context, newest storage.Revision) (found bool, err error) {
	low := s.Compacted()
	var failed error
	readable := func(at storage.Revision) bool {
		if failed != nil {
			return true
		}
		_, err := s.get(ctx, readTimeout, storage.MarkerKey, clientv3.WithKeysOnly(), clientv3.WithRev(int64(at)))
		if err == nil {
			return true
		}
		if !errors.Is(kv.Wrap("", "", err), storage.ErrCompacted) {
			failed = err
		}
		return false
	}
	if first := max(low, 1); readable(first) { // mostly so: nothing was compacted since
		return failed == nil, failed
	}
	at := low + 1 + storage.Revision(sort.Search(int(newest-low-1), func(i int) bool { return readable(low + 1 + storage.Revision(i)) }))
	if failed == nil {
		s.compacted.Raise(at)
	}
	return false, failed
}

// Compacted implements storage.Store.
func (s *Store) Compacted() storage.Revision { return s.compacted.At() }

// Reads implements storage.Store.
func (s *Store) Reads() int64 { return s.reads.Load() }

// TailBytes implements storage.Store.
func (s *Store) TailBytes() int64 {
	s.followMu.Lock()
	defer s.followMu.Unlock()
	if s.follower == nil {
		return 0
	}
	return s.follower.waiting()
}
