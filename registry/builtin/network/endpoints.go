//lint:file-ignore SA1019 Endpoints are deprecated, and still served

package network

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules of Endpoints and EndpointSlices.

func validateEndpoints(e, old *corev1.Endpoints) field.ErrorList {
	if old != nil && equality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
		return nil // older versions took more
	}
	c := &check{}
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		c.Lack(len(s.Addresses)+len(s.NotReadyAddresses) == 0, at, "must specify `addresses` or `notReadyAddresses`")
		for j := range s.Addresses {
			c.endpointAddress(&s.Addresses[j], at.Child("addresses").Index(j))
		}
		for j := range s.NotReadyAddresses {
			c.endpointAddress(&s.NotReadyAddresses[j], at.Child("notReadyAddresses").Index(j))
		}
		for j, p := range s.Ports {
			at := at.Child("ports").Index(j)
			switch {
			case p.Name != "":
				c.Label(at.Child("name"), p.Name)
			case len(s.Ports) > 1:
				c.Add(field.Required(at.Child("name"), ""))
			}
			c.Texts(at.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))
			c.Add(rules.ValidateProtocol(p.Protocol, at.Child("protocol"))...)
			if p.AppProtocol != nil {
				c.Qualified(at.Child("appProtocol"), *p.AppProtocol)
			}
		}
	}
	return c.Errs
}

func (c *check) endpointAddress(a *corev1.EndpointAddress, at *field.Path) {
	c.ip(at.Child("ip"), a.IP, nil)
	if a.Hostname != "" {
		c.Label(at.Child("hostname"), a.Hostname)
	}
	if a.NodeName != nil {
		c.Subdomain(at.Child("nodeName"), *a.NodeName)
	}
	c.endpointIP(at.Child("ip"), a.IP)
}

// endpointsController is who makes Endpoints whose addresses nobody needs to look at.
const endpointsController = "endpoint-controller"

func warnEndpoints(e, _ *corev1.Endpoints) (texts []string) {
	if e.Labels["endpoints.kubernetes.io/managed-by"] == endpointsController {
		return nil
	}
	for i, s := range e.Subsets {
		for _, group := range []struct {
			name string
			all  []corev1.EndpointAddress
		}{{"addresses", s.Addresses}, {"notReadyAddresses", s.NotReadyAddresses}} {
			for j, a := range group.all {
				texts = append(texts, validation.GetWarningsForIP(field.NewPath("subsets").Index(i).Child(group.name).Index(j).Child("ip"), a.IP)...)
			}
		}
	}
	return texts
}

// changesSlice goes by labels, too.
func changesSlice(s, old *discoveryv1.EndpointSlice) bool {
	return !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) || !equality.Semantic.DeepEqual(s.Ports, old.Ports) || s.AddressType != old.AddressType ||
		!equality.Semantic.DeepEqual(s.Labels, old.Labels)
}

// prepareEndpointSlice drops what this version of slices no longer takes.
func prepareEndpointSlice(s, old *discoveryv1.EndpointSlice, _ string) {
	if old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return
	}
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}

func validateEndpointSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	c, kind := &check{}, field.NewPath("addressType")
	immutable := old != nil && s.AddressType != old.AddressType
	known := []discoveryv1.AddressType{discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	if immutable && s.AddressType != "" {
		rules.Among(c, kind, &s.AddressType, known...)
	}
	c.slicePorts(s.Ports, field.NewPath("ports"))
	if old == nil || !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		c.endpoints(s, field.NewPath("endpoints"))
	}
	// What Kubernetes says by declaration comes last.
	switch {
	case s.AddressType == "":
		c.Add(field.Required(kind, ""))
	case !immutable:
		rules.Among(c, kind, &s.AddressType, known...)
	}
	c.Refuse(immutable, kind, nil, "field is immutable")
	for i, e := range s.Endpoints {
		at := field.NewPath("endpoints").Index(i).Child("addresses")
		switch {
		case old != nil && slices.ContainsFunc(old.Endpoints, func(was discoveryv1.Endpoint) bool { return equality.Semantic.DeepEqual(e, was) }):
		case len(e.Addresses) == 0:
			c.Add(field.Required(at, ""))
		case len(e.Addresses) > maxEndpointAddresses:
			c.Add(field.TooMany(at, len(e.Addresses), maxEndpointAddresses))
		}
	}
	return c.Errs
}

func (c *check) slicePorts(ports []discoveryv1.EndpointPort, at *field.Path) {
	if len(ports) > maxSlicePorts {
		c.Add(field.TooMany(at, len(ports), maxSlicePorts))
		return
	}
	names := rules.Earlier[string]{}
	for i := range ports {
		p, at := &ports[i], at.Index(i)
		if *p.Name != "" {
			c.Label(at.Child("name"), *p.Name)
		}
		c.Twice(names.Had(*p.Name), at.Child("name"), p.Name)
		rules.Among(c, at.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
		if p.AppProtocol != nil {
			c.Qualified(at.Child("appProtocol"), *p.AppProtocol)
		}
	}
}

func (c *check) endpoints(s *discoveryv1.EndpointSlice, at *field.Path) {
	if len(s.Endpoints) > maxSliceEndpoints {
		c.Add(field.TooMany(at, len(s.Endpoints), maxSliceEndpoints))
		return
	}
	for i := range s.Endpoints {
		e, at := &s.Endpoints[i], at.Index(i)
		for j, address := range e.Addresses {
			c.sliceAddress(s.AddressType, address, at.Child("addresses"), j)
		}
		if e.NodeName != nil {
			c.Subdomain(at.Child("nodeName"), *e.NodeName)
		}
		c.NoMore(at.Child("deprecatedTopology"), len(e.DeprecatedTopology), maxTopologyLabels)
		c.Add(metavalidation.ValidateLabels(e.DeprecatedTopology, at.Child("deprecatedTopology"))...)
		if e.Hostname != nil {
			c.Label(at.Child("hostname"), *e.Hostname)
		}
		if e.Hints != nil {
			c.hints(e.Hints, at.Child("hints"))
		}
	}
}

func (c *check) sliceAddress(kind discoveryv1.AddressType, address string, at *field.Path, i int) {
	switch kind {
	case discoveryv1.AddressTypeIPv4:
		if c.ip(at.Index(i), address, nil) {
			c.Refuse(!netutils.IsIPv4String(address), at, address, "must be an IPv4 address")
			c.endpointIP(at.Index(i), address)
		}
	case discoveryv1.AddressTypeIPv6:
		errs := validation.IsValidIP(at.Index(i), address)
		if c.Add(errs...); len(errs) == 0 {
			c.Refuse(!netutils.IsIPv6String(address), at, address, "must be an IPv6 address")
			c.endpointIP(at.Index(i), address)
		}
	case discoveryv1.AddressTypeFQDN:
		c.Add(validation.IsFullyQualifiedDomainName(at.Index(i), address)...)
	}
}

func (c *check) hints(h *discoveryv1.EndpointHints, at *field.Path) {
	var zones, nodes []string
	for _, zone := range h.ForZones {
		zones = append(zones, zone.Name)
	}
	for _, node := range h.ForNodes {
		nodes = append(nodes, node.Name)
	}
	zone := func(at *field.Path, name string) { c.Texts(at, name, validation.IsValidLabelValue(name)) }
	if c.hinted(zones, at.Child("forZones"), zone) {
		c.hinted(nodes, at.Child("forNodes"), func(at *field.Path, name string) { c.Subdomain(at, name) })
	}
}

// hinted checks the names of zones or nodes, and tells whether there are no more than may be.
func (c *check) hinted(names []string, at *field.Path, name func(at *field.Path, name string)) bool {
	if len(names) > maxHints {
		c.Add(field.TooMany(at, len(names), maxHints))
		return false
	}
	known := rules.Earlier[string]{}
	for i, text := range names {
		at := at.Index(i).Child("name")
		c.Twice(known.Had(text), at, text)
		name(at, text)
	}
	return true
}

func warnEndpointSlice(s, old *discoveryv1.EndpointSlice) (texts []string) {
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		texts = append(texts, "spec.addressType: FQDN endpoints are deprecated")
	}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return texts
	}
	for i, e := range s.Endpoints {
		for j, address := range e.Addresses {
			texts = append(texts, validation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), address)...)
		}
	}
	return texts
}
