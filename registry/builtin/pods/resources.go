package pods

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
)

// The rules for the resources of pods and their containers.

// resourceClaims checks the claims of a pod, and keeps their names.
func (c *PodCheck) resourceClaims(at *field.Path) {
	for i, claim := range c.Spec.ResourceClaims {
		at := at.Index(i)
		switch {
		case !c.Required(at.Child("name"), claim.Name):
		case c.claims[claim.Name]:
			c.Add(field.Duplicate(at.Child("name"), claim.Name))
		default:
			c.Label(at.Child("name"), claim.Name)
			if c.claims == nil {
				c.claims = map[string]bool{}
			}
			c.claims[claim.Name] = true
		}
		switch named, made := claim.ResourceClaimName != nil, claim.ResourceClaimTemplateName != nil; {
		case named && made:
			c.Add(field.Invalid(at, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case !named && !made:
			c.Add(field.Invalid(at, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if claim.ResourceClaimName != nil {
			c.Subdomain(at.Child("resourceClaimName"), *claim.ResourceClaimName)
		}
		if claim.ResourceClaimTemplateName != nil {
			c.Subdomain(at.Child("resourceClaimTemplateName"), *claim.ResourceClaimTemplateName)
		}
	}
}

// ContainerResource says whether a container can have a resource.
func ContainerResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	text := string(name)
	errs := rules.Problems(at, name, validation.IsQualifiedName(text))
	simple := !strings.Contains(text, "/")
	switch {
	case simple && len(errs) == 0 && !IsStandard(name):
		return append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"), field.Invalid(at, name, "must be a standard resource for containers"))
	case simple && name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage && !quota.IsHugePages(name):
		return append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
	case !simple && !quota.IsNative(name) && !quota.IsExtended(name):
		return append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// podResource says whether a pod can have a resource for all of its containers together.
func podResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := rules.Problems(at, name, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	switch {
	case !strings.Contains(string(name), "/") && !IsStandard(name):
		return field.ErrorList{field.Invalid(at, name, "must be a standard resource type or fully qualified")}
	case !resourcehelper.IsSupportedPodLevelResource(name):
		return field.ErrorList{field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory})}
	}
	return nil
}

// IsStandard tells whether a name without a prefix is that of a resource that Kubernetes knows.
func IsStandard(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage, corev1.ResourcePods, corev1.ResourceServices,
		corev1.ResourceReplicationControllers, corev1.ResourceQuotas, corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return quota.IsHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// Requirements checks what is requested and limited. known says whether there is such a resource.
func (c *PodCheck) Requirements(r *corev1.ResourceRequirements, known func(corev1.ResourceName, *field.Path) field.ErrorList, at *field.Path) {
	if len(r.Limits)+len(r.Requests)+len(r.Claims) == 0 {
		return
	}
	computes, pages := false, false
	quantity := func(name corev1.ResourceName, q resource.Quantity, at *field.Path) {
		c.Add(known(name, at)...)
		c.quantity(name, q, at)
		computes = computes || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		pages = pages || quota.IsHugePages(name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		quantity(name, r.Limits[name], at.Child("limits").Key(string(name)))
		c.pages(name, r.Limits[name], at.Child("limits").Key(string(name)))
	}
	requests := at.Child("requests")
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		q := r.Requests[name]
		quantity(name, q, requests.Key(string(name)))
		limit, limited := r.Limits[name]
		exact := !quota.IsNative(name) || quota.IsHugePages(name)
		switch {
		case limited && exact && q.Cmp(limit) != 0:
			c.Add(field.Invalid(requests, q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && q.Cmp(limit) > 0:
			c.Add(field.Invalid(requests, q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && exact:
			c.Add(field.Required(at.Child("limits"), "Limit must be set for non overcommitable resources"))
		}
		c.pages(name, q, requests.Key(string(name)))
	}
	c.Forbid(pages && !computes, at, "HugePages require cpu or memory")
	c.usedClaims(r.Claims, at.Child("claims"))
}

// quantity checks an amount of a resource.
func (c *PodCheck) quantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) {
	c.NotNegative(at, q)
	if quota.IsExtended(name) && q.MilliValue()%1000 != 0 {
		c.Add(field.Invalid(at, q, "must be an integer"))
	}
}

// pages wants what is a size of huge pages to be a number of them.
func (c *PodCheck) pages(name corev1.ResourceName, q resource.Quantity, at *field.Path) {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if quota.IsHugePages(name) && (err != nil || size.Sign() <= 0 || q.Value()%size.Value() != 0) {
		c.Young(rules.PagesDivide, field.Invalid(at, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
	}
}

// usedClaims checks which of a pod's claims a container uses.
func (c *PodCheck) usedClaims(claims []corev1.ResourceClaim, at *field.Path) {
	used := map[string]bool{}
	for i, claim := range claims {
		at := at.Index(i)
		if !c.Required(at, claim.Name) {
			continue
		}
		key := claim.Name
		if claim.Request != "" {
			c.Label(at.Child("request"), claim.Request)
			key += "/" + claim.Request
		}
		whole := claim.Request == "" && slices.ContainsFunc(claims[:i], func(other corev1.ResourceClaim) bool { return other.Name == claim.Name })
		switch {
		case used[claim.Name] || whole:
			c.Add(field.Duplicate(at, claim.Name))
		case used[key]:
			c.Add(field.Duplicate(at, key))
		}
		used[key] = true
		if !c.claims[claim.Name] {
			err := field.NotFound(at, claim.Name)
			err.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
			if len(c.claims) > 0 {
				err.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(slices.Sorted(maps.Keys(c.claims)), ", ")
			}
			c.Add(err)
		}
	}
}

// podResources checks what all containers have together against what each has.
func (c *PodCheck) podResources(at *field.Path) {
	r := c.Spec.Resources
	if r == nil {
		return
	}
	if c.Spec.OS != nil && c.Spec.OS.Name == corev1.Windows {
		c.Add(field.Forbidden(at, "may not be set for a windows pod"))
		return
	}
	c.Forbid(r.Claims != nil, at.Child("claims"), "claims may not be set for Resources at pod-level")
	c.Requirements(r, podResource, at)
	sum := requestsTogether(c.Spec)
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		if own, has := r.Requests[name]; has && own.Cmp(sum[name]) < 0 {
			all := sum[name]
			c.Add(field.Invalid(at.Child("requests").Key(string(name)), own.String(), "must be greater than or equal to aggregate container requests of "+all.String()))
		}
	}
	sum = limitsTogether(c.Spec)
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		if own, has := r.Limits[name]; has && quota.IsHugePages(name) && own.Cmp(sum[name]) < 0 {
			all := sum[name]
			c.Add(field.Invalid(at.Child("limits").Key(string(name)), own.String(), "must be greater than or equal to aggregate container limits of "+all.String()))
		}
	}
	for i := range c.Spec.Containers {
		limits := c.Spec.Containers[i].Resources.Limits
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			limit := limits[name]
			if own, has := r.Limits[name]; has && limit.Cmp(own) > 0 {
				c.Add(field.Invalid(at.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(), "must be less than or equal to pod limits of "+own.String()))
			}
		}
	}
}

func (c *PodCheck) resizePolicy(policies []corev1.ContainerResizePolicy, at *field.Path) {
	for i, p := range policies {
		c.Twice(slices.ContainsFunc(policies[:i], func(other corev1.ContainerResizePolicy) bool { return other.ResourceName == p.ResourceName }), at.Index(i), p.ResourceName)
		c.Add(rules.OneOf(at, p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		c.Add(rules.OneOf(at, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		c.Refuse(c.Spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired, at, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
	}
}

// What a pod requests for all of its containers together, and what that is limited to.

// defaultPodResources completes a pod's own limits and requests from those of its containers. A pod that has none of its own
// stays without: its containers say it all.
func defaultPodResources(s *corev1.PodSpec) {
	r := s.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	limits := limitsTogether(s)
	for name, limit := range limits {
		if _, requested := r.Requests[name]; quota.IsHugePages(name) && !requested {
			orAdd(&r.Limits, name, limit)
		}
	}
	for name, request := range requestsTogether(s) {
		if resourcehelper.IsSupportedPodLevelResource(name) && !quota.IsHugePages(name) { // huge pages are requested as they're limited
			orAdd(&r.Requests, name, request)
		}
	}
	for name, limit := range r.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			orAdd(&r.Requests, name, limit)
		}
	}
	for name, request := range r.Requests {
		if limit, limited := limits[name]; resourcehelper.IsSupportedPodLevelResource(name) && limited && allLimit(s, name) {
			if request.Cmp(limit) > 0 {
				limit = request
			}
			orAdd(&r.Limits, name, limit)
		}
	}
}

// allLimit tells whether each container of a pod limits a resource.
func allLimit(s *corev1.PodSpec, name corev1.ResourceName) bool {
	if len(s.EphemeralContainers) > 0 { // which limit nothing
		return false
	}
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			if _, limited := containers[i].Resources.Limits[name]; !limited {
				return false
			}
		}
	}
	return true
}

// hasPodResources tells whether a pod says something of all containers together.
func hasPodResources(r *corev1.ResourceRequirements) bool {
	if r == nil {
		return false
	}
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			if resourcehelper.IsSupportedPodLevelResource(name) {
				return true
			}
		}
	}
	return false
}

// orAdd adds a resource that a list lacks.
func orAdd(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if _, has := (*list)[name]; has {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}

// defaultRequests requests what is limited.
func defaultRequests(r *corev1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil { // which a refusal shows
		r.Requests = corev1.ResourceList{}
	}
	for name, limit := range r.Limits {
		orAdd(&r.Requests, name, limit)
	}
}

// requestsTogether returns what the containers of a pod request at the same time at most.
func requestsTogether(s *corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *s}, resourcehelper.PodResourcesOptions{})
}

// limitsTogether returns what they're limited to.
func limitsTogether(s *corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.AggregateContainerLimits(&corev1.Pod{Spec: *s}, resourcehelper.PodResourcesOptions{})
}
