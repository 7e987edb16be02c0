package builtin

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules for where pods run.

func (c *podCheck) affinity(a *corev1.Affinity, at *field.Path) {
	if a == nil {
		return
	}
	if n := a.NodeAffinity; n != nil {
		at := at.Child("nodeAffinity")
		if required := n.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			c.nodeSelector(required, at.Child("requiredDuringSchedulingIgnoredDuringExecution"))
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			term, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
			c.weight(term.Weight, at)
			c.nodes(&term.Preference, false, at.Child("preference"))
		}
	}
	if p := a.PodAffinity; p != nil {
		c.nearTo(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		c.nearTo(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
}

func (c *podCheck) weight(weight int32, at *field.Path) {
	if weight <= 0 || weight > maxWeight {
		c.add(field.Invalid(at.Child("weight"), weight, "must be in the range 1-100"))
	}
}

// nodeSelector checks what selects nodes.
func (c *check) nodeSelector(s *corev1.NodeSelector, at *field.Path) {
	at = at.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		c.add(field.Required(at, "must have at least one node selector term"))
	}
	for i := range s.NodeSelectorTerms {
		c.nodes(&s.NodeSelectorTerms[i], true, at.Index(i))
	}
}

// nodes checks a term that selects nodes. Only what is required needs values that labels can have.
func (c *check) nodes(term *corev1.NodeSelectorTerm, required bool, at *field.Path) {
	for i, r := range term.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				c.add(field.Required(at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				c.add(field.Forbidden(at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				c.add(field.Required(at.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'"))
			}
		default:
			c.add(field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		c.add(metavalidation.ValidateLabelName(r.Key, at.Child("key"))...)
		for j, value := range r.Values {
			if required {
				c.young(nodeValues, problems(at.Child("values").Index(j), value, validation.IsValidLabelValue(value))...)
			}
		}
	}
	for i, r := range term.MatchFields {
		at := at.Child("matchFields").Index(i)
		switch {
		case r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn:
			c.add(field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		case len(r.Values) != 1:
			c.add(field.Required(at.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
		if r.Key != metav1.ObjectNameField {
			c.add(field.Invalid(at.Child("key"), r.Key, "not a valid field selector key"))
			continue
		}
		for j, value := range r.Values {
			c.subdomain(at.Child("values").Index(j), value)
		}
	}
}

// nearTo checks the terms that select pods to be near to, or far from.
func (c *podCheck) nearTo(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) {
	for i := range required {
		c.pods(&required[i], at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
	}
	for i := range preferred {
		at := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		c.weight(preferred[i].Weight, at)
		c.pods(&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))
	}
}

func (c *podCheck) pods(t *corev1.PodAffinityTerm, at *field.Path) {
	c.youngSelector(affinityValues, t.LabelSelector, at.Child("labelSelector"))
	c.youngSelector(affinityValues, t.NamespaceSelector, at.Child("namespaceSelector"))
	for _, name := range t.Namespaces {
		c.label(at.Child("namespace"), name)
	}
	c.labelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, at)
	if t.TopologyKey == "" {
		c.add(field.Required(at.Child("topologyKey"), "can not be empty"))
	}
	c.add(metavalidation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
}

// labelKeys checks the labels by whose values pods are selected that have the same as this one, or another.
func (c *podCheck) labelKeys(match, mismatch []string, selector *metav1.LabelSelector, at *field.Path) {
	for _, group := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		if len(group.keys) > 0 && selector == nil {
			c.add(field.Forbidden(at.Child(group.name), "must not be specified when labelSelector is not set"))
			continue
		}
		for i, key := range group.keys {
			c.add(metavalidation.ValidateLabelName(key, at.Child(group.name).Index(i))...)
		}
	}
	if selector != nil {
		for n, e := range selector.MatchExpressions {
			_, known := selector.MatchLabels[e.Key]
			known = known || slices.ContainsFunc(selector.MatchExpressions[:n], func(other metav1.LabelSelectorRequirement) bool { return other.Key == e.Key })
			if i := slices.Index(match, e.Key); i >= 0 && known {
				c.add(field.Invalid(at.Index(i), e.Key, "exists in both matchLabelKeys and labelSelector"))
			}
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			c.add(field.Invalid(at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
}

// spread checks how evenly pods are to be spread.
func (c *podCheck) spread(at *field.Path) {
	all := c.spec.TopologySpreadConstraints
	for i := range all {
		s, at := &all[i], at.Index(i)
		if s.MaxSkew <= 0 {
			c.add(field.Invalid(at.Child("maxSkew"), s.MaxSkew, "must be greater than zero"))
		}
		if s.TopologyKey == "" {
			c.add(field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		among(c, at.Child("whenUnsatisfiable"), &s.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		if slices.ContainsFunc(all[i+1:], func(other corev1.TopologySpreadConstraint) bool {
			return other.TopologyKey == s.TopologyKey && other.WhenUnsatisfiable == s.WhenUnsatisfiable
		}) {
			c.add(field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", s.TopologyKey, s.WhenUnsatisfiable)))
		}
		if n := s.MinDomains; n != nil {
			if *n <= 0 {
				c.add(field.Invalid(at.Child("minDomains"), *n, "must be greater than zero"))
			}
			if s.WhenUnsatisfiable != corev1.DoNotSchedule {
				c.add(field.Invalid(at.Child("minDomains"), *n, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, s.WhenUnsatisfiable)))
			}
		}
		among(c, at.Child("nodeAffinityPolicy"), s.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		among(c, at.Child("nodeTaintsPolicy"), s.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		c.labelKeys(s.MatchLabelKeys, nil, s.LabelSelector, at)
		c.young(spreadSelectors, metavalidation.ValidateLabelSelector(s.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	}
}
