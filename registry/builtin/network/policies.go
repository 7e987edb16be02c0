package network

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// NetworkPolicies.

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
		line.OrPointTo(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func validateNetworkPolicy(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	c, at := &check{}, field.NewPath("spec")
	options := metavalidation.LabelSelectorValidationOptions{}
	var before []string // blocks that were there may stay, however they're written
	if old != nil {
		options.AllowInvalidLabelValueInSelector = len(metavalidation.ValidateLabelSelector(&old.Spec.PodSelector, options, nil)) > 0
		eachBlock(old, func(b *networkingv1.IPBlock, _ *field.Path) { before = append(append(before, b.CIDR), b.Except...) })
	}
	c.Add(metavalidation.ValidateLabelSelector(&p.Spec.PodSelector, options, at.Child("podSelector"))...)
	for i, r := range p.Spec.Ingress {
		at := at.Child("ingress").Index(i)
		c.policyPorts(r.Ports, at.Child("ports"))
		c.peers(r.From, options, before, at.Child("from"))
	}
	for i, r := range p.Spec.Egress {
		at := at.Child("egress").Index(i)
		c.policyPorts(r.Ports, at.Child("ports"))
		c.peers(r.To, options, before, at.Child("to"))
	}
	types := at.Child("policyTypes")
	if len(p.Spec.PolicyTypes) > 2 {
		c.Add(field.Invalid(types, p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
		return c.Errs
	}
	for i, kind := range p.Spec.PolicyTypes {
		rules.Among(c, types.Index(i), &kind, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	}
	return c.Errs
}

// eachBlock visits the blocks of addresses of a policy.
func eachBlock(p *networkingv1.NetworkPolicy, visit func(b *networkingv1.IPBlock, at *field.Path)) {
	peers := func(all []networkingv1.NetworkPolicyPeer, at *field.Path) {
		for i, peer := range all {
			if peer.IPBlock != nil {
				visit(peer.IPBlock, at.Index(i).Child("ipBlock"))
			}
		}
	}
	for i, r := range p.Spec.Ingress {
		peers(r.From, field.NewPath("spec", "ingress").Index(i).Child("from"))
	}
	for i, r := range p.Spec.Egress {
		peers(r.To, field.NewPath("spec", "egress").Index(i).Child("to"))
	}
}

func warnNetworkPolicy(p, _ *networkingv1.NetworkPolicy) (texts []string) {
	eachBlock(p, func(b *networkingv1.IPBlock, at *field.Path) {
		texts = append(texts, validation.GetWarningsForCIDR(at.Child("cidr"), b.CIDR)...)
		for i, except := range b.Except {
			texts = append(texts, validation.GetWarningsForCIDR(at.Child("except").Index(i), except)...)
		}
	})
	return texts
}

func (c *check) policyPorts(ports []networkingv1.NetworkPolicyPort, list *field.Path) {
	for i, p := range ports {
		at, end := list.Index(i), list.Index(i).Child("endPort")
		rules.Among(c, at.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		switch {
		case p.Port == nil && p.EndPort != nil:
			c.Add(field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		case p.Port == nil:
		case p.Port.Type == intstr.Int:
			c.Texts(at.Child("port"), p.Port.IntVal, validation.IsValidPortNum(int(p.Port.IntVal)))
			if p.EndPort == nil {
				continue
			}
			c.Refuse(*p.EndPort < p.Port.IntVal, end, *p.EndPort, "must be greater than or equal to `port`")
			c.Texts(end, *p.EndPort, validation.IsValidPortNum(int(*p.EndPort)))
		default:
			if p.EndPort != nil {
				c.Add(field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
			}
			c.Texts(at.Child("port"), p.Port.StrVal, validation.IsValidPortName(p.Port.StrVal))
		}
	}
}

func (c *check) peers(all []networkingv1.NetworkPolicyPeer, options metavalidation.LabelSelectorValidationOptions, before []string, list *field.Path) {
	for i, p := range all {
		at := list.Index(i)
		if p.PodSelector != nil {
			c.Add(metavalidation.ValidateLabelSelector(p.PodSelector, options, at.Child("podSelector"))...)
		}
		if p.NamespaceSelector != nil {
			c.Add(metavalidation.ValidateLabelSelector(p.NamespaceSelector, options, at.Child("namespaceSelector"))...)
		}
		if p.IPBlock != nil {
			c.ipBlock(p.IPBlock, before, at.Child("ipBlock"))
		}
		switch selects := p.PodSelector != nil || p.NamespaceSelector != nil; {
		case !selects && p.IPBlock == nil:
			c.Add(field.Required(at, "must specify a peer"))
		case selects && p.IPBlock != nil:
			c.Add(field.Forbidden(at, "may not specify both ipBlock and another peer"))
		}
	}
}

func (c *check) ipBlock(b *networkingv1.IPBlock, before []string, at *field.Path) {
	if b.CIDR == "" {
		c.Add(field.Required(at.Child("cidr"), "").MarkCoveredByDeclarative())
		return
	}
	c.cidr(at.Child("cidr"), b.CIDR, before)
	_, whole, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return
	}
	for i, text := range b.Except {
		at := at.Child("except").Index(i)
		c.cidr(at, text, before)
		_, except, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		bits, _ := whole.Mask.Size()
		if n, _ := except.Mask.Size(); !whole.Contains(except.IP) || bits >= n {
			c.Add(field.Invalid(at, text, "must be a strict subset of `cidr`"))
		}
	}
}

func networkPolicyColumns() []registry.Column {
	return []registry.Column{
		column.Cell("Pod-Selector", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"], column.SelectorCell("spec.podSelector")),
		column.Age(),
	}
}
