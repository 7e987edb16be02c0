package builtin

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
	errs = append(errs, notNegative(spec.Child("leaseTransitions"), l.Spec.LeaseTransitions)...)
	if h := l.Spec.HolderIdentity; h != nil && *h == "" && l.Spec.PreferredHolder != nil && *l.Spec.PreferredHolder != "" && l.Spec.Strategy == nil {
		errs = append(errs, field.Forbidden(spec.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

func leaseColumns() []column {
	return []column{text("Holder", ".spec.holderIdentity", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]), age()}
}
