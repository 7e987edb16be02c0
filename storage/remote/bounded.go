package remote

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/txn"
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

// Txn returns a transaction whose time begins when it's committed.
func (b bounded) Txn(ctx context.Context) clientv3.Txn {
	return txn.Kept(func(parts txn.Parts) (*clientv3.TxnResponse, error) { return b.commit(ctx, parts) })
}

func (b bounded) commit(ctx context.Context, parts txn.Parts) (*clientv3.TxnResponse, error) {
	if err := b.gone(); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	res, err := parts.Commit(within, b.KV)
	switch {
	case err == nil:
		return res, nil
	case ctx.Err() == nil && within.Err() != nil:
		return nil, fmt.Errorf("%w: etcd didn't answer a write within %v", storage.ErrUnavailable, writeTimeout)
	}
	return nil, err
}
