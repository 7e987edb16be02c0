package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// TestChain: what is left to do about owners that wait for each other in a line is worked out in one pass. If each owner went
// down the line again, this would take hours.
func TestChain(t *testing.T) {
	const length = 200_000
	for _, c := range []struct {
		name string
		leaf nodeState // of the last one, whose end the others wait for
		left int
	}{
		{"others hold the last one", nodeDeleting, 0},
		{"the last one is left alone", nodeUnproven, 0},
		{"the last one is to be deleted", 0, length - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := New(Options{Log: slog.New(slog.DiscardHandler), On: Set{}})
			gc := newCollector(g)
			gc.complete()
			k := gc.knowledge.Load()
			var owner *node
			for i := range length {
				n := k.graph.ensure(uidOf(testUID(i)))
				n.nodeState = nodeDeleting | nodeForeground
				if i == length-1 {
					n.nodeState = c.leaf
				} else {
					k.waiting[n] = true
				}
				if owner != nil {
					k.graph.link(n, owner, edgeBlocks|edgeValid)
				}
				owner = n
			}
			if left := len(k.unfinishedLocked()); left != c.left || gc.idle() != (left == 0) {
				t.Errorf("%d owners have something left to do, want %d; idle: %v", left, c.left, gc.idle())
			}
			if n := len(owner.first.owner.circle()); n > 0 {
				t.Errorf("%d wait in a circle", n)
			}
		})
	}
}

// TestUnfinishedCircle: owners that wait for each other in a circle aren't held by others, and neither is who waits for them.
func TestUnfinishedCircle(t *testing.T) {
	gc := newCollector(New(Options{Log: slog.New(slog.DiscardHandler), On: Set{}}))
	k := gc.knowledge.Load()
	link := func(dependent, owner string) {
		for _, name := range []string{dependent, owner} {
			n := k.graph.ensure(uidOf(name))
			n.nodeState = nodeDeleting | nodeForeground
			k.waiting[n] = true
		}
		k.graph.link(k.graph.nodes[uidOf(dependent)], k.graph.nodes[uidOf(owner)], edgeBlocks|edgeValid)
	}
	link("a", "b")
	link("b", "a")
	link("a", "above")
	link("leaf", "alone") // the leaf waits for nothing: others hold it
	if left := len(k.unfinishedLocked()); left != 3 {
		t.Errorf("%d are unfinished, want a, b and above", left)
	}
}

// TestBeganAnew: a worker that decides while the reader begins with the state again decides by what was whole when it began,
// and those that begin meanwhile wait: an owner isn't let go whose dependents haven't been read yet.
func TestBeganAnew(t *testing.T) {
	r := newCollectorRig(t)
	c := r.collector()
	owner := r.create("owner", nil)
	dependent := r.create("dependent", nil, owner.ref(false))
	if err := r.delete("owner", metav1.DeletePropagationOrphan); err != nil {
		t.Fatal(err)
	}
	later := r.create("later", []string{"x/y"}) // nobody's
	if err := r.delete("later", metav1.DeletePropagationBackground); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cacher.Barrier(r.ctx); err != nil {
		t.Fatal(err)
	}
	tell := func(o thing) {
		c.observe(&cacher.Event{Prefix: r.things.Prefix(), Cur: r.things.Cache().Get(o.key)})
	}
	c.begin()
	tell(owner)
	tell(dependent)
	c.complete()
	s := subjectOf(r.Door().Served(), c.knowledge.Load(), owner.key) // a worker has begun
	c.begin()                                                        // the reader fell off the tape
	tell(later)                                                      // which the state has before the owner and its dependent
	if waits, _ := s.known.waitsFor(s); !waits {
		t.Error("the worker that has begun lets the owner go, and it has a dependent")
	}
	if err := c.work(r.ctx, r.Door().Served(), owner.key); !errors.Is(err, errIncomplete) {
		t.Errorf("a worker that begins while the state is read says %v, want %v", err, errIncomplete)
	}
	if r.read(owner.key) == nil {
		t.Error("the owner is gone")
	}
}

// TestAfterTerm: a process that has led reports nothing to do and keeps nothing, whatever falls due afterwards.
func TestAfterTerm(t *testing.T) {
	r := newCollectorRig(t)
	on, err := ParseSet("all")
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Registry: r.Registry.Door(), Cacher: r.cacher, On: on, Log: slog.New(slog.DiscardHandler)})
	for i := range 20 {
		body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"deadline-%d","annotations":{%q:"1h"}}}`, i, kube.TTLAnnotation)
		if _, err := writes.Of(r.things).Create(r.ctx, &registry.Request{Target: registry.Target{Namespace: "default"}, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	a := r.create("a", nil)
	r.create("b", []string{"x/y"}, a.ref(true))
	if err := r.delete("b", metav1.DeletePropagationBackground); err != nil {
		t.Fatal(err)
	}
	for range 2 { // terms
		ctx, cancel := context.WithCancel(r.ctx)
		var running sync.WaitGroup
		running.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		if report, err := c.Quiescent(r.ctx, 0); err != nil || len(report.Held) != 1 || report.Held[0].Name != "b" {
			t.Errorf("during the term: %+v, %v", report, err)
		}
		if u := c.Usage(); u.OwnedObjects != 1 {
			t.Errorf("during the term: %+v", u)
		}
		cancel()
		running.Wait()
		x := c.all[len(c.all)-1].(*expiry)
		if k := c.garbage.knowledge.Load(); c.Left() > 0 || c.Usage() != (Usage{}) || len(k.graph.nodes)+len(k.waiting) > 0 ||
			len(x.deadlines.known)+len(x.deadlines.order)+len(c.reader.deleting) > 0 || len(c.served().Groups) > 0 {
			t.Errorf("after the term: %d left, %+v, %d nodes, %d deadlines", c.Left(), c.Usage(), len(k.graph.nodes), len(x.deadlines.known))
		}
	}
}

// TestRemovalsCondition: what decides about a deletion is compared in its transaction, and nothing else is: an object that was
// written meanwhile goes all the same, one that has got another owner stays.
func TestRemovalsCondition(t *testing.T) {
	r := newCollectorRig(t)
	for _, c := range []struct {
		name   string
		change func(m *metav1.ObjectMeta)
		want   error
	}{
		{"nothing", func(*metav1.ObjectMeta) {}, nil},
		{"a label", func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b"} }, nil},
		{"somebody else's finalizer", func(m *metav1.ObjectMeta) { m.Finalizers = append(m.Finalizers, "x/y") }, nil},
		{"another owner", func(m *metav1.ObjectMeta) {
			m.OwnerReferences = append(m.OwnerReferences, thing{name: "other", uid: "u"}.ref(false))
		}, errMoved},
		{"no owner", func(m *metav1.ObjectMeta) { m.OwnerReferences = nil }, errMoved},
		{"what is to become of its dependents", func(m *metav1.ObjectMeta) { m.Finalizers = append(m.Finalizers, metav1.FinalizerOrphanDependents) }, errMoved},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := r.collector()
			o := r.create("o", nil, thing{name: "none", uid: "none"}.ref(false))
			if _, err := r.cacher.Barrier(r.ctx); err != nil {
				t.Fatal(err)
			}
			s := subjectOf(r.Door().Served(), g.knowledge.Load(), o.key)
			if _, err := writes.Of(r.things).Amend(r.ctx, "default", "o", types.UID(o.uid), func(m *metav1.ObjectMeta) error {
				c.change(m)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := g.remove(r.ctx, s, metav1.DeletePropagationBackground); !errors.Is(err, c.want) {
				t.Errorf("its removal says %v, want %v", err, c.want)
			}
			if o := r.read(o.key); (c.want == nil) != (o == nil || beingDeleted(o)) {
				t.Errorf("its removal said %v, and it's deleted: %v", c.want, o == nil)
			}
			if _, err := writes.Of(r.things).Amend(r.ctx, "default", "o", types.UID(o.uid), func(m *metav1.ObjectMeta) error { m.Finalizers = nil; return nil }); unlessGone(err) != nil {
				t.Error(err)
			}
			if err := r.delete("o", metav1.DeletePropagationBackground); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPanickingWorker: a panic about one key is that key's failure. It's tried again, and holds up no other.
func TestPanickingWorker(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan string, 1)
	tries := 0
	q := queue[string]{log: slog.New(slog.DiscardHandler), bell: new(bell), work: func(_ context.Context, k string) error {
		if k == "bad" {
			if tries++; tries < 3 {
				panic("bad")
			}
		}
		done <- k
		return nil
	}}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { q.run(ctx) })
	q.add("bad")
	q.add("good")
	got := map[string]bool{}
	for range 2 {
		select {
		case k := <-done:
			got[k] = true
		case <-ctx.Done():
			t.Fatalf("only %v were done", got)
		}
	}
}
