package builtin

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// everyone is who every client is: whoever reaches the server may do everything, and holders of a bearer token are no others.
func everyone() authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: "system:admin", Groups: []string{"system:masters", "system:authenticated"}}
}

// everythingAllowed is the reason that access reviews give.
const everythingAllowed = "this server has no access control: whoever reaches it may do everything"

func allowed() authorizationv1.SubjectAccessReviewStatus {
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: everythingAllowed}
}

func whoAmI(_ context.Context, r *authenticationv1.SelfSubjectReview) error {
	r.Status = authenticationv1.SelfSubjectReviewStatus{UserInfo: everyone()}
	return nil
}

// reviewToken tells whose a token is: one that the server lets in, or a ServiceAccount's.
func (o Options) reviewToken(ctx context.Context, r *authenticationv1.TokenReview) error {
	if r.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	r.Status = authenticationv1.TokenReviewStatus{}
	if o.HasToken != nil && o.HasToken(r.Spec.Token) {
		r.Status.Authenticated, r.Status.User = true, everyone()
	} else if o.tokens != nil {
		o.tokens.review(ctx, r)
	}
	return nil
}

func reviewSelfAccess(_ context.Context, r *authorizationv1.SelfSubjectAccessReview) error {
	r.Status = allowed()
	return nil
}

func reviewAccess(_ context.Context, r *authorizationv1.SubjectAccessReview) error {
	r.Status = allowed()
	return nil
}

func reviewLocalAccess(_ context.Context, r *authorizationv1.LocalSubjectAccessReview) error {
	r.Status = allowed()
	return nil
}

func reviewRules(_ context.Context, r *authorizationv1.SelfSubjectRulesReview) error {
	if r.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	all := []string{"*"}
	r.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
		NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}},
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
