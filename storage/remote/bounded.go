package remote

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// writeTimeout bounds a transaction: etcd leaves one that was forwarded to a leader that died hanging for seven seconds, and
// a member that is stopped never answers.
const writeTimeout = 5 * time.Second

// bounded is etcd's KV with transactions that end after writeTimeout, with storage.ErrUnavailable: what was asked for may have
// happened.
type bounded struct{ clientv3.KV }

func (b bounded) Txn(ctx context.Context) clientv3.Txn {
	within, cancel := context.WithTimeout(ctx, writeTimeout)
	return &boundedTxn{of: b.KV.Txn(within), caller: ctx, cancel: cancel}
}

type boundedTxn struct {
	of     clientv3.Txn
	caller context.Context
	cancel context.CancelFunc
}

func (t *boundedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.of = t.of.If(cs...)
	return t
}

func (t *boundedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.of = t.of.Then(ops...)
	return t
}

func (t *boundedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.of = t.of.Else(ops...)
	return t
}

func (t *boundedTxn) Commit() (*clientv3.TxnResponse, error) {
	began := time.Now()
	defer t.cancel()
	res, err := t.of.Commit()
	switch {
	case err == nil:
		return res, nil
	case t.caller.Err() == nil && time.Since(began) >= writeTimeout:
		return nil, fmt.Errorf("%w: etcd didn't answer a write within %v", storage.ErrUnavailable, writeTimeout)
	case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"): // gRPC has no error of its own for it
		return nil, rpctypes.ErrRequestTooLarge
	}
	return nil, err
}
