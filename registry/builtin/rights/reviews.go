package rights

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// Options say who tells what users may do, and whose tokens are.
type Options struct {
	// Authorizer decides what users may do. Nil: everybody may do everything.
	Authorizer Authorizer
	// PrepareToken judges and completes a TokenRequest that is posted to a ServiceAccount's token, and IssueToken answers it. Nil: there is no such path.
	PrepareToken func(ctx context.Context, a *registry.Action) error
	IssueToken   func(ctx context.Context, a *registry.Action) (any, error)
	// ReviewToken answers a TokenReview. Nil: no token is anybody's.
	ReviewToken func(ctx context.Context, r *authenticationv1.TokenReview)
	// Clock has the time of answers. Nil is the machine's.
	Clock *clock.Clock
}

// Authorizer decides what users may do, tells all of it, and refuses writes of rules by which users would give what they
// don't have. access.RBAC is the only one, which this package can't import: it's above.
type Authorizer interface {
	authorizer.UnconditionalAuthorizer
	authorizer.RuleResolver
	MayGrant(ctx context.Context, obj, old registry.Typed) error
	// Ask returns nil for what a user may do, and a Status error for what he mayn't.
	Ask(ctx context.Context, a authorizer.Attributes) error
}

// everythingAllowed is the reason that access reviews give.
const everythingAllowed = "this server has no access control: whoever reaches it may do everything"

// noMeta and bornNow are the metadata of answers that have nothing of the question's.
func noMeta() metav1.ObjectMeta { return metav1.ObjectMeta{} }

func (o Options) bornNow() metav1.ObjectMeta {
	return metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(o.Clock.Now())}
}

func whoAmI(ctx context.Context, r *authenticationv1.SelfSubjectReview) error {
	r.Status = authenticationv1.SelfSubjectReviewStatus{UserInfo: registry.UserInfo(registry.UserFrom(ctx))}
	return nil
}

// reviewToken tells whose a token is.
func (o Options) reviewToken(ctx context.Context, r *authenticationv1.TokenReview) error {
	if r.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	r.Status.Authenticated = false
	if o.ReviewToken != nil {
		o.ReviewToken(ctx, r)
	}
	return nil
}

func (o Options) reviewSelfAccess(ctx context.Context, r *authorizationv1.SelfSubjectAccessReview) error {
	r.Status = o.decide(ctx, registry.UserFrom(ctx), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return nil
}

func (o Options) reviewAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) error {
	r.Status = o.decide(ctx, subjectOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return nil
}

func (o Options) reviewLocalAccess(ctx context.Context, r *authorizationv1.LocalSubjectAccessReview) error {
	r.Status = o.decide(ctx, subjectOf(&r.Spec), r.Spec.ResourceAttributes, nil)
	return nil
}

// subjectOf returns whom a review asks about.
func subjectOf(s *authorizationv1.SubjectAccessReviewSpec) user.Info {
	u := &user.DefaultInfo{Name: s.User, UID: s.UID, Groups: s.Groups, Extra: map[string][]string{}}
	for k, v := range s.Extra {
		u.Extra[k] = v
	}
	return u
}

// decide tells whether a user may do something: to a resource, or else at another path.
func (o Options) decide(ctx context.Context, u user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	if o.Authorizer == nil {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: everythingAllowed}
	}
	asks := &authorizer.AttributesRecord{User: u}
	if a := resource; a != nil {
		asks.ResourceRequest, asks.Verb, asks.Namespace, asks.Name = true, a.Verb, a.Namespace, a.Name
		asks.APIGroup, asks.APIVersion, asks.Resource, asks.Subresource = a.Group, cmp.Or(a.Version, "*"), a.Resource, a.Subresource
		asks.FieldSelectorRequirements, asks.FieldSelectorParsingErr = fieldsOf(a.FieldSelector)
		asks.LabelSelectorRequirements, asks.LabelSelectorParsingErr = labelsOf(a.LabelSelector)
	} else {
		asks.Verb, asks.Path = path.Verb, path.Path
	}
	decision, reason, err := o.Authorizer.Authorize(ctx, asks)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	status.EvaluationError = evaluationError(err, asks)
	return status
}

// evaluationError says what has gone wrong while a request was judged, and which selectors weren't heeded: without them more is asked for.
func evaluationError(err error, asks *authorizer.AttributesRecord) string {
	var texts []string
	if err != nil {
		texts = append(texts, err.Error())
	}
	for _, selector := range []struct {
		name string
		some bool // of it is heeded
		err  error
	}{
		{"fieldSelector", len(asks.FieldSelectorRequirements) > 0, asks.FieldSelectorParsingErr},
		{"labelSelector", len(asks.LabelSelectorRequirements) > 0, asks.LabelSelectorParsingErr},
	} {
		ignored := "ignored"
		if selector.some {
			ignored = "partially ignored"
		}
		if selector.err != nil {
			texts = append(texts, fmt.Sprintf("spec.resourceAttributes.%s %s due to parse error", selector.name, ignored))
		}
	}
	return strings.Join(texts, "; ")
}

// fieldsOf returns what a review's field selector wants, as far as it can be understood.
func fieldsOf(s *authorizationv1.FieldSelectorAttributes) (wanted fields.Requirements, err error) {
	switch {
	case s == nil:
		return nil, nil
	case s.RawSelector != "":
		selector, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, err
		}
		return selector.Requirements(), nil
	}
	operators := map[metav1.FieldSelectorOperator]selection.Operator{metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals}
	for _, r := range s.Requirements {
		operator, known := operators[r.Operator]
		if !known || len(r.Values) != 1 {
			err = errNotUnderstood
			continue
		}
		wanted = append(wanted, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
	}
	return wanted, err
}

// labelsOf returns what a review's label selector wants, as far as it can be understood.
func labelsOf(s *authorizationv1.LabelSelectorAttributes) (wanted labels.Requirements, err error) {
	switch {
	case s == nil:
		return nil, nil
	case s.RawSelector != "":
		selector, err := labels.Parse(s.RawSelector)
		if err != nil {
			return nil, err
		}
		wanted, _ = selector.Requirements()
		return wanted, nil
	}
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	for _, r := range s.Requirements {
		operator, known := operators[r.Operator]
		one, invalid := labels.NewRequirement(r.Key, operator, r.Values)
		if !known || invalid != nil {
			err = errNotUnderstood
			continue
		}
		wanted = append(wanted, *one)
	}
	return wanted, err
}

// errNotUnderstood tells that a part of a selector is left out, which the answer says in words of its own.
var errNotUnderstood = errors.New("a requirement isn't understood")

// reviewRules answers with a review of its own: of the one that was sent nothing stays.
func (o Options) reviewRules(ctx context.Context, r *authorizationv1.SelfSubjectRulesReview) error {
	namespace := r.Spec.Namespace
	if namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	r.Spec = authorizationv1.SelfSubjectRulesReviewSpec{}
	if o.Authorizer == nil {
		all := []string{"*"}
		r.Status = authorizationv1.SubjectRulesReviewStatus{
			ResourceRules:    []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
			NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}},
		}
		return nil
	}
	resources, paths, incomplete, err := o.Authorizer.RulesFor(ctx, registry.UserFrom(ctx), namespace)
	r.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: incomplete,
	}
	for _, rule := range resources {
		r.Status.ResourceRules = append(r.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
		})
	}
	for _, rule := range paths {
		r.Status.NonResourceRules = append(r.Status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs()})
	}
	if err != nil {
		r.Status.EvaluationError = err.Error()
	}
	return nil
}

func validateSelfAccessReview(r, _ *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	return append(validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes, nil), validateReviewMeta(r.ObjectMeta)...)
}

func validateAccessReview(r, _ *authorizationv1.SubjectAccessReview) field.ErrorList {
	return append(validateAccessSpec(&r.Spec), validateReviewMeta(r.ObjectMeta)...)
}

func validateLocalAccessReview(r, _ *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	c := &rules.Check{}
	c.Add(validateAccessSpec(&r.Spec)...)
	meta := r.ObjectMeta
	meta.Namespace, meta.ManagedFields = "", nil
	c.Refuse(!equality.Semantic.DeepEqual(metav1.ObjectMeta{}, meta), field.NewPath("metadata"), r.ObjectMeta, "must be empty except for namespace")
	spec := field.NewPath("spec")
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		c.Add(field.Invalid(spec.Child("resourceAttributes", "namespace"), a.Namespace, "must match metadata.namespace"))
	}
	c.Refuse(r.Spec.NonResourceAttributes != nil, spec.Child("nonResourceAttributes"), r.Spec.NonResourceAttributes, "disallowed on this kind of request")
	return c.Errs
}

// validateReviewMeta wants nothing of a review's metadata; who wrote it is the server's to say.
func validateReviewMeta(meta metav1.ObjectMeta) field.ErrorList {
	rest := meta
	rest.ManagedFields = nil
	if equality.Semantic.DeepEqual(metav1.ObjectMeta{}, rest) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, "must be empty")}
}

func validateAccessSpec(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	c := &rules.Check{}
	c.Refuse(s.User == "" && len(s.Groups) == 0, field.NewPath("spec", "user"), s.User, "at least one of user or group must be specified")
	return validateAttributes(s.ResourceAttributes, s.NonResourceAttributes, c.Errs)
}

// validateAttributes wants exactly one of the two, and selectors that say something. subject is what is wrong with who is asked about.
func validateAttributes(r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes, subject field.ErrorList) field.ErrorList {
	c := &rules.Check{}
	spec := field.NewPath("spec")
	c.Refuse((r != nil) == (n != nil), spec, n, "exactly one of nonResourceAttributes or resourceAttributes must be specified")
	c.Add(subject...)
	if r == nil {
		return c.Errs
	}
	if s := r.FieldSelector; s != nil {
		path := spec.Child("resourceAttributes", "fieldSelector")
		c.Add(validateReviewSelector(path, s.RawSelector, len(s.Requirements))...)
		options := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true} // of clients that are newer
		for i, requirement := range s.Requirements {
			c.Add(metav1validation.ValidateFieldSelectorRequirement(requirement, options, path.Child("requirements").Index(i))...)
		}
	}
	if s := r.LabelSelector; s != nil {
		path := spec.Child("resourceAttributes", "labelSelector")
		c.Add(validateReviewSelector(path, s.RawSelector, len(s.Requirements))...)
		options := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, requirement := range s.Requirements {
			c.Add(metav1validation.ValidateLabelSelectorRequirement(requirement, options, path.Child("requirements").Index(i))...)
		}
	}
	return c.Errs
}

// validateReviewSelector wants exactly one of a selector's two forms.
func validateReviewSelector(path *field.Path, raw string, requirements int) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))}
	}
	return nil
}
