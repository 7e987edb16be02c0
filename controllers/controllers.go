package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/crd"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// The controllers that can be on or off.
const (
	GarbageCollector = "garbage-collector"        // deletes dependents whose owners are gone
	Namespace        = "namespace"                // empties and removes namespaces that are being deleted
	Expiry           = "expiry"                   // deletes objects whose annotation says until when they live
	Aggregation      = "clusterrole-aggregation"  // puts ClusterRoles together from others
	ServiceAccount   = "serviceaccount"           // makes the ServiceAccount "default" in every namespace
	ResourceQuota    = "resourcequota"            // counts what is used of quotas
	StorageMigrator  = "storage-version-migrator" // has objects stored anew, as StorageVersionMigrations ask for
	// PolicyStatus says in the status of ValidatingAdmissionPolicies what their expressions get wrong. The write of a policy does it.
	PolicyStatus = "validatingadmissionpolicy-status"
)

// Names are the controllers that can be on or off, in the order in which errors and pages list them.
var Names = []string{GarbageCollector, Namespace, Expiry, ServiceAccount, Aggregation, ResourceQuota, StorageMigrator, PolicyStatus}

// Set says which controllers are on.
type Set map[string]bool

// ParseSet reads "all", "none", or names separated by commas; "" is "all".
func ParseSet(list string) (Set, error) {
	on := Set{}
	switch list {
	case "none":
		return on, nil
	case "", "all":
		for _, name := range Names {
			on[name] = true
		}
		return on, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(Names, name) {
			return nil, fmt.Errorf("%q is no controller: want all, none, or some of %s, separated by commas", name, strings.Join(Names, ","))
		}
		on[name] = true
	}
	return on, nil
}

// Options of Controllers.
type Options struct {
	// Registry and Cacher are required: the Cacher must be that of the Door's Registry. Both must outlive Run.
	Registry registry.Door
	Cacher   *cacher.Cacher
	// On says which controllers run besides those that always do. Defaults to none.
	On Set
	// Quotas is the ledger of the admission plug-in ResourceQuota. Nil: nobody charges quotas.
	Quotas *quota.Ledger
	// Clock is by what things come due. Nil is the machine's.
	Clock *clock.Clock
	// Duties are what else the server sees to.
	Duties []Duty
	Log    *slog.Logger // defaults to slog.Default()
}

// Controllers are what a server does by itself. Make them with New, then call Run.
type Controllers struct {
	registry registry.Door
	cacher   *cacher.Cacher
	clock    *clock.Clock
	log      *slog.Logger
	queues   *queues // metrics
	actor    actor
	reader   reader
	all      []controller
	garbage  *collector      // nil if it's off
	removes  map[string]bool // the finalizers that those that are on remove
}

// controller is one of the controllers. The reader calls begin, observe and complete, one at a time and from one
// goroutine, for whose end all other controllers wait: they only note what they're told, and queue the work.
type controller interface {
	// begin says that a state follows: observe is called for each object that there is, and then complete. Of the objects
	// that the controller knows and isn't told about by then, it knows that they were deleted. It comes at the start, and
	// when the reader has missed something.
	begin()
	// observe is told about an object of the state, or a change. The event is the caller's.
	observe(e *cacher.Event)
	// complete says that the state has been told: what the controller knows and wasn't told about is gone.
	complete()
	// forget lets go of all that the controller knows, at the end of a term. It's called when nothing of it runs any more.
	forget()
	// run does what is queued until ctx ends, and returns when nothing of it runs any more.
	run(ctx context.Context)
	// idle tells whether nothing is left to do that isn't others' matter. What isn't due yet isn't left. Quiescent
	// returns when all of them are idle.
	idle() bool
	// pending says what is left to do, at most so many things, for those who wait for Quiescent. It may be called at any time.
	pending(most int) []Pending
}

// queued is what controllers have in common: a queue of what there is to do, and nothing besides. A controller that has more says so
// by methods of its own.
type queued[K comparable] struct {
	controllers *Controllers
	queue       *queue[K]
	object      func(k K) Object // that a key stands for, for a Report
}

// newQueued returns what a controller works on its keys with, and that metrics name. work is given what is served, at least as new as the event that has
// queued the key. It writes nothing once everything was reset since it began: what it decided by may be gone. The reader is told the
// whole state then, and the work begins anew from that.
func newQueued[K comparable](c *Controllers, name string, object func(k K) Object, work func(ctx context.Context, served *registry.Catalog, k K) error) queued[K] {
	pinned := func(ctx context.Context, k K) error {
		if err := work(c.registry.Pin(ctx), c.served(), k); !errors.Is(err, storage.ErrReplaced) {
			return err
		}
		return nil
	}
	return queued[K]{c, &queue[K]{log: c.log, bell: &c.reader.bell, work: pinned, tell: c.queues.of(name)}, object}
}

func (q *queued[K]) begin() {}

func (q *queued[K]) complete() {}

func (q *queued[K]) forget() {}

func (q *queued[K]) run(ctx context.Context) { q.queue.run(ctx) }

func (q *queued[K]) idle() bool { return q.queue.idle() }

func (q *queued[K]) pending(most int) (all []Pending) {
	q.queue.each(func(k K, cause error) bool {
		if len(all) >= most {
			return false
		}
		p := Pending{Object: q.object(k), Cause: "it's being worked on"}
		if cause != nil {
			p.Cause = cause.Error()
		}
		all = append(all, p)
		return true
	})
	return all
}

// New returns the controllers of a registry.
func New(o Options) *Controllers {
	o.Log = cmp.Or(o.Log, slog.Default())
	c := &Controllers{registry: o.Registry, cacher: o.Cacher, clock: o.Clock, log: o.Log, queues: newQueues(), removes: map[string]bool{}}
	c.reader.controllers = c
	c.reader.served.Store(&registry.Catalog{})
	c.add(newDefinitions(c), crd.Finalizer)
	if o.On[Namespace] {
		c.add(newNamespaces(c), string(corev1.FinalizerKubernetes))
	}
	if o.On[GarbageCollector] {
		c.garbage = newCollector(c)
		c.add(c.garbage, metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents)
	}
	if o.On[ServiceAccount] {
		c.add(newServiceAccounts(c))
	}
	if o.On[Aggregation] {
		c.add(newAggregation(c))
	}
	if o.On[ResourceQuota] {
		c.add(newResourceQuotas(c, o.Quotas))
	}
	if o.On[StorageMigrator] {
		c.add(newMigrations(c))
	}
	c.add(newExpiry(c, o.On[Expiry]))
	if len(o.Duties) > 0 {
		c.add(newDuties(c, o.Duties))
	}
	return c
}

// Usage is what the controllers have to do now, and what they keep.
type Usage struct {
	CollectorQueue int // objects that the garbage collector has still to look at
	OwnedObjects   int // those that have owners
}

// Usage returns the controllers' Usage at the moment of the call. It's zero without a garbage collector.
func (c *Controllers) Usage() (u Usage) {
	if g := c.garbage; g != nil {
		u.CollectorQueue = g.queue.length()
		k := g.knowledge.Load()
		k.mu.Lock()
		defer k.mu.Unlock()
		u.OwnedObjects = k.graph.owned
	}
	return u
}

// add adds a controller, and the finalizers that it removes.
func (c *Controllers) add(k controller, finalizers ...string) {
	c.all = append(c.all, k)
	for _, f := range finalizers {
		c.removes[f] = true
	}
}

// served returns what is served, as new as what the reader has told the controllers: with each definition's event comes its
// catalog. It's empty while no term runs.
func (c *Controllers) served() *registry.Catalog { return c.reader.served.Load() }

// Run runs the controllers until ctx ends. It returns nil then, when they have ended. The registry must be running.
//
// Where several processes share a store, one of them acts at a time. Run is called whenever this process is elected, with a
// context that ends with its term and that has the term's fence (storage.WithFence), so that none of its writes is done after
// the term. It begins with the whole state, which must have everything that was written before the term.
func (c *Controllers) Run(ctx context.Context) error {
	select {
	case <-c.registry.Ready():
	case <-ctx.Done():
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer c.forget()
	defer running.Wait()
	defer cancel()
	for _, k := range c.all {
		running.Go(func() { k.run(ctx) })
	}
	err := c.reader.run(ctx)
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// forget lets go of all that the controllers know. Nothing of them runs any more.
func (c *Controllers) forget() {
	c.reader.forget()
	for _, k := range c.all {
		k.forget()
	}
}

// keyed names the object of a key.
func (c *Controllers) keyed(key string) Object {
	p, namespace, name, _ := storage.SplitKey(key)
	o := Object{Namespace: namespace, Name: name}
	if e := c.served().Prefix(p); e != nil {
		o.APIVersion, o.Kind = schema.GroupVersion{Group: e.Group, Version: e.Version}.String(), e.Kind
	}
	return o
}
