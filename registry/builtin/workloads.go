package builtin

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	}
	orPointTo(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	orDefault(&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orDefault(&s.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range s.VolumeClaimTemplates {
		c := &s.VolumeClaimTemplates[i]
		orDefault(&c.APIVersion, "v1")
		orDefault(&c.Kind, "PersistentVolumeClaim")
		defaultClaim(c)
	}
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	defaultPodSpec(&s.Template.Spec)
	orPointTo(&s.RevisionHistoryLimit, defaultRevisions)
	orDefault(&s.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		orPointTo(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		orPointTo(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		orPointTo(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
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

// prepareJob gives a new job the selector by which it knows its pods, unless the client brings one.
func prepareJob(j, old *batchv1.Job, _ string) {
	if old != nil || isTrue(j.Spec.ManualSelector) {
		return
	}
	if j.Spec.Template.Labels == nil {
		j.Spec.Template.Labels = map[string]string{}
	}
	uid := string(j.UID)
	for _, label := range []struct{ name, value string }{
		{"controller-uid", uid}, {"job-name", j.Name}, {batchv1.ControllerUidLabel, uid}, {batchv1.JobNameLabel, j.Name},
	} {
		if _, ok := j.Spec.Template.Labels[label.name]; !ok {
			j.Spec.Template.Labels[label.name] = label.value
		}
	}
	orPointTo(&j.Spec.Selector, metav1.LabelSelector{})
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = uid
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

// validateTemplate checks a workload's template: its containers, and that the selector selects its pods.
func validateTemplate(selector *metav1.LabelSelector, t *corev1.PodTemplateSpec) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	at := spec.Child("selector")
	errs = append(errs, validatePodSpec(&t.Spec, spec.Child("template", "spec"))...)
	if selector == nil {
		return append(errs, field.Required(at, ""))
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)...)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return append(errs, field.Invalid(at, selector, "empty selector is invalid for this kind"))
	}
	if s, err := metav1.LabelSelectorAsSelector(selector); err == nil && !s.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	return errs
}

// alwaysRestarts wants what workloads that run for ever need.
func alwaysRestarts(s *corev1.PodSpec) field.ErrorList {
	if s.RestartPolicy == corev1.RestartPolicyAlways {
		return nil
	}
	return field.ErrorList{field.NotSupported(field.NewPath("spec", "template", "spec", "restartPolicy"), s.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways})}
}

func validateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	errs := validateTemplate(d.Spec.Selector, &d.Spec.Template)
	errs = append(errs, alwaysRestarts(&d.Spec.Template.Spec)...)
	spec := field.NewPath("spec")
	errs = append(errs, notNegative(spec.Child("replicas"), d.Spec.Replicas)...)
	errs = append(errs, notNegative(spec.Child("minReadySeconds"), &d.Spec.MinReadySeconds)...)
	errs = append(errs, oneOf(spec.Child("strategy", "type"), d.Spec.Strategy.Type, appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType)...)
	if old != nil {
		errs = append(errs, unchanged(spec.Child("selector"), d.Spec.Selector, old.Spec.Selector)...)
	}
	return errs
}

func validateStatefulSet(s, old *appsv1.StatefulSet) field.ErrorList {
	errs := validateTemplate(s.Spec.Selector, &s.Spec.Template)
	errs = append(errs, alwaysRestarts(&s.Spec.Template.Spec)...)
	spec := field.NewPath("spec")
	errs = append(errs, notNegative(spec.Child("replicas"), s.Spec.Replicas)...)
	errs = append(errs, oneOf(spec.Child("podManagementPolicy"), s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)...)
	if old != nil {
		errs = append(errs, unchanged(spec.Child("selector"), s.Spec.Selector, old.Spec.Selector)...)
		errs = append(errs, unchanged(spec.Child("serviceName"), s.Spec.ServiceName, old.Spec.ServiceName)...)
		errs = append(errs, unchanged(spec.Child("podManagementPolicy"), s.Spec.PodManagementPolicy, old.Spec.PodManagementPolicy)...)
	}
	return errs
}

func validateDaemonSet(d, old *appsv1.DaemonSet) field.ErrorList {
	errs := validateTemplate(d.Spec.Selector, &d.Spec.Template)
	errs = append(errs, alwaysRestarts(&d.Spec.Template.Spec)...)
	if old != nil {
		errs = append(errs, unchanged(field.NewPath("spec", "selector"), d.Spec.Selector, old.Spec.Selector)...)
	}
	return errs
}

func validateReplicaSet(r, old *appsv1.ReplicaSet) field.ErrorList {
	errs := validateTemplate(r.Spec.Selector, &r.Spec.Template)
	errs = append(errs, alwaysRestarts(&r.Spec.Template.Spec)...)
	errs = append(errs, notNegative(field.NewPath("spec", "replicas"), r.Spec.Replicas)...)
	if old != nil {
		errs = append(errs, unchanged(field.NewPath("spec", "selector"), r.Spec.Selector, old.Spec.Selector)...)
	}
	return errs
}

func validateReplicationController(r, _ *corev1.ReplicationController) field.ErrorList {
	spec := field.NewPath("spec")
	errs := notNegative(spec.Child("replicas"), r.Spec.Replicas)
	if r.Spec.Template == nil {
		return append(errs, field.Required(spec.Child("template"), ""))
	}
	if len(r.Spec.Selector) == 0 {
		return append(errs, field.Required(spec.Child("selector"), ""))
	}
	errs = append(errs, validateTemplate(&metav1.LabelSelector{MatchLabels: r.Spec.Selector}, r.Spec.Template)...)
	return append(errs, alwaysRestarts(&r.Spec.Template.Spec)...)
}

func validateJob(j, old *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateTemplate(j.Spec.Selector, &j.Spec.Template)
	errs = append(errs, validateJobSpec(&j.Spec, spec)...)
	if old != nil {
		errs = append(errs, unchanged(spec.Child("selector"), j.Spec.Selector, old.Spec.Selector)...)
		errs = append(errs, unchanged(spec.Child("completionMode"), j.Spec.CompletionMode, old.Spec.CompletionMode)...)
	}
	return errs
}

func validateJobSpec(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	errs := notNegative(spec.Child("parallelism"), s.Parallelism)
	errs = append(errs, notNegative(spec.Child("completions"), s.Completions)...)
	errs = append(errs, notNegative(spec.Child("backoffLimit"), s.BackoffLimit)...)
	if p := s.Template.Spec.RestartPolicy; p == corev1.RestartPolicyAlways {
		errs = append(errs, field.Required(spec.Child("template", "spec", "restartPolicy"), `valid values: "OnFailure", "Never"`))
	}
	return errs
}

func validateCronJob(c, _ *batchv1.CronJob) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if c.Spec.Schedule == "" {
		errs = append(errs, field.Required(spec.Child("schedule"), ""))
	} else if n := len(strings.Fields(c.Spec.Schedule)); n != 5 && !strings.HasPrefix(c.Spec.Schedule, "@") {
		errs = append(errs, field.Invalid(spec.Child("schedule"), c.Spec.Schedule, fmt.Sprintf("expected exactly 5 fields, found %d", n)))
	}
	if z := c.Spec.TimeZone; z != nil {
		if *z == "" {
			errs = append(errs, field.Invalid(spec.Child("timeZone"), z, "timeZone must be nil or non-empty string"))
		} else if _, err := time.LoadLocation(*z); err != nil {
			errs = append(errs, field.Invalid(spec.Child("timeZone"), z, err.Error()))
		}
	}
	errs = append(errs, oneOf(spec.Child("concurrencyPolicy"), c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	errs = append(errs, notNegative(spec.Child("successfulJobsHistoryLimit"), c.Spec.SuccessfulJobsHistoryLimit)...)
	errs = append(errs, notNegative(spec.Child("failedJobsHistoryLimit"), c.Spec.FailedJobsHistoryLimit)...)
	at := spec.Child("jobTemplate", "spec")
	errs = append(errs, validatePodSpec(&c.Spec.JobTemplate.Spec.Template.Spec, at.Child("template", "spec"))...)
	return append(errs, validateJobSpec(&c.Spec.JobTemplate.Spec, at)...)
}

func validateRevision(r, old *appsv1.ControllerRevision) field.ErrorList {
	errs := field.ErrorList{}
	if r.Revision < 0 {
		errs = append(errs, field.Invalid(field.NewPath("revision"), r.Revision, "must be greater than or equal to 0"))
	}
	if old != nil {
		errs = append(errs, unchanged(field.NewPath("data"), string(r.Data.Raw), string(old.Data.Raw))...)
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
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, s); err != nil {
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
