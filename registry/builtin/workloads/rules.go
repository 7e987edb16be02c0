package workloads

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/volumes"
)

// The rules for workloads.

// validateOwnSelector checks the selector of a workload, and that it selects the template's pods. kind is what Kubernetes calls the workload;
// "" for one whose selector may be empty. values tells whether any may be in it. readable tells whether the selector is one: of some kinds Kubernetes doesn't look at the template otherwise.
func validateOwnSelector(selector *metav1.LabelSelector, kind string, labelled map[string]string, values bool) (errs, unmatched field.ErrorList, readable bool) {
	spec := field.NewPath("spec")
	at := spec.Child("selector")
	none := field.ErrorList{field.Invalid(spec.Child("template", "metadata", "labels"), labelled, "`selector` does not match template `labels`")}
	if selector == nil {
		return field.ErrorList{field.Required(at, "")}, none, true
	}
	errs = metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: values}, at)
	if kind != "" && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at, selector, "empty selector is invalid for "+kind))
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	readable = err == nil
	switch {
	case err != nil && kind == "deployment":
		errs = append(errs, field.Invalid(at, selector, "invalid label selector"))
	case err != nil && kind == "statefulset":
		errs = append(errs, field.Invalid(at, selector, ""))
	case err != nil: // what is wrong with it has been said
	case !s.Empty() && !s.Matches(labels.Set(labelled)):
		unmatched = none
	}
	return errs, unmatched, readable
}

// validateEndless checks the template of pods that run for ever. before is what it was, and kind what Kubernetes calls what runs them.
func validateEndless(t, before *corev1.PodTemplateSpec, kind string) field.ErrorList {
	at := field.NewPath("spec", "template")
	return append(pods.ValidateTemplate(t, before, at), endless(&t.Spec, kind)...)
}

func endless(s *corev1.PodSpec, kind string) (errs field.ErrorList) {
	at := field.NewPath("spec", "template", "spec")
	if s.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(at.Child("restartPolicy"), s.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if s.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(at.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}

// validateShare checks a number of pods, or a share of them in percent.
func validateShare(n intstr.IntOrString, at *field.Path) field.ErrorList {
	if n.Type == intstr.String {
		return rules.Problems(at, n, validation.IsValidPercent(n.StrVal))
	}
	return rules.NotNegative(at, &n.IntVal)
}

// percentOf returns the number of a share that is one.
func percentOf(n intstr.IntOrString) (percent int, is bool) {
	if n.Type != intstr.String || len(validation.IsValidPercent(n.StrVal)) > 0 {
		return 0, false
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(n.StrVal, "%"))
	return percent, err == nil
}

// isZero tells whether a number or a share is none. What isn't one is.
func isZero(n intstr.IntOrString) bool {
	if percent, is := percentOf(n); is {
		return percent == 0
	}
	return n.IntValue() == 0
}

func atMostAll(n intstr.IntOrString, at *field.Path) field.ErrorList {
	if percent, is := percentOf(n); is && percent > wholePercent {
		return field.ErrorList{field.Invalid(at, n, "must not be greater than 100%")}
	}
	return nil
}

func validateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	s, spec := &d.Spec, field.NewPath("spec")
	errs := rules.NotNegative(spec.Child("replicas"), s.Replicas)
	selector, unmatched, readable := validateOwnSelector(s.Selector, "deployment", s.Template.Labels, false)
	errs = append(errs, selector...)
	errs = append(errs, unmatched...)
	if readable {
		errs = append(errs, validateEndless(&s.Template, pods.TemplateBefore(old), "ReplicaSet")...)
	}
	errs = append(errs, validateRollout(&s.Strategy, spec.Child("strategy"))...)
	errs = append(errs, rules.NotNegative(spec.Child("minReadySeconds"), &s.MinReadySeconds)...)
	errs = append(errs, rules.NotNegative(spec.Child("revisionHistoryLimit"), s.RevisionHistoryLimit)...)
	if n := s.ProgressDeadlineSeconds; n != nil {
		errs = append(errs, rules.NotNegative(spec.Child("progressDeadlineSeconds"), n)...)
		if *n <= s.MinReadySeconds {
			errs = append(errs, field.Invalid(spec.Child("progressDeadlineSeconds"), *n, "must be greater than minReadySeconds"))
		}
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, spec.Child("selector"))...)
	}
	return errs
}

func validateRollout(s *appsv1.DeploymentStrategy, at *field.Path) (errs field.ErrorList) {
	rolling := at.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'")}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
	default:
		return field.ErrorList{field.NotSupported(at, s, []string{"Recreate", "RollingUpdate"})}
	}
	unavailable, surge := *s.RollingUpdate.MaxUnavailable, *s.RollingUpdate.MaxSurge // both have defaults
	errs = append(errs, validateShare(unavailable, rolling.Child("maxUnavailable"))...)
	errs = append(errs, validateShare(surge, rolling.Child("maxSurge"))...)
	if isZero(unavailable) && isZero(surge) {
		errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, atMostAll(unavailable, rolling.Child("maxUnavailable"))...)
}

func validateStatefulSet(set, old *appsv1.StatefulSet) (errs field.ErrorList) {
	s, spec := &set.Spec, field.NewPath("spec")
	switch s.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(spec.Child("podManagementPolicy"), s.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'"))
	}
	errs = append(errs, validateSetUpdates(&s.UpdateStrategy, spec.Child("updateStrategy"))...)
	if p := s.PersistentVolumeClaimRetentionPolicy; p != nil {
		at := spec.Child("persistentVolumeClaimRetentionPolicy")
		for _, when := range []struct {
			name   string
			policy appsv1.PersistentVolumeClaimRetentionPolicyType
		}{{"whenDeleted", p.WhenDeleted}, {"whenScaled", p.WhenScaled}} {
			if when.policy != appsv1.RetainPersistentVolumeClaimRetentionPolicyType && when.policy != appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
				errs = append(errs, field.NotSupported(at.Child(when.name), when.policy, []string{"Retain", "Delete"}))
			}
		}
	}
	if old == nil {
		c := &volumes.Check{}
		for i := range s.VolumeClaimTemplates {
			c.ClaimSpec(&s.VolumeClaimTemplates[i].Spec, spec.Child("volumeClaimTemplates").Index(i).Child("spec"))
		}
		errs = append(errs, c.Errs...)
	}
	errs = append(errs, rules.NotNegative(spec.Child("replicas"), s.Replicas)...)
	errs = append(errs, rules.NotNegative(spec.Child("minReadySeconds"), &s.MinReadySeconds)...)
	if s.Ordinals != nil {
		errs = append(errs, rules.NotNegative(spec.Child("ordinals.start"), &s.Ordinals.Start)...)
	}
	if s.ServiceName != "" && old == nil {
		errs = append(errs, rules.Problems(spec.Child("serviceName"), s.ServiceName, validation.IsDNS1123Label(s.ServiceName))...)
	}
	selector, unmatched, readable := validateOwnSelector(s.Selector, "statefulset", s.Template.Labels, false)
	errs = append(errs, selector...)
	errs = append(errs, unmatched...)
	if t := ofSet(s); readable {
		errs = append(errs, pods.ValidateTemplate(t, pods.TemplateBefore(old), spec.Child("template"))...)
		errs = append(errs, pods.ValidateTemplateMeta(t, pods.TemplateBefore(old), spec.Child("template"))...) // twice, as there
	}
	errs = append(errs, endless(&s.Template.Spec, "StatefulSet")...)
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, spec.Child("selector"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates, spec.Child("volumeClaimTemplates"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.ServiceName, old.Spec.ServiceName, spec.Child("serviceName"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.PodManagementPolicy, old.Spec.PodManagementPolicy, spec.Child("podManagementPolicy"))...)
	}
	return errs
}

// ofSet returns the template of a StatefulSet with the volumes that its claims become; the set gives each pod a name of its own.
func ofSet(s *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	t := s.Template
	t.Spec.Subdomain, t.Spec.Hostname = "", ""
	if len(s.VolumeClaimTemplates) == 0 {
		return &t
	}
	t.Spec.Volumes = nil
	for i, claim := range s.VolumeClaimTemplates {
		if slices.ContainsFunc(s.VolumeClaimTemplates[i+1:], func(later corev1.PersistentVolumeClaim) bool { return later.Name == claim.Name }) {
			continue // the last of a name is the set's
		}
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}})
	}
	for _, v := range s.Template.Spec.Volumes {
		if !slices.ContainsFunc(s.VolumeClaimTemplates, func(claim corev1.PersistentVolumeClaim) bool { return claim.Name == v.Name }) {
			t.Spec.Volumes = append(t.Spec.Volumes, v)
		}
	}
	return &t
}

func validateSetUpdates(u *appsv1.StatefulSetUpdateStrategy, at *field.Path) (errs field.ErrorList) {
	rolling := at.Child("rollingUpdate")
	switch {
	case u.Type == appsv1.OnDeleteStatefulSetStrategyType && u.RollingUpdate != nil:
		return field.ErrorList{field.Invalid(rolling, u.RollingUpdate, "only allowed for updateStrategy 'RollingUpdate'")}
	case u.Type == appsv1.OnDeleteStatefulSetStrategyType || u.Type == appsv1.RollingUpdateStatefulSetStrategyType && u.RollingUpdate == nil:
		return nil
	case u.Type != appsv1.RollingUpdateStatefulSetStrategyType:
		return field.ErrorList{field.Invalid(at, u, "must be 'RollingUpdate' or 'OnDelete'")}
	}
	errs = rules.NotNegative(rolling.Child("partition"), u.RollingUpdate.Partition)
	if n := u.RollingUpdate.MaxUnavailable; n != nil {
		at := rolling.Child("maxUnavailable")
		errs = append(errs, validateShare(*n, at)...)
		if isZero(*n) {
			errs = append(errs, field.Invalid(at, *n, "cannot be 0"))
		}
		errs = append(errs, atMostAll(*n, at)...)
	}
	return errs
}

func validateDaemonSet(d, old *appsv1.DaemonSet) (errs field.ErrorList) {
	s, spec := &d.Spec, field.NewPath("spec")
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, spec.Child("selector"))...)
	}
	selector, unmatched, _ := validateOwnSelector(s.Selector, "daemonset", s.Template.Labels, old != nil && metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector))
	errs = append(errs, unmatched...)
	if s.Selector != nil { // Kubernetes says only that nothing is selected
		errs = append(errs, selector...)
	}
	errs = append(errs, validateEndless(&s.Template, pods.TemplateBefore(old), "DaemonSet")...)
	errs = append(errs, rules.NotNegative(spec.Child("minReadySeconds"), &s.MinReadySeconds)...)
	at := spec.Child("updateStrategy")
	switch s.UpdateStrategy.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		at := at.Child("rollingUpdate")
		unavailable, surge := *s.UpdateStrategy.RollingUpdate.MaxUnavailable, *s.UpdateStrategy.RollingUpdate.MaxSurge // both have defaults
		errs = append(errs, validateShare(unavailable, at.Child("maxUnavailable"))...)
		errs = append(errs, validateShare(surge, at.Child("maxSurge"))...)
		errs = append(errs, atMostAll(unavailable, at.Child("maxUnavailable"))...)
		errs = append(errs, atMostAll(surge, at.Child("maxSurge"))...)
		switch {
		case !isZero(unavailable) && !isZero(surge):
			errs = append(errs, field.Invalid(at.Child("maxSurge"), surge, "may not be set when maxUnavailable is non-zero"))
		case isZero(unavailable) && isZero(surge):
			errs = append(errs, field.Required(at.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
		}
	default:
		errs = append(errs, field.NotSupported(at, s.UpdateStrategy, []string{"RollingUpdate", "OnDelete"}))
	}
	return append(errs, rules.NotNegative(spec.Child("revisionHistoryLimit"), s.RevisionHistoryLimit)...)
}

func validateReplicaSet(r, old *appsv1.ReplicaSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := rules.NotNegative(spec.Child("replicas"), r.Spec.Replicas)
	errs = append(errs, rules.NotNegative(spec.Child("minReadySeconds"), &r.Spec.MinReadySeconds)...)
	selector, unmatched, readable := validateOwnSelector(r.Spec.Selector, "deployment", r.Spec.Template.Labels, false) // so Kubernetes says
	errs = append(errs, selector...)
	errs = append(errs, unmatched...)
	if readable {
		errs = append(errs, validateEndless(&r.Spec.Template, pods.TemplateBefore(old), "ReplicaSet")...)
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(r.Spec.Selector, old.Spec.Selector, spec.Child("selector"))...)
	}
	return errs
}

func validateReplicationController(r, old *corev1.ReplicationController) field.ErrorList {
	spec := field.NewPath("spec")
	errs := rules.NotNegative(spec.Child("minReadySeconds"), &r.Spec.MinReadySeconds)
	if len(r.Spec.Selector) == 0 {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	}
	errs = append(errs, rules.NotNegative(spec.Child("replicas"), r.Spec.Replicas)...)
	t := r.Spec.Template
	if t == nil {
		return append(errs, field.Required(spec.Child("template"), ""))
	}
	if !labels.SelectorFromSet(r.Spec.Selector).Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	return append(errs, validateEndless(t, pods.TemplateBefore(old), "ReplicationController")...)
}

func validateRevision(r, old *appsv1.ControllerRevision) (errs field.ErrorList) {
	errs = append(errs, rules.NotNegative(field.NewPath("revision"), &r.Revision)...)
	data := field.NewPath("data")
	if old != nil {
		if string(r.Data.Raw) != string(old.Data.Raw) {
			errs = append(errs, field.Invalid(data, r.Data, "field is immutable"))
		}
		return errs
	}
	var v any
	if r.Data.Raw == nil {
		return append(errs, field.Required(data, "data is mandatory"))
	}
	if err := json.Unmarshal(r.Data.Raw, &v); err != nil {
		return append(errs, field.Invalid(data, "<value omitted>", "error parsing data: "+err.Error()))
	}
	switch v.(type) {
	case nil:
		errs = append(errs, field.Required(data, "data is mandatory"))
	case map[string]any:
	default:
		errs = append(errs, field.Required(data, "data must be a valid JSON object"))
	}
	return errs
}
