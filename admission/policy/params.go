package policy

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// noParams is what expressions are evaluated with where there are none: once, and params is null.
var noParams = []map[string]any{nil}

// paramEndpoint returns the endpoint of a policy's parameters; nil for a policy without any.
func paramEndpoint(c *registry.Catalog, kind *admissionregistrationv1.ParamKind) (*registry.Endpoint, error) {
	if kind == nil {
		return nil, nil
	}
	e := c.Kind(kind.APIVersion, kind.Kind)
	if e == nil {
		return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
	}
	return e, nil
}

// eachBinding calls evaluate for each binding of a policy that is about the request, with the parameters. fail is told what can't be
// found out, of the policy itself with the binding "".
func eachBinding[O any](ctx context.Context, q *request, p bound[O], fail func(binding, what string, err error), evaluate func(b *binding, at match.Place, params []map[string]any)) {
	at, ok, err := p.selection.selects(ctx, q.Request)
	if !ok && err == nil {
		return
	}
	var of *registry.Endpoint
	if err == nil {
		of, err = paramEndpoint(q.config.Registry.Catalog(), p.params)
	}
	if err != nil {
		fail("", "failed to configure policy: ", err)
		return
	}
	for _, b := range p.bindings {
		if params, err := q.paramsOf(ctx, b, of); err != nil {
			fail(b.name, "failed to configure binding: ", err)
		} else {
			evaluate(b, at, params)
		}
	}
}

// paramsOf returns the objects with which a binding has its policy evaluated for the request; none if it isn't about the
// request. of is the endpoint of the policy's parameters.
func (q *request) paramsOf(ctx context.Context, b *binding, of *registry.Endpoint) ([]map[string]any, error) {
	if b.selection != nil {
		if _, ok, err := b.selection.selects(ctx, q.Request); err != nil || !ok {
			return nil, err
		}
	}
	return readParams(ctx, of, b.params, q.Attributes.Namespace)
}

// readParams returns the objects with which a binding has a policy evaluated. None means that the policy isn't evaluated. e is
// the endpoint of the policy's parameters, and namespace the request's.
func readParams(ctx context.Context, e *registry.Endpoint, ref *admissionregistrationv1.ParamRef, namespace string) ([]map[string]any, error) {
	switch {
	case e == nil || ref == nil:
		return noParams, nil
	case !e.Namespaced && ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case !e.Namespaced:
		namespace = ""
	case ref.Namespace != "":
		namespace = ref.Namespace
	case namespace == "":
		return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	}
	found, err := findParams(ctx, e, ref, namespace)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return found, nil
}

func findParams(ctx context.Context, e *registry.Endpoint, ref *admissionregistrationv1.ParamRef, namespace string) ([]map[string]any, error) {
	if ref.Name == "" {
		by, err := selector(ref.Selector)
		if err != nil {
			return nil, err
		}
		return reads.Of(e).Select(ctx, namespace, by)
	}
	found, err := reads.Of(e).Find(ctx, namespace, ref.Name)
	if err != nil || found == nil {
		return nil, err
	}
	return []map[string]any{found}, nil
}
