// Package pods has Pods and PodTemplates: their defaults, rules, warnings and columns, and what a POST to a subresource of a pod does.
//
// What package workloads has of pods are its templates: DefaultPodSpec, ValidateTemplate, WarnOfPods and WithoutGated are for both. validatePodSpec
// is where the rules of a spec begin, of which each part has a file; updates.go has what each path may change.
package pods

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
)

// Kinds are the lines of the table.
func Kinds(c *clock.Clock) []registry.Type {
	return []registry.Type{
		{Names: line.InAll(line.Names("", "v1", "Pod", "po")), New: line.New[corev1.Pod], Status: true,
			Strategy:  registry.Strategy{UnconditionalUpdate: true, ReturnDeleted: true, StatusResets: []string{"spec", "metadata.deletionTimestamp", "metadata.ownerReferences"}},
			Selection: registry.Selection{Fields: podFields, False: []string{"spec.hostNetwork"}}, Columns: podColumns, Parts: registry.Parts{Own: podParts, Absent: podStreams()},
			Default: line.Set(defaultPod), Prepare: WithoutGated(preparer{c}.preparePod), Validate: validatePod, Warnings: warnPods, Deletion: registry.Deletion[registry.Typed]{Grace: podGrace}},
		{Names: line.Names("", "v1", "Binding"), New: line.New[corev1.Binding], Unstored: registry.Unstored{Forward: &registry.Forward{APIVersion: "v1", Kind: "Pod", Subresource: "binding"}}},
		{Names: line.Names("", "v1", "PodTemplate"), New: line.New[corev1.PodTemplate],
			Strategy: registry.Strategy{UnconditionalUpdate: true, ReturnDeleted: true},
			Columns:  podTemplateColumns, Default: line.Set(defaultPodTemplate), Prepare: WithoutGated(nil), Validate: line.Rules(validatePodTemplate), Warnings: line.Warnings(warnPodTemplate)},
	}
}
