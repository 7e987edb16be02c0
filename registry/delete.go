package registry

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OfCollector tells whether a finalizer asks the garbage collector to act.
func OfCollector(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

// PolicyOf returns the policy that a deletion's options name; "" for none.
func PolicyOf(o *metav1.DeleteOptions) metav1.DeletionPropagation {
	//lint:ignore SA1019 it's deprecated, and still sent
	switch orphan := o.OrphanDependents; {
	case orphan != nil && *orphan:
		return metav1.DeletePropagationOrphan
	case orphan != nil:
		return metav1.DeletePropagationBackground
	case o.PropagationPolicy != nil:
		return *o.PropagationPolicy
	}
	return ""
}
