package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules for the resources of pods and their containers.

// resourceClaims checks the claims of a pod, and keeps their names.
func (c *podCheck) resourceClaims(at *field.Path) {
	for i, claim := range c.spec.ResourceClaims {
		at := at.Index(i)
		switch {
		case !c.required(at.Child("name"), claim.Name):
		case c.claims[claim.Name]:
			c.add(field.Duplicate(at.Child("name"), claim.Name))
		default:
			c.label(at.Child("name"), claim.Name)
			if c.claims == nil {
				c.claims = map[string]bool{}
			}
			c.claims[claim.Name] = true
		}
		switch named, made := claim.ResourceClaimName != nil, claim.ResourceClaimTemplateName != nil; {
		case named && made:
			c.add(field.Invalid(at, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case !named && !made:
			c.add(field.Invalid(at, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		if claim.ResourceClaimName != nil {
			c.subdomain(at.Child("resourceClaimName"), *claim.ResourceClaimName)
		}
		if claim.ResourceClaimTemplateName != nil {
			c.subdomain(at.Child("resourceClaimTemplateName"), *claim.ResourceClaimTemplateName)
		}
	}
}

// containerResource says whether a container can have a resource.
func containerResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	text := string(name)
	errs := problems(at, name, validation.IsQualifiedName(text))
	simple := !strings.Contains(text, "/")
	switch {
	case simple && len(errs) == 0 && !isStandard(name):
		return append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"), field.Invalid(at, name, "must be a standard resource for containers"))
	case simple && name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage && !isHugePages(name):
		return append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
	case !simple && !isNative(name) && !isExtended(name):
		return append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// podResource says whether a pod can have a resource for all of its containers together.
func podResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := problems(at, name, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	switch {
	case !strings.Contains(string(name), "/") && !isStandard(name):
		return field.ErrorList{field.Invalid(at, name, "must be a standard resource type or fully qualified")}
	case !ofWholePod(name):
		return field.ErrorList{field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory})}
	}
	return nil
}

// isStandard tells whether a name without a prefix is that of a resource that Kubernetes knows.
func isStandard(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage, corev1.ResourcePods, corev1.ResourceServices,
		corev1.ResourceReplicationControllers, corev1.ResourceQuotas, corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return isHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// isNative tells whether a resource is Kubernetes' own.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isExtended tells whether a resource is somebody else's, and has a name that a quota can have.
func isExtended(name corev1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// requirements checks what is requested and limited. known says whether there is such a resource.
func (c *podCheck) requirements(r *corev1.ResourceRequirements, known func(corev1.ResourceName, *field.Path) field.ErrorList, at *field.Path) {
	if len(r.Limits)+len(r.Requests)+len(r.Claims) == 0 {
		return
	}
	computes, pages := false, false
	quantity := func(name corev1.ResourceName, q resource.Quantity, at *field.Path) {
		c.add(known(name, at)...)
		c.quantity(name, q, at)
		computes = computes || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		pages = pages || isHugePages(name)
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
		exact := !isNative(name) || isHugePages(name)
		switch {
		case limited && exact && q.Cmp(limit) != 0:
			c.add(field.Invalid(requests, q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && q.Cmp(limit) > 0:
			c.add(field.Invalid(requests, q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && exact:
			c.add(field.Required(at.Child("limits"), "Limit must be set for non overcommitable resources"))
		}
		c.pages(name, q, requests.Key(string(name)))
	}
	if pages && !computes {
		c.add(field.Forbidden(at, "HugePages require cpu or memory"))
	}
	c.usedClaims(r.Claims, at.Child("claims"))
}

// quantity checks an amount of a resource.
func (c *podCheck) quantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) {
	if q.Sign() < 0 {
		c.add(field.Invalid(at, q.String(), "must be greater than or equal to 0"))
	}
	if isExtended(name) && q.MilliValue()%1000 != 0 {
		c.add(field.Invalid(at, q, "must be an integer"))
	}
}

// pages wants what is a size of huge pages to be a number of them.
func (c *podCheck) pages(name corev1.ResourceName, q resource.Quantity, at *field.Path) {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if isHugePages(name) && (err != nil || size.Sign() <= 0 || q.Value()%size.Value() != 0) {
		c.young(pagesDivide, field.Invalid(at, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
	}
}

// usedClaims checks which of a pod's claims a container uses.
func (c *podCheck) usedClaims(claims []corev1.ResourceClaim, at *field.Path) {
	used := map[string]bool{}
	for i, claim := range claims {
		at := at.Index(i)
		if !c.required(at, claim.Name) {
			continue
		}
		key := claim.Name
		if claim.Request != "" {
			c.label(at.Child("request"), claim.Request)
			key += "/" + claim.Request
		}
		whole := claim.Request == "" && slices.ContainsFunc(claims[:i], func(other corev1.ResourceClaim) bool { return other.Name == claim.Name })
		switch {
		case used[claim.Name] || whole:
			c.add(field.Duplicate(at, claim.Name))
		case used[key]:
			c.add(field.Duplicate(at, key))
		}
		used[key] = true
		if !c.claims[claim.Name] {
			err := field.NotFound(at, claim.Name)
			err.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
			if len(c.claims) > 0 {
				err.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(slices.Sorted(maps.Keys(c.claims)), ", ")
			}
			c.add(err)
		}
	}
}

// podResources checks what all containers have together against what each has.
func (c *podCheck) podResources(at *field.Path) {
	r := c.spec.Resources
	if r == nil {
		return
	}
	if c.spec.OS != nil && c.spec.OS.Name == corev1.Windows {
		c.add(field.Forbidden(at, "may not be set for a windows pod"))
		return
	}
	if r.Claims != nil {
		c.add(field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	c.requirements(r, podResource, at)
	sum := requestsTogether(c.spec)
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		if own, has := r.Requests[name]; has && own.Cmp(sum[name]) < 0 {
			all := sum[name]
			c.add(field.Invalid(at.Child("requests").Key(string(name)), own.String(), "must be greater than or equal to aggregate container requests of "+all.String()))
		}
	}
	sum = limitsTogether(c.spec)
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		if own, has := r.Limits[name]; has && isHugePages(name) && own.Cmp(sum[name]) < 0 {
			all := sum[name]
			c.add(field.Invalid(at.Child("limits").Key(string(name)), own.String(), "must be greater than or equal to aggregate container limits of "+all.String()))
		}
	}
	for i := range c.spec.Containers {
		limits := c.spec.Containers[i].Resources.Limits
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			limit := limits[name]
			if own, has := r.Limits[name]; has && limit.Cmp(own) > 0 {
				c.add(field.Invalid(at.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(), "must be less than or equal to pod limits of "+own.String()))
			}
		}
	}
}

func (c *podCheck) resizePolicy(policies []corev1.ContainerResizePolicy, at *field.Path) {
	for i, p := range policies {
		if slices.ContainsFunc(policies[:i], func(other corev1.ContainerResizePolicy) bool { return other.ResourceName == p.ResourceName }) {
			c.add(field.Duplicate(at.Index(i), p.ResourceName))
		}
		c.add(oneOf(at, p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		c.add(oneOf(at, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		if c.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			c.add(field.Invalid(at, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
}
