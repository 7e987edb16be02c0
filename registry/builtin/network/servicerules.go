package network

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for Services, Endpoints and EndpointSlices, in the order in which Kubernetes asks them.

const (
	maxAffinitySeconds   = 86400
	maxClusterIPs        = 2 // one of each family
	maxSliceEndpoints    = 1000
	maxSlicePorts        = 20000
	maxEndpointAddresses = 100
	maxTopologyLabels    = 16
	maxHints             = 8
)

// check collects what is wrong with Services and what leads to them.
type check struct{ rules.Check }

// ip wants an address; one that was there before may be written as it was.
func (c *check) ip(at *field.Path, ip string, before []string) bool {
	errs := validation.IsValidIPForLegacyField(at, ip, true, before)
	c.Add(errs...)
	return len(errs) == 0
}

func (c *check) cidr(at *field.Path, cidr string, before []string) {
	c.Add(validation.IsValidCIDRForLegacyField(at, cidr, true, before)...)
}

// endpointIP wants an address at which something can be reached. Kubernetes refuses loopback addresses, too; here the server itself, and what
// it forwards to, may listen on them.
func (c *check) endpointIP(at *field.Path, text string) {
	ip := netutils.ParseIPSloppy(text)
	if ip == nil {
		c.Add(field.Invalid(at, text, "must be a valid IP address"))
		return
	}
	for _, is := range []struct {
		bad bool
		why string
	}{
		{ip.IsUnspecified(), "may not be unspecified (" + text + ")"},
		{ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		c.Refuse(is.bad, at, text, is.why)
	}
}

func headless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// isOutside tells whether a service is reached from outside of the cluster.
func isOutside(s *corev1.Service) bool {
	return hasNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

// validateService checks a service. Whether an address or port of its own choice is free is the allocator's to say.
func (a *Allocator) validateService(s, old *corev1.Service) field.ErrorList {
	// Kubernetes hands out addresses and families before it asks the other rules.
	families := &check{}
	families.clusterIPs(s, old)
	if len(families.Errs) == 0 {
		a.checkFamilies(families, s, old)
	}
	if len(families.Errs) > 0 {
		return families.Errs
	}
	c, spec := &check{}, field.NewPath("spec")
	if old != nil {
		c.keptIPs(s, old)
		c.keptFamilies(s, old)
		c.Refuse(isBalanced(old) && isBalanced(s) && !equality.Semantic.DeepEqual(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass), spec.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, "may not change once set")
		c.balancerClass(s, spec.Child("loadBalancerClass"))
		c.Forbid(hasHealthPort(old) && hasHealthPort(s) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort, spec.Child("healthCheckNodePort"), "field is immutable")
	}
	c.service(s, old)
	return c.Errs
}

func isBalanced(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeLoadBalancer }

// clusterIPs checks a service's addresses and families.
func (c *check) clusterIPs(s, old *corev1.Service) {
	if !hasIP(s) {
		return
	}
	spec := field.NewPath("spec")
	ips, families, all := spec.Child("clusterIPs"), spec.Child("ipFamilies"), s.Spec.ClusterIPs
	switch {
	case s.Spec.ClusterIP == "" && len(all) > 0:
		c.Add(field.Invalid(ips, all, "must be empty when `clusterIP` is not specified"))
	case s.Spec.ClusterIP != "" && len(all) == 0:
		c.Add(field.Required(ips, ""))
	case s.Spec.ClusterIP != "" && all[0] != s.Spec.ClusterIP:
		c.Add(field.Invalid(ips, all, "first value must match `clusterIP`"))
	}
	known := rules.Earlier[corev1.IPFamily]{}
	for i := range s.Spec.IPFamilies {
		family := &s.Spec.IPFamilies[i]
		rules.Among(c, families.Index(i), family, corev1.IPv4Protocol, corev1.IPv6Protocol)
		c.Twice(known.Had(*family), families.Index(i), *family)
	}
	rules.Among(c, spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)
	var before []string
	if old != nil {
		before = old.Spec.ClusterIPs
	}
	valid := true
	for i, ip := range all {
		switch {
		case i > 0 || ip != corev1.ClusterIPNone:
			valid = c.ip(ips.Index(i), ip, before) && valid
		case len(all) > 1:
			valid = false
			c.Add(field.Invalid(ips, all, "'None' must be the first and only value"))
		}
	}
	c.Refuse(len(all) > maxClusterIPs, ips, all, "may only hold up to 2 values")
	if !valid {
		return
	}
	if len(all) > 1 {
		if dual, err := netutils.IsDualStackIPStrings(all); err == nil && !dual {
			c.Add(field.Invalid(ips, all, "may specify no more than one IP for each IP family"))
		}
	}
	for i := 0; i < min(len(all), len(s.Spec.IPFamilies)) && !headless(s); i++ {
		switch family, six := s.Spec.IPFamilies[i], netutils.IsIPv6String(all[i]); {
		case family == corev1.IPv4Protocol && six, family == corev1.IPv6Protocol && !six:
			c.Add(field.Invalid(ips.Index(i), all[i], fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", family, i)))
		}
	}
}

// keptIPs checks that a service keeps its addresses, but for a second one.
func (c *check) keptIPs(s, old *corev1.Service) {
	if !hasIP(s) || !hasIP(old) || headless(s) && headless(old) {
		return
	}
	now, was, at := s.Spec.ClusterIPs, old.Spec.ClusterIPs, field.NewPath("spec", "clusterIPs")
	c.Refuse(len(now) == 0 && len(was) > 0, at.Index(0), now, "primary clusterIP can not be unset")
	for i := range min(len(now), len(was)) {
		c.Refuse(now[i] != was[i] && (i == 0 || len(now) == len(was)), at.Index(i), now, "may not change once set")
	}
	if len(now) == 1 && len(was) > 1 {
		c.released(s, "clusterIP")
	}
}

func (c *check) released(s *corev1.Service, what string) {
	if p := s.Spec.IPFamilyPolicy; p == nil || *p != corev1.IPFamilyPolicySingleStack {
		c.Add(field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), p, "must be set to 'SingleStack' when releasing the secondary "+what))
	}
}

func (c *check) keptFamilies(s, old *corev1.Service) {
	if !hasIP(s) || !hasIP(old) || headless(s) || headless(old) {
		return
	}
	now, was, at := s.Spec.IPFamilies, old.Spec.IPFamilies, field.NewPath("spec", "ipFamilies").Index(0)
	for i := range min(len(now), len(was)) {
		switch {
		case now[i] == was[i]:
		case len(now) == len(was):
			c.Add(field.Invalid(at, now, "may not change once set"))
		case i == 0:
			c.Add(field.Invalid(at, s.Spec.ClusterIPs, "may not change once set"))
		}
	}
	if len(now) == 1 && len(was) > 1 {
		c.released(s, "ipFamily")
	}
}

func (c *check) balancerClass(s *corev1.Service, at *field.Path) {
	switch class := s.Spec.LoadBalancerClass; {
	case class == nil:
	case isBalanced(s):
		c.Qualified(at, *class)
	default:
		c.Add(field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'"))
	}
}

// service checks what a service says besides its addresses.
func (c *check) service(s, old *corev1.Service) {
	spec := field.NewPath("spec")
	annotations := field.NewPath("metadata", "annotations")
	hints, given := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if mode, ok := s.Annotations[corev1.AnnotationTopologyMode]; ok && given && mode != hints {
		c.Add(field.Invalid(annotations.Key(corev1.AnnotationTopologyMode), mode, fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints)))
	}
	c.Lack(len(s.Spec.Ports) == 0 && !headless(s) && hasIP(s), spec.Child("ports"), "")
	switch {
	case hasNodePorts(s):
		c.Refuse(headless(s), spec.Child("clusterIPs").Index(0), corev1.ClusterIPNone, "may not be set to 'None' for "+string(s.Spec.Type)+" services")
	case !hasIP(s):
		c.Forbid(len(s.Spec.ClusterIPs) > 0, spec.Child("clusterIPs"), "may not be set for ExternalName services")
		c.Forbid(len(s.Spec.IPFamilies) > 0, spec.Child("ipFamilies"), "may not be set for ExternalName services")
		c.Forbid(s.Spec.IPFamilyPolicy != nil, spec.Child("ipFamilyPolicy"), "may not be set for ExternalName services")
		if name := strings.TrimSuffix(s.Spec.ExternalName, "."); c.Required(spec.Child("externalName"), name) {
			c.Subdomain(spec.Child("externalName"), name)
		}
	}
	var names rules.Earlier[string]
	if len(s.Spec.Ports) > 1 {
		names = rules.Earlier[string]{}
	}
	for i := range s.Spec.Ports {
		c.servicePort(&s.Spec.Ports[i], names, spec.Child("ports").Index(i))
	}
	c.Add(metavalidation.ValidateLabels(s.Spec.Selector, spec.Child("selector"))...)
	c.Add(rules.OneOf(spec.Child("sessionAffinity"), s.Spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)...)
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		if n := s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds; *n <= 0 || *n > maxAffinitySeconds {
			c.Add(field.Invalid(spec.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), n, fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
		}
	}
	var before corev1.Service
	if old != nil {
		before = *old
	}
	c.clusterIPs(s, old)
	for i, ip := range s.Spec.ExternalIPs {
		at := spec.Child("externalIPs").Index(i)
		if c.ip(at, ip, before.Spec.ExternalIPs) {
			c.Refuse(netutils.ParseIPSloppy(ip).IsLoopback(), at, ip, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
			c.endpointIP(at, ip)
		}
	}
	c.Add(rules.OneOf(spec.Child("type"), s.Spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	c.samePorts(s, spec.Child("ports"))
	c.sourceRanges(s, &before, spec.Child("LoadBalancerSourceRanges"), annotations.Key(corev1.AnnotationLoadBalancerSourceRangesKey))
	c.Forbid(s.Spec.AllocateLoadBalancerNodePorts != nil && !isBalanced(s), spec.Child("allocateLoadBalancerNodePorts"), "may only be used when `type` is 'LoadBalancer'")
	c.balancerClass(s, spec.Child("loadBalancerClass"))
	c.traffic(s, spec)
}

// servicePort checks a port of a service. names are those of the ports before, nil if there are no others.
func (c *check) servicePort(p *corev1.ServicePort, names rules.Earlier[string], at *field.Path) {
	switch {
	case p.Name == "" && names != nil:
		c.Add(field.Required(at.Child("name"), ""))
	case p.Name != "":
		c.Label(at.Child("name"), p.Name)
		c.Twice(names != nil && names.Had(p.Name), at.Child("name"), p.Name)
	}
	c.Texts(at.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))
	c.Add(rules.ValidateProtocol(p.Protocol, at.Child("protocol"))...)
	c.Add(rules.ValidatePortOrName(p.TargetPort, at.Child("targetPort"))...)
	if p.AppProtocol != nil {
		c.Qualified(at.Child("appProtocol"), *p.AppProtocol)
	}
}

// samePorts refuses ports of nodes where a service of the type has none, and ports that are there twice.
func (c *check) samePorts(s *corev1.Service, at *field.Path) {
	for i, p := range s.Spec.Ports {
		c.Forbid(p.NodePort != 0 && s.Spec.Type == corev1.ServiceTypeClusterIP, at.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'")
	}
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	onNodes, ports := rules.Earlier[number]{}, rules.Earlier[number]{}
	made, taken := map[int32]int32{}, []int32(nil) // as Kubernetes has given ports by now, by those that lead to them
	for i, p := range s.Spec.Ports {
		if p.NodePort == 0 && givesPorts(s) {
			p.NodePort = cmp.Or(made[p.Port], requestedPort(s, p.Port), madeUpPort(taken))
		}
		if p.NodePort == 0 {
			continue
		}
		made[p.Port], taken = p.NodePort, append(taken, p.NodePort)
		c.Twice(onNodes.Had(number{p.Protocol, p.NodePort}), at.Index(i).Child("nodePort"), p.NodePort)
	}
	for i, p := range s.Spec.Ports {
		if ports.Had(number{p.Protocol, p.Port}) {
			c.Add(field.Duplicate(at.Index(i), rules.Untagged(corev1.ServicePort{Protocol: p.Protocol, Port: p.Port})))
		}
	}
}

// sourceRanges checks from where a load balancer takes connections, in the field or the older annotation.
func (c *check) sourceRanges(s, old *corev1.Service, at, annotation *field.Path) {
	const balanced = "may only be used when `type` is 'LoadBalancer'"
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		c.Forbid(!isBalanced(s), at, balanced)
		before := slices.Clone(old.Spec.LoadBalancerSourceRanges)
		for i := range before {
			before[i] = strings.TrimSpace(before[i])
		}
		for i, r := range s.Spec.LoadBalancerSourceRanges {
			c.cidr(at.Index(i), strings.TrimSpace(r), before)
		}
		return
	}
	text, ok := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !ok {
		return
	}
	c.Forbid(!isBalanced(s), annotation, balanced)
	was, had := old.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if text = strings.TrimSpace(text); text == "" || had && was == text {
		return
	}
	for r := range strings.SplitSeq(text, ",") {
		c.cidr(annotation, strings.TrimSpace(r), nil)
	}
}

// traffic checks where traffic for a service goes.
func (c *check) traffic(s *corev1.Service, spec *field.Path) {
	at, policy := spec.Child("externalTrafficPolicy"), s.Spec.ExternalTrafficPolicy
	switch {
	case isOutside(s):
		c.Add(rules.OneOf(at, policy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	case policy != "":
		c.Add(field.Invalid(at, policy, "may only be set for externally-accessible services"))
	}
	at = spec.Child("healthCheckNodePort")
	switch port := s.Spec.HealthCheckNodePort; {
	case port != 0 && !hasHealthPort(s):
		c.Add(field.Invalid(at, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	case port != 0:
		c.Texts(at, port, validation.IsValidPortNum(int(port)))
	}
	rules.Among(c, spec.Child("internalTrafficPolicy"), s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	rules.Among(c, spec.Child("trafficDistribution"), s.Spec.TrafficDistribution, corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode)
}

func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	c, at := &check{}, field.NewPath("status", "loadBalancer", "ingress")
	all := s.Status.LoadBalancer.Ingress
	if !isBalanced(s) && len(all) > 0 {
		c.Add(field.Forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'"))
		return c.Errs
	}
	var before []string
	for _, in := range old.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			before = append(before, in.IP)
		}
	}
	for i, in := range all {
		at := at.Index(i)
		if in.IP != "" {
			c.ip(at.Child("ip"), in.IP, before)
		}
		switch {
		case in.IPMode == nil && in.IP != "":
			c.Add(field.Required(at.Child("ipMode"), "must be specified when `ip` is set"))
		case in.IPMode != nil && in.IP == "":
			c.Add(field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		default:
			rules.Among(c, at.Child("ipMode"), in.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)
		}
		c.hostname(at.Child("hostname"), in.Hostname)
	}
	return c.Errs
}

// hostname checks the name under which a load balancer is reached, if it has one.
func (c *check) hostname(at *field.Path, name string) {
	if name == "" {
		return
	}
	c.Subdomain(at, name)
	c.Refuse(netutils.ParseIPSloppy(name) != nil, at, name, "must be a DNS name, not an IP address")
}

func warnService(s, _ *corev1.Service) (texts []string) {
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		texts = append(texts, fmt.Sprintf("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	spec, named := field.NewPath("spec"), !hasIP(s)
	none := s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ClusterIP == corev1.ClusterIPNone
	if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range s.Spec.ClusterIPs {
			texts = append(texts, validation.GetWarningsForIP(spec.Child("clusterIPs").Index(i), ip)...)
		}
	}
	warn := func(is bool, text string) {
		if is {
			texts = append(texts, text)
		}
	}
	warn(none && s.Spec.LoadBalancerIP != "", "spec.loadBalancerIP is ignored for headless services")
	warn(none && len(s.Spec.ExternalIPs) > 0, "spec.externalIPs is ignored for headless services")
	warn(none && s.Spec.SessionAffinity != corev1.ServiceAffinityNone, "spec.SessionAffinity is ignored for headless services")
	for i, ip := range s.Spec.ExternalIPs {
		texts = append(texts, validation.GetWarningsForIP(spec.Child("externalIPs").Index(i), ip)...)
	}
	warn(len(s.Spec.ExternalIPs) > 0 && !none && !named, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	if s.Spec.LoadBalancerIP != "" {
		texts = append(texts, validation.GetWarningsForIP(spec.Child("loadBalancerIP"), s.Spec.LoadBalancerIP)...)
	}
	for i, r := range s.Spec.LoadBalancerSourceRanges {
		texts = append(texts, validation.GetWarningsForCIDR(spec.Child("loadBalancerSourceRanges").Index(i), r)...)
	}
	warn(named && len(s.Spec.ExternalIPs) > 0, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	warn(!named && s.Spec.ExternalName != "", `spec.externalName is ignored when spec.type is not "ExternalName"`)
	if d := s.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		texts = append(texts, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return texts
}
