package storage_test

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// failing is an etcd that answers transactions with an error.
type failing struct {
	clientv3.KV
	err error
}

func (f failing) Txn(context.Context) clientv3.Txn       { return f }
func (f failing) If(...clientv3.Cmp) clientv3.Txn        { return f }
func (f failing) Then(...clientv3.Op) clientv3.Txn       { return f }
func (f failing) Else(...clientv3.Op) clientv3.Txn       { return f }
func (f failing) Commit() (*clientv3.TxnResponse, error) { return nil, f.err }

// TestUnknownOutcome: a write that wasn't answered may have happened; one that was refused hasn't.
func TestUnknownOutcome(t *testing.T) {
	for _, c := range []struct {
		err     error
		unknown bool
	}{
		{rpctypes.ErrTimeout, true},
		{errors.New("a connection was lost"), true},
		{rpctypes.ErrNoSpace, false},
		{rpctypes.ErrRequestTooLarge, false},
		{storage.ErrNoMajority, false},
		{context.Canceled, false}, // the caller knows what that means
	} {
		client := clientv3.NewCtxClient(t.Context())
		client.KV = failing{err: c.err}
		w := storage.NewWriter(client)
		_, created := w.Create(t.Context(), "/k", nil)
		_, updated := w.Update(t.Context(), "/k", nil, 1)
		_, deleted := w.Delete(t.Context(), "/k", 1)
		for what, err := range map[string]error{"create": created, "update": updated, "delete": deleted} {
			if got := errors.Is(err, storage.ErrUnknownOutcome); err == nil || got != c.unknown || got && !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("%s after %v: %v", what, c.err, err)
			}
		}
	}
}
