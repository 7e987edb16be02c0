package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// roomyKV is a KV whose writes enter room before etcd gets them: one that isn't let in fails with ErrNoSpace.
type roomyKV struct {
	clientv3.KV
	room *room
}

func (kv roomyKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	r, err := kv.Do(ctx, clientv3.OpPut(key, value, opts...))
	return r.Put(), err
}

func (kv roomyKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	r, err := kv.Do(ctx, clientv3.OpDelete(key, opts...))
	return r.Del(), err
}

func (kv roomyKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	w := sizeOf(op)
	if w.kind == readsOnly {
		return kv.KV.Do(ctx, op)
	}
	cost := kv.room.cost(w.bytes)
	if err := kv.room.enter(ctx, cost, w.kind); err != nil {
		return clientv3.OpResponse{}, err
	}
	defer kv.room.leave(cost)
	return kv.KV.Do(ctx, op)
}

func (kv roomyKV) Txn(ctx context.Context) clientv3.Txn {
	return &roomyTxn{Txn: kv.KV.Txn(ctx), ctx: ctx, room: kv.room}
}

// roomyTxn is a transaction that enters room when it's committed.
type roomyTxn struct {
	clientv3.Txn
	ctx  context.Context // of the one call that the transaction is
	room *room
	size writeSize
}

func (t *roomyTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.Txn.If(cmps...)
	return t
}

func (t *roomyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.size.add(ops)
	t.Txn.Then(ops...)
	return t
}

func (t *roomyTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.size.add(ops)
	t.Txn.Else(ops...)
	return t
}

func (t *roomyTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.size.kind == readsOnly {
		return t.Txn.Commit()
	}
	cost := t.room.cost(t.size.bytes)
	if err := t.room.enter(t.ctx, cost, t.size.kind); err != nil {
		return nil, err
	}
	defer t.room.leave(cost)
	return t.Txn.Commit()
}

// writeKind is the most that a request may do to the database.
type writeKind int

const (
	readsOnly writeKind = iota
	deletes             // and reads
	puts                // and deletes, and reads
)

// writeSize is what a request may write at most: for a transaction, what both its branches write.
type writeSize struct {
	bytes int64 // of the keys and values
	kind  writeKind
}

func sizeOf(op clientv3.Op) writeSize {
	var s writeSize
	s.add([]clientv3.Op{op})
	return s
}

func (s *writeSize) add(ops []clientv3.Op) {
	for _, op := range ops {
		switch {
		case op.IsPut():
			s.kind = puts
			s.bytes += int64(len(op.KeyBytes()) + len(op.ValueBytes()))
		case op.IsDelete():
			s.kind = max(s.kind, deletes)
			s.bytes += int64(len(op.KeyBytes()))
		case op.IsTxn():
			_, then, otherwise := op.Txn()
			s.add(then)
			s.add(otherwise)
		}
	}
}
