package quota

import (
	"cmp"
	"encoding/json"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Reader reads objects of a resource as they're stored, as JSON: those in a namespace, which is "" for a resource without, or the
// one of a name that isn't "".
type Reader func(of schema.GroupResource, namespace, name string) iter.Seq[[]byte]

// Evaluator says what objects take of quotas. A device that a ResourceClaim asks for may count as an extended resource, too: that
// depends on its DeviceClass, and on the pod that the claim is made for. So it reads other objects, when it first needs them, and
// keeps what they say. It's for one request or one count, and not for concurrent use.
type Evaluator struct {
	read   Reader
	stands map[string]string                  // the extended resource that a DeviceClass stands for, or "", by the class
	first  map[string]map[types.UID]types.UID // by namespace: the first of a pod's claims for extended resources, by the pod
}

// NewEvaluator returns an evaluator that reads others' objects by a function.
func NewEvaluator(read Reader) *Evaluator {
	return &Evaluator{read: read, first: map[string]map[types.UID]types.UID{}}
}

// classes returns all DeviceClasses with the extended resource of each.
func (e *Evaluator) classes() map[string]string {
	if e.stands != nil {
		return e.stands
	}
	e.stands = map[string]string{}
	for class := range each[resourcev1.DeviceClass](e.read(deviceClasses, "", "")) {
		e.stands[class.Name] = ""
		if name := class.Spec.ExtendedResourceName; name != nil {
			e.stands[class.Name] = *name
		}
	}
	return e.stands
}

// isOfDevices tells whether a quota's name is about devices of a DeviceClass that there is: by the class, or by the extended
// resource that the class stands for.
func (e *Evaluator) isOfDevices(name string) bool {
	if !isExtendedRequest(name) {
		return false
	}
	if class, implicit := strings.CutPrefix(name, implicitRequests); implicit {
		_, exists := e.classes()[class]
		return exists
	}
	for _, stands := range e.classes() {
		if stands != "" && requestsPrefix+stands == name {
			return true
		}
	}
	return false
}

// usageOfDevices returns how many devices of each class a ResourceClaim takes at most, and as which extended resources these count
// that its pod isn't charged for.
func (e *Evaluator) usageOfDevices(claim *resourcev1.ResourceClaim) Usage {
	byClass := devicesByClass(claim)
	usage, extended := Usage{}, Usage{}
	for class, n := range byClass {
		usage[corev1.ResourceName(class+classDevices)] = n
		extended.Add(Usage{corev1.ResourceName(implicitRequests + class): n})
		if stands := e.classes()[class]; stands != "" {
			extended.Add(Usage{corev1.ResourceName(requestsPrefix + stands): n})
		}
	}
	usage.Add(extended.Less(e.usageOfOwner(claim)))
	return usage
}

// devicesByClass returns how many devices of each class a ResourceClaim takes at most.
func devicesByClass(claim *resourcev1.ResourceClaim) map[string]resource.Quantity {
	sum := map[string]resource.Quantity{}
	for _, r := range claim.Spec.Devices.Requests {
		alternatives := map[string]int64{} // one of them is taken, so of each class as many as the one that takes most
		for _, sub := range r.FirstAvailable {
			alternatives[sub.DeviceClassName] = max(alternatives[sub.DeviceClassName], mostDevices(sub.AllocationMode, sub.Count))
		}
		if len(r.FirstAvailable) == 0 && r.Exactly != nil {
			alternatives[r.Exactly.DeviceClassName] = mostDevices(r.Exactly.AllocationMode, r.Exactly.Count)
		}
		for class, n := range alternatives {
			q := sum[class]
			q.Add(*resource.NewQuantity(n, resource.DecimalSI))
			sum[class] = q
		}
	}
	return sum
}

// mostDevices returns how many devices a request takes at most.
func mostDevices(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return count
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}

// usageOfOwner returns what is charged for the pod that a claim was made for, because the pod asks for an extended resource. It's
// nil for other claims, and for one that isn't the pod's: that's the one in its status, and the first before the status says so.
func (e *Evaluator) usageOfOwner(claim *resourcev1.ResourceClaim) Usage {
	owner := podOf(claim)
	if owner == nil {
		return nil
	}
	for pod := range each[corev1.Pod](e.read(Pods, claim.Namespace, owner.Name)) {
		switch status := pod.Status.ExtendedResourceClaimStatus; {
		case pod.UID != owner.UID, status != nil && status.ResourceClaimName != claim.Name:
			return nil
		case status == nil && cmp.Or(e.firstClaims(claim.Namespace)[pod.UID], claim.UID) != claim.UID:
			return nil
		case counts(pod):
			return usageOfPod(pod)
		}
	}
	return nil
}

// firstClaims returns the claim that was made first for each pod in a namespace.
func (e *Evaluator) firstClaims(namespace string) map[types.UID]types.UID {
	if known, ok := e.first[namespace]; ok {
		return known
	}
	first := map[types.UID]*resourcev1.ResourceClaim{}
	for claim := range each[resourcev1.ResourceClaim](e.read(Devices, namespace, "")) {
		if owner := podOf(claim); owner != nil && before(claim, first[owner.UID]) {
			first[owner.UID] = claim
		}
	}
	e.first[namespace] = map[types.UID]types.UID{}
	for pod, claim := range first {
		e.first[namespace][pod] = claim.UID
	}
	return e.first[namespace]
}

// before tells whether a claim was made before another one, which may be nil. Of two of one second it's the one whose name is lower.
func before(claim, other *resourcev1.ResourceClaim) bool {
	return other == nil || cmp.Or(claim.CreationTimestamp.Compare(other.CreationTimestamp.Time), strings.Compare(claim.Name, other.Name)) < 0
}

// podOf returns the pod for whose extended resources the scheduler made a claim, and nil for other claims.
func podOf(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(claim)
	if claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || owner == nil || owner.Kind != "Pod" || owner.APIVersion != "v1" {
		return nil
	}
	return owner
}

// each yields objects as a Go type. One that nobody can read is left out, as if it weren't there.
func each[T any](objects iter.Seq[[]byte]) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for raw := range objects {
			if object := new(T); json.Unmarshal(raw, object) == nil && !yield(object) {
				return
			}
		}
	}
}
