package storage

import (
	"context"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// guardsKey is the key under which a context has guards.
type guardsKey struct{}

// guards are conditions of a write that its caller knows nothing of. One without a Key is none.
type guards struct {
	fence, turn Condition
	takesTurn   bool     // see WithTurn and InTurn
	premise     *Premise // nil for none
	notes       string   // see WithNote; "" for none
}

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
	g.turn, g.takesTurn = turn, true
	return context.WithValue(ctx, guardsKey{}, g)
}

// InTurn is WithTurn for a write that doesn't take the turn: it fails with ErrOutOfTurn as well if somebody has taken it since it
// was read. Such writes can be done at the same time, and none of them is done any more once the turn is taken.
func InTurn(ctx context.Context, turn Condition) context.Context {
	g := guardsOf(ctx)
	g.turn, g.takesTurn = turn, false
	return context.WithValue(ctx, guardsKey{}, g)
}

// Premise is what a write was judged by, and what became of the write. A process that shares a store may judge by caches that
// are older than what others have written: what they wrote then breaks the premise, and the write isn't done.
type Premise struct {
	Condition
	state atomic.Int32 // a premiseState
}

type premiseState = int32

const (
	premiseUnused premiseState = iota // no write was tried under it, or the last one was refused for another reason
	premiseBroken                     // the last write was refused because of it
	premiseSent                       // a write was sent, and isn't answered or failed with an error
	premiseHeld                       // a write was done
)

// WithPremise returns a context with which writes are done only while a premise holds, and otherwise fail with ErrPremise.
func WithPremise(ctx context.Context, p *Premise) context.Context {
	g := guardsOf(ctx)
	g.premise = p
	return context.WithValue(ctx, guardsKey{}, g)
}

// Broken tells whether the last write wasn't done because the premise didn't hold.
func (p *Premise) Broken() bool { return p.state.Load() == premiseBroken }

// Decided tells whether a write was done, or may have been: it can't be tried again.
func (p *Premise) Decided() bool { return p.state.Load() >= premiseSent }

func (p *Premise) set(to premiseState) {
	if p != nil {
		p.state.Store(to)
	}
}

// WithNote returns a context with which a write also writes a key that belongs to no object, so that the key's revision is that
// of the last such write: others have it in a premise. A deletion for which there's no space removes the key instead, which
// breaks every premise that has it, too.
func WithNote(ctx context.Context, key string) context.Context {
	g := guardsOf(ctx)
	g.notes = key
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
	if g.premise != nil {
		all = append(all, g.premise.Condition)
	}
	return all
}

// with returns the operations of a write with the guards.
func (g guards) with(write clientv3.Op) []clientv3.Op {
	ops := []clientv3.Op{write}
	for _, key := range g.written() {
		ops = append(ops, clientv3.OpPut(key, ""))
	}
	return ops
}

// written returns the keys that a write writes besides its own.
func (g guards) written() (keys []string) {
	if g.takesTurn {
		keys = append(keys, g.turn.Key)
	}
	if g.notes != "" {
		keys = append(keys, g.notes)
	}
	return keys
}

// withoutSpace returns the operations of a deletion with the guards, none of which takes space; nil if with had none that does, or if
// it can't be done so: to remove a turn that nobody has taken yet would take none.
func (g guards) withoutSpace(deletion clientv3.Op) []clientv3.Op {
	keys := g.written()
	if len(keys) == 0 || g.takesTurn && g.turn.Revision == 0 {
		return nil
	}
	ops := []clientv3.Op{deletion}
	for _, key := range keys {
		ops = append(ops, clientv3.OpDelete(key))
	}
	return ops
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
		case c == g.turn:
			return ErrOutOfTurn
		default:
			return ErrPremise
		}
	}
	return nil
}
