package access

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// Upstream's own clients of these webhooks aren't used: they link every version of every kind of Kubernetes, which takes 7 MB of the program and
// time of each start.

// reviewer posts reviews to one webhook.
type reviewer struct{ to *webhook.GenericWebhook }

const (
	reviewV1      = "v1"
	reviewV1beta1 = "v1beta1"
	// reviewPause is how long the second attempt waits; kube-apiserver's figure.
	reviewPause = 500 * time.Millisecond
)

// newReviewer returns a reviewer for reviews of a version, v1 or v1beta1. what is the webhook's sort, for the error.
func newReviewer(config *rest.Config, version, what string) (*reviewer, error) {
	scheme := runtime.NewScheme()
	for _, add := range map[string][]func(*runtime.Scheme) error{
		reviewV1:      {authenticationv1.AddToScheme, authorizationv1.AddToScheme},
		reviewV1beta1: {addTokenReviewBeta, authorizationv1beta1.AddToScheme},
	}[version] {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	versions := scheme.PrioritizedVersionsAllGroups()
	if len(versions) == 0 {
		return nil, fmt.Errorf("unsupported webhook %s version %q, supported versions are %q, %q", what, version, reviewV1, reviewV1beta1)
	}
	to, err := webhook.NewGenericWebhook(scheme, serializer.NewCodecFactory(scheme), config, versions, webhook.DefaultRetryBackoffWithInitialDelay(reviewPause))
	if err != nil {
		return nil, err
	}
	return &reviewer{to}, nil
}

// addTokenReviewBeta has TokenReviews be of v1beta1, where they have the form that they have in v1.
func addTokenReviewBeta(scheme *runtime.Scheme) error {
	beta := schema.GroupVersion{Group: authenticationv1.GroupName, Version: reviewV1beta1}
	scheme.AddKnownTypes(beta, &authenticationv1.TokenReview{})
	metav1.AddToGroupVersion(scheme, beta)
	return nil
}

// review posts a review and reads the answer into another one. It posts again, after pauses, where that may help. The error is the last one.
func (r *reviewer) review(ctx context.Context, question, answer runtime.Object) error {
	return webhook.WithExponentialBackoff(ctx, r.to.RetryBackoff, func() error {
		return r.to.RestClient.Post().Body(question).Do(ctx).Into(answer)
	}, webhook.DefaultShouldRetry)
}
