package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// named are resources of the core group that have a name of their own in quotas besides count/....
var named = []string{"pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"}

// countPrefix begins the name of a resource's number of objects.
const countPrefix = "count/"

// Usage is what an object, or all of them, take of a quota, by the names in its hard limits.
type Usage map[corev1.ResourceName]int64

// Resource returns the resource whose objects a name of a quota's counts. ok is false for a name that nothing counts.
func Resource(name corev1.ResourceName) (r schema.GroupResource, ok bool) {
	if rest, counts := strings.CutPrefix(string(name), countPrefix); counts {
		return schema.ParseGroupResource(rest), rest != ""
	}
	switch name {
	case corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		name = corev1.ResourceServices
	}
	return schema.GroupResource{Resource: string(name)}, slices.Contains(named, string(name))
}

// Names returns those names of a quota's hard limits that count objects of a resource, sorted.
func Names(hard corev1.ResourceList, of schema.GroupResource) (names []corev1.ResourceName) {
	for name := range hard {
		if r, ok := Resource(name); ok && r == of {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// PerObject tells whether an object of a resource must be read to know what it takes: otherwise each takes one of
// everything.
func PerObject(q *corev1.ResourceQuota, of schema.GroupResource) bool {
	return of.Group == "" && (of.Resource == "services" || of.Resource == "pods") || Scoped(q)
}

// Scoped tells whether a quota is about some objects only.
func Scoped(q *corev1.ResourceQuota) bool {
	return len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil && len(q.Spec.ScopeSelector.MatchExpressions) > 0
}

// Of returns what an object takes of a quota, of those names that its hard limits have: the spec's, or those in its status.
// It's nil if none of them counts this object. The error is of an object that can't be decoded.
func Of(q *corev1.ResourceQuota, hard corev1.ResourceList, of schema.GroupResource, object *unstructured.Unstructured) (Usage, error) {
	names := Names(hard, of)
	if len(names) == 0 || object == nil {
		return nil, nil
	}
	matches, err := matches(q, of, object)
	if err != nil || !matches {
		return nil, err
	}
	usage := Usage{}
	for _, name := range names {
		n, err := one(name, object)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			usage[name] = n
		}
	}
	return usage, nil
}

// one returns what an object takes of a name that counts its resource.
func one(name corev1.ResourceName, object *unstructured.Unstructured) (int64, error) {
	switch name {
	case corev1.ResourcePods: // those that have ended don't take part
		phase, _, err := unstructured.NestedString(object.Object, "status", "phase")
		if phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed) {
			return 0, err
		}
	case corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		var spec corev1.ServiceSpec
		if err := specOf(object, &spec); err != nil {
			return 0, err
		}
		balanced := spec.Type == corev1.ServiceTypeLoadBalancer
		switch {
		case name == corev1.ResourceServicesLoadBalancers && !balanced:
			return 0, nil
		case name == corev1.ResourceServicesNodePorts:
			return nodePorts(&spec), nil
		}
	}
	return 1, nil
}

// nodePorts returns how many node ports a Service takes.
func nodePorts(spec *corev1.ServiceSpec) (n int64) {
	switch {
	case spec.Type == corev1.ServiceTypeNodePort,
		spec.Type == corev1.ServiceTypeLoadBalancer && (spec.AllocateLoadBalancerNodePorts == nil || *spec.AllocateLoadBalancerNodePorts):
		return int64(len(spec.Ports))
	case spec.Type == corev1.ServiceTypeLoadBalancer: // those that it asks for all the same
		for _, p := range spec.Ports {
			if p.NodePort != 0 {
				n++
			}
		}
	}
	return n
}

func specOf(object *unstructured.Unstructured, spec any) error {
	tree, _, err := unstructured.NestedMap(object.Object, "spec")
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(tree, spec)
}

// matches tells whether a quota's scopes have an object. Only pods have what scopes are about.
func matches(q *corev1.ResourceQuota, of schema.GroupResource, object *unstructured.Unstructured) (bool, error) {
	if !Scoped(q) {
		return true, nil
	}
	if of != (schema.GroupResource{Resource: "pods"}) {
		return false, nil
	}
	var spec corev1.PodSpec
	if err := specOf(object, &spec); err != nil {
		return false, err
	}
	for _, scope := range q.Spec.Scopes {
		if ok, err := inScope(&spec, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}); !ok || err != nil {
			return false, err
		}
	}
	if q.Spec.ScopeSelector == nil {
		return true, nil
	}
	for _, requirement := range q.Spec.ScopeSelector.MatchExpressions {
		if ok, err := inScope(&spec, requirement); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// inScope tells whether a pod fulfils a requirement.
func inScope(spec *corev1.PodSpec, r corev1.ScopedResourceSelectorRequirement) (bool, error) {
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating(spec), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating(spec), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(spec), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(spec), nil
	case corev1.ResourceQuotaScopePriorityClass:
		return byOperator(r, spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(spec.Affinity), nil
	}
	return false, nil
}

func byOperator(r corev1.ScopedResourceSelectorRequirement, value string) (bool, error) {
	listed := slices.Contains(r.Values, value)
	switch r.Operator {
	case corev1.ScopeSelectorOpExists:
		return value != "", nil
	case corev1.ScopeSelectorOpDoesNotExist:
		return value == "", nil
	case corev1.ScopeSelectorOpIn:
		return value != "" && listed, nil
	case corev1.ScopeSelectorOpNotIn:
		return !listed, nil
	}
	return false, fmt.Errorf("%q is no operator of a scope selector", r.Operator)
}

// terminating tells whether a pod ends by itself.
func terminating(spec *corev1.PodSpec) bool {
	return spec.ActiveDeadlineSeconds != nil && *spec.ActiveDeadlineSeconds >= 0
}

// bestEffort tells whether neither a container nor the pod as a whole asks for processor or memory.
func bestEffort(spec *corev1.PodSpec) bool {
	var all []corev1.ResourceRequirements
	if spec.Resources != nil {
		all = append(all, *spec.Resources)
	}
	for _, c := range slices.Concat(spec.Containers, spec.InitContainers) {
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
