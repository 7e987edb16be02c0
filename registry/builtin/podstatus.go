package builtin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules for the status of pods.

// validatePodStatus checks what a kubelet reports.
func validatePodStatus(p, old *corev1.Pod) (errs field.ErrorList) {
	at := field.NewPath("status")
	for i, condition := range p.Status.Conditions {
		if condition.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Child("conditions").Index(i).Child("observedGeneration"), condition.ObservedGeneration, "must be greater than or equal to 0"))
		}
	}
	if now := p.Status.NominatedNodeName; now != "" && now != old.Status.NominatedNodeName {
		errs = append(errs, problems(at.Child("nominatedNodeName"), now, validation.IsDNS1123Subdomain(now))...)
		if old.Spec.NodeName != "" {
			errs = append(errs, field.Forbidden(at.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node"))
		}
	}
	if n := p.Status.ObservedGeneration; n < 0 {
		errs = append(errs, field.Invalid(at.Child("observedGeneration"), n, "must be a non-negative integer"))
	}
	errs = append(errs, unchanged(at.Child("qosClass"), p.Status.QOSClass, old.Status.QOSClass)...)
	if old.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, ended(p.Status.ContainerStatuses, old.Status.ContainerStatuses, old, at.Child("containerStatuses"))...)
	}
	return append(errs, validatePodIPs(&p.Status, at)...)
}

// ended wants containers that have ended to stay so where they aren't started again.
func ended(now, was []corev1.ContainerStatus, old *corev1.Pod, at *field.Path) (errs field.ErrorList) {
	for _, before := range was {
		t := before.State.Terminated
		if t == nil || t.ExitCode != 0 && old.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
			continue
		}
		own := slices.IndexFunc(old.Spec.Containers, func(c corev1.Container) bool { return c.Name == before.Name })
		if own >= 0 && (old.Spec.Containers[own].RestartPolicy != nil || len(old.Spec.Containers[own].RestartPolicyRules) > 0) {
			continue // it has rules of its own
		}
		for i, after := range now {
			if after.Name == before.Name && after.State.Terminated == nil {
				errs = append(errs, field.Forbidden(at.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}

// validatePodIPs checks the addresses of a pod and of its node, of whose the first is the one that older clients read.
func validatePodIPs(s *corev1.PodStatus, at *field.Path) (errs field.ErrorList) {
	for i, ip := range s.PodIPs {
		errs = append(errs, validation.IsValidIPForLegacyField(at.Child("podIPs").Index(i), ip.IP, true, nil)...)
	}
	if len(s.HostIPs) > 0 && s.HostIP != s.HostIPs[0].IP {
		errs = append(errs, field.Invalid(at.Child("hostIPs").Index(0).Child("ip"), s.HostIPs[0].IP, "must be equal to `hostIP`"))
	}
	for i, ip := range s.HostIPs {
		errs = append(errs, validation.IsValidIPForLegacyField(at.Child("hostIPs").Index(i), ip.IP, true, nil)...)
	}
	return errs
}
