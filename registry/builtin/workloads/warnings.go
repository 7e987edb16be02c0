package workloads

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/volumes"
)

// What Kubernetes warns of in workloads: they're taken, and hardly what was meant. Of all that are new, and of updates that change what a
// template or its workload should be.

// inSpec is where most workloads have their template.
func inSpec() *field.Path { return field.NewPath("spec", "template") }

func same(now, before any) bool { return equality.Semantic.DeepEqual(now, before) }

func warnDeployment(d, old *appsv1.Deployment) []string {
	return pods.WarnOfPods(d.Name, old, func(old *appsv1.Deployment) bool {
		return same(d.Spec, old.Spec) && same(d.Annotations, old.Annotations)
	}, &d.Spec.Template, inSpec())
}

func warnReplicaSet(r, old *appsv1.ReplicaSet) []string {
	return pods.WarnOfPods(r.Name, old, func(old *appsv1.ReplicaSet) bool { return same(r.Spec, old.Spec) }, &r.Spec.Template, inSpec())
}

func warnReplicationController(r, old *corev1.ReplicationController) []string {
	t := r.Spec.Template
	if old != nil {
		t = old.Spec.Template // so Kubernetes does
	}
	return pods.WarnOfPods(r.Name, old, func(old *corev1.ReplicationController) bool { return same(r.Spec, old.Spec) }, t, inSpec())
}

func warnDaemonSet(d, old *appsv1.DaemonSet) []string {
	return pods.WarnOfPods("", old, func(old *appsv1.DaemonSet) bool { return same(d.Spec.Template, old.Spec.Template) }, &d.Spec.Template, inSpec())
}

func warnStatefulSet(s, old *appsv1.StatefulSet) []string {
	texts := pods.WarnOfPods("", old, func(old *appsv1.StatefulSet) bool { return same(s.Spec, old.Spec) }, &s.Spec.Template, inSpec())
	for i := range s.Spec.VolumeClaimTemplates {
		at := field.NewPath("spec", "volumeClaimTemplates").Index(i)
		if old != nil {
			at = at.Child("Spec") // so Kubernetes calls it
		}
		texts = append(texts, volumes.WarnClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, at)...)
	}
	if ptr.Deref(s.Spec.RevisionHistoryLimit, 0) < 0 {
		texts = append(texts, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return texts
}

func warnJob(j, old *batchv1.Job) []string {
	return pods.WarnOfPods(j.Name, old, func(old *batchv1.Job) bool { return same(j.Spec, old.Spec) }, &j.Spec.Template, inSpec(), warnOfJob(&j.Spec, field.NewPath("spec"))...)
}

func warnCronJob(c, old *batchv1.CronJob) []string {
	s, at := &c.Spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec")
	texts := pods.WarnOfPods(c.Name, old, func(old *batchv1.CronJob) bool { return same(c.Spec, old.Spec) }, &s.Template, at.Child("template"), warnOfJob(s, at)...)
	if old != nil && strings.Contains(c.Spec.Schedule, "TZ") {
		texts = append(texts, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return texts
}

// warnOfJob warns of a Job with more indexes than can be counted.
func warnOfJob(s *batchv1.JobSpec, at *field.Path) []string {
	indexed := s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
	if !indexed || s.Completions == nil || *s.Completions <= manyCompletions || s.Parallelism == nil || *s.Parallelism <= parallelismOfMany {
		return nil
	}
	return []string{at.String() + ": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, " +
		"Kubernetes might not be able to track completedIndexes when a big number of indexes fail"}
}
