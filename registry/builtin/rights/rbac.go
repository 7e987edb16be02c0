package rights

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
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

// defaultRoleBinding fills in the groups of what a binding names.
func defaultRoleBinding(b *rbacv1.RoleBinding) {
	line.OrDefault(&b.RoleRef.APIGroup, rbacGroup)
	for i := range b.Subjects {
		if s := &b.Subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			line.OrDefault(&s.APIGroup, rbacGroup)
		}
	}
}

func defaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) {
	defaultRoleBinding((*rbacv1.RoleBinding)(b))
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
	return validateBinding(b, old, "Role", "ClusterRole")
}

func validateClusterRoleBinding(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	return validateBinding((*rbacv1.RoleBinding)(b), (*rbacv1.RoleBinding)(old), "ClusterRole")
}

// validateBinding checks a binding of a role of one of the kinds: of a Role in its own namespace, where that of a ServiceAccount needn't be said.
func validateBinding(b, old *rbacv1.RoleBinding, kinds ...string) field.ErrorList {
	c, ref := &rules.Check{}, field.NewPath("roleRef")
	rules.Among(c, ref.Child("apiGroup"), &b.RoleRef.APIGroup, rbacGroup)
	rules.Among(c, ref.Child("kind"), &b.RoleRef.Kind, kinds...)
	c.Needs(ref.Child("name"), b.RoleRef.Name, rules.WholeSegment)
	for i, s := range b.Subjects {
		at := field.NewPath("subjects").Index(i)
		validateSubject(c, s, at)
		c.Lack(s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "" && !slices.Contains(kinds, "Role"), at.Child("namespace"), "")
	}
	if old != nil && !equality.Semantic.DeepEqual(b.RoleRef, old.RoleRef) {
		c.Add(field.Invalid(ref, rules.Untagged(b.RoleRef), validation.FieldImmutableErrorMsg))
	}
	return c.Errs
}

func validateSubject(c *rules.Check, s rbacv1.Subject, at *field.Path) {
	if s.Name == "" {
		c.Add(field.Required(at.Child("name"), "").MarkCoveredByDeclarative())
	}
	group := rbacGroup
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		group = ""
		if s.Name != "" {
			c.Texts(at.Child("name"), s.Name, validation.ValidateServiceAccountName(s.Name, false))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
	default:
		c.Add(field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
		return
	}
	rules.Among(c, at.Child("apiGroup"), &s.APIGroup, group)
}

func roleBindingColumns() []registry.Column {
	return bindingColumns("roleBinding", rbacv1.RoleBinding{}.SwaggerDoc()["roleRef"])
}

func clusterRoleBindingColumns() []registry.Column {
	return bindingColumns("clusterRoleBinding", rbacv1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"])
}

// bindingColumns are those of a kind of bindings, as its descriptions call it, with that of the role.
// bindingColumns are those of bindings of a kind. role describes the member roleRef in v1; the column is described as in earlier versions, in which
// the member could change.
func bindingColumns(kind, role string) []registry.Column {
	role = strings.TrimSuffix(role, " This field is immutable.")
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
