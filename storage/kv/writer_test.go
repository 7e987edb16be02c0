package kv_test

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// failing is an etcd that answers transactions with an error, and reads with what it has.
type failing struct {
	clientv3.KV
	err  error
	has  []*mvccpb.KeyValue
	lost error // of reads
}

func (f failing) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{Kvs: f.has}, f.lost
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
		{rpctypes.ErrRequestTooLarge, false},
		{storage.ErrNoMajority, false},
		{context.Canceled, false}, // the caller knows what that means
	} {
		client := clientv3.NewCtxClient(t.Context())
		client.KV = failing{err: c.err}
		w := kv.NewWriter(client)
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

// crossing is an etcd that does what it's told first, and refuses it all the same, because the quota was reached just then.
type crossing struct {
	failing
	sent, reads int
}

func (c *crossing) Txn(context.Context) clientv3.Txn { return c }
func (c *crossing) If(...clientv3.Cmp) clientv3.Txn  { return c }
func (c *crossing) Then(...clientv3.Op) clientv3.Txn { return c }

func (c *crossing) Else(ops ...clientv3.Op) clientv3.Txn {
	c.reads = len(ops)
	return c
}

func (c *crossing) Commit() (*clientv3.TxnResponse, error) {
	if c.sent++; c.sent == 1 {
		return nil, c.err
	}
	res := &clientv3.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: 9}}
	for i := range c.reads { // the first one finds what there is
		found := &etcdserverpb.RangeResponse{}
		if i == 0 {
			found.Kvs = c.has
		}
		res.Responses = append(res.Responses, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: found}})
	}
	return res, nil
}

// TestDeletedAtTheQuota: a deletion with a note that was done, and refused all the same, is done.
func TestDeletedAtTheQuota(t *testing.T) {
	refused := kv.Full{Reason: errors.New("the disk is full")}
	for name, c := range map[string]struct {
		etcd crossing
		err  error
	}{
		"done":                {crossing{failing: failing{err: rpctypes.ErrNoSpace}}, nil},
		"changed by somebody": {crossing{failing: failing{err: rpctypes.ErrNoSpace, has: []*mvccpb.KeyValue{{Key: []byte("/k"), ModRevision: 7}}}}, storage.ErrConflict},
		"never sent":          {crossing{failing: failing{err: refused}}, storage.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientv3.NewCtxClient(t.Context())
			client.KV = &c.etcd
			rev, err := kv.NewWriter(client).Delete(storage.WithNote(t.Context(), "/note"), "/k", 5)
			if !errors.Is(err, c.err) || err == nil && rev != 9 {
				t.Errorf("%d, %v; want %v", rev, err, c.err)
			}
		})
	}
}

// TestBatchDeletedAtTheQuota: deletions that may have been done, and were refused all the same, aren't told as a conflict.
func TestBatchDeletedAtTheQuota(t *testing.T) {
	changed := []*mvccpb.KeyValue{{Key: []byte("/a"), ModRevision: 7}}
	for name, c := range map[string]struct {
		etcd   crossing
		want   verdict
		broken int
	}{
		"all are gone":        {crossing{failing: failing{err: rpctypes.ErrNoSpace}}, unknown, 0},
		"changed by somebody": {crossing{failing: failing{err: rpctypes.ErrNoSpace, has: changed}}, verdict{}, 2},
		"never sent":          {crossing{failing: failing{err: kv.Full{Reason: errors.New("the disk is full")}}}, verdict{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientv3.NewCtxClient(t.Context())
			client.KV = &c.etcd
			rev, broken, err := kv.NewWriter(client).Commit(t.Context(), storage.Batch{
				Conditions: []storage.Condition{{Key: "/a", Revision: 5}, {Key: "/b", Revision: 6}},
				Writes:     []storage.Write{{Key: "/a", Removed: true}, {Key: "/b", Removed: true}},
			})
			if got := verdictOf(rev, err); got != c.want || len(broken) != c.broken || errors.Is(err, storage.ErrConditionFailed) != (c.broken > 0) {
				t.Errorf("%d, %v, %v; want %+v and %d broken", rev, broken, err, c.want, c.broken)
			}
		})
	}
}
