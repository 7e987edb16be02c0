package builtin

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// What runs pods: apps, batch, and ReplicationController.

// The defaults of workloads, as the API documentation names them.
const (
	defaultReplicas         int32 = 1
	defaultRevisions        int32 = 10
	defaultProgressDeadline int32 = 600 // seconds
	defaultBackoffLimit     int32 = 6
	defaultSuccessfulJobs   int32 = 3
	defaultFailedJobs       int32 = 1
)

const wholePercent = 100 // all of something

func defaultDeployment(d *appsv1.Deployment) {
	s := &d.Spec
	defaultPodSpec(&s.Template.Spec)
	orPointTo(&s.Replicas, defaultReplicas)
	orPointTo(&s.RevisionHistoryLimit, defaultRevisions)
	orPointTo(&s.ProgressDeadlineSeconds, defaultProgressDeadline)
	orDefault(&s.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if s.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return
	}
	orPointTo(&s.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
	orPointTo(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
	orPointTo(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
}

func defaultStatefulSet(set *appsv1.StatefulSet) {
	s := &set.Spec
	defaultPodSpec(&s.Template.Spec)
	orPointTo(&s.Replicas, defaultReplicas)
	orPointTo(&s.RevisionHistoryLimit, defaultRevisions)
	orDefault(&s.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if u := &s.UpdateStrategy; u.Type == "" { // a type that is given stays without what it leaves out
		u.Type = appsv1.RollingUpdateStatefulSetStrategyType
		orPointTo(&u.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if u := s.UpdateStrategy; u.Type == appsv1.RollingUpdateStatefulSetStrategyType && u.RollingUpdate != nil {
		orPointTo(&u.RollingUpdate.Partition, 0)
		orPointTo(&u.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	orPointTo(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	orDefault(&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orDefault(&s.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range s.VolumeClaimTemplates {
		c := &s.VolumeClaimTemplates[i]
		c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim" // whatever was sent
		defaultClaim(c)
	}
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	if _, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]; !ok {
		setTemplateGeneration(d, 0)
	}
	defaultPodSpec(&s.Template.Spec)
	orPointTo(&s.RevisionHistoryLimit, defaultRevisions)
	orDefault(&s.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		orPointTo(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		orPointTo(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		orPointTo(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
}

// prepareDaemonSet counts the changes of the template, as Kubernetes did before generations.
func prepareDaemonSet(d, old *appsv1.DaemonSet, subresource string) {
	if old == nil {
		setTemplateGeneration(d, max(templateGeneration(d), 1))
		return
	}
	n := templateGeneration(old)
	if subresource == "" && !equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
		n++
	}
	setTemplateGeneration(d, n)
}

func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, _ := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	return n
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	d.Annotations = maps.Clone(d.Annotations)
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

func defaultReplicaSet(r *appsv1.ReplicaSet) {
	defaultPodSpec(&r.Spec.Template.Spec)
	orPointTo(&r.Spec.Replicas, defaultReplicas)
}

// defaultReplicationController takes labels and selector from the template.
func defaultReplicationController(r *corev1.ReplicationController) {
	orPointTo(&r.Spec.Replicas, defaultReplicas)
	if r.Spec.Template == nil {
		return
	}
	defaultPodSpec(&r.Spec.Template.Spec)
	if len(r.Spec.Selector) == 0 {
		r.Spec.Selector = maps.Clone(r.Spec.Template.Labels)
	}
	if len(r.Labels) == 0 {
		r.Labels = maps.Clone(r.Spec.Template.Labels)
	}
}

func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	defaultPodSpec(&s.Template.Spec)
	if s.Completions == nil && s.Parallelism == nil {
		orPointTo(&s.Completions, 1)
	}
	orPointTo(&s.Parallelism, 1)
	limit := defaultBackoffLimit
	if s.BackoffLimitPerIndex != nil {
		limit = math.MaxInt32
	}
	orPointTo(&s.BackoffLimit, limit)
	orPointTo(&s.CompletionMode, batchv1.NonIndexedCompletion)
	orPointTo(&s.Suspend, false)
	orPointTo(&s.ManualSelector, false)
	replacement := batchv1.TerminatingOrFailed
	if p := s.PodFailurePolicy; p != nil {
		replacement = batchv1.Failed
		defaultFailurePolicy(p)
	}
	orPointTo(&s.PodReplacementPolicy, replacement)
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(s.Template.Labels)
	}
}

func defaultFailurePolicy(p *batchv1.PodFailurePolicy) {
	for i := range p.Rules {
		for j := range p.Rules[i].OnPodConditions {
			orDefault(&p.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
		}
	}
}

// prepareJob gives a new job the selector by which it knows its pods, unless the client brings one. A job without labels has those of the
// template, as it has in Kubernetes whenever it's read.
func prepareJob(j, old *batchv1.Job, _ string) {
	if old != nil {
		return
	}
	if !isTrue(j.Spec.ManualSelector) {
		generateSelector(j)
	}
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(j.Spec.Template.Labels)
	}
}

func generateSelector(j *batchv1.Job) {
	if j.Spec.Template.Labels == nil {
		j.Spec.Template.Labels = map[string]string{}
	}
	for _, label := range jobLabels(j) {
		if _, ok := j.Spec.Template.Labels[label.name]; !ok {
			j.Spec.Template.Labels[label.name] = label.value
		}
	}
	orPointTo(&j.Spec.Selector, metav1.LabelSelector{})
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
}

func defaultCronJob(c *batchv1.CronJob) {
	s := &c.Spec
	defaultPodSpec(&s.JobTemplate.Spec.Template.Spec)
	if p := s.JobTemplate.Spec.PodFailurePolicy; p != nil {
		defaultFailurePolicy(p)
	}
	orDefault(&s.ConcurrencyPolicy, batchv1.AllowConcurrent)
	orPointTo(&s.Suspend, false)
	orPointTo(&s.SuccessfulJobsHistoryLimit, defaultSuccessfulJobs)
	orPointTo(&s.FailedJobsHistoryLimit, defaultFailedJobs)
}

// validateOwnSelector checks the selector of a workload, and that it selects the template's pods. kind is what Kubernetes calls the workload;
// "" for one whose selector may be empty. readable tells whether the selector is one: of some kinds Kubernetes doesn't look at the template otherwise.
func validateOwnSelector(selector *metav1.LabelSelector, kind string, labelled map[string]string) (errs, unmatched field.ErrorList, readable bool) {
	spec := field.NewPath("spec")
	at := spec.Child("selector")
	none := field.ErrorList{field.Invalid(spec.Child("template", "metadata", "labels"), labelled, "`selector` does not match template `labels`")}
	if selector == nil {
		return field.ErrorList{field.Required(at, "")}, none, true
	}
	errs = metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)
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

// validateEndless checks the template of pods that run for ever. kind is what Kubernetes calls what runs them.
func validateEndless(t *corev1.PodTemplateSpec, kind string) field.ErrorList {
	at := field.NewPath("spec", "template")
	return append(validateTemplate(t, at), endless(&t.Spec, kind)...)
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
		return problems(at, n, validation.IsValidPercent(n.StrVal))
	}
	return notNegative(at, &n.IntVal)
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
	errs := notNegative(spec.Child("replicas"), s.Replicas)
	selector, unmatched, readable := validateOwnSelector(s.Selector, "deployment", s.Template.Labels)
	errs = append(errs, selector...)
	errs = append(errs, unmatched...)
	if readable {
		errs = append(errs, validateEndless(&s.Template, "ReplicaSet")...)
	}
	errs = append(errs, validateRollout(&s.Strategy, spec.Child("strategy"))...)
	errs = append(errs, notNegative(spec.Child("minReadySeconds"), &s.MinReadySeconds)...)
	errs = append(errs, notNegative(spec.Child("revisionHistoryLimit"), s.RevisionHistoryLimit)...)
	if n := s.ProgressDeadlineSeconds; n != nil {
		errs = append(errs, notNegative(spec.Child("progressDeadlineSeconds"), n)...)
		if *n <= s.MinReadySeconds {
			errs = append(errs, field.Invalid(spec.Child("progressDeadlineSeconds"), *n, "must be greater than minReadySeconds"))
		}
	}
	if old != nil {
		errs = append(errs, unchanged(spec.Child("selector"), s.Selector, old.Spec.Selector)...)
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
		c := &check{}
		for i := range s.VolumeClaimTemplates {
			c.claimSpec(&s.VolumeClaimTemplates[i].Spec, spec.Child("volumeClaimTemplates").Index(i).Child("spec"))
		}
		errs = append(errs, c.errs...)
	}
	errs = append(errs, notNegative(spec.Child("replicas"), s.Replicas)...)
	errs = append(errs, notNegative(spec.Child("minReadySeconds"), &s.MinReadySeconds)...)
	if s.Ordinals != nil {
		errs = append(errs, notNegative(spec.Child("ordinals.start"), &s.Ordinals.Start)...)
	}
	if s.ServiceName != "" && old == nil {
		errs = append(errs, problems(spec.Child("serviceName"), s.ServiceName, validation.IsDNS1123Label(s.ServiceName))...)
	}
	selector, unmatched, readable := validateOwnSelector(s.Selector, "statefulset", s.Template.Labels)
	errs = append(errs, selector...)
	errs = append(errs, unmatched...)
	if t := ofSet(s); readable {
		errs = append(errs, validateTemplate(t, spec.Child("template"))...)
		errs = append(errs, validateTemplateMeta(t, spec.Child("template"))...) // twice, as there
	}
	errs = append(errs, endless(&s.Template.Spec, "StatefulSet")...)
	if old != nil {
		errs = append(errs, unchanged(spec.Child("selector"), s.Selector, old.Spec.Selector)...)
		errs = append(errs, unchanged(spec.Child("volumeClaimTemplates"), s.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates)...)
		errs = append(errs, unchanged(spec.Child("serviceName"), s.ServiceName, old.Spec.ServiceName)...)
		errs = append(errs, unchanged(spec.Child("podManagementPolicy"), s.PodManagementPolicy, old.Spec.PodManagementPolicy)...)
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
	errs = notNegative(rolling.Child("partition"), u.RollingUpdate.Partition)
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
		errs = append(errs, unchanged(spec.Child("selector"), s.Selector, old.Spec.Selector)...)
	}
	selector, unmatched, _ := validateOwnSelector(s.Selector, "daemonset", s.Template.Labels)
	errs = append(errs, unmatched...)
	if s.Selector != nil { // Kubernetes says only that nothing is selected
		errs = append(errs, selector...)
	}
	errs = append(errs, validateEndless(&s.Template, "DaemonSet")...)
	errs = append(errs, notNegative(spec.Child("minReadySeconds"), &s.MinReadySeconds)...)
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
	return append(errs, notNegative(spec.Child("revisionHistoryLimit"), s.RevisionHistoryLimit)...)
}

func validateReplicaSet(r, old *appsv1.ReplicaSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := notNegative(spec.Child("replicas"), r.Spec.Replicas)
	errs = append(errs, notNegative(spec.Child("minReadySeconds"), &r.Spec.MinReadySeconds)...)
	selector, unmatched, readable := validateOwnSelector(r.Spec.Selector, "deployment", r.Spec.Template.Labels) // so Kubernetes says
	errs = append(errs, selector...)
	errs = append(errs, unmatched...)
	if readable {
		errs = append(errs, validateEndless(&r.Spec.Template, "ReplicaSet")...)
	}
	if old != nil {
		errs = append(errs, unchanged(spec.Child("selector"), r.Spec.Selector, old.Spec.Selector)...)
	}
	return errs
}

func validateReplicationController(r, _ *corev1.ReplicationController) field.ErrorList {
	spec := field.NewPath("spec")
	errs := notNegative(spec.Child("minReadySeconds"), &r.Spec.MinReadySeconds)
	if len(r.Spec.Selector) == 0 {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	}
	errs = append(errs, notNegative(spec.Child("replicas"), r.Spec.Replicas)...)
	t := r.Spec.Template
	if t == nil {
		return append(errs, field.Required(spec.Child("template"), ""))
	}
	if !labels.SelectorFromSet(r.Spec.Selector).Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	return append(errs, validateEndless(t, "ReplicationController")...)
}

func validateRevision(r, old *appsv1.ControllerRevision) (errs field.ErrorList) {
	if r.Revision < 0 {
		errs = append(errs, field.Invalid(field.NewPath("revision"), r.Revision, "must be greater than or equal to 0"))
	}
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

// selectorText is the selector of a workload as a Scale shows it. ReplicationController has no LabelSelector but labels.
func selectorText(content map[string]any) (string, error) {
	tree := asMap(at(content, "spec.selector"))
	if tree == nil {
		return "", nil
	}
	s := &metav1.LabelSelector{}
	if isLabels(tree) {
		tree = map[string]any{"matchLabels": tree}
	}
	if err := jsontree.Into(tree, s); err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}

// isLabels tells a map of labels from a LabelSelector.
func isLabels(tree map[string]any) bool {
	for _, v := range tree {
		if _, ok := v.(string); !ok {
			return false
		}
	}
	return true
}

// selectorCell shows a selector as kubectl does: app=a,tier in (x,y).
func selectorCell(path string) func(o any) any {
	return func(o any) any {
		text, err := selectorText(map[string]any{"spec": map[string]any{"selector": at(o, path)}})
		if err != nil || text == "" {
			return none
		}
		return text
	}
}

// runs are the columns that all workloads have for -o wide.
func runs(template string, more ...column) []column {
	return wide(append(templateColumns(template), more...)...)
}

// share shows how many of how many.
func share(have, want string) func(o any) any {
	return func(o any) any { return fmt.Sprintf("%d/%d", num(at(o, have)), num(at(o, want))) }
}

func deploymentColumns() []column {
	doc := appsv1.DeploymentStatus{}.SwaggerDoc()
	return append([]column{
		cell("Ready", "Number of the pod with ready state", share("status.readyReplicas", "spec.replicas")),
		asText(number("Up-to-date", "status.updatedReplicas", doc["updatedReplicas"])),
		asText(number("Available", "status.availableReplicas", doc["availableReplicas"])),
		age(),
	}, runs("spec.template", cell("Selector", appsv1.DeploymentSpec{}.SwaggerDoc()["selector"], selectorCell("spec.selector")))...)
}

// asText declares a column of numbers as one of strings, as kube-apiserver has some.
func asText(c column) column {
	c.Type = "string"
	return c
}

func statefulSetColumns() []column {
	return append([]column{cell("Ready", "Number of the pod with ready state", share("status.readyReplicas", "spec.replicas")), age()}, runs("spec.template")...)
}

func daemonSetColumns() []column {
	doc := appsv1.DaemonSetStatus{}.SwaggerDoc()
	return append([]column{
		number("Desired", "status.desiredNumberScheduled", doc["desiredNumberScheduled"]),
		number("Current", "status.currentNumberScheduled", doc["currentNumberScheduled"]),
		number("Ready", "status.numberReady", doc["numberReady"]),
		number("Up-to-date", "status.updatedNumberScheduled", doc["updatedNumberScheduled"]),
		number("Available", "status.numberAvailable", doc["numberAvailable"]),
		cell("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"], func(o any) any { return labelsText(at(o, "spec.template.spec.nodeSelector")) }),
		age(),
	}, runs("spec.template", cell("Selector", appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"], selectorCell("spec.selector")))...)
}

func replicaSetColumns() []column {
	return replicaColumns(appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc())
}

func replicationControllerColumns() []column {
	return replicaColumns(corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc())
}

func replicaColumns(spec, status map[string]string) []column {
	return append([]column{
		number("Desired", "spec.replicas", spec["replicas"]),
		number("Current", "status.replicas", status["replicas"]),
		number("Ready", "status.readyReplicas", status["readyReplicas"]),
		age(),
	}, runs("spec.template", cell("Selector", spec["selector"], selectorCell("spec.selector")))...)
}

func jobColumns() []column {
	return append([]column{
		cell("Status", "Status of the job.", jobStatus),
		cell("Completions", batchv1.JobStatus{}.SwaggerDoc()["succeeded"], func(o any) any {
			done := num(at(o, "status.succeeded"))
			if want := at(o, "spec.completions"); want != nil {
				return fmt.Sprintf("%d/%d", done, num(want))
			}
			if parallel := num(at(o, "spec.parallelism")); parallel > 1 {
				return fmt.Sprintf("%d/1 of %d", done, parallel)
			}
			return fmt.Sprintf("%d/1", done)
		}),
		cell("Duration", "Time required to complete the job.", func(o any) any {
			began, err := time.Parse(time.RFC3339, str(at(o, "status.startTime")))
			if err != nil {
				return ""
			}
			end, err := time.Parse(time.RFC3339, str(at(o, "status.completionTime")))
			if err != nil {
				end = time.Now()
			}
			return duration.HumanDuration(end.Sub(began))
		}),
		age(),
	}, runs("spec.template", cell("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"], selectorCell("spec.selector")))...)
}

func jobStatus(o any) any {
	holds := func(condition batchv1.JobConditionType) bool {
		return slices.ContainsFunc(asList(at(o, "status.conditions")), func(c any) bool {
			return at(c, "type") == string(condition) && at(c, "status") == "True"
		})
	}
	switch {
	case holds(batchv1.JobComplete):
		return "Complete"
	case holds(batchv1.JobFailed):
		return "Failed"
	case at(o, "metadata.deletionTimestamp") != nil:
		return "Terminating"
	case holds(batchv1.JobSuspended):
		return "Suspended"
	case holds(batchv1.JobFailureTarget):
		return "FailureTarget"
	}
	return "Running"
}

func cronJobColumns() []column {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return append([]column{
		text("Schedule", "spec.schedule", spec["schedule"]),
		orNone("Timezone", "spec.timeZone", spec["timeZone"]),
		{Name: "Suspend", Type: "boolean", Description: spec["suspend"], Cell: func(o any) any { return capital(at(o, "spec.suspend")) }},
		{Name: "Active", Type: "integer", Description: status["active"], Cell: func(o any) any { return int64(len(asList(at(o, "status.active")))) }},
		cell("Last Schedule", status["lastScheduleTime"], func(o any) any {
			if last := at(o, "status.lastScheduleTime"); last != nil {
				return elapsed(last)
			}
			return none
		}),
		age(),
	}, runs("spec.jobTemplate.spec.template", cell("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"], selectorCell("spec.jobTemplate.spec.selector")))...)
}

// capital shows a boolean as kubectl does for some kinds.
func capital(v any) string {
	switch v {
	case nil:
		return unset
	case true:
		return "True"
	}
	return "False"
}

func revisionColumns() []column {
	return []column{
		cell("Controller", "Controller of the object", func(o any) any {
			for _, owner := range asList(at(o, "metadata.ownerReferences")) {
				if at(owner, "controller") == true {
					apiVersion := str(at(owner, "apiVersion"))
					kind := strings.ToLower(str(at(owner, "kind")))
					if group, _, grouped := strings.Cut(apiVersion, "/"); grouped {
						kind += "." + group
					}
					return kind + "/" + str(at(owner, "name"))
				}
			}
			return none
		}),
		asText(number("Revision", "revision", appsv1.ControllerRevision{}.SwaggerDoc()["revision"])),
		age(),
	}
}
