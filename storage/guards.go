package storage

import (
	"context"
	"hash/fnv"
	"strconv"
	"sync/atomic"
)

// guardsKey is the key under which a context has guards.
type guardsKey struct{}

// Guards are conditions of a write that its caller knows nothing of. One without a Key is none.
type Guards struct {
	Fence, Turn Condition
	TakesTurn   bool     // see WithTurn and InTurn
	Premise     *Premise // nil for none
	Note        string   // see WithNote; "" for none
	Author      string   // see WithAuthor; "" for none
}

// GuardsOf returns the guards that a context has.
func GuardsOf(ctx context.Context) Guards {
	g, _ := ctx.Value(guardsKey{}).(Guards)
	return g
}

// WithFence returns a context with which writes are done only while a condition holds, and otherwise fail with ErrFenced. A
// process that was elected to lead writes with the condition that it still does: however long it was stopped in the middle of
// something, none of its writes is done after another process has begun to lead. Replace doesn't look at the fence: a store
// that may be replaced has one process.
func WithFence(ctx context.Context, fence Condition) context.Context {
	g := GuardsOf(ctx)
	g.Fence = fence
	return context.WithValue(ctx, guardsKey{}, g)
}

// WithTurn returns a context with which a write is done only if nobody has taken the turn since it was read, and takes it
// then. Otherwise the write fails with ErrOutOfTurn, and whoever made the context reads the turn again, and what it's about. So
// processes that share a store decide one after the other about what none of them may decide alone, such as who gets an
// address. A turn is a key that belongs to no object, with the revision that it had when it was read.
func WithTurn(ctx context.Context, turn Condition) context.Context {
	g := GuardsOf(ctx)
	g.Turn, g.TakesTurn = turn, true
	return context.WithValue(ctx, guardsKey{}, g)
}

// InTurn is WithTurn for a write that doesn't take the turn: it fails with ErrOutOfTurn as well if somebody has taken it since it
// was read. Such writes can be done at the same time, and none of them is done any more once the turn is taken.
func InTurn(ctx context.Context, turn Condition) context.Context {
	g := GuardsOf(ctx)
	g.Turn, g.TakesTurn = turn, false
	return context.WithValue(ctx, guardsKey{}, g)
}

// Premise is what a write was judged by, and what became of the write. A process that shares a store may judge by caches that
// are older than what others have written: what they wrote then breaks the premise, and the write isn't done.
type Premise struct {
	Condition
	state atomic.Int32 // a PremiseState
}

// PremiseState is what has become of the write under a Premise.
type PremiseState int32

const (
	PremiseUnused PremiseState = iota // no write was tried under it, or the last one was refused for another reason
	PremiseBroken                     // the last write was refused because of it
	PremiseSent                       // a write was sent, and isn't answered or failed with an error
	PremiseHeld                       // a write was done
)

// WithPremise returns a context with which writes are done only while a premise holds, and otherwise fail with ErrPremise.
func WithPremise(ctx context.Context, p *Premise) context.Context {
	g := GuardsOf(ctx)
	g.Premise = p
	return context.WithValue(ctx, guardsKey{}, g)
}

// Broken tells whether the last write wasn't done because the premise didn't hold.
func (p *Premise) Broken() bool { return PremiseState(p.state.Load()) == PremiseBroken }

// Decided tells whether a write was done, or may have been: it can't be tried again.
func (p *Premise) Decided() bool { return PremiseState(p.state.Load()) >= PremiseSent }

// Set is for who does the write. A nil Premise is none.
func (p *Premise) Set(to PremiseState) {
	if p != nil {
		p.state.Store(int32(to))
	}
}

// WithAuthor returns a context with which a write also notes who has asked for it, in its own transaction: below AuthorKey, or for a
// Commit of several writes in TransactionKey. A deletion for which there's no space is done without.
func WithAuthor(ctx context.Context, name string) context.Context {
	g := GuardsOf(ctx)
	g.Author = name
	return context.WithValue(ctx, guardsKey{}, g)
}

// authorKeys is on how many keys authors are noted. Etcd walks through the revisions of a key from the newest to the one that is wanted, so one
// key for all writes would be slow.
const authorKeys = 256

// AuthorKey returns the key where the author of a write of another key is, at the revision of that write. It belongs to no object.
func AuthorKey(key string) string {
	h := fnv.New32a()
	h.Write([]byte(key))
	return Own + "author/" + strconv.Itoa(int(h.Sum32()%authorKeys))
}

// WithNote returns a context with which a write also writes a key that belongs to no object, so that the key's revision is that
// of the last such write: others have it in a premise. A deletion for which there's no space removes the key instead, which
// breaks every premise that has it, too.
func WithNote(ctx context.Context, key string) context.Context {
	g := GuardsOf(ctx)
	g.Note = key
	return context.WithValue(ctx, guardsKey{}, g)
}
