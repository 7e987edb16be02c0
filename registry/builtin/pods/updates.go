package pods

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for writes of pods: what may be there at first, and what each path may change afterwards.

// validatePod checks a write of a pod. old is nil for a new one.
func validatePod(_ context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
	p := obj.(*corev1.Pod)
	before, _ := old.(*corev1.Pod)
	switch {
	case before == nil:
		return validateNewPod(p)
	case subresource == "":
		return validatePodUpdate(p, before)
	case subresource == "status":
		return validatePodStatus(p, before)
	case subresource == "ephemeralcontainers":
		return validateEphemeral(p, before)
	case subresource == "resize":
		return validateResize(p, before)
	}
	return nil // what the server itself changes, such as a binding
}

// validateWholePod checks what pods have, and templates don't. before is empty for a new one.
func validateWholePod(p, before *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validatePodAnnotations(p.Annotations, before.Annotations, &p.Spec, field.NewPath("metadata", "annotations"))
	errs = append(errs, validatePodSpec(&p.Spec, &before.Spec, &p.ObjectMeta, spec)...)
	if p.Spec.ServiceAccountName == "" {
		for i := range p.Spec.Volumes {
			if projected := p.Spec.Volumes[i].Projected; projected != nil {
				for j := range projected.Sources {
					if projected.Sources[j].ServiceAccountToken != nil {
						at := spec.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken")
						errs = append(errs, field.Forbidden(at, "must not be specified when serviceAccountName is not set"))
					}
				}
			}
		}
	}
	if n := p.Spec.TerminationGracePeriodSeconds; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("terminationGracePeriodSeconds"), *n, "must be greater than or equal to 0"))
	}
	c := &PodCheck{Spec: &p.Spec}
	for i := range p.Spec.Containers {
		c.trimmed(&p.Spec.Containers[i], spec.Child("containers").Index(i))
	}
	for i := range p.Spec.InitContainers {
		c.trimmed(&p.Spec.InitContainers[i], spec.Child("initContainers").Index(i))
	}
	return append(errs, c.Errs...)
}

// noPod is what was there before a new pod.
var noPod corev1.Pod

func validateNewPod(p *corev1.Pod) field.ErrorList {
	errs := validateWholePod(p, &noPod)
	spec := field.NewPath("spec")
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return append(errs, validateProfiles(p.Annotations, &p.Spec, spec)...)
}

// updatable are the fields of a pod's spec that an update may change, as a refusal names them.
var updatable = strings.Join([]string{
	"`spec.containers[*].image`", "`spec.initContainers[*].image`", "`spec.activeDeadlineSeconds`", "`spec.tolerations` (only additions to existing tolerations)",
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
}, ",")

func validatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	if equality.Semantic.DeepEqual(&p.Spec, &old.Spec) && equality.Semantic.DeepEqual(p.Annotations, old.Annotations) {
		return nil // it was checked when it came
	}
	errs := validateWholePod(p, old)
	errs = append(errs, validateAnnotationUpdate(p, old)...)
	spec := field.NewPath("spec")
	for _, group := range []struct {
		name     string
		now, was []corev1.Container
	}{{"containers", p.Spec.Containers, old.Spec.Containers}, {"initContainers", p.Spec.InitContainers, old.Spec.InitContainers}} {
		at := spec.Child(group.name)
		if len(group.now) != len(group.was) {
			return append(errs, field.Forbidden(at, "pod updates may not add or remove containers"))
		}
		for i := range group.now {
			at := at.Index(i).Child("image")
			switch image := group.now[i].Image; {
			case image == "":
				errs = append(errs, field.Required(at, ""))
			case image != strings.TrimSpace(image):
				errs = append(errs, field.Invalid(at, image, "must not have leading or trailing whitespace"))
			}
		}
	}
	at := spec.Child("activeDeadlineSeconds")
	switch now, was := p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds; {
	case now != nil && (*now < 0 || *now > math.MaxInt32):
		return append(errs, field.Invalid(at, *now, validation.InclusiveRangeError(0, math.MaxInt32)))
	case now != nil && was != nil && *was < *now:
		return append(errs, field.Invalid(at, *now, "must be less than or equal to previous value"))
	case now == nil && was != nil:
		errs = append(errs, field.Invalid(at, now, "must not update from a positive integer to nil value"))
	}
	errs = append(errs, addedTolerations(p, old, spec.Child("tolerations"))...)
	for i, gate := range p.Spec.SchedulingGates {
		if !slices.Contains(old.Spec.SchedulingGates, gate) {
			errs = append(errs, field.Forbidden(spec.Child("schedulingGates").Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	next, more := withoutUpdatable(&p.Spec, &old.Spec, spec)
	errs = append(errs, more...)
	if !equality.Semantic.DeepEqual(next, &old.Spec) {
		errs = append(errs, field.Forbidden(spec, "pod updates may not change fields other than "+updatable+"\n"+changes(old.Spec, *next)))
	}
	return errs
}

// maxDiffed bounds what lines are compared of, in bytes of JSON: the time that takes grows with its square. The fullest pod that people
// write has a quarter of it.
const maxDiffed = 128 << 10

// changes shows what differs, as Kubernetes does; of what is large it only names the members.
func changes[T any](was, now T) string {
	before, after := rules.Untagged(was), rules.Untagged(now)
	if before.Size()+after.Size() <= maxDiffed {
		return diff.Diff(before, after)
	}
	a, b := reflect.ValueOf(was), reflect.ValueOf(now)
	var names []string
	for i := range a.NumField() {
		if !equality.Semantic.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, a.Type().Field(i).Name)
		}
	}
	return "changed: " + strings.Join(names, ", ")
}

// withoutUpdatable returns a spec as it would be without the changes that an update may make.
func withoutUpdatable(s, old *corev1.PodSpec, at *field.Path) (next *corev1.PodSpec, errs field.ErrorList) {
	next = s.DeepCopy()
	for i := range next.Containers {
		next.Containers[i].Image = old.Containers[i].Image
	}
	for i := range next.InitContainers {
		next.InitContainers[i].Image = old.InitContainers[i].Image
	}
	next.ActiveDeadlineSeconds, next.SchedulingGates, next.Tolerations = old.ActiveDeadlineSeconds, old.SchedulingGates, old.Tolerations
	if was, now := old.TerminationGracePeriodSeconds, next.TerminationGracePeriodSeconds; was != nil && *was < 0 && now != nil && *now == 1 {
		next.TerminationGracePeriodSeconds = was
	}
	if len(old.SchedulingGates) == 0 {
		return next, nil
	}
	// What waits may be told more narrowly where to run.
	for name, value := range old.NodeSelector {
		if next.NodeSelector[name] != value {
			errs = append(errs, field.Invalid(at.Child("nodeSelector"), next.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	next.NodeSelector = old.NodeSelector
	was, now := NodeAffinity(old), NodeAffinity(next)
	if equality.Semantic.DeepEqual(was, now) {
		return next, errs
	}
	errs = append(errs, narrower(now, was, at.Child("affinity", "nodeAffinity"))...)
	switch {
	case next.Affinity == nil:
		next.Affinity = &corev1.Affinity{NodeAffinity: was}
	case old.Affinity == nil && next.Affinity.PodAffinity == nil && next.Affinity.PodAntiAffinity == nil:
		next.Affinity = nil
	default:
		next.Affinity.NodeAffinity = was
	}
	return next, errs
}

// NodeAffinity is which nodes a pod wants, nil if it says nothing of that.
func NodeAffinity(s *corev1.PodSpec) *corev1.NodeAffinity {
	if s.Affinity == nil {
		return nil
	}
	return s.Affinity.NodeAffinity
}

// narrower wants what selects nodes to select no others than before.
func narrower(now, was *corev1.NodeAffinity, at *field.Path) (errs field.ErrorList) {
	at = at.Child("requiredDuringSchedulingIgnoredDuringExecution")
	if was == nil || was.RequiredDuringSchedulingIgnoredDuringExecution == nil || len(was.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) == 0 {
		return nil
	}
	before := was.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	var terms []corev1.NodeSelectorTerm
	if now != nil && now.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = now.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	at = at.Child("nodeSelectorTerms")
	if len(terms) != len(before) {
		return field.ErrorList{field.Invalid(at, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	has := func(all []corev1.NodeSelectorRequirement, some []corev1.NodeSelectorRequirement) bool {
		return len(all) >= len(some) && equality.Semantic.DeepEqual(all[:len(some)], some)
	}
	for i := range before {
		if len(before[i].MatchExpressions)+len(before[i].MatchFields) == 0 && len(terms[i].MatchExpressions)+len(terms[i].MatchFields) > 0 ||
			!has(terms[i].MatchExpressions, before[i].MatchExpressions) || !has(terms[i].MatchFields, before[i].MatchFields) {
			errs = append(errs, field.Invalid(at.Index(i), terms[i], "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

// addedTolerations wants those that a pod has to stay, but for their seconds.
func addedTolerations(p, old *corev1.Pod, at *field.Path) field.ErrorList {
	for _, was := range old.Spec.Tolerations {
		if !slices.ContainsFunc(p.Spec.Tolerations, func(now corev1.Toleration) bool {
			now.TolerationSeconds = was.TolerationSeconds
			return equality.Semantic.DeepEqual(now, was)
		}) {
			return field.ErrorList{field.Forbidden(at, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil // validateWholePod has checked those that are new
}

// validateEphemeral wants containers for debugging to stay as they are once they're there.
func validateEphemeral(p, old *corev1.Pod) field.ErrorList {
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	errs := validateWholePod(p, old)
	errs = append(errs, validateAnnotationUpdate(p, old)...)
	at := field.NewPath("spec", "ephemeralContainers")
	for _, was := range old.Spec.EphemeralContainers {
		i := slices.IndexFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == was.Name })
		switch {
		case i < 0:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
		case !equality.Semantic.DeepEqual(was, p.Spec.EphemeralContainers[i]):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", was.Name, changes(was, p.Spec.EphemeralContainers[i]))))
		}
	}
	return errs
}

// validateResize wants nothing but cpu and memory to change, and a pod to keep its quality of service.
func validateResize(p, old *corev1.Pod) field.ErrorList {
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	errs, spec := validateWholePod(p, old), field.NewPath("spec")
	was := old.Status.QOSClass
	if was == "" {
		was = qosOf(&old.Spec)
	}
	if qosOf(&p.Spec) != was {
		errs = append(errs, field.Invalid(spec, p.Status.QOSClass, "Pod QOS Class may not change as a result of resizing"))
	}
	if i := slices.IndexFunc(old.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil }); i >= 0 && old.Status.ContainerStatuses[i].Resources == nil {
		errs = append(errs, field.Forbidden(spec, "Pod running on node without support for resize"))
	}
	if now := p.Spec.Resources; now != nil {
		r := cmp.Or(old.Spec.Resources, &corev1.ResourceRequirements{})
		errs = append(errs, removed(now, r, "pod-level resource", spec.Child("resources"))...)
		if !equality.Semantic.DeepEqual(withoutCompute(now), withoutCompute(r)) {
			errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable at pod-level"))
		}
	}
	if misplaced := inOrder(&p.Spec, &old.Spec, spec); len(misplaced) > 0 {
		return append(errs, misplaced...)
	}
	for _, group := range []struct {
		name      string
		now, were []corev1.Container
	}{{"initContainers", p.Spec.InitContainers, old.Spec.InitContainers}, {"containers", p.Spec.Containers, old.Spec.Containers}} {
		for i := range group.now {
			now, before, at := &group.now[i], &group.were[i], spec.Child(group.name).Index(i)
			errs = append(errs, removed(&now.Resources, &before.Resources, "resource", at.Child("resources"))...)
			if group.name == "initContainers" && !equality.Semantic.DeepEqual(now, before) && !goesOn(now) &&
				slices.ContainsFunc(now.ResizePolicy, func(r corev1.ContainerResizePolicy) bool { return r.RestartPolicy == corev1.RestartContainer }) {
				errs = append(errs, field.Forbidden(at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
			}
			if equality.Semantic.DeepEqual(withoutCompute(&now.Resources), withoutCompute(&before.Resources)) && equality.Semantic.DeepEqual(now.ResizePolicy, before.ResizePolicy) {
				continue
			}
			if group.name == "containers" {
				errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable"))
			} else {
				errs = append(errs, field.Forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable"))
			}
		}
	}
	return errs
}

// inOrder wants containers to be those that were there, in their order.
func inOrder(s, old *corev1.PodSpec, spec *field.Path) (errs field.ErrorList) {
	for _, group := range []struct {
		name      string
		now, were []corev1.Container
	}{{"containers", s.Containers, old.Containers}, {"initContainers", s.InitContainers, old.InitContainers}} {
		if len(group.now) != len(group.were) {
			errs = append(errs, field.Forbidden(spec.Child(group.name), group.name+" may not be added or removed on resize"))
			continue
		}
		for i := range group.now {
			if group.now[i].Name != group.were[i].Name {
				errs = append(errs, field.Forbidden(spec.Child(group.name).Index(i).Child("name"), group.name+" may not be renamed or reordered on resize"))
			}
		}
	}
	return errs
}

// removed refuses that a resize takes away what was requested or limited.
func removed(now, was *corev1.ResourceRequirements, what string, at *field.Path) (errs field.ErrorList) {
	gone := func(now, was corev1.ResourceList) bool {
		for name := range was {
			if _, stays := now[name]; !stays {
				return true
			}
		}
		return false
	}
	if gone(now.Requests, was.Requests) {
		errs = append(errs, field.Forbidden(at.Child("requests"), what+" requests cannot be removed"))
	}
	if gone(now.Limits, was.Limits) {
		errs = append(errs, field.Forbidden(at.Child("limits"), what+" limits cannot be removed"))
	}
	return errs
}

// withoutCompute returns what a resize may not change.
func withoutCompute(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	rest := r.DeepCopy()
	for _, list := range []corev1.ResourceList{rest.Limits, rest.Requests} {
		delete(list, corev1.ResourceCPU)
		delete(list, corev1.ResourceMemory)
	}
	return rest
}
