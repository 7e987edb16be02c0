package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Prefix is what the keys of those that want to lead begin with. They belong to no object, so no cache has them.
const Prefix = storage.Own + "leader/"

const (
	// leaseTime is how long a process counts as alive after it was heard of last. When etcd's own leader dies, the next one
	// elects itself within some 2 s, and lets every lease begin anew and last a second longer. All of that together has to
	// stay below 10 s.
	leaseTime = 6 * time.Second
	// resignTimeout bounds how long a process that ends tries to give up its lease: whoever stops it waits for that. If it
	// can't, the lease ends by itself.
	resignTimeout = 2 * time.Second
	// retryPause is how long a process waits before it wants to lead again, after something has failed. It's short
	// compared with leaseTime, and etcd isn't asked more than twice a second.
	retryPause = 500 * time.Millisecond
	// readTimeout bounds one read, and readTries how often it's tried: a member of etcd that is cut off from the others doesn't
	// answer, and the next try goes to another one.
	readTimeout = 2 * time.Second
	readTries   = 3
	// lookInterval is after how long a process that waits for a change looks whether it has missed it: after etcd was brought back
	// from a copy, a watch waits for a revision that comes much later, or never. A read in ten seconds costs etcd nothing.
	lookInterval = 10 * time.Second
	// reportInterval is how often the log says, at most, that this process can't take part: nobody may be leading then.
	reportInterval = time.Minute
)

// Options of an Election.
type Options struct {
	Name string       // of this process, which Follow tells the others: the address at which it serves
	Log  *slog.Logger // defaults to slog.Default()
}

// Election is one process's part in an election. Make it with New, then call Run.
type Election struct {
	client *clientv3.Client
	name   string
	log    *slog.Logger

	mu    sync.Mutex // guards fence and terms
	fence *storage.Condition
	terms int64
}

// New returns an Election through a client, which must outlive Run.
func New(client *clientv3.Client, o Options) *Election {
	o.Log = cmp.Or(o.Log, slog.Default())
	return &Election{client: client, name: o.Name, log: o.Log}
}

// Leading tells whether this process leads, as far as it knows. A write by which others rely on that must have the fence as
// a condition.
func (e *Election) Leading() (fence storage.Condition, leads bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fence == nil {
		return storage.Condition{}, false
	}
	return *e.fence, true
}

// Names returns the names of all that take part, the one that leads first. The error says why etcd can't be read.
func (e *Election) Names(ctx context.Context) ([]string, error) {
	names, _, err := e.namesAt(ctx)
	return names, err
}

// get reads linearizably, for a bounded time.
func (e *Election) get(ctx context.Context, key string, which ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	for try := 1; ; try++ {
		within, cancel := context.WithTimeout(ctx, readTimeout)
		res, err := e.client.Get(within, key, which...)
		overdue := within.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !overdue || try == readTries {
			return res, err
		}
	}
}

// namesAt returns Names as they are at a revision, and that.
func (e *Election) namesAt(ctx context.Context) (names []string, at int64, err error) {
	all, err := e.get(ctx, Prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, 0, err
	}
	names = make([]string, len(all.Kvs))
	for i, kv := range all.Kvs {
		names[i] = string(kv.Value)
	}
	return names, all.Header.Revision, nil
}

// Follow tells Names, and tells them again whenever they change. It returns why it can't go on: ctx has ended, etcd can't be
// read, or tell has failed.
func (e *Election) Follow(ctx context.Context, tell func(names []string) error) error {
	var told []string
	for {
		names, at, err := e.namesAt(ctx)
		if err != nil {
			return err
		}
		if told == nil || !slices.Equal(names, told) {
			if err := tell(names); err != nil {
				return err
			}
			told = names
		}
		if err := e.awaitEvent(ctx, Prefix, at, clientv3.WithPrefix()); err != nil {
			return err
		}
	}
}

// Terms returns how often this process was elected.
func (e *Election) Terms() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.terms
}

func (e *Election) set(fence *storage.Condition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fence = fence; fence != nil {
		e.terms++
	}
}

// Run takes part in the election until ctx ends, and then resigns. Whenever this process leads, Run calls during, with a
// context that ends with the leadership. Writes with that context fail with storage.ErrFenced as soon as another process may
// lead. Run returns nil once ctx has ended and during has returned, or the error of during if that ends by itself.
func (e *Election) Run(ctx context.Context, during func(ctx context.Context) error) error {
	var reported time.Time
	for {
		err := e.take(ctx, during)
		var ended *endedError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &ended):
			return ended.cause
		}
		if err != nil && time.Since(reported) >= reportInterval {
			reported = time.Now()
			e.log.Warn("this process can't lead the replicas, or wait for its turn; it tries again, and says so once a minute at most", "error", err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return nil
		}
	}
}

// endedError says that what was to run during a term has ended by itself.
type endedError struct{ cause error }

func (e *endedError) Error() string { return fmt.Sprintf("ended by itself: %v", e.cause) }

// take takes part with one lease, as long as that lasts. The error says why it has ended.
func (e *Election) take(ctx context.Context, during func(ctx context.Context) error) error {
	granting, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	lease, err := e.client.Grant(granting, int64(leaseTime/time.Second))
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait() // at last: others needn't wait for it, as what it writes fails
	defer e.giveUp(ctx, lease.ID)
	alive, stop := context.WithCancel(ctx)
	defer stop()
	beats, err := e.client.KeepAlive(alive, lease.ID)
	if err != nil {
		return err
	}
	running.Go(func() {
		for range beats { // etcd's client wants them taken
		}
		stop() // the lease has ended, or may have
	})
	fence, at, err := e.campaign(alive, lease.ID)
	if err != nil {
		return err
	}
	e.set(&fence)
	defer e.set(nil)
	e.log.Info("this process leads the replicas now", "name", e.name, "term", fence.Revision)
	defer e.log.Info("this process doesn't lead the replicas any more", "term", fence.Revision)
	ended := make(chan error, 1) // room for the one that there is
	running.Go(func() {
		defer stop()
		if err := during(storage.WithFence(alive, fence)); alive.Err() == nil {
			ended <- err
		}
	})
	err = e.awaitEnd(alive, fence, at)
	select {
	case cause := <-ended:
		return &endedError{cause}
	default:
		return err
	}
}

// giveUp ends a lease, and with it the key. Another process leads then.
func (e *Election) giveUp(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	if _, err := e.client.Revoke(ctx, lease); err != nil {
		e.log.Debug("a lease wasn't given up, and ends by itself", "error", err)
	}
}

// campaign writes this process's key, and returns when it's the oldest one. The condition holds while the key is there, which
// it was at the revision.
func (e *Election) campaign(ctx context.Context, lease clientv3.LeaseID) (fence storage.Condition, at int64, err error) {
	key := Prefix + strconv.FormatInt(int64(lease), 16)
	within, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	put, err := e.client.Txn(within).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, e.name, clientv3.WithLease(lease))).
		Commit()
	switch {
	case err != nil:
		return fence, 0, err
	case !put.Succeeded:
		return fence, 0, fmt.Errorf("%s is there already", key)
	}
	for {
		oldest, err := e.get(ctx, Prefix, clientv3.WithFirstCreate()...)
		switch {
		case err != nil:
			return fence, 0, err
		case len(oldest.Kvs) == 0:
			return fence, 0, fmt.Errorf("%s is gone", key)
		}
		first := oldest.Kvs[0]
		if string(first.Key) == key {
			return storage.Condition{Key: key, Revision: storage.Revision(first.ModRevision)}, oldest.Header.Revision, nil
		}
		if err := e.awaitEvent(ctx, string(first.Key), oldest.Header.Revision, clientv3.WithFilterPut()); err != nil {
			return fence, 0, err
		}
	}
}

// awaitEnd waits until the key of a term is gone, which was there at a revision. While etcd can't be read, the lease decides.
func (e *Election) awaitEnd(ctx context.Context, fence storage.Condition, at int64) error {
	for {
		if err := e.awaitEvent(ctx, fence.Key, at, clientv3.WithFilterPut()); err != nil {
			return err
		}
		now, err := e.get(ctx, fence.Key, clientv3.WithKeysOnly())
		switch {
		case err != nil:
			continue
		case len(now.Kvs) == 0 || storage.Revision(now.Kvs[0].ModRevision) != fence.Revision:
			return nil
		}
		at = now.Header.Revision
	}
}

// awaitEvent waits until something may have happened after a revision: to a key, or to those that the options say. It returns nil
// also where it's time to look again: after a while, where history was compacted, or when the member that has the watch has no
// leader.
func (e *Election) awaitEvent(ctx context.Context, key string, at int64, which ...clientv3.OpOption) error {
	watch, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), lookInterval)
	defer cancel()
	for res := range e.client.Watch(watch, key, append(which, clientv3.WithRev(at+1))...) {
		switch err := res.Err(); {
		case errors.Is(err, rpctypes.ErrNoLeader):
			select { // another member's turn
			case <-time.After(retryPause):
			case <-ctx.Done():
			}
			return ctx.Err()
		case errors.Is(err, rpctypes.ErrCompacted):
			return ctx.Err()
		case err != nil && watch.Err() == nil:
			return err
		case len(res.Events) > 0:
			return nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case watch.Err() == nil:
		return errors.New("the watch has ended")
	}
	return nil
}
