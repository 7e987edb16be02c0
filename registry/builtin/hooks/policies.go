package hooks

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/line"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/expression"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// The rules of admission policies and their bindings. A policy whose expressions don't compile is refused. What its
// expressions get wrong about the objects that it matches is in its status, in the answer to the write.

const ( // Kubernetes' bounds
	maxMatchConditions      = 64
	maxAuditAnnotations     = 20
	maxAnnotationExpression = 5 << 10 // bytes
	maxTypesToCheck         = 10      // of one rule
)

func validateValidatingPolicy(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	c, at, spec := &check{}, field.NewPath("spec"), &p.Spec
	same := old != nil && equality.Semantic.DeepEqual(spec.ParamKind, old.Spec.ParamKind) && equality.Semantic.DeepEqual(spec.MatchConditions, old.Spec.MatchConditions)
	c.policy(policy{spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints}, at)
	if !same {
		c.conditions(spec.MatchConditions, spec.ParamKind != nil, at.Child("matchConditions"))
	}
	set := expression.New(spec.ParamKind != nil)
	if len(spec.Variables) > 0 {
		set.Compose()
	}
	c.variables(set, spec.Variables, at.Child("variables"))
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		for _, name := range []string{"validations", "auditAnnotations"} {
			c.Add(field.Required(at.Child(name), "validations or auditAnnotations must contain at least one item"))
		}
	}
	for i, v := range spec.Validations {
		c.validation(set, v, at.Child("validations").Index(i))
	}
	if len(spec.AuditAnnotations) > maxAuditAnnotations {
		c.Add(field.Invalid(at.Child("auditAnnotations"), spec.AuditAnnotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	keys := rules.Earlier[string]{}
	for i, a := range spec.AuditAnnotations {
		at := at.Child("auditAnnotations").Index(i)
		c.auditAnnotation(set, p.Name, a, at)
		c.Twice(keys.Had(a.Key), at.Child("key"), a.Key)
	}
	return c.Errs
}

// validateValidatingPolicyStatus checks what is said of a policy's types, and its conditions.
func validateValidatingPolicyStatus(p, _ *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	c, at := &check{}, field.NewPath("status")
	if t := p.Status.TypeChecking; t != nil {
		for i, w := range t.ExpressionWarnings {
			at := at.Child("typeChecking", "expressionWarnings").Index(i)
			c.Required(at.Child("warning"), w.Warning)
			of := strings.TrimSpace(w.FieldRef)
			if !c.Required(at.Child("fieldRef"), of) {
				continue
			}
			if err := jsonpath.New("spec").Parse("{" + of + "}"); err != nil {
				c.Add(field.Invalid(at.Child("fieldRef"), of, fmt.Sprintf("invalid JSONPath: %v", err)))
			}
		}
	}
	c.Add(rules.Conditions(p.Status.Conditions, at.Child("conditions"))...)
	return c.Errs
}

func validateMutatingPolicy(p, old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	c, at, spec := &check{}, field.NewPath("spec"), &p.Spec
	same := old != nil && equality.Semantic.DeepEqual(spec.ParamKind, old.Spec.ParamKind) && equality.Semantic.DeepEqual(spec.MatchConditions, old.Spec.MatchConditions)
	c.policy(policy{spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints}, at)
	c.mutating(spec.MatchConstraints, at.Child("matchConstraints"))
	if !same {
		c.conditions(spec.MatchConditions, spec.ParamKind != nil, at.Child("matchConditions"))
	}
	set := expression.New(spec.ParamKind != nil)
	set.Compose()
	c.variables(set, spec.Variables, at.Child("variables"))
	c.Lack(len(spec.Mutations) == 0, at.Child("mutations"), "mutations must contain at least one item")
	for i, m := range spec.Mutations {
		c.mutation(set, m, at.Child("mutations").Index(i))
	}
	if c.Required(at.Child("reinvocationPolicy"), string(spec.ReinvocationPolicy)) {
		rules.Among(c, at.Child("reinvocationPolicy"), &spec.ReinvocationPolicy, reinvocations...)
	}
	return c.Errs
}

// policy is what policies of both kinds have.
type policy struct {
	failure *admissionregistrationv1.FailurePolicyType
	params  *admissionregistrationv1.ParamKind
	match   *admissionregistrationv1.MatchResources
}

func (c *check) policy(p policy, at *field.Path) {
	rules.Among(c, at.Child("failurePolicy"), p.failure, failurePolicies...)
	if p.params != nil {
		c.paramKind(*p.params, at.Child("paramKind"))
	}
	if p.match == nil {
		c.Add(field.Required(at.Child("matchConstraints"), ""))
		return
	}
	c.match(p.match, at.Child("matchConstraints"))
	c.Lack(len(p.match.ResourceRules) == 0, at.Child("matchConstraints", "resourceRules"), "")
}

func (c *check) paramKind(k admissionregistrationv1.ParamKind, at *field.Path) {
	if version := at.Child("apiVersion"); c.Required(version, k.APIVersion) {
		gv, err := schema.ParseGroupVersion(k.APIVersion)
		if err != nil {
			c.Add(field.Invalid(version, k.APIVersion, err.Error()))
		} else {
			if texts := validation.IsDNS1123Subdomain(gv.Group); gv.Group != "" && len(texts) > 0 {
				c.Add(field.Invalid(version, gv.Group, strings.Join(texts, ",")))
			}
			if gv.Version == "" {
				c.Add(field.Invalid(version, k.APIVersion, "version must be specified"))
			} else if texts := validation.IsDNS1035Label(gv.Version); len(texts) > 0 {
				c.Add(field.Invalid(version, gv.Version, strings.Join(texts, ",")))
			}
		}
	}
	if c.Required(at.Child("kind"), k.Kind) {
		if texts := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(texts) > 0 {
			c.Add(field.Invalid(at.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(texts, ",")))
		}
	}
}

// match checks which objects a policy or a binding is about; nil for all.
func (c *check) match(m *admissionregistrationv1.MatchResources, at *field.Path) {
	if m == nil {
		return
	}
	rules.Among(c, at.Child("matchPolicy"), m.MatchPolicy, matchPolicies...)
	c.Selector(m.NamespaceSelector, at.Child("namespaceSelector"))
	c.Selector(m.ObjectSelector, at.Child("objectSelector"))
	for _, part := range []struct {
		at    *field.Path
		rules []admissionregistrationv1.NamedRuleWithOperations
	}{{at.Child("resourceRules"), m.ResourceRules}, {at.Child("excludeResourceRules"), m.ExcludeResourceRules}} {
		for i, r := range part.rules {
			at, seen := part.at.Index(i), rules.Earlier[string]{}
			for j, name := range r.ResourceNames {
				at := at.Child("resourceNames").Index(j)
				c.Texts(at, name, content.IsPathSegmentName(name))
				c.Twice(seen.Had(name), at, name)
			}
			c.rule(r.RuleWithOperations, at)
		}
	}
}

// mutating checks that objects may be changed in what a policy or a binding is about; nil for all.
func (c *check) mutating(m *admissionregistrationv1.MatchResources, at *field.Path) {
	if m == nil {
		return
	}
	for _, r := range m.ResourceRules {
		for i := range r.Operations {
			rules.Among(c, at.Child("resourceRules", "operations"), &r.Operations[i],
				admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update)
		}
	}
}

// conditions checks the conditions of a policy or a webhook. params tells whether they may name params.
func (c *check) conditions(conditions []admissionregistrationv1.MatchCondition, params bool, at *field.Path) {
	c.NoMore(at, len(conditions), maxMatchConditions)
	set, seen := expression.New(params), rules.Earlier[string]{}
	for i, condition := range conditions {
		at := at.Index(i)
		if text := strings.TrimSpace(condition.Expression); c.Required(at.Child("expression"), text) {
			c.compiles(set, text, expression.Condition, at.Child("expression"))
		}
		if !c.Required(at.Child("name"), condition.Name) {
			continue
		}
		c.Qualified(at.Child("name"), condition.Name)
		c.Twice(seen.Had(condition.Name), at.Child("name"), condition.Name)
	}
}

// compiles adds an error if an expression doesn't compile.
func (c *check) compiles(set *expression.Set, text string, use expression.Use, at *field.Path) {
	if _, err := set.Compile(text, use); err != nil {
		c.Add(field.Invalid(at, text, err.Error()))
	}
}

// specified adds an error if an expression says nothing. what is the field's name.
func (c *check) specified(at *field.Path, what, text string) bool {
	is := strings.TrimSpace(text) != ""
	c.Lack(!is, at.Child(what), what+" is not specified")
	return is
}

// identifier is a name in CEL, if it isn't one of the words.
var identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

var celWords = []string{
	"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
	"loop", "package", "namespace", "return", "var", "void", "while",
}

// variables adds the variables of a policy to the set of its expressions.
func (c *check) variables(set *expression.Set, variables []admissionregistrationv1.Variable, at *field.Path) {
	for i, v := range variables {
		at := at.Index(i)
		c.Refuse(c.specified(at, "name", v.Name) && (!identifier.MatchString(v.Name) || slices.Contains(celWords, v.Name)), at.Child("name"), v.Name, "must be a valid CEL identifier")
		if c.specified(at, "expression", v.Expression) {
			if err := set.Define(v.Name, v.Expression); err != nil {
				c.Add(field.Invalid(at.Child("expression"), v.Expression, err.Error()))
			}
		}
	}
}

func (c *check) validation(set *expression.Set, v admissionregistrationv1.Validation, at *field.Path) {
	if c.specified(at, "expression", v.Expression) {
		c.compiles(set, v.Expression, expression.Condition, at.Child("expression"))
	}
	const empty = "must be non-empty if specified"
	switch blank := strings.TrimSpace(v.MessageExpression) == ""; {
	case !blank:
		c.compiles(set, v.MessageExpression, expression.Message, at.Child("messageExpression"))
	case v.MessageExpression != "":
		c.Add(field.Invalid(at.Child("messageExpression"), v.MessageExpression, empty))
	}
	switch message := strings.TrimSpace(v.Message); {
	case v.Message != "" && message == "":
		c.Add(field.Invalid(at.Child("message"), v.Message, empty))
	case strings.ContainsAny(message, "\n\r"):
		c.Add(field.Invalid(at.Child("message"), v.Message, "must not contain line breaks"))
	}
	rules.Among(c, at.Child("reason"), v.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)
}

// auditAnnotation checks what a policy of a name notes.
func (c *check) auditAnnotation(set *expression.Set, name string, a admissionregistrationv1.AuditAnnotation, at *field.Path) {
	if name == "" {
		c.Add(field.Invalid(at.Child("key"), a.Key, "requires metadata.name be non-empty"))
	} else {
		c.Qualified(at.Child("key"), name+"/"+a.Key)
	}
	if !c.specified(at, "valueExpression", a.ValueExpression) {
		return
	}
	text, value := strings.TrimSpace(a.ValueExpression), at.Child("valueExpression")
	if len(text) > maxAnnotationExpression {
		c.Add(field.Required(value, fmt.Sprintf("must not exceed %d bytes in length", maxAnnotationExpression)))
	} else if _, err := set.Compile(text, expression.Annotation); err != nil {
		c.Add(field.Invalid(value, a.ValueExpression, err.Error()))
	}
}

func (c *check) mutation(set *expression.Set, m admissionregistrationv1.Mutation, at *field.Path) {
	if !c.Required(at.Child("patchType"), string(m.PatchType)) {
		return
	}
	rules.Among(c, at.Child("patchType"), &m.PatchType, admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)
	type part struct {
		name  string
		given bool
		text  string
		use   expression.Use
	}
	applied, patched := part{name: "applyConfiguration", use: expression.ApplyConfiguration}, part{name: "jsonPatch", use: expression.JSONPatch}
	if m.ApplyConfiguration != nil {
		applied.given, applied.text = true, m.ApplyConfiguration.Expression
	}
	if m.JSONPatch != nil {
		patched.given, patched.text = true, m.JSONPatch.Expression
	}
	var wanted, other part
	switch m.PatchType {
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		wanted, other = applied, patched
	case admissionregistrationv1.PatchTypeJSONPatch:
		wanted, other = patched, applied
	default:
		return
	}
	if text := strings.TrimSpace(wanted.text); !wanted.given {
		c.Add(field.Required(at.Child(wanted.name), fmt.Sprintf("must be specified when patchType is %s", m.PatchType)))
	} else if c.Required(at.Child(wanted.name, "expression"), text) {
		c.compiles(set, text, wanted.use, at.Child(wanted.name, "expression"))
	}
	if other.given {
		c.Add(field.Invalid(at.Child(other.name), "{"+other.name+"}", fmt.Sprintf("must not be specified when patchType is %s", m.PatchType)))
	}
}

func validateValidatingPolicyBinding(b, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	c, at := &check{}, field.NewPath("spec")
	if b.Spec.PolicyName == "" {
		c.Declare(field.Required(at.Child("policyName"), ""))
	}
	c.binding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, at)
	c.actions(b.Spec.ValidationActions, at.Child("validationActions"))
	return c.All()
}

func validateMutatingPolicyBinding(b, _ *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	c := &check{}
	at := field.NewPath("spec")
	c.Required(at.Child("policyName"), b.Spec.PolicyName)
	c.binding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, at)
	c.mutating(b.Spec.MatchResources, at.Child("matchResources"))
	return c.Errs
}

func (c *check) binding(policy string, params *admissionregistrationv1.ParamRef, match *admissionregistrationv1.MatchResources, at *field.Path) {
	if policy != "" {
		c.Subdomain(at.Child("policyName"), policy)
	}
	c.paramRef(params, at.Child("paramRef"))
	c.match(match, at.Child("matchResources"))
}

func (c *check) actions(actions []admissionregistrationv1.ValidationAction, at *field.Path) {
	seen := rules.Earlier[admissionregistrationv1.ValidationAction]{}
	for i, a := range actions {
		rules.Among(c, at.Index(i), &a, admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn)
		c.Twice(seen.Had(a), at.Index(i), a)
	}
	c.Refuse(seen[admissionregistrationv1.Deny] && seen[admissionregistrationv1.Warn], at, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)")
	if len(actions) == 0 {
		c.Declare(field.Required(at, ""))
	}
}

func (c *check) paramRef(r *admissionregistrationv1.ParamRef, at *field.Path) {
	if r == nil {
		return
	}
	const both = "name and selector are mutually exclusive"
	if r.Name != "" {
		c.Texts(at.Child("name"), r.Name, content.IsPathSegmentName(r.Name))
		c.Forbid(r.Selector != nil, at.Child("name"), both)
	}
	c.Selector(r.Selector, at.Child("selector"))
	switch {
	case r.Name != "" && r.Selector != nil:
		c.Add(field.Forbidden(at.Child("selector"), both))
	case r.Name == "" && r.Selector == nil:
		c.Add(field.Required(at, "one of name or selector must be specified"))
	}
	if action := r.ParameterNotFoundAction; action == nil || *action == "" {
		c.Add(field.Required(at.Child("parameterNotFoundAction"), ""))
	} else {
		rules.Among(c, at.Child("parameterNotFoundAction"), action, admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction)
	}
}

// checked returns the Prepare of policies, nil for none: what is wrong with the expressions for the objects that a rule names goes
// into the status of a new or changed policy. In Kubernetes a controller of kube-controller-manager does that later.
func (o judge) checked() func(ctx context.Context, p, old registry.Typed, subresource string) {
	if !o.checkPolicies {
		return nil
	}
	return line.Prepare(func(p, old *admissionregistrationv1.ValidatingAdmissionPolicy, subresource string) {
		if subresource != "" || old != nil && equality.Semantic.DeepEqual(p.Spec, old.Spec) {
			return
		}
		p.Status.ObservedGeneration = 1
		if old != nil {
			p.Status.ObservedGeneration = old.Generation + 1 // a changed spec is a new generation
		}
		p.Status.TypeChecking = &admissionregistrationv1.TypeChecking{ExpressionWarnings: typeWarnings(o.registry.Catalog(), &p.Spec)}
	})
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
	root, schemas, err := reads.Of(e).OpenAPI()
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
