package pods

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Fields of pods that Kubernetes' feature gates guard which are off by default: a write loses them, unless what is stored has one of the
// same gate already, as what came from a cluster with the gate may have.

// drops are what drops the fields of one gate that are set.
type drops []func()

// optional adds a field that has a pointer as its value.
func optional[T any](d *drops, p **T) {
	if *p != nil {
		*d = append(*d, func() { *p = nil })
	}
}

// list adds a field that is a list.
func list[T any](d *drops, p *[]T) {
	if *p != nil {
		*d = append(*d, func() { *p = nil })
	}
}

// podGates are the fields of each gate.
var podGates = []func(s *corev1.PodSpec, d *drops){
	func(s *corev1.PodSpec, d *drops) { optional(d, &s.SchedulingGroup) }, // GenericWorkload
	func(s *corev1.PodSpec, d *drops) { list(d, &s.EvictionResponders) },  // EvictionRequestAPI
	inContainers(func(c *corev1.Container, d *drops) { // ContainerStopSignals
		if l := c.Lifecycle; l != nil && l.StopSignal != nil {
			*d = append(*d, func() {
				if l.StopSignal = nil; *l == (corev1.Lifecycle{}) {
					c.Lifecycle = nil
				}
			})
		}
	}),
	inContainers(func(c *corev1.Container, d *drops) { // H2CContainerProbe
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && p.HTTPGet != nil {
				optional(d, &p.HTTPGet.Protocol)
			}
		}
		if l := c.Lifecycle; l != nil {
			for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
				if h != nil && h.HTTPGet != nil {
					optional(d, &h.HTTPGet.Protocol)
				}
			}
		}
	}),
	inContainers(func(c *corev1.Container, d *drops) { // GRPCContainerProbeTLS
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && p.GRPC != nil {
				optional(d, &p.GRPC.Mode)
			}
		}
	}),
	inContainers(func(c *corev1.Container, d *drops) { // VolumeBindMountOptions
		for i := range c.VolumeMounts {
			list(d, &c.VolumeMounts[i].BindMountOptions)
		}
	}),
	func(s *corev1.PodSpec, d *drops) { // EmptyDirVolumeMode
		for i := range s.Volumes {
			if e := s.Volumes[i].EmptyDir; e != nil {
				optional(d, &e.Mode)
			}
		}
	},
	func(s *corev1.PodSpec, d *drops) { // AtomicWriteVolumeUserFields
		for i := range s.Volumes {
			usersOf(&s.Volumes[i].VolumeSource, d)
		}
	},
}

// inContainers gathers the fields of all containers.
func inContainers(of func(c *corev1.Container, d *drops)) func(s *corev1.PodSpec, d *drops) {
	return func(s *corev1.PodSpec, d *drops) {
		for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
			for i := range containers {
				of(&containers[i], d)
			}
		}
		for i := range s.EphemeralContainers {
			of((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon), d)
		}
	}
}

// usersOf gathers the fields that say whose a volume's files are.
func usersOf(v *corev1.VolumeSource, d *drops) {
	keys := func(items []corev1.KeyToPath) {
		for i := range items {
			optional(d, &items[i].User)
		}
	}
	files := func(items []corev1.DownwardAPIVolumeFile) {
		for i := range items {
			optional(d, &items[i].User)
		}
	}
	switch {
	case v.Secret != nil:
		optional(d, &v.Secret.DefaultUser)
		keys(v.Secret.Items)
	case v.ConfigMap != nil:
		optional(d, &v.ConfigMap.DefaultUser)
		keys(v.ConfigMap.Items)
	case v.DownwardAPI != nil:
		optional(d, &v.DownwardAPI.DefaultUser)
		files(v.DownwardAPI.Items)
	case v.Projected != nil:
		optional(d, &v.Projected.DefaultUser)
		for i := range v.Projected.Sources {
			switch s := &v.Projected.Sources[i]; {
			case s.Secret != nil:
				keys(s.Secret.Items)
			case s.DownwardAPI != nil:
				files(s.DownwardAPI.Items)
			case s.ConfigMap != nil:
				keys(s.ConfigMap.Items)
			case s.ServiceAccountToken != nil:
				optional(d, &s.ServiceAccountToken.User)
			case s.ClusterTrustBundle != nil:
				optional(d, &s.ClusterTrustBundle.User)
			case s.PodCertificate != nil:
				optional(d, &s.PodCertificate.User)
			}
		}
	}
}

// legacyAnnotations told of init containers before they had a field.
var legacyAnnotations = []string{
	"pod.beta.kubernetes.io/init-containers", "pod.alpha.kubernetes.io/init-containers",
	"pod.beta.kubernetes.io/init-container-statuses", "pod.alpha.kubernetes.io/init-container-statuses",
}

// dropGated drops what the gates guard. old is what is stored; nil if nothing is.
func dropGated(s, old *corev1.PodSpec) {
	for _, fields := range podGates {
		var now, before drops
		if fields(s, &now); len(now) == 0 {
			continue
		}
		if old != nil {
			fields(old, &before)
		}
		if len(before) > 0 {
			continue
		}
		for _, drop := range now {
			drop()
		}
	}
}

// dropScheduling drops a Job's scheduling, which the gate WorkloadWithJob guards.
func dropScheduling(s, old *batchv1.JobSpec) {
	if old == nil || old.Scheduling == nil {
		s.Scheduling = nil
	}
}

// specOf returns the spec of a pod, or of the pods that a workload runs; nil if there is none.
func specOf(obj registry.Typed) *corev1.PodSpec {
	if p, is := obj.(*corev1.Pod); is {
		return &p.Spec
	}
	if t := templateOf(obj); t != nil {
		return &t.Spec
	}
	return nil
}

// templateOf returns the template of the pods that a workload runs; nil if there is none.
func templateOf(obj registry.Typed) *corev1.PodTemplateSpec {
	switch o := obj.(type) {
	case *corev1.PodTemplate:
		return &o.Template
	case *corev1.ReplicationController:
		return o.Spec.Template
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	}
	return nil
}

// WithoutGated makes a Prepare of what runs pods. It goes on with what else there is to do; nil if there's nothing.
func WithoutGated(then func(ctx context.Context, obj, old registry.Typed, subresource string)) func(ctx context.Context, obj, old registry.Typed, subresource string) {
	return func(ctx context.Context, obj, old registry.Typed, subresource string) {
		s, before := specOf(obj), specOf(old)
		if s != nil {
			dropGated(s, before)
		}
		switch o := obj.(type) {
		case *batchv1.Job:
			var was *batchv1.JobSpec
			if b, is := old.(*batchv1.Job); is {
				was = &b.Spec
			}
			dropScheduling(&o.Spec, was)
		case *batchv1.CronJob:
			var was *batchv1.JobSpec
			if b, is := old.(*batchv1.CronJob); is {
				was = &b.Spec.JobTemplate.Spec
			}
			dropScheduling(&o.Spec.JobTemplate.Spec, was)
		}
		annotations := annotationsOf(obj)
		for _, name := range legacyAnnotations {
			delete(annotations, name)
		}
		if then != nil {
			then(ctx, obj, old, subresource)
		}
	}
}

// annotationsOf returns the annotations of a pod, or of a template.
func annotationsOf(obj registry.Typed) map[string]string {
	if p, is := obj.(*corev1.Pod); is {
		return p.Annotations
	}
	if t := templateOf(obj); t != nil {
		return t.Annotations
	}
	return nil
}

// TemplateBefore returns the template that a workload had; an empty one for a new workload.
func TemplateBefore[P interface {
	comparable
	registry.Typed
}](old P) *corev1.PodTemplateSpec {
	var none P
	if old == none || templateOf(old) == nil {
		return &corev1.PodTemplateSpec{}
	}
	return templateOf(old)
}
