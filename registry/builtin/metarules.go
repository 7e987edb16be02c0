package builtin

import (
	"slices"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Kubernetes has two functions that check metadata: that of its core also looks at the names of finalizers. Which one a kind has, and
// whether an update is checked as a new object, too, is up to the author of the kind's validation.

// plainFinalizers are the kinds whose finalizers may have any name. An Event is one of the core's.
var plainFinalizers = []string{
	"Lease", "PodDisruptionBudget", "RuntimeClass", "APIService", "SelfSubjectReview", "TokenReview", "SelfSubjectRulesReview",
	"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
}

// metaAsNew are the kinds of which an update is checked as a new object, too.
var metaAsNew = []string{
	"Pod", "ConfigMap", "Secret", "ServiceAccount", "Endpoints", "LimitRange", "Node", "PersistentVolume", "PersistentVolumeClaim",
	"ControllerRevision", "EndpointSlice", "FlowSchema", "PriorityLevelConfiguration", "Ingress", "IngressClass", "IPAddress",
	"ResourceClaim", "ResourceClaimTemplate", "StorageClass", "VolumeAttachment", "CSINode", "VolumeAttributesClass", "ClusterTrustBundle",
	"StorageVersionMigration",
	"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
}

// metaRules are the rules of a kind's metadata.
func metaRules(kind, group string) (rules registry.MetaRules) {
	if !slices.Contains(plainFinalizers, kind) && !(kind == "Event" && group == "") {
		rules |= registry.QualifiedFinalizers
	}
	if kind == "Event" {
		rules |= registry.MetaLast
	}
	if slices.Contains(metaAsNew, kind) {
		rules |= registry.MetaAsNew
	}
	if kind == "APIService" {
		rules |= registry.CausesAgain
	}
	return rules
}
