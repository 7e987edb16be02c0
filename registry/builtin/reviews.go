package builtin

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// everythingAllowed is the reason that access reviews give.
const everythingAllowed = "this server has no access control: whoever reaches it may do everything"

func allowed() authorizationv1.SubjectAccessReviewStatus {
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: everythingAllowed}
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
	r.Status = authenticationv1.TokenReviewStatus{}
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
		return allowed()
	}
	asks := &authorizer.AttributesRecord{User: u}
	if a := resource; a != nil {
		asks.ResourceRequest, asks.Verb, asks.Namespace, asks.Name = true, a.Verb, a.Namespace, a.Name
		asks.APIGroup, asks.APIVersion, asks.Resource, asks.Subresource = a.Group, a.Version, a.Resource, a.Subresource
	} else {
		asks.Verb, asks.Path = path.Verb, path.Path
	}
	decision, reason, err := o.Authorizer.Authorize(ctx, asks)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

func (o Options) reviewRules(ctx context.Context, r *authorizationv1.SelfSubjectRulesReview) error {
	if r.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	if o.Authorizer == nil {
		all := []string{"*"}
		r.Status = authorizationv1.SubjectRulesReviewStatus{
			ResourceRules:    []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
			NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}},
		}
		return nil
	}
	resources, paths, incomplete, err := o.Authorizer.RulesFor(ctx, registry.UserFrom(ctx), r.Spec.Namespace)
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
	return validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
}

func validateAccessReview(r, _ *authorizationv1.SubjectAccessReview) field.ErrorList {
	return validateAccessSpec(&r.Spec)
}

func validateLocalAccessReview(r, _ *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := validateAccessSpec(&r.Spec)
	spec := field.NewPath("spec")
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes", "namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if r.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), r.Spec.NonResourceAttributes, "disallowed on this kind of request"))
	}
	return errs
}

func validateAccessSpec(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(s.ResourceAttributes, s.NonResourceAttributes)
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), s.User, "at least one of user or group must be specified"))
	}
	return errs
}

// validateAttributes wants exactly one of the two.
func validateAttributes(r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) field.ErrorList {
	spec := field.NewPath("spec")
	switch {
	case r != nil && n != nil:
		return field.ErrorList{field.Invalid(spec.Child("nonResourceAttributes"), n, "cannot be specified in combination with resourceAttributes")}
	case r == nil && n == nil:
		return field.ErrorList{field.Invalid(spec.Child("resourceAttributes"), r, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}
