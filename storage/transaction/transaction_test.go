package transaction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

// script is what a store says to each commit in turn: the conditions that don't hold, or an error.
type script struct {
	broken  [][]storage.Condition
	err     error
	batches []storage.Batch
}

const committed = storage.Revision(100)

func (s *script) commit(_ context.Context, b storage.Batch) (storage.Revision, []storage.Condition, error) {
	s.batches = append(s.batches, b)
	if n := len(s.batches) - 1; n < len(s.broken) {
		return 0, s.broken[n], storage.ErrConditionFailed
	}
	return committed, nil, s.err
}

// writer is an operation that puts its own letter at the end of what its key has, as often as it's told to decide again.
func writer(t *testing.T, letter, key string, had storage.KeyValue, tries *int) transaction.Serve {
	return func(ctx context.Context, o *transaction.Operation) bool {
		for {
			*tries++
			old, err := o.Pending(key)
			if err != nil {
				return false
			}
			if old == nil {
				old = &had
			}
			rev, err := o.Update(ctx, key, []byte(string(old.Value)+letter), old.Revision)
			if errors.Is(err, storage.ErrConflict) {
				had.Revision++ // it has been written by somebody else
				continue
			}
			if err == nil && rev != committed {
				t.Errorf("%s is written at %d", letter, rev)
			}
			return err == nil
		}
	}
}

// TestDecidesAgain: who is told that somebody else was faster decides again, and so does who relied on it; nobody else does.
func TestDecidesAgain(t *testing.T) {
	var first, second, other, inside int
	creates := func(ctx context.Context, o *transaction.Operation) bool { // in what the first operation writes
		var conds []storage.Condition
		for {
			inside++
			if ns, _ := o.Pending("x"); ns == nil {
				conds = []storage.Condition{{Key: "x", Revision: 7}}
			}
			_, err := o.Create(ctx, "z", []byte("z"), conds...)
			if !errors.Is(err, storage.ErrConditionFailed) {
				return err == nil
			}
		}
	}
	s := &script{broken: [][]storage.Condition{{{Key: "x", Revision: 5}}}}
	out := transaction.Run(t.Context(), s.commit, []transaction.Serve{
		writer(t, "a", "x", storage.KeyValue{Revision: 5}, &first),
		writer(t, "b", "x", storage.KeyValue{Revision: 5}, &second),
		writer(t, "c", "y", storage.KeyValue{Revision: 3}, &other),
		creates,
	}, false)
	if out.Failed != -1 || out.Err != nil || out.Revision != committed {
		t.Fatalf("%+v", out)
	}
	if first != 2 || second != 2 || other != 1 || inside != 2 {
		t.Errorf("they decided %d, %d, %d and %d times", first, second, other, inside)
	}
	last := s.batches[1]
	want := []storage.Write{{Key: "x", Value: []byte("ab")}, {Key: "y", Value: []byte("c")}, {Key: "z", Value: []byte("z")}}
	if fmt.Sprint(last.Writes) != fmt.Sprint(want) || !slices.Contains(last.Conditions, storage.Condition{Key: "x", Revision: 6}) || slices.Contains(last.Conditions, storage.Condition{Key: "x", Revision: 5}) {
		t.Errorf("%+v", last)
	}
}

// TestAborted: when an operation fails, or the store does, those that wait are told, and none is left.
func TestAborted(t *testing.T) {
	full := errors.New("the disk is full")
	for name, tc := range map[string]struct {
		last   transaction.Serve
		store  *script
		failed int
		err    error
	}{
		"by an operation": {func(context.Context, *transaction.Operation) bool { return false }, &script{}, 1, nil},
		"by the store":    {func(context.Context, *transaction.Operation) bool { return true }, &script{err: full}, -1, full},
		"when it decides again": {func(ctx context.Context, o *transaction.Operation) bool {
			return o.Keep(ctx, "y", 1, 0) == nil
		}, &script{broken: [][]storage.Condition{{{Key: "y", Revision: 1}}}}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var told error
			waits := func(ctx context.Context, o *transaction.Operation) bool {
				_, told = o.Create(ctx, "x", nil)
				return told == nil
			}
			out := transaction.Run(t.Context(), tc.store.commit, []transaction.Serve{waits, tc.last}, false)
			if out.Failed != tc.failed || !errors.Is(out.Err, tc.err) || out.Revision != 0 || told == nil {
				t.Errorf("%+v; who waited was told %v", out, told)
			}
		})
	}
}

// TestContradictions: what can't be one write of a key, or one transaction, is refused, with the operation that it contradicts.
func TestContradictions(t *testing.T) {
	create := func(key string, conds ...storage.Condition) func(context.Context, *transaction.Operation) error {
		return func(ctx context.Context, o *transaction.Operation) error {
			_, err := o.Create(ctx, key, []byte("v"), conds...)
			return err
		}
	}
	remove := func(key string, expected storage.Revision) func(context.Context, *transaction.Operation) error {
		return func(ctx context.Context, o *transaction.Operation) error {
			_, err := o.Delete(ctx, key, expected)
			return err
		}
	}
	sole := func(_ context.Context, o *transaction.Operation) error { return o.Sole("definitions") }
	for name, tc := range map[string]struct {
		first, second func(context.Context, *transaction.Operation) error
		want          error
	}{
		"created twice":            {create("x"), create("x"), storage.ErrExists},
		"deleted after a create":   {create("x"), remove("x", 1), &transaction.Contradiction{}},
		"another version":          {remove("x", 5), remove("x", 5), storage.ErrConflict},
		"pending after a deletion": {remove("x", 5), func(_ context.Context, o *transaction.Operation) error { _, err := o.Pending("x"); return err }, &transaction.Contradiction{}},
		"a condition is written":   {create("x", storage.Condition{Key: "d", Revision: 4}), remove("d", 4), &transaction.Contradiction{}},
		"a written condition":      {remove("d", 4), create("x", storage.Condition{Key: "d", Revision: 4}), &transaction.Contradiction{}},
		"one of a kind":            {sole, sole, &transaction.Contradiction{}},
		"too large": {create("x"), func(ctx context.Context, o *transaction.Operation) error {
			return o.Keep(ctx, "y", 1, transaction.MaxBytes)
		}, storage.ErrTooLarge},
		"too large, a single value": {create("x"), func(ctx context.Context, o *transaction.Operation) error {
			_, err := o.Create(ctx, "y", make([]byte, transaction.MaxBytes+1))
			return err
		}, storage.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			var got error
			out := transaction.Run(t.Context(), (&script{}).commit, []transaction.Serve{
				func(ctx context.Context, o *transaction.Operation) bool { return tc.first(ctx, o) == nil },
				func(ctx context.Context, o *transaction.Operation) bool { got = tc.second(ctx, o); return got == nil },
			}, false)
			var c *transaction.Contradiction
			if _, contradiction := tc.want.(*transaction.Contradiction); out.Failed != 1 || contradiction && (!errors.As(got, &c) || c.By != 0) || !contradiction && !errors.Is(got, tc.want) {
				t.Errorf("%+v: %v", out, got)
			}
		})
	}
}
