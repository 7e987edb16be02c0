package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

// ResourceQuota charges new objects to the ResourceQuotas of their namespace, and refuses those that are too many. A charge is
// a compare-and-swap on the quota's status, so creates that come together don't pass together; their charges are written together (see lines). A charge whose object isn't
// stored after all is given back by the controller resourcequota, which also lowers the status after deletions. As in
// Kubernetes, a quota limits nothing until that controller has filled its status.
type ResourceQuota struct {
	registry *registry.Registry
	ledger   *quota.Ledger
	lines    lines
}

// NewResourceQuota returns the plug-in. The ledger is that of the controller.
func NewResourceQuota(r *registry.Registry, l *quota.Ledger) *ResourceQuota {
	return &ResourceQuota{registry: r, ledger: l}
}

var quotasPrefix = storage.PrefixOf("", "resourcequotas")

// Concerns is about what is created in namespaces, while there are quotas, and about updates by which an object may take more
// than before.
func (q *ResourceQuota) Concerns(a *registry.Attributes) bool {
	if a.Namespace == "" || !charged(a) {
		return false
	}
	quotas := q.registry.Catalog().Prefix(quotasPrefix)
	return quotas != nil && quotas.Cache().Len() > 0
}

// charged tells whether a write may have to be charged for.
func charged(a *registry.Attributes) bool {
	of := a.Resource.GroupResource()
	switch {
	case a.Operation == registry.Create:
		return a.Subresource == ""
	case a.Operation != registry.Update:
		return false
	case of == quota.Pods:
		return a.Subresource == "" || a.Subresource == "resize"
	case of == quota.Volumes:
		return a.Subresource == "" || a.Subresource == "status"
	}
	return a.Subresource == "" && (of == quota.Services || of == quota.Devices)
}

// Validate charges an object. A pod's own update is charged if it makes the pod count otherwise.
func (q *ResourceQuota) Validate(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	var charges []charge
	if of := r.Resource.GroupResource(); of != quota.Pods || r.Operation != registry.Update || r.Subresource != "" || quota.Recounts(r.Object, r.Old) {
		if charges, err = q.charges(r); err != nil {
			return registry.Refuse(err), nil
		}
	}
	if r.DryRun {
		if err := addEarlier(ctx, charges); err != nil {
			return pass, err
		}
	}
	if len(charges) == 0 {
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

// addEarlier adds to the quotas of a dry run's charges what the operations before this one would take of them, which isn't written anywhere, and tells
// those after it what this one would. An operation that is judged again tells it anew. The error is that of waiting for the operation's turn.
func addEarlier(ctx context.Context, charges []charge) error {
	before, err := transaction.Of(ctx).Tell("quota", charges)
	for _, told := range before {
		for _, taken := range told.([]charge) {
			for _, c := range charges {
				if c.quota.UID == taken.quota.UID {
					taken.add(c.quota, false)
				}
			}
		}
	}
	return err
}

// charge is what an object takes of a quota.
type charge struct {
	quota    *corev1.ResourceQuota
	usage    quota.Usage
	reported bool // somebody says how it is, which can't be refused
}

// charges returns what an object takes of the quotas of its namespace. For an update that's what it takes more than before. The
// error refuses an object that doesn't say what a quota counts, and one of which nobody knows yet what is used.
func (q *ResourceQuota) charges(r *request) (all []charge, err error) {
	of := r.Resource.GroupResource()
	served := q.registry.Catalog()
	quotas, eval := served.Prefix(quotasPrefix), quota.NewEvaluator(served.Cached, q.registry.Clock.Now)
	in, err := quotasPrefix.Namespace(r.Namespace)
	if err != nil || quotas == nil {
		return nil, err
	}
	for o := range quotas.Cache().Snapshot().All(in) {
		rq := &corev1.ResourceQuota{}
		if err := json.Unmarshal(o.Raw(), rq); err != nil {
			return nil, fmt.Errorf("the ResourceQuota %q can't be read", o.Name())
		}
		hard := rq.Status.Hard
		matches, err := eval.Matches(rq, hard, of, r.Object)
		if err != nil {
			return nil, err
		}
		if !matches {
			continue
		}
		names := eval.Names(hard, of)
		if of == quota.Pods {
			if err := quota.Required(names, r.Object); err != nil {
				return nil, fmt.Errorf("failed quota: %s: %w", rq.Name, err)
			}
		}
		for _, name := range names {
			if _, known := rq.Status.Used[name]; !known {
				return nil, fmt.Errorf("status unknown for quota: %s, resources: %s", rq.Name, join(names))
			}
		}
		usage, err := eval.Of(rq, hard, of, r.Object)
		if err != nil {
			return nil, err
		}
		if r.Operation == registry.Update {
			before, err := eval.Of(rq, hard, of, r.Old)
			if err != nil {
				return nil, err
			}
			usage = usage.Less(before)
		}
		if len(usage) > 0 {
			all = append(all, charge{rq, usage, r.Subresource == "status"})
		}
	}
	return all, nil
}

// check refuses a charge for which a quota has no room.
func (c charge) check(rq *corev1.ResourceQuota) error {
	var requested, used, limits []string
	for _, name := range slices.Sorted(maps.Keys(c.usage)) {
		q, hard, taken := c.usage[name], rq.Status.Hard[name], rq.Status.Used[name]
		sum := taken.DeepCopy()
		sum.Add(q)
		if _, limited := rq.Status.Hard[name]; !limited || c.reported || sum.Cmp(hard) <= 0 {
			continue
		}
		requested = append(requested, fmt.Sprintf("%s=%s", name, q.String()))
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
func (q *ResourceQuota) charge(ctx context.Context, c charge, open *quota.Charge) (registry.Verdict, error) {
	return q.lines.charge(ctx, c, open, func(change func(*corev1.ResourceQuota)) error {
		whole := context.WithoutCancel(ctx) // the write is other requests', too
		if end, ok := ctx.Deadline(); ok {
			var cancel context.CancelFunc
			whole, cancel = context.WithDeadline(whole, end)
			defer cancel()
		}
		return q.amend(whole, c, change)
	})
}

// giveBack undoes a charge. The request is refused in any case.
func (q *ResourceQuota) giveBack(ctx context.Context, c charge, open *quota.Charge) error {
	return q.amend(ctx, c, func(rq *corev1.ResourceQuota) {
		open.Take(c.quota.UID, nil)
		c.add(rq, true)
	})
}

func (q *ResourceQuota) amend(ctx context.Context, c charge, change func(*corev1.ResourceQuota)) error {
	quotas := q.registry.Catalog().Prefix(quotasPrefix)
	if quotas == nil {
		return nil
	}
	_, err := writes.AmendManaged(ctx, quotas, writes.Managed{Namespace: c.quota.Namespace, Name: c.quota.Name, UID: c.quota.UID, Subresource: "status"}, change)
	if errors.Is(err, storage.ErrNotFound) { // it's gone, and limits nothing any more
		return nil
	}
	return err
}

// add adds the charge to what is used of a quota, or takes it away again.
func (c charge) add(rq *corev1.ResourceQuota, back bool) {
	for name, q := range c.usage {
		if sum, known := rq.Status.Used[name]; known {
			if sum = sum.DeepCopy(); back {
				sum.Sub(q)
			} else {
				sum.Add(q)
			}
			rq.Status.Used[name] = sum
		}
	}
}
