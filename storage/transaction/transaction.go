package transaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// ErrAborted is what an operation is told that waits when another one has failed. Nothing was written.
var ErrAborted = errors.New("another operation of the transaction failed, so nothing of it is written")

// Contradiction is the error of an operation that can't follow another one on the same key.
type Contradiction struct {
	By  int // the place of the other one among the operations
	Why string
}

func (c *Contradiction) Error() string { return fmt.Sprintf("%s by operation %d", c.Why, c.By) }

// Transaction is what the operations of one have put together so far.
type Transaction struct {
	operations []*Operation // set before the first one begins

	mu     sync.Mutex        // guards all below, and what the operations say that it guards
	keys   map[string]*entry // what becomes of each key
	needed map[string]int    // how many of the operations that write have a condition on a key
	told   map[string][]any  // see Tell; by the operations' places
	bytes  int               // of the values, and of the objects that are kept as they are
	failed bool              // an operation has failed
}

// MaxBytes is how much the operations of a transaction may write, and keep as it is: what etcd takes in one request.
const MaxBytes = 3 << 19

// entry is what becomes of one key.
type entry struct {
	expected storage.Revision // of the key's last write
	value    []byte
	removed  bool
	by       []*Operation // who wrote it, in order
}

// Operation is one of those of a transaction. One goroutine uses it, but for what Run does.
type Operation struct {
	Index  int          // among the operations
	DryRun bool         // nothing is written at the end, so the operation mustn't wait
	waits  func()       // is called when the operation begins to wait; may be nil
	begins func() error // see WhenInTurn; may be nil

	of      *Transaction
	turn    chan struct{} // closed when all operations before have decided, or one has failed
	staged  chan struct{} // has an element when the operation waits
	answer  chan answer   // what it waits for
	done    chan struct{} // closed when it has ended
	ok      bool          // how; set before done is closed
	waiting bool          // Run's: it has to be answered

	// Guarded by of.mu.
	key        string // that it writes; "" for none
	creates    bool
	conditions []storage.Condition // under which it writes, besides the key's own
	touches    []string
	order      storage.Condition // that of what is written one by one
	kept       int               // bytes of an object that it keeps as it is
	relied     []string          // keys of which it has seen what is pending
	sole       string            // see Sole
}

// answer is what becomes of a transaction, or of one try to commit it.
type answer struct {
	rev storage.Revision
	err error
}

// operationKey is the key under which a context has an operation.
type operationKey struct{}

// Of returns the operation as which a request is made; nil for none.
func Of(ctx context.Context) *Operation {
	o, _ := ctx.Value(operationKey{}).(*Operation)
	return o
}

// BeforeWait has a function called whenever the operation begins to wait for the others. A nil operation never waits.
func (o *Operation) BeforeWait(call func()) {
	if o != nil {
		o.waits = call
	}
}

// WhenInTurn calls a function when it's the operation's turn: at once if it is, else in InTurn, which returns its error then. What is for those who
// decide, such as a seat, is taken so: one that is ahead must have nothing that those before it wait for. For a nil operation it's always its turn.
func (o *Operation) WhenInTurn(call func() error) error {
	if o != nil {
		select {
		case <-o.turn:
		default:
			o.begins = call
			return nil
		}
	}
	return call()
}

// InTurn waits until the operations before this one have decided, as does all that an operation does with the transaction. The error is
// ErrAborted if one of them has failed, or that of WhenInTurn's function. A nil operation never waits.
func (o *Operation) InTurn() error {
	if o == nil {
		return nil
	}
	<-o.turn // Run closes it soon after the context's end as well
	o.of.mu.Lock()
	failed := o.of.failed
	o.of.mu.Unlock()
	begins := o.begins
	if o.begins = nil; failed {
		return ErrAborted
	}
	if begins != nil {
		return begins()
	}
	return nil
}

// Key returns the key that the operation has written; "" for none.
func (o *Operation) Key() string {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	return o.key
}

// NewRevision stands for the revision of what a transaction writes, while it's pending. No key has it: etcd's first write has 2.
const NewRevision storage.Revision = 1

// Pending returns what earlier operations have put into a key; nil if none of them has written it. Its revision is what Update and Delete
// take as the expected one. The error is a Contradiction if they delete it: one transaction can't write such a key again.
func (o *Operation) Pending(key string) (*storage.KeyValue, error) {
	if o == nil {
		return nil, nil
	}
	if err := o.InTurn(); err != nil {
		return nil, err
	}
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	e := o.of.keys[key]
	switch {
	case e == nil || e.by[0] == o:
		return nil, nil
	case e.removed:
		return nil, &Contradiction{e.by[len(e.by)-1].Index, "the object is deleted"}
	}
	o.relied = append(o.relied, key)
	return &storage.KeyValue{Key: key, Value: e.value, Revision: NewRevision}, nil
}

// Sole claims something that only one operation of a transaction may be about. The error is a Contradiction.
func (o *Operation) Sole(what string) error {
	if err := o.InTurn(); err != nil {
		return err
	}
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	for _, other := range o.of.operations {
		if other != o && other.sole == what {
			return &Contradiction{other.Index, "a transaction can write one object of " + what + ", and another one is written"}
		}
	}
	o.sole = what
	return nil
}

// Tell leaves something about a subject for the operations after this one, in the place of what the operation has told of it before. It returns what
// those before this one have told, in order. It's for what a dry run doesn't write. The error is InTurn's. A nil operation hears nothing.
func (o *Operation) Tell(about string, what any) (before []any, err error) {
	if o == nil {
		return nil, nil
	}
	if err := o.InTurn(); err != nil {
		return nil, err
	}
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	all := o.of.told[about]
	if all == nil {
		all = make([]any, len(o.of.operations))
		o.of.told[about] = all
	}
	all[o.Index] = what
	return slices.DeleteFunc(slices.Clone(all[:o.Index]), func(what any) bool { return what == nil }), nil
}

// Create is storage.Store's, at the end of the transaction.
func (o *Operation) Create(ctx context.Context, key string, value []byte, conds ...storage.Condition) (storage.Revision, error) {
	return o.stage(ctx, key, entry{value: value}, conds, true)
}

// Update is storage.Store's, at the end of the transaction.
func (o *Operation) Update(ctx context.Context, key string, value []byte, expected storage.Revision, conds ...storage.Condition) (storage.Revision, error) {
	return o.stage(ctx, key, entry{value: value, expected: expected}, conds, false)
}

// Delete is storage.Store's, at the end of the transaction.
func (o *Operation) Delete(ctx context.Context, key string, expected storage.Revision) (storage.Revision, error) {
	return o.stage(ctx, key, entry{removed: true, expected: expected}, nil, false)
}

// Assume is what a dry run does: a write that nobody waits for, and that later operations find.
func (o *Operation) Assume(ctx context.Context, w storage.Write, expected storage.Revision, conds ...storage.Condition) error {
	return o.put(ctx, w.Key, entry{value: w.Value, removed: w.Removed, expected: expected}, conds, expected == 0)
}

// Keep writes nothing, and returns when the transaction is written. The key still has a revision then, 0 for a key that doesn't exist; if
// somebody else has written it, the error is ErrConflict, and the operation may look and call Keep again. size is that of the object, if
// the operation is answered with it.
func (o *Operation) Keep(ctx context.Context, key string, expected storage.Revision, size int) error {
	if err := o.InTurn(); err != nil {
		return err
	}
	o.of.mu.Lock()
	o.decideLocked(o.key, []storage.Condition{{Key: key, Revision: expected}})
	o.creates = false
	o.of.mu.Unlock()
	if err := o.Answers(size); err != nil {
		return err
	}
	_, err := o.wait(ctx)
	return err
}

// Answers counts the bytes of an object with which a deletion is answered, once. The error is storage.ErrTooLarge.
func (o *Operation) Answers(size int) error {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	err := o.of.growLocked(size - o.kept)
	if err == nil {
		o.kept = size
	}
	return err
}

// growLocked counts bytes, unless there are too many; mu must be held.
func (t *Transaction) growLocked(bytes int) error {
	if bytes > 0 && t.bytes+bytes > MaxBytes {
		return storage.ErrTooLarge
	}
	t.bytes += bytes
	return nil
}

// stage puts a write into the transaction, with the turn and the note that ctx has, and waits. Clients' writes have no fence and no premise here.
func (o *Operation) stage(ctx context.Context, key string, e entry, conds []storage.Condition, creates bool) (storage.Revision, error) {
	if err := o.put(ctx, key, e, conds, creates); err != nil {
		return 0, err
	}
	return o.wait(ctx)
}

func (o *Operation) put(ctx context.Context, key string, e entry, conds []storage.Condition, creates bool) error {
	if err := o.InTurn(); err != nil {
		return err
	}
	t, guards := o.of, storage.GuardsOf(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.needed[key] > 0 {
		by := slices.IndexFunc(t.operations, func(other *Operation) bool {
			return other.key != "" && slices.ContainsFunc(other.conditions, func(c storage.Condition) bool { return c.Key == key })
		})
		return &Contradiction{by, "what an object depends on is written, and the object is written"}
	}
	for _, c := range conds {
		if e := t.keys[c.Key]; e != nil && c.Key != key {
			return &Contradiction{e.by[0].Index, "what the object depends on is written"}
		}
	}
	there, before := t.keys[key], 0
	if there != nil {
		before = len(there.value)
	}
	switch {
	case there == nil:
	case creates && there.removed:
		return &Contradiction{there.by[len(there.by)-1].Index, "the object is deleted"}
	case creates:
		return storage.ErrExists
	case e.removed && there.expected == 0:
		return &Contradiction{there.by[0].Index, "the object is created"}
	case there.removed || e.expected != NewRevision:
		return storage.ErrConflict
	}
	if err := t.growLocked(len(e.value) - before); err != nil {
		return err
	}
	if there == nil {
		e.by = []*Operation{o}
		t.keys[key] = &e
	} else {
		there.value, there.removed = e.value, e.removed
		there.by = append(there.by, o)
	}
	o.decideLocked(key, conds)
	o.creates = creates
	o.order, o.touches = guards.Turn, nil
	if guards.TakesTurn {
		o.touches = append(o.touches, guards.Turn.Key)
	}
	if guards.Note != "" {
		o.touches = append(o.touches, guards.Note)
	}
	return nil
}

// decideLocked says what the operation writes, "" for nothing, and under which conditions; of.mu must be held.
func (o *Operation) decideLocked(key string, conds []storage.Condition) {
	count := func(by int) {
		for _, c := range o.conditions {
			o.of.needed[c.Key] += by
		}
	}
	if o.key != "" {
		count(-1)
	}
	if o.key, o.conditions = key, conds; key != "" {
		count(1)
	}
}

// wait tells Run that the operation has decided, and waits for what becomes of it.
func (o *Operation) wait(ctx context.Context) (storage.Revision, error) {
	if o.waits != nil {
		o.waits()
	}
	o.staged <- struct{}{}
	a := <-o.answer // Run answers whoever waits, soon after the context's end as well
	if a.err == nil {
		return a.rev, nil
	}
	if err := ctx.Err(); err != nil && errors.Is(a.err, ErrAborted) {
		return 0, err
	}
	return 0, a.err
}
