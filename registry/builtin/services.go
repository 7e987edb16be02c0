//lint:file-ignore SA1019 Endpoints are deprecated, and still served

package builtin

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Services and what they lead to; nodes.

// defaultAffinityTimeout is how long a client stays with its pod, in seconds.
const defaultAffinityTimeout int32 = 10800

func defaultServiceObject(s *corev1.Service) {
	spec := &s.Spec
	orDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	orDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		orPointTo(&spec.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		orPointTo(&spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		orPointTo(&spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, defaultAffinityTimeout)
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		orDefault(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	outside := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
	if outside || spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0 {
		orDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if outside || spec.Type == corev1.ServiceTypeClusterIP {
		orPointTo(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		orPointTo(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range s.Status.LoadBalancer.Ingress {
			if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
				orPointTo(&in.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

// validateService checks a service. Whether an address of its own choice is free is the allocator's to say.
func (o Options) validateService(s, old *corev1.Service) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	errs = append(errs, o.validateFamilies(&s.Spec, spec)...)
	errs = append(errs, oneOf(spec.Child("type"), s.Spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	errs = append(errs, oneOf(spec.Child("sessionAffinity"), s.Spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)...)
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		if s.Spec.ClusterIP != "" {
			errs = append(errs, field.Forbidden(spec.Child("clusterIP"), "may not be set for ExternalName services"))
		}
		if s.Spec.ExternalName == "" {
			errs = append(errs, field.Required(spec.Child("externalName"), ""))
		} else {
			errs = append(errs, problems(spec.Child("externalName"), s.Spec.ExternalName, validation.IsDNS1123Subdomain(strings.TrimSuffix(s.Spec.ExternalName, ".")))...)
		}
	} else if len(s.Spec.Ports) == 0 && s.Spec.ClusterIP != corev1.ClusterIPNone {
		errs = append(errs, field.Required(spec.Child("ports"), ""))
	}
	errs = append(errs, validateServicePorts(s.Spec.Ports, spec.Child("ports"))...)
	errs = append(errs, validateNodePorts(s, spec)...)
	for i, ip := range s.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			if _, err := netip.ParseAddr(ip); err != nil {
				errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(i), ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
			}
		}
	}
	if len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIPs[0] != s.Spec.ClusterIP {
		errs = append(errs, field.Invalid(spec.Child("clusterIPs"), s.Spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	if old != nil && old.Spec.ClusterIP != "" && old.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, unchanged(spec.Child("clusterIPs").Index(0), s.Spec.ClusterIP, old.Spec.ClusterIP)...)
	}
	return errs
}

func validateServicePorts(ports []corev1.ServicePort, at *field.Path) (errs field.ErrorList) {
	seen, taken := map[string]bool{}, map[string]bool{}
	for i, p := range ports {
		at := at.Index(i)
		switch {
		case p.Name == "" && len(ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		case p.Name != "":
			errs = append(errs, problems(at.Child("name"), p.Name, validation.IsDNS1123Label(p.Name))...)
			if seen[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			seen[p.Name] = true
		}
		errs = append(errs, problems(at.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))...)
		errs = append(errs, validateProtocol(p.Protocol, at.Child("protocol"))...)
		errs = append(errs, validatePortOrName(p.TargetPort, at.Child("targetPort"))...)
		key := fmt.Sprint(p.Protocol, p.Port)
		if taken[key] {
			errs = append(errs, field.Duplicate(at, map[string]any{"port": p.Port, "protocol": p.Protocol}))
		}
		taken[key] = true
	}
	return errs
}

// validateNodePorts refuses ports of nodes where a service of the type has none, and those that lead to two ports.
func validateNodePorts(s *corev1.Service, spec *field.Path) (errs field.ErrorList) {
	taken := map[string]bool{}
	for i, p := range s.Spec.Ports {
		at := spec.Child("ports").Index(i).Child("nodePort")
		key := fmt.Sprint(p.Protocol, p.NodePort)
		switch {
		case p.NodePort == 0:
		case !hasNodePorts(s):
			errs = append(errs, field.Forbidden(at, "may not be used when `type` is '"+string(s.Spec.Type)+"'"))
		case taken[key]:
			errs = append(errs, field.Duplicate(at, p.NodePort))
		}
		taken[key] = true
	}
	if s.Spec.HealthCheckNodePort != 0 && !hasHealthPort(s) {
		errs = append(errs, field.Invalid(spec.Child("healthCheckNodePort"), s.Spec.HealthCheckNodePort,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	return errs
}

// validateFamilies checks what a service says of its families of addresses. The range of addresses has one.
func (o Options) validateFamilies(s *corev1.ServiceSpec, at *field.Path) (errs field.ErrorList) {
	if s.Type == corev1.ServiceTypeExternalName {
		if len(s.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(at.Child("ipFamilies"), "may not be set for ExternalName services"))
		}
		if s.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(at.Child("ipFamilyPolicy"), "may not be set for ExternalName services"))
		}
		return errs
	}
	errs = append(errs, oneOf(at.Child("ipFamilyPolicy"), *s.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)...)
	single := *s.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	if single && (len(s.IPFamilies) > 1 || len(s.ClusterIPs) > 1) {
		errs = append(errs, field.Invalid(at.Child("ipFamilyPolicy"), *s.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs or IP families are specified"))
	}
	if s.ClusterIP == corev1.ClusterIPNone && len(s.Selector) == 0 { // it may have any
		return errs
	}
	if *s.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack {
		errs = append(errs, field.Invalid(at.Child("ipFamilyPolicy"), *s.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, family := range s.IPFamilies {
		if family != o.family() {
			errs = append(errs, field.Invalid(at.Child("ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			orDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func validateEndpoints(e, _ *corev1.Endpoints) (errs field.ErrorList) {
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, a := range s.Addresses {
			errs = append(errs, validateIP(a.IP, at.Child("addresses").Index(j).Child("ip"))...)
		}
		for j, a := range s.NotReadyAddresses {
			errs = append(errs, validateIP(a.IP, at.Child("notReadyAddresses").Index(j).Child("ip"))...)
		}
		for j, p := range s.Ports {
			at := at.Child("ports").Index(j)
			errs = append(errs, problems(at.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))...)
			errs = append(errs, validateProtocol(p.Protocol, at.Child("protocol"))...)
		}
	}
	return errs
}

func validateIP(ip string, at *field.Path) field.ErrorList {
	if _, err := netip.ParseAddr(ip); err != nil {
		return field.ErrorList{field.Invalid(at, ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")}
	}
	return nil
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		orPointTo(&s.Ports[i].Name, "")
		orPointTo(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func validateEndpointSlice(s, old *discoveryv1.EndpointSlice) (errs field.ErrorList) {
	errs = append(errs, oneOf(field.NewPath("addressType"), s.AddressType, discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)...)
	for i, e := range s.Endpoints {
		at := field.NewPath("endpoints").Index(i).Child("addresses")
		if len(e.Addresses) == 0 {
			errs = append(errs, field.Required(at, "must contain at least 1 address"))
		}
		if s.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for j, a := range e.Addresses {
			errs = append(errs, validateIP(a, at.Index(j))...)
		}
	}
	for i, p := range s.Ports {
		at := field.NewPath("ports").Index(i)
		errs = append(errs, validateProtocol(*p.Protocol, at.Child("protocol"))...)
		if p.Port != nil {
			errs = append(errs, problems(at.Child("port"), *p.Port, validation.IsValidPortNum(int(*p.Port)))...)
		}
	}
	if old != nil {
		errs = append(errs, unchanged(field.NewPath("addressType"), s.AddressType, old.AddressType)...)
	}
	return errs
}

// defaultNode lets pods have all that a node has.
func defaultNode(n *corev1.Node) {
	roundUp(n.Status.Capacity)
	roundUp(n.Status.Allocatable)
	if n.Status.Allocatable == nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}

func serviceColumns() []column {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return append([]column{
		text("Type", "spec.type", doc["type"]),
		cell("Cluster-IP", doc["clusterIP"], func(o any) any {
			for _, ip := range asList(at(o, "spec.clusterIPs")) {
				return str(ip)
			}
			return none
		}),
		cell("External-IP", doc["externalIPs"], externalIPs),
		cell("Port(s)", doc["ports"], func(o any) any {
			return or(joined(at(o, "spec.ports"), ",", func(p any) string {
				number := strconv.FormatInt(num(at(p, "port")), 10)
				if node := num(at(p, "nodePort")); node > 0 {
					number += ":" + strconv.FormatInt(node, 10)
				}
				return number + "/" + str(at(p, "protocol"))
			}), none)
		}),
		age(),
	}, wide(cell("Selector", doc["selector"], func(o any) any { return labelsText(at(o, "spec.selector")) }))...)
}

func externalIPs(o any) any {
	given := joined(at(o, "spec.externalIPs"), ",", str)
	switch corev1.ServiceType(str(at(o, "spec.type"))) {
	case corev1.ServiceTypeExternalName:
		return str(at(o, "spec.externalName"))
	case corev1.ServiceTypeLoadBalancer:
		balanced := balancerText(at(o, "status.loadBalancer.ingress"))
		return or(strings.Trim(balanced+","+given, ","), "<pending>")
	}
	return or(given, none)
}

// balancerText shows the addresses of a load balancer.
func balancerText(ingress any) string {
	var all []string
	for _, in := range asList(ingress) {
		all = append(all, or(str(at(in, "ip")), str(at(in, "hostname"))))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// maxShown is how many of a list a cell shows.
const maxShown = 3

// some shows the first of a list, and otherwise where that is empty.
func some(all []string, otherwise string) string {
	if len(all) == 0 {
		return otherwise
	}
	if len(all) <= maxShown {
		return strings.Join(all, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(all[:maxShown], ","), len(all)-maxShown)
}

func endpointsColumns() []column {
	return []column{
		cell("Endpoints", corev1.Endpoints{}.SwaggerDoc()["subsets"], func(o any) any {
			subsets := asList(at(o, "subsets"))
			if len(subsets) == 0 {
				return none
			}
			var all []string
			for _, s := range subsets {
				addresses, ports := asList(at(s, "addresses")), asList(at(s, "ports"))
				for _, p := range ports {
					for _, a := range addresses {
						all = append(all, net.JoinHostPort(str(at(a, "ip")), strconv.FormatInt(num(at(p, "port")), 10)))
					}
				}
				for _, a := range addresses {
					if len(ports) == 0 {
						all = append(all, str(at(a, "ip")))
					}
				}
			}
			return some(all, "")
		}),
		age(),
	}
}

func endpointSliceColumns() []column {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return []column{
		text("AddressType", "addressType", doc["addressType"]),
		cell("Ports", doc["ports"], func(o any) any {
			var all []string
			for _, p := range asList(at(o, "ports")) {
				if n := at(p, "port"); n != nil {
					all = append(all, strconv.FormatInt(num(n), 10))
				} else if name := at(p, "name"); name != nil {
					all = append(all, str(name))
				} else {
					all = append(all, "*")
				}
			}
			return or(some(all, unset), unset)
		}),
		cell("Endpoints", doc["endpoints"], func(o any) any {
			var all []string
			for _, e := range asList(at(o, "endpoints")) {
				for _, a := range asList(at(e, "addresses")) {
					all = append(all, str(a))
				}
			}
			return some(all, unset)
		}),
		age(),
	}
}

func nodeColumns() []column {
	info := corev1.NodeSystemInfo{}.SwaggerDoc()
	address := func(kind corev1.NodeAddressType) func(o any) any {
		return func(o any) any {
			for _, a := range asList(at(o, "status.addresses")) {
				if at(a, "type") == string(kind) {
					return str(at(a, "address"))
				}
			}
			return none
		}
	}
	unknown := func(name, path, description string) column {
		return cell(name, description, func(o any) any { return or(str(at(o, path)), "<unknown>") })
	}
	addresses := corev1.NodeStatus{}.SwaggerDoc()["addresses"]
	return append([]column{
		cell("Status", "The status of the node", nodeStatus),
		cell("Roles", "The roles of the node", nodeRoles),
		age(),
		text("Version", "status.nodeInfo.kubeletVersion", info["kubeletVersion"]),
	}, wide(
		cell("Internal-IP", addresses, address(corev1.NodeInternalIP)),
		cell("External-IP", addresses, address(corev1.NodeExternalIP)),
		unknown("OS-Image", "status.nodeInfo.osImage", info["osImage"]),
		cell("Kernel-Version", info["kernelVersion"], func(o any) any {
			kernel := or(str(at(o, "status.nodeInfo.kernelVersion")), "<unknown>")
			if processor := str(at(o, "status.nodeInfo.architecture")); processor != "" {
				kernel += " (" + processor + ")"
			}
			return kernel
		}),
		unknown("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", info["containerRuntimeVersion"]),
	)...)
}

func nodeStatus(o any) any {
	status := "Unknown"
	for _, c := range asList(at(o, "status.conditions")) {
		if at(c, "type") == string(corev1.NodeReady) {
			if status = "NotReady"; at(c, "status") == "True" {
				status = "Ready"
			}
		}
	}
	if at(o, "spec.unschedulable") == true {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(o any) any {
	const prefix = "node-role.kubernetes.io/"
	labels := asMap(at(o, "metadata.labels"))
	var roles []string
	for _, name := range sortedKeys(labels) {
		if role, ok := strings.CutPrefix(name, prefix); ok && role != "" {
			roles = append(roles, role)
		}
	}
	if role := str(labels["kubernetes.io/role"]); role != "" {
		roles = append(roles, role)
	}
	slices.Sort(roles)
	return or(strings.Join(slices.Compact(roles), ","), none)
}
