package builtin

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/expression"
)

// The rules of admission policies and their bindings. A policy whose expressions don't compile is refused. What its
// expressions get wrong about the objects that it matches is in its status, in the answer to the write.

// Kubernetes' bounds.
const (
	maxMatchConditions      = 64
	maxAuditAnnotations     = 20
	maxAnnotationExpression = 5 << 10 // bytes
	maxTypesToCheck         = 10      // of one rule
)

func validateValidatingPolicy(p, _ *admissionregistrationv1.ValidatingAdmissionPolicy) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &p.Spec
	errs = validatePolicy(policy{spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints, spec.MatchConditions}, at)
	set, more := compileVariables(spec.Variables, spec.ParamKind, at.Child("variables"))
	errs = append(errs, more...)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		for _, name := range []string{"validations", "auditAnnotations"} {
			errs = append(errs, field.Required(at.Child(name), "validations or auditAnnotations must contain at least one item"))
		}
	}
	for i, v := range spec.Validations {
		errs = append(errs, validateValidation(set, v, at.Child("validations").Index(i))...)
	}
	if n := len(spec.AuditAnnotations); n > maxAuditAnnotations {
		errs = append(errs, field.Invalid(at.Child("auditAnnotations"), n, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	keys := map[string]bool{}
	for i, a := range spec.AuditAnnotations {
		at := at.Child("auditAnnotations").Index(i)
		errs = append(errs, validateAuditAnnotation(set, p.Name, a, at)...)
		if keys[a.Key] {
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		keys[a.Key] = true
	}
	return errs
}

func validateMutatingPolicy(p, _ *admissionregistrationv1.MutatingAdmissionPolicy) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &p.Spec
	errs = validatePolicy(policy{spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints, spec.MatchConditions}, at)
	if spec.MatchConstraints != nil {
		for i, r := range spec.MatchConstraints.ResourceRules {
			for j, op := range r.Operations {
				errs = append(errs, oneOf(at.Child("matchConstraints", "resourceRules").Index(i).Child("operations").Index(j), op,
					admissionregistrationv1.OperationAll, admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Connect)...)
			}
		}
	}
	if again := at.Child("reinvocationPolicy"); spec.ReinvocationPolicy == "" {
		errs = append(errs, field.Required(again, ""))
	} else {
		errs = append(errs, oneOf(again, spec.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)...)
	}
	set, more := compileVariables(spec.Variables, spec.ParamKind, at.Child("variables"))
	errs = append(errs, more...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	for i, m := range spec.Mutations {
		errs = append(errs, validateMutation(set, m, at.Child("mutations").Index(i))...)
	}
	return errs
}

// policy is what policies of both kinds have.
type policy struct {
	failure    *admissionregistrationv1.FailurePolicyType
	params     *admissionregistrationv1.ParamKind
	match      *admissionregistrationv1.MatchResources
	conditions []admissionregistrationv1.MatchCondition
}

func validatePolicy(p policy, at *field.Path) (errs field.ErrorList) {
	if p.failure != nil {
		errs = append(errs, oneOf(at.Child("failurePolicy"), *p.failure, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	}
	if p.params != nil {
		errs = append(errs, validateParamKind(*p.params, at.Child("paramKind"))...)
	}
	if p.match == nil {
		errs = append(errs, field.Required(at.Child("matchConstraints"), ""))
	} else {
		errs = append(errs, validateMatch(p.match, at.Child("matchConstraints"))...)
		if len(p.match.ResourceRules) == 0 {
			errs = append(errs, field.Required(at.Child("matchConstraints", "resourceRules"), ""))
		}
	}
	return append(errs, validateMatchConditions(p.conditions, p.params != nil, at.Child("matchConditions"))...)
}

func validateParamKind(k admissionregistrationv1.ParamKind, at *field.Path) (errs field.ErrorList) {
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	switch {
	case k.APIVersion == "":
		errs = append(errs, field.Required(at.Child("apiVersion"), ""))
	case err != nil:
		errs = append(errs, field.Invalid(at.Child("apiVersion"), k.APIVersion, err.Error()))
	default:
		texts := validation.IsDNS1035Label(gv.Version)
		if gv.Group != "" {
			texts = append(texts, validation.IsDNS1123Subdomain(gv.Group)...)
		}
		if len(texts) > 0 {
			errs = append(errs, field.Invalid(at.Child("apiVersion"), k.APIVersion, strings.Join(texts, ",")))
		}
	}
	if k.Kind == "" {
		errs = append(errs, field.Required(at.Child("kind"), ""))
	} else if texts := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(texts) > 0 {
		errs = append(errs, field.Invalid(at.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(texts, ",")))
	}
	return errs
}

func validateMatch(m *admissionregistrationv1.MatchResources, at *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	if m.MatchPolicy != nil {
		errs = append(errs, oneOf(at.Child("matchPolicy"), *m.MatchPolicy, admissionregistrationv1.Exact, admissionregistrationv1.Equivalent)...)
	}
	errs = append(errs, validateSelector(m.NamespaceSelector, at.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(m.ObjectSelector, at.Child("objectSelector"))...)
	for i, r := range m.ResourceRules {
		errs = append(errs, validateNamedRule(r, at.Child("resourceRules").Index(i))...)
	}
	for i, r := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(r, at.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

func validateNamedRule(r admissionregistrationv1.NamedRuleWithOperations, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, name := range r.ResourceNames {
		for _, text := range wholeSegment(name) {
			errs = append(errs, field.Invalid(at.Child("resourceNames").Index(i), name, text))
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("resourceNames").Index(i), name))
		}
		seen[name] = true
	}
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
	return append(errs, validateRule(r.RuleWithOperations, at)...)
}

// validateMatchConditions checks the conditions of a policy or a webhook. params tells whether they may name params.
func validateMatchConditions(conditions []admissionregistrationv1.MatchCondition, params bool, at *field.Path) (errs field.ErrorList) {
	if n := len(conditions); n > maxMatchConditions {
		return field.ErrorList{field.TooMany(at, n, maxMatchConditions)}
	}
	set, seen := expression.New(params), map[string]bool{}
	for i, c := range conditions {
		at := at.Index(i)
		errs = append(errs, compiles(set, strings.TrimSpace(c.Expression), expression.Condition, at.Child("expression"))...)
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		for _, text := range validation.IsQualifiedName(c.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name, text))
		}
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
	}
	return errs
}

// compiles checks an expression that must be there.
func compiles(set *expression.Set, text string, use expression.Use, at *field.Path) field.ErrorList {
	if strings.TrimSpace(text) == "" {
		return field.ErrorList{field.Required(at, "expression is not specified")}
	}
	if _, err := set.Compile(text, use); err != nil {
		return field.ErrorList{field.Invalid(at, text, err.Error())}
	}
	return nil
}

// identifier is a name in CEL, if it isn't one of the words.
var identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

var celWords = []string{
	"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
	"loop", "package", "namespace", "return", "var", "void", "while",
}

// compileVariables returns the set of a policy's expressions, with its variables.
func compileVariables(variables []admissionregistrationv1.Variable, params *admissionregistrationv1.ParamKind, at *field.Path) (set *expression.Set, errs field.ErrorList) {
	set = expression.New(params != nil)
	for i, v := range variables {
		at := at.Index(i)
		switch {
		case strings.TrimSpace(v.Name) == "":
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		case !identifier.MatchString(v.Name) || slices.Contains(celWords, v.Name):
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, "name is not a valid CEL identifier"))
		}
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
		} else if err := set.Define(v.Name, v.Expression); err != nil {
			errs = append(errs, field.Invalid(at.Child("expression"), v.Expression, err.Error()))
		}
	}
	return set, errs
}

func validateValidation(set *expression.Set, v admissionregistrationv1.Validation, at *field.Path) (errs field.ErrorList) {
	errs = compiles(set, v.Expression, expression.Condition, at.Child("expression"))
	switch message := strings.TrimSpace(v.Message); {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must be non-empty if specified"))
	case strings.ContainsAny(message, "\n\r"):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "message must not contain line breaks"))
	}
	if v.MessageExpression != "" {
		if strings.TrimSpace(v.MessageExpression) == "" {
			errs = append(errs, field.Invalid(at.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
		} else {
			errs = append(errs, compiles(set, v.MessageExpression, expression.Message, at.Child("messageExpression"))...)
		}
	}
	if v.Reason != nil {
		errs = append(errs, oneOf(at.Child("reason"), *v.Reason,
			metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)...)
	}
	return errs
}

func validateAuditAnnotation(set *expression.Set, name string, a admissionregistrationv1.AuditAnnotation, at *field.Path) (errs field.ErrorList) {
	for _, text := range validation.IsQualifiedName(name + "/" + a.Key) {
		errs = append(errs, field.Invalid(at.Child("key"), a.Key, text))
	}
	if len(strings.TrimSpace(a.ValueExpression)) > maxAnnotationExpression {
		return append(errs, field.TooLong(at.Child("valueExpression"), "", maxAnnotationExpression))
	}
	return append(errs, compiles(set, a.ValueExpression, expression.Annotation, at.Child("valueExpression"))...)
}

func validateMutation(set *expression.Set, m admissionregistrationv1.Mutation, at *field.Path) (errs field.ErrorList) {
	errs = oneOf(at.Child("patchType"), m.PatchType, admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)
	applied, patched := at.Child("applyConfiguration"), at.Child("jsonPatch")
	for _, part := range []struct {
		at     *field.Path
		given  bool
		wanted admissionregistrationv1.PatchType
	}{
		{applied, m.ApplyConfiguration != nil, admissionregistrationv1.PatchTypeApplyConfiguration},
		{patched, m.JSONPatch != nil, admissionregistrationv1.PatchTypeJSONPatch},
	} {
		switch {
		case m.PatchType == part.wanted && !part.given:
			errs = append(errs, field.Required(part.at, fmt.Sprintf("must be specified when patchType is %s", part.wanted)))
		case m.PatchType != part.wanted && part.given:
			errs = append(errs, field.Forbidden(part.at, fmt.Sprintf("may only be specified when patchType is %s", part.wanted)))
		}
	}
	if m.ApplyConfiguration != nil {
		errs = append(errs, compiles(set, m.ApplyConfiguration.Expression, expression.ApplyConfiguration, applied.Child("expression"))...)
	}
	if m.JSONPatch != nil {
		errs = append(errs, compiles(set, m.JSONPatch.Expression, expression.JSONPatch, patched.Child("expression"))...)
	}
	return errs
}

func validateValidatingPolicyBinding(b, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
	return append(errs, validateActions(b.Spec.ValidationActions, spec.Child("validationActions"))...)
}

func validateMutatingPolicyBinding(b, _ *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	return validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
}

func validateBinding(policy string, params *admissionregistrationv1.ParamRef, match *admissionregistrationv1.MatchResources) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if policy == "" {
		errs = append(errs, field.Required(spec.Child("policyName"), ""))
	} else {
		for _, text := range validation.IsDNS1123Subdomain(policy) {
			errs = append(errs, field.Invalid(spec.Child("policyName"), policy, text))
		}
	}
	errs = append(errs, validateParamRef(params, spec.Child("paramRef"))...)
	return append(errs, validateMatch(match, spec.Child("matchResources"))...)
}

func validateActions(actions []admissionregistrationv1.ValidationAction, at *field.Path) (errs field.ErrorList) {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(at, "at least one validation action is required")}
	}
	seen := map[admissionregistrationv1.ValidationAction]bool{}
	for i, a := range actions {
		errs = append(errs, oneOf(at.Index(i), a, admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn)...)
		if seen[a] {
			errs = append(errs, field.Duplicate(at.Index(i), a))
		}
		seen[a] = true
	}
	if seen[admissionregistrationv1.Deny] && seen[admissionregistrationv1.Warn] {
		errs = append(errs, field.Invalid(at, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}

func validateParamRef(r *admissionregistrationv1.ParamRef, at *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	switch {
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	case r.Name != "" && r.Selector != nil:
		for _, name := range []string{"name", "selector"} {
			errs = append(errs, field.Forbidden(at.Child(name), "name and selector are mutually exclusive"))
		}
	}
	for _, text := range wholeSegment(r.Name) {
		errs = append(errs, field.Invalid(at.Child("name"), r.Name, text))
	}
	errs = append(errs, validateSelector(r.Selector, at.Child("selector"))...)
	if r.ParameterNotFoundAction == nil {
		return append(errs, field.Required(at.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, oneOf(at.Child("parameterNotFoundAction"), *r.ParameterNotFoundAction, admissionregistrationv1.AllowAction, admissionregistrationv1.DenyAction)...)
}

// checked returns the Prepare of policies: what is wrong with the expressions for the objects that a rule names goes into
// the status of a new or changed policy. In Kubernetes a controller does that later.
func checked(r *registry.Registry) func(p, old *admissionregistrationv1.ValidatingAdmissionPolicy, subresource string) {
	return func(p, old *admissionregistrationv1.ValidatingAdmissionPolicy, subresource string) {
		if r == nil || subresource != "" || old != nil && equality.Semantic.DeepEqual(p.Spec, old.Spec) {
			return
		}
		p.Status.ObservedGeneration = 1
		if old != nil {
			p.Status.ObservedGeneration = old.Generation + 1 // a changed spec is a new generation
		}
		p.Status.TypeChecking = &admissionregistrationv1.TypeChecking{ExpressionWarnings: typeWarnings(r.Catalog(), &p.Spec)}
	}
}

// typeWarnings says what is wrong with each expression, for each kind of objects.
func typeWarnings(c *registry.Catalog, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) (warnings []admissionregistrationv1.ExpressionWarning) {
	var params *expression.Schema
	if k := spec.ParamKind; k != nil {
		params = &expression.Schema{}
		if e := c.Kind(k.APIVersion, k.Kind); e != nil {
			*params = schemaOf(e)
		}
	}
	kinds := kindsToCheck(c, spec.MatchConstraints)
	var schemas []expression.Schema
	for _, e := range kinds {
		schemas = append(schemas, schemaOf(e))
	}
	sets := expression.NewChecks(schemas, params)
	for _, set := range sets {
		for _, v := range spec.Variables {
			_ = set.Define(v.Name, v.Expression) // what uses it says so
		}
	}
	type asked struct {
		text string
		use  expression.Use
	}
	said := map[asked]string{} // an expression may be there many times
	check := func(text string, use expression.Use, at *field.Path) {
		warning, known := said[asked{text, use}]
		if !known {
			var found []string
			for i, e := range kinds {
				if _, err := sets[i].Compile(text, use); err != nil {
					gvk := schema.GroupVersionKind{Group: e.Group, Version: e.Version, Kind: e.Kind}
					found = append(found, fmt.Sprintf("%v: %s\n", gvk, err))
				}
			}
			warning = strings.Join(found, "\n")
			said[asked{text, use}] = warning
		}
		if warning != "" {
			warnings = append(warnings, admissionregistrationv1.ExpressionWarning{FieldRef: at.String(), Warning: warning})
		}
	}
	for i, v := range spec.Validations {
		at := field.NewPath("spec", "validations").Index(i)
		check(v.Expression, expression.Condition, at.Child("expression"))
		if v.MessageExpression != "" {
			check(v.MessageExpression, expression.Message, at.Child("messageExpression"))
		}
	}
	return warnings
}

// schemaOf returns what an endpoint's objects look like; the zero Schema if that can't be said.
func schemaOf(e *registry.Endpoint) expression.Schema {
	root, schemas, err := e.OpenAPI()
	if err != nil {
		return expression.Schema{}
	}
	return expression.Schema{Root: root, Schemas: schemas}
}

// kindsToCheck returns what the rules name without a wildcard, and that is served, in the order of the catalog.
func kindsToCheck(c *registry.Catalog, m *admissionregistrationv1.MatchResources) (kinds []*registry.Endpoint) {
	if m == nil {
		return nil
	}
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			for _, e := range v.Resources {
				named := slices.ContainsFunc(m.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
					return namesOnly(r.APIGroups, e.Group) && namesOnly(r.APIVersions, e.Version) && slices.Contains(r.Resources, e.Plural)
				})
				if named && len(kinds) < maxTypesToCheck {
					kinds = append(kinds, e)
				}
			}
		}
	}
	return kinds
}

// namesOnly tells whether a list has a name and no wildcard.
func namesOnly(list []string, name string) bool {
	return slices.Contains(list, name) && !slices.Contains(list, "*")
}
