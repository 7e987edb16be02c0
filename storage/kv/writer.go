package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// Writer is the half of a Store that writes: transactions through a client of etcd. Each implementation of Store has one.
// It is safe for concurrent use.
type Writer struct {
	// Transformer, if set, makes of values what is stored. Set it before the store is used.
	Transformer storage.Transformer

	kv   clientv3.KV
	took *durations
	gate *gate // nil unless AllowReplace was called
}

// NewWriter returns a Writer to a KV, such as a client.
func NewWriter(to clientv3.KV) *Writer { return &Writer{kv: to, took: newDurations()} }

// Durations are how long etcd took for requests, as metrics.
func (w *Writer) Durations() prometheus.Collector { return w.took }

// Took notes a request about a key that began then.
func (w *Writer) Took(began time.Time, op, key string) { w.took.since(began, op, key) }

// Create is storage.Store's.
func (w *Writer) Create(ctx context.Context, key string, value []byte, conds ...storage.Condition) (storage.Revision, error) {
	return w.commit(ctx, guarded{op: "create", key: key, conds: conds}, put(key, value))
}

// Update is storage.Store's.
func (w *Writer) Update(ctx context.Context, key string, value []byte, expected storage.Revision, conds ...storage.Condition) (storage.Revision, error) {
	return w.change(ctx, guarded{op: "update", key: key, expected: expected, conds: conds}, put(key, value))
}

// Delete is storage.Store's.
func (w *Writer) Delete(ctx context.Context, key string, expected storage.Revision) (storage.Revision, error) {
	return w.change(ctx, guarded{op: "delete", key: key, expected: expected}, clientv3.OpDelete(key))
}

// toStorage is an operation with what is stored instead of the value. Its error is an ErrNotTransformed.
func (w *Writer) toStorage(ctx context.Context, op clientv3.Op) (clientv3.Op, error) {
	if w.Transformer == nil || !op.IsPut() {
		return op, nil
	}
	stored, err := w.Transformer.ToStorage(ctx, string(op.KeyBytes()), op.ValueBytes())
	if err != nil {
		return op, fmt.Errorf("%w: %w", storage.ErrNotTransformed, err)
	}
	op.WithValueBytes(stored)
	return op, nil
}

// put is the operation that writes a key, with the value itself: OpPut copies it twice.
func put(key string, value []byte) clientv3.Op {
	op := clientv3.OpPut(key, "")
	op.WithValueBytes(value)
	return op
}

// guarded says under what a key is written.
type guarded struct {
	op       string // for errors
	key      string
	expected storage.Revision // of the key's last write; 0: it must not exist
	conds    []storage.Condition
}

// change does a write of a key that exists.
func (w *Writer) change(ctx context.Context, g guarded, write clientv3.Op) (storage.Revision, error) {
	if g.expected <= 0 {
		return 0, Wrap(g.op, g.key, storage.ErrConflict)
	}
	return w.commit(ctx, g, write)
}

// commit does a write if the key is as expected, and all conditions and the guards of ctx hold.
func (w *Writer) commit(ctx context.Context, g guarded, write clientv3.Op) (storage.Revision, error) {
	also := guards{storage.GuardsOf(ctx)}
	err := ctx.Err() // etcd might do it all the same
	if err == nil {
		write, err = w.toStorage(ctx, write)
	}
	if err != nil {
		also.Premise.Set(storage.PremiseUnused)
		return 0, Wrap(g.op, g.key, err)
	}
	if err := w.gate.enter(ctx); err != nil {
		return 0, Wrap(g.op, g.key, err)
	}
	defer w.gate.leave()
	also.Premise.Set(storage.PremiseSent)
	res, err := w.send(ctx, g, also, also.with(write))
	if err != nil && errors.Is(translate(err), storage.ErrNoSpace) {
		ops := also.withoutSpace(write)
		if write.IsPut() || ops == nil {
			expected := []storage.Condition{{Key: g.key, Revision: g.expected}}
			rev, err := w.afterNoSpace(ctx, refusedWrite{g.op, g.key, expected, also.with(write), 1}, err)
			if err == nil {
				also.Premise.Set(storage.PremiseHeld)
			}
			return rev, err
		}
		refused := err
		res, err = w.send(ctx, g, also, ops)
		if err == nil && !res.Succeeded && !errors.As(refused, new(Full)) && revisionIn(res.Responses[0]) == 0 {
			res.Succeeded = true // the first one was done: see refusedWrite
		}
	}
	switch {
	case err != nil:
		return 0, unanswered(ctx, g.op, g.key, err)
	case res.Succeeded:
		also.Premise.Set(storage.PremiseHeld)
		return storage.Revision(res.Header.Revision), nil
	}
	err = g.refusal(also, res.Responses)
	if also.Premise.Set(storage.PremiseUnused); err == storage.ErrPremise {
		also.Premise.Set(storage.PremiseBroken)
	}
	return 0, Wrap(g.op, g.key, err)
}

// send does the operations of a write if the key is as expected, and all conditions and guards hold.
func (w *Writer) send(ctx context.Context, g guarded, also guards, ops []clientv3.Op) (_ *clientv3.TxnResponse, err error) {
	cmps := comparisons([]storage.Condition{{Key: g.key, Revision: g.expected}}, g.conds, also.list())
	ctx, step := tracing.Begin(ctx, tracing.Etcd, g.etcdStep())
	txn := w.kv.Txn(ctx).If(cmps...).Then(ops...)
	if len(cmps)+len(ops) > 2 { // else it's the key
		txn = txn.Else(also.reads(g.key)...)
	}
	began := time.Now()
	defer func() {
		w.took.since(began, g.op, g.key)
		step.End(err)
	}()
	return txn.Commit()
}

// etcdStep is what a trace calls the transaction.
func (g guarded) etcdStep() string {
	switch g.op { // without a concatenation for each write
	case "create":
		return "etcd create"
	case "update":
		return "etcd update"
	}
	return "etcd delete"
}

// refusal is why a write wasn't done. answers are those to reads, if there are any.
func (g guarded) refusal(also guards, answers []*etcdserverpb.ResponseOp) error {
	if len(answers) > 0 {
		if err := also.broken(answers[1:]); err != nil {
			return err
		}
		if revisionIn(answers[0]) == g.expected {
			return storage.ErrConditionFailed
		}
	}
	if g.expected == 0 {
		return storage.ErrExists
	}
	return storage.ErrConflict
}

// revisionIn returns the revision of the key that was read; 0 if there's no such key.
func revisionIn(answer *etcdserverpb.ResponseOp) storage.Revision {
	if kvs := answer.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return storage.Revision(kvs[0].ModRevision)
	}
	return 0
}

// comparisons are conditions as etcd has them. They're made in place: clientv3.Compare makes each one twice.
func comparisons(all ...[]storage.Condition) []clientv3.Cmp {
	conds := slices.Concat(all...)
	cmps := make([]clientv3.Cmp, len(conds))
	for i, c := range conds {
		cmps[i] = clientv3.ModRevision(c.Key)
		cmps[i].GetCompare().TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: int64(c.Revision)} // EQUAL is the zero result
	}
	return cmps
}
