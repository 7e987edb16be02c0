package policy

import (
	"context"
	"errors"

	celtypes "github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
}

func (c *Config) request(r *admissionRequest) *request {
	return &request{Request: match.NewRequest(r, c.Registry), config: c}
}

// input returns what expressions are evaluated with, at a place of the request's object.
func (q *request) input(ctx context.Context, at match.Place, params map[string]any) (*expression.Input, error) {
	in, err := q.Input(ctx, at, q.config.Authorizer)
	if err != nil {
		return nil, err
	}
	in.Params = params
	return in, nil
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
