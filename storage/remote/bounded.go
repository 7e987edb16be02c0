package remote

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// writeTimeout bounds a transaction, as a member's requests are bounded: whoever was caught by the death of etcd's leader is told
// within three seconds. etcd itself leaves a transaction that was forwarded to that leader hanging for seven, and a member that
// is stopped never answers. With etcd's own settings a new leader is there after one to two seconds, and a transaction that
// waited for it is answered at once; one that takes longer was lost, or has a cluster whose disks are too slow for it.
const writeTimeout = 2500 * time.Millisecond

// bounded is etcd's KV with transactions that end after writeTimeout, with storage.ErrUnavailable: what was asked for may have
// happened. While etcd is known not to answer, they aren't sent.
type bounded struct {
	clientv3.KV
	gone func() error // why nothing is sent now; nil otherwise
}

func (b bounded) Txn(ctx context.Context) clientv3.Txn { return &boundedTxn{kv: b, ctx: ctx} }

// boundedTxn keeps a transaction's parts until it's committed, when its time begins.
type boundedTxn struct {
	kv              bounded
	ctx             context.Context // of the one call that the transaction is
	cmps            []clientv3.Cmp
	then, otherwise []clientv3.Op
}

func (t *boundedTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cmps...)
	return t
}

func (t *boundedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *boundedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.otherwise = append(t.otherwise, ops...)
	return t
}

func (t *boundedTxn) Commit() (*clientv3.TxnResponse, error) {
	if err := t.kv.gone(); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(t.ctx, writeTimeout)
	defer cancel()
	res, err := t.kv.KV.Txn(within).If(t.cmps...).Then(t.then...).Else(t.otherwise...).Commit()
	switch {
	case err == nil:
		return res, nil
	case t.ctx.Err() == nil && within.Err() != nil:
		return nil, fmt.Errorf("%w: etcd didn't answer a write within %v", storage.ErrUnavailable, writeTimeout)
	}
	return nil, err
}
