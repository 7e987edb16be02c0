package builtin

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What a pod requests for all of its containers together, and what that is limited to.

// defaultPodResources completes a pod's own limits and requests from those of its containers. A pod that has none of its own
// stays without: its containers say it all.
func defaultPodResources(s *corev1.PodSpec) {
	r := s.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	for name, limit := range together(s, limits) {
		if _, requested := r.Requests[name]; isHugePages(name) && !requested {
			orAdd(&r.Limits, name, limit)
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	for name, request := range together(s, requests) {
		if ofWholePod(name) && !isHugePages(name) { // huge pages are requested as they're limited
			orAdd(&r.Requests, name, request)
		}
	}
	for name, limit := range r.Limits {
		if ofWholePod(name) {
			orAdd(&r.Requests, name, limit)
		}
	}
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

func limits(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }

func requests(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }

// together sums up what the containers of a pod have at the same time at most. Its init containers run before the others, one
// after the other, except those that always restart: these run together with all that start later.
func together(s *corev1.PodSpec, of func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	running, goOn, starting := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range s.Containers {
		addTo(running, of(&s.Containers[i].Resources))
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addTo(running, of(&c.Resources))
			addTo(goOn, of(&c.Resources))
			raiseTo(starting, goOn)
			continue
		}
		now := corev1.ResourceList{}
		addTo(now, of(&c.Resources))
		addTo(now, goOn)
		raiseTo(starting, now)
	}
	raiseTo(running, starting)
	return running
}

func addTo(sum, list corev1.ResourceList) {
	for name, q := range list {
		total := sum[name].DeepCopy()
		total.Add(q)
		sum[name] = total
	}
}

func raiseTo(most, list corev1.ResourceList) {
	for name, q := range list {
		if known, has := most[name]; !has || q.Cmp(known) > 0 {
			most[name] = q.DeepCopy()
		}
	}
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
