package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// ResourceQuota charges new objects to the ResourceQuotas of their namespace, and refuses those that are too many. A charge is
// a compare-and-swap on the quota's status, so creates that come together don't pass together. A charge whose object isn't
// stored after all is given back by the controller resourcequota, which also lowers the status after deletions. As in
// Kubernetes, a quota limits nothing until that controller has filled its status.
type ResourceQuota struct {
	judge
	registry *registry.Registry
	ledger   *quota.Ledger
}

// NewResourceQuota returns the plug-in. The ledger is that of the controller.
func NewResourceQuota(r *registry.Registry, l *quota.Ledger) *ResourceQuota {
	return &ResourceQuota{registry: r, ledger: l}
}

var quotasPrefix = storage.PrefixOf("", "resourcequotas")

// Concerns is about what is created in namespaces, while there are quotas; about Services, whose type may change; and about
// quotas themselves.
func (q *ResourceQuota) Concerns(a *registry.Attributes) bool {
	if writes(a, "", "resourcequotas", registry.Create, registry.Update) {
		return true
	}
	charged := a.Operation == registry.Create && a.Subresource == "" || writes(a, "", "services", registry.Update)
	if a.Namespace == "" || !charged {
		return false
	}
	quotas := q.registry.Catalog().Prefix(quotasPrefix)
	return quotas != nil && quotas.Cache().Len() > 0
}

// Validate charges an object.
func (q *ResourceQuota) Validate(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	if writes(&r.Attributes, "", "resourcequotas", registry.Create, registry.Update) {
		if err := warnUncounted(r); err != nil {
			return registry.Refuse(err), nil
		}
	}
	charges, err := q.charges(r)
	if err != nil {
		return registry.Refuse(err), nil
	}
	if len(charges) == 0 || r.Operation == registry.Update && r.Resource.Resource != "services" {
		return pass, nil
	}
	for _, c := range charges { // before any of them is charged
		if err := c.check(c.quota); err != nil {
			return registry.Refuse(err), nil
		}
	}
	if r.DryRun {
		return pass, nil
	}
	open := q.ledger.Begin(r.Namespace)
	r.OnEnd(open.Close)
	for i, c := range charges {
		said, err := q.charge(ctx, c, open)
		if err == nil && !said.Refused() {
			continue
		}
		for _, done := range charges[:i] {
			// What can't be given back now the controller gives back: see Ledger.
			_ = q.giveBack(ctx, done, open)
		}
		return said, err
	}
	return pass, nil
}

// warnUncounted tells the client which limits of a quota nobody counts.
func warnUncounted(r *request) error {
	rq, err := decode[corev1.ResourceQuota](r.Object)
	if err != nil {
		return err
	}
	var uncounted []string
	for name := range rq.Spec.Hard {
		if _, ok := quota.Resource(name); !ok {
			uncounted = append(uncounted, string(name))
		}
	}
	if len(uncounted) > 0 {
		slices.Sort(uncounted)
		r.Warn("this server counts objects only: " + strings.Join(uncounted, ", ") + " limits nothing")
	}
	return nil
}

// charge is what an object takes of a quota.
type charge struct {
	quota *corev1.ResourceQuota
	of    schema.GroupResource
	usage quota.Usage
}

// charges returns what an object takes of the quotas of its namespace. For an update that's what it takes more than before.
func (q *ResourceQuota) charges(r *request) (all []charge, err error) {
	of := r.Resource.GroupResource()
	quotas := q.registry.Catalog().Prefix(quotasPrefix)
	in, err := quotasPrefix.Namespace(r.Namespace)
	if err != nil || quotas == nil {
		return nil, err
	}
	for o := range quotas.Cache().Snapshot().All(in) {
		rq := &corev1.ResourceQuota{}
		if err := json.Unmarshal(o.Raw(), rq); err != nil {
			return nil, fmt.Errorf("the ResourceQuota %q can't be read", o.Name())
		}
		usage, err := quota.Of(rq, rq.Status.Hard, of, r.Object)
		if err != nil {
			return nil, err
		}
		before, err := quota.Of(rq, rq.Status.Hard, of, r.Old)
		if err != nil {
			return nil, err
		}
		for name, n := range before {
			if usage[name] -= n; usage[name] <= 0 {
				delete(usage, name)
			}
		}
		if len(usage) > 0 {
			all = append(all, charge{rq, of, usage})
		}
	}
	return all, nil
}

// check refuses a charge for which a quota has no room.
func (c charge) check(rq *corev1.ResourceQuota) error {
	names := quota.Names(rq.Status.Hard, c.of)
	for _, name := range names {
		if _, known := rq.Status.Used[name]; !known {
			return fmt.Errorf("status unknown for quota: %s, resources: %s", rq.Name, join(names))
		}
	}
	var requested, used, limits []string
	for _, name := range names {
		n, has := c.usage[name]
		hard, taken := rq.Status.Hard[name], rq.Status.Used[name]
		sum := taken.DeepCopy()
		if sum.Add(*resource.NewQuantity(n, resource.DecimalSI)); !has || sum.Cmp(hard) <= 0 {
			continue
		}
		requested = append(requested, fmt.Sprintf("%s=%d", name, n))
		used = append(used, fmt.Sprintf("%s=%s", name, taken.String()))
		limits = append(limits, fmt.Sprintf("%s=%s", name, hard.String()))
	}
	if len(requested) == 0 {
		return nil
	}
	return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
		rq.Name, strings.Join(requested, ","), strings.Join(used, ","), strings.Join(limits, ","))
}

func join(names []corev1.ResourceName) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ",")
}

// charge raises what is used of a quota, if there's room.
func (q *ResourceQuota) charge(ctx context.Context, c charge, open *quota.Charge) (said registry.Verdict, err error) {
	err = q.amend(ctx, c, func(rq *corev1.ResourceQuota) {
		refused := c.check(rq)
		if said = registry.Refuse(refused); refused == nil {
			open.Take(c.quota.UID, c.usage)
			c.add(rq, 1)
		}
	})
	return said, err
}

// giveBack undoes a charge. The request is refused in any case.
func (q *ResourceQuota) giveBack(ctx context.Context, c charge, open *quota.Charge) error {
	return q.amend(ctx, c, func(rq *corev1.ResourceQuota) {
		open.Take(c.quota.UID, nil)
		c.add(rq, -1)
	})
}

func (q *ResourceQuota) amend(ctx context.Context, c charge, change func(*corev1.ResourceQuota)) error {
	quotas := q.registry.Catalog().Prefix(quotasPrefix)
	if quotas == nil {
		return nil
	}
	_, err := registry.AmendAs(ctx, quotas, c.quota.Namespace, c.quota.Name, c.quota.UID, change)
	if errors.Is(err, storage.ErrNotFound) { // it's gone, and limits nothing any more
		return nil
	}
	return err
}

// add changes what is used of a quota, times times.
func (c charge) add(rq *corev1.ResourceQuota, times int64) {
	for name, n := range c.usage {
		if _, known := rq.Status.Used[name]; known {
			sum := rq.Status.Used[name]
			sum.Add(*resource.NewQuantity(n*times, resource.DecimalSI))
			rq.Status.Used[name] = sum
		}
	}
}
