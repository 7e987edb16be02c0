package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	resourcehelper "k8s.io/component-helpers/resource"
)

// counts tells whether a pod takes what it asks for: it hasn't ended, and isn't stuck in its deletion.
func (e *Evaluator) counts(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return true
	}
	end := pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	if e.now().After(end) {
		return false
	}
	if e.until.IsZero() || end.Before(e.until) {
		e.until = end
	}
	return true
}

// Until returns when one of the pods that were counted is stuck in its deletion, and counts no more; zero for never.
func (e *Evaluator) Until() time.Time {
	if e.until.IsZero() {
		return e.until
	}
	return e.until.Add(1) // it counts at that time still
}

// usageOfPod returns what a pod takes that hasn't ended: what it asks for or has, whatever is more, with its overhead, and up to what it may
// take, likewise. Only what is limited has overhead.
func usageOfPod(pod *corev1.Pod) Usage {
	return compute(resourcehelper.PodRequests(pod, ofStatus), resourcehelper.PodLimits(pod, ofStatus))
}

// compute returns what requests and limits take, by the names that count them.
func compute(requests, limits corev1.ResourceList) Usage {
	usage := Usage{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)}
	for name, q := range requests {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, IsHugePages(name):
			usage[name], usage[requestsPrefix+name] = q, q
		case IsExtended(name), strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix):
			usage[requestsPrefix+name] = q
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, limited := limits[name]; limited {
			usage["limits."+name] = q
		}
	}
	return usage
}

// Required returns an error if a container of a pod doesn't say how much it takes of processor or memory that a quota counts.
// restricted are the quota's names. Where the pod as a whole says so, its containers needn't.
func Required(restricted []corev1.ResourceName, object *unstructured.Unstructured) error {
	var pod corev1.Pod
	if err := decode(object, &pod); err != nil {
		return err
	}
	if resourcehelper.IsPodLevelResourcesSet(&pod) {
		return nil
	}
	missing := map[corev1.ResourceName][]string{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		said := compute(c.Resources.Requests, c.Resources.Limits)
		for _, name := range restricted {
			switch name {
			case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
				if _, ok := said[name]; !ok {
					missing[name] = append(missing[name], c.Name)
				}
			}
		}
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		texts = append(texts, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(missing[name]), ",")))
	}
	if len(texts) == 0 {
		return nil
	}
	return fmt.Errorf("must specify %s", strings.Join(texts, "; "))
}

// ofStatus counts what a pod has by its status, too, as upstream's evaluator does by default in 1.37.
var ofStatus = resourcehelper.PodResourcesOptions{UseStatusResources: true}

// podInScope tells whether a pod fulfils a requirement.
func podInScope(pod *corev1.Pod, r corev1.ScopedResourceSelectorRequirement) (bool, error) {
	spec := &pod.Spec
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating(spec), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating(spec), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod), nil
	case corev1.ResourceQuotaScopePriorityClass:
		return byOperator(r, spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(spec.Affinity), nil
	}
	return false, nil
}

// Recounts tells whether an update may make a pod count otherwise: it then ends by itself, or no longer does. What a pod takes only
// its resize changes.
func Recounts(object, old *unstructured.Unstructured) bool {
	var now, before corev1.Pod
	return decode(object, &now) == nil && decode(old, &before) == nil && terminating(&now.Spec) != terminating(&before.Spec)
}

// terminating tells whether a pod ends by itself.
func terminating(spec *corev1.PodSpec) bool {
	return spec.ActiveDeadlineSeconds != nil && *spec.ActiveDeadlineSeconds >= 0
}

// bestEffort tells whether neither a container nor the pod as a whole asks for processor or memory.
func bestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	var all []corev1.ResourceRequirements
	if pod.Spec.Resources != nil {
		all = append(all, *pod.Spec.Resources)
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		all = append(all, c.Resources)
	}
	for _, r := range all {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q, has := list[name]; has && q.Sign() > 0 {
					return false
				}
			}
		}
	}
	return true
}

// crossesNamespaces tells whether a pod's affinities look at pods of other namespaces.
func crossesNamespaces(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if p := a.PodAffinity; p != nil {
		terms, weighted = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if p := a.PodAntiAffinity; p != nil {
		terms, weighted = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range weighted {
		terms = append(terms, w.PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
