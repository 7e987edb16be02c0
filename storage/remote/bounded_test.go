package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// promptKV commits at once, if the time isn't over.
type promptKV struct{ clientv3.KV }

func (promptKV) Txn(ctx context.Context) clientv3.Txn { return promptTxn{ctx} }

type promptTxn struct{ ctx context.Context }

func (t promptTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t promptTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t promptTxn) Else(...clientv3.Op) clientv3.Txn { return t }
func (t promptTxn) Commit() (*clientv3.TxnResponse, error) {
	return &clientv3.TxnResponse{}, t.ctx.Err()
}

// TestTxnTime: the time of a transaction begins when it's committed.
func TestTxnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		txn := bounded{promptKV{}, func() error { return nil }}.Txn(t.Context()).Then(clientv3.OpPut("k", "v"))
		time.Sleep(2 * writeTimeout)
		if _, err := txn.Commit(); err != nil {
			t.Error(err)
		}
	})
}
