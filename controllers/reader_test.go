package controllers

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// brake is a controller that can stop the reader.
type brake struct {
	mu     sync.Mutex // held by the test while the reader must not go on
	begun  atomic.Int64
	states atomic.Int64 // objects that came as state
}

func (b *brake) begin() { b.begun.Add(1) }
func (b *brake) observe(e *cacher.Event) {
	if e.Revision == 0 {
		b.states.Add(1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
}
func (b *brake) complete()               {}
func (b *brake) forget()                 {}
func (b *brake) run(ctx context.Context) { <-ctx.Done() }
func (b *brake) idle() bool              { return true }
func (b *brake) pending(int) []Pending   { return nil }

// TestReaderFallsBehind: while the reader stands still, so much is written that the logs drop what it hasn't read. An
// owner and a namespace go in that time. The controllers are told the whole state then, and nothing is forgotten: not the
// dependents of what they know was there, nor the namespace, nor the end of what was held before.
func TestReaderFallsBehind(t *testing.T) {
	r := newCollectorRig(t)
	on, err := ParseSet("all")
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Registry: r.Registry.Door(), Cacher: r.cacher, On: on, Log: slog.New(slog.DiscardHandler)})
	b := &brake{}
	c.add(b)
	ctx, stop := context.WithCancel(r.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()

	namespaces := r.at("", "namespaces")
	must := func(_ registry.Result, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(writes.Of(namespaces).Create(r.ctx, &registry.Request{Body: []byte(`{"metadata":{"name":"shop"}}`)}))
	must(writes.Of(r.things).Create(r.ctx, &registry.Request{Target: registry.Target{Namespace: "shop"}, Body: []byte(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)}))
	owner := r.create("owner", nil)
	dependent := r.create("dependent", nil, owner.ref(false))
	held := r.create("held", []string{"example.com/x"})
	if err := r.delete("held", metav1.DeletePropagationBackground); err != nil {
		t.Fatal(err)
	}
	report, err := c.Quiescent(r.ctx, 0)
	if err != nil || len(report.Held) != 1 || report.Held[0].Name != "held" {
		t.Fatalf("before: %+v, %v", report, err)
	}

	b.mu.Lock()
	must(writes.Of(r.things).Patch(r.ctx, &registry.Request{Target: registry.Target{Namespace: "default", Name: "held"}, PatchType: "application/merge-patch+json", Body: []byte(`{"metadata":{"finalizers":null}}`)}))
	if err := r.delete("owner", metav1.DeletePropagationBackground); err != nil {
		t.Fatal(err)
	}
	must(writes.Of(namespaces).Delete(r.ctx, &registry.Request{Target: registry.Target{Name: "shop"}}))
	key := string(r.things.Prefix()) + "default/large"
	rev, err := r.store.Create(r.ctx, key, []byte("{}"))
	for range 40 { // 40 MiB: more than a log keeps
		if err == nil {
			rev, err = r.store.Update(r.ctx, key, []byte(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"large","namespace":"default","uid":"`+strings.Repeat("x", 1<<20)+`"}}`), rev)
		}
	}
	if err == nil {
		err = r.cacher.WaitFor(r.ctx, rev) // else the reader could read along with a slow feed
	}
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Unlock()

	report, err = c.Quiescent(r.ctx, 0)
	if err != nil || len(report.Held) != 0 {
		t.Errorf("afterwards: %+v, %v", report, err)
	}
	if n := b.begun.Load(); n < 2 {
		t.Errorf("the reader began %d times: it hasn't fallen behind", n)
	}
	for _, key := range []string{dependent.key, held.key, string(namespacesPrefix) + "shop", string(r.things.Prefix()) + "shop/a"} {
		if o := r.read(key); o != nil {
			t.Errorf("%s is there: %s", key, o.Raw())
		}
	}
}
