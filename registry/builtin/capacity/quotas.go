package capacity

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
)

func defaultQuota(q *corev1.ResourceQuota) {
	for _, list := range []corev1.ResourceList{q.Spec.Hard, q.Status.Hard, q.Status.Used} {
		line.RoundUp(list)
	}
}

func quotaColumns() []registry.Column {
	list := func(requests bool) func(o any) any {
		return func(o any) any {
			var all []string
			hard, used := column.AsMap(column.At(o, "status.hard")), column.AsMap(column.At(o, "status.used"))
			for _, name := range column.SortedKeys(hard) {
				if strings.HasPrefix(name, "limits.") != requests {
					all = append(all, name+": "+column.Or(column.Str(used[name]), "0")+"/"+column.Str(hard[name]))
				}
			}
			return strings.Join(all, ", ")
		}
	}
	return []registry.Column{
		column.Cell("Request", "Request represents a minimum amount of cpu/memory that a container may consume.", list(true)),
		column.Cell("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.", list(false)),
		column.Age(),
	}
}

// What a quota may name without a prefix: objects by their number, and what pods and claims take.
var (
	countedNames = []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
		corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}
	computeNames = []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	}
	storageNames = []corev1.ResourceName{
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage, corev1.ResourceRequestsStorage,
	}
	quotaScopes = []corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass,
	}
)

// isQuotaName tells whether a name without a prefix may be in a quota.
func isQuotaName(name corev1.ResourceName) bool {
	return slices.Contains(countedNames, name) || slices.Contains(computeNames, name) || slices.Contains(storageNames, name) ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// validateQuota checks a quota, or what is reported of it.
func validateQuota(_ context.Context, obj, old registry.Typed, subresource string) (errs field.ErrorList) {
	q := obj.(*corev1.ResourceQuota)
	status := field.NewPath("status")
	if subresource == "status" {
		return append(validateQuotaList(q.Status.Hard, status.Child("hard")), validateQuotaList(q.Status.Used, status.Child("used"))...)
	}
	spec := field.NewPath("spec")
	errs = append(errs, validateQuotaList(q.Spec.Hard, spec.Child("hard"))...)
	errs = append(errs, validateScopes(&q.Spec, spec.Child("scopes"))...)
	if q.Spec.ScopeSelector != nil {
		errs = append(errs, validateScopeSelector(&q.Spec, spec.Child("scopeSelector", "matchExpressions"))...)
	}
	if before, ok := old.(*corev1.ResourceQuota); ok && before != nil {
		if !sameScopes(q.Spec.Scopes, before.Spec.Scopes) {
			errs = append(errs, field.Invalid(spec.Child("scopes"), q.Spec.Scopes, apivalidation.FieldImmutableErrorMsg))
		}
	}
	return errs
}

func sameScopes(a, b []corev1.ResourceQuotaScope) bool {
	within := func(a, b []corev1.ResourceQuotaScope) bool {
		return !slices.ContainsFunc(a, func(s corev1.ResourceQuotaScope) bool { return !slices.Contains(b, s) })
	}
	return within(a, b) && within(b, a)
}

func validateQuotaList(list corev1.ResourceList, at *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q, at := list[name], at.Key(string(name))
		errs = append(errs, validateQuotaName(name, at)...)
		errs = append(errs, validateQuantity(name, q, at)...)
	}
	return errs
}

// validateQuantity checks an amount of a resource that counts, or of which there's so much.
func validateQuantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) (errs field.ErrorList) {
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(at, q.String(), apivalidation.IsNegativeErrorMsg))
	}
	if whole := slices.Contains(countedNames, name) || quota.IsExtended(name); whole && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, q, "must be an integer"))
	}
	return errs
}

func validateQuotaName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	c := &rules.Check{}
	c.Texts(at, name, validation.IsQualifiedName(string(name)))
	if strings.Contains(string(name), "/") {
		return c.Errs
	}
	c.Refuse(len(c.Errs) == 0 && name != corev1.ResourceStorage && !isQuotaName(name), at, name, "must be a standard resource type or fully qualified")
	c.Refuse(!isQuotaName(name), at, name, "must be a standard resource for quota")
	return c.Errs
}

// scopeFits tells whether a scope is about what a name counts.
func scopeFits(scope corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	switch scope {
	case corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return name == corev1.ResourcePods || slices.Contains(computeNames, name)
	}
	return true
}

// conflicting are pairs of scopes that have nothing in common.
var conflicting = [][2]corev1.ResourceQuotaScope{
	{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
	{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
}

func validateScopes(spec *corev1.ResourceQuotaSpec, at *field.Path) field.ErrorList {
	c := &rules.Check{}
	for _, scope := range spec.Scopes {
		c.Refuse(!slices.Contains(quotaScopes, scope), at, spec.Scopes, "unsupported scope")
		for _, name := range slices.Sorted(maps.Keys(spec.Hard)) {
			c.Refuse(isQuotaName(name) && !scopeFits(scope, name), at, spec.Scopes, "unsupported scope applied to resource")
		}
	}
	for _, pair := range conflicting {
		c.Refuse(slices.Contains(spec.Scopes, pair[0]) && slices.Contains(spec.Scopes, pair[1]), at, spec.Scopes, "conflicting scopes")
	}
	return c.Errs
}

func validateScopeSelector(spec *corev1.ResourceQuotaSpec, at *field.Path) field.ErrorList {
	c := &rules.Check{}
	var seen []corev1.ResourceQuotaScope
	for _, r := range spec.ScopeSelector.MatchExpressions {
		c.Refuse(!slices.Contains(quotaScopes, r.ScopeName), at.Child("scopeName"), r.ScopeName, "unsupported scope")
		for _, name := range slices.Sorted(maps.Keys(spec.Hard)) {
			c.Refuse(isQuotaName(name) && !scopeFits(r.ScopeName, name), at, spec.ScopeSelector, "unsupported scope applied to resource")
		}
		switch r.ScopeName {
		case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating,
			corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
			if r.Operator != corev1.ScopeSelectorOpExists {
				c.Add(field.Invalid(at.Child("operator"), r.Operator,
					"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
			}
		}
		switch r.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			c.Lack(len(r.Values) == 0, at.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			c.Refuse(len(r.Values) != 0, at.Child("values"), r.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
		default:
			c.Add(field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		seen = append(seen, r.ScopeName)
	}
	for _, pair := range conflicting {
		c.Refuse(slices.Contains(seen, pair[0]) && slices.Contains(seen, pair[1]), at, spec.Scopes, "conflicting scopes")
	}
	return c.Errs
}
