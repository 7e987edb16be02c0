package network

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
)

// The addresses of a Service and their families, which a client may leave to the server. The range has one family; only a Service without an
// address and without a selector, which leads anywhere, has both.

// prepareService keeps what a service was given where an update says nothing of it, says of which family its address is, and takes away what a
// service of its type doesn't have.
func (a *Allocator) prepareService(s, old *corev1.Service, subresource string) {
	if subresource != "" {
		return
	}
	if old != nil {
		keepAllocated(s, old)
	}
	pairIPs(s, old)
	a.fillFamilies(s, old)
	if old != nil {
		dropUnneeded(s, old)
	}
}

// pairIPs makes clusterIPs follow clusterIP where a client changes that alone.
func pairIPs(s, old *corev1.Service) {
	now := &s.Spec
	var was corev1.ServiceSpec
	if old != nil {
		was = old.Spec
	}
	switch {
	case now.ClusterIP == was.ClusterIP && len(now.ClusterIPs) == 0:
		now.ClusterIPs = was.ClusterIPs
	case now.ClusterIP == was.ClusterIP || !slices.Equal(now.ClusterIPs, was.ClusterIPs):
	case now.ClusterIP == "":
		now.ClusterIPs = nil
	default:
		now.ClusterIPs = []string{now.ClusterIP}
	}
}

// anywhere tells whether a service leads anywhere.
func anywhere(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0
}

// prefersAsBefore tells whether an update leaves alone the addresses and families of a service that takes both families where there are both.
func prefersAsBefore(s, old *corev1.Service) bool {
	if old == nil {
		return false
	}
	now, was := &s.Spec, &old.Spec
	const prefers = corev1.IPFamilyPolicyPreferDualStack
	return now.Type == was.Type && hasPolicy(s, prefers) && hasPolicy(old, prefers) && slices.Equal(now.ClusterIPs, was.ClusterIPs) && slices.Equal(now.IPFamilies, was.IPFamilies)
}

func hasPolicy(s *corev1.Service, policy corev1.IPFamilyPolicy) bool {
	return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == policy
}

// fillFamilies says whether a service has addresses of one family or of both, and of which. What checkFamilies refuses stays as it is.
func (a *Allocator) fillFamilies(s, old *corev1.Service) {
	if !hasIP(s) || prefersAsBefore(s, old) {
		return
	}
	spec := &s.Spec
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		switch {
		case old != nil && old.Spec.IPFamilyPolicy != nil:
			policy = *old.Spec.IPFamilyPolicy
		case anywhere(s):
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
	single := hasPolicy(s, corev1.IPFamilyPolicySingleStack)
	if old != nil && single { // which releases the second ones
		if len(spec.ClusterIPs) > 1 && slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) {
			spec.ClusterIPs = spec.ClusterIPs[:1]
		}
		if len(spec.IPFamilies) > 1 && slices.Equal(spec.IPFamilies, old.Spec.IPFamilies) {
			spec.IPFamilies = spec.IPFamilies[:1]
		}
	}
	for i := len(spec.IPFamilies); i < len(spec.ClusterIPs) && spec.ClusterIPs[i] != corev1.ClusterIPNone; i++ {
		if familyOf(spec.ClusterIPs[i]) != a.family() || i > 0 {
			return
		}
		spec.IPFamilies = append(spec.IPFamilies, a.family())
	}
	reduced := old != nil && len(spec.IPFamilies) > 0 && len(spec.IPFamilies) < len(old.Spec.IPFamilies)
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{a.family()}
	}
	if anywhere(s) && len(spec.IPFamilies) == 1 && !single && !reduced {
		other := corev1.IPv6Protocol
		if spec.IPFamilies[0] == other {
			other = corev1.IPv4Protocol
		}
		spec.IPFamilies = append(spec.IPFamilies, other)
	}
}

// checkFamilies checks what a service says of its families of addresses.
func (a *Allocator) checkFamilies(c *check, s, old *corev1.Service) {
	if !hasIP(s) || prefersAsBefore(s, old) {
		return
	}
	spec, policy := field.NewPath("spec"), s.Spec.IPFamilyPolicy
	at, ips, families := spec.Child("ipFamilyPolicy"), s.Spec.ClusterIPs, s.Spec.IPFamilies
	if single := hasPolicy(s, corev1.IPFamilyPolicySingleStack); single {
		c.Refuse(len(ips) == 2, at, policy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
		c.Refuse(len(families) == 2, at, policy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
	} else if old != nil {
		c.Refuse(len(ips) > 0 && len(ips) < len(old.Spec.ClusterIPs), at, policy, "must be 'SingleStack' to release the secondary cluster IP")
		c.Refuse(len(families) > 0 && len(families) < len(old.Spec.IPFamilies), at, policy, "must be 'SingleStack' to release the secondary IP family")
	}
	for i := len(families); i < len(ips) && ips[i] != corev1.ClusterIPNone; i++ {
		family := familyOf(ips[i])
		c.Refuse(family != a.family(), spec.Child("clusterIPs").Index(i), ips, fmt.Sprintf("%s is not configured on this cluster", family))
	}
	if len(c.Errs) > 0 || anywhere(s) {
		return
	}
	c.Refuse(*policy == corev1.IPFamilyPolicyRequireDualStack, at, policy, "this cluster is not configured for dual-stack services")
	for i, family := range families {
		c.Refuse(family != a.family(), spec.Child("ipFamilies").Index(i), family, "not configured on this cluster")
	}
}

// familyOf is the family of an address.
func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// family is that of the range of addresses.
func (a *Allocator) family() corev1.IPFamily {
	if a.ips.Addr().Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// keepAllocated gives an update what it says nothing of: the address, and node ports by the names of ports.
func keepAllocated(s, old *corev1.Service) {
	if hasIP(s) && hasIP(old) {
		line.OrDefault(&s.Spec.ClusterIP, old.Spec.ClusterIP)
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
	}
	if givesPorts(s) && givesPorts(old) {
		used, had := map[int32]bool{}, map[string]int32{}
		for _, p := range s.Spec.Ports {
			used[p.NodePort] = true
		}
		for _, p := range old.Spec.Ports {
			had[p.Name] = p.NodePort
		}
		for i := range s.Spec.Ports {
			if p := &s.Spec.Ports[i]; p.NodePort == 0 && !used[had[p.Name]] {
				p.NodePort = had[p.Name]
			}
		}
	}
	if hasHealthPort(s) && hasHealthPort(old) {
		line.OrDefault(&s.Spec.HealthCheckNodePort, old.Spec.HealthCheckNodePort)
	}
}
