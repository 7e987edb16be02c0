package transaction

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestWhatOperationsNeed: whatever operations put, keep and decide again, what is counted and put together for all of them is what a look at each of
// them says.
func TestWhatOperationsNeed(t *testing.T) {
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		key := func() string { return fmt.Sprint("k", rng.IntN(5)) }
		conditions := func() (all []storage.Condition) {
			for range rng.IntN(3) {
				all = append(all, storage.Condition{Key: key(), Revision: storage.Revision(rng.IntN(3))})
			}
			return all
		}
		r := &run{Transaction: Transaction{keys: map[string]*entry{}, needed: map[string]int{}}}
		for i := range 1 + rng.IntN(6) {
			o := &Operation{Index: i, of: &r.Transaction, turn: make(chan struct{}), waiting: true}
			close(o.turn)
			r.operations = append(r.operations, o)
		}
		for range 20 {
			o := r.operations[rng.IntN(len(r.operations))]
			switch rng.IntN(6) {
			case 0:
				r.concerned(conditions())
			case 1:
				r.mu.Lock()
				o.decideLocked(o.key, conditions())
				r.mu.Unlock()
			default:
				e := entry{value: []byte("v"), expected: storage.Revision(rng.IntN(3)), removed: rng.IntN(4) == 0}
				_ = o.put(context.Background(), key(), e, conditions(), rng.IntN(2) == 0) // many are refused
				if rng.IntN(2) == 0 {
					o.touches = append(o.touches, key())
				}
				if rng.IntN(3) == 0 {
					o.order = storage.Condition{Key: key(), Revision: 1}
				}
			}
			if got, want := r.batch(), slowBatch(r); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: the batch is %+v, want %+v", seed, got, want)
			}
			for i := range 5 {
				if key := fmt.Sprint("k", i); r.needed[key] != slowNeeded(r, key) {
					t.Fatalf("seed %d: %s is needed %d times, want %d", seed, key, r.needed[key], slowNeeded(r, key))
				}
			}
		}
	}
}

// slowBatch is batch without maps.
func slowBatch(r *run) storage.Batch {
	b := storage.Batch{Writes: []storage.Write{}, Conditions: []storage.Condition{}}
	for _, o := range r.operations {
		required := slices.Clone(o.required())
		if e := r.keys[o.key]; e != nil && e.by[0] == o {
			b.Writes = append(b.Writes, storage.Write{Key: o.key, Value: e.value, Removed: e.removed})
			required = append(required, storage.Condition{Key: o.key, Revision: e.expected})
		}
		for _, c := range required {
			if !slices.Contains(b.Conditions, c) {
				b.Conditions = append(b.Conditions, c)
			}
		}
		for _, key := range o.touches {
			if !slices.Contains(b.Touched, key) {
				b.Touched = append(b.Touched, key)
			}
		}
	}
	return b
}

func slowNeeded(r *run, key string) (n int) {
	for _, o := range r.operations {
		for _, c := range o.conditions {
			if o.key != "" && c.Key == key {
				n++
			}
		}
	}
	return n
}
