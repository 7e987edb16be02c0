package pods

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What Kubernetes warns of in pods and templates: they're taken, and hardly what was meant.

// warnOfName warns of a name of which pods make their hosts'.
func warnOfName(name, usedIn string) []string {
	if why := validation.IsDNS1123Label(name); len(why) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is recommended: %v", usedIn, why)}
	}
	return nil
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

// warnPodTemplate warns of a template that is an object of its own.
func warnPodTemplate(t, old *corev1.PodTemplate) []string {
	return WarnOfPods("", old, func(old *corev1.PodTemplate) bool { return equality.Semantic.DeepEqual(t.Template, old.Template) }, &t.Template, field.NewPath("template"))
}

// WarnOfPods warns of the pods of a workload that is new, or isn't the same as the old one: of their template, and of the name of a new
// workload with which theirs begin, unless that is "". own is what else such a workload is warned of.
func WarnOfPods[T any](name string, old *T, same func(old *T) bool, t *corev1.PodTemplateSpec, at *field.Path, own ...string) (texts []string) {
	if old == nil && name != "" {
		texts = warnOfName(name, "Pod names and hostnames")
	}
	if old != nil && same(old) {
		return texts
	}
	if texts = append(texts, own...); t != nil {
		texts = append(texts, warnOfPod(&t.Spec, &t.ObjectMeta, at)...)
	}
	return texts
}
