package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// Of several replicas only the one that acts knows what is left to do. Another one that is asked for it asks in
// turn, by a key in the store, and gets the answer in another key. So nobody needs the address of anybody, and a
// replica that takes over answers what the one before it was asked.

// Where replicas ask, and where they're answered. What follows is the id of the lease with which the keys go: it ends some
// time after the question, if nobody takes them away.
const (
	askPrefix    = storage.Own + "quiescent/asked/"
	answerPrefix = storage.Own + "quiescent/answered/"
)

const (
	// maxAsks is how many questions are answered at once: more than tests ask in parallel, and each is a
	// goroutine. Others wait.
	maxAsks = 64
	// askGrace is how much longer the keys of a question stay than it waits for the answer: enough for a change
	// of leaders on the way.
	askGrace = 10 * time.Second
	// answerShare is the part of the time of a question that is left for the way of the answer: a tenth.
	answerShare = 10
	// lookInterval is after how long a replica that waits for a question or an answer looks whether it has missed it: its watch may be
	// at a member that is cut off, or of a revision that comes much later since etcd was brought back from a copy.
	lookInterval = 10 * time.Second
	// lookTimeout bounds a look: a member that is cut off doesn't answer, and the next one goes to another one.
	lookTimeout = 2 * time.Second
	// endAsk bounds how long a replica that got its answer tries to take the keys away. Their lease ends soon anyway.
	endAsk = time.Second
)

// question asks for controllers.Quiescent.
type question struct {
	Revision storage.Revision
	Timeout  time.Duration
}

// reply is what Quiescent returned.
type reply struct {
	Report  controllers.Report
	Overdue bool // the time was over
}

// Quiescent waits until nothing is left to do, whichever replica does it. ctx has a deadline.
func (r *Replica) Quiescent(ctx context.Context, rev storage.Revision) (controllers.Report, error) {
	if rev == 0 {
		var err error
		if rev, err = r.options.Cacher.Barrier(ctx); err != nil {
			return controllers.Report{}, err
		}
	}
	a, err := r.ask(ctx, rev)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return controllers.Report{Pending: []controllers.Pending{{Cause: "the replica that acts hasn't answered"}}}, ctx.Err()
	case err != nil:
		return controllers.Report{}, err
	case a.Overdue:
		return a.Report, context.DeadlineExceeded
	}
	return a.Report, r.options.Cacher.WaitFor(ctx, a.Report.Revision)
}

// ask asks the replica that acts. ctx has a deadline.
func (r *Replica) ask(ctx context.Context, rev storage.Revision) (a reply, err error) {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	lease, err := r.options.Client.Grant(ctx, int64((left+askGrace)/time.Second))
	if err != nil {
		return a, kv.Wrap("ask", askPrefix, err)
	}
	defer r.revoke(lease.ID)
	text, err := json.Marshal(question{rev, left - left/answerShare})
	if err != nil {
		return a, err
	}
	id := strconv.FormatInt(int64(lease.ID), 16)
	put, err := r.options.Client.Put(ctx, askPrefix+id, string(text), clientv3.WithLease(lease.ID))
	if err != nil {
		return a, kv.Wrap("ask", askPrefix, err)
	}
	for from := put.Header.Revision; ctx.Err() == nil; {
		text, err := r.awaitAnswer(ctx, id, from)
		if err == nil && text == nil {
			text, from, err = r.answerTo(ctx, id, from)
		}
		if err != nil {
			return a, kv.Wrap("ask", answerPrefix, err)
		}
		if text != nil {
			return a, json.Unmarshal(text, &a)
		}
	}
	return a, fmt.Errorf("ask the replica that acts: %w", errors.Join(ctx.Err(), storage.ErrUnavailable))
}

// awaitAnswer waits for the answer to a question by a watch from a revision. It returns nil when it's time to look.
func (r *Replica) awaitAnswer(ctx context.Context, id string, from int64) (answer []byte, err error) {
	err = r.watch(ctx, answerPrefix+id, from, func(ev *clientv3.Event) bool {
		answer = ev.Kv.Value
		return false
	})
	return answer, err
}

// answerTo looks whether there's an answer to a question. next is where a watch for it begins, if a look says that in time.
func (r *Replica) answerTo(ctx context.Context, id string, from int64) (answer []byte, next int64, err error) {
	within, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	res, err := r.options.Client.Get(within, answerPrefix+id)
	switch {
	case err != nil && within.Err() != nil:
		return nil, from, ctx.Err()
	case err != nil:
		return nil, from, err
	}
	if len(res.Kvs) > 0 {
		answer = res.Kvs[0].Value
	}
	return answer, res.Header.Revision + 1, nil
}

// watch calls fn for what is put from a revision on, until that returns false. It also ends, without an error, when it's time to look
// whether something was missed: see lookInterval.
func (r *Replica) watch(ctx context.Context, key string, from int64, fn func(*clientv3.Event) bool, which ...clientv3.OpOption) error {
	within, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), lookInterval)
	defer cancel()
	for res := range r.options.Client.Watch(within, key, append(which, clientv3.WithRev(from), clientv3.WithFilterDelete())...) {
		switch err := res.Err(); {
		case errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrCompacted):
			select { // perhaps another member's turn
			case <-time.After(actPause):
			case <-ctx.Done():
			}
			return ctx.Err()
		case err != nil && within.Err() == nil:
			return err
		}
		for _, ev := range res.Events {
			if !fn(ev) {
				return nil
			}
		}
	}
	if within.Err() == nil {
		return errors.New("the watch has ended")
	}
	return ctx.Err()
}

// revoke takes the keys of a question away. Else their lease ends by itself.
func (r *Replica) revoke(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), endAsk)
	defer cancel()
	_, _ = r.options.Client.Revoke(ctx, id)
}

// answerAll answers what replicas ask, until ctx ends.
func (r *Replica) answerAll(ctx context.Context, fence storage.Condition) {
	var answering sync.WaitGroup
	defer answering.Wait()
	places := make(chan struct{}, maxAsks) // has a token for each answer under way; never closed
	var answered underWay
	start := func(q storedQuestion) {
		if !answered.begin(q.id) {
			return
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		answering.Go(func() {
			defer func() { <-places }()
			defer answered.end(q.id)
			r.answer(ctx, fence, q)
		})
	}
	for ctx.Err() == nil {
		if err := r.eachAsked(ctx, start); err != nil && ctx.Err() == nil {
			r.options.Log.Debug("questions of replicas are looked for again", "error", err)
			select {
			case <-time.After(actPause):
			case <-ctx.Done():
			}
		}
	}
}

// underWay is the questions that are being answered. One that is found again after a reconnect isn't answered twice.
type underWay struct {
	mu  sync.Mutex // guards ids
	ids map[string]bool
}

// begin notes a question, and returns false for one that is there already.
func (u *underWay) begin(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids[id] {
		return false
	}
	if u.ids == nil {
		u.ids = map[string]bool{}
	}
	u.ids[id] = true
	return true
}

func (u *underWay) end(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.ids, id)
}

// eachAsked calls start for each question that has no answer, and for each that comes until it's time to look again.
func (r *Replica) eachAsked(ctx context.Context, start func(storedQuestion)) error {
	within, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	open, err := r.options.Client.Txn(within).Then(
		clientv3.OpGet(askPrefix, clientv3.WithPrefix()),
		clientv3.OpGet(answerPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return err
	}
	answered := map[string]bool{}
	for _, kv := range open.Responses[1].GetResponseRange().Kvs {
		answered[strings.TrimPrefix(string(kv.Key), answerPrefix)] = true
	}
	for _, kv := range open.Responses[0].GetResponseRange().Kvs {
		if q := askedOf(kv); !answered[q.id] {
			start(q)
		}
	}
	return r.watch(ctx, askPrefix, open.Header.Revision+1, func(ev *clientv3.Event) bool {
		start(askedOf(ev.Kv))
		return true
	}, clientv3.WithPrefix())
}

// storedQuestion is a question as it's in the store.
type storedQuestion struct {
	id    string
	value []byte
	lease clientv3.LeaseID
}

func askedOf(kv *mvccpb.KeyValue) storedQuestion {
	return storedQuestion{strings.TrimPrefix(string(kv.Key), askPrefix), kv.Value, clientv3.LeaseID(kv.Lease)}
}

// answer answers a question, unless this replica doesn't lead any more, or it was answered.
func (r *Replica) answer(ctx context.Context, fence storage.Condition, of storedQuestion) {
	var q question
	if json.Unmarshal(of.value, &q) != nil || q.Timeout <= 0 || q.Timeout > r.options.Longest {
		return
	}
	waiting, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	report, err := r.acts.Controllers.Quiescent(waiting, q.Revision)
	if ctx.Err() != nil {
		return
	}
	text, marshalErr := json.Marshal(reply{report, err != nil})
	if marshalErr != nil {
		return
	}
	_, err = r.options.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(fence.Key), "=", int64(fence.Revision)),
			clientv3.Compare(clientv3.CreateRevision(answerPrefix+of.id), "=", 0)).
		Then(clientv3.OpPut(answerPrefix+of.id, string(text), clientv3.WithLease(of.lease))).
		Commit()
	if err != nil && ctx.Err() == nil {
		r.options.Log.Debug("a replica's question wasn't answered", "error", err) // it asks no longer
	}
}
