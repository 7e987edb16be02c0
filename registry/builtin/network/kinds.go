//lint:file-ignore SA1019 Endpoints are deprecated, and still served

// Package network has Services, Endpoints and EndpointSlices, and the group networking.k8s.io.
//
// Services get their addresses and ports from an Allocator, which holds what writes have taken that the cache doesn't show
// yet. Its mutex is a leaf but for the locks of the cacher. MakeOwnService and WriteEndpoints write the Service default/kubernetes, by which pods
// reach the server.
//
// # Bounds
//
// What the Allocator holds grows with the writes of Services under way, to at most one entry for each
// address and port of the ranges. The next write drops what the cache shows by then.

package network

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
)

const (
	discoveryGroup  = "discovery.k8s.io"
	networkingGroup = "networking.k8s.io"
)

// Kinds are the lines of the table.
func Kinds(a *Allocator) []registry.Type {
	return []registry.Type{
		{Names: line.InAll(line.Names("", "v1", "Service", "svc")), New: line.New[corev1.Service], Status: true,
			Stored: registry.Stored{At: "services/specs"}, Strategy: registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, ReturnDeleted: true, StatusResets: line.SpecOnly},
			Selection: registry.Selection{Fields: []string{"spec.clusterIP", "spec.type"}}, Columns: serviceColumns, ValidName: apivalidation.NameIsDNSLabel,
			Parts: registry.Parts{Absent: line.OnlyProxy()}, Default: line.Set(defaultServiceObject), Prepare: line.Prepare(a.prepareService),
			Validate: line.Parts(a.validateService, validateServiceStatus), Warnings: warnServices, Guard: registry.Guard{Claim: line.Claiming(a.claim)}},
		{Names: registry.Names{Version: "v1", Kind: "Endpoints", ListKind: "EndpointsList", Plural: "endpoints", Singular: "endpoints", ShortNames: []string{"ep"}}, New: line.New[corev1.Endpoints], Columns: endpointsColumns, Default: line.Set(defaultEndpoints),
			Validate: line.Rules(validateEndpoints), Warnings: line.Warnings(warnEndpoints), Warning: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
			Stored: registry.Stored{At: "services/endpoints"}, Strategy: registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true}},
		{Names: line.Names(discoveryGroup, "v1", "EndpointSlice"), New: line.New[discoveryv1.EndpointSlice],
			Strategy: registry.Strategy{UnconditionalUpdate: true, Generation: line.Counted(changesSlice)},
			Columns:  endpointSliceColumns, Default: line.Set(defaultEndpointSlice), Prepare: line.Prepare(prepareEndpointSlice), Validate: line.Rules(validateEndpointSlice), Warnings: line.Warnings(warnEndpointSlice)},
		{Names: line.Names(networkingGroup, "v1", "Ingress", "ing"), New: line.New[networkingv1.Ingress], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, StatusResets: line.SpecOnly},
			Columns:  ingressColumns, Validate: line.Parts(validateIngress, validateIngressStatus), Warnings: warnIngress},
		{Names: line.Names(networkingGroup, "v1", "IngressClass"), New: line.New[networkingv1.IngressClass], ClusterScoped: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, Awaited: true},
			Columns:  ingressClassColumns, Default: line.Set(defaultIngressClass), Validate: line.Rules(validateIngressClass)},
		{Names: line.Names(networkingGroup, "v1", "NetworkPolicy", "netpol"), New: line.New[networkingv1.NetworkPolicy],
			Strategy: registry.Strategy{UnconditionalUpdate: true},
			Columns:  networkPolicyColumns, Default: line.Set(defaultNetworkPolicy), Validate: line.Rules(validateNetworkPolicy), Warnings: line.Warnings(warnNetworkPolicy)},
		{Names: registry.Names{Group: networkingGroup, Version: "v1", Kind: "IPAddress", Plural: "ipaddresses", ShortNames: []string{"ip"}}, New: line.New[networkingv1.IPAddress], ClusterScoped: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, PlainNames: true},
			Columns:  ipAddressColumns, ValidName: addressName, Validate: line.Rules(validateIPAddress)},
		{Names: line.Names(networkingGroup, "v1", "ServiceCIDR"), New: line.New[networkingv1.ServiceCIDR], ClusterScoped: true, Status: true, Columns: serviceCIDRColumns,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true}, Validate: line.Rules(validateServiceCIDR)},
	}
}
