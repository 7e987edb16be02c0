package workloads

import (
	"context"
	"maps"
	"math"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/volumes"
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
	pods.DefaultPodSpec(&s.Template.Spec)
	line.OrPointTo(&s.Replicas, defaultReplicas)
	line.OrPointTo(&s.RevisionHistoryLimit, defaultRevisions)
	line.OrPointTo(&s.ProgressDeadlineSeconds, defaultProgressDeadline)
	line.OrDefault(&s.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if s.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return
	}
	line.OrPointTo(&s.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
	line.OrPointTo(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
	line.OrPointTo(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
}

func defaultStatefulSet(set *appsv1.StatefulSet) {
	s := &set.Spec
	pods.DefaultPodSpec(&s.Template.Spec)
	line.OrPointTo(&s.Replicas, defaultReplicas)
	line.OrPointTo(&s.RevisionHistoryLimit, defaultRevisions)
	line.OrDefault(&s.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if u := &s.UpdateStrategy; u.Type == "" { // a type that is given stays without what it leaves out
		u.Type = appsv1.RollingUpdateStatefulSetStrategyType
		line.OrPointTo(&u.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if u := s.UpdateStrategy; u.Type == appsv1.RollingUpdateStatefulSetStrategyType && u.RollingUpdate != nil {
		line.OrPointTo(&u.RollingUpdate.Partition, 0)
		line.OrPointTo(&u.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	line.OrPointTo(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	line.OrDefault(&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	line.OrDefault(&s.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range s.VolumeClaimTemplates {
		c := &s.VolumeClaimTemplates[i]
		c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim" // whatever was sent
		volumes.DefaultClaim(c)
	}
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	if _, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]; !ok {
		setTemplateGeneration(d, 0)
	}
	pods.DefaultPodSpec(&s.Template.Spec)
	line.OrPointTo(&s.RevisionHistoryLimit, defaultRevisions)
	line.OrDefault(&s.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		line.OrPointTo(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		line.OrPointTo(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		line.OrPointTo(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
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
	pods.DefaultPodSpec(&r.Spec.Template.Spec)
	line.OrPointTo(&r.Spec.Replicas, defaultReplicas)
}

// defaultReplicationController takes labels and selector from the template.
func defaultReplicationController(r *corev1.ReplicationController) {
	line.OrPointTo(&r.Spec.Replicas, defaultReplicas)
	if r.Spec.Template == nil {
		return
	}
	pods.DefaultPodSpec(&r.Spec.Template.Spec)
	if len(r.Spec.Selector) == 0 {
		r.Spec.Selector = maps.Clone(r.Spec.Template.Labels)
	}
	if len(r.Labels) == 0 {
		r.Labels = maps.Clone(r.Spec.Template.Labels)
	}
}

func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	pods.DefaultPodSpec(&s.Template.Spec)
	if s.Completions == nil && s.Parallelism == nil {
		line.OrPointTo(&s.Completions, 1)
	}
	line.OrPointTo(&s.Parallelism, 1)
	limit := defaultBackoffLimit
	if s.BackoffLimitPerIndex != nil {
		limit = math.MaxInt32
	}
	line.OrPointTo(&s.BackoffLimit, limit)
	line.OrPointTo(&s.CompletionMode, batchv1.NonIndexedCompletion)
	line.OrPointTo(&s.Suspend, false)
	line.OrPointTo(&s.ManualSelector, false)
	replacement := batchv1.TerminatingOrFailed
	if p := s.PodFailurePolicy; p != nil {
		replacement = batchv1.Failed
		defaultFailurePolicy(p)
	}
	line.OrPointTo(&s.PodReplacementPolicy, replacement)
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(s.Template.Labels)
	}
}

func defaultFailurePolicy(p *batchv1.PodFailurePolicy) {
	for i := range p.Rules {
		for j := range p.Rules[i].OnPodConditions {
			line.OrDefault(&p.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
		}
	}
}

// prepareJob gives a new job the selector by which it knows its pods, unless the client brings one. A job without labels of its own has those
// of the template, also those that it gets here, as in Kubernetes, where both are one map.
func prepareJob(ctx context.Context, obj, old registry.Typed, _ string) {
	if old != nil {
		return
	}
	j := obj.(*batchv1.Job)
	shared := len(j.Labels) == 0 || registry.Unlabelled(ctx) && maps.Equal(j.Labels, j.Spec.Template.Labels)
	if !ptr.Deref(j.Spec.ManualSelector, false) {
		generateSelector(j)
	}
	if shared {
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
	line.OrPointTo(&j.Spec.Selector, metav1.LabelSelector{})
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
}

func defaultCronJob(c *batchv1.CronJob) {
	s := &c.Spec
	pods.DefaultPodSpec(&s.JobTemplate.Spec.Template.Spec)
	if p := s.JobTemplate.Spec.PodFailurePolicy; p != nil {
		defaultFailurePolicy(p)
	}
	line.OrDefault(&s.ConcurrencyPolicy, batchv1.AllowConcurrent)
	line.OrPointTo(&s.Suspend, false)
	line.OrPointTo(&s.SuccessfulJobsHistoryLimit, defaultSuccessfulJobs)
	line.OrPointTo(&s.FailedJobsHistoryLimit, defaultFailedJobs)
}
