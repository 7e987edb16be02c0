package quota

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Reader reads objects of a resource as they're stored: those in a namespace, which is "" for a resource without, or the one of a
// name that isn't "".
type Reader func(of schema.GroupResource, namespace, name string) iter.Seq[*kube.Object]

// Evaluator says what objects take of quotas. A device that a ResourceClaim asks for may count as an extended resource, too: that
// depends on its DeviceClass, and on the pod that the claim is made for. So it reads other objects, when it first needs them, and
// keeps what they say. It's for one request or one count, in one namespace, and not for concurrent use.
type Evaluator struct {
	read   Reader
	now    func() time.Time
	stands map[string]string         // the extended resource that a DeviceClass stands for, or "", by the class
	owned  map[string][]*kube.Object // ResourceClaims by the uid of each of their owners
	until  time.Time                 // the last moment at which all pods that were counted do; zero for ever
}

// NewEvaluator returns an evaluator that reads others' objects by a function, and goes by a clock.
func NewEvaluator(read Reader, now func() time.Time) *Evaluator {
	return &Evaluator{read: read, now: now}
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
// that its pod isn't charged for. Of two classes for one extended resource the one counts of which the claim takes more: upstream
// has one of them count, and any.
func (e *Evaluator) usageOfDevices(claim *resourcev1.ResourceClaim) Usage {
	usage, extended := Usage{}, Usage{}
	for class, n := range devicesByClass(claim) {
		usage[corev1.ResourceName(class+classDevices)] = n
		extended[corev1.ResourceName(implicitRequests+class)] = n
		if stands := e.classes()[class]; stands != "" {
			if name := corev1.ResourceName(requestsPrefix + stands); n.Cmp(extended[name]) > 0 {
				extended[name] = n
			}
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
		case status == nil && !e.isFirst(claim, owner):
			return nil
		case e.counts(pod):
			return usageOfPod(pod)
		}
	}
	return nil
}

// isFirst tells whether none of the claims for a pod's extended resources was made before this one. Of two of one second it's the
// one whose name is lower.
func (e *Evaluator) isFirst(claim *resourcev1.ResourceClaim, pod *metav1.OwnerReference) bool {
	for other := range each[resourcev1.ResourceClaim](slices.Values(e.ownedBy(claim.Namespace, pod.UID))) {
		before := cmp.Or(other.CreationTimestamp.Compare(claim.CreationTimestamp.Time), strings.Compare(other.Name, claim.Name)) < 0
		if owner := podOf(other); before && owner != nil && owner.UID == pod.UID {
			return false
		}
	}
	return true
}

// ownedBy returns the claims that name a uid as an owner's.
func (e *Evaluator) ownedBy(namespace string, uid types.UID) []*kube.Object {
	if e.owned == nil {
		e.owned = map[string][]*kube.Object{}
		for o := range e.read(Devices, namespace, "") {
			if o.Owned() {
				for _, owner := range o.Lineage().Owners {
					e.owned[owner.UID] = append(e.owned[owner.UID], o)
				}
			}
		}
	}
	return e.owned[string(uid)]
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
func each[T any](objects iter.Seq[*kube.Object]) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for o := range objects {
			if object := new(T); json.Unmarshal(o.Raw(), object) == nil && !yield(object) {
				return
			}
		}
	}
}
