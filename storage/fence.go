package storage

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// guardsKey is the key under which a context has guards.
type guardsKey struct{}

// guards are conditions of a write that its caller knows nothing of. One without a Key is none.
type guards struct{ fence, turn Condition }

// WithFence returns a context with which writes are done only while a condition holds, and otherwise fail with ErrFenced. A
// process that was elected to lead writes with the condition that it still does: however long it was stopped in the middle of
// something, none of its writes is done after another process has begun to lead. Replace doesn't look at the fence: a store
// that may be replaced has one process.
func WithFence(ctx context.Context, fence Condition) context.Context {
	g := guardsOf(ctx)
	g.fence = fence
	return context.WithValue(ctx, guardsKey{}, g)
}

// WithTurn returns a context with which a write is done only if nobody has taken the turn since it was read, and takes it
// then. Otherwise the write fails with ErrOutOfTurn, and whoever made the context reads the turn again, and what it's about. So
// processes that share a store decide one after the other about what none of them may decide alone, such as who gets an
// address. A turn is a key that belongs to no object, with the revision that it had when it was read.
func WithTurn(ctx context.Context, turn Condition) context.Context {
	g := guardsOf(ctx)
	g.turn = turn
	return context.WithValue(ctx, guardsKey{}, g)
}

func guardsOf(ctx context.Context) guards {
	g, _ := ctx.Value(guardsKey{}).(guards)
	return g
}

// list returns those guards that there are.
func (g guards) list() (all []Condition) {
	for _, c := range []Condition{g.fence, g.turn} {
		if c.Key != "" {
			all = append(all, c)
		}
	}
	return all
}

// with returns the operations of a write with the guards.
func (g guards) with(write clientv3.Op) []clientv3.Op {
	if g.turn.Key == "" {
		return []clientv3.Op{write}
	}
	return []clientv3.Op{write, clientv3.OpPut(g.turn.Key, "")}
}

// reads returns the operations that tell why a write wasn't done: a read of its key, and then one of each guard's.
func (g guards) reads(key string) []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly())}
	for _, c := range g.list() {
		ops = append(ops, clientv3.OpGet(c.Key, clientv3.WithKeysOnly()))
	}
	return ops
}

// broken returns the error of the first guard that doesn't hold, by the answers to the reads of the guards' keys; nil if all
// do.
func (g guards) broken(answers []*etcdserverpb.ResponseOp) error {
	for i, c := range g.list() {
		switch {
		case revisionIn(answers[i]) == c.Revision:
		case c == g.fence:
			return ErrFenced
		default:
			return ErrOutOfTurn
		}
	}
	return nil
}
