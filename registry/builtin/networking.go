package builtin

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateIngress(in, _ *networkingv1.Ingress) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if len(in.Spec.Rules) == 0 && in.Spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(spec, in.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if in.Spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(in.Spec.DefaultBackend, spec.Child("defaultBackend"))...)
	}
	for i, r := range in.Spec.Rules {
		at := spec.Child("rules").Index(i)
		switch {
		case strings.HasPrefix(r.Host, "*."):
			errs = append(errs, problems(at.Child("host"), r.Host, validation.IsWildcardDNS1123Subdomain(r.Host))...)
		case r.Host != "":
			errs = append(errs, problems(at.Child("host"), r.Host, validation.IsDNS1123Subdomain(r.Host))...)
		}
		if r.HTTP == nil {
			continue
		}
		for j, p := range r.HTTP.Paths {
			at := at.Child("http", "paths").Index(j)
			if p.PathType == nil {
				errs = append(errs, field.Required(at.Child("pathType"), "pathType must be specified"))
			} else {
				errs = append(errs, oneOf(at.Child("pathType"), *p.PathType, networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific)...)
				if *p.PathType != networkingv1.PathTypeImplementationSpecific && !strings.HasPrefix(p.Path, "/") {
					errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must be an absolute path"))
				}
			}
			errs = append(errs, validateBackend(&p.Backend, at.Child("backend"))...)
		}
	}
	return errs
}

func validateBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	switch {
	case b.Service != nil && b.Resource != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Service == nil && b.Resource == nil:
		return field.ErrorList{field.Required(at, "exactly one of service or resource is required")}
	case b.Service == nil:
		return nil
	}
	errs := field.ErrorList{}
	if b.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("service", "name"), ""))
	}
	if (b.Service.Port.Name == "") == (b.Service.Port.Number == 0) {
		errs = append(errs, field.Required(at.Child("service", "port"), "exactly one of port name or number is required"))
	}
	return errs
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if p := c.Spec.Parameters; p != nil {
		orPointTo(&p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for _, r := range p.Spec.Ingress {
		defaultPolicyPorts(r.Ports)
	}
	for _, r := range p.Spec.Egress {
		defaultPolicyPorts(r.Ports)
	}
	if len(p.Spec.PolicyTypes) > 0 {
		return
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(p.Spec.Egress) > 0 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		orPointTo(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func validateNetworkPolicy(p, _ *networkingv1.NetworkPolicy) field.ErrorList {
	at := field.NewPath("spec")
	errs := metavalidation.ValidateLabelSelector(&p.Spec.PodSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("podSelector"))
	for i, r := range p.Spec.Ingress {
		errs = append(errs, validatePolicyPorts(r.Ports, at.Child("ingress").Index(i).Child("ports"))...)
	}
	for i, r := range p.Spec.Egress {
		errs = append(errs, validatePolicyPorts(r.Ports, at.Child("egress").Index(i).Child("ports"))...)
	}
	return errs
}

func validatePolicyPorts(ports []networkingv1.NetworkPolicyPort, at *field.Path) (errs field.ErrorList) {
	for i, p := range ports {
		errs = append(errs, validateProtocol(*p.Protocol, at.Index(i).Child("protocol"))...)
		if p.Port != nil {
			errs = append(errs, validatePortOrName(*p.Port, at.Index(i).Child("port"))...)
		}
	}
	return errs
}

func ingressColumns() []column {
	return []column{
		orNone("Class", "spec.ingressClassName", "The name of the IngressClass resource that should be used for additional configuration"),
		cell("Hosts", "Hosts that incoming requests are matched against before the ingress rule", func(o any) any {
			var hosts []string
			rules := asList(at(o, "spec.rules"))
			for _, r := range rules {
				if host := str(at(r, "host")); host != "" {
					hosts = append(hosts, host)
				}
			}
			if len(hosts) <= maxShown {
				return some(hosts, "*")
			}
			return fmt.Sprintf("%s + %d more...", strings.Join(hosts[:maxShown], ","), len(rules)-maxShown)
		}),
		cell("Address", "Address is a list containing ingress points for the load-balancer", func(o any) any { return balancerText(at(o, "status.loadBalancer.ingress")) }),
		cell("Ports", "Ports of TLS configurations that open", func(o any) any {
			if len(asList(at(o, "spec.tls"))) > 0 {
				return "80, 443"
			}
			return "80"
		}),
		age(),
	}
}

func ingressClassColumns() []column {
	return []column{
		text("Controller", "spec.controller", "Controller that is responsible for handling this class"),
		cell("Parameters", "A reference to a resource with additional parameters", func(o any) any {
			p := at(o, "spec.parameters")
			if p == nil {
				return none
			}
			kind := str(at(p, "kind"))
			if group := str(at(p, "apiGroup")); group != "" {
				kind += "." + group
			}
			return kind + "/" + str(at(p, "name"))
		}),
		age(),
	}
}

func networkPolicyColumns() []column {
	return []column{
		cell("Pod-Selector", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"], selectorCell("spec.podSelector")),
		age(),
	}
}

// addressName checks the name of an IPAddress, which is the address as Kubernetes writes it.
func addressName(name string, _ bool) (texts []string) {
	for _, err := range validation.IsValidIP(nil, name) {
		texts = append(texts, err.Detail)
	}
	return texts
}

func ipAddressColumns() []column {
	return []column{
		cell("ParentRef", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"], func(o any) any {
			ref := at(o, "spec.parentRef")
			if ref == nil {
				return none
			}
			of := schema.GroupResource{Group: str(at(ref, "group")), Resource: str(at(ref, "resource"))}
			text := strings.ToLower(of.String())
			if namespace := str(at(ref, "namespace")); namespace != "" {
				text += "/" + namespace
			}
			return text + "/" + str(at(ref, "name"))
		}),
		age(),
	}
}

func serviceCIDRColumns() []column {
	return []column{
		cell("CIDRs", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"], func(o any) any { return joined(at(o, "spec.cidrs"), ",", str) }),
		age(),
	}
}
