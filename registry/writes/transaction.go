package writes

import (
	"context"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

// operation returns the operation of a transaction as which a client makes the write; nil for a write of its own, and for one that the server
// makes on the way.
func (w *write) operation(ctx context.Context) *transaction.Operation {
	if !w.asked {
		return nil
	}
	return transaction.Of(ctx)
}

// keyWriter is the part of a Store that an operation has, too.
type keyWriter interface {
	Create(ctx context.Context, key string, value []byte, conds ...storage.Condition) (storage.Revision, error)
	Update(ctx context.Context, key string, value []byte, expected storage.Revision, conds ...storage.Condition) (storage.Revision, error)
	Delete(ctx context.Context, key string, expected storage.Revision) (storage.Revision, error)
}

// store returns by what the write is stored.
func (w *write) store(ctx context.Context) keyWriter {
	if op := w.operation(ctx); op != nil {
		return together{op}
	}
	return w.Res.Registry.Store
}

// together is an operation whose errors are for clients.
type together struct{ op *transaction.Operation }

func (t together) Create(ctx context.Context, key string, value []byte, conds ...storage.Condition) (storage.Revision, error) {
	rev, err := t.op.Create(ctx, key, value, conds...)
	return rev, ofTransaction(err)
}

func (t together) Update(ctx context.Context, key string, value []byte, expected storage.Revision, conds ...storage.Condition) (storage.Revision, error) {
	rev, err := t.op.Update(ctx, key, value, expected, conds...)
	return rev, ofTransaction(err)
}

func (t together) Delete(ctx context.Context, key string, expected storage.Revision) (storage.Revision, error) {
	rev, err := t.op.Delete(ctx, key, expected)
	return rev, ofTransaction(err)
}

// ofTransaction is the answer to an operation that can't follow another one, or that isn't written because of another one; other errors stay.
func ofTransaction(err error) error {
	var c *transaction.Contradiction
	switch {
	case errors.As(err, &c):
		return registry.Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, c.Error()+" of the same transaction: make two transactions of it")
	case errors.Is(err, transaction.ErrAborted), errors.Is(err, storage.ErrReplaced):
		return registry.Refusal(http.StatusConflict, metav1.StatusReasonConflict, err.Error())
	}
	return err
}

// pending returns what earlier operations of a transaction have made of a key; nil if there is no operation, or none has written it.
func pending(op *transaction.Operation, key string) (*kube.Object, error) {
	kv, err := op.Pending(key)
	if kv == nil || err != nil {
		return nil, ofTransaction(err)
	}
	return kube.NewObject(kv.Key, kv.Value, kv.Revision), nil
}

// latest reads an object as it will be when the write is done: what is pending in its transaction, else what etcd has.
func (w *write) latest(ctx context.Context, key string) (*kube.Object, error) {
	if o, err := pending(w.operation(ctx), key); o != nil || err != nil {
		return o, err
	}
	return w.Res.Read(ctx, key)
}

// joins waits until the operations before this one have decided, and refuses a write that can't be a part of its transaction.
func (w *write) joins(ctx context.Context) error {
	op := w.operation(ctx)
	err := op.InTurn()
	switch {
	case op == nil || err != nil:
		return ofTransaction(err)
	case w.dryRun != op.DryRun:
		return registry.Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "an operation can't be a dry run by itself: dryRun is a parameter of the transaction")
	case w.Res.OneByOne():
		return ofTransaction(op.Sole(w.Plural))
	}
	return nil
}

// keep ends a write that stores nothing, because it's refused (verdict), leaves its object as it is, or is a dry run. As an operation it waits
// for the end of its transaction, in which the object has to be what it was judged by: again tells that it isn't. kept is the object, with the
// transaction's revision if an earlier operation has written it.
func (w *write) keep(ctx context.Context, old *kube.Object, c outcome, verdict error) (kept *kube.Object, again bool, err error) {
	op := w.operation(ctx)
	switch {
	case op == nil || verdict != nil:
		return old, false, verdict
	case w.dryRun && (c.remove || string(c.value) != string(old.Raw())):
		return old, false, ofTransaction(op.Assume(ctx, storage.Write{Key: old.Key, Value: c.value, Removed: c.remove}, old.Revision))
	case w.dryRun:
		return old, false, nil
	}
	before, err := pending(op, old.Key)
	switch {
	case err != nil:
		return old, false, err
	case before != nil: // it's written again, as it is, so that this operation decides again when the one before does
		rev, err := op.Update(ctx, old.Key, before.Raw(), before.Revision)
		old = kube.NewObject(old.Key, before.Raw(), rev)
		return old, errors.Is(err, storage.ErrConflict), ofTransaction(err)
	}
	err = op.Keep(ctx, old.Key, old.Revision, len(old.Raw()))
	return old, errors.Is(err, storage.ErrConflict), ofTransaction(err)
}

// inPending tells whether the object's namespace is written by an earlier operation of the same transaction, and so is there when the
// object is.
func (w *write) inPending(ctx context.Context) (bool, error) {
	op := w.operation(ctx)
	if op == nil || w.Namespace == "" {
		return false, nil
	}
	n := w.Res.Registry.Namespaces
	key, err := n.Res.Prefix.Key("", w.Namespace)
	if err != nil {
		return false, w.Fail(w.Namespace, err)
	}
	ns, err := pending(op, key)
	if ns != nil && ns.DeletionTimestamp != "" {
		err = terminating(w, w.Namespace)
	}
	return ns != nil, err
}
