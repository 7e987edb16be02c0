package hooks

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilwebhook "k8s.io/apiserver/pkg/util/webhook"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/column"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// What configures admission. Package admission reads it.

func defaultValidating(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, w.ClientConfig.Service, w.Rules)
	}
}

func defaultMutating(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, w.ClientConfig.Service, w.Rules)
		line.OrPointTo(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
}

func defaultWebhook(failure **admissionregistrationv1.FailurePolicyType, match **admissionregistrationv1.MatchPolicyType, namespaces, objects **metav1.LabelSelector, timeout **int32,
	service *admissionregistrationv1.ServiceReference, rules []admissionregistrationv1.RuleWithOperations) {
	line.OrPointTo(failure, admissionregistrationv1.Fail)
	line.OrPointTo(match, admissionregistrationv1.Equivalent)
	line.OrPointTo(namespaces, metav1.LabelSelector{})
	line.OrPointTo(objects, metav1.LabelSelector{})
	line.OrPointTo(timeout, defaultWebhookTimeout)
	if service != nil {
		line.OrPointTo(&service.Port, defaultWebhookPort)
	}
	for i := range rules {
		line.OrPointTo(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

// What the API documentation says of a webhook that leaves it out.
const (
	defaultWebhookTimeout int32 = 10 // seconds
	maxWebhookTimeout     int32 = 30
	defaultWebhookPort    int32 = 443
)

func defaultValidatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	line.OrPointTo(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}

func defaultMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	line.OrPointTo(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
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
	line.OrPointTo(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	line.OrPointTo(&m.NamespaceSelector, metav1.LabelSelector{})
	line.OrPointTo(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			line.OrPointTo(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func validateValidating(c, old *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(AsMutating(c), AsMutating(old))
}

func validateMutating(c, old *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	if old == nil {
		return validateWebhooks(c.Webhooks, nil)
	}
	return validateWebhooks(c.Webhooks, old.Webhooks)
}

// webhook is what both kinds of webhooks have; only mutating ones have a reinvocation policy.
type webhook = admissionregistrationv1.MutatingWebhook

// AsMutating returns the webhooks of a configuration, which may be nil, without a reinvocation policy.
func AsMutating(c *admissionregistrationv1.ValidatingWebhookConfiguration) (all []webhook) {
	if c == nil {
		return nil
	}
	for _, w := range c.Webhooks {
		all = append(all, webhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		})
	}
	return all
}

// validateWebhooks checks the webhooks of a configuration; old are those that it had. What an old one had already doesn't
// become invalid by a rule that is younger than it, as in Kubernetes.
func validateWebhooks(all, old []webhook) field.ErrorList {
	c, names := &check{}, rules.Earlier[string]{}
	had := func(wrong func(w webhook) bool) bool { return slices.ContainsFunc(old, wrong) }
	effects := []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun}
	if had(func(w webhook) bool { return w.SideEffects == nil || !slices.Contains(effects, *w.SideEffects) }) {
		effects = append(effects, admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown)
	}
	olderNames := rules.Earlier[string]{}
	sameNames := had(func(w webhook) bool { return olderNames.Had(w.Name) })
	foreign := had(func(w webhook) bool {
		return len(w.AdmissionReviewVersions) > 0 && !knownVersion(w.AdmissionReviewVersions)
	})
	labels := metav1validation.LabelSelectorValidationOptions{}
	labels.AllowInvalidLabelValueInSelector = had(func(w webhook) bool {
		return slices.ContainsFunc([]*metav1.LabelSelector{w.NamespaceSelector, w.ObjectSelector}, func(s *metav1.LabelSelector) bool {
			return len(metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, nil)) > 0
		})
	})
	sameConditions := slices.EqualFunc(all, old, func(w, o webhook) bool { return slices.Equal(w.MatchConditions, o.MatchConditions) })
	for i, w := range all {
		at := field.NewPath("webhooks").Index(i)
		c.webhook(&w, at, effects, labels)
		if !sameConditions {
			c.conditions(w.MatchConditions, false, at.Child("matchConditions"))
		}
		validateReviewVersions(c, w.AdmissionReviewVersions, !foreign, at.Child("admissionReviewVersions"))
		c.Twice(w.Name != "" && names.Had(w.Name) && !sameNames, at.Child("name"), w.Name)
	}
	return c.Errs
}

// What settings of webhooks and policies may be, in Kubernetes' order, which is the alphabet's.
var (
	failurePolicies = []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}
	matchPolicies   = []admissionregistrationv1.MatchPolicyType{admissionregistrationv1.Equivalent, admissionregistrationv1.Exact}
	reinvocations   = []admissionregistrationv1.ReinvocationPolicyType{admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy}
	operations      = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create,
		admissionregistrationv1.Delete, admissionregistrationv1.Update}
	scopes = []admissionregistrationv1.ScopeType{admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope}
)

// webhook checks what is said of a webhook, but for its conditions and the versions that it takes. effects are those that it may have.
func (c *check) webhook(w *webhook, at *field.Path, effects []admissionregistrationv1.SideEffectClass, labels metav1validation.LabelSelectorValidationOptions) {
	c.Add(validation.IsFullyQualifiedName(at.Child("name"), w.Name)...)
	for i, r := range w.Rules {
		c.rule(r, at.Child("rules").Index(i))
	}
	rules.Among(c, at.Child("failurePolicy"), w.FailurePolicy, failurePolicies...)
	rules.Among(c, at.Child("matchPolicy"), w.MatchPolicy, matchPolicies...)
	c.Lack(w.SideEffects == nil, at.Child("sideEffects"), "must specify one of None, NoneOnDryRun")
	rules.Among(c, at.Child("sideEffects"), w.SideEffects, effects...)
	if t := w.TimeoutSeconds; t != nil && (*t < 1 || *t > maxWebhookTimeout) {
		c.Add(field.Invalid(at.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	c.Add(metav1validation.ValidateLabelSelector(w.NamespaceSelector, labels, at.Child("namespaceSelector"))...)
	c.Add(metav1validation.ValidateLabelSelector(w.ObjectSelector, labels, at.Child("objectSelector"))...)
	rules.Among(c, at.Child("reinvocationPolicy"), w.ReinvocationPolicy, reinvocations...)
	validateWebhookClient(c, &w.ClientConfig, at.Child("clientConfig"))
}

// validateWebhookClient leaves addresses to the calls: which of them are allowed may differ from server to server.
func validateWebhookClient(c *check, to *admissionregistrationv1.WebhookClientConfig, at *field.Path) {
	switch s := to.Service; {
	case (to.URL == nil) == (s == nil):
		c.Add(field.Required(at, "exactly one of url or service is required"))
	case s == nil:
		c.Add(utilwebhook.ValidateWebhookURL(at.Child("url"), *to.URL, true)...)
	default: // Kubernetes takes the name for the namespace, and the namespace for the name
		c.Add(utilwebhook.ValidateWebhookService(at.Child("service"), s.Name, s.Namespace, s.Path, *s.Port)...)
	}
}

// validateReviewVersions asks for a version that the server knows only if no older configuration did without.
func validateReviewVersions(c *check, versions []string, known bool, at *field.Path) {
	if len(versions) == 0 {
		c.Add(field.Required(at, "must specify one of v1, v1beta1"))
		return
	}
	seen := rules.Earlier[string]{}
	for i, v := range versions {
		if seen.Had(v) {
			c.Add(field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		c.Texts(at.Index(i), v, validation.IsDNS1035Label(v))
	}
	c.Refuse(known && !knownVersion(versions), at, versions, "must include at least one of v1, v1beta1")
}

func knownVersion(versions []string) bool {
	return slices.Contains(versions, "v1") || slices.Contains(versions, "v1beta1")
}

// check collects what is wrong with webhooks and policies.
type check struct{ rules.Check }

// rule checks which requests a webhook or a policy is about.
func (c *check) rule(r admissionregistrationv1.RuleWithOperations, at *field.Path) {
	c.Lack(len(r.Operations) == 0, at.Child("operations"), "")
	c.Refuse(len(r.Operations) > 1 && slices.Contains(r.Operations, admissionregistrationv1.OperationAll), at.Child("operations"), r.Operations, "if '*' is present, must not specify other operations")
	for i := range r.Operations {
		rules.Among(c, at.Child("operations").Index(i), &r.Operations[i], operations...)
	}
	for _, part := range []struct {
		name, what string
		list       []string
	}{{"apiGroups", "API groups", r.APIGroups}, {"apiVersions", "API versions", r.APIVersions}} {
		c.Lack(len(part.list) == 0, at.Child(part.name), "")
		c.Refuse(len(part.list) > 1 && slices.Contains(part.list, "*"), at.Child(part.name), part.list, "if '*' is present, must not specify other "+part.what)
	}
	for i, v := range r.APIVersions {
		c.Required(at.Child("apiVersions").Index(i), v)
	}
	c.resources(r.Resources, at.Child("resources"))
	rules.Among(c, at.Child("scope"), r.Scope, scopes...)
}

// resources refuses resources that others in the list include.
func (c *check) resources(list []string, at *field.Path) {
	c.Lack(len(list) == 0, at, "")
	included := map[string]bool{} // r/* by r, and */s by /s
	plain := false                // whether the last without a subresource is a name, as in Kubernetes
	for i, s := range list {
		if !c.Required(at.Index(i), s) {
			continue
		}
		resource, sub, cut := strings.Cut(s, "/")
		if !cut {
			plain = s != "*"
			continue
		}
		if included[resource] {
			c.Add(field.Invalid(at.Index(i), s, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, s)))
		}
		if included["/"+sub] {
			c.Add(field.Invalid(at.Index(i), s, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, s)))
		}
		included[resource] = included[resource] || sub == "*"
		included["/"+sub] = included["/"+sub] || resource == "*"
	}
	c.Refuse(len(list) > 1 && slices.Contains(list, "*/*"), at, list, "if '*/*' is present, must not specify other resources")
	c.Refuse(plain && slices.Contains(list, "*"), at, list, "if '*' is present, must not specify other resources without subresources")
}

func webhooksColumns() []registry.Column {
	return []registry.Column{column.Count("Webhooks", "webhooks", "Webhooks indicates the number of webhooks registered in this configuration"), column.Age()}
}

func paramKind(o any) any {
	kind := column.At(o, "spec.paramKind")
	if kind == nil {
		return column.Unset
	}
	return column.Str(column.At(kind, "apiVersion")) + "/" + column.Str(column.At(kind, "kind"))
}

func validatingPolicyColumns() []registry.Column {
	return []registry.Column{
		column.Count("Validations", "spec.validations", "Validations indicates the number of validation rules defined in this configuration"),
		column.Cell("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", paramKind),
		column.Age(),
	}
}

func mutatingPolicyColumns() []registry.Column {
	return []registry.Column{
		column.Count("Mutations", "spec.mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
		column.Cell("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", paramKind),
		column.Age(),
	}
}

func policyBindingColumns() []registry.Column {
	return []registry.Column{
		column.Text("PolicyName", "spec.policyName", "PolicyName indicates the policy definition which the policy binding binded to"),
		column.Cell("ParamRef", "ParamRef indicates the param resource which sets the configuration param", func(o any) any {
			ref := column.At(o, "spec.paramRef")
			switch namespace, name := column.Str(column.At(ref, "namespace")), column.Str(column.At(ref, "name")); {
			case ref == nil:
				return column.Unset
			case name == "":
				var selector metav1.LabelSelector
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(column.AsMap(column.At(ref, "selector")), &selector); err != nil {
					return ""
				}
				return selector.String()
			case namespace != "":
				return namespace + "/" + name
			default:
				return "*/" + name
			}
		}),
		column.Age(),
	}
}
