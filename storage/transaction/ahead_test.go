package transaction_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

// TestAhead: operations begin before those in front of them have decided, a few at a time. What they do with the transaction waits for that, so it
// comes in order. If one fails, those that have begun are told so, and no other begins.
func TestAhead(t *testing.T) {
	for name, fails := range map[string]bool{"all go well": false, "the first one fails": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begun, inTurn, told atomic.Int32
				goOn := make(chan struct{}) // for the first one
				serves := []transaction.Serve{func(ctx context.Context, o *transaction.Operation) bool {
					begun.Add(1)
					<-goOn
					if fails {
						return false
					}
					_, err := o.Create(ctx, "0", []byte("0"))
					return err == nil
				}}
				for i := 1; i < 10; i++ {
					key := string(rune('0' + i))
					serves = append(serves, func(ctx context.Context, o *transaction.Operation) bool {
						begun.Add(1)
						if err := o.WhenInTurn(func() error { inTurn.Add(1); return nil }); err != nil {
							t.Error(err)
						}
						if err := o.InTurn(); err != nil {
							if errors.Is(err, transaction.ErrAborted) {
								told.Add(1)
							}
							return false
						}
						_, err := o.Create(ctx, key, []byte(key))
						return err == nil
					})
				}
				s := &script{}
				done := make(chan transaction.Outcome)
				go func() { done <- transaction.Run(t.Context(), s.commit, serves, false) }()
				synctest.Wait()
				before := begun.Load()
				if before < 2 || before > 8 || inTurn.Load() > 0 {
					t.Errorf("%d have begun before the first one has decided, and for %d it's their turn", before, inTurn.Load())
				}
				close(goOn)
				out := <-done
				if want := map[bool]int32{false: 9}[fails]; inTurn.Load() != want {
					t.Errorf("it was the turn of %d, want %d", inTurn.Load(), want)
				}
				if fails {
					if out.Failed != 0 || told.Load() != before-1 || begun.Load() != before || len(s.batches) > 0 {
						t.Errorf("%+v: %d have begun, %d of them were told", out, begun.Load(), told.Load())
					}
					return
				}
				if out.Failed != -1 || out.Revision != committed || !slices.IsSortedFunc(s.batches[0].Writes, func(a, b storage.Write) int { return int(a.Key[0]) - int(b.Key[0]) }) || len(s.batches[0].Writes) != 10 {
					t.Errorf("%+v: %+v", out, s.batches)
				}
			})
		})
	}
}
