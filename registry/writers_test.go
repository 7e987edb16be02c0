package registry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// A place at the front isn't waited for longer than maxQueueWait, and what was left by others is passed on.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue writers
		left := kube.NewObject("a", []byte("{}"), 7)
		_, end, err := queue.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := queue.Take(gone, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who gave up got %v", err)
		}
		begin := time.Now()
		last, impatient, err := queue.Take(t.Context(), "a")
		if waited := time.Since(begin); err != nil || last != nil || waited != maxQueueWait {
			t.Errorf("it goes on after %v with %v, %v", waited, last, err)
		}
		impatient(kube.NewObject("a", []byte("{}"), 8))
		done := make(chan struct{})
		go func() {
			defer close(done)
			last, end, err := queue.Take(t.Context(), "a")
			if err != nil || last != left {
				t.Errorf("the next has %v, %v", last, err)
			}
			end(nil)
		}()
		synctest.Wait()
		if waiting, lapsed := queue.waiting.Load(), queue.lapsed.Load(); waiting != 1 || lapsed != 1 {
			t.Errorf("%d writers are counted as waiting, and %d as having gone on; both should be 1", waiting, lapsed)
		}
		end(left)
		<-done
		if len(queue.queues) != 0 || queue.waiting.Load() != 0 {
			t.Errorf("queues are left: %v, with %d writers", queue.queues, queue.waiting.Load())
		}
	})
}
