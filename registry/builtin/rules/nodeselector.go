package rules

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NodeSelector checks what selects nodes.
func (c *Check) NodeSelector(s *corev1.NodeSelector, at *field.Path) {
	at = at.Child("nodeSelectorTerms")
	c.Lack(len(s.NodeSelectorTerms) == 0, at, "must have at least one node selector term")
	for i := range s.NodeSelectorTerms {
		c.Nodes(&s.NodeSelectorTerms[i], true, at.Index(i))
	}
}

// Nodes checks a term that selects nodes. Only what is required needs values that labels can have.
func (c *Check) Nodes(term *corev1.NodeSelectorTerm, required bool, at *field.Path) {
	for i, r := range term.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			c.Lack(len(r.Values) == 0, at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			c.Forbid(len(r.Values) > 0, at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			c.Lack(len(r.Values) != 1, at.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")
		default:
			c.Add(field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		c.Add(metavalidation.ValidateLabelName(r.Key, at.Child("key"))...)
		for j, value := range r.Values {
			if required {
				c.Young(nodeValues, Problems(at.Child("values").Index(j), value, validation.IsValidLabelValue(value))...)
			}
		}
	}
	for i, r := range term.MatchFields {
		at := at.Child("matchFields").Index(i)
		switch {
		case r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn:
			c.Add(field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		case len(r.Values) != 1:
			c.Add(field.Required(at.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
		if r.Key != metav1.ObjectNameField {
			c.Add(field.Invalid(at.Child("key"), r.Key, "not a valid field selector key"))
			continue
		}
		for j, value := range r.Values {
			c.Subdomain(at.Child("values").Index(j), value)
		}
	}
}

// OldLabels are labels of nodes that clients should no longer use, and what they're told.
var OldLabels = map[string]string{
	"beta.kubernetes.io/arch":           `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":             `deprecated since v1.14; use "kubernetes.io/os" instead`,
	corev1.LabelFailureDomainBetaRegion: `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	corev1.LabelFailureDomainBetaZone:   `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	corev1.LabelInstanceType:            `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":      "deprecated since v1.9",
	corev1.PreferAvoidPodsAnnotationKey: "deprecated since v1.22; use Taints and Tolerations instead",
	"node-role.kubernetes.io/master":    `use "node-role.kubernetes.io/control-plane" instead`,
}
