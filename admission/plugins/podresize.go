package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// PodResize is the plug-in PodResizeValidator: a pod that has a node can't be resized beyond what the node has, nor on a node that
// doesn't run Linux.
type PodResize struct {
	registry *registry.Registry
}

// NewPodResize returns the plug-in.
func NewPodResize(r *registry.Registry) *PodResize { return &PodResize{registry: r} }

// Concerns is about the subresource resize.
func (*PodResize) Concerns(a *registry.Attributes) bool { return resizes(a) }

func resizes(a *registry.Attributes) bool {
	return a.Operation == registry.Update && a.Subresource == "resize" && a.Resource.Resource == "pods" && a.Resource.Group == ""
}

// Validate compares what the pod requests with what the node has.
func (p *PodResize) Validate(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	if !changesOnNode(r) {
		return pass, nil
	}
	pod, err := decode[corev1.Pod](r.Object)
	if err != nil {
		return registry.Refuse(err), nil
	}
	node, err := find[corev1.Node](ctx, p.registry, nodesPrefix, "", pod.Spec.NodeName)
	if err != nil {
		return pass, err
	}
	if node == nil {
		return registry.Refuse(fmt.Errorf("node %q not found", pod.Spec.NodeName)), nil
	}
	if os, says := node.Labels[corev1.LabelOSStable]; says && os != string(corev1.Linux) {
		return refuseResize(r, "UnsupportedPlatform", fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, os)), nil
	}
	if err := fits(pod, node.Status.Allocatable); err != nil {
		return refuseResize(r, "NodeCapacity", err), nil
	}
	return pass, nil
}

// refuseResize refuses with a cause, by which a client tells why.
func refuseResize(r *request, cause metav1.CauseType, why error) registry.Verdict {
	status := apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, why)
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	return registry.Refuse(status)
}

// fits returns an error if a pod requests more cpu or memory than there is.
func fits(pod *corev1.Pod, allocatable corev1.ResourceList) error {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var lacks []string
	if cpu, has := requests.Cpu(), allocatable.Cpu(); cpu.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), has.MilliValue()))
	}
	if memory, has := requests.Memory(), allocatable.Memory(); memory.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), has.Value()))
	}
	if len(lacks) == 0 {
		return nil
	}
	return errors.New("node didn't have enough allocatable resources: " + strings.Join(lacks, "; "))
}

// changesOnNode tells whether the spec of a pod that has a node is changed.
func changesOnNode(r *request) bool {
	return textOf(r.Object.Object["spec"], "nodeName") != "" && !equality.Semantic.DeepEqual(r.Object.Object["spec"], r.Old.Object["spec"])
}

// DeclaredFeatures is the plug-in NodeDeclaredFeatureValidator: a pod isn't changed in a way that its node doesn't know, as the node's
// status.declaredFeatures says. Kubernetes' own library says which changes need which features.
type DeclaredFeatures struct {
	registry *registry.Registry
}

// NewDeclaredFeatures returns the plug-in.
func NewDeclaredFeatures(r *registry.Registry) *DeclaredFeatures {
	return &DeclaredFeatures{registry: r}
}

// featuresOf is the release of Kubernetes' whose nodes are asked for their features. What all nodes of a release have isn't asked for.
var featuresOf = version.MajorMinor(1, 37)

// Concerns is about updates of pods and their subresource resize.
func (*DeclaredFeatures) Concerns(a *registry.Attributes) bool {
	return resizes(a) || writesPods(a, registry.Update)
}

// Validate compares what the change needs with what the node has.
func (p *DeclaredFeatures) Validate(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	if !changesOnNode(r) {
		return pass, nil
	}
	pod, err := decode[corev1.Pod](r.Object)
	if err != nil {
		return registry.Refuse(err), nil
	}
	old, err := decode[corev1.Pod](r.Old)
	if err != nil {
		return registry.Refuse(err), nil
	}
	if !alike(&pod.Spec, &old.Spec) {
		return pass, nil
	}
	needs, err := nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(info(old), info(pod), featuresOf)
	if err != nil {
		return registry.Refuse(fmt.Errorf("failed to infer pod capability requirements: %w", err)), nil
	}
	if needs.IsEmpty() {
		return pass, nil
	}
	node, err := find[corev1.Node](ctx, p.registry, nodesPrefix, "", pod.Spec.NodeName)
	if err != nil {
		return pass, err
	}
	if node == nil {
		return registry.Refuse(fmt.Errorf("node %q not found", pod.Spec.NodeName)), nil
	}
	match, err := nodedeclaredfeatures.DefaultFramework.MatchNode(needs, node)
	if err != nil {
		return registry.Refuse(fmt.Errorf("failed to match pod requirements against node %q: %w", node.Name, err)), nil
	}
	if !match.IsMatch {
		return registry.Refuse(fmt.Errorf("pod update requires features %s which are not available on node %q", strings.Join(match.UnsatisfiedRequirements, ", "), node.Name)), nil
	}
	return pass, nil
}

func info(pod *corev1.Pod) *nodedeclaredfeatures.PodInfo {
	return &nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}

// alike tells whether two specs have the same init containers and volumes, by their places, which the library relies on.
func alike(a, b *corev1.PodSpec) bool {
	if len(a.InitContainers) != len(b.InitContainers) || len(a.Volumes) != len(b.Volumes) {
		return false
	}
	for i := range a.Volumes {
		if (a.Volumes[i].EmptyDir == nil) != (b.Volumes[i].EmptyDir == nil) {
			return false
		}
	}
	return true
}
