// Package rights has ServiceAccounts, the roles and bindings of RBAC, and the answers to reviews of rights and tokens.
package rights

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

const (
	rbacGroup           = "rbac.authorization.k8s.io"
	authenticationGroup = "authentication.k8s.io"
	authorizationGroup  = "authorization.k8s.io"
)

// Kinds are the lines of the table.
func Kinds(o Options) []registry.Type {
	return []registry.Type{
		{Names: line.Names("", "v1", "ServiceAccount", "sa"), New: line.New[corev1.ServiceAccount], Columns: accountColumns, Parts: registry.Parts{Own: o.accountParts()}, Prepare: line.Prepare(prepareAccount), Warnings: line.Warnings(warnAccount),
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true}},
		{Names: line.Names(rbacGroup, "v1", "Role"), New: line.New[rbacv1.Role], Guard: registry.Guard{MayWrite: o.mayGrant()},
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, Awaited: true},
			ValidName: rules.PathSegment, Columns: column.Created, Prepare: line.Prepare(prepareRole), Validate: line.Rules(validateRole)},
		{Names: line.Names(rbacGroup, "v1", "RoleBinding"), New: line.New[rbacv1.RoleBinding], Guard: registry.Guard{MayWrite: o.mayGrant()},
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, Awaited: true},
			ValidName: rules.PathSegment, Columns: roleBindingColumns, Default: line.Set(defaultRoleBinding), Validate: line.Rules(validateRoleBinding)},
		{Names: line.Names(rbacGroup, "v1", "ClusterRole"), New: line.New[rbacv1.ClusterRole], Guard: registry.Guard{MayWrite: o.mayGrant()}, ClusterScoped: true,
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, Awaited: true},
			ValidName: rules.PathSegment, Columns: column.Created, Prepare: line.Prepare(prepareClusterRole), Validate: line.Rules(validateClusterRole)},
		{Names: line.Names(rbacGroup, "v1", "ClusterRoleBinding"), New: line.New[rbacv1.ClusterRoleBinding], Guard: registry.Guard{MayWrite: o.mayGrant()}, ClusterScoped: true,
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, Awaited: true},
			ValidName: rules.PathSegment, Columns: clusterRoleBindingColumns, Default: line.Set(defaultClusterRoleBinding), Validate: line.Rules(validateClusterRoleBinding)},
		{Names: line.Names(authenticationGroup, "v1", "SelfSubjectReview"), New: line.New[authenticationv1.SelfSubjectReview], ClusterScoped: true, Unstored: registry.Unstored{Answer: line.Answer(whoAmI), AnswerMeta: o.bornNow}},
		{Names: line.Names(authenticationGroup, "v1", "TokenReview"), New: line.New[authenticationv1.TokenReview], ClusterScoped: true, Unstored: registry.Unstored{Answer: line.Answer(o.reviewToken)}},
		{Names: line.Names(authorizationGroup, "v1", "SelfSubjectAccessReview"), New: line.New[authorizationv1.SelfSubjectAccessReview], ClusterScoped: true,
			Validate: line.Rules(validateSelfAccessReview), Unstored: registry.Unstored{Answer: line.Answer(o.reviewSelfAccess)}},
		{Names: line.Names(authorizationGroup, "v1", "SelfSubjectRulesReview"), New: line.New[authorizationv1.SelfSubjectRulesReview], ClusterScoped: true, Unstored: registry.Unstored{Answer: line.Answer(o.reviewRules), AnswerMeta: noMeta}},
		{Names: line.Names(authorizationGroup, "v1", "SubjectAccessReview"), New: line.New[authorizationv1.SubjectAccessReview], ClusterScoped: true,
			Validate: line.Rules(validateAccessReview), Unstored: registry.Unstored{Answer: line.Answer(o.reviewAccess)}},
		{Names: line.Names(authorizationGroup, "v1", "LocalSubjectAccessReview"), New: line.New[authorizationv1.LocalSubjectAccessReview],
			Validate: line.Rules(validateLocalAccessReview), Unstored: registry.Unstored{Answer: line.Answer(o.reviewLocalAccess)}},
	}
}

// defaultTokenLife is how long a token is valid that says nothing of that, in seconds.
const defaultTokenLife int64 = 3600

// prepareAccount leaves of the Secrets that a ServiceAccount lists their names.
func prepareAccount(a, _ *corev1.ServiceAccount, _ string) {
	for i, secret := range a.Secrets {
		a.Secrets[i] = corev1.ObjectReference{Name: secret.Name}
	}
}

func accountColumns() []registry.Column { return []registry.Column{column.Age()} }

// accountParts are what can be asked of a ServiceAccount.
func (o Options) accountParts() []registry.Subresource {
	return []registry.Subresource{{
		Name: "token", Verbs: []string{"create"}, Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		New: func() registry.Typed { return &authenticationv1.TokenRequest{} },
		Default: func(obj registry.Typed) {
			if spec := &obj.(*authenticationv1.TokenRequest).Spec; spec.ExpirationSeconds == nil {
				spec.ExpirationSeconds = new(defaultTokenLife)
			}
		},
		Prepare: o.PrepareToken, Act: o.IssueToken, AnswersSent: true,
	}}
}

// mountableOnly says that the pods of an account mount no Secrets but those that it lists.
const mountableOnly = "kubernetes.io/enforce-mountable-secrets"

func warnAccount(a, old *corev1.ServiceAccount) []string {
	_, is := a.Annotations[mountableOnly]
	if old != nil {
		_, was := old.Annotations[mountableOnly]
		is = is && !was
	}
	if !is {
		return nil
	}
	return []string{"metadata.annotations[" + mountableOnly + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}
