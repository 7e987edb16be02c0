package builtin

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Groups with few kinds.

func validateBudget(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
	c, spec := &check{}, field.NewPath("spec")
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		c.add(field.Invalid(spec, untagged{b.Spec}, "minAvailable and maxUnavailable cannot be both set"))
	}
	if n := b.Spec.MinAvailable; n != nil {
		c.add(validateShare(*n, spec.Child("minAvailable"))...)
		c.add(atMostAll(*n, spec.Child("minAvailable"))...)
	}
	if n := b.Spec.MaxUnavailable; n != nil {
		c.add(validateShare(*n, spec.Child("maxUnavailable"))...)
		c.add(atMostAll(*n, spec.Child("maxUnavailable"))...)
	}
	c.add(unlessOld(func(c *check, b *policyv1.PodDisruptionBudget) {
		c.youngSelector(selectorValues, b.Spec.Selector, spec.Child("selector"))
	}, b, old).errs...)
	among(c, spec.Child("unhealthyPodEvictionPolicy"), b.Spec.UnhealthyPodEvictionPolicy, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)
	return c.errs
}

func validateBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s, at := b.Status, field.NewPath("status")
	errs := metavalidation.ValidateConditions(s.Conditions, at.Child("conditions"))
	for _, f := range []struct {
		name string
		n    int32
	}{{"disruptionsAllowed", s.DisruptionsAllowed}, {"currentHealthy", s.CurrentHealthy}, {"desiredHealthy", s.DesiredHealthy}, {"expectedPods", s.ExpectedPods}} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(f.n), at.Child(f.name))...)
	}
	return errs
}

// oldBudgetLabel is what a selector of the kind's beta was written with, which is no label of pods.
const oldBudgetLabel = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// prepareBudget drops what isn't a client's from a selector, unless that selects nothing by it.
func prepareBudget(b, old *policyv1.PodDisruptionBudget, subresource string) {
	s := b.Spec.Selector
	nothing := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: oldBudgetLabel, Operator: metav1.LabelSelectorOpExists}}}
	if subresource != "" || s == nil || old != nil && equality.Semantic.DeepEqual(s, old.Spec.Selector) || equality.Semantic.DeepEqual(s, nothing) {
		return
	}
	s.MatchExpressions = slices.DeleteFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == oldBudgetLabel })
}

// components says of the one component that there is that it's healthy: without its etcd the server ends.
func components() []registry.Typed {
	healthy := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	return []registry.Typed{&corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: "etcd-0"}, Conditions: []corev1.ComponentCondition{healthy}}}
}

func componentColumns() []column {
	healthy := func(show func(condition any) string) func(o any) any {
		return func(o any) any {
			for _, c := range asList(at(o, "conditions")) {
				if at(c, "type") == string(corev1.ComponentHealthy) {
					return show(c)
				}
			}
			return show(nil)
		}
	}
	member := func(name string) func(o any) any {
		return healthy(func(c any) string { return str(at(c, name)) })
	}
	return []column{
		cell("Status", "Status of the component conditions", healthy(func(c any) string {
			switch {
			case c == nil:
				return "Unknown"
			case at(c, "status") == string(corev1.ConditionTrue):
				return "Healthy"
			}
			return "Unhealthy"
		})),
		cell("Message", "Message of the component conditions", member("message")),
		cell("Error", "Error of the component conditions", member("error")),
	}
}

func budgetColumns() []column {
	notSet := func(path string) func(o any) any { return func(o any) any { return or(str(at(o, path)), "N/A") } }
	return []column{
		cell("Min Available", "The minimum number of pods that must be available.", notSet("spec.minAvailable")),
		cell("Max Unavailable", "The maximum number of pods that may be unavailable.", notSet("spec.maxUnavailable")),
		number("Allowed Disruptions", "status.disruptionsAllowed", "Calculated number of pods that may be disrupted at this time."),
		age(),
	}
}

func defaultQuota(q *corev1.ResourceQuota) {
	for _, list := range []corev1.ResourceList{q.Spec.Hard, q.Status.Hard, q.Status.Used} {
		roundUp(list)
	}
}

func quotaColumns() []column {
	list := func(requests bool) func(o any) any {
		return func(o any) any {
			var all []string
			hard, used := asMap(at(o, "status.hard")), asMap(at(o, "status.used"))
			for _, name := range sortedKeys(hard) {
				if strings.HasPrefix(name, "limits.") != requests {
					all = append(all, name+": "+or(str(used[name]), "0")+"/"+str(hard[name]))
				}
			}
			return strings.Join(all, ", ")
		}
	}
	return []column{
		cell("Request", "Request represents a minimum amount of cpu/memory that a container may consume.", list(true)),
		cell("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.", list(false)),
		age(),
	}
}

// defaultLimitRange takes what a container gets from what it may have.
func defaultLimitRange(r *corev1.LimitRange) {
	for i := range r.Spec.Limits {
		l := &r.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{l.Max, l.Min, l.Default, l.DefaultRequest, l.MaxLimitRequestRatio} {
			roundUp(list)
		}
		if l.Type != corev1.LimitTypeContainer {
			continue
		}
		l.Default = completed(l.Default, l.Max)
		l.DefaultRequest = completed(completed(l.DefaultRequest, l.Default), l.Min)
	}
}

// completed returns a list with what another has besides.
func completed(list, from corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, from)
	maps.Copy(out, list)
	return out
}

func limitRangeColumns() []column { return []column{createdAt()} }

func defaultPriorityClass(c *schedulingv1.PriorityClass) {
	orPointTo(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
}

func validatePriorityClass(c, old *schedulingv1.PriorityClass) (errs field.ErrorList) {
	if old != nil {
		if c.Value != old.Value {
			errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
		}
		return append(errs, unchanged(field.NewPath("preemptionPolicy"), c.PreemptionPolicy, old.PreemptionPolicy)...)
	}
	const highest = 1_000_000_000 // above it is the system's own
	if strings.HasPrefix(c.Name, "system-") {
		if c.Name != "system-cluster-critical" && c.Name != "system-node-critical" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with 'system-' prefix are reserved for system use only"))
		}
	} else if c.Value > highest {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "maximum allowed value of a user defined priority is 1000000000"))
	}
	return append(errs, oneOf(field.NewPath("preemptionPolicy"), *c.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
}

func priorityClassColumns() []column {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return []column{
		number("Value", "value", doc["value"]),
		flag("Global-Default", "globalDefault", doc["globalDefault"]),
		age(),
		text("PreemptionPolicy", "preemptionPolicy", doc["preemptionPolicy"]),
	}
}

func runtimeClassColumns() []column {
	return []column{text("Handler", "handler", ""), age()}
}

// The defaults of API Priority and Fairness, as the API documentation names them.
const (
	defaultPrecedence  int32 = 1000
	defaultShares      int32 = 30
	defaultQueues      int32 = 64
	defaultHandSize    int32 = 8
	defaultQueueLength int32 = 50
)

func defaultFlowSchema(s *flowcontrolv1.FlowSchema) {
	orDefault(&s.Spec.MatchingPrecedence, defaultPrecedence)
}

func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if e := p.Spec.Exempt; e != nil {
		orPointTo(&e.NominalConcurrencyShares, 0)
		orPointTo(&e.LendablePercent, 0)
	}
	l := p.Spec.Limited
	if l == nil {
		return
	}
	orPointTo(&l.NominalConcurrencyShares, defaultShares)
	orPointTo(&l.LendablePercent, 0)
	if q := l.LimitResponse.Queuing; q != nil {
		orDefault(&q.Queues, defaultQueues)
		orDefault(&q.HandSize, defaultHandSize)
		orDefault(&q.QueueLengthLimit, defaultQueueLength)
	}
}

func flowSchemaColumns() []column {
	doc := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return []column{
		text("PriorityLevel", "spec.priorityLevelConfiguration.name", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]),
		asText(number("MatchingPrecedence", "spec.matchingPrecedence", doc["matchingPrecedence"])),
		orNone("DistinguisherMethod", "spec.distinguisherMethod.type", doc["distinguisherMethod"]),
		age(),
		cell("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", func(o any) any {
			for _, c := range asList(at(o, "status.conditions")) {
				if at(c, "type") == string(flowcontrolv1.FlowSchemaConditionDangling) {
					return str(at(c, "status"))
				}
			}
			return "?"
		}),
	}
}

func priorityLevelColumns() []column {
	limit := func(name, path, description string) column {
		return cell(name, description, func(o any) any {
			if n := at(o, "spec.limited."+path); n != nil {
				return n
			}
			return none
		})
	}
	queuing := func(name, field string) column {
		return limit(name, "limitResponse.queuing."+field, flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()[field])
	}
	return []column{
		text("Type", "spec.type", flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]),
		limit("NominalConcurrencyShares", "nominalConcurrencyShares", flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]),
		queuing("Queues", "queues"),
		queuing("HandSize", "handSize"),
		queuing("QueueLengthLimit", "queueLengthLimit"),
		age(),
	}
}

// textAge is the age of kinds whose printers declare it as a text.
func textAge() []column { return []column{asText(age())} }

func defaultResourceClaim(c *resourcev1.ResourceClaim) {
	defaultDevices(&c.Spec.Devices)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			defaultTolerations(a.Devices.Results[i].Tolerations)
		}
	}
}

func defaultResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) {
	defaultDevices(&t.Spec.Spec.Devices)
}

// defaultDevices asks for one device where a request says nothing else.
func defaultDevices(d *resourcev1.DeviceClaim) {
	one := func(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
		orDefault(mode, resourcev1.DeviceAllocationModeExactCount)
		if *mode == resourcev1.DeviceAllocationModeExactCount {
			orDefault(count, 1)
		}
		defaultTolerations(tolerations)
	}
	for i := range d.Requests {
		r := &d.Requests[i]
		if e := r.Exactly; e != nil {
			one(&e.AllocationMode, &e.Count, e.Tolerations)
		}
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			one(&s.AllocationMode, &s.Count, s.Tolerations)
		}
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		orDefault(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

// defaultResourceSlice says when devices were tainted.
func defaultResourceSlice(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		for j := range d.Taints {
			defaultTaint(&d.Taints[j].TimeAdded)
		}
	}
}

func defaultTaintRule(r *resourcev1.DeviceTaintRule) { defaultTaint(&r.Spec.Taint.TimeAdded) }

func defaultTaint(added **metav1.Time) {
	orPointTo(added, metav1.NewTime(time.Now().Truncate(time.Second)))
}

// taintRuleColumns show the taint. Which devices a rule is about may be long, and its name may tell.
func taintRuleColumns() []column {
	doc := resourcev1.DeviceTaint{}.SwaggerDoc()
	return []column{
		text("Key", "spec.taint.key", doc["key"]),
		text("Value", "spec.taint.value", doc["value"]),
		text("Effect", "spec.taint.effect", doc["effect"]),
		cell("TimeAdded", doc["timeAdded"], func(o any) any { return elapsed(at(o, "spec.taint.timeAdded")) }),
		age(),
	}
}

func resourceClaimColumns() []column {
	return []column{
		cell("State", "A summary of the current state (allocated, pending, reserved, etc.).", func(o any) any {
			var states []string
			if at(o, "metadata.deletionTimestamp") != nil {
				states = append(states, "deleted")
			}
			switch {
			case at(o, "status.allocation") == nil && len(states) == 0:
				states = append(states, "pending")
			case at(o, "status.allocation") != nil:
				states = append(states, "allocated")
				if len(asList(at(o, "status.reservedFor"))) > 0 {
					states = append(states, "reserved")
				}
			}
			return strings.Join(states, ",")
		}),
		age(),
	}
}

func resourceSliceColumns() []column {
	doc := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	return []column{
		text("Node", "spec.nodeName", doc["nodeName"]),
		text("Driver", "spec.driver", doc["driver"]),
		text("Pool", "spec.pool.name", resourcev1.ResourcePool{}.SwaggerDoc()["name"]),
		age(),
	}
}
