package kv

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Call is a request on its way to etcd.
type Call struct {
	Size
	Txn  bool // it's a transaction, as all writes of a Writer are
	send func(ctx context.Context) error
}

// Send sends the call on. A layer that returns its error leaves the answer as it is. It may be called again after an error.
func (c Call) Send(ctx context.Context) error { return c.send(ctx) }

// Layer stands between callers and etcd: it gets each call, and sends it on, mostly once. It may wait before it does, bound the
// time, or refuse. Its error is the caller's.
type Layer func(ctx context.Context, c Call) error

// Through returns a KV whose calls go through a layer, and then to another KV. A transaction goes when it's committed.
func Through(layer Layer, to clientv3.KV) clientv3.KV { return &layered{to, layer} }

type layered struct {
	clientv3.KV // which calls go to
	layer       Layer
}

// asked makes a call through the layer.
func asked[T any](ctx context.Context, kv *layered, c Call, ask func(context.Context) (T, error)) (res T, err error) {
	c.send = func(ctx context.Context) (err error) {
		res, err = ask(ctx)
		return err
	}
	err = kv.layer(ctx, c)
	return res, err
}

func (kv *layered) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return asked(ctx, kv, Call{Size: sizeOf(op)}, func(ctx context.Context) (clientv3.OpResponse, error) { return kv.KV.Do(ctx, op) })
}

func (kv *layered) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	r, err := kv.Do(ctx, clientv3.OpPut(key, value, opts...))
	return r.Put(), err
}

func (kv *layered) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	r, err := kv.Do(ctx, clientv3.OpGet(key, opts...))
	return r.Get(), err
}

func (kv *layered) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	r, err := kv.Do(ctx, clientv3.OpDelete(key, opts...))
	return r.Del(), err
}

func (kv *layered) Compact(ctx context.Context, rev int64, opts ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return asked(ctx, kv, Call{}, func(ctx context.Context) (*clientv3.CompactResponse, error) { return kv.KV.Compact(ctx, rev, opts...) })
}

func (kv *layered) Txn(ctx context.Context) clientv3.Txn { return &txn{ctx: ctx, kv: kv} }

// txn is a transaction that is kept until it's committed.
type txn struct {
	ctx             context.Context // of the one call that the transaction is
	kv              *layered
	cmps            []clientv3.Cmp
	then, otherwise []clientv3.Op
}

func (t *txn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cmps...)
	return t
}

func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.otherwise = append(t.otherwise, ops...)
	return t
}

func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	c := Call{Size: sizeOf(t.then...), Txn: true}
	c.add(t.otherwise)
	return asked(t.ctx, t.kv, c, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.kv.KV.Txn(ctx).If(t.cmps...).Then(t.then...).Else(t.otherwise...).Commit()
	})
}

// Kind is the most that a call may do to the database.
type Kind int

const (
	Reads   Kind = iota
	Deletes      // and reads
	Puts         // and deletes, and reads
)

// Size is what a call may write at most: for a transaction, what both its branches write.
type Size struct {
	Bytes int64 // of the keys and values
	Kind  Kind
}

func sizeOf(ops ...clientv3.Op) (s Size) {
	s.add(ops)
	return s
}

func (s *Size) add(ops []clientv3.Op) {
	for _, op := range ops {
		switch {
		case op.IsPut():
			s.Kind = Puts
			s.Bytes += int64(len(op.KeyBytes()) + len(op.ValueBytes()))
		case op.IsDelete():
			s.Kind = max(s.Kind, Deletes)
			s.Bytes += int64(len(op.KeyBytes()))
		case op.IsTxn():
			_, then, otherwise := op.Txn()
			s.add(then)
			s.add(otherwise)
		}
	}
}
