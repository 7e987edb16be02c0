package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/client-go/rest"
)

// oneAuthorizer is one of several.
type oneAuthorizer interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// simple is an authorizer that decides by a function, without conditions.
type simple struct {
	authorizer.AuthorizerFunc
	rules func() ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error)
}

// RulesFor returns what every user may do.
func (s simple) RulesFor(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return s.rules()
}

// The authorizers that need nothing.
var (
	allowsAll = simple{
		func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		},
		func() ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
			all := []string{"*"}
			return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: all, APIGroups: all, Resources: all}},
				[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: all, NonResourceURLs: all}}, false, nil
		},
	}
	deniesAll = simple{
		func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "Everything is forbidden.", nil
		},
		func() ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
			return nil, nil, false, nil
		},
	}
	// allowsMasters lets members of system:masters do everything.
	allowsMasters authorizer.AuthorizerFunc = func(_ context.Context, asks authorizer.Attributes) (authorizer.Decision, string, error) {
		u := asks.GetUser()
		switch {
		case u == nil:
			return authorizer.DecisionNoOpinion, "", errors.New("no user on request")
		case slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup):
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
)

const (
	// maxKeptAnswers is how many answers of a webhook are kept; kube-apiserver's figure.
	maxKeptAnswers = 8192
	// maxKeptQuestion is how long a question may be, in bytes of what its client chose, whose answer is kept; kube-apiserver's figure.
	maxKeptQuestion = 10000
)

// webhookAuthorizer asks a webhook by SubjectAccessReviews, and keeps its answers.
type webhookAuthorizer struct {
	authorizer.AuthorizerFunc // authorize
	ask                       *reviewer
	beta                      bool // it's asked in v1beta1
	matches                   *authorizationcel.CELMatcher
	kept                      *cache.LRUExpireCache
	allowedTTL, refusedTTL    time.Duration
	onError                   authorizer.Decision
}

// newWebhookAuthorizer makes the authorizer of a webhook of a file or of flags. compiler may be nil if it has no conditions.
func newWebhookAuthorizer(c apiserver.AuthorizerConfiguration, config *rest.Config, compiler authorizationcel.Compiler) (*webhookAuthorizer, error) {
	w := c.Webhook
	ask, err := newReviewer(config, w.SubjectAccessReviewVersion, "authorizer")
	if err != nil {
		return nil, err
	}
	a := &webhookAuthorizer{ask: ask, beta: w.SubjectAccessReviewVersion == reviewV1beta1, kept: cache.NewLRUExpireCache(maxKeptAnswers), onError: authorizer.DecisionNoOpinion}
	a.AuthorizerFunc = a.authorize
	if w.FailurePolicy == apiserver.FailurePolicyDeny {
		a.onError = authorizer.DecisionDeny
	}
	if w.CacheAuthorizedRequests {
		a.allowedTTL = w.AuthorizedTTL.Duration
	}
	if w.CacheUnauthorizedRequests {
		a.refusedTTL = w.UnauthorizedTTL.Duration
	}
	if len(w.MatchConditions) == 0 {
		return a, nil
	}
	matches, errs := validation.ValidateAndCompileMatchConditions(compiler, w.MatchConditions)
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	if a.matches = matches; matches != nil {
		matches.Metrics, matches.AuthorizerType, matches.AuthorizerName = authorizationcel.NoopMatcherMetrics{}, string(c.Type), c.Name
	}
	return a, nil
}

// RulesFor says that there may be more than is known.
func (a *webhookAuthorizer) RulesFor(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return nil, nil, true, errors.New("webhook authorizer does not support user rule resolution")
}

func (a *webhookAuthorizer) authorize(ctx context.Context, asks authorizer.Attributes) (authorizer.Decision, string, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: specOf(asks)}
	if a.matches != nil && len(a.matches.CompilationResults) > 0 {
		switch matches, err := a.matches.Eval(ctx, review); {
		case err != nil:
			return a.onError, "", err
		case !matches:
			return authorizer.DecisionNoOpinion, "", nil
		}
	}
	status, err := a.answer(ctx, review, chosenBy(asks) < maxKeptQuestion)
	switch {
	case err != nil:
		return a.onError, "", errors.New(err.Error()) // no Status of the webhook's is to become an answer
	case status.Denied && status.Allowed:
		return authorizer.DecisionDeny, status.Reason, errors.New("webhook subject access review returned both allow and deny response")
	case status.Denied:
		return authorizer.DecisionDeny, status.Reason, nil
	case status.Allowed:
		return authorizer.DecisionAllow, status.Reason, nil
	}
	return authorizer.DecisionNoOpinion, status.Reason, nil
}

// answer returns what the webhook says to a review, or has said.
func (a *webhookAuthorizer) answer(ctx context.Context, review *authorizationv1.SubjectAccessReview, keep bool) (authorizationv1.SubjectAccessReviewStatus, error) {
	key, err := json.Marshal(review.Spec)
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	hash := sha256.Sum256(key) // selectors, and names in reviews, may make megabytes of it
	if kept, ok := a.kept.Get(hash); ok {
		return kept.(authorizationv1.SubjectAccessReviewStatus), nil
	}
	var status authorizationv1.SubjectAccessReviewStatus
	if a.beta {
		var answer authorizationv1beta1.SubjectAccessReview
		err = a.ask.review(ctx, &authorizationv1beta1.SubjectAccessReview{Spec: betaSpec(review.Spec)}, &answer)
		status = authorizationv1.SubjectAccessReviewStatus(answer.Status)
	} else {
		var answer authorizationv1.SubjectAccessReview
		err = a.ask.review(ctx, review, &answer)
		status = answer.Status
	}
	if err != nil || !keep {
		return status, err
	}
	ttl := a.refusedTTL
	if status.Allowed {
		ttl = a.allowedTTL
	}
	if ttl > 0 { // what has expired stays until there's no room
		a.kept.Add(hash, status, ttl)
	}
	return status, nil
}

// chosenBy is how many bytes of a question its client chose.
func chosenBy(asks authorizer.Attributes) (n int) {
	for _, part := range []string{asks.GetNamespace(), asks.GetVerb(), asks.GetAPIGroup(), asks.GetAPIVersion(), asks.GetResource(), asks.GetSubresource(), asks.GetName(), asks.GetPath()} {
		n += len(part)
	}
	return n
}

// specOf is a question as a review asks it.
func specOf(asks authorizer.Attributes) (spec authorizationv1.SubjectAccessReviewSpec) {
	if u := asks.GetUser(); u != nil {
		spec.User, spec.UID, spec.Groups = u.GetName(), u.GetUID(), u.GetGroups()
		for key, values := range u.GetExtra() {
			if spec.Extra == nil {
				spec.Extra = map[string]authorizationv1.ExtraValue{}
			}
			spec.Extra[key] = values
		}
	}
	if !asks.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: asks.GetPath(), Verb: asks.GetVerb()}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: asks.GetNamespace(), Verb: asks.GetVerb(), Group: asks.GetAPIGroup(), Version: asks.GetAPIVersion(),
		Resource: asks.GetResource(), Subresource: asks.GetSubresource(), Name: asks.GetName(),
		FieldSelector: fieldTerms(asks), LabelSelector: labelTerms(asks),
	}
	return spec
}

// fieldTerms is what a request's field selector wants, as far as a review can say it; nil for nothing. What is left out makes the question one
// about more.
func fieldTerms(asks authorizer.Attributes) *authorizationv1.FieldSelectorAttributes {
	operators := map[selection.Operator]metav1.FieldSelectorOperator{
		selection.Equals: metav1.FieldSelectorOpIn, selection.DoubleEquals: metav1.FieldSelectorOpIn, selection.In: metav1.FieldSelectorOpIn,
		selection.NotEquals: metav1.FieldSelectorOpNotIn, selection.NotIn: metav1.FieldSelectorOpNotIn,
	}
	wanted, _ := asks.GetFieldSelector()
	var terms []metav1.FieldSelectorRequirement
	for _, r := range wanted {
		if operator, known := operators[r.Operator]; known {
			terms = append(terms, metav1.FieldSelectorRequirement{Key: r.Field, Operator: operator, Values: []string{r.Value}})
		}
	}
	if len(terms) == 0 {
		return nil
	}
	return &authorizationv1.FieldSelectorAttributes{Requirements: terms}
}

// labelTerms is fieldTerms for labels.
func labelTerms(asks authorizer.Attributes) *authorizationv1.LabelSelectorAttributes {
	operators := map[selection.Operator]metav1.LabelSelectorOperator{
		selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.In: metav1.LabelSelectorOpIn,
		selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
		selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
	}
	wanted, _ := asks.GetLabelSelector()
	var terms []metav1.LabelSelectorRequirement
	for _, r := range wanted {
		if operator, known := operators[r.Operator()]; known {
			terms = append(terms, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator, Values: r.ValuesUnsorted()})
		}
	}
	if len(terms) == 0 {
		return nil
	}
	return &authorizationv1.LabelSelectorAttributes{Requirements: terms}
}

// betaSpec is a question in v1beta1.
func betaSpec(s authorizationv1.SubjectAccessReviewSpec) authorizationv1beta1.SubjectAccessReviewSpec {
	beta := authorizationv1beta1.SubjectAccessReviewSpec{User: s.User, UID: s.UID, Groups: s.Groups}
	for key, values := range s.Extra {
		if beta.Extra == nil {
			beta.Extra = map[string]authorizationv1beta1.ExtraValue{}
		}
		beta.Extra[key] = authorizationv1beta1.ExtraValue(values)
	}
	if r := s.ResourceAttributes; r != nil {
		beta.ResourceAttributes = &authorizationv1beta1.ResourceAttributes{
			Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: r.Subresource, Name: r.Name,
			FieldSelector: r.FieldSelector, LabelSelector: r.LabelSelector,
		}
	}
	if n := s.NonResourceAttributes; n != nil {
		beta.NonResourceAttributes = &authorizationv1beta1.NonResourceAttributes{Path: n.Path, Verb: n.Verb}
	}
	return beta
}
