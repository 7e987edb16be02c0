package builtin

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// What Kubernetes warns of in pods and templates: they're taken, and hardly what was meant.

// podWarnings are the Warnings of pods, and of what runs them: of all new objects, and of updates that change what a template or its
// workload should be. An update of a pod is a program's, whom nobody warns.
func podWarnings(_ context.Context, obj, old registry.Typed, subresource string) []string {
	if subresource != "" {
		return nil
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		if old != nil {
			return nil
		}
		return warnOfPod(&o.Spec, nil)
	case *corev1.PodTemplate:
		before, _ := old.(*corev1.PodTemplate)
		return warnOfTemplate(&o.Template.Spec, before != nil && equality.Semantic.DeepEqual(o.Template, before.Template), field.NewPath("template"))
	case *corev1.ReplicationController:
		before, _ := old.(*corev1.ReplicationController)
		if o.Spec.Template == nil {
			return nil
		}
		return warnOfTemplate(&o.Spec.Template.Spec, before != nil && equality.Semantic.DeepEqual(o.Spec, before.Spec), field.NewPath("spec", "template"))
	case *appsv1.Deployment:
		before, _ := old.(*appsv1.Deployment)
		same := before != nil && equality.Semantic.DeepEqual(o.Spec, before.Spec) && equality.Semantic.DeepEqual(o.Annotations, before.Annotations)
		return warnOfTemplate(&o.Spec.Template.Spec, same, field.NewPath("spec", "template"))
	case *appsv1.ReplicaSet:
		before, _ := old.(*appsv1.ReplicaSet)
		return warnOfTemplate(&o.Spec.Template.Spec, before != nil && equality.Semantic.DeepEqual(o.Spec, before.Spec), field.NewPath("spec", "template"))
	case *appsv1.DaemonSet:
		before, _ := old.(*appsv1.DaemonSet)
		return warnOfTemplate(&o.Spec.Template.Spec, before != nil && equality.Semantic.DeepEqual(o.Spec.Template, before.Spec.Template), field.NewPath("spec", "template"))
	case *appsv1.StatefulSet:
		before, _ := old.(*appsv1.StatefulSet)
		texts := warnOfTemplate(&o.Spec.Template.Spec, before != nil && equality.Semantic.DeepEqual(o.Spec, before.Spec), field.NewPath("spec", "template"))
		if n := o.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
			texts = append(texts, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
		}
		return texts
	case *batchv1.Job:
		before, _ := old.(*batchv1.Job)
		return warnOfTemplate(&o.Spec.Template.Spec, before != nil && equality.Semantic.DeepEqual(o.Spec, before.Spec), field.NewPath("spec", "template"))
	case *batchv1.CronJob:
		before, _ := old.(*batchv1.CronJob)
		same := before != nil && equality.Semantic.DeepEqual(o.Spec, before.Spec)
		return warnOfTemplate(&o.Spec.JobTemplate.Spec.Template.Spec, same, field.NewPath("spec", "jobTemplate", "spec", "template"))
	}
	return nil
}

// warnOfTemplate warns of the spec in a template, unless it's the same as before.
func warnOfTemplate(s *corev1.PodSpec, same bool, at *field.Path) []string {
	if same {
		return nil
	}
	return warnOfPod(s, at)
}

// warnOfPod warns of the spec of a pod. at is where its template is; nil for a pod.
func warnOfPod(s *corev1.PodSpec, at *field.Path) (texts []string) {
	spec := at.Child("spec")
	warn := func(at *field.Path, format string, args ...any) {
		texts = append(texts, fmt.Sprintf("%s: %s", at, fmt.Sprintf(format, args...)))
	}
	const noSelector = "a null labelSelector results in matching no pod"
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		for i, preferred := range s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			for j, e := range preferred.Preference.MatchExpressions {
				for k, value := range e.Values {
					for _, why := range validation.IsValidLabelValue(value) {
						warn(spec.Child("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference", "matchExpressions").Index(j).Child("values").Index(k),
							"%s is invalid, %s", value, why)
					}
				}
			}
		}
	}
	for i, c := range s.TopologySpreadConstraints {
		if c.LabelSelector == nil {
			warn(spec.Child("topologySpreadConstraints").Index(i).Child("labelSelector"), noSelector)
		}
	}
	ips := sets.New[string]()
	for i, alias := range s.HostAliases {
		if ips.Has(alias.IP) {
			warn(spec.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", alias.IP)
		}
		ips.Insert(alias.IP)
	}
	secrets := sets.New[string]()
	for i, secret := range s.ImagePullSecrets {
		if secrets.Has(secret.Name) {
			warn(spec.Child("imagePullSecrets").Index(i).Child("name"), "duplicate name %q", secret.Name)
		}
		secrets.Insert(secret.Name)
	}
	for i, secret := range s.ImagePullSecrets {
		if secret.Name == "" {
			warn(spec.Child("imagePullSecrets").Index(i).Child("name"), "invalid empty name %q", secret.Name)
		}
	}
	for _, group := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		for i := range group.containers {
			warnOfEnv(&group.containers[i], spec.Child(group.name).Index(i), warn)
		}
	}
	if n := s.TerminationGracePeriodSeconds; n != nil && *n < 0 {
		warn(spec.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	if s.Affinity == nil {
		return texts
	}
	terms := func(at *field.Path, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i, t := range required {
			if t.LabelSelector == nil {
				warn(at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i).Child("labelSelector"), noSelector)
			}
		}
		for i, t := range preferred {
			if t.PodAffinityTerm.LabelSelector == nil {
				warn(at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm", "labelSelector"), noSelector)
			}
		}
	}
	if a := s.Affinity.PodAffinity; a != nil {
		terms(spec.Child("affinity", "podAffinity"), a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := s.Affinity.PodAntiAffinity; a != nil {
		terms(spec.Child("affinity", "podAntiAffinity"), a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return texts
}

// warnOfEnv warns of variables that hide others of their name without using them.
func warnOfEnv(c *corev1.Container, at *field.Path, warn func(at *field.Path, format string, args ...any)) {
	known := sets.New[string]()
	for i, e := range c.Env {
		reference := "$(" + e.Name + ")"
		if known.Has(e.Name) && (e.ValueFrom != nil || e.Value == reference || !strings.Contains(e.Value, reference)) {
			warn(at.Child("env").Index(i), "hides previous definition of %q, which may be dropped when using apply", e.Name)
		}
		known.Insert(e.Name)
	}
}
