package policy

import (
	"context"
	"errors"

	celtypes "github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/expression"
)

type admissionRequest = registry.AdmissionRequest[unstructured.Unstructured]

// request is a write as policies see it.
type request struct {
	*match.Request
	config *Config
	abouts map[match.Place]*admissionv1.AdmissionRequest // what expressions see as `request`
}

func (c *Config) request(r *admissionRequest) *request {
	return &request{Request: match.NewRequest(r, c.Registry), config: c, abouts: map[match.Place]*admissionv1.AdmissionRequest{}}
}

// input returns what expressions are evaluated with, at a place of the request's object.
func (q *request) input(ctx context.Context, at match.Place, params map[string]any) (*expression.Input, error) {
	shown, err := q.Versioned(ctx, at)
	if err != nil {
		return nil, err
	}
	about := q.abouts[at]
	if about == nil {
		about = plugincel.CreateAdmissionRequest(shown.Attributes, metav1.GroupVersionResource(at.Resource), metav1.GroupVersionKind(at.Kind))
		q.abouts[at] = about
	}
	return &expression.Input{
		Object: tree(shown.VersionedObject), OldObject: tree(shown.VersionedOldObject), Params: params, Request: about,
		User: q.User, Authorizer: q.config.Authorizer,
		Namespace: func() (*corev1.Namespace, error) { return q.namespace(ctx) },
	}, nil
}

func tree(o admission.LazyObject) map[string]any {
	u, ok := o.Object().(*unstructured.Unstructured)
	if !ok || u == nil {
		return nil
	}
	return u.Object
}

// namespace returns the namespace in which the request's object lies; nil for none, and a Namespace lies in none.
func (q *request) namespace(ctx context.Context) (*corev1.Namespace, error) {
	if !q.Namespaced {
		return nil, nil
	}
	return q.config.Registry.Namespace(ctx, q.Space)
}

// meets tells whether all match conditions are true. One that is false decides, whatever the others are. Otherwise a
// condition that can't be evaluated is an error.
func meets[E any](ctx context.Context, c *compiled[E], in *expression.Input) (bool, error) {
	if len(c.conditions) == 0 {
		return true, nil
	}
	without := *in
	without.Namespace = nil // conditions see no namespace in Kubernetes
	run := c.set.Run(&without, celconfig.RuntimeCELCostBudgetMatchConditions)
	var failures []error
	for _, p := range c.conditions {
		v, err := run.Evaluate(ctx, p)
		switch {
		case errors.Is(err, expression.ErrBudget):
			return false, err
		case err != nil:
			failures = append(failures, err)
		case v == celtypes.False:
			return false, nil
		}
	}
	return true, errors.Join(failures...)
}
