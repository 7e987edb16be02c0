package controllers

import (
	"context"
	"errors"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// aggregation gives ClusterRoles that have an aggregationRule the rules of the ClusterRoles that it selects. Any change of a
// ClusterRole may concern any other, so there is one key, for all of them.
type aggregation struct {
	queued[string]
	decoded registry.Decoded[rbacv1.ClusterRole] // the worker's own: there is one key
}

var clusterRolesPrefix = storage.PrefixOf(rbacv1.GroupName, "clusterroles")

// allRoles is the one key.
const allRoles = "clusterroles"

func newAggregation(c *Controllers) *aggregation {
	a := &aggregation{}
	a.queued = newQueued(c, Aggregation, func(string) Object {
		return Object{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}
	}, a.work)
	return a
}

func (a *aggregation) forget() { a.decoded = registry.Decoded[rbacv1.ClusterRole]{} }

func (a *aggregation) observe(e *cacher.Event) {
	if e.Prefix == clusterRolesPrefix {
		a.queue.add(allRoles)
	}
}

// work gives all ClusterRoles with an aggregationRule the rules that they should have.
func (a *aggregation) work(ctx context.Context, served *registry.Catalog, _ string) error {
	e := served.Prefix(clusterRolesPrefix)
	if e == nil { // ClusterRole isn't served
		return nil
	}
	objects := slices.Collect(e.Cache().Snapshot().All(string(clusterRolesPrefix)))
	all := a.decoded.All(objects, func(*kube.Object, error) {}) // what nobody can read has no rules
	var failed []error
	for _, r := range all {
		if r.AggregationRule == nil {
			continue
		}
		wanted := aggregated(r, all)
		if equality.Semantic.DeepEqual(r.Rules, wanted) {
			continue
		}
		_, err := a.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
			return writes.AmendAs(ctx, e, "", r.Name, r.UID, func(o *rbacv1.ClusterRole) {
				if equality.Semantic.DeepEqual(o.AggregationRule, r.AggregationRule) { // otherwise there's a next time
					o.Rules = wanted
				}
			})
		})
		failed = append(failed, unlessGone(err))
	}
	return errors.Join(failed...)
}

// aggregated returns the rules of all ClusterRoles that a ClusterRole selects, each rule once. One that is itself put
// together stands for what it selects. So it doesn't matter in which order roles are looked at, and roles that select each
// other come to an end.
func aggregated(r *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) (rules []rbacv1.PolicyRule) {
	seen := map[string]bool{r.Name: true}
	has := map[string]bool{} // rules, encoded as protobuf, in which an empty list is as none
	var add func(r *rbacv1.ClusterRole)
	add = func(r *rbacv1.ClusterRole) {
		if r.AggregationRule == nil {
			for _, rule := range r.Rules {
				encoded, err := rule.Marshal()
				if err != nil {
					panic(err) // lists of strings always encode
				}
				if !has[string(encoded)] {
					has[string(encoded)] = true
					rules = append(rules, rule)
				}
			}
			return
		}
		for i := range r.AggregationRule.ClusterRoleSelectors {
			selector, err := metav1.LabelSelectorAsSelector(&r.AggregationRule.ClusterRoleSelectors[i])
			if err != nil {
				continue // validation refuses those
			}
			for _, other := range all {
				if !seen[other.Name] && selector.Matches(labels.Set(other.Labels)) {
					seen[other.Name] = true
					add(other)
				}
			}
		}
	}
	add(r)
	return rules
}
