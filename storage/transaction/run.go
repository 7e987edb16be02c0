package transaction

import (
	"context"
	"errors"
	"slices"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Serve does one operation with a context of its own, and tells whether it went well. It's called in a goroutine of its own, and mustn't
// panic.
type Serve func(ctx context.Context, o *Operation) bool

// Outcome is what became of a transaction.
type Outcome struct {
	Revision storage.Revision // at which it's written; 0 if nothing is
	Failed   int              // the place of the operation that failed; -1 for none
	Err      error            // why a transaction isn't written of which no operation failed: of the store's
}

// ahead is how many operations have begun besides the one whose turn it is: as many as are read meanwhile on two or three processors.
const ahead = 3

// Run does the operations, which decide in order, and writes what they decide as one. commit is the Store's. With dryRun nothing is written, and the
// operations mustn't wait. When Run returns, all operations have ended.
func Run(ctx context.Context, commit Commit, operations []Serve, dryRun bool) Outcome {
	r := &run{ctx: ctx, commit: commit, Transaction: Transaction{keys: map[string]*entry{}, needed: map[string]int{}, told: map[string][]any{}}}
	for i := range operations {
		r.operations = append(r.operations, &Operation{
			Index: i, DryRun: dryRun, of: &r.Transaction, staged: make(chan struct{}, 1), answer: make(chan answer, 1), turn: make(chan struct{}), done: make(chan struct{}),
		})
	}
	for i, o := range r.operations {
		for r.begun < min(i+1+ahead, len(operations)) {
			r.begin(operations[r.begun])
		}
		r.giveTurn()
		if !r.next(o) {
			return r.abort(i)
		}
	}
	if dryRun {
		return Outcome{Failed: -1}
	}
	return r.finish()
}

// Commit is that of storage.Store.
type Commit func(ctx context.Context, b storage.Batch) (storage.Revision, []storage.Condition, error)

// run is a transaction that is being made.
type run struct {
	Transaction
	ctx    context.Context
	commit Commit
	begun  int // how many operations have begun
	turns  int // how many have had their turn
}

// begin begins the next operation.
func (r *run) begin(serve Serve) {
	o := r.operations[r.begun]
	r.begun++
	go func() {
		defer close(o.done)
		o.ok = serve(context.WithValue(r.ctx, operationKey{}, o), o)
	}()
}

// giveTurn lets the next operation decide.
func (r *run) giveTurn() {
	close(r.operations[r.turns].turn)
	r.turns++
}

// next waits until an operation has decided. It returns false if the operation has failed.
func (r *run) next(o *Operation) bool {
	select {
	case <-o.staged:
		o.waiting = true
		return true
	case <-o.done:
		return o.ok
	}
}

// goOn lets an operation go on that waits.
func (o *Operation) goOn(a answer) {
	if o.waiting {
		o.waiting = false
		o.answer <- a
	}
}

// end lets all operations go on, and waits until they have ended. After a success they go on side by side.
func (r *run) end(a answer) {
	for _, o := range r.operations[:r.begun] {
		if a.err == nil {
			o.goOn(a)
		}
	}
	for _, o := range r.operations[:r.begun] {
		o.goOn(a)
		for ended := false; !ended; {
			select {
			case <-o.staged: // it has tried again
				o.waiting = true
				o.goOn(answer{err: ErrAborted})
			case <-o.done:
				ended = true
			}
		}
	}
}

func (r *run) abort(failed int) Outcome {
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
	for r.turns < r.begun {
		r.giveTurn()
	}
	r.end(answer{err: ErrAborted})
	return Outcome{Failed: failed}
}

// finish commits what the operations have decided. Who is told that somebody else has written first decides again, and then it's tried again.
func (r *run) finish() Outcome {
	for {
		rev, broken, err := r.commit(r.ctx, r.batch())
		switch {
		case err == nil:
			r.end(answer{rev: rev})
			return Outcome{Revision: rev, Failed: -1}
		case !errors.Is(err, storage.ErrConditionFailed):
			r.end(answer{err: err})
			return Outcome{Failed: -1, Err: err}
		}
		for _, told := range r.concerned(broken) {
			told.goOn(answer{err: told.err})
			if !r.next(told.Operation) {
				return r.abort(told.Index)
			}
		}
	}
}

// batch is what is to be written. Where two operations require different things of one key, the commit's answer tells which of them is right.
func (r *run) batch() storage.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := storage.Batch{Writes: make([]storage.Write, 0, len(r.operations)), Conditions: make([]storage.Condition, 0, len(r.operations)+1)}
	required, touched := map[storage.Condition]bool{}, map[string]bool{}
	require := func(c storage.Condition) {
		if !required[c] {
			required[c] = true
			b.Conditions = append(b.Conditions, c)
		}
	}
	for _, o := range r.operations {
		if !o.waiting {
			continue
		}
		for _, c := range o.required() {
			require(c)
		}
		if e := r.keys[o.key]; e != nil && e.by[0] == o {
			b.Writes = append(b.Writes, storage.Write{Key: o.key, Value: e.value, Removed: e.removed})
			require(storage.Condition{Key: o.key, Revision: e.expected})
		}
		for _, key := range o.touches {
			if !touched[key] {
				touched[key] = true
				b.Touched = append(b.Touched, key)
			}
		}
	}
	return b
}

// required are an operation's conditions besides that of its own key.
func (o *Operation) required() []storage.Condition {
	if o.order.Key == "" {
		return o.conditions
	}
	return append(slices.Clip(o.conditions), o.order)
}

// refused is an operation, and what it's told that lets it decide again.
type refused struct {
	*Operation
	err error
}

// concerned are the operations that decide again, in order: those with a broken condition, and all of a key that one of them writes, because
// each of them begins with what the one before it has put there. What they have put there is taken out.
func (r *run) concerned(broken []storage.Condition) (all []refused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := map[string]bool{} // keys of which what is pending goes
	for _, o := range r.operations {
		if !o.waiting {
			continue
		}
		e, of := r.keys[o.key], []*Operation{o}
		if e != nil {
			of = e.by
		}
		own := e != nil && slices.Contains(broken, storage.Condition{Key: o.key, Revision: e.expected})
		relied := slices.ContainsFunc(o.relied, func(key string) bool { return told[key] })
		if own || relied || slices.ContainsFunc(of, func(o *Operation) bool { return o.requires(broken) }) {
			all = append(all, refused{o, o.refusal(own, of[0] == o, broken)})
			told[o.key] = true
		}
	}
	for _, each := range all {
		if e := r.keys[each.key]; e != nil {
			r.bytes -= len(e.value)
			delete(r.keys, each.key)
		}
		each.decideLocked("", nil)
		each.creates, each.touches, each.order, each.relied = false, nil, storage.Condition{}, nil
	}
	return all
}

// requires tells whether one of the operation's conditions, besides that of its key, is among the broken ones.
func (o *Operation) requires(broken []storage.Condition) bool {
	return slices.ContainsFunc(o.required(), func(c storage.Condition) bool { return slices.Contains(broken, c) })
}

// refusal is what an operation is told that decides again, in the words of a Store. own tells that its key isn't as it expects, first that no
// earlier operation writes the key.
func (o *Operation) refusal(own, first bool, broken []storage.Condition) error {
	switch {
	case o.order.Key != "" && slices.Contains(broken, o.order):
		return storage.ErrOutOfTurn
	case o.creates && own:
		return storage.ErrExists
	case o.creates, o.key != "" && first && !own && o.requires(broken):
		return storage.ErrConditionFailed
	case o.requires(broken): // it decides again, and goes by what there is now
		return errors.Join(storage.ErrConflict, storage.ErrConditionFailed)
	}
	return storage.ErrConflict
}
