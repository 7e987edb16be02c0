package network

import (
	"context"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The most of some texts, and what a path of an Ingress may not have.
const maxControllerName = 250 // bytes

var (
	neverInIngressPaths  = []string{"//", "/./", "/../", "%2f", "%2F"}
	neverEndIngressPaths = []string{"/..", "/."}
)

func validateIngress(in, old *networkingv1.Ingress) field.ErrorList {
	c, spec := &check{}, field.NewPath("spec")
	c.Refuse(len(in.Spec.Rules) == 0 && in.Spec.DefaultBackend == nil, spec, in.Spec.Rules, "either `defaultBackend` or `rules` must be specified")
	if in.Spec.DefaultBackend != nil {
		c.backend(in.Spec.DefaultBackend, spec.Child("defaultBackend"))
	}
	lenient := old != nil && slices.ContainsFunc(old.Spec.Rules, wrongWildcard)
	for i, r := range in.Spec.Rules {
		at := spec.Child("rules").Index(i)
		c.ingressHost(r.Host, at.Child("host"))
		if wild := strings.Contains(r.Host, "*"); !wild || !lenient {
			c.ingressPaths(r.HTTP, at.Child("http"))
		}
	}
	wrongSecret := func(t networkingv1.IngressTLS) bool {
		return t.SecretName != "" && len(validation.IsDNS1123Subdomain(t.SecretName)) > 0
	}
	lenient = old != nil && slices.ContainsFunc(old.Spec.TLS, wrongSecret)
	for i, t := range in.Spec.TLS {
		at := spec.Child("tls").Index(i)
		for j, host := range t.Hosts {
			c.dnsHost(host, at.Child("hosts").Index(j))
		}
		if t.SecretName != "" && !lenient {
			c.Subdomain(at.Child("secretName"), t.SecretName)
		}
	}
	if in.Spec.IngressClassName != nil {
		c.Subdomain(spec.Child("ingressClassName"), *in.Spec.IngressClassName)
	}
	if class, ok := in.Annotations[ingressClassAnnotation]; ok && old == nil && in.Spec.IngressClassName != nil && class != *in.Spec.IngressClassName {
		c.Add(field.Invalid(field.NewPath("annotations").Child(ingressClassAnnotation), class, "must match `ingressClassName` when both are specified"))
	}
	return c.Errs
}

// ingressClassAnnotation named an Ingress' class before there was a field for it.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// wrongWildcard tells whether a rule for a wildcard has paths that are refused today: those that were there may stay.
func wrongWildcard(r networkingv1.IngressRule) bool {
	c := &check{}
	c.ingressPaths(r.HTTP, nil)
	return strings.Contains(r.Host, "*") && len(c.Errs) > 0
}

// dnsHost wants a name, or a wildcard for names.
func (c *check) dnsHost(host string, at *field.Path) {
	if strings.Contains(host, "*") {
		c.Texts(at, host, validation.IsWildcardDNS1123Subdomain(host))
		return
	}
	c.Subdomain(at, host)
}

func (c *check) ingressHost(host string, at *field.Path) {
	if host == "" {
		return
	}
	c.Refuse(netutils.ParseIPSloppy(host) != nil, at, host, "must be a DNS name, not an IP address")
	c.dnsHost(host, at)
}

func (c *check) ingressPaths(r *networkingv1.HTTPIngressRuleValue, at *field.Path) {
	if r == nil {
		return
	}
	c.Lack(len(r.Paths) == 0, at.Child("paths"), "")
	for i, p := range r.Paths {
		c.ingressPath(&p, at.Child("paths").Index(i))
	}
}

func (c *check) ingressPath(p *networkingv1.HTTPIngressPath, at *field.Path) {
	if p.PathType == nil {
		c.Add(field.Required(at.Child("pathType"), "pathType must be specified"))
		return
	}
	path, where := p.Path, at.Child("path")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		c.Refuse(!strings.HasPrefix(path, "/"), where, path, "must be an absolute path")
		for _, never := range neverInIngressPaths {
			c.Refuse(strings.Contains(path, never), where, path, "must not contain '"+never+"'")
		}
		for _, never := range neverEndIngressPaths {
			c.Refuse(strings.HasSuffix(path, never), where, path, "cannot end with '"+never+"'")
		}
	case networkingv1.PathTypeImplementationSpecific:
		c.Refuse(path != "" && !strings.HasPrefix(path, "/"), where, path, "must be an absolute path")
	default:
		rules.Among(c, at.Child("pathType"), p.PathType, networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	}
	c.backend(&p.Backend, at.Child("backend"))
}

func (c *check) backend(b *networkingv1.IngressBackend, at *field.Path) {
	switch {
	case b.Service != nil && b.Resource != nil:
		c.Add(field.Invalid(at, "", "cannot set both resource and service backends"))
	case b.Resource != nil:
		c.reference(b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name, at.Child("resource"))
	case b.Service != nil:
		c.backendService(b.Service, at)
	default:
		c.Add(field.Invalid(at, "", "resource or service backend is required"))
	}
}

func (c *check) backendService(s *networkingv1.IngressServiceBackend, at *field.Path) {
	c.Needs(at.Child("service", "name"), s.Name, validation.IsDNS1123Label)
	switch port := at.Child("service", "port"); {
	case s.Port.Name != "" && s.Port.Number != 0:
		c.Add(field.Invalid(at, "", "cannot set both port name & port number"))
	case s.Port.Name != "":
		c.Texts(port.Child("name"), s.Port.Name, validation.IsValidPortName(s.Port.Name))
	case s.Port.Number != 0:
		c.Texts(port.Child("number"), s.Port.Number, validation.IsValidPortNum(int(s.Port.Number)))
	default:
		c.Add(field.Required(at, "port name or number is required"))
	}
}

// reference checks what names an object of any kind.
func (c *check) reference(group *string, kind, name string, at *field.Path) {
	if group != nil {
		c.Subdomain(at.Child("apiGroup"), *group)
	}
	c.Needs(at.Child("kind"), kind, content.IsPathSegmentName)
	c.Needs(at.Child("name"), name, content.IsPathSegmentName)
}

func validateIngressStatus(in, old *networkingv1.Ingress) field.ErrorList {
	c, at := &check{}, field.NewPath("status", "loadBalancer", "ingress")
	var before []string
	for _, was := range old.Status.LoadBalancer.Ingress {
		if was.IP != "" {
			before = append(before, was.IP)
		}
	}
	for i, is := range in.Status.LoadBalancer.Ingress {
		if is.IP != "" {
			c.ip(at.Index(i).Child("ip"), is.IP, before)
		}
		c.hostname(at.Index(i).Child("hostname"), is.Hostname)
	}
	return c.Errs
}

func warnIngress(_ context.Context, obj, old registry.Typed, subresource string) (texts []string) {
	in := obj.(*networkingv1.Ingress)
	if subresource == "status" {
		for i, b := range in.Status.LoadBalancer.Ingress {
			if b.IP != "" {
				texts = append(texts, validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i), b.IP)...)
			}
		}
		return texts
	}
	if _, has := in.Annotations[ingressClassAnnotation]; has && old == nil && in.Spec.IngressClassName == nil {
		texts = append(texts, fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", ingressClassAnnotation))
	}
	return texts
}

func validateIngressClass(class, old *networkingv1.IngressClass) field.ErrorList {
	c, at := &check{}, field.NewPath("spec", "controller")
	if old != nil {
		c.Immutable(at, class.Spec.Controller, old.Spec.Controller)
	}
	c.NoLonger(at, len(class.Spec.Controller), maxControllerName)
	c.Add(validation.IsDomainPrefixedPath(at, class.Spec.Controller)...)
	p, at := class.Spec.Parameters, field.NewPath("spec", "parameters")
	if p == nil {
		return c.Errs
	}
	c.reference(p.APIGroup, p.Kind, p.Name, at)
	const inCluster, inNamespace = networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace
	rules.Among(c, at.Child("scope"), p.Scope, inCluster, inNamespace)
	switch space := at.Child("namespace"); {
	case *p.Scope == inNamespace && p.Namespace == nil:
		c.Add(field.Required(space, "`parameters.scope` is set to 'Namespace'"))
	case *p.Scope == inNamespace:
		c.Label(space, *p.Namespace)
	case *p.Scope == inCluster && p.Namespace != nil:
		c.Add(field.Forbidden(space, "`parameters.scope` is set to 'Cluster'"))
	}
	return c.Errs
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if p := c.Spec.Parameters; p != nil {
		line.OrPointTo(&p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

func validateIPAddress(a, old *networkingv1.IPAddress) field.ErrorList {
	c, at := &check{}, field.NewPath("spec", "parentRef")
	if ref := a.Spec.ParentRef; ref == nil {
		c.Add(field.Required(at, "").MarkCoveredByDeclarative())
	} else {
		if ref.Group != "" {
			c.Subdomain(at.Child("group"), ref.Group)
		}
		for _, f := range []struct{ name, value string }{{"resource", ref.Resource}, {"name", ref.Name}} {
			if f.value == "" {
				c.Add(field.Required(at.Child(f.name), "").MarkCoveredByDeclarative())
			} else {
				c.Texts(at.Child(f.name), f.value, content.IsPathSegmentName(f.value))
			}
		}
		c.Texts(at.Child("namespace"), ref.Namespace, content.IsPathSegmentName(ref.Namespace))
	}
	if old != nil && !equality.Semantic.DeepEqual(a.Spec.ParentRef, old.Spec.ParentRef) {
		c.Add(field.Invalid(at, nil, apivalidation.FieldImmutableErrorMsg).MarkCoveredByDeclarative())
	}
	return c.Errs
}

func validateServiceCIDR(s, old *networkingv1.ServiceCIDR) field.ErrorList {
	c, at := &check{}, field.NewPath("spec", "cidrs")
	if old == nil {
		c.serviceCIDRs(&s.Spec, at)
		return c.Errs
	}
	was, is := old.Spec.CIDRs, s.Spec.CIDRs
	widened := len(was) == 1 && len(is) == 2 // to both families
	if len(was) != len(is) && !widened {
		c.Add(field.Invalid(at, is, apivalidation.FieldImmutableErrorMsg))
		return c.Errs
	}
	for i := range was {
		c.Refuse(was[i] != is[i], at.Index(i), is[i], apivalidation.FieldImmutableErrorMsg)
	}
	if widened {
		c.serviceCIDRs(&s.Spec, at)
	}
	return c.Errs
}

func (c *check) serviceCIDRs(s *networkingv1.ServiceCIDRSpec, at *field.Path) {
	switch n := len(s.CIDRs); {
	case n == 0:
		c.Add(field.Required(at, "at least one CIDR required"))
		return
	case n > 2:
		c.Add(field.Invalid(at, rules.Untagged(s), "may only hold up to 2 values"))
		return
	}
	for i, cidr := range s.CIDRs {
		c.Add(validation.IsValidCIDR(at.Index(i), cidr)...)
	}
	if len(s.CIDRs) < 2 {
		return
	}
	if family := netutils.IPFamilyOfCIDRString(s.CIDRs[0]); family != netutils.IPFamilyUnknown && family == netutils.IPFamilyOfCIDRString(s.CIDRs[1]) {
		c.Add(field.Invalid(at, s.CIDRs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
}

func ingressColumns() []registry.Column {
	return []registry.Column{
		column.OrNone("Class", "spec.ingressClassName", "The name of the IngressClass resource that should be used for additional configuration"),
		column.Cell("Hosts", "Hosts that incoming requests are matched against before the ingress rule", func(o any) any {
			var hosts []string
			rules := column.AsList(column.At(o, "spec.rules"))
			for _, r := range rules {
				if host := column.Str(column.At(r, "host")); host != "" {
					hosts = append(hosts, host)
				}
			}
			if len(hosts) <= maxShown {
				return some(hosts, "*")
			}
			return fmt.Sprintf("%s + %d more...", strings.Join(hosts[:maxShown], ","), len(rules)-maxShown)
		}),
		column.Cell("Address", "Address is a list containing ingress points for the load-balancer", func(o any) any { return balancerText(column.At(o, "status.loadBalancer.ingress")) }),
		column.Cell("Ports", "Ports of TLS configurations that open", func(o any) any {
			if len(column.AsList(column.At(o, "spec.tls"))) > 0 {
				return "80, 443"
			}
			return "80"
		}),
		column.Age(),
	}
}

func ingressClassColumns() []registry.Column {
	return []registry.Column{
		column.Text("Controller", "spec.controller", "Controller that is responsible for handling this class"),
		column.Cell("Parameters", "A reference to a resource with additional parameters", func(o any) any {
			p := column.At(o, "spec.parameters")
			if p == nil {
				return column.None
			}
			kind := column.Str(column.At(p, "kind"))
			if group := column.Str(column.At(p, "apiGroup")); group != "" {
				kind += "." + group
			}
			return kind + "/" + column.Str(column.At(p, "name"))
		}),
		column.Age(),
	}
}

// addressName checks the name of an IPAddress, which is the address as Kubernetes writes it.
func addressName(name string, _ bool) (texts []string) {
	for _, err := range validation.IsValidIP(nil, name) {
		texts = append(texts, err.Detail)
	}
	return texts
}

func ipAddressColumns() []registry.Column {
	return []registry.Column{
		column.Cell("ParentRef", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"], func(o any) any {
			ref := column.At(o, "spec.parentRef")
			if ref == nil {
				return column.None
			}
			of := schema.GroupResource{Group: column.Str(column.At(ref, "group")), Resource: column.Str(column.At(ref, "resource"))}
			text := strings.ToLower(of.String())
			if namespace := column.Str(column.At(ref, "namespace")); namespace != "" {
				text += "/" + namespace
			}
			return text + "/" + column.Str(column.At(ref, "name"))
		}),
		column.Cell("", "", func(o any) any { return column.Elapsed(column.At(o, "metadata.creationTimestamp")) }),
	}
}

func serviceCIDRColumns() []registry.Column {
	return []registry.Column{
		column.Cell("CIDRs", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"], func(o any) any { return column.Joined(column.At(o, "spec.cidrs"), ",", column.Str) }),
		column.Age(),
	}
}
