package pods

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for the status of pods, as a kubelet or a scheduler reports it.

// maxFamilies is how many addresses a pod or its node has: one of each family.
const maxFamilies = 2

// keepReported keeps what was reported before and a client that doesn't know of it leaves out. An empty list takes away.
func keepReported(s, old *corev1.PodStatus) {
	line.OrDefault(&s.QOSClass, old.QOSClass)
	if s.ResourceClaimStatuses == nil {
		s.ResourceClaimStatuses = old.ResourceClaimStatuses
	}
	s.ExtendedResourceClaimStatus = cmp.Or(s.ExtendedResourceClaimStatus, old.ExtendedResourceClaimStatus)
	if s.NodeAllocatableResourceClaimStatuses == nil {
		s.NodeAllocatableResourceClaimStatuses = old.NodeAllocatableResourceClaimStatuses
	}
	line.OrDefault(&s.ObservedGeneration, old.ObservedGeneration)
	before := map[corev1.PodConditionType][]int64{} // lists, because a type may be there twice
	for _, c := range old.Conditions {
		before[c.Type] = append(before[c.Type], c.ObservedGeneration)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if had := before[c.Type]; len(had) > 0 {
			line.OrDefault(&c.ObservedGeneration, had[0])
			before[c.Type] = had[1:]
		}
	}
}

// dropGatedStatus drops what gates guard that are off: DRANodeAllocatableResources, CSIVolumeHealth and ImageVolumeWithDigest.
func dropGatedStatus(s, old *corev1.PodStatus) {
	if len(old.NodeAllocatableResourceClaimStatuses) == 0 {
		s.NodeAllocatableResourceClaimStatuses = nil
	}
	if len(old.VolumeHealth) == 0 {
		s.VolumeHealth = nil
	}
	mounts := func(s *corev1.PodStatus) (d drops) {
		for _, statuses := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
			for i := range statuses {
				for j := range statuses[i].VolumeMounts {
					optional(&d, &statuses[i].VolumeMounts[j].VolumeStatus)
				}
			}
		}
		return d
	}
	if len(mounts(old)) == 0 {
		for _, drop := range mounts(s) {
			drop()
		}
	}
}

// containerReports are the statuses of one kind of a pod's containers.
type containerReports struct {
	now, was   []corev1.ContainerStatus
	containers []corev1.Container // those that the statuses are of
	at         *field.Path
}

func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	s, at := &p.Status, field.NewPath("status")
	errs := validateAnnotationUpdate(p, old)
	errs = append(errs, validatePodConditions(s.Conditions, at.Child("conditions"))...)
	if now := s.NominatedNodeName; now != "" && now != old.Status.NominatedNodeName {
		errs = append(errs, rules.Problems(at.Child("nominatedNodeName"), now, validation.IsDNS1123Subdomain(now))...)
		if old.Spec.NodeName != "" {
			errs = append(errs, field.Forbidden(at.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node"))
		}
	}
	if n := s.ObservedGeneration; n < 0 {
		errs = append(errs, field.Invalid(at.Child("observedGeneration"), n, "must be a non-negative integer"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(s.QOSClass, old.Status.QOSClass, at.Child("qosClass"))...)
	containers := containerReports{s.ContainerStatuses, old.Status.ContainerStatuses, old.Spec.Containers, at.Child("containerStatuses")}
	inits := containerReports{s.InitContainerStatuses, old.Status.InitContainerStatuses, old.Spec.InitContainers, at.Child("initContainerStatuses")}
	ephemeral := containerReports{s.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, nil, at.Child("ephemeralContainerStatuses")}
	if !restartsAll(&old.Spec) {
		errs = append(errs, containers.ended(old.Spec.RestartPolicy)...)
		errs = append(errs, inits.ended(old.Spec.RestartPolicy)...)
	}
	errs = append(errs, ephemeral.ended(corev1.RestartPolicyNever)...)
	errs = append(errs, validateClaimStatuses(s.ResourceClaimStatuses, p.Spec.ResourceClaims, at.Child("resourceClaimStatuses"))...)
	errs = append(errs, validateExtendedClaim(s.ExtendedResourceClaimStatus, &p.Spec, at.Child("extendedResourceClaimStatus"))...)
	errs = append(errs, validatePodIPs(s, &old.Status, at.Child("podIPs"))...)
	errs = append(errs, validateHostIPs(s, &old.Status, at.Child("hostIPs"))...)
	for _, r := range []containerReports{containers, inits, ephemeral} {
		errs = append(errs, r.users(&p.Spec)...)
	}
	errs = append(errs, containers.allocated(s.ExtendedResourceClaimStatus)...)
	errs = append(errs, inits.allocated(s.ExtendedResourceClaimStatus)...)
	for i := range ephemeral.now {
		if len(ephemeral.now[i].AllocatedResourcesStatus) > 0 {
			errs = append(errs, field.Forbidden(ephemeral.at.Index(i).Child("allocatedResourcesStatus"), "must not be specified in container status"))
		}
	}
	return errs
}

// validatePodConditions wants conditions of others to have qualified names.
func validatePodConditions(conditions []corev1.PodCondition, at *field.Path) (errs field.ErrorList) {
	for i, c := range conditions {
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Index(i).Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer"))
		}
		if c.Type != corev1.PodScheduled && c.Type != corev1.PodReady && c.Type != corev1.PodInitialized {
			errs = append(errs, rules.Problems(at.Index(i).Child("Type"), string(c.Type), validation.IsQualifiedName(string(c.Type)))...)
		}
	}
	return errs
}

// restartsAll tells whether the end of one container may start all of a pod's again.
func restartsAll(s *corev1.PodSpec) bool {
	return slices.ContainsFunc(slices.Concat(s.InitContainers, s.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// ended wants containers that have ended to stay so where they aren't started again. policy is the pod's.
func (r containerReports) ended(policy corev1.RestartPolicy) (errs field.ErrorList) {
	for i, before := range r.was {
		if before.State.Terminated == nil {
			continue
		}
		n := slices.IndexFunc(r.now, func(s corev1.ContainerStatus) bool { return s.Name == before.Name && s.State.Terminated == nil })
		if n < 0 {
			continue
		}
		own := slices.IndexFunc(r.containers, func(c corev1.Container) bool { return c.Name == before.Name })
		if own < 0 || !startsAgain(&r.containers[own], policy, before.State.Terminated.ExitCode) {
			errs = append(errs, field.Forbidden(r.at.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}

// startsAgain tells whether a container is started again after it has ended with a code.
func startsAgain(c *corev1.Container, policy corev1.RestartPolicy, code int32) bool {
	if c.RestartPolicy != nil {
		for _, rule := range c.RestartPolicyRules {
			if rule.ExitCodes == nil {
				continue
			}
			has := slices.Contains(rule.ExitCodes.Values, code)
			if has && rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn || !has && rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpNotIn {
				if rule.Action == corev1.ContainerRestartRuleActionRestart {
					return true
				}
				break
			}
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyOnFailure:
		return code != 0
	case corev1.RestartPolicyNever:
		return false
	}
	return true
}

func validateClaimStatuses(statuses []corev1.PodResourceClaimStatus, claims []corev1.PodResourceClaim, at *field.Path) (errs field.ErrorList) {
	known := rules.Earlier[string]{}
	for i, s := range statuses {
		at := at.Index(i)
		if !slices.ContainsFunc(claims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name }) {
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		if known.Had(s.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		if name := s.ResourceClaimName; name != nil {
			errs = append(errs, rules.Problems(at.Child("resourceClaimName"), *name, apivalidation.NameIsDNSSubdomain(*name, false))...)
		}
	}
	return errs
}

func validateExtendedClaim(s *corev1.PodExtendedResourceClaimStatus, pod *corev1.PodSpec, at *field.Path) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	mappings := at.Child("requestMappings")
	if len(s.RequestMappings) == 0 {
		errs = append(errs, field.Required(mappings, "at least one request mapping is required"))
	}
	containers := slices.Concat(pod.InitContainers, pod.Containers)
	known := rules.Earlier[corev1.ContainerExtendedResourceRequest]{}
	for i, m := range s.RequestMappings {
		of := mappings.Index(i)
		switch n := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == m.ContainerName }); {
		case n < 0:
			errs = append(errs, field.Invalid(of.Child("containerName"), m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name"))
		default:
			if _, requested := containers[n].Resources.Requests[corev1.ResourceName(m.ResourceName)]; !requested {
				errs = append(errs, field.Invalid(of.Child("resourceName"), m.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))
			}
		}
		errs = append(errs, rules.Problems(at.Child("requestName"), m.RequestName, validation.IsDNS1123Label(m.RequestName))...) // without an index, as there
		if known.Had(m) {
			errs = append(errs, field.Duplicate(of.Child("containerName"), m.ContainerName), field.Duplicate(of.Child("resourceName"), m.ResourceName),
				field.Duplicate(of.Child("requestName"), m.RequestName))
		}
	}
	if s.ResourceClaimName == "" {
		return append(errs, field.Required(at.Child("resourceClaimName"), ""))
	}
	return append(errs, rules.Problems(at.Child("resourceClaimName"), s.ResourceClaimName, apivalidation.NameIsDNSSubdomain(s.ResourceClaimName, false))...)
}

func texts[IP corev1.PodIP | corev1.HostIP](ips []IP) (all []string) {
	for _, ip := range ips {
		all = append(all, corev1.PodIP(ip).IP)
	}
	return all
}

// validatePodIPs checks the addresses of a pod. Those that it had may stay, however they're written.
func validatePodIPs(s, old *corev1.PodStatus, at *field.Path) field.ErrorList {
	return validateAddresses(texts(s.PodIPs), texts(old.PodIPs), s.PodIPs, at)
}

// validateHostIPs checks the addresses of a pod's node, of which the first is the one that older clients read.
func validateHostIPs(s, old *corev1.PodStatus, at *field.Path) (errs field.ErrorList) {
	if len(s.HostIPs) > 0 && s.HostIP != s.HostIPs[0].IP {
		errs = append(errs, field.Invalid(at.Index(0).Child("ip"), s.HostIPs[0].IP, "must be equal to `hostIP`"))
	}
	return append(errs, validateAddresses(texts(s.HostIPs), texts(old.HostIPs), s.HostIPs, at)...)
}

// validateAddresses wants addresses, at most one of each family. value is the field that has them.
func validateAddresses(now, was []string, value any, at *field.Path) (errs field.ErrorList) {
	for i, ip := range now {
		errs = append(errs, validation.IsValidIPForLegacyField(at.Index(i), ip, true, was)...)
	}
	if len(now) < maxFamilies {
		return errs
	}
	dual, err := netutils.IsDualStackIPStrings(now)
	if err != nil {
		errs = append(errs, field.InternalError(at, fmt.Errorf("failed to check for dual stack with error:%v", err)))
	}
	if !dual || len(now) > maxFamilies {
		errs = append(errs, field.Invalid(at, value, "may specify no more than one IP for each IP family"))
	}
	return errs
}

// warnPods are the Warnings of pods: of new ones, because an update is a program's, whom nobody warns. Those of a status are about addresses
// that are written in an unusual way.
func warnPods(_ context.Context, obj, old registry.Typed, subresource string) (texts []string) {
	p := obj.(*corev1.Pod)
	if subresource == "" && old == nil {
		return append(warnOfName(p.Name, "the Pod's hostname"), warnOfPod(&p.Spec, &p.ObjectMeta, nil)...)
	}
	if subresource != "status" {
		return nil
	}
	s, at := &p.Status, field.NewPath("status")
	for i, ip := range s.PodIPs {
		texts = append(texts, validation.GetWarningsForIP(at.Child("podIPs").Index(i).Child("ip"), ip.IP)...)
	}
	for i, ip := range s.HostIPs {
		texts = append(texts, validation.GetWarningsForIP(at.Child("hostIPs").Index(i).Child("ip"), ip.IP)...)
	}
	return texts
}

// users checks as whom containers run.
func (r containerReports) users(s *corev1.PodSpec) (errs field.ErrorList) {
	for i := range r.now {
		if r.now[i].User == nil || r.now[i].User.Linux == nil {
			continue
		}
		u, at := r.now[i].User.Linux, r.at.Index(i).Child("user", "linux")
		switch {
		case isWindows(s):
			errs = append(errs, field.Forbidden(at, "cannot be set for a windows pod"))
			continue
		case s.OS != nil && s.OS.Name != corev1.Linux:
			continue
		case u.UID < 0 || u.UID > math.MaxUint32:
			errs = append(errs, field.Invalid(at.Child("uid"), u.UID, fmt.Sprintf("must be between 0 and %d, inclusive", int64(math.MaxUint32))))
		}
		errs = append(errs, rules.Problems(at.Child("gid"), u.GID, validation.IsValidGroupID(u.GID))...)
		for j, group := range u.SupplementalGroups {
			errs = append(errs, rules.Problems(at.Child("supplementalGroups").Index(j), group, validation.IsValidGroupID(group))...)
		}
	}
	return errs
}

// claimPrefix begins the name of what a container has through a claim.
const claimPrefix = "claim:"

// allocated checks what is told of the devices that containers have.
func (r containerReports) allocated(extended *corev1.PodExtendedResourceClaimStatus) (errs field.ErrorList) {
	for i := range r.now {
		own := slices.IndexFunc(r.containers, func(c corev1.Container) bool { return c.Name == r.now[i].Name })
		for j, a := range r.now[i].AllocatedResourcesStatus {
			at := r.at.Index(i).Child("allocatedResourcesStatus").Index(j)
			if own >= 0 {
				errs = append(errs, validateAllocated(a.Name, &r.containers[own], extended, at.Child("name"))...)
			}
			known := rules.Earlier[corev1.ResourceID]{}
			for k, d := range a.Resources {
				at := at.Child("resources").Index(k)
				if d.Health != corev1.ResourceHealthStatusHealthy && d.Health != corev1.ResourceHealthStatusUnhealthy && d.Health != corev1.ResourceHealthStatusUnknown {
					errs = append(errs, field.NotSupported(at.Child("health"), d.Health,
						[]corev1.ResourceHealthStatus{corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown}))
				}
				switch {
				case d.Message != nil && *d.Message == "":
					errs = append(errs, field.Required(at.Child("message"), "must be non-empty if specified"))
				case d.Message != nil && len(*d.Message) > corev1.ResourceHealthMessageMaxLength:
					errs = append(errs, field.TooLong(at.Child("message"), *d.Message, corev1.ResourceHealthMessageMaxLength))
				}
				if known.Had(d.ResourceID) {
					errs = append(errs, field.Duplicate(at.Child("resourceID"), d.ResourceID))
				}
			}
		}
	}
	return errs
}

// validateAllocated wants a container to have asked for a resource, or for a claim's.
func validateAllocated(name corev1.ResourceName, c *corev1.Container, extended *corev1.PodExtendedResourceClaimStatus, at *field.Path) field.ErrorList {
	claimed, is := strings.CutPrefix(string(name), claimPrefix)
	if !is {
		if _, requested := c.Resources.Requests[name]; requested {
			return nil
		}
		return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource requests")}
	}
	own := slices.ContainsFunc(c.Resources.Claims, func(r corev1.ResourceClaim) bool {
		return claimed == r.Name && r.Request == "" || r.Request != "" && claimed == r.Name+"/"+r.Request
	})
	claim, request, _ := strings.Cut(claimed, "/")
	if own || extended != nil && claim != "" && request != "" && claim == extended.ResourceClaimName && slices.ContainsFunc(extended.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		q, requested := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
		return m.ContainerName == c.Name && m.RequestName == request && requested && !q.IsZero()
	}) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")}
}
