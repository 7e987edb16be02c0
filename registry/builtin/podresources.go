package builtin

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// What a pod requests for all of its containers together, and what that is limited to.

// defaultPodResources completes a pod's own limits and requests from those of its containers. A pod that has none of its own
// stays without: its containers say it all.
func defaultPodResources(s *corev1.PodSpec) {
	r := s.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	limits := limitsTogether(s)
	for name, limit := range limits {
		if _, requested := r.Requests[name]; isHugePages(name) && !requested {
			orAdd(&r.Limits, name, limit)
		}
	}
	for name, request := range requestsTogether(s) {
		if ofWholePod(name) && !isHugePages(name) { // huge pages are requested as they're limited
			orAdd(&r.Requests, name, request)
		}
	}
	for name, limit := range r.Limits {
		if ofWholePod(name) {
			orAdd(&r.Requests, name, limit)
		}
	}
	for name, request := range r.Requests {
		if limit, limited := limits[name]; ofWholePod(name) && limited && allLimit(s, name) {
			if request.Cmp(limit) > 0 {
				limit = request
			}
			orAdd(&r.Limits, name, limit)
		}
	}
}

// allLimit tells whether each container of a pod limits a resource.
func allLimit(s *corev1.PodSpec, name corev1.ResourceName) bool {
	if len(s.EphemeralContainers) > 0 { // which limit nothing
		return false
	}
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			if _, limited := containers[i].Resources.Limits[name]; !limited {
				return false
			}
		}
	}
	return true
}

// ofWholePod tells whether a resource can be that of all containers together.
func ofWholePod(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || isHugePages(name)
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// hasPodResources tells whether a pod says something of all containers together.
func hasPodResources(r *corev1.ResourceRequirements) bool {
	if r == nil {
		return false
	}
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			if ofWholePod(name) {
				return true
			}
		}
	}
	return false
}

// orAdd adds a resource that a list lacks.
func orAdd(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if _, has := (*list)[name]; has {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}

// defaultRequests requests what is limited.
func defaultRequests(r *corev1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil { // which a refusal shows
		r.Requests = corev1.ResourceList{}
	}
	for name, limit := range r.Limits {
		orAdd(&r.Requests, name, limit)
	}
}

// requestsTogether returns what the containers of a pod request at the same time at most.
func requestsTogether(s *corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *s}, resourcehelper.PodResourcesOptions{})
}

// limitsTogether returns what they're limited to.
func limitsTogether(s *corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.AggregateContainerLimits(&corev1.Pod{Spec: *s}, resourcehelper.PodResourcesOptions{})
}
