package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// The groups.
const (
	admissionGroup      = "admissionregistration.k8s.io"
	authenticationGroup = "authentication.k8s.io"
	authorizationGroup  = "authorization.k8s.io"
	coordinationGroup   = "coordination.k8s.io"
	eventsGroup         = "events.k8s.io"
	rbacGroup           = "rbac.authorization.k8s.io"
)

// core are the kinds that are served by default, besides Namespace and CustomResourceDefinition, which package registry has.
func core(o Options) []registry.Type {
	return []registry.Type{
		{Names: names("", "v1", "ConfigMap", "cm"), New: of[corev1.ConfigMap],
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true},
			Columns:  configMapColumns, Default: set(defaultConfigMap), Validate: rules(validateConfigMap)},
		{Names: names("", "v1", "Secret"), New: of[corev1.Secret],
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true},
			Fields:   []string{"type"}, Columns: secretColumns, Default: set(defaultSecret), Validate: rules(validateSecret), Warnings: warnings(warnSecret)},
		{Names: names("", "v1", "ServiceAccount", "sa"), New: of[corev1.ServiceAccount], Columns: accountColumns, Subresources: o.accountParts(), Prepare: prepare(prepareAccount),
			Strategy: registry.Strategy{UnconditionalUpdate: true, NoGeneration: true, ReturnDeleted: true}},
		{Names: names("", "v1", "Event", "ev"), New: of[corev1.Event], ValidName: pathSegment,
			Strategy: registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, Uncached: true, Dependents: registry.NoDependents},
			TTL:      eventTTL, Times: eventTimes, Fields: eventFields, FieldAliases: map[string]string{"source": "source.component|reportingComponent"}, Columns: eventColumns, Validate: rules(validateEvent)},
		{Names: names(eventsGroup, "v1", "Event", "ev"), New: of[eventsv1.Event],
			Strategy: registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true, Uncached: true, Dependents: registry.NoDependents},
			Fields:   newEventFields, FieldAliases: newEventAliases, Columns: newEventColumns, Validate: rules(validateNewEvent),
			ToStored: eventToCore, FromStored: eventFromCore},
		{Names: names(coordinationGroup, "v1", "Lease"), New: of[coordinationv1.Lease],
			Strategy: registry.Strategy{CreateOnUpdate: true, NoGeneration: true},
			Columns:  leaseColumns, Prepare: prepare(prepareLease), Validate: rules(validateLease)},

		{Names: names(rbacGroup, "v1", "Role"), New: of[rbacv1.Role], Awaited: true, MayWrite: o.mayGrant(),
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true},
			ValidName: pathSegment, Columns: roleColumns, Prepare: prepare(prepareRole), Validate: rules(validateRole)},
		{Names: names(rbacGroup, "v1", "RoleBinding"), New: of[rbacv1.RoleBinding], Awaited: true, MayWrite: o.mayGrant(),
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true},
			ValidName: pathSegment, Columns: roleBindingColumns, Default: set(defaultRoleBinding), Validate: rules(validateRoleBinding)},
		{Names: names(rbacGroup, "v1", "ClusterRole"), New: of[rbacv1.ClusterRole], Awaited: true, MayWrite: o.mayGrant(), ClusterScoped: true,
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true},
			ValidName: pathSegment, Columns: roleColumns, Prepare: prepare(prepareClusterRole), Validate: rules(validateClusterRole)},
		{Names: names(rbacGroup, "v1", "ClusterRoleBinding"), New: of[rbacv1.ClusterRoleBinding], Awaited: true, MayWrite: o.mayGrant(), ClusterScoped: true,
			Strategy:  registry.Strategy{UnconditionalUpdate: true, CreateOnUpdate: true, NoGeneration: true},
			ValidName: pathSegment, Columns: clusterRoleBindingColumns, Default: set(defaultClusterRoleBinding), Validate: rules(validateClusterRoleBinding)},

		{Names: inAPIExtensions(names(admissionGroup, "v1", "ValidatingWebhookConfiguration")), New: of[admissionregistrationv1.ValidatingWebhookConfiguration], ClusterScoped: true, Awaited: true,
			Columns: webhooksColumns, Default: set(defaultValidating), Validate: rules(validateValidating)},
		{Names: inAPIExtensions(names(admissionGroup, "v1", "MutatingWebhookConfiguration")), New: of[admissionregistrationv1.MutatingWebhookConfiguration], ClusterScoped: true, Awaited: true,
			Columns: webhooksColumns, Default: set(defaultMutating), Validate: rules(validateMutating)},
		{Names: inAPIExtensions(names(admissionGroup, "v1", "ValidatingAdmissionPolicy")), New: of[admissionregistrationv1.ValidatingAdmissionPolicy], ClusterScoped: true, Awaited: true, Status: true,
			Columns: validatingPolicyColumns, Default: set(defaultValidatingPolicy), Prepare: o.checked(), Validate: o.mayReadParams(parts(validateValidatingPolicy, validateValidatingPolicyStatus))},
		{Names: inAPIExtensions(names(admissionGroup, "v1", "ValidatingAdmissionPolicyBinding")), New: of[admissionregistrationv1.ValidatingAdmissionPolicyBinding], ClusterScoped: true, Awaited: true,
			Columns: policyBindingColumns, Default: set(defaultValidatingPolicyBinding), Validate: o.mayReadParams(rules(validateValidatingPolicyBinding))},
		{Names: inAPIExtensions(names(admissionGroup, "v1", "MutatingAdmissionPolicy")), New: of[admissionregistrationv1.MutatingAdmissionPolicy], ClusterScoped: true, Awaited: true,
			Columns: mutatingPolicyColumns, Default: set(defaultMutatingPolicy), Validate: o.mayReadParams(rules(validateMutatingPolicy))},
		{Names: inAPIExtensions(names(admissionGroup, "v1", "MutatingAdmissionPolicyBinding")), New: of[admissionregistrationv1.MutatingAdmissionPolicyBinding], ClusterScoped: true, Awaited: true,
			Columns: policyBindingColumns, Default: set(defaultMutatingPolicyBinding), Validate: o.mayReadParams(rules(validateMutatingPolicyBinding))},

		{Names: names(authenticationGroup, "v1", "SelfSubjectReview"), New: of[authenticationv1.SelfSubjectReview], ClusterScoped: true, Answer: answer(whoAmI), AnswerMeta: bornNow},
		{Names: names(authenticationGroup, "v1", "TokenReview"), New: of[authenticationv1.TokenReview], ClusterScoped: true, Answer: answer(o.reviewToken)},
		{Names: names(authorizationGroup, "v1", "SelfSubjectAccessReview"), New: of[authorizationv1.SelfSubjectAccessReview], ClusterScoped: true,
			Validate: rules(validateSelfAccessReview), Answer: answer(o.reviewSelfAccess)},
		{Names: names(authorizationGroup, "v1", "SelfSubjectRulesReview"), New: of[authorizationv1.SelfSubjectRulesReview], ClusterScoped: true, Answer: answer(o.reviewRules), AnswerMeta: noMeta},
		{Names: names(authorizationGroup, "v1", "SubjectAccessReview"), New: of[authorizationv1.SubjectAccessReview], ClusterScoped: true,
			Validate: rules(validateAccessReview), Answer: answer(o.reviewAccess)},
		{Names: names(authorizationGroup, "v1", "LocalSubjectAccessReview"), New: of[authorizationv1.LocalSubjectAccessReview],
			Validate: rules(validateLocalAccessReview), Answer: answer(o.reviewLocalAccess)},
	}
}
