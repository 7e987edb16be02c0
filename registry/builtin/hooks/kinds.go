// Package hooks has the configurations of admission: webhooks, and policies with their bindings. It compiles the expressions that they have, and asks
// whether who writes a policy may read its parameters.
package hooks

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
)

const admissionGroup = "admissionregistration.k8s.io"

// Kinds are the lines of the table.
func Kinds(r *registry.Registry, may authorizer.UnconditionalAuthorizer, checkPolicies bool) []registry.Type {
	o := judge{r, may, checkPolicies}
	return []registry.Type{
		{Names: line.InAPIExtensions(line.Names(admissionGroup, "v1", "ValidatingWebhookConfiguration")), New: line.New[admissionregistrationv1.ValidatingWebhookConfiguration], ClusterScoped: true, Strategy: registry.Strategy{Awaited: true},
			Columns: webhooksColumns, Default: line.Set(defaultValidating), Validate: line.Rules(validateValidating)},
		{Names: line.InAPIExtensions(line.Names(admissionGroup, "v1", "MutatingWebhookConfiguration")), New: line.New[admissionregistrationv1.MutatingWebhookConfiguration], ClusterScoped: true, Strategy: registry.Strategy{Awaited: true},
			Columns: webhooksColumns, Default: line.Set(defaultMutating), Validate: line.Rules(validateMutating)},
		{Names: line.InAPIExtensions(line.Names(admissionGroup, "v1", "ValidatingAdmissionPolicy")), New: line.New[admissionregistrationv1.ValidatingAdmissionPolicy], ClusterScoped: true, Strategy: registry.Strategy{Awaited: true}, Status: true,
			Columns: validatingPolicyColumns, Default: line.Set(defaultValidatingPolicy), Prepare: o.checked(), Validate: o.mayReadParams(line.Parts(validateValidatingPolicy, validateValidatingPolicyStatus))},
		{Names: line.InAPIExtensions(line.Names(admissionGroup, "v1", "ValidatingAdmissionPolicyBinding")), New: line.New[admissionregistrationv1.ValidatingAdmissionPolicyBinding], ClusterScoped: true, Strategy: registry.Strategy{Awaited: true},
			Columns: policyBindingColumns, Default: line.Set(defaultValidatingPolicyBinding), Validate: o.mayReadParams(line.Rules(validateValidatingPolicyBinding))},
		{Names: line.InAPIExtensions(line.Names(admissionGroup, "v1", "MutatingAdmissionPolicy")), New: line.New[admissionregistrationv1.MutatingAdmissionPolicy], ClusterScoped: true, Strategy: registry.Strategy{Awaited: true},
			Columns: mutatingPolicyColumns, Default: line.Set(defaultMutatingPolicy), Validate: o.mayReadParams(line.Rules(validateMutatingPolicy))},
		{Names: line.InAPIExtensions(line.Names(admissionGroup, "v1", "MutatingAdmissionPolicyBinding")), New: line.New[admissionregistrationv1.MutatingAdmissionPolicyBinding], ClusterScoped: true, Strategy: registry.Strategy{Awaited: true},
			Columns: policyBindingColumns, Default: line.Set(defaultMutatingPolicyBinding), Validate: o.mayReadParams(line.Rules(validateMutatingPolicyBinding))},
	}
}
