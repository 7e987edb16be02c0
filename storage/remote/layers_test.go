package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
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
		txn := kv.Through(bounded, promptKV{}).Txn(t.Context()).Then(clientv3.OpPut("k", "v"))
		time.Sleep(2 * writeTimeout)
		if _, err := txn.Commit(); err != nil {
			t.Error(err)
		}
	})
}

// silentKV answers nothing.
type silentKV struct{ clientv3.KV }

func (silentKV) Txn(ctx context.Context) clientv3.Txn { return silentTxn{promptTxn{ctx}} }

type silentTxn struct{ promptTxn }

func (t silentTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t silentTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t silentTxn) Else(...clientv3.Op) clientv3.Txn { return t }
func (t silentTxn) Commit() (*clientv3.TxnResponse, error) {
	<-t.ctx.Done()
	return nil, t.ctx.Err()
}

// TestUnansweredTxn: a transaction that etcd doesn't answer ends by itself, within three seconds, and may have happened. If the
// caller's own time ends before, it gets the error of that.
func TestUnansweredTxn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kv.Through(bounded, silentKV{})
		began := time.Now()
		if _, err := client.Txn(t.Context()).Then(clientv3.OpPut("k", "v")).Commit(); !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrNoMajority) {
			t.Errorf("error is %v, want %v", err, storage.ErrUnavailable)
		}
		if took := time.Since(began); took != writeTimeout || took >= 3*time.Second { // of the test's own clock
			t.Errorf("it ended after %v", took)
		}
		short, cancel := context.WithTimeout(t.Context(), writeTimeout/2)
		defer cancel()
		if _, err := client.Txn(short).Then(clientv3.OpPut("k", "v")).Commit(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("error is %v, want that of the caller's time", err)
		}
	})
}
