package kv

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// guards are storage's, as operations of etcd's.
type guards struct{ storage.Guards }

// list returns those guards that there are.
func (g guards) list() (all []storage.Condition) {
	for _, c := range []storage.Condition{g.Fence, g.Turn} {
		if c.Key != "" {
			all = append(all, c)
		}
	}
	if g.Premise != nil {
		all = append(all, g.Premise.Condition)
	}
	return all
}

// with returns the operations of a write with the guards.
func (g guards) with(write clientv3.Op) []clientv3.Op {
	ops := []clientv3.Op{write}
	for _, key := range g.written() {
		ops = append(ops, clientv3.OpPut(key, ""))
	}
	if g.Author != "" {
		ops = append(ops, clientv3.OpPut(storage.AuthorKey(string(write.KeyBytes())), g.Author))
	}
	return ops
}

// written returns the keys that a write writes besides its own.
func (g guards) written() (keys []string) {
	if g.TakesTurn {
		keys = append(keys, g.Turn.Key)
	}
	if g.Note != "" {
		keys = append(keys, g.Note)
	}
	return keys
}

// withoutSpace returns the operations of a deletion with the guards, none of which takes space; nil if with had none that does, or if
// it can't be done so: to remove a turn that nobody has taken yet would take none.
func (g guards) withoutSpace(deletion clientv3.Op) []clientv3.Op {
	keys := g.written()
	if len(keys) == 0 && g.Author == "" || g.TakesTurn && g.Turn.Revision == 0 {
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
		case c == g.Fence:
			return storage.ErrFenced
		case c == g.Turn:
			return storage.ErrOutOfTurn
		default:
			return storage.ErrPremise
		}
	}
	return nil
}
