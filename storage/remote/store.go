package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Store implements storage.Store over an etcd cluster that other processes use, too: replicas of this program, and whoever
// has other prefixes there.
type Store struct {
	// OnRead, if set, is called for each value that is read from etcd, as that of embedded.Store. Set it before the store is
	// used.
	OnRead func(key string) error

	*storage.Writer

	client *clientv3.Client
	prefix string // of all keys, for watchers of the store's own
	log    *slog.Logger

	looks    looks
	known    known
	progress progress

	followMu sync.Mutex // guards follower
	follower *follower  // nil until Follow is called

	compacted atomic.Int64 // the revision up to which history is gone, as far as known
	reads     atomic.Int64 // stretches of history read

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // prober and progress
	once   sync.Once
}

// Open connects to a cluster, claims the prefix, and returns its store. ctx bounds the start and nothing after it. Errors
// as for Connect and Claim.
func Open(ctx context.Context, o Options) (*Store, error) {
	client, err := Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	log := o.Log
	if log == nil {
		log = slog.Default()
	}
	s := &Store{Writer: storage.NewWriter(client), client: client, prefix: o.prefix(), log: log}
	s.progress.wanted = make(chan struct{}, 1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	client.KV = bounded{client.KV.(bounded).KV, s.known.gone}
	if err := s.identify(ctx); err != nil {
		s.cancel()
		client.Close()
		return nil, fmt.Errorf("etcd: %w", err)
	}
	s.wg.Go(s.probe)
	s.wg.Go(s.request)
	return s, nil
}

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
	// readTimeout is for one read of one key, or for one of a few words. A second try goes to another member.
	readTimeout = 2 * time.Second
	readTries   = 2
	// pageTimeout is for one page of a list.
	pageTimeout = 30 * time.Second
)

// get is etcd's Range, linearizable, which is tried again at another member if the first doesn't answer. The errors are
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
	if err := s.known.gone(); err != nil {
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
	res, err := s.ask(ctx, readTimeout, key, clientv3.WithRev(int64(at)))
	if err != nil {
		return storage.KeyValue{}, storage.Wrap("get", key, err)
	}
	if len(res.Kvs) == 0 {
		return storage.KeyValue{}, storage.Wrap("get", key, storage.ErrNotFound)
	}
	c := s.decode(res.Kvs[0])
	return c.KeyValue, c.Err
}

// A List reads pages, which double until they have about pageBytes: etcd before 3.6 counts, for each page, all keys that
// follow it, so a list of a million objects in pages of 1000 would take it minutes.
const (
	firstPage = 1000
	maxPage   = 50_000
	pageBytes = 8 << 20 // about so much is in memory twice: as etcd's answer and decoded
)

// List implements storage.Store.
func (s *Store) List(ctx context.Context, keys storage.Range, at storage.Revision, fn func(storage.Change) error) (storage.Revision, error) {
	from, end := keys.First(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(keys.Prefix))
	var newest write
	for limit := firstPage; ; {
		res, err := s.ask(ctx, pageTimeout, from, end, clientv3.WithRev(int64(at)), clientv3.WithLimit(int64(limit)))
		if err != nil {
			return 0, storage.Wrap("list", keys.Prefix, err)
		}
		if at == 0 {
			at = storage.Revision(res.Header.Revision)
		}
		bytes := 0
		for _, kv := range res.Kvs {
			bytes += len(kv.Key) + len(kv.Value)
			c := s.decode(kv)
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
		limit = pageOf(limit, bytes)
	}
}

// pageOf returns the limit of the page that follows one with a limit and so many bytes.
func pageOf(limit, bytes int) int {
	fits := limit * pageBytes / max(bytes, 1)
	return max(1, min(fits, 2*limit, maxPage))
}

// Count implements storage.Store.
func (s *Store) Count(ctx context.Context, keys storage.Range, at storage.Revision) (int, error) {
	res, err := s.ask(ctx, pageTimeout, keys.First(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(keys.Prefix)), clientv3.WithRev(int64(at)), clientv3.WithCountOnly())
	if err != nil {
		return 0, storage.Wrap("count", keys.Prefix, err)
	}
	return int(res.Count), nil
}

// Window implements storage.Store. After ErrRewound it's the first look at what the store is now.
func (s *Store) Window(ctx context.Context) (compacted, newest storage.Revision, err error) {
	if s.known.rewind() != nil {
		if err := s.identify(ctx); err != nil {
			return 0, 0, storage.Wrap("window", storage.Root, err)
		}
	}
	res, err := s.get(ctx, readTimeout, storage.MarkerKey, clientv3.WithKeysOnly())
	if err != nil {
		return 0, 0, storage.Wrap("window", storage.Root, err)
	}
	newest = storage.Revision(res.Header.Revision)
	if err := s.findCompacted(ctx, newest); err != nil {
		return 0, 0, storage.Wrap("window", storage.Root, err)
	}
	return s.Compacted(), newest, nil
}

// findCompacted looks for the revision up to which history is gone. etcd tells it to those only who ask for what is gone,
// so it's found by halving: a key can be read at it, and can't be read before it.
func (s *Store) findCompacted(ctx context.Context, newest storage.Revision) error {
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
		if !errors.Is(storage.Wrap("", "", err), storage.ErrCompacted) {
			failed = err
		}
		return false
	}
	if first := max(low, 1); readable(first) { // mostly so: nothing was compacted since
		return failed
	}
	at := low + 1 + storage.Revision(sort.Search(int(newest-low-1), func(i int) bool { return readable(low + 1 + storage.Revision(i)) }))
	if failed == nil {
		raise(&s.compacted, int64(at))
	}
	return failed
}

// Compacted implements storage.Store.
func (s *Store) Compacted() storage.Revision { return storage.Revision(s.compacted.Load()) }

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

func (s *Store) decode(kv *mvccpb.KeyValue) storage.Change {
	c := storage.Change{KeyValue: keyValue(kv)}
	if s.OnRead != nil {
		if err := s.OnRead(c.Key); err != nil {
			c.Err = fmt.Errorf("read %q: %w", c.Key, err)
		}
	}
	return c
}

func keyValue(kv *mvccpb.KeyValue) storage.KeyValue {
	return storage.KeyValue{Key: string(kv.Key), Value: kv.Value, Revision: storage.Revision(kv.ModRevision)}
}

func (s *Store) decodeEvent(e *clientv3.Event) storage.Change {
	if e.Type == mvccpb.Event_DELETE {
		return storage.Change{KeyValue: storage.KeyValue{Key: string(e.Kv.Key), Revision: storage.Revision(e.Kv.ModRevision)}, Deleted: true}
	}
	return s.decode(e.Kv)
}

// raise makes a number at least n.
func raise(number *atomic.Int64, n int64) {
	for old := number.Load(); old < n && !number.CompareAndSwap(old, n); {
		old = number.Load()
	}
}
