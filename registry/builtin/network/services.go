//lint:file-ignore SA1019 Endpoints are deprecated, and still served

package network

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
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
)

// Services and what they lead to.

// defaultAffinityTimeout is how long a client stays with its pod, in seconds.
const defaultAffinityTimeout int32 = 10800

// warnServices are the Warnings of Services. Those of a status are about addresses that are written in an unusual way.
func warnServices(ctx context.Context, obj, old registry.Typed, subresource string) (texts []string) {
	if subresource != "status" {
		return line.Warnings(warnService)(ctx, obj, old, subresource)
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
	line.OrDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	line.OrDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		line.OrPointTo(&spec.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		line.OrPointTo(&spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		line.OrPointTo(&spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, defaultAffinityTimeout)
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		line.OrDefault(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	outside := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
	if outside || spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0 {
		line.OrDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if outside || spec.Type == corev1.ServiceTypeClusterIP {
		line.OrPointTo(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		line.OrPointTo(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range s.Status.LoadBalancer.Ingress {
			if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
				line.OrPointTo(&in.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			line.OrDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		line.OrPointTo(&s.Ports[i].Name, "")
		line.OrPointTo(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func serviceColumns() []registry.Column {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return append([]registry.Column{
		column.Text("Type", "spec.type", doc["type"]),
		column.Cell("Cluster-IP", doc["clusterIP"], func(o any) any {
			for _, ip := range column.AsList(column.At(o, "spec.clusterIPs")) {
				return column.Str(ip)
			}
			return column.None
		}),
		column.Cell("External-IP", doc["externalIPs"], externalIPs),
		column.Cell("Port(s)", doc["ports"], func(o any) any {
			return column.Or(column.Joined(column.At(o, "spec.ports"), ",", func(p any) string {
				number := strconv.FormatInt(column.Num(column.At(p, "port")), 10)
				if node := column.Num(column.At(p, "nodePort")); node > 0 {
					number += ":" + strconv.FormatInt(node, 10)
				}
				return number + "/" + column.Str(column.At(p, "protocol"))
			}), column.None)
		}),
		column.Age(),
	}, column.Wide(column.Cell("Selector", doc["selector"], func(o any) any { return column.LabelsText(column.At(o, "spec.selector")) }))...)
}

func externalIPs(o any) any {
	given := column.Joined(column.At(o, "spec.externalIPs"), ",", column.Str)
	switch corev1.ServiceType(column.Str(column.At(o, "spec.type"))) {
	case corev1.ServiceTypeExternalName:
		return column.Str(column.At(o, "spec.externalName"))
	case corev1.ServiceTypeLoadBalancer:
		balanced := balancerText(column.At(o, "status.loadBalancer.ingress"))
		return column.Or(strings.Trim(balanced+","+given, ","), "<pending>")
	}
	return column.Or(given, column.None)
}

// balancerText shows the addresses of a load balancer.
func balancerText(ingress any) string {
	var all []string
	for _, in := range column.AsList(ingress) {
		all = append(all, column.Or(column.Str(column.At(in, "ip")), column.Str(column.At(in, "hostname"))))
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

func endpointsColumns() []registry.Column {
	return []registry.Column{
		column.Cell("Endpoints", corev1.Endpoints{}.SwaggerDoc()["subsets"], func(o any) any {
			subsets := column.AsList(column.At(o, "subsets"))
			if len(subsets) == 0 {
				return column.None
			}
			var all []string
			for _, s := range subsets {
				addresses, ports := column.AsList(column.At(s, "addresses")), column.AsList(column.At(s, "ports"))
				for _, p := range ports {
					for _, a := range addresses {
						all = append(all, net.JoinHostPort(column.Str(column.At(a, "ip")), strconv.FormatInt(column.Num(column.At(p, "port")), 10)))
					}
				}
				for _, a := range addresses {
					if len(ports) == 0 {
						all = append(all, column.Str(column.At(a, "ip")))
					}
				}
			}
			return some(all, "")
		}),
		column.Age(),
	}
}

func endpointSliceColumns() []registry.Column {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return []registry.Column{
		column.Text("AddressType", "addressType", doc["addressType"]),
		column.Cell("Ports", doc["ports"], func(o any) any {
			var all []string
			for _, p := range column.AsList(column.At(o, "ports")) {
				if n := column.At(p, "port"); n != nil {
					all = append(all, strconv.FormatInt(column.Num(n), 10))
				} else if name := column.At(p, "name"); name != nil {
					all = append(all, column.Str(name))
				} else {
					all = append(all, "*")
				}
			}
			return column.Or(some(all, column.Unset), column.Unset)
		}),
		column.Cell("Endpoints", doc["endpoints"], func(o any) any {
			var all []string
			for _, e := range column.AsList(column.At(o, "endpoints")) {
				for _, a := range column.AsList(column.At(e, "addresses")) {
					all = append(all, column.Str(a))
				}
			}
			return some(all, column.Unset)
		}),
		column.Age(),
	}
}
