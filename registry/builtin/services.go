//lint:file-ignore SA1019 Endpoints are deprecated, and still served

package builtin

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Services and what they lead to; nodes.

// defaultAffinityTimeout is how long a client stays with its pod, in seconds.
const defaultAffinityTimeout int32 = 10800

// warnServices are the Warnings of Services. Those of a status are about addresses that are written in an unusual way.
func warnServices(ctx context.Context, obj, old registry.Typed, subresource string) (texts []string) {
	if subresource != "status" {
		return warnings(warnService)(ctx, obj, old, subresource)
	}
	for i, b := range obj.(*corev1.Service).Status.LoadBalancer.Ingress {
		if b.IP != "" {
			texts = append(texts, validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i), b.IP)...)
		}
	}
	return texts
}

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

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			orDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		orPointTo(&s.Ports[i].Name, "")
		orPointTo(&s.Ports[i].Protocol, corev1.ProtocolTCP)
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
