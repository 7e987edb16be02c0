package recording

import (
	"cmp"
	"slices"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/client"
)

// state is objects that are there at once.
type state []client.Event[client.Object]

// sort puts the objects into an order in which they can be created: definitions and namespaces, then owners before what they own, and what may
// refuse others at the end.
func (s state) sort() {
	at := map[string]int{}
	for i, e := range s {
		at[e.Object.UID()] = i
	}
	depths := make([]int, len(s)) // how many objects above it own each other; 0: not known yet
	var depth func(i int) int
	depth = func(i int) int {
		if depths[i] > 0 {
			return depths[i]
		}
		depths[i] = 1 // what a circle finds
		deepest := 0
		for _, owner := range ownersOf(*s[i].Object) {
			if o, there := at[owner]; there {
				deepest = max(deepest, depth(o))
			}
		}
		depths[i] = 1 + deepest
		return depths[i]
	}
	type place struct {
		phase, depth, rank int
		event              client.Event[client.Object]
	}
	all, others := make([]place, len(s)), document.Rank("", "")
	for i, e := range s {
		rank := document.Rank(e.Object.APIVersion(), e.Object.Kind())
		phase := 1
		switch {
		case rank > others:
			phase = 2
		case alone(*e.Object):
			phase = 0
		}
		all[i] = place{phase, depth(i), rank, e}
	}
	slices.SortStableFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.depth, b.depth), cmp.Compare(a.rank, b.rank))
	})
	for i, p := range all {
		s[i] = p.event
	}
}

// ownersOf returns the uids of the owners that an object names.
func ownersOf(o client.Object) (all []string) {
	var owners []client.OwnerReference
	if text := o.Field("metadata", "ownerReferences"); text == nil || o.Decode(&owners, "metadata", "ownerReferences") != nil {
		return nil
	}
	for _, owner := range owners {
		all = append(all, owner.UID)
	}
	return all
}

// judging are the kinds by which objects of others are judged or made, as kind.group.
var judging = []string{
	"CustomResourceDefinition.apiextensions.k8s.io", "APIService.apiregistration.k8s.io", "Namespace", "ServiceAccount",
	"PriorityClass.scheduling.k8s.io", "RuntimeClass.node.k8s.io", "StorageClass.storage.k8s.io", "IngressClass.networking.k8s.io",
	"ClusterRole.rbac.authorization.k8s.io", "Role.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io", "RoleBinding.rbac.authorization.k8s.io",
	"ResourceQuota", "LimitRange", "ServiceCIDR.networking.k8s.io",
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io", "MutatingAdmissionPolicy.admissionregistration.k8s.io",
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io", "MutatingWebhookConfiguration.admissionregistration.k8s.io",
}

// alone tells whether a change of the object is replayed by itself: all before it is done, and nothing after it has begun.
func alone(o client.Object) bool { return slices.Contains(judging, kindOf(o)) }

// kindOf returns kind.group.
func kindOf(o client.Object) string {
	kind := o.Kind()
	if group := document.Group(o.APIVersion()); group != "" {
		kind += "." + group
	}
	return kind
}
