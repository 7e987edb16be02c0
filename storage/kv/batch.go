package kv

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// commitOp is how errors call a batch. No metric counts it: it's of no resource.
const commitOp = "transaction"

// Commit is storage.Store's.
func (w *Writer) Commit(ctx context.Context, b storage.Batch) (rev storage.Revision, broken []storage.Condition, err error) {
	if err := ctx.Err(); err != nil { // etcd might do it all the same
		return 0, nil, Wrap(commitOp, storage.Root, err)
	}
	writes, err := w.batchOps(ctx, b)
	if err != nil {
		return 0, nil, Wrap(commitOp, storage.Root, err)
	}
	if err := w.gate.enter(ctx); err != nil {
		return 0, nil, Wrap(commitOp, storage.Root, err)
	}
	defer w.gate.leave()
	res, err := w.sendBatch(ctx, comparisons(b.Conditions), writes, nil)
	var refusal error // of the first try
	if err != nil && errors.Is(translate(err), storage.ErrNoSpace) && len(b.Touched) == 0 && !slices.ContainsFunc(b.Writes, func(each storage.Write) bool { return !each.Removed }) {
		refusal = err
		writes = writes[:len(b.Writes)] // deletions make space: they're done without a note of them
		res, err = w.sendBatch(ctx, comparisons(b.Conditions), writes, nil)
	}
	for err == nil && !res.Succeeded && len(res.Responses) == 0 { // reads tell what doesn't hold: with the writes they'd be for nothing most of the time
		if err := ctx.Err(); err != nil {
			return 0, nil, Wrap(commitOp, storage.Root, err)
		}
		if res, err = w.sendBatch(ctx, comparisons(b.Conditions), nil, readsOf(b.Conditions)); err == nil && res.Succeeded { // by now it holds
			res, err = w.sendBatch(ctx, comparisons(b.Conditions), writes, nil)
		}
	}
	switch {
	case err != nil && errors.Is(translate(err), storage.ErrNoSpace):
		rev, err = w.afterNoSpace(ctx, refusedWrite{commitOp, storage.Root, b.Conditions, writes, len(b.Writes)}, err)
		return rev, nil, err
	case err != nil:
		return 0, nil, unanswered(ctx, commitOp, storage.Root, err)
	case res.Succeeded:
		return storage.Revision(res.Header.Revision), nil, nil
	case refusal != nil && !errors.As(refusal, new(Full)) && allGone(b, res.Responses):
		return 0, nil, undecided(commitOp, storage.Root, refusal)
	}
	for i, c := range b.Conditions {
		if revisionIn(res.Responses[i]) != c.Revision {
			broken = append(broken, c)
		}
	}
	return 0, broken, Wrap(commitOp, storage.Root, storage.ErrConditionFailed)
}

// readsOf are the operations that tell which conditions don't hold.
func readsOf(conditions []storage.Condition) []clientv3.Op {
	reads := make([]clientv3.Op, len(conditions))
	for i, c := range conditions {
		reads[i] = clientv3.OpGet(c.Key, clientv3.WithKeysOnly())
	}
	return reads
}

// allGone tells whether all keys that a batch removes were there, and none is now, by the answers to the reads of its conditions. A batch
// that was refused for want of space may have removed them: see refusedWrite.
func allGone(b storage.Batch, answers []*etcdserverpb.ResponseOp) bool {
	return !slices.ContainsFunc(b.Writes, func(each storage.Write) bool {
		at := slices.IndexFunc(b.Conditions, func(c storage.Condition) bool { return c.Key == each.Key && c.Revision != 0 })
		return at < 0 || revisionIn(answers[at]) != 0
	})
}

// batchOps are the operations that write a batch.
func (w *Writer) batchOps(ctx context.Context, b storage.Batch) ([]clientv3.Op, error) {
	ops := make([]clientv3.Op, 0, len(b.Writes)+len(b.Touched)+1)
	for _, each := range b.Writes {
		if each.Removed {
			ops = append(ops, clientv3.OpDelete(each.Key))
			continue
		}
		op, err := w.toStorage(ctx, put(each.Key, each.Value))
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	author := storage.GuardsOf(ctx).Author
	if len(b.Writes) > 1 {
		ops = append(ops, clientv3.OpPut(storage.TransactionKey, author))
	} else if len(b.Writes) == 1 && author != "" {
		ops = append(ops, clientv3.OpPut(storage.AuthorKey(b.Writes[0].Key), author))
	}
	for _, key := range b.Touched {
		ops = append(ops, clientv3.OpPut(key, ""))
	}
	return ops, nil
}

func (w *Writer) sendBatch(ctx context.Context, cmps []clientv3.Cmp, writes, reads []clientv3.Op) (_ *clientv3.TxnResponse, err error) {
	ctx, step := tracing.Begin(ctx, tracing.Etcd, "etcd transaction")
	defer func() { step.End(err) }()
	return w.kv.Txn(ctx).If(cmps...).Then(writes...).Else(reads...).Commit()
}
