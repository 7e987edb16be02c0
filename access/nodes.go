package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// NodeUserPrefix begins the names of nodes' users.
const NodeUserPrefix = "system:node:"

// NodeOf returns the name of the node that a user is; ok is false for one who is none. The name is "" for a node that nobody knows.
func NodeOf(u user.Info) (name string, ok bool) {
	if u == nil {
		return "", false
	}
	name, ok = strings.CutPrefix(u.GetName(), NodeUserPrefix)
	return name, ok && slices.Contains(u.GetGroups(), user.NodesGroup)
}

// nodeAuthorizer is Kubernetes' Node authorizer: a node may do what kubelets need, and see of Secrets, ConfigMaps, claims, volumes and
// accounts those that pods on it use. Unlike Kubernetes' it keeps no graph of who uses what. It looks at the pods of the node in the
// caches, which know the pods of each node.
type nodeAuthorizer struct {
	registry *registry.Registry
	rules    func() *role // of everything that isn't looked at one by one
}

func newNodeAuthorizer(r *registry.Registry) *nodeAuthorizer {
	return &nodeAuthorizer{registry: r, rules: sync.OnceValue(func() *role {
		for _, known := range bootstrapPolicy().clusterRoles {
			if known.Name == "system:node" {
				return newRole(known.Rules)
			}
		}
		return newRole([]rbacv1.PolicyRule{})
	})}
}

var errNodeRules = errors.New("node authorizer does not support user rule resolution")

// The resources that a node sees by the pods on it.
var (
	podsPrefix        = storage.PrefixOf("", "pods")
	volumesPrefix     = storage.PrefixOf("", "persistentvolumes")
	attachmentsPrefix = storage.PrefixOf("storage.k8s.io", "volumeattachments")
	slicesPrefix      = storage.PrefixOf("resource.k8s.io", "resourceslices")
	podCertsPrefix    = storage.PrefixOf("certificates.k8s.io", "podcertificaterequests")
)

// Authorize is allows for who wants an authorizer.Authorizer. The error is always nil.
func (n *nodeAuthorizer) Authorize(_ context.Context, asks authorizer.Attributes) (authorizer.Decision, string, error) {
	allowed, reason := n.allows(asks)
	if !allowed {
		return authorizer.DecisionNoOpinion, reason, nil
	}
	return authorizer.DecisionAllow, reason, nil
}

// ConditionsAwareAuthorize is Authorize: nothing has conditions.
func (n *nodeAuthorizer) ConditionsAwareAuthorize(ctx context.Context, asks authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(n.Authorize(ctx, asks))
}

// EvaluateConditions refuses: there are none.
func (n *nodeAuthorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor says of a node that its rights can't be told, and nothing of others.
func (n *nodeAuthorizer) RulesFor(_ context.Context, u user.Info, _ string) (_ []authorizer.ResourceRuleInfo, _ []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	if _, isNode := NodeOf(u); isNode {
		return nil, nil, true, errNodeRules
	}
	return nil, nil, false, nil
}

// allows decides about a request of a node's user. The reason is why it isn't allowed; it may be "". A user who is no node isn't
// allowed anything.
func (n *nodeAuthorizer) allows(asks authorizer.Attributes) (allowed bool, reason string) {
	name, isNode := NodeOf(asks.GetUser())
	if !isNode {
		return false, ""
	}
	if name == "" {
		return false, fmt.Sprintf("unknown node for user %q", asks.GetUser().GetName())
	}
	if asks.IsResourceRequest() {
		q := nodeRequest{n, name, asks}
		switch (schema.GroupResource{Group: asks.GetAPIGroup(), Resource: asks.GetResource()}) {
		case schema.GroupResource{Resource: "secrets"}:
			return q.read(q.seesSecret)
		case schema.GroupResource{Resource: "configmaps"}:
			return q.read(func() bool { return q.anyPod(usesConfigMap) })
		case schema.GroupResource{Resource: "persistentvolumeclaims"}:
			if asks.GetSubresource() == "status" {
				return q.update(func() bool { return q.anyPod(usesClaim) })
			}
			return q.get(func() bool { return q.anyPod(usesClaim) })
		case schema.GroupResource{Resource: "persistentvolumes"}:
			return q.get(q.seesVolume)
		case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}:
			return q.get(func() bool { return q.anyPod(usesResourceClaim) })
		case schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}:
			return q.get(func() bool { return q.names(attachmentsPrefix, "") })
		case schema.GroupResource{Resource: "serviceaccounts"}:
			return q.account()
		case schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}:
			return q.lease()
		case schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}:
			return q.csiNode()
		case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}:
			return q.slice()
		case schema.GroupResource{Resource: "nodes"}:
			return q.nodeItself()
		case schema.GroupResource{Resource: "pods"}:
			return q.pod()
		case schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}:
			return q.podCertificate()
		}
	}
	q := askedOf(asks)
	return n.rules().allows(&q), ""
}

// nodeRequest is one request of a node's.
type nodeRequest struct {
	*nodeAuthorizer
	node string
	authorizer.Attributes
}

// verb tells whether the request's verb is one of these.
func (q *nodeRequest) verb(names ...string) bool { return slices.Contains(names, q.GetVerb()) }

// related decides by whether the node has to do with the object.
func (q *nodeRequest) related(sees func() bool) (bool, string) {
	switch {
	case q.GetName() == "":
		return false, "No Object name found"
	case !sees():
		return false, fmt.Sprintf("no relationship found between node '%s' and this object", q.node)
	}
	return true, ""
}

func (q *nodeRequest) get(sees func() bool) (bool, string) {
	switch {
	case !q.verb("get"):
		return false, "can only get individual resources of this type"
	case q.GetSubresource() != "":
		return false, "cannot get subresource"
	}
	return q.related(sees)
}

func (q *nodeRequest) read(sees func() bool) (bool, string) {
	switch {
	case !q.verb("get", "list", "watch"):
		return false, "can only read resources of this type"
	case q.GetSubresource() != "":
		return false, "cannot read subresource"
	case q.GetNamespace() == "":
		return false, "can only read namespaced object of this type"
	}
	return q.related(sees)
}

func (q *nodeRequest) update(sees func() bool) (bool, string) {
	if !q.verb("update", "patch") {
		return false, "can only get/update/patch this type"
	}
	return q.related(sees)
}

// account lets a node read the accounts of its pods, and issue tokens for them.
func (q *nodeRequest) account() (bool, string) {
	uses := func() bool { return q.anyPod(usesAccount) }
	switch {
	case q.verb("get") && q.GetSubresource() == "":
		return q.read(uses)
	case !q.verb("create") || q.GetName() == "":
		return false, "can only create tokens for individual service accounts"
	case q.GetSubresource() != "token":
		return false, "can only create token subresource of serviceaccount"
	}
	return q.related(uses)
}

// lease lets a node keep its own Lease. Of a new one NodeRestriction looks at the name.
func (q *nodeRequest) lease() (bool, string) {
	switch {
	case !q.verb("get", "create", "update", "patch", "delete"):
		return false, "can only get, create, update, patch, or delete a node lease"
	case q.GetNamespace() != corev1.NamespaceNodeLease:
		return false, fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case !q.verb("create") && q.GetName() != q.node:
		return false, "can only access node lease with the same name as the requesting node"
	}
	return true, ""
}

// csiNode lets a node keep its own CSINode, but for the status, which is behind a feature gate that is off.
func (q *nodeRequest) csiNode() (bool, string) {
	switch part := q.GetSubresource(); {
	case part == "status":
		return false, "CSINode status access requires CSIVolumeHealth feature"
	case part != "":
		return false, "cannot authorize CSINode subresources"
	case !q.verb("get", "create", "update", "patch", "delete"):
		return false, "can only get, create, update, patch, or delete a CSINode"
	case !q.verb("create") && q.GetName() != q.node:
		return false, "can only access CSINode with the same name as the requesting node"
	}
	return true, ""
}

// slice lets a node keep the ResourceSlices that name it. Of a new one NodeRestriction looks at the name.
func (q *nodeRequest) slice() (bool, string) {
	switch {
	case q.GetSubresource() != "":
		return false, "cannot authorize ResourceSlice subresources"
	case q.verb("create"):
		return true, ""
	case q.verb("get", "update", "patch", "delete"):
		return q.related(func() bool { return q.names(slicesPrefix, "") })
	case !q.verb("watch", "list", "deletecollection"):
		return false, "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"
	case !q.selects("spec.nodeName"):
		return false, "can only list/watch/deletecollection resourceslices with nodeName field selector"
	}
	return true, ""
}

func (q *nodeRequest) podCertificate() (bool, string) {
	switch {
	case q.GetSubresource() != "":
		return false, "nodes may not access the status subresource of PodCertificateRequests"
	case q.verb("create"):
		return true, ""
	case q.verb("get"):
		return q.related(func() bool { return q.names(podCertsPrefix, q.GetNamespace()) })
	case !q.verb("list", "watch"):
		return false, fmt.Sprintf("nodes may not %s podcertificaterequests", q.GetVerb())
	case !q.selects("spec.nodeName"):
		return false, "can only list/watch podcertificaterequests with nodeName field selector"
	}
	return true, ""
}

// nodeItself lets a node see its own Node; NodeRestriction looks at which one it writes.
func (q *nodeRequest) nodeItself() (bool, string) {
	switch part := q.GetSubresource(); {
	case part == "" && q.verb("create", "update", "patch"), part == "status" && q.verb("update", "patch"):
		return true, ""
	case part != "" || !q.verb("get", "list", "watch"):
		return false, ""
	case q.GetName() == "":
		return false, fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", q.node)
	case q.GetName() != q.node:
		return false, fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", q.node, q.GetName())
	}
	return true, ""
}

// pod lets a node see its pods; NodeRestriction looks at which ones it writes.
func (q *nodeRequest) pod() (bool, string) {
	sees := func() bool { return q.names(podsPrefix, q.GetNamespace()) }
	switch part := q.GetSubresource(); {
	case part == "" && q.verb("get"):
		return q.get(sees)
	case part == "" && q.verb("list", "watch"):
		if q.selects("spec.nodeName") {
			return true, ""
		}
		if q.GetName() != "" {
			return q.related(sees)
		}
		return false, "can only list/watch pods with spec.nodeName field selector"
	case part == "" && q.verb("create", "delete"), part == "status" && q.verb("update", "patch"), part == "eviction" && q.verb("create"):
		return true, ""
	}
	return false, ""
}

// selects tells whether a list is of objects with the node in a field.
func (q *nodeRequest) selects(field string) bool {
	terms, _ := q.GetFieldSelector()
	return slices.ContainsFunc(terms, func(t fields.Requirement) bool {
		return t.Field == field && t.Operator == selection.Equals && t.Value == q.node
	})
}

// names tells whether the object that is asked for names the node as its own in spec.nodeName.
func (q *nodeRequest) names(p storage.Prefix, namespace string) bool {
	o := q.registry.Catalog().Object(p, namespace, q.GetName())
	return o != nil && o.Err == nil && o.Field("spec.nodeName") == q.node
}

// podsIn yields the node's pods in a namespace that have a text somewhere, as JSON. Those that stand for a file on the node use nothing.
func (q *nodeRequest) podsIn(namespace string, has ...string) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		in, err := podsPrefix.Namespace(namespace)
		pods := q.registry.Catalog().Prefix(podsPrefix)
		if err != nil || pods == nil {
			return
		}
		snapshot, keys := pods.Cache().Snapshot(), storage.Range{Prefix: in}
		found, indexed := snapshot.Where("spec.nodeName", q.node, keys)
		if !indexed {
			found = snapshot.In(keys)
		}
		for o := range found {
			if o.Err != nil || !slices.ContainsFunc(has, func(text string) bool { return bytes.Contains(o.Raw(), []byte(`"`+text+`"`)) }) {
				continue // no need to decode it
			}
			pod := &corev1.Pod{}
			if json.Unmarshal(o.Raw(), pod) != nil || pod.Spec.NodeName != q.node {
				continue
			}
			if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror && !yield(pod) {
				return
			}
		}
	}
}

// anyPod tells whether a pod of the node uses what is asked for.
func (q *nodeRequest) anyPod(uses func(pod *corev1.Pod, name string) bool) bool {
	return q.anyPodUses(uses, q.GetNamespace(), q.GetName())
}

func (q *nodeRequest) anyPodUses(uses func(pod *corev1.Pod, name string) bool, namespace, name string) bool {
	for pod := range q.podsIn(namespace, name, "ephemeral", "resourceClaims") { // the last two make names of other ones
		if uses(pod, name) {
			return true
		}
	}
	return false
}

// seesSecret tells whether a pod of the node uses a Secret, or a volume that does.
func (q *nodeRequest) seesSecret() bool {
	if q.anyPod(usesSecret) {
		return true
	}
	text := []byte(`"` + q.GetName() + `"`)
	for o := range q.registry.Catalog().Cached(schema.GroupResource{Resource: "persistentvolumes"}, "", "") {
		pv := &corev1.PersistentVolume{}
		if o.Err != nil || !bytes.Contains(o.Raw(), text) || json.Unmarshal(o.Raw(), pv) != nil || pv.Spec.ClaimRef == nil {
			continue
		}
		named := corev1.SecretReference{Namespace: q.GetNamespace(), Name: q.GetName()}
		if slices.Contains(volumeSecrets(pv), named) && q.anyPodUses(usesClaim, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name) {
			return true
		}
	}
	return false
}

// seesVolume tells whether a pod of the node uses a volume.
func (q *nodeRequest) seesVolume() bool {
	o, pv := q.registry.Catalog().Object(volumesPrefix, "", q.GetName()), &corev1.PersistentVolume{}
	if o == nil || o.Err != nil || json.Unmarshal(o.Raw(), pv) != nil || pv.Spec.ClaimRef == nil {
		return false
	}
	return q.anyPodUses(usesClaim, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}
