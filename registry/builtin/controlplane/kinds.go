// Package controlplane has the kinds by which the parts of a cluster's control plane find each other, and divide its work: Leases, FlowSchemas and
// PriorityLevelConfigurations, APIServices, StorageVersionMigrations and ComponentStatuses.
package controlplane

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

const coordinationGroup = "coordination.k8s.io"

// Leases are the lines of the table.
func Leases() []registry.Type {
	return []registry.Type{
		{Names: line.Names(coordinationGroup, "v1", "Lease"), New: line.New[coordinationv1.Lease],
			Strategy: registry.Strategy{CreateOnUpdate: true, NoGeneration: true},
			Columns:  leaseColumns, Prepare: line.Prepare(prepareLease), Validate: line.Rules(validateLease)},
	}
}

const (
	flowcontrolGroup  = "flowcontrol.apiserver.k8s.io"
	registrationGroup = "apiregistration.k8s.io"
	migrationGroup    = "storagemigration.k8s.io"
)

// Kinds are the lines of the table.
func Kinds(c *clock.Clock) []registry.Type {
	return []registry.Type{
		{Names: line.Names("", "v1", "ComponentStatus", "cs"), New: line.New[corev1.ComponentStatus], ClusterScoped: true, Unstored: registry.Unstored{Shown: components},
			Strategy: registry.Strategy{NoGeneration: true},
			Warning:  "v1 ComponentStatus is deprecated in v1.19+", Columns: componentColumns},
		{Names: line.Names(flowcontrolGroup, "v1", "FlowSchema"), New: line.New[flowcontrolv1.FlowSchema], ClusterScoped: true, Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, Awaited: true, RowOrder: byPrecedence},
			Columns:  flowSchemaColumns, Default: line.Set(defaultFlowSchema), Validate: line.Parts(validateFlowSchema, validateFlowSchemaStatus)},
		{Names: line.Names(flowcontrolGroup, "v1", "PriorityLevelConfiguration"), New: line.New[flowcontrolv1.PriorityLevelConfiguration], ClusterScoped: true, Status: true,
			Strategy: registry.Strategy{UnconditionalUpdate: true, Awaited: true},
			Columns:  priorityLevelColumns, Default: line.Set(defaultPriorityLevel), Validate: line.Parts(validatePriorityLevel, validatePriorityLevelStatus)},
		{Names: line.InAPIExtensions(line.Names(registrationGroup, "v1", "APIService")), New: line.New[apiregistrationv1.APIService], ClusterScoped: true, Status: true, ValidName: rules.PathSegment,
			Strategy: registry.Strategy{NoGeneration: true, NoStatusTable: true},
			Columns:  apiServiceColumns, Default: line.Set(defaultAPIService), Prepare: line.Prepare(prepareAPIService(c)), Validate: line.Parts(validateAPIService, validateAPIServiceStatus)},
		{Names: line.Names(migrationGroup, "v1", "StorageVersionMigration"), New: line.New[storagemigrationv1.StorageVersionMigration], ClusterScoped: true, Status: true, Columns: migrationColumns,
			Stored: registry.Stored{In: "v1beta1"}, Strategy: registry.Strategy{NoGeneration: true}, Validate: line.Parts(validateMigration, validateMigrationStatus)},
	}
}

// prepareLease drops what belongs to a feature that is off there.
func prepareLease(l, old *coordinationv1.Lease, _ string) {
	if old == nil || old.Spec.Strategy == nil {
		l.Spec.Strategy = nil
	}
	if old == nil || old.Spec.PreferredHolder == nil {
		l.Spec.PreferredHolder = nil
	}
}

func validateLease(l, _ *coordinationv1.Lease) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	errs = append(errs, rules.NotNegative(spec.Child("leaseTransitions"), l.Spec.LeaseTransitions)...)
	if h := l.Spec.HolderIdentity; h != nil && *h == "" && l.Spec.PreferredHolder != nil && *l.Spec.PreferredHolder != "" && l.Spec.Strategy == nil {
		errs = append(errs, field.Forbidden(spec.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

func leaseColumns() []registry.Column {
	return []registry.Column{column.Text("Holder", ".spec.holderIdentity", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]), column.Age()}
}

// components says of the one component that there is that it's healthy: without its etcd the server ends.
func components() []registry.Typed {
	healthy := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	return []registry.Typed{&corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: "etcd-0"}, Conditions: []corev1.ComponentCondition{healthy}}}
}

func componentColumns() []registry.Column {
	healthy := func(show func(condition any) string) func(o any) any {
		return func(o any) any {
			for _, c := range column.AsList(column.At(o, "conditions")) {
				if column.At(c, "type") == string(corev1.ComponentHealthy) {
					return show(c)
				}
			}
			return show(nil)
		}
	}
	member := func(name string) func(o any) any {
		return healthy(func(c any) string { return column.Str(column.At(c, name)) })
	}
	return []registry.Column{
		column.Cell("Status", "Status of the component conditions", healthy(func(c any) string {
			switch {
			case c == nil:
				return "Unknown"
			case column.At(c, "status") == string(corev1.ConditionTrue):
				return "Healthy"
			}
			return "Unhealthy"
		})),
		column.Cell("Message", "Message of the component conditions", member("message")),
		column.Cell("Error", "Error of the component conditions", member("error")),
	}
}
