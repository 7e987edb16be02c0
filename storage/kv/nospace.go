package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// refusedWrite is a transaction that was refused for want of space. Etcd looks for space before it proposes a write, and once more
// when it applies it: a write that meets the quota only then is done, and refused all the same.
type refusedWrite struct {
	op, key  string              // for errors
	expected []storage.Condition // of its keys
	ops      []clientv3.Op       // the writes, and after them what they note
	writes   int                 // how many of ops are no notes
}

// afterNoSpace is the outcome of a write that was refused for want of space. A key that is as it was before tells that it wasn't done. That
// it's done tell only all of its keys together, with a new object or its author's note among them: an equal value of another one may be somebody
// else's write, which etcd let in before it refused this one. Otherwise nobody knows.
func (w *Writer) afterNoSpace(ctx context.Context, r refusedWrite, refusal error) (storage.Revision, error) {
	if errors.As(refusal, new(Full)) || !slices.ContainsFunc(r.ops, clientv3.Op.IsPut) {
		return 0, Wrap(r.op, r.key, refusal)
	}
	var at storage.Revision // of the puts
	done := slices.ContainsFunc(r.ops[r.writes:], r.signs) || slices.ContainsFunc(r.ops[:r.writes], r.creates)
	for i, op := range r.ops {
		res, err := w.kv.Get(ctx, string(op.KeyBytes()))
		if err != nil {
			return 0, unanswered(ctx, r.op, r.key, err)
		}
		var now storage.Revision // 0: it isn't there
		if len(res.Kvs) > 0 {
			now = storage.Revision(res.Kvs[0].ModRevision)
		}
		if i < r.writes && r.untouched(op, now) {
			return 0, Wrap(r.op, r.key, refusal)
		}
		switch {
		case op.IsDelete():
			done = done && now == 0
		case now == 0 || at != 0 && now != at || !bytes.Equal(res.Kvs[0].Value, op.ValueBytes()):
			done = false
		default:
			at = now
		}
	}
	if done {
		return at, nil
	}
	return 0, undecided(r.op, r.key, refusal)
}

// untouched tells whether a key, which has a revision now, is as it was before the write.
func (r refusedWrite) untouched(op clientv3.Op, now storage.Revision) bool {
	was := storage.Revision(0)
	for _, c := range r.expected {
		if c.Key == string(op.KeyBytes()) {
			was = c.Revision
		}
	}
	return now == was && (now != 0 || op.IsPut())
}

// creates tells whether an operation makes an object, which has a uid that no other write has made up.
func (r refusedWrite) creates(op clientv3.Op) bool {
	return op.IsPut() && len(op.ValueBytes()) > 0 && slices.Contains(r.expected, storage.Condition{Key: string(op.KeyBytes())})
}

// signs tells whether an operation notes who has asked for the write, which somebody else's doesn't write so.
func (r refusedWrite) signs(op clientv3.Op) bool {
	key := string(op.KeyBytes())
	return key == storage.TransactionKey || key == storage.AuthorKey(string(r.ops[0].KeyBytes()))
}

// undecided is Wrap for a refusal of a write that may have been done all the same.
func undecided(op, key string, refusal error) error {
	return fmt.Errorf("%w (%w)", Wrap(op, key, refusal), storage.ErrUnknownOutcome)
}
