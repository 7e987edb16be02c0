package policy

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
