package pods

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/volumes"
)

// The rules for the spec of a pod, which those of templates are too, in the order in which Kubernetes' ValidatePodSpec asks them: the
// order is that of a refusal's causes. What a feature gate guards that is off by default there is as if it were off.

// The most of some lists and texts.
const (
	maxNameservers      = 3
	maxSearchPaths      = 32
	maxSearchCharacters = 2048 // with a space between two
	maxHostnameOverride = 64   // characters, as Linux has
	maxRestartRules     = 20
	maxExitCodes        = 255
	maxSysctl           = 253  // characters
	maxAppArmorProfile  = 4095 // bytes: a path that Linux takes
	maxWeight           = 100
)

// PodCheck collects what is wrong with the spec of a pod, and keeps what its parts know of each other.
type PodCheck struct {
	volumes.Check
	Spec    *corev1.PodSpec
	pod     *metav1.ObjectMeta        // nil for a template
	volumes map[string]*corev1.Volume // those that nothing is wrong with, by name
	claims  map[string]bool           // the names of resourceClaims
}

// validatePodSpec checks the spec of a pod, or of a template if pod is nil. before is what it was, empty for a new one.
func validatePodSpec(s, before *corev1.PodSpec, pod *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	return rules.UnlessOld(func(c *PodCheck, s *corev1.PodSpec) {
		c.Spec, c.pod = s, pod
		c.podSpec(at)
	}, s, before).Errs
}

func (c *PodCheck) podSpec(at *field.Path) {
	s := c.Spec
	c.checkVolumes(at.Child("volumes"))
	c.resourceClaims(at.Child("resourceClaims"))
	c.containers(at.Child("containers"))
	c.initContainers(at.Child("initContainers"))
	c.ephemeralContainers(at.Child("ephemeralContainers"))
	c.podResources(at.Child("resources"))
	c.hostPorts(at.Child("containers"))
	c.Add(rules.OneOf(at.Child("restartPolicy"), s.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	c.Add(rules.OneOf(at.Child("dnsPolicy"), s.DNSPolicy, corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	c.Add(metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
	c.podSecurity(s.SecurityContext, at.Child("securityContext"))
	if s.ShareProcessNamespace != nil && s.HostPID && *s.ShareProcessNamespace {
		c.Add(field.Invalid(at.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	c.affinity(s.Affinity, at.Child("affinity"))
	c.dns(at.Child("dnsConfig"))
	for i, gate := range s.ReadinessGates {
		c.Texts(at.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName(string(gate.ConditionType)))
	}
	c.schedulingGates(at.Child("schedulingGates"))
	c.spread(at.Child("topologySpreadConstraints"))
	c.hostProcesses(at)
	c.hostUsers(at)
	c.hostname(at)
	if s.ServiceAccountName != "" {
		c.Subdomain(at.Child("serviceAccountName"), s.ServiceAccountName)
	}
	if s.NodeName != "" {
		c.Subdomain(at.Child("nodeName"), s.NodeName)
	}
	if n := s.ActiveDeadlineSeconds; n != nil && (*n < 1 || *n > math.MaxInt32) {
		c.Add(field.Invalid(at.Child("activeDeadlineSeconds"), *n, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if s.Hostname != "" {
		c.Label(at.Child("hostname"), s.Hostname)
	}
	if s.Subdomain != "" {
		c.Label(at.Child("subdomain"), s.Subdomain)
	}
	c.Tolerations(at.Child("tolerations"))
	c.hostAliases(at.Child("hostAliases"))
	if s.PriorityClassName != "" {
		c.Subdomain(at.Child("priorityClassName"), s.PriorityClassName)
	}
	if s.RuntimeClassName != nil {
		c.Subdomain(at.Child("runtimeClassName"), *s.RuntimeClassName)
	}
	if s.PreemptionPolicy != nil {
		c.Add(rules.OneOf(at.Child("preemptionPolicy"), *s.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	if s.Overhead != nil {
		c.Requirements(&corev1.ResourceRequirements{Limits: s.Overhead}, ContainerResource, at.Child("overhead"))
	}
	c.os(at)
	c.fileKeys(at)
}

func (c *PodCheck) hostAliases(at *field.Path) {
	for i, alias := range c.Spec.HostAliases {
		c.Add(validation.IsValidIPForLegacyField(at.Index(i).Child("ip"), alias.IP, true, nil)...)
		for j, name := range alias.Hostnames {
			c.Subdomain(at.Index(i).Child("hostnames").Index(j), name)
		}
	}
}

// hostPorts wants containers in the node's network to have the node's ports.
func (c *PodCheck) hostPorts(at *field.Path) {
	if !c.Spec.HostNetwork {
		return
	}
	for i := range c.Spec.Containers {
		for j, p := range c.Spec.Containers[i].Ports {
			if (c.pod != nil || p.HostPort != 0) && p.HostPort != p.ContainerPort {
				c.Add(field.Invalid(at.Index(i).Child("ports").Index(j).Child("hostPort"), p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
}

func (c *PodCheck) schedulingGates(at *field.Path) {
	for i, gate := range c.Spec.SchedulingGates {
		at := at.Index(i)
		c.Texts(at, gate.Name, validation.IsQualifiedName(gate.Name))
		c.Twice(slices.ContainsFunc(c.Spec.SchedulingGates[:i], func(other corev1.PodSchedulingGate) bool { return other.Name == gate.Name }), at, gate.Name)
	}
}

func (c *PodCheck) dns(at *field.Path) {
	d := c.Spec.DNSConfig
	c.Lack(c.Spec.DNSPolicy == corev1.DNSNone && d == nil, at, "must provide `dnsConfig` when `dnsPolicy` is None")
	if d == nil {
		return
	}
	if c.Spec.DNSPolicy == corev1.DNSNone && len(d.Nameservers) == 0 {
		c.Add(field.Required(at.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None"))
		return
	}
	if len(d.Nameservers) > maxNameservers {
		c.Add(field.Invalid(at.Child("nameservers"), d.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers)))
	}
	for i, server := range d.Nameservers {
		c.Add(validation.IsValidIPForLegacyField(at.Child("nameservers").Index(i), server, true, nil)...)
	}
	if len(d.Searches) > maxSearchPaths {
		c.Add(field.Invalid(at.Child("searches"), d.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearchPaths)))
	}
	if len(strings.Join(d.Searches, " ")) > maxSearchCharacters {
		c.Add(field.Invalid(at.Child("searches"), d.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchCharacters)))
	}
	for i, search := range d.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			c.Texts(at.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search))
		}
	}
	for i, option := range d.Options {
		c.Lack(option.Name == "", at.Child("options").Index(i), "must not be empty")
	}
}

// eachContainer visits all containers of a pod: those for its start, those that run, and those for debugging.
func eachContainer(s *corev1.PodSpec, at *field.Path, visit func(o *corev1.Container, at *field.Path)) {
	for i := range s.InitContainers {
		visit(&s.InitContainers[i], at.Child("initContainers").Index(i))
	}
	for i := range s.Containers {
		visit(&s.Containers[i], at.Child("containers").Index(i))
	}
	for i := range s.EphemeralContainers {
		visit((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon), at.Child("ephemeralContainers").Index(i))
	}
}

func (c *PodCheck) hostname(at *field.Path) {
	name := c.Spec.HostnameOverride
	if name == nil {
		return
	}
	at = at.Child("hostnameOverride")
	c.Forbid(ptr.Deref(c.Spec.SetHostnameAsFQDN, false), at, "may not be specified when setHostnameAsFQDN is true")
	c.Forbid(c.Spec.HostNetwork, at, "may not be specified when hostNetwork is true")
	c.NoLonger(at, len(*name), maxHostnameOverride)
	c.Subdomain(at, *name)
}

// Tolerations checks those of the spec.
func (c *PodCheck) Tolerations(at *field.Path) {
	for i, t := range c.Spec.Tolerations {
		at := at.Index(i)
		if t.Key != "" {
			c.Add(metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			c.Add(field.Invalid(at.Child("operator"), t.Operator, `operator must be Exists when `+"`key`"+` is empty, which means "match all values and all keys"`))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			c.Add(field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if texts := validation.IsValidLabelValue(t.Value); len(texts) > 0 {
				c.Add(field.Invalid(at.Child("operator"), t.Value, strings.Join(texts, ";")))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				c.Add(field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			c.Young(rules.NoComparisons, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}))
			if c.May&rules.NoComparisons != 0 {
				c.Texts(at.Child("value"), t.Value, content.IsDecimalInteger(t.Value))
				if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
					c.Add(field.Invalid(at.Child("value"), t.Value, err.Error()))
				}
			}
		default:
			c.Add(field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			c.Add(rules.OneOf(at.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
}
