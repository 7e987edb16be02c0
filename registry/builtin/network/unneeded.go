package network

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// dropUnneeded takes what an update has kept, but a service of its new type doesn't have.
func dropUnneeded(s, old *corev1.Service) {
	now, was := &s.Spec, &old.Spec
	if hasIP(old) && !hasIP(s) {
		if now.ClusterIP == was.ClusterIP && slices.Equal(now.ClusterIPs, was.ClusterIPs) {
			now.ClusterIP, now.ClusterIPs = "", nil
		}
		dropSame(&now.IPFamilyPolicy, was.IPFamilyPolicy)
		dropSame(&now.IPFamilies, was.IPFamilies)
	}
	had := func(p corev1.ServicePort) bool {
		return p.NodePort == 0 || slices.ContainsFunc(was.Ports, func(q corev1.ServicePort) bool { return q.NodePort == p.NodePort })
	}
	if hasNodePorts(old) && !hasNodePorts(s) && !slices.ContainsFunc(now.Ports, func(p corev1.ServicePort) bool { return !had(p) }) {
		for i := range now.Ports {
			now.Ports[i].NodePort = 0
		}
	}
	if hasHealthPort(old) && !hasHealthPort(s) {
		dropSame(&now.HealthCheckNodePort, was.HealthCheckNodePort)
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && now.Type != corev1.ServiceTypeLoadBalancer {
		dropSame(&now.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts)
		dropSame(&now.LoadBalancerClass, was.LoadBalancerClass)
	}
	if isOutside(old) && !isOutside(s) {
		dropSame(&now.ExternalTrafficPolicy, was.ExternalTrafficPolicy)
	}
	if now.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// dropSame empties a field that is as it was.
func dropSame[T any](now *T, was T) {
	if equality.Semantic.DeepEqual(*now, was) {
		var none T
		*now = none
	}
}
