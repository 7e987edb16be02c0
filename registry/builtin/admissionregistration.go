package builtin

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilwebhook "k8s.io/apiserver/pkg/util/webhook"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// What configures admission. Package admission reads it.

// inAPIExtensions puts a kind into the category of what extends the API.
func inAPIExtensions(n registry.Names) registry.Names {
	n.Categories = []string{"api-extensions"}
	return n
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

func validateValidating(c, old *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(webhooksOf(c), webhooksOf(old))
}

func webhooksOf(c *admissionregistrationv1.ValidatingWebhookConfiguration) (all []webhook) {
	if c == nil {
		return nil
	}
	for _, w := range c.Webhooks {
		all = append(all, webhook{
			w.Name, w.ClientConfig, w.SideEffects, w.TimeoutSeconds, w.AdmissionReviewVersions, w.Rules,
			w.FailurePolicy, w.MatchPolicy, nil, w.NamespaceSelector, w.ObjectSelector, w.MatchConditions,
		})
	}
	return all
}

func validateMutating(c, old *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(mutatingOf(c), mutatingOf(old))
}

func mutatingOf(c *admissionregistrationv1.MutatingWebhookConfiguration) (all []webhook) {
	if c == nil {
		return nil
	}
	for _, w := range c.Webhooks {
		all = append(all, webhook{
			w.Name, w.ClientConfig, w.SideEffects, w.TimeoutSeconds, w.AdmissionReviewVersions, w.Rules,
			w.FailurePolicy, w.MatchPolicy, w.ReinvocationPolicy, w.NamespaceSelector, w.ObjectSelector, w.MatchConditions,
		})
	}
	return all
}

// webhook is what both kinds of webhooks have; only mutating ones have a reinvocation policy.
type webhook struct {
	name                string
	client              admissionregistrationv1.WebhookClientConfig
	effects             *admissionregistrationv1.SideEffectClass
	timeout             *int32
	versions            []string
	rules               []admissionregistrationv1.RuleWithOperations
	failure             *admissionregistrationv1.FailurePolicyType
	match               *admissionregistrationv1.MatchPolicyType
	again               *admissionregistrationv1.ReinvocationPolicyType
	namespaces, objects *metav1.LabelSelector
	conditions          []admissionregistrationv1.MatchCondition
}

// validateWebhooks checks the webhooks of a configuration; old are those that it had. What an old one had already doesn't
// become invalid by a rule that is younger than it, as in Kubernetes.
func validateWebhooks(all, old []webhook) (errs field.ErrorList) {
	seen := map[string]bool{}
	lenient := len(old) > 0 && slices.ContainsFunc(old, func(w webhook) bool { return !knownVersion(w.versions) })
	for i, w := range all {
		at := field.NewPath("webhooks").Index(i)
		errs = append(errs, w.validate(at)...)
		if seen[w.name] {
			errs = append(errs, field.Duplicate(at.Child("name"), w.name))
		}
		seen[w.name] = true
		errs = append(errs, validateReviewVersions(w.versions, !lenient, at.Child("admissionReviewVersions"))...)
		for j, r := range w.rules {
			errs = append(errs, validateWebhookRule(r, at.Child("rules").Index(j))...)
		}
		if !slices.ContainsFunc(old, func(o webhook) bool { return slices.Equal(o.conditions, w.conditions) }) {
			errs = append(errs, validateMatchConditions(w.conditions, false, at.Child("matchConditions"))...)
		}
	}
	return errs
}

// validate checks what is no list.
func (w *webhook) validate(at *field.Path) (errs field.ErrorList) {
	errs = append(errs, validation.IsFullyQualifiedName(at.Child("name"), w.name)...)
	errs = append(errs, validateWebhookClient(&w.client, at.Child("clientConfig"))...)
	if w.effects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	} else {
		errs = append(errs, oneOf(at.Child("sideEffects"), *w.effects, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
	}
	if t := w.timeout; t != nil && (*t < 1 || *t > maxWebhookTimeout) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	if w.failure != nil {
		errs = append(errs, oneOf(at.Child("failurePolicy"), *w.failure, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	}
	if w.match != nil {
		errs = append(errs, oneOf(at.Child("matchPolicy"), *w.match, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)...)
	}
	if w.again != nil {
		errs = append(errs, oneOf(at.Child("reinvocationPolicy"), *w.again, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	}
	for _, s := range []struct {
		name     string
		selector *metav1.LabelSelector
	}{{"namespaceSelector", w.namespaces}, {"objectSelector", w.objects}} {
		if s.selector != nil {
			errs = append(errs, metav1validation.ValidateLabelSelector(s.selector, metav1validation.LabelSelectorValidationOptions{}, at.Child(s.name))...)
		}
	}
	return errs
}

// validateWebhookClient leaves addresses to the calls: which of them are allowed may differ from server to server.
func validateWebhookClient(c *admissionregistrationv1.WebhookClientConfig, at *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case c.URL != nil:
		return utilwebhook.ValidateWebhookURL(at.Child("url"), *c.URL, true)
	}
	port := defaultWebhookPort
	if c.Service.Port != nil {
		port = *c.Service.Port
	}
	return utilwebhook.ValidateWebhookService(at.Child("service"), c.Service.Namespace, c.Service.Name, c.Service.Path, port)
}

// validateReviewVersions asks for a version that the server knows only if no older configuration did without.
func validateReviewVersions(versions []string, known bool, at *field.Path) (errs field.ErrorList) {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of v1, v1beta1")}
	}
	seen := map[string]bool{}
	for i, v := range versions {
		if seen[v] {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		seen[v] = true
		for _, problem := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, problem))
		}
	}
	if known && !knownVersion(versions) {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of v1, v1beta1"))
	}
	return errs
}

func knownVersion(versions []string) bool {
	return slices.Contains(versions, "v1") || slices.Contains(versions, "v1beta1")
}

// validateWebhookRule checks which requests a webhook is about.
func validateWebhookRule(r admissionregistrationv1.RuleWithOperations, at *field.Path) (errs field.ErrorList) {
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(at.Child("operations"), r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, op := range r.Operations {
		errs = append(errs, oneOf(at.Child("operations").Index(i), op, admissionregistrationv1.OperationAll, admissionregistrationv1.Create,
			admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect)...)
	}
	if r.Scope != nil {
		errs = append(errs, oneOf(at.Child("scope"), *r.Scope, admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)...)
	}
	return append(errs, validateRule(r, at)...)
}

// validateRule checks what webhooks' rules and policies' have in common.
func validateRule(r admissionregistrationv1.RuleWithOperations, at *field.Path) (errs field.ErrorList) {
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(at.Child("operations"), ""))
	}
	for _, part := range []struct {
		name, what string
		list       []string
	}{{"apiGroups", "API groups", r.APIGroups}, {"apiVersions", "API versions", r.APIVersions}} {
		if len(part.list) == 0 {
			errs = append(errs, field.Required(at.Child(part.name), ""))
		}
		if len(part.list) > 1 && slices.Contains(part.list, "*") {
			errs = append(errs, field.Invalid(at.Child(part.name), part.list, "if '*' is present, must not specify other "+part.what))
		}
	}
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	return append(errs, validateResources(r.Resources, at.Child("resources"))...)
}

// validateResources refuses resources that others in the list include.
func validateResources(list []string, at *field.Path) (errs field.ErrorList) {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	included := map[string]bool{} // r/* by r, and */s by /s
	plain := false
	for i, s := range list {
		resource, sub, cut := strings.Cut(s, "/")
		switch {
		case s == "":
			errs = append(errs, field.Required(at.Index(i), ""))
		case !cut:
			plain = plain || s != "*"
		case included[resource]:
			errs = append(errs, field.Invalid(at.Index(i), s, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, s)))
		case included["/"+sub]:
			errs = append(errs, field.Invalid(at.Index(i), s, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, s)))
		}
		included[resource] = included[resource] || sub == "*"
		included["/"+sub] = included["/"+sub] || cut && resource == "*"
	}
	if len(list) > 1 && slices.Contains(list, "*/*") {
		errs = append(errs, field.Invalid(at, list, "if '*/*' is present, must not specify other resources"))
	}
	if plain && slices.Contains(list, "*") {
		errs = append(errs, field.Invalid(at, list, "if '*' is present, must not specify other resources without subresources"))
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
		cell("ParamRef", "ParamRef indicates the param resource which sets the configuration param", func(o any) any {
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
