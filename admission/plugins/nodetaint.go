package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// TaintNodes is the plug-in TaintNodesByCondition: each new Node has the taint of one that isn't ready, which the node controller
// takes away. So no pod gets on a Node before that controller has seen it.
type TaintNodes struct{}

// Concerns is about new Nodes.
func (TaintNodes) Concerns(a *registry.Attributes) bool {
	return changes(a, "", "nodes", registry.Create)
}

// Admit adds the taint, unless the Node has it.
func (TaintNodes) Admit(_ context.Context, r *request) (pass registry.Verdict, err error) {
	spec := specOf(r.Object)
	taints := items(spec["taints"])
	for _, t := range taints {
		if textOf(t, "key") == corev1.TaintNodeNotReady && textOf(t, "effect") == string(corev1.TaintEffectNoSchedule) {
			return pass, nil
		}
	}
	spec["taints"] = append(taints, map[string]any{"key": corev1.TaintNodeNotReady, "effect": string(corev1.TaintEffectNoSchedule)})
	return pass, nil
}
