package builtin

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// What configures admission. It's stored and shown, and nothing is asked yet.

// inAPIExtensions puts a kind into the category of what extends the API.
func inAPIExtensions(n registry.Names) registry.Names {
	n.Categories = []string{"api-extensions"}
	return n
}

// notEnforced warns whoever writes a configuration that it has no effect.
func notEnforced(_ context.Context, obj, _ registry.Typed, _ string) []string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.")
	return []string{"this server stores a " + name + " and doesn't enforce it yet: requests pass as if it weren't there"}
}

func defaultValidating(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		orPointTo(&w.FailurePolicy, admissionregistrationv1.Fail)
		orPointTo(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		orPointTo(&w.NamespaceSelector, metav1.LabelSelector{})
		orPointTo(&w.ObjectSelector, metav1.LabelSelector{})
		orPointTo(&w.TimeoutSeconds, defaultWebhookTimeout)
		defaultService(w.ClientConfig.Service)
		defaultScopes(w.Rules)
	}
}

func defaultMutating(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		orPointTo(&w.FailurePolicy, admissionregistrationv1.Fail)
		orPointTo(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		orPointTo(&w.NamespaceSelector, metav1.LabelSelector{})
		orPointTo(&w.ObjectSelector, metav1.LabelSelector{})
		orPointTo(&w.TimeoutSeconds, defaultWebhookTimeout)
		orPointTo(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		defaultService(w.ClientConfig.Service)
		defaultScopes(w.Rules)
	}
}

// What the API documentation says of a webhook that leaves it out.
const (
	defaultWebhookTimeout int32 = 10 // seconds
	maxWebhookTimeout     int32 = 30
	defaultWebhookPort    int32 = 443
)

func defaultService(s *admissionregistrationv1.ServiceReference) {
	if s != nil {
		orPointTo(&s.Port, defaultWebhookPort)
	}
}

func defaultScopes(rules []admissionregistrationv1.RuleWithOperations) {
	for i := range rules {
		orPointTo(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

func defaultValidatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	orPointTo(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}

func defaultMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	orPointTo(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	orDefault(&p.Spec.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	defaultMatch(p.Spec.MatchConstraints)
}

func defaultValidatingPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

func defaultMutatingPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

func defaultMatch(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	orPointTo(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	orPointTo(&m.NamespaceSelector, metav1.LabelSelector{})
	orPointTo(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			orPointTo(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func validateValidating(c, _ *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	all := make([]webhook, 0, len(c.Webhooks))
	for _, w := range c.Webhooks {
		all = append(all, webhook{w.Name, w.ClientConfig, w.SideEffects, w.TimeoutSeconds, w.AdmissionReviewVersions, w.Rules})
	}
	return validateWebhooks(all)
}

func validateMutating(c, _ *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	all := make([]webhook, 0, len(c.Webhooks))
	for _, w := range c.Webhooks {
		all = append(all, webhook{w.Name, w.ClientConfig, w.SideEffects, w.TimeoutSeconds, w.AdmissionReviewVersions, w.Rules})
	}
	return validateWebhooks(all)
}

// webhook is what both kinds of webhooks have.
type webhook struct {
	name     string
	client   admissionregistrationv1.WebhookClientConfig
	effects  *admissionregistrationv1.SideEffectClass
	timeout  *int32
	versions []string
	rules    []admissionregistrationv1.RuleWithOperations
}

func validateWebhooks(all []webhook) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, w := range all {
		at := field.NewPath("webhooks").Index(i)
		errs = append(errs, validation.IsFullyQualifiedName(at.Child("name"), w.name)...)
		if seen[w.name] {
			errs = append(errs, field.Duplicate(at.Child("name"), w.name))
		}
		seen[w.name] = true
		if (w.client.URL == nil) == (w.client.Service == nil) {
			errs = append(errs, field.Required(at.Child("clientConfig"), "exactly one of url or service is required"))
		}
		if len(w.versions) == 0 {
			errs = append(errs, field.Required(at.Child("admissionReviewVersions"), "must specify one of v1, v1beta1"))
		}
		if w.effects == nil {
			errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
		} else {
			errs = append(errs, oneOf(at.Child("sideEffects"), *w.effects, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
		}
		if t := w.timeout; t != nil && (*t < 1 || *t > maxWebhookTimeout) {
			errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
		}
		for j, r := range w.rules {
			errs = append(errs, validateRule(r, at.Child("rules").Index(j))...)
		}
	}
	return errs
}

func validateRule(r admissionregistrationv1.RuleWithOperations, at *field.Path) (errs field.ErrorList) {
	for _, part := range []struct {
		name string
		size int
	}{{"operations", len(r.Operations)}, {"apiGroups", len(r.APIGroups)}, {"apiVersions", len(r.APIVersions)}, {"resources", len(r.Resources)}} {
		if part.size == 0 {
			errs = append(errs, field.Required(at.Child(part.name), ""))
		}
	}
	return errs
}

// count shows how many items a list has.
func count(name, path, description string) column {
	return column{Name: name, Type: "integer", Description: description, Cell: func(o any) any { return int64(len(asList(at(o, path)))) }}
}

func webhooksColumns() []column {
	return []column{count("Webhooks", "webhooks", "Webhooks indicates the number of webhooks registered in this configuration"), age()}
}

const unset = "<unset>"

func paramKind(o any) any {
	kind := at(o, "spec.paramKind")
	if kind == nil {
		return unset
	}
	return str(at(kind, "apiVersion")) + "/" + str(at(kind, "kind"))
}

func validatingPolicyColumns() []column {
	return []column{
		count("Validations", "spec.validations", "Validations indicates the number of validation rules defined in this configuration"),
		cell("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", paramKind),
		age(),
	}
}

func mutatingPolicyColumns() []column {
	return []column{
		count("Mutations", "spec.mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
		cell("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", paramKind),
		age(),
	}
}

func policyBindingColumns() []column {
	return []column{
		text("PolicyName", "spec.policyName", "PolicyName indicates the policy definition which the policy binding binded to"),
		cell("ParamRef", "ParamRef indicates the param resource which sets the configration param", func(o any) any {
			ref := at(o, "spec.paramRef")
			switch namespace, name := str(at(ref, "namespace")), str(at(ref, "name")); {
			case ref == nil:
				return unset
			case name == "":
				return str(at(ref, "selector"))
			case namespace != "":
				return namespace + "/" + name
			default:
				return "*/" + name
			}
		}),
		age(),
	}
}
