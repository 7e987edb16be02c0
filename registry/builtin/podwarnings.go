package builtin

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// What Kubernetes warns of in pods and templates: they're taken, and hardly what was meant.

// podWarnings are the Warnings of pods, and of what runs them: of all new objects, and of updates that change what a template or its
// workload should be. An update of a pod is a program's, whom nobody warns.
func podWarnings(_ context.Context, obj, old registry.Typed, subresource string) (texts []string) {
	if subresource != "" {
		return nil
	}
	t := templateOf(obj)
	changed := func(now, before any) bool { return old == nil || !equality.Semantic.DeepEqual(now, before) }
	template := func(is bool, at *field.Path) {
		if is && t != nil {
			texts = append(texts, warnOfPod(&t.Spec, &t.ObjectMeta, at)...)
		}
	}
	spec := field.NewPath("spec")
	inPods := func(name string) {
		if old == nil {
			texts = append(texts, warnOfName(name, "Pod names and hostnames")...)
		}
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		if old == nil {
			return append(warnOfName(o.Name, "the Pod's hostname"), warnOfPod(&o.Spec, &o.ObjectMeta, nil)...)
		}
	case *corev1.PodTemplate:
		before, _ := old.(*corev1.PodTemplate)
		template(before == nil || changed(o.Template, before.Template), field.NewPath("template"))
	case *corev1.ReplicationController:
		inPods(o.Name)
		before, _ := old.(*corev1.ReplicationController)
		if before != nil {
			t = before.Spec.Template // so Kubernetes does
		}
		template(before == nil || changed(o.Spec, before.Spec), spec.Child("template"))
	case *appsv1.Deployment:
		inPods(o.Name)
		before, _ := old.(*appsv1.Deployment)
		template(before == nil || changed(o.Spec, before.Spec) || changed(o.Annotations, before.Annotations), spec.Child("template"))
	case *appsv1.ReplicaSet:
		inPods(o.Name)
		before, _ := old.(*appsv1.ReplicaSet)
		template(before == nil || changed(o.Spec, before.Spec), spec.Child("template"))
	case *appsv1.DaemonSet:
		before, _ := old.(*appsv1.DaemonSet)
		template(before == nil || changed(o.Spec.Template, before.Spec.Template), spec.Child("template"))
	case *appsv1.StatefulSet:
		before, _ := old.(*appsv1.StatefulSet)
		template(before == nil || changed(o.Spec, before.Spec), spec.Child("template"))
		for i := range o.Spec.VolumeClaimTemplates {
			at := spec.Child("volumeClaimTemplates").Index(i)
			if before != nil {
				at = at.Child("Spec") // so Kubernetes calls it
			}
			texts = append(texts, warnClaimSpec(&o.Spec.VolumeClaimTemplates[i].Spec, at)...)
		}
		if n := o.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
			texts = append(texts, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
		}
	case *batchv1.Job:
		inPods(o.Name)
		before, _ := old.(*batchv1.Job)
		if before == nil || changed(o.Spec, before.Spec) {
			texts = append(texts, warnOfJob(&o.Spec, spec)...)
			template(true, spec.Child("template"))
		}
	case *batchv1.CronJob:
		inPods(o.Name)
		before, _ := old.(*batchv1.CronJob)
		at := spec.Child("jobTemplate", "spec")
		if before == nil || changed(o.Spec, before.Spec) {
			texts = append(texts, warnOfJob(&o.Spec.JobTemplate.Spec, at)...)
			template(true, at.Child("template"))
		}
		if before != nil && strings.Contains(o.Spec.Schedule, "TZ") {
			texts = append(texts, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
		}
	}
	return texts
}

// warnOfName warns of a name of which pods make their hosts'.
func warnOfName(name, usedIn string) []string {
	if why := validation.IsDNS1123Label(name); len(why) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is recommended: %v", usedIn, why)}
	}
	return nil
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

// mostWarnings bounds the warnings of a pod: more than an answer's headers hold.
const mostWarnings = 200

// warner collects warnings.
type warner struct{ texts []string }

func (w *warner) full() bool { return len(w.texts) >= mostWarnings }

func (w *warner) warn(at *field.Path, format string, args ...any) {
	if !w.full() {
		w.texts = append(w.texts, at.String()+": "+fmt.Sprintf(format, args...))
	}
}

// warnOfPod warns of a pod, or of a template, whose path is at; nil for a pod.
func warnOfPod(s *corev1.PodSpec, meta *metav1.ObjectMeta, at *field.Path) []string {
	w, spec := &warner{}, at.Child("spec")
	w.placement(s, spec)
	for _, old := range deprecatedAnnotations {
		if _, has := meta.Annotations[old.name]; has {
			w.warn(at.Child("metadata", "annotations").Key(old.name), "%s", old.text)
		}
	}
	w.volumes(s, spec.Child("volumes"))
	seen := sets.New[string]()
	for i, alias := range s.HostAliases {
		if seen.Has(alias.IP) {
			w.warn(spec.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", alias.IP)
		}
		seen.Insert(alias.IP)
	}
	seen = sets.New[string]()
	for i, secret := range s.ImagePullSecrets {
		if seen.Has(secret.Name) {
			w.warn(spec.Child("imagePullSecrets").Index(i).Child("name"), "duplicate name %q", secret.Name)
		}
		seen.Insert(secret.Name)
	}
	for i, secret := range s.ImagePullSecrets {
		if secret.Name == "" {
			w.warn(spec.Child("imagePullSecrets").Index(i).Child("name"), "invalid empty name %q", secret.Name)
		}
	}
	for _, name := range inBytes {
		if q, is := fraction(s.Overhead, name); is {
			w.warn(spec.Child("overhead").Key(string(name)), noFraction, q.String())
		}
	}
	w.containers(s, meta, at)
	if n := s.TerminationGracePeriodSeconds; n != nil && *n < 0 {
		w.warn(spec.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	if a := s.Affinity; a != nil {
		if p := a.PodAffinity; p != nil {
			w.terms(spec.Child("affinity", "podAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if p := a.PodAntiAffinity; p != nil {
			w.terms(spec.Child("affinity", "podAntiAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	if s.DNSConfig != nil {
		for i, server := range s.DNSConfig.Nameservers {
			w.texts = append(w.texts, validation.GetWarningsForIP(spec.Child("dnsConfig", "nameservers").Index(i), server)...)
		}
	}
	for i, alias := range s.HostAliases {
		w.texts = append(w.texts, validation.GetWarningsForIP(spec.Child("hostAliases").Index(i).Child("ip"), alias.IP)...)
	}
	return w.texts
}

const noSelector = "a null labelSelector results in matching no pod"

// inBytes are the resources that come in whole bytes.
var inBytes = []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

const noFraction = "fractional byte value %q is invalid, must be an integer"

// fraction returns an amount of a resource that isn't a whole number.
func fraction(list corev1.ResourceList, name corev1.ResourceName) (q resource.Quantity, is bool) {
	const milli = 1000 // of one
	q, has := list[name]
	return q, has && q.MilliValue()%milli != 0
}

// port is one of a container's, and where it is.
type port struct {
	corev1.ContainerPort
	of *field.Path // the container
	i  int
}

func (p port) at() *field.Path { return p.of.Child("ports").Index(p.i) }

// appArmor warns of an annotation that says what the field of a container in a template doesn't. takeAppArmor warns of those of pods.
func (w *warner) appArmor(c *corev1.Container, s *corev1.PodSpec, meta *metav1.ObjectMeta, at *field.Path) {
	key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
	annotation, has := meta.Annotations[key]
	if !has || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return
	}
	if whole := s.SecurityContext; whole == nil || whole.AppArmorProfile == nil || !equality.Semantic.DeepEqual(whole.AppArmorProfile, appArmorOf(annotation)) {
		w.warn(at.Child("metadata", "annotations").Key(key), "%s", annotatedAppArmor)
	}
}

// containers warns of what containers say, and of their ports. at is the template's path; nil for a pod.
func (w *warner) containers(s *corev1.PodSpec, meta *metav1.ObjectMeta, at *field.Path) {
	const unprofiled = `non-functional in v1.27+; use the "seccompProfile" field instead`
	annotated := func(name string) {
		if _, has := meta.Annotations[name]; has {
			w.warn(at.Child("metadata", "annotations").Key(name), "%s", unprofiled)
		}
	}
	if s.SecurityContext == nil || s.SecurityContext.SeccompProfile == nil {
		annotated(corev1.SeccompPodAnnotationKey)
	}
	var ports []port
	eachContainer(s, at.Child("spec"), func(c *corev1.Container, p *field.Path) {
		if len(meta.Annotations) > 0 && (c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil) {
			annotated(corev1.SeccompContainerAnnotationKeyPrefix + c.Name)
		}
		if at != nil {
			w.appArmor(c, s, meta, at)
		}
		for _, name := range inBytes {
			if q, is := fraction(c.Resources.Limits, name); is {
				w.warn(p.Child("resources", "limits").Key(string(name)), noFraction, q.String())
			}
			if q, is := fraction(c.Resources.Requests, name); is {
				w.warn(p.Child("resources", "requests").Key(string(name)), noFraction, q.String())
			}
		}
		w.env(c, p)
		for i, own := range c.Ports {
			ports = append(ports, port{own, p, i})
		}
	})
	w.ports(ports)
}

// ports warns of ports that two containers have, or one twice.
func (w *warner) ports(all []port) {
	type number struct {
		port     int32
		protocol corev1.Protocol
	}
	known := make(map[number][]port, len(all))
	for _, p := range all {
		if p.HostIP != "" && p.HostPort == 0 {
			w.warn(p.at(), "hostIP set without hostPort: %+v", p.ContainerPort)
		}
		if w.full() {
			return
		}
		key := number{p.ContainerPort.ContainerPort, p.Protocol}
		for _, other := range known[key] {
			switch {
			case p.HostIP == other.HostIP && p.HostPort == other.HostPort:
				w.warn(p.at(), "duplicate port definition with %s", other.at())
			case p.HostPort == 0 || other.HostPort == 0:
				w.warn(p.at(), "overlapping port definition with %s", other.at())
			case p.HostPort == other.HostPort && (p.HostIP == "") != (other.HostIP == ""):
				w.warn(p.at(), "dangerously ambiguous port definition with %s", other.at())
			}
		}
		if len(known[key]) < mostWarnings {
			known[key] = append(known[key], p)
		}
	}
	named := make(map[string]port, len(all))
	for _, p := range all {
		if other, has := named[p.Name]; has {
			w.warn(p.at(), "duplicate port name %q with %s, services and probes that select ports by name will use %s", p.Name, other.at(), other.at())
		} else if p.Name != "" {
			named[p.Name] = p
		}
	}
}

// env warns of variables that hide others of their name without using them.
func (w *warner) env(c *corev1.Container, at *field.Path) {
	if len(c.Env) < 2 {
		return
	}
	known := sets.New[string]()
	for i, e := range c.Env {
		reference := "$(" + e.Name + ")"
		if known.Has(e.Name) && (e.ValueFrom != nil || e.Value == reference || !strings.Contains(e.Value, reference)) {
			w.warn(at.Child("env").Index(i), "hides previous definition of %q, which may be dropped when using apply", e.Name)
		}
		known.Insert(e.Name)
	}
}
