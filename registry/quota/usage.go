package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// named are resources of the core group whose objects have a name of their own in quotas besides count/....
var named = []string{"pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"}

// What begins or ends names.
const (
	countPrefix      = "count/"
	requestsPrefix   = "requests."
	classStorage     = ".storageclass.storage.k8s.io/"
	classDevices     = corev1.ResourceClaimsPerClass
	implicitRequests = requestsPrefix + resourcev1.ResourceDeviceClassPrefix
)

// The resources that have evaluators of their own.
var (
	Pods     = schema.GroupResource{Resource: "pods"}
	Services = schema.GroupResource{Resource: "services"}
	Volumes  = schema.GroupResource{Resource: "persistentvolumeclaims"}
	Devices  = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}

	deviceClasses = schema.GroupResource{Group: resourcev1.GroupName, Resource: "deviceclasses"}
)

// Usage is what an object, or all of them, take of a quota, by the names in its hard limits. Quantities aren't negative.
type Usage map[corev1.ResourceName]resource.Quantity

// Add adds another usage.
func (u Usage) Add(other Usage) {
	for name, q := range other {
		sum := u[name].DeepCopy()
		sum.Add(q)
		u[name] = sum
	}
}

// Less returns what u takes more than another usage, without what is nothing.
func (u Usage) Less(other Usage) Usage {
	more := Usage{}
	for name, q := range u {
		rest := q.DeepCopy()
		rest.Sub(other[name])
		if rest.Sign() > 0 {
			more[name] = rest
		}
	}
	return more
}

// Resources returns the resources whose objects a name of a quota's may count. There's none for a name that nothing counts.
func Resources(name corev1.ResourceName) []schema.GroupResource {
	text := string(name)
	if rest, counts := strings.CutPrefix(text, countPrefix); counts && rest != "" {
		return []schema.GroupResource{schema.ParseGroupResource(rest)}
	}
	switch name {
	case corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return []schema.GroupResource{Services}
	case corev1.ResourceRequestsStorage:
		return []schema.GroupResource{Volumes}
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return []schema.GroupResource{Pods}
	}
	switch {
	case strings.HasPrefix(text, corev1.ResourceHugePagesPrefix), strings.HasPrefix(text, corev1.ResourceRequestsHugePagesPrefix):
		return []schema.GroupResource{Pods}
	case isExtendedRequest(text):
		return []schema.GroupResource{Pods, Devices}
	case strings.HasSuffix(text, classStorage+string(corev1.ResourceRequestsStorage)), strings.HasSuffix(text, classStorage+string(corev1.ResourcePersistentVolumeClaims)):
		return []schema.GroupResource{Volumes}
	case strings.HasSuffix(text, classDevices):
		return []schema.GroupResource{Devices}
	case slices.Contains(named, text):
		return []schema.GroupResource{{Resource: text}}
	}
	return nil
}

// IsNative tells whether a resource of nodes is Kubernetes' own.
func IsNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtended tells whether a resource of nodes is somebody else's, and has a name that a quota can have.
func IsExtended(name corev1.ResourceName) bool {
	return !IsNative(name) && !strings.HasPrefix(string(name), requestsPrefix) && len(validation.IsQualifiedName(requestsPrefix+string(name))) == 0
}

// IsHugePages tells whether a resource is pages of a size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isExtendedRequest tells whether a name of a quota's is about requests of an extended resource.
func isExtendedRequest(name string) bool {
	return strings.HasPrefix(name, requestsPrefix) && (!IsNative(corev1.ResourceName(name)) || strings.HasPrefix(name, implicitRequests))
}

// Names returns those names of a quota's hard limits that count objects of a resource, sorted.
func (e *Evaluator) Names(hard corev1.ResourceList, of schema.GroupResource) (names []corev1.ResourceName) {
	for name := range hard {
		if r := Resources(name); slices.Contains(r, of) && (of == r[0] || e.isOfDevices(string(name))) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// PerObject tells whether an object of a resource must be read to know what it takes: otherwise each takes one of
// everything.
func PerObject(q *corev1.ResourceQuota, of schema.GroupResource) bool {
	return of == Pods || of == Services || of == Volumes || of == Devices || Scoped(q)
}

// Scoped tells whether a quota is about some objects only.
func Scoped(q *corev1.ResourceQuota) bool {
	return len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil && len(q.Spec.ScopeSelector.MatchExpressions) > 0
}

// Matches tells whether a quota is about an object: some of its hard limits count the object's resource, and its scopes have the
// object.
func (e *Evaluator) Matches(q *corev1.ResourceQuota, hard corev1.ResourceList, of schema.GroupResource, object *unstructured.Unstructured) (bool, error) {
	if object == nil || len(e.Names(hard, of)) == 0 {
		return false, nil
	}
	return matches(q, of, object)
}

// Of returns what an object takes of a quota, of those names that its hard limits have: the spec's, or those in its status.
// It's nil if none of them counts this object. The error is of an object that can't be decoded.
func (e *Evaluator) Of(q *corev1.ResourceQuota, hard corev1.ResourceList, of schema.GroupResource, object *unstructured.Unstructured) (Usage, error) {
	if ok, err := e.Matches(q, hard, of, object); !ok || err != nil {
		return nil, err
	}
	all, err := e.usageOf(of, object)
	if err != nil {
		return nil, err
	}
	usage := Usage{}
	for name := range hard {
		if q, takes := all[name]; takes && q.Sign() > 0 {
			usage[name] = q
		}
	}
	return usage, nil
}

// usageOf returns what an object takes, by all names that count it.
func (e *Evaluator) usageOf(of schema.GroupResource, object *unstructured.Unstructured) (Usage, error) {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	usage := Usage{corev1.ResourceName(countPrefix + of.String()): one}
	var err error
	switch of {
	case Pods:
		var pod corev1.Pod
		if err = decode(object, &pod); err == nil && e.counts(&pod) {
			usage.Add(usageOfPod(&pod))
		}
	case Services:
		var service corev1.Service
		if err = decode(object, &service); err == nil {
			usage[corev1.ResourceServices] = one
			if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
				usage[corev1.ResourceServicesLoadBalancers] = one
			}
			usage[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(nodePorts(&service.Spec), resource.DecimalSI)
		}
	case Volumes:
		var claim corev1.PersistentVolumeClaim
		if err = decode(object, &claim); err == nil {
			usage.Add(usageOfClaim(&claim))
		}
	case Devices:
		var claim resourcev1.ResourceClaim
		if err = decode(object, &claim); err == nil {
			usage.Add(e.usageOfDevices(&claim))
		}
	default:
		if of.Group == "" && slices.Contains(named, of.Resource) {
			usage[corev1.ResourceName(of.Resource)] = one
		}
	}
	return usage, err
}

func decode(object *unstructured.Unstructured, into any) error {
	return jsontree.Into(object.Object, into)
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

// usageOfClaim returns what a PersistentVolumeClaim takes, together and of its storage class. Parts of a byte are rounded up.
func usageOfClaim(claim *corev1.PersistentVolumeClaim) Usage {
	class := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if _, old := claim.Annotations[corev1.BetaStorageClassAnnotation]; !old && claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	usage := Usage{corev1.ResourcePersistentVolumeClaims: *resource.NewQuantity(1, resource.DecimalSI)}
	if storage, asks := claim.Spec.Resources.Requests[corev1.ResourceStorage]; asks {
		if given, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && given.Cmp(storage) > 0 {
			storage = given
		}
		storage = storage.DeepCopy()
		storage.RoundUp(0)
		usage[corev1.ResourceRequestsStorage] = storage
	}
	if class != "" {
		for _, name := range []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage} {
			if q, takes := usage[name]; takes {
				usage[corev1.ResourceName(class+classStorage+string(name))] = q
			}
		}
	}
	return usage
}

// selectors returns what a quota says of its scopes.
func selectors(q *corev1.ResourceQuota) (all []corev1.ScopedResourceSelectorRequirement) {
	for _, scope := range q.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		all = append(all, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

// matches tells whether a quota's scopes have an object. Only pods and PersistentVolumeClaims have what scopes are about.
func matches(q *corev1.ResourceQuota, of schema.GroupResource, object *unstructured.Unstructured) (bool, error) {
	var in func(r corev1.ScopedResourceSelectorRequirement) (bool, error)
	switch {
	case !Scoped(q):
		return true, nil
	case of == Pods:
		pod := &corev1.Pod{}
		if err := decode(object, pod); err != nil {
			return false, err
		}
		in = func(r corev1.ScopedResourceSelectorRequirement) (bool, error) { return podInScope(pod, r) }
	case of == Volumes:
		claim := &corev1.PersistentVolumeClaim{}
		if err := decode(object, claim); err != nil {
			return false, err
		}
		in = func(r corev1.ScopedResourceSelectorRequirement) (bool, error) { return claimInScope(claim, r) }
	default:
		return false, nil
	}
	for _, r := range selectors(q) {
		if ok, err := in(r); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// claimInScope tells whether a PersistentVolumeClaim fulfils a requirement: by the VolumeAttributesClasses that it has, wants or
// is about to get.
func claimInScope(claim *corev1.PersistentVolumeClaim, r corev1.ScopedResourceSelectorRequirement) (bool, error) {
	if r.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	var classes []string
	for _, name := range []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName} {
		if name != nil && *name != "" {
			classes = append(classes, *name)
		}
	}
	if s := claim.Status.ModifyVolumeStatus; s != nil && s.TargetVolumeAttributesClassName != "" {
		classes = append(classes, s.TargetVolumeAttributesClassName)
	}
	if len(classes) == 0 {
		return byOperator(r, "")
	}
	for _, class := range classes {
		if ok, err := byOperator(r, class); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// byOperator tells whether a value, or none for "", fulfils a requirement.
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
