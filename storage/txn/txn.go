// Package txn makes transactions of etcd's client that are kept until they're committed, because whoever commits one has
// something to do first: wait for a leader, or begin the time that it may take.
package txn

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Parts are what a transaction consists of.
type Parts struct {
	If         []clientv3.Cmp
	Then, Else []clientv3.Op
}

// Commit sends a transaction of the parts.
func (p Parts) Commit(ctx context.Context, to clientv3.KV) (*clientv3.TxnResponse, error) {
	return to.Txn(ctx).If(p.If...).Then(p.Then...).Else(p.Else...).Commit()
}

// Kept returns a transaction whose Commit is commit, with the parts that it was given.
func Kept(commit func(Parts) (*clientv3.TxnResponse, error)) clientv3.Txn {
	return &kept{commit: commit}
}

type kept struct {
	parts  Parts
	commit func(Parts) (*clientv3.TxnResponse, error)
}

func (t *kept) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.parts.If = append(t.parts.If, cmps...)
	return t
}

func (t *kept) Then(ops ...clientv3.Op) clientv3.Txn {
	t.parts.Then = append(t.parts.Then, ops...)
	return t
}

func (t *kept) Else(ops ...clientv3.Op) clientv3.Txn {
	t.parts.Else = append(t.parts.Else, ops...)
	return t
}

func (t *kept) Commit() (*clientv3.TxnResponse, error) { return t.commit(t.parts) }
