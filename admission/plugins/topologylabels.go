package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// TopologyLabels is the plug-in PodTopologyLabels: a pod that gets its node has that node's zone and region as labels. A Binding hands
// its labels on to the pod.
type TopologyLabels struct{ registry *registry.Registry }

// NewTopologyLabels returns the plug-in.
func NewTopologyLabels(r *registry.Registry) *TopologyLabels { return &TopologyLabels{r} }

// Concerns is about new pods and bindings.
func (*TopologyLabels) Concerns(a *registry.Attributes) bool {
	binds := a.Operation == registry.Create && a.Subresource == "binding" && a.Resource.Resource == "pods" && a.Resource.Group == ""
	return binds || writesPods(a, registry.Create)
}

// Admit copies the labels over those of the same names. A node that isn't there has none.
func (t *TopologyLabels) Admit(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	name := ""
	if r.Subresource == "" {
		name = textOf(r.Object.Object["spec"], "nodeName")
	} else if target := r.Object.Object["target"]; textOf(target, "kind") == "Node" {
		name = textOf(target, "name")
	}
	if name == "" {
		return pass, nil
	}
	node, err := lookUp(ctx, t.registry, nodesPrefix, "", name)
	if err != nil || node == nil {
		return pass, err
	}
	labels := r.Object.GetLabels()
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, has := node.Labels.Get(key); has {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	if labels != nil {
		r.Object.SetLabels(labels)
	}
	return pass, nil
}
