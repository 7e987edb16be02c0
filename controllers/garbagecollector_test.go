package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// collectorRig is a registry with a kind Thing, and no controllers.
type collectorRig struct {
	t      testing.TB
	ctx    context.Context
	store  storage.Store
	cacher *cacher.Cacher
	*registry.Registry
	things *registry.Endpoint
}

func newCollectorRig(t testing.TB) *collectorRig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, _ := storagetest.Embedded(t)
	r := &collectorRig{t: t, store: store, cacher: cacher.New(store, cacher.Options{Log: log})}
	r.Registry = registry.New(registry.Options{Store: store, Cacher: r.cacher, Log: log})
	writes.InitialNamespaces(r.Registry)
	running, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, run := range []func(context.Context) error{r.cacher.Run, r.Run} {
		all.Go(func() {
			if err := run(running); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
	var done context.CancelFunc
	r.ctx, done = context.WithTimeout(running, 2*time.Minute)
	t.Cleanup(done)
	select {
	case <-r.Ready():
	case <-r.ctx.Done():
		t.Fatal("the registry isn't ready")
	}
	definitions := r.at("apiextensions.k8s.io", "customresourcedefinitions")
	if _, err := writes.Of(definitions).Create(r.ctx, &registry.Request{Body: []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"kind":"Thing","plural":"things"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)}); err != nil {
		t.Fatal(err)
	}
	r.things = r.at("example.com", "things")
	return r
}

func (r *collectorRig) at(group, plural string) *registry.Endpoint {
	r.t.Helper()
	e, err := r.Lookup(r.ctx, runtimeschema.GroupVersionResource{Group: group, Version: "v1", Resource: plural})
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// collector returns a garbage collector that a test tells what happens. It has no reader.
func (r *collectorRig) collector() *collector {
	c := New(Options{Registry: r.Registry.Door(), Cacher: r.cacher, On: Set{GarbageCollector: true}, Log: slog.New(slog.DiscardHandler)})
	c.reader.begin()
	return c.garbage
}

// thing is an object that a test has created.
type thing struct {
	name, key, uid string
	owners         []int
	deleted        bool // by the test
}

// create creates a thing.
func (r *collectorRig) create(name string, finalizers []string, owners ...metav1.OwnerReference) thing {
	r.t.Helper()
	body, err := json.Marshal(map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": metav1.ObjectMeta{Name: name, Finalizers: finalizers, OwnerReferences: owners}})
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := writes.Of(r.things).Create(r.ctx, &registry.Request{Target: registry.Target{Namespace: "default"}, Body: body})
	if err != nil {
		r.t.Fatal(err)
	}
	var made struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(res.Object, &made); err != nil {
		r.t.Fatal(err)
	}
	return thing{name: name, key: string(r.things.Prefix()) + "default/" + name, uid: string(made.Metadata.UID)}
}

func (t thing) ref(blocks bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Thing", Name: t.name, UID: types.UID(t.uid), BlockOwnerDeletion: &blocks}
}

// delete deletes a thing as a client does; it may be gone.
func (r *collectorRig) delete(name string, policy metav1.DeletionPropagation) error {
	_, _, err := writes.Of(r.things).Remove(r.ctx, writes.Removal{Namespace: "default", Name: name, Propagation: policy})
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}

// read returns an object, nil if it's gone.
func (r *collectorRig) read(key string) *kube.Object {
	r.t.Helper()
	o, err := r.Read(r.ctx, key)
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

// TestTwoCollectors lets two garbage collectors act on one store at once: what is left is what one would leave, and nothing
// is deleted that has an owner.
func TestTwoCollectors(t *testing.T) {
	r := newCollectorRig(t)
	const objects, deletions = 200, 40
	seed := uint64(time.Now().UnixNano())
	t.Log("seed ", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var all []thing
	for i := range objects {
		var owners []int
		var refs []metav1.OwnerReference
		for range min(i, rng.IntN(4)) {
			owner := rng.IntN(i)
			owners, refs = append(owners, owner), append(refs, all[owner].ref(rng.IntN(2) == 0))
		}
		made := r.create(fmt.Sprint("t", i), nil, refs...)
		made.owners = owners
		all = append(all, made)
	}
	tape := r.cacher.Tape()
	defer tape.Close()
	stop := r.runTwo()
	defer stop()
	var deleting sync.WaitGroup
	for range deletions {
		i := rng.IntN(objects)
		all[i].deleted = true
		policy := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[rng.IntN(2)]
		deleting.Go(func() {
			if err := r.delete(all[i].name, policy); err != nil {
				t.Error(err)
			}
		})
	}
	deleting.Wait()
	stop()
	left := stay(all)
	for i, o := range all {
		if there := r.read(o.key) != nil; there != left[i] {
			t.Errorf("%s with the owners %v is there: %v, want %v", o.name, o.owners, there, left[i])
		}
	}
	r.checkTape(tape, all)
}

// runTwo runs two sets of controllers. The function that it returns waits until both are quiescent, and ends them.
func (r *collectorRig) runTwo() (stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	var running sync.WaitGroup
	two := make([]*Controllers, 2)
	for i := range two {
		two[i] = New(Options{Registry: r.Registry.Door(), Cacher: r.cacher, On: Set{GarbageCollector: true}, Log: slog.New(slog.DiscardHandler)})
		running.Go(func() {
			if err := two[i].Run(ctx); err != nil {
				r.t.Error(err)
			}
		})
	}
	return sync.OnceFunc(func() {
		for _, c := range []*Controllers{two[0], two[1], two[0], two[1]} { // the second may have given the first more to do
			if report, err := c.Quiescent(ctx, 0); err != nil {
				r.t.Errorf("%v: %+v", err, report)
			}
		}
		cancel()
		running.Wait()
	})
}

// stay says which objects stay: those that weren't deleted and have no owner, or one that stays. No object owns itself, over
// however many others.
func stay(all []thing) []bool {
	left := make([]bool, len(all))
	for i, o := range all {
		left[i] = !o.deleted && len(o.owners) == 0
		for _, owner := range o.owners {
			left[i] = left[i] || !o.deleted && left[owner]
		}
	}
	return left
}

// checkTape checks each deletion by a collector: the object's owners were gone, or waited until it's deleted.
func (r *collectorRig) checkTape(tape *cacher.Tape, all []thing) {
	r.t.Helper()
	now, waited, asked := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, o := range all {
		asked[o.uid] = o.deleted
	}
	end := r.create("end", nil)
	for {
		events, _, err := tape.Next(r.ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range events {
			l := lineageOf(e.Object())
			if e.Prev != nil && !beingDeleted(e.Prev) && (e.Cur == nil || beingDeleted(e.Cur)) && !asked[l.UID] {
				for _, owner := range lineageOf(e.Prev).Owners {
					if now[owner.UID] && !waited[owner.UID] {
						r.t.Errorf("%s was deleted at %d, and its owner %s was there", e.Prev.Name(), e.Revision, owner.Name)
					}
				}
			}
			now[l.UID] = e.Cur != nil
			waited[l.UID] = waited[l.UID] || beingDeleted(e.Cur) && l.asks(metav1.FinalizerDeleteDependents)
			if l.UID == end.uid {
				return
			}
		}
	}
}

// TestOldKnowledge: a collector whose graph is wrong deletes nothing that has an owner.
func TestOldKnowledge(t *testing.T) {
	r := newCollectorRig(t)
	for _, c := range []struct {
		name string
		lie  func(t *testing.T, c *collector, owner, dependent thing)
		want func(owner, dependent *kube.Object) error
	}{
		{"the graph says that an owner is gone which isn't", func(t *testing.T, c *collector, owner, _ thing) {
			c.observe(&cacher.Event{Prefix: r.things.Prefix(), Prev: r.read(owner.key), Revision: 1 << 40})
		}, func(_, dependent *kube.Object) error { return isOwned(dependent) }},
		{"the dependent has got another owner", func(t *testing.T, c *collector, owner, dependent thing) {
			other := r.create("other", nil)
			if _, err := writes.Of(r.things).Amend(r.ctx, "default", dependent.name, types.UID(dependent.uid), func(m *metav1.ObjectMeta) error {
				m.OwnerReferences = append(m.OwnerReferences, other.ref(false))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			gone := r.read(owner.key)
			if err := r.delete(owner.name, ""); err != nil {
				t.Fatal(err)
			}
			c.observe(&cacher.Event{Prefix: r.things.Prefix(), Prev: gone, Revision: 1 << 40})
		}, func(_, dependent *kube.Object) error { return isOwned(dependent) }},
		{"the graph doesn't have the dependent of an owner that leaves its dependents", func(t *testing.T, c *collector, owner, _ thing) {
			c.begin()
			c.complete()
			if err := r.delete(owner.name, metav1.DeletePropagationOrphan); err != nil {
				t.Fatal(err)
			}
		}, func(owner, dependent *kube.Object) error {
			if owner == nil {
				return errors.New("the owner is gone, and there may be dependents that it was to leave")
			}
			if dependent == nil || beingDeleted(dependent) {
				return errors.New("the dependent was deleted, and its owner was to leave it")
			}
			return nil
		}},
		{"the objects are being read anew", func(t *testing.T, c *collector, owner, _ thing) {
			c.begin()
			if err := r.delete(owner.name, metav1.DeletePropagationForeground); err != nil {
				t.Fatal(err)
			}
		}, func(owner, dependent *kube.Object) error {
			if owner == nil {
				return errors.New("the owner is gone before its dependent")
			}
			return isOwned(dependent)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			owner := r.create("owner", nil)
			dependent := r.create("dependent", nil, owner.ref(true))
			g := r.collector()
			for _, o := range []thing{owner, dependent} {
				g.observe(&cacher.Event{Prefix: r.things.Prefix(), Cur: r.read(o.key)})
			}
			g.complete()
			c.lie(t, g, owner, dependent)
			for _, o := range []thing{owner, dependent} {
				// Behind, the caches have the object of the case before. A worker would be refused, and try again.
				if _, err := r.cacher.Barrier(r.ctx); err != nil {
					t.Fatal(err)
				}
				if err := g.work(r.ctx, r.Door().Served(), o.key); err != nil && !errors.Is(err, errIncomplete) {
					t.Error(err)
				}
			}
			if err := c.want(r.read(owner.key), r.read(dependent.key)); err != nil {
				t.Error(err)
			}
			for _, name := range []string{"owner", "dependent", "other"} {
				if err := r.delete(name, metav1.DeletePropagationBackground); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestUnreadable: an object that can't be read any more, and is then deleted, doesn't stay in the graph, where its owner
// would wait for it.
func TestUnreadable(t *testing.T) {
	r := newCollectorRig(t)
	owner := r.create("owner", nil)
	dependent := r.create("dependent", nil, owner.ref(true))
	c := r.collector()
	good := r.read(dependent.key)
	bad := kube.NewObject(dependent.key, []byte("?"), good.Revision+1)
	for _, e := range []cacher.Event{{Cur: r.read(owner.key)}, {Cur: good}, {Prev: good, Cur: bad}} {
		c.observe(&e)
	}
	if c.knowledge.Load().graph.owned != 1 {
		t.Fatalf("%d objects have owners, want the one that can't be read", c.knowledge.Load().graph.owned)
	}
	worse := kube.NewObject(dependent.key, []byte("??"), bad.Revision+1)
	c.observe(&cacher.Event{Prev: bad, Cur: worse})
	c.observe(&cacher.Event{Prev: worse})
	if len(c.knowledge.Load().graph.nodes) > 0 || len(c.knowledge.Load().spoiled) > 0 {
		t.Errorf("%d nodes are left, and %d that can't be read", len(c.knowledge.Load().graph.nodes), len(c.knowledge.Load().spoiled))
	}
}

// TestReadableAgain: an object that couldn't be read for a while, and then has no owner any more, isn't its owner's.
func TestReadableAgain(t *testing.T) {
	r := newCollectorRig(t)
	owner := r.create("owner", nil)
	dependent := r.create("dependent", nil, owner.ref(true))
	c := r.collector()
	good := r.read(dependent.key)
	bad := kube.NewObject(dependent.key, []byte("?"), good.Revision+1)
	again := kube.NewObject(dependent.key, fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"dependent","uid":%q}}`, dependent.uid), bad.Revision+1)
	for _, e := range []cacher.Event{{Cur: r.read(owner.key)}, {Cur: good}, {Prev: good, Cur: bad}, {Prev: bad, Cur: again}} {
		c.observe(&e)
	}
	if len(c.knowledge.Load().graph.nodes) > 0 || c.knowledge.Load().graph.owned > 0 || len(c.knowledge.Load().spoiled) > 0 {
		t.Errorf("%d nodes are left, %d have owners, %d can't be read", len(c.knowledge.Load().graph.nodes), c.knowledge.Load().graph.owned, len(c.knowledge.Load().spoiled))
	}
}

// isOwned tells what is wrong with an object that must be there and have an owner.
func isOwned(o *kube.Object) error {
	switch {
	case o == nil:
		return errors.New("it was deleted, and had an owner")
	case beingDeleted(o):
		return errors.New("it's being deleted, and has an owner")
	case len(o.Lineage().Owners) == 0:
		return errors.New("it has lost its owners")
	}
	return nil
}

// What an event costs the collector, with few objects in its graph and with many.
func BenchmarkCollectorObserve(b *testing.B) {
	r := newCollectorRig(b)
	object := func(i int, owner string) *kube.Object {
		owners := ""
		if owner != "" {
			owners = fmt.Sprintf(`"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Thing","name":"none","uid":%q}],`, owner)
		}
		key := fmt.Sprintf("%sdefault/t%d", r.things.Prefix(), i)
		return kube.NewObject(key, fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t%[1]d","namespace":"default",%[2]s"uid":"%[3]s"},"spec":{}}`,
			i, owners, testUID(i)), storage.Revision(i+1))
	}
	for _, owned := range []int{1000, 100_000} {
		c := r.collector()
		for i := range owned {
			c.observe(&cacher.Event{Prefix: r.things.Prefix(), Cur: object(i, testUID(1_000_000+i/10))})
		}
		c.knowledge.Load().doubts = nil
		free, dependent := object(2_000_000, ""), object(2_000_001, testUID(1_000_000))
		for _, e := range []struct {
			name  string
			event cacher.Event
		}{
			{"written, no owner", cacher.Event{Prev: free, Cur: free}},
			{"written, owned", cacher.Event{Prev: dependent, Cur: dependent}},
			{"deleted, no owner", cacher.Event{Prev: free}},
		} {
			b.Run(fmt.Sprintf("%s/owned=%d", e.name, owned), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.observe(&e.event)
				}
			})
		}
	}
}

func testUID(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
