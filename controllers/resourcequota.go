package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// resourceQuotas says in the status of each ResourceQuota how much of it is used. The admission plug-in ResourceQuota adds what
// is created; this controller counts. It gives back what deletions have freed, down to the objects that there are and those that
// requests under way are charged for, and its write fails if another one was charged since: so it never gives back what a
// request has taken, and doesn't wait for a moment without requests. It adds objects that nobody was charged for. A pod that is stuck in
// its deletion is given back when its time is over.
type resourceQuotas struct {
	queued[string] // of the names of namespaces
	ledger         *quota.Ledger

	have map[string]map[string]bool // the reader's own: the names of the quotas of each namespace that has some

	stuck *alarms // when pods that are being deleted count no more, by their namespaces

	waiters sync.WaitGroup // one for each of awaited; a worker starts them

	mu      sync.Mutex // guards awaited. The queue's lock isn't taken under it
	awaited map[*quota.Charge]bool
}

var quotasPrefix = storage.PrefixOf("", "resourcequotas")

func newResourceQuotas(c *Controllers, ledger *quota.Ledger) *resourceQuotas {
	if ledger == nil {
		ledger = &quota.Ledger{}
	}
	q := &resourceQuotas{ledger: ledger, have: map[string]map[string]bool{}, stuck: newAlarms(c.clock), awaited: map[*quota.Charge]bool{}}
	q.queued = newQueued(c, ResourceQuota, func(namespace string) Object {
		return Object{APIVersion: "v1", Kind: "ResourceQuota", Namespace: namespace}
	}, q.work)
	return q
}

func (q *resourceQuotas) begin() { clear(q.have) }

func (q *resourceQuotas) forget() {
	clear(q.have)
	q.stuck.forget()
	q.queue.forget() // a charge may have been closed after the queue's end
}

func (q *resourceQuotas) run(ctx context.Context) {
	var ringing sync.WaitGroup
	ringing.Go(func() { q.stuck.run(ctx, q.queue.add) })
	q.queue.run(ctx)
	ringing.Wait()
	q.waiters.Wait()
}

func (q *resourceQuotas) idle() bool {
	q.mu.Lock()
	none := len(q.awaited) == 0
	q.mu.Unlock()
	return none && !q.stuck.ringing() && q.queue.idle() // in this order: a waiter queues the namespace before it goes, and so does an alarm
}

// observe queues a namespace with quotas when something in it may count otherwise than before.
func (q *resourceQuotas) observe(e *cacher.Event) {
	if len(q.have) == 0 && e.Prefix != quotasPrefix {
		return
	}
	namespace := e.Object().Namespace()
	if namespace == "" {
		if e.Prefix == classesPrefix { // devices may count as another resource now
			for name := range q.have {
				q.queue.add(name)
			}
		}
		return
	}
	if e.Prefix == quotasPrefix {
		q.note(namespace, e)
	}
	changes := e.Prev == nil || e.Cur == nil || slices.Contains(changing, e.Prefix)
	if changes && len(q.have[namespace]) > 0 {
		q.queue.add(namespace)
	}
}

// changing are the prefixes of what may take something else of a quota after a change, and of quotas.
var changing = []storage.Prefix{
	quotasPrefix, storage.PrefixOf("", "pods"), storage.PrefixOf("", "services"), storage.PrefixOf("", "persistentvolumeclaims"),
	storage.PrefixOf("resource.k8s.io", "resourceclaims"),
}

var classesPrefix = storage.PrefixOf("resource.k8s.io", "deviceclasses")

func (q *resourceQuotas) note(namespace string, e *cacher.Event) {
	name := e.Object().Name()
	switch {
	case e.Cur == nil:
		if delete(q.have[namespace], name); len(q.have[namespace]) == 0 {
			delete(q.have, namespace)
		}
	case q.have[namespace] == nil:
		q.have[namespace] = map[string]bool{name: true}
	default:
		q.have[namespace][name] = true
	}
}

// work counts for all quotas of a namespace. When one of the charges that it had to add is closed, the namespace is counted
// again: nobody knows whether its object was there already.
func (q *resourceQuotas) work(ctx context.Context, served *registry.Catalog, namespace string) error {
	for o := range served.Cached(schema.GroupResource{Resource: "resourcequotas"}, namespace, "") {
		open, err := q.count(ctx, served, namespace, o.Name())
		if err != nil {
			return err
		}
		for _, c := range open {
			q.await(ctx, namespace, c)
		}
	}
	return nil
}

// await has a namespace counted again when a charge is closed. A worker calls it.
func (q *resourceQuotas) await(ctx context.Context, namespace string, c *quota.Charge) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.awaited[c] {
		return
	}
	q.awaited[c] = true
	q.waiters.Go(func() {
		select {
		case <-c.Done():
			q.queue.add(namespace)
		case <-ctx.Done():
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.awaited, c)
	})
}

// count fills in the status of a quota. open are the charges that it has added.
func (q *resourceQuotas) count(ctx context.Context, served *registry.Catalog, namespace, name string) (open []*quota.Charge, err error) {
	quotas := served.Prefix(quotasPrefix)
	if quotas == nil { // ResourceQuota isn't served
		return nil, nil
	}
	of, err := reads.Of(quotas).Current(ctx, namespace, name)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var failed error
	_, err = q.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		return writes.AmendAs(ctx, quotas, of.Namespace, of.Name, of.UID, func(rq *corev1.ResourceQuota) {
			// The quota was read before this: each charge that is in it is open, or its object is stored or never will be.
			var taken quota.Usage
			taken, open = q.ledger.Taken(of.Namespace, of.UID)
			// What the others have stored is in the caches after this.
			if _, failed = q.controllers.cacher.Barrier(ctx); failed != nil {
				return
			}
			var status corev1.ResourceQuotaStatus
			if status, failed = q.statusOf(served, rq, taken); failed == nil && !equality.Semantic.DeepEqual(status, rq.Status) {
				rq.Status = status
			}
		})
	})
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	return open, errors.Join(failed, err)
}

// statusOf returns what a quota's status should be. taken is what requests under way are charged for, which is in the status
// already. The objects of some of these are there, and nobody knows of which. So what is used stays as it is while it's between
// what the objects take and that with the charges: a count of both would refuse the next request that there's room for.
func (q *resourceQuotas) statusOf(served *registry.Catalog, rq *corev1.ResourceQuota, taken quota.Usage) (corev1.ResourceQuotaStatus, error) {
	status := corev1.ResourceQuotaStatus{Hard: rq.Spec.Hard.DeepCopy(), Used: corev1.ResourceList{}}
	eval := quota.NewEvaluator(served.Cached, q.controllers.clock.Now)
	counted, usage := map[schema.GroupResource]bool{}, quota.Usage{}
	for name := range rq.Spec.Hard {
		for _, of := range quota.Resources(name) {
			if counted[of] {
				continue
			}
			counted[of] = true
			one, err := q.usage(served, eval, rq, of)
			if err != nil {
				return status, err
			}
			usage.Add(one)
		}
	}
	q.stuck.set(rq.Namespace, eval.Until())
	for name := range rq.Spec.Hard {
		if len(quota.Resources(name)) > 0 {
			status.Used[name] = between(rq.Status.Used[name], usage[name], taken[name])
		}
	}
	return status, nil
}

// between returns what is used: what was used before, but at least what the objects take, and at most that with the charges.
func between(before, takes, charges resource.Quantity) resource.Quantity {
	used := resource.Quantity{Format: resource.DecimalSI}
	used.Add(takes)
	if before.Cmp(takes) <= 0 {
		return used
	}
	used.Add(charges)
	if before.Cmp(used) < 0 {
		return before.DeepCopy()
	}
	return used
}

// usage returns what all objects of a resource in the quota's namespace take of it.
func (q *resourceQuotas) usage(served *registry.Catalog, eval *quota.Evaluator, rq *corev1.ResourceQuota, of schema.GroupResource) (quota.Usage, error) {
	usage := quota.Usage{}
	prefix := storage.PrefixOf(of.Group, of.Resource)
	in, err := prefix.Namespace(rq.Namespace)
	if err != nil || served.Prefix(prefix) == nil { // a resource that isn't served has no objects
		return usage, err
	}
	objects := q.controllers.cacher.Resource(prefix).Snapshot()
	if !quota.PerObject(rq, of) {
		n := *resource.NewQuantity(int64(objects.Count(storage.Range{Prefix: in})), resource.DecimalSI)
		for _, name := range eval.Names(rq.Spec.Hard, of) {
			usage[name] = n
		}
		return usage, nil
	}
	for o := range objects.All(in) {
		tree := &unstructured.Unstructured{}
		if json.Unmarshal(o.Raw(), &tree.Object) != nil {
			continue // as if it weren't there: nobody can read it
		}
		one, err := eval.Of(rq, rq.Spec.Hard, of, tree)
		if err != nil {
			return nil, err
		}
		usage.Add(one)
	}
	return usage, nil
}
