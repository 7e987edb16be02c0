package controllers

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestTerms: what a process decides after another one was elected isn't done, and when it's elected again it begins with what
// there is then.
func TestTerms(t *testing.T) {
	r := newCollectorRig(t)
	c := New(Options{Registry: r.Registry.Door(), Cacher: r.cacher, On: Set{GarbageCollector: true}, Log: slog.New(slog.DiscardHandler)})
	term := func(ctx context.Context, holds func() bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		for news := c.reader.bell.wait(); !holds(); news = c.reader.bell.wait() {
			select {
			case <-news:
			case <-r.ctx.Done():
				t.Fatal("not in time")
			}
		}
	}
	owner := r.create("owner", nil)
	dependent := r.create("dependent", nil, owner.ref(false))
	if err := r.delete("owner", metav1.DeletePropagationBackground); err != nil {
		t.Fatal(err)
	}

	over := storage.WithFence(r.ctx, storage.Condition{Key: storage.Own + "nobody", Revision: 1})
	term(over, func() bool {
		left := c.garbage.pending(1)
		return len(left) == 1 && strings.Contains(left[0].Cause, storage.ErrFenced.Error())
	})
	if r.read(dependent.key) == nil {
		t.Fatal("it was deleted after the term")
	}
	if left := c.Left(); left > 0 {
		t.Errorf("between terms there are %d things to do", left)
	}
	at, err := r.cacher.Barrier(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	asked, cancel := context.WithTimeout(r.ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := c.Quiescent(asked, at); err == nil {
		t.Error("between terms it says that nothing is left to do")
	}
	for range 2 {
		term(r.ctx, func() bool { return r.read(dependent.key) == nil })
		other := r.create("other", nil)
		dependent = r.create("dependent", nil, other.ref(false))
		if err := r.delete("other", metav1.DeletePropagationBackground); err != nil {
			t.Fatal(err)
		}
	}
}
