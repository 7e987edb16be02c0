package workloads

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for the status of what runs pods, as a controller reports it.

// reportedAmount is a number of pods that a status reports, by its field. One that isn't given has no number.
type reportedAmount struct {
	name   string
	number *int64
}

func amount[N int32 | int64](name string, n N) reportedAmount {
	number := int64(n)
	return reportedAmount{name, &number}
}

func amountIfAny[N int32 | int64](name string, n *N) reportedAmount {
	if n == nil {
		return reportedAmount{name: name}
	}
	return amount(name, *n)
}

// validateCounts wants no number to be negative.
func validateCounts(at *field.Path, counts ...reportedAmount) (errs field.ErrorList) {
	for _, c := range counts {
		errs = append(errs, rules.NotNegative(at.Child(c.name), c.number)...)
	}
	return errs
}

// validateShares wants no number to be above that of all replicas, nor more pods to be available than ready; ready is that number, and its
// name in a refusal.
func validateShares(at *field.Path, replicas int32, available, ready reportedAmount, shares ...reportedAmount) (errs field.ErrorList) {
	for _, c := range append(shares, available) {
		if *c.number > int64(replicas) {
			errs = append(errs, field.Invalid(at.Child(c.name), int32(*c.number), "cannot be greater than status.replicas"))
		}
	}
	if *available.number > *ready.number {
		errs = append(errs, field.Invalid(at.Child(available.name), int32(*available.number), "cannot be greater than "+ready.name))
	}
	return errs
}

// validateCollisions wants the count of collisions never to fall.
func validateCollisions(now, was *int32, at *field.Path) field.ErrorList {
	switch {
	case was == nil || now != nil && *now >= *was:
		return nil
	case now == nil:
		return field.ErrorList{field.Invalid(at.Child("collisionCount"), int32(0), "cannot be decremented")}
	}
	return field.ErrorList{field.Invalid(at.Child("collisionCount"), *now, "cannot be decremented")}
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s, at := &d.Status, field.NewPath("status")
	errs := validateCounts(at, amount("observedGeneration", s.ObservedGeneration), amount("replicas", s.Replicas), amount("updatedReplicas", s.UpdatedReplicas),
		amount("readyReplicas", s.ReadyReplicas), amount("availableReplicas", s.AvailableReplicas), amount("unavailableReplicas", s.UnavailableReplicas),
		amountIfAny("terminatingReplicas", s.TerminatingReplicas), amountIfAny("collisionCount", s.CollisionCount))
	errs = append(errs, validateShares(at, s.Replicas, amount("availableReplicas", s.AvailableReplicas), amount("readyReplicas", s.ReadyReplicas),
		amount("updatedReplicas", s.UpdatedReplicas), amount("readyReplicas", s.ReadyReplicas))...)
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount, at)...)
}

func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	s, at := &r.Status, field.NewPath("status")
	errs := validateCounts(at, amount("replicas", s.Replicas), amount("fullyLabeledReplicas", s.FullyLabeledReplicas), amount("readyReplicas", s.ReadyReplicas),
		amount("availableReplicas", s.AvailableReplicas), amount("observedGeneration", s.ObservedGeneration), amountIfAny("terminatingReplicas", s.TerminatingReplicas))
	return append(errs, validateShares(at, s.Replicas, amount("availableReplicas", s.AvailableReplicas), amount("readyReplicas", s.ReadyReplicas),
		amount("fullyLabeledReplicas", s.FullyLabeledReplicas), amount("readyReplicas", s.ReadyReplicas))...)
}

func validateReplicationControllerStatus(r, _ *corev1.ReplicationController) field.ErrorList {
	s := &r.Status
	return validateReplicaSetStatus(&appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas, AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
	}}, nil)
}

func validateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	s, at := &set.Status, field.NewPath("status")
	errs := validateCounts(at, amount("replicas", s.Replicas), amount("readyReplicas", s.ReadyReplicas), amount("currentReplicas", s.CurrentReplicas),
		amount("updatedReplicas", s.UpdatedReplicas), amount("availableReplicas", s.AvailableReplicas), amount("observedGeneration", s.ObservedGeneration),
		amountIfAny("collisionCount", s.CollisionCount))
	errs = append(errs, validateShares(at, s.Replicas, amount("availableReplicas", s.AvailableReplicas), amount("status.readyReplicas", s.ReadyReplicas),
		amount("readyReplicas", s.ReadyReplicas), amount("currentReplicas", s.CurrentReplicas), amount("updatedReplicas", s.UpdatedReplicas))...)
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount, at)...)
}

func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	s, at := &d.Status, field.NewPath("status")
	errs := validateCounts(at, amount("currentNumberScheduled", s.CurrentNumberScheduled), amount("numberMisscheduled", s.NumberMisscheduled),
		amount("desiredNumberScheduled", s.DesiredNumberScheduled), amount("numberReady", s.NumberReady), amount("observedGeneration", s.ObservedGeneration),
		amount("updatedNumberScheduled", s.UpdatedNumberScheduled), amount("numberAvailable", s.NumberAvailable), amount("numberUnavailable", s.NumberUnavailable),
		amountIfAny("collisionCount", s.CollisionCount))
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount, at)...)
}
