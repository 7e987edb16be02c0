package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// NodeRestriction lets nodes write their own objects only: their Node without labels and taints that steer pods, the pods on them,
// their Lease and CSINode, and tokens and certificates for their pods.
type NodeRestriction struct {
	registry   *registry.Registry
	authorizer authorizer.UnconditionalAuthorizer
}

// NewNodeRestriction returns the plug-in.
func NewNodeRestriction(r *registry.Registry, a authorizer.UnconditionalAuthorizer) *NodeRestriction {
	return &NodeRestriction{registry: r, authorizer: a}
}

var (
	accountsPrefix = storage.PrefixOf("", "serviceaccounts")
	claimsPrefix   = storage.PrefixOf("", "persistentvolumeclaims")
	volumesPrefix  = storage.PrefixOf("", "persistentvolumes")
	driversPrefix  = storage.PrefixOf("storage.k8s.io", "csidrivers")
)

// Concerns is about what nodes write of the resources with restrictions, and about whatever is written by a node that nobody knows.
func (*NodeRestriction) Concerns(a *registry.Attributes) bool {
	node, isNode := access.NodeOf(a.User)
	return isNode && (node == "" || restricted[a.Resource.GroupResource()] != nil)
}

// restricted are the rules by the resource. An error that is no Status is 403.
var restricted = map[schema.GroupResource]func(n *NodeRestriction, ctx context.Context, node string, r *request) error{
	{Resource: "pods"}:                   (*NodeRestriction).pod,
	{Resource: "nodes"}:                  (*NodeRestriction).node,
	{Resource: "persistentvolumeclaims"}: (*NodeRestriction).claim,
	{Resource: "serviceaccounts"}:        (*NodeRestriction).token,
	{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}:     (*NodeRestriction).podCertificate,
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: (*NodeRestriction).signing,
	{Group: "coordination.k8s.io", Resource: "leases"}:                     (*NodeRestriction).lease,
	{Group: "storage.k8s.io", Resource: "csinodes"}:                        (*NodeRestriction).csiNode,
	{Group: "resource.k8s.io", Resource: "resourceslices"}:                 (*NodeRestriction).slice,
}

// Admit judges. Kubernetes' plug-in does so before other plug-ins change the object, too.
func (n *NodeRestriction) Admit(ctx context.Context, r *request) (registry.Verdict, error) {
	node, _ := access.NodeOf(r.User)
	if node == "" {
		return registry.Refuse(fmt.Errorf("could not determine node from user %q", r.User.GetName())), nil
	}
	err := restricted[r.Resource.GroupResource()](n, ctx, node, r)
	if registry.Unable(err) {
		return registry.Verdict{}, err
	}
	return registry.Refuse(err), nil
}

func (n *NodeRestriction) pod(ctx context.Context, node string, r *request) error {
	switch r.Subresource {
	case "":
		switch r.Operation {
		case registry.Create:
			return n.mirror(ctx, node, r)
		case registry.Delete:
			if textOf(r.Old.Object["spec"], "nodeName") != node {
				return fmt.Errorf("node %q can only delete pods with spec.nodeName set to itself", node)
			}
			return nil
		}
		return fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", r.Operation, node)
	case "status":
		return podStatus(node, r)
	case "eviction":
		pod, err := found[corev1.Pod](ctx, n, podsPrefix, r.Namespace, r.Name)
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != node {
			return fmt.Errorf("node %s can only evict pods with spec.nodeName set to itself", node)
		}
		return nil
	}
	return fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", r.Subresource)
}

// found is find of what must be there. The error is 404 if it isn't.
func found[T any](ctx context.Context, n *NodeRestriction, p storage.Prefix, namespace, name string) (*T, error) {
	value, err := find[T](ctx, n.registry, p, namespace, name)
	if err == nil && value == nil {
		kind := map[storage.Prefix]string{podsPrefix: "pod", nodesPrefix: "node", accountsPrefix: "serviceaccount",
			claimsPrefix: "persistentvolumeclaim", volumesPrefix: "persistentvolume", driversPrefix: "csidriver"}[p]
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: p.Group(), Resource: kind}, name)
	}
	return value, err
}

// mirror lets a node make a pod that stands for a file on it, and uses nothing of the API.
func (n *NodeRestriction) mirror(ctx context.Context, name string, r *request) error {
	pod, err := decode[corev1.Pod](r.Object)
	if err != nil {
		return err
	}
	if _, is := pod.Annotations[mirrorAnnotation]; !is {
		return fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods", mirrorAnnotation, name)
	}
	if pod.Spec.NodeName != name {
		return fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", name)
	}
	if len(pod.OwnerReferences) > 1 {
		return fmt.Errorf("node %q can only create pods with a single owner reference set to itself", name)
	}
	if len(pod.OwnerReferences) == 0 {
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", name)
	}
	switch owner := pod.OwnerReferences[0]; {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != name:
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", name)
	case owner.Controller == nil || !*owner.Controller:
		return fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", name)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", name)
	}
	node, err := found[metav1.PartialObjectMetadata](ctx, n, nodesPrefix, "", name)
	if err != nil {
		return err
	}
	if uid := pod.OwnerReferences[0].UID; uid != node.UID {
		return fmt.Errorf("node %s UID mismatch: expected %s got %s", name, uid, node.UID)
	}
	what, err := refersTo(pod)
	if err != nil {
		return fmt.Errorf("error checking mirror pod for API references: %w", err)
	}
	if what != "" {
		return fmt.Errorf("node %q can not create pods that reference %s", name, what)
	}
	return nil
}

// refersTo returns what a pod uses of the API; "" if it uses nothing. An error is of a volume that nobody knows.
func refersTo(pod *corev1.Pod) (string, error) {
	switch {
	case pod.Spec.ServiceAccountName != "":
		return "serviceaccounts", nil
	case len(access.SecretNames(pod)) > 0:
		return "secrets", nil
	case len(access.ConfigMapNames(pod)) > 0:
		return "configmaps", nil
	case len(pod.Spec.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range pod.Spec.Volumes {
		if what, err := volumeRefersTo(&pod.Spec.Volumes[i]); what != "" || err != nil {
			return what, err
		}
	}
	return "", nil
}

func volumeRefersTo(v *corev1.Volume) (string, error) {
	switch {
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)", nil
	case v.Secret != nil:
		return "secrets (via secret volumes)", nil
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)", nil
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)", nil
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims", nil
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)", nil
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)", nil
	case v.Projected == nil:
		if v.VolumeSource == (corev1.VolumeSource{}) {
			return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
		}
		return "", nil // of the node itself, or of another server
	}
	for _, s := range v.Projected.Sources {
		switch {
		case s.ConfigMap != nil:
			return "configmaps (via projected volumes)", nil
		case s.Secret != nil:
			return "secrets (via projected volumes)", nil
		case s.ServiceAccountToken != nil:
			return "serviceaccounts (via projected volumes)", nil
		case s.ClusterTrustBundle != nil:
			return "clustertrustbundles", nil
		case s.PodCertificate != nil:
			return "podcertificates", nil
		case s.DownwardAPI == nil:
			return "", fmt.Errorf("unknown source for projected volume %q", v.Name)
		}
	}
	return "", nil
}

// podStatus lets a node report on its pods.
func podStatus(node string, r *request) error {
	if r.Operation != registry.Update {
		return fmt.Errorf("unexpected operation %q", r.Operation)
	}
	if textOf(r.Old.Object["spec"], "nodeName") != node {
		return fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node)
	}
	if !maps.Equal(r.Old.GetLabels(), r.Object.GetLabels()) {
		return fmt.Errorf("node %q cannot update labels through pod status", node)
	}
	old, _ := r.Old.Object["status"].(map[string]any)
	status, _ := r.Object.Object["status"].(map[string]any)
	for _, part := range []struct{ field, name string }{
		{"resourceClaimStatuses", "resource claim statues"}, {"extendedResourceClaimStatus", "extended resource claim status"},
		{"nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"},
	} {
		if !equality.Semantic.DeepEqual(old[part.field], status[part.field]) {
			return fmt.Errorf("node %q cannot update %s", node, part.name)
		}
	}
	return nil
}

// claim lets a node say how large a volume has become.
func (n *NodeRestriction) claim(_ context.Context, node string, r *request) error {
	if r.Subresource != "status" {
		return errors.New("may only update PVC status")
	}
	if r.Operation != registry.Update {
		return fmt.Errorf("unexpected operation %q", r.Operation)
	}
	same := func(u *unstructured.Unstructured) map[string]any {
		u = u.DeepCopy()
		u.SetResourceVersion("")
		u.SetManagedFields(nil)
		for _, field := range []string{"capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"} {
			unstructured.RemoveNestedField(u.Object, "status", field)
		}
		return u.Object
	}
	if old, claim := same(r.Old), same(r.Object); !equality.Semantic.DeepEqual(old, claim) {
		return fmt.Errorf("node %q is not allowed to update fields other than status.quantity and status.conditions: %v", node, diff.Diff(old, claim))
	}
	return nil
}

// node lets a node keep its own Node, but for what says which pods run on it.
func (n *NodeRestriction) node(_ context.Context, name string, r *request) error {
	if r.Name != name {
		return fmt.Errorf("node %q is not allowed to modify node %q", name, r.Name)
	}
	if r.Operation == registry.Delete {
		return nil
	}
	node, err := decode[corev1.Node](r.Object)
	if err != nil {
		return err
	}
	if r.Operation == registry.Create {
		//lint:ignore SA1019 it's deprecated, and kubelets may not send it
		if node.Spec.ConfigSource != nil {
			return fmt.Errorf("node %q is not allowed to create pods with a non-nil configSource", name)
		}
		if labels := forbiddenLabels(node.Labels, nil); len(labels) > 0 {
			return fmt.Errorf("node %q is not allowed to set the following labels: %s", name, strings.Join(labels, ", "))
		}
		return nil
	}
	old, err := decode[corev1.Node](r.Old)
	switch {
	case err != nil:
		return err
	//lint:ignore SA1019 likewise
	case node.Spec.ConfigSource != nil && !equality.Semantic.DeepEqual(node.Spec.ConfigSource, old.Spec.ConfigSource):
		return fmt.Errorf("node %q is not allowed to update configSource to a new non-nil configSource", name)
	case !equality.Semantic.DeepEqual(node.Spec.Taints, old.Spec.Taints):
		return fmt.Errorf("node %q is not allowed to modify taints", name)
	case !equality.Semantic.DeepEqual(node.OwnerReferences, old.OwnerReferences):
		return fmt.Errorf("node %q is not allowed to modify ownerReferences", name)
	}
	if labels := forbiddenLabels(node.Labels, old.Labels); len(labels) > 0 {
		return fmt.Errorf("is not allowed to modify labels: %s", strings.Join(labels, ", "))
	}
	return nil
}

// kubeletLabels are labels of Kubernetes' that a kubelet sets.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// forbiddenLabels returns, sorted, the names of those labels that differ and that a node mustn't change: those of the namespace
// node-restriction.kubernetes.io, and those of Kubernetes' that no kubelet sets.
func forbiddenLabels(labels, old map[string]string) (names []string) {
	below := func(namespace, of string) bool { return namespace == of || strings.HasSuffix(namespace, "."+of) }
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, old)
	for name := range all {
		value, has := labels[name]
		if before, had := old[name]; has == had && value == before {
			continue
		}
		namespace, _, ok := strings.Cut(name, "/")
		if !ok {
			continue
		}
		kubelets := slices.Contains(kubeletLabels, name) || below(namespace, corev1.LabelNamespaceSuffixKubelet) || below(namespace, corev1.LabelNamespaceSuffixNode)
		if below(namespace, corev1.LabelNamespaceNodeRestriction) || (below(namespace, "kubernetes.io") || below(namespace, "k8s.io")) && !kubelets {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (n *NodeRestriction) lease(_ context.Context, node string, r *request) error {
	if r.Namespace != corev1.NamespaceNodeLease {
		return fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	if r.Name != node {
		return errors.New("can only access node lease with the same name as the requesting node")
	}
	return nil
}

func (n *NodeRestriction) csiNode(_ context.Context, node string, r *request) error {
	if r.Name != node {
		return errors.New("can only access CSINode with the same name as the requesting node")
	}
	if r.Subresource == "status" {
		return errors.New("CSIVolumeHealth feature gate is disabled")
	}
	return nil
}

// slice looks at the name of the node where the Node authorizer doesn't know it.
func (n *NodeRestriction) slice(_ context.Context, node string, r *request) error {
	switch {
	case r.Operation == registry.Create && textOf(r.Object.Object["spec"], "nodeName") != node:
		return errors.New("can only create ResourceSlice with the same NodeName as the requesting node")
	case r.Operation == registry.Delete && textOf(r.Old.Object["spec"], "nodeName") != node:
		return errors.New("can only delete ResourceSlice with the same NodeName as the requesting node")
	}
	return nil
}
