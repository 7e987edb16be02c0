// Package capacity has what there is to run pods on, and who may have how much of it: Nodes, RuntimeClasses, ResourceQuotas, LimitRanges and
// PriorityClasses.
package capacity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

const (
	nodeGroup       = "node.k8s.io"
	schedulingGroup = "scheduling.k8s.io"
)

// Kinds are the lines of the table.
func Kinds() []registry.Type {
	return []registry.Type{
		{Names: line.Names("", "v1", "Node", "no"), New: line.New[corev1.Node], ClusterScoped: true, Status: true,
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreatesStatus: true, NoGeneration: true, StatusResets: line.SpecOnly},
			Selection: registry.Selection{Fields: []string{"spec.unschedulable"}, False: []string{"spec.unschedulable"}}, Columns: nodeColumns, Parts: registry.Parts{Absent: line.OnlyProxy()}, Default: line.Set(defaultNode),
			Prepare: line.Prepare(prepareNode), Validate: line.Parts(validateNode, validateNodeStatus), Warnings: line.Warnings(warnNode)},
		{Names: line.Names(nodeGroup, "v1", "RuntimeClass"), New: line.New[nodev1.RuntimeClass], ClusterScoped: true, Columns: runtimeClassColumns, Validate: line.Rules(validateRuntimeClass), Warnings: line.Warnings(warnRuntimeClass),
			Strategy: registry.Strategy{CreateOnUpdate: true, NoGeneration: true, Awaited: true}},
		{Names: line.Names("", "v1", "ResourceQuota", "quota"), New: line.New[corev1.ResourceQuota], Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true, StatusResets: line.SpecOnly, Awaited: true},
			Columns:  quotaColumns, Default: line.Set(defaultQuota), Validate: validateQuota},
		{Names: line.Names("", "v1", "LimitRange", "limits"), New: line.New[corev1.LimitRange],
			Strategy: registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, NamesNew: true, Awaited: true},
			Columns:  column.Created, Default: line.Set(defaultLimitRange), Validate: line.Rules(validateLimitRange)},
		{Names: line.Names(schedulingGroup, "v1", "PriorityClass", "pc"), New: line.New[schedulingv1.PriorityClass], ClusterScoped: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, Awaited: true, Generation: line.Counted(func(_, _ *schedulingv1.PriorityClass) bool { return false })},
			Columns:  priorityClassColumns, Default: line.Set(defaultPriorityClass), Validate: line.Rules(validatePriorityClass)},
	}
}

func defaultPriorityClass(c *schedulingv1.PriorityClass) {
	line.OrPointTo(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
}

func validatePriorityClass(c, old *schedulingv1.PriorityClass) (errs field.ErrorList) {
	if old != nil {
		if c.Value != old.Value {
			errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
		}
		return append(errs, apivalidation.ValidateImmutableField(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
	}
	const highest = 1_000_000_000 // above it is the system's own
	if strings.HasPrefix(c.Name, "system-") {
		if c.Name != "system-cluster-critical" && c.Name != "system-node-critical" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with 'system-' prefix are reserved for system use only"))
		}
	} else if c.Value > highest {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "maximum allowed value of a user defined priority is 1000000000"))
	}
	return append(errs, rules.OneOf(field.NewPath("preemptionPolicy"), *c.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
}

func priorityClassColumns() []registry.Column {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return []registry.Column{
		column.Number("Value", "value", doc["value"]),
		column.Flag("Global-Default", "globalDefault", doc["globalDefault"]),
		column.Age(),
		column.Text("PreemptionPolicy", "preemptionPolicy", doc["preemptionPolicy"]),
	}
}
