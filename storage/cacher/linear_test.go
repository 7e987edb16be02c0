package cacher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// operation on one key: what a client did, and what it was told.
type operation struct {
	key      string
	kind     string // "get", "list" or "write"
	expected int    // for a write: the value it replaces; 0 creates
	value    int    // for a write: the new value
}

type outcome struct {
	value   int // for a read; 0 for absent
	applied bool
}

// register is the sequential model: a cell that compares and swaps. History is checked per key.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(operation).key
			byKey[k] = append(byKey[k], op)
		}
		var parts [][]porcupine.Operation
		for _, ops := range byKey {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		cell, op, out := state.(int), input.(operation), output.(outcome)
		if op.kind != "write" {
			return out.value == cell, cell
		}
		if out.applied {
			return cell == op.expected, op.value
		}
		return cell != op.expected, cell
	},
}

// TestLinearizable: reads from memory behind a barrier, of one key and of all, and writes that compare and
// swap from what the cache says, are linearizable together.
func TestLinearizable(t *testing.T) {
	const clients, operations, keys = 6, 120, 3
	r := newRig(t, smallBounds)
	res := r.cacher.Resource(widgets)
	begin := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	record := func(client int, op operation, call time.Time, out outcome) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: op, Call: call.Sub(begin).Nanoseconds(), Output: out, Return: time.Since(begin).Nanoseconds()})
	}
	var wg sync.WaitGroup
	for id := range clients {
		rng := rand.New(rand.NewPCG(uint64(id), 7))
		wg.Go(func() {
			for n := range operations {
				key := fmt.Sprintf("%sns1/w%d", widgets, rng.IntN(keys))
				call := time.Now()
				switch rng.IntN(4) {
				case 0:
					if _, err := r.cacher.Barrier(t.Context()); err != nil {
						t.Error(err)
						return
					}
					record(id, operation{key: key, kind: "get"}, call, outcome{value: valueOf(res.Get(key))})
				case 1:
					if _, err := r.cacher.Barrier(t.Context()); err != nil {
						t.Error(err)
						return
					}
					all := map[string]int{}
					for o := range res.Snapshot().All(string(widgets)) {
						all[o.Key] = valueOf(o)
					}
					for k := range keys {
						key := fmt.Sprintf("%sns1/w%d", widgets, k)
						record(id, operation{key: key, kind: "list"}, call, outcome{value: all[key]})
					}
				default:
					op, out, err := swap(t.Context(), r.store, res, key, 1+id*operations+n)
					if err != nil {
						t.Error(err)
						return
					}
					record(id, op, call, out)
				}
			}
		})
	}
	wg.Wait()
	if result := porcupine.CheckOperationsTimeout(register, history, time.Minute); result != porcupine.Ok {
		t.Errorf("the history of %d operations is %s", len(history), result)
	}
}

// swap writes a value over what the cache says, which may be old: then it's refused.
func swap(ctx context.Context, store storage.Store, res *Resource, key string, value int) (operation, outcome, error) {
	op := operation{key: key, kind: "write", value: value}
	raw := []byte((&thing{key: key, tier: "front", color: "red", n: value}).json(0))
	var err error
	if was := res.Get(key); was == nil {
		_, err = store.Create(ctx, key, raw)
	} else {
		op.expected = valueOf(was)
		_, err = store.Update(ctx, key, raw, was.Revision)
	}
	if errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrExists) {
		return op, outcome{}, nil
	}
	return op, outcome{applied: true}, err
}

func valueOf(o *kube.Object) (n int) {
	if o != nil {
		fmt.Sscan(o.Field("spec.n"), &n)
	}
	return n
}
