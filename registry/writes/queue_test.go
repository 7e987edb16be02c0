package writes

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

const mergePatch = "application/merge-patch+json"

// Writers of one object wait for each other instead of trying in vain: each is tried once, and none is lost. The first
// one writes when all the others wait. So the queue is never empty in between, and no writer depends on how soon the
// cache has the write before.
func TestWritersOfOneObject(t *testing.T) {
	const writers = 48
	var tries atomic.Int64
	all := make(chan struct{})
	hook := judging[unstructured.Unstructured](func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) error {
		if r.Operation == registry.Update {
			tries.Add(1)
			<-all
		}
		return nil
	})
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{hook}})
	w := s.widgets()
	s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"w%d":"x"}}}`, i)
			if _, err := w.Patch(s.ctx, "default", "a", "", mergePatch, nil, patch); err != nil {
				t.Error(err)
			}
		})
	}
	for s.Usage().WaitingWrites < writers-1 && s.ctx.Err() == nil {
		runtime.Gosched()
	}
	close(all)
	writing.Wait()
	got := s.ok(w.Get(s.ctx, "default", "a", "", nil))
	if n := len(got.get("metadata.annotations").(map[string]any)); n != writers {
		t.Errorf("%d writes of %d are there", n, writers)
	}
	// On a machine so slow that a write waits for maxQueueWait, that write and another get in each other's way.
	if n, lapsed := tries.Load(), s.Usage().LapsedWrites; n != writers && lapsed == 0 {
		t.Errorf("%d writes took %d tries", writers, n)
	}
	if n := s.Usage().WriteQueues; n != 0 {
		t.Errorf("%d queues are left", n)
	}
}

// A writer that gives up leaves the queue, and other objects don't wait.
func TestWaitingForATurn(t *testing.T) {
	inside, open, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{judging[unstructured.Unstructured](func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) error {
		if r.Operation == registry.Update && strings.Contains(fmt.Sprint(r.Object.GetAnnotations()), "slow") {
			once.Do(func() {
				close(inside)
				<-open
			})
		}
		return nil
	})}})
	w := s.widgets()
	for _, name := range []string{"a", "b"} {
		s.ok(w.Create(s.ctx, "default", nil, widget(name, "")))
	}
	patch := func(ctx context.Context, name, value string) error {
		_, err := w.Patch(ctx, "default", name, "", mergePatch, nil, []byte(`{"metadata":{"annotations":{"`+value+`":"x"}}}`))
		return err
	}
	var slow, next sync.WaitGroup
	slow.Go(func() {
		if err := patch(s.ctx, "a", "slow"); err != nil {
			t.Error(err)
		}
	})
	<-inside
	short, cancel := context.WithCancel(s.ctx)
	cancel()
	wantStatus(t, patch(short, "a", "gone"), 504, metav1.StatusReasonTimeout)
	next.Go(func() {
		if err := patch(s.ctx, "a", "next"); err != nil {
			t.Error(err)
		}
	})
	if err := patch(s.ctx, "b", "other"); err != nil {
		t.Error(err)
	}
	if _, err := w.Patch(s.ctx, "default", "a", "", mergePatch, params("dryRun=All"), []byte(`{"metadata":{"annotations":{"dry":"x"}}}`)); err != nil {
		t.Error(err)
	}
	close(open)
	slow.Wait()
	next.Wait()
	if got := fmt.Sprint(s.ok(w.Get(s.ctx, "default", "a", "", nil)).get("metadata.annotations")); got != "map[next:x slow:x]" {
		t.Errorf("in the end there are %s", got)
	}
}
