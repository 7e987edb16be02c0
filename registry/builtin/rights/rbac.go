package rights

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// mayGrant returns what refuses writes of rules; nil if everybody may do everything.
func (o Options) mayGrant() func(ctx context.Context, obj, old registry.Typed) error {
	if o.Authorizer == nil {
		return nil
	}
	return o.Authorizer.MayGrant
}

func defaultRoleBinding(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

func defaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

// defaultBinding fills in the groups of what a binding names.
func defaultBinding(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	line.OrDefault(&role.APIGroup, rbacGroup)
	for i := range subjects {
		if s := &subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			line.OrDefault(&s.APIGroup, rbacGroup)
		}
	}
}

func validateRole(r, _ *rbacv1.Role) field.ErrorList {
	return validatePolicyRules(r.Rules, ruleOfRole)
}

// A role without rules has none at all. Who sent an empty list owns it.
func prepareRole(r, _ *rbacv1.Role, _ string) { r.Rules = orNil(r.Rules) }

func prepareClusterRole(r, _ *rbacv1.ClusterRole, _ string) { r.Rules = orNil(r.Rules) }

func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

func validateClusterRole(r, old *rbacv1.ClusterRole) field.ErrorList {
	errs := validatePolicyRules(r.Rules, ruleOfClusterRole)
	if r.AggregationRule == nil {
		return errs
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	options := metavalidation.LabelSelectorValidationOptions{}
	if old != nil && old.AggregationRule != nil {
		options.AllowInvalidLabelValueInSelector = slices.ContainsFunc(old.AggregationRule.ClusterRoleSelectors, func(s metav1.LabelSelector) bool {
			return len(metavalidation.ValidateLabelSelector(&s, options, nil)) > 0
		})
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		s := &r.AggregationRule.ClusterRoleSelectors[i]
		errs = append(errs, metavalidation.ValidateLabelSelector(s, options, at.Index(i))...)
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			errs = append(errs, field.Invalid(at.Index(i), nil, "invalid label selector."))
		}
	}
	return errs
}

// ruleOf says to which kind a rule belongs.
type ruleOf string

const (
	ruleOfRole        ruleOf = "Role"
	ruleOfClusterRole ruleOf = "ClusterRole"
)

// validatePolicyRules checks that each rule says what may be done, and to what. Only a ClusterRole's can be about paths.
func validatePolicyRules(all []rbacv1.PolicyRule, kind ruleOf) field.ErrorList {
	c := &rules.Check{}
	for i, r := range all {
		at := field.NewPath("rules").Index(i)
		if len(r.Verbs) == 0 {
			c.Add(field.Required(at.Child("verbs"), "").MarkCoveredByDeclarative())
		}
		if len(r.NonResourceURLs) > 0 {
			c.Refuse(kind == ruleOfRole, at.Child("nonResourceURLs"), r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs")
			c.Refuse(len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0, at.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs")
			continue
		}
		c.Lack(len(r.APIGroups) == 0, at.Child("apiGroups"), "resource rules must supply at least one api group")
		c.Lack(len(r.Resources) == 0, at.Child("resources"), "resource rules must supply at least one resource")
	}
	return c.Errs
}

func validateRoleBinding(b, old *rbacv1.RoleBinding) field.ErrorList {
	errs := validateRoleRef(b.RoleRef, "Role", "ClusterRole")
	for i, s := range b.Subjects {
		errs = append(errs, validateSubject(s, field.NewPath("subjects").Index(i))...)
	}
	if old != nil {
		errs = append(errs, sameRoleRef(b.RoleRef, old.RoleRef)...)
	}
	return errs
}

func validateClusterRoleBinding(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	errs := validateRoleRef(b.RoleRef, "ClusterRole")
	for i, s := range b.Subjects {
		at := field.NewPath("subjects").Index(i)
		errs = append(errs, validateSubject(s, at)...)
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
	}
	if old != nil {
		errs = append(errs, sameRoleRef(b.RoleRef, old.RoleRef)...)
	}
	return errs
}

func sameRoleRef(ref, old rbacv1.RoleRef) field.ErrorList {
	if equality.Semantic.DeepEqual(ref, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), rules.Untagged(ref), validation.FieldImmutableErrorMsg)}
}

func validateRoleRef(ref rbacv1.RoleRef, kinds ...string) (errs field.ErrorList) {
	at := field.NewPath("roleRef")
	if ref.APIGroup != rbacGroup {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacGroup}))
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		return append(errs, field.Required(at.Child("name"), ""))
	}
	for _, problem := range rules.WholeSegment(ref.Name) {
		errs = append(errs, field.Invalid(at.Child("name"), ref.Name, problem))
	}
	return errs
}

func validateSubject(s rbacv1.Subject, at *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "").MarkCoveredByDeclarative())
	}
	group := rbacGroup
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		group = ""
		if s.Name != "" {
			for _, problem := range validation.ValidateServiceAccountName(s.Name, false) {
				errs = append(errs, field.Invalid(at.Child("name"), s.Name, problem))
			}
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
	default:
		return append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	if s.APIGroup != group {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{group}))
	}
	return errs
}

func roleColumns() []registry.Column { return []registry.Column{column.CreatedAt()} }

// The columns of bindings have descriptions of an older version.
func roleBindingColumns() []registry.Column {
	return bindingColumns("roleBinding", rbacv1beta1.RoleBinding{}.SwaggerDoc()["roleRef"])
}

func clusterRoleBindingColumns() []registry.Column {
	return bindingColumns("clusterRoleBinding", rbacv1beta1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"])
}

// bindingColumns are those of a kind of bindings, as its descriptions call it, with that of the role.
func bindingColumns(kind, role string) []registry.Column {
	subjects := func(kind string, name func(s any) string) func(o any) any {
		return func(o any) any {
			return column.Joined(column.At(o, "subjects"), ", ", func(s any) string {
				if column.At(s, "kind") != kind {
					return ""
				}
				return name(s)
			})
		}
	}
	name := func(s any) string { return column.Str(column.At(s, "name")) }
	columns := []registry.Column{
		column.Cell("Role", role, func(o any) any {
			return column.Str(column.At(o, "roleRef.kind")) + "/" + column.Str(column.At(o, "roleRef.name"))
		}),
		column.Age(),
	}
	return append(columns, column.Wide(
		column.Cell("Users", "Users in the "+kind, subjects(rbacv1.UserKind, name)),
		column.Cell("Groups", "Groups in the "+kind, subjects(rbacv1.GroupKind, name)),
		column.Cell("ServiceAccounts", "ServiceAccounts in the "+kind, subjects(rbacv1.ServiceAccountKind, func(s any) string {
			return column.Str(column.At(s, "namespace")) + "/" + column.Str(column.At(s, "name"))
		})),
	)...)
}
