package document

import (
	"slices"
	"strings"
)

func text(v any) string {
	s, _ := v.(string)
	return s
}

// Map returns the member at a path that is a mapping; nil if there's none.
func Map(o Object, path ...string) map[string]any {
	for _, name := range path {
		o, _ = o[name].(map[string]any)
	}
	return o
}

// Text returns the member at a path that is a string; "" if there's none.
func Text(o Object, path ...string) string {
	last := len(path) - 1
	return text(Map(o, path[:last]...)[path[last]])
}

// Group returns the group of the object's apiVersion, "" for the core's.
func Group(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// NameOf returns metadata.name.
func NameOf(o Object) string { return Text(o, "metadata", "name") }

// NamespaceOf returns metadata.namespace.
func NamespaceOf(o Object) string { return Text(o, "metadata", "namespace") }

// Owners returns the object's ownerReferences. They may be changed in place.
func Owners(o Object) (all []map[string]any) {
	list, _ := Map(o, "metadata")["ownerReferences"].([]any)
	for _, each := range list {
		if owner, ok := each.(map[string]any); ok {
			all = append(all, owner)
		}
	}
	return all
}

// serverSet are the members of metadata that the server sets, whatever a client sends.
var serverSet = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"}

// ClearMetadata removes from the object's metadata what the server sets.
func ClearMetadata(o Object) {
	m := Map(o, "metadata")
	for _, name := range serverSet {
		delete(m, name)
	}
	dropEmpty(o, "metadata", "labels")
	dropEmpty(o, "metadata", "annotations")
}

// dropEmpty removes a mapping without members.
func dropEmpty(o Object, path ...string) {
	last := len(path) - 1
	if in := Map(o, path[:last]...); in != nil && len(Map(in, path[last])) == 0 {
		delete(in, path[last])
	}
}

// Drop removes the member at a path, and the mapping that it was in if nothing else is there.
func Drop(o Object, path ...string) {
	last := len(path) - 1
	delete(Map(o, path[:last]...), path[last])
	if last > 0 {
		dropEmpty(o, path[:last]...)
	}
}

// order has the kinds that others need, as kind.group, in the order in which they're applied. Any other is applied after those before "*".
var order = []string{
	"CustomResourceDefinition.apiextensions.k8s.io", "Namespace", "PriorityClass.scheduling.k8s.io", "RuntimeClass.node.k8s.io", "StorageClass.storage.k8s.io",
	"ServiceAccount", "Secret", "ConfigMap", "ClusterRole.rbac.authorization.k8s.io", "Role.rbac.authorization.k8s.io",
	"ClusterRoleBinding.rbac.authorization.k8s.io", "RoleBinding.rbac.authorization.k8s.io", "PersistentVolume", "PersistentVolumeClaim", "Node", "Service",
	"Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "CronJob.batch", "Job.batch", "ReplicaSet.apps", "Pod",
	"*",
	// What may refuse or change others comes when they're there.
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io", "MutatingAdmissionPolicy.admissionregistration.k8s.io",
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io", "MutatingWebhookConfiguration.admissionregistration.k8s.io",
	"APIService.apiregistration.k8s.io",
}

// Rank says when a kind is applied: one of a lower rank comes before.
func Rank(apiVersion, kind string) int {
	if group := Group(apiVersion); group != "" {
		kind += "." + group
	}
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return slices.Index(order, "*")
}

// Last returns the number above all ranks.
func Last() int { return len(order) }
