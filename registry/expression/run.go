package expression

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/lazy"
	"k8s.io/apiserver/pkg/cel/library"
)

// ErrBudget is returned when a Run's budget is used up. Nothing more can be evaluated in it.
var ErrBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

// ErrCompilation is wrapped by the error of an expression that doesn't compile.
var ErrCompilation = errors.New("compilation error")

// Input is what expressions are evaluated with. The objects aren't changed.
type Input struct {
	Object, OldObject map[string]any // null where nil
	Params            map[string]any // likewise
	Request           *admissionv1.AdmissionRequest
	// Namespace returns the request's namespace, nil for none. It's called at the first use of namespaceObject. Nil: there's
	// none.
	Namespace func() (*corev1.Namespace, error)
	User      user.Info
	// Authorizer answers what expressions ask of `authorizer`.
	Authorizer authorizer.UnconditionalAuthorizer
}

// Run evaluates expressions of one Set for one request. It's for one goroutine.
type Run struct {
	set    *Set
	in     *Input
	ctx    context.Context // of the evaluation that is under way: variables are evaluated in it
	budget int64           // what is left

	object, oldObject, params, request, namespace, authz, requestResource, variables any // made at their first use
}

// Run begins an evaluation. budget is what all of it may cost, in apiserver's units.
func (s *Set) Run(in *Input, budget int64) *Run { return &Run{set: s, in: in, budget: budget} }

// Evaluate evaluates an expression of the Set. The error is ErrBudget when the budget is used up, wraps
// ErrCompilation if the expression doesn't compile, and else says which expression failed and why. If ctx ends,
// the evaluation fails.
func (r *Run) Evaluate(ctx context.Context, p *Program) (ref.Val, error) {
	if p.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCompilation, p.err)
	}
	r.ctx = ctx
	v, err := r.evaluate(ctx, p)
	if r.budget < 0 {
		return nil, ErrBudget
	}
	if err != nil {
		return nil, fmt.Errorf("expression '%s' resulted in error: %w", p.text, err)
	}
	return v, nil
}

// evaluate evaluates an expression or a variable, and takes what it cost from the budget.
func (r *Run) evaluate(ctx context.Context, p *Program) (ref.Val, error) {
	v, details, err := p.program.ContextEval(ctx, r)
	cost := uint64(math.MaxInt64)
	if details != nil && details.ActualCost() != nil {
		cost = min(cost, *details.ActualCost())
	}
	if r.budget >= 0 {
		r.budget -= int64(cost)
	}
	return v, err
}

// ResolveName and Parent make a Run an interpreter.Activation.
func (r *Run) ResolveName(name string) (any, bool) {
	switch name {
	case plugincel.ObjectVarName:
		return made(&r.object, func() any { return value(r.in.Object) }), true
	case plugincel.OldObjectVarName:
		return made(&r.oldObject, func() any { return value(r.in.OldObject) }), true
	case plugincel.ParamsVarName:
		return made(&r.params, func() any { return value(r.in.Params) }), true
	case plugincel.RequestVarName:
		return made(&r.request, func() any { return common.SchemalessTypedToVal(r.in.Request) }), true
	case plugincel.NamespaceVarName:
		return made(&r.namespace, r.namespaceObject), true
	case plugincel.AuthorizerVarName:
		return made(&r.authz, func() any { return library.NewAuthorizerVal(r.in.User, r.in.Authorizer) }), true
	case plugincel.RequestResourceAuthorizerVarName:
		return made(&r.requestResource, func() any {
			return library.NewResourceAuthorizerVal(r.in.User, r.in.Authorizer, resource{r.in.Request})
		}), true
	case plugincel.VariableVarName:
		return made(&r.variables, r.lazyVariables), true
	}
	return nil, false
}

// Parent returns nil: there are no other names.
func (r *Run) Parent() interpreter.Activation { return nil }

// made returns what is in a place, and makes it first if nothing is.
func made(place *any, make func() any) any {
	if *place == nil {
		*place = make()
	}
	return *place
}

// value is an object as CEL sees it.
func value(object map[string]any) any {
	if object == nil {
		return celtypes.NullValue
	}
	return celtypes.DefaultTypeAdapter.NativeToValue(object)
}

func (r *Run) namespaceObject() any {
	if r.in.Namespace == nil {
		return celtypes.NullValue
	}
	namespace, err := r.in.Namespace()
	if err != nil {
		return celtypes.WrapErr(err)
	}
	if namespace == nil {
		return celtypes.NullValue
	}
	return common.SchemalessTypedToVal(plugincel.CreateNamespaceObject(namespace))
}

// lazyVariables is a map whose values are evaluated when they're asked for, and kept.
func (r *Run) lazyVariables() any {
	all := lazy.NewMapValue(r.set.variables)
	for _, d := range r.set.defined {
		all.Append(d.name, func(*lazy.MapValue) ref.Val {
			if d.program.err != nil {
				return celtypes.NewErr("composited variable %q fails to compile: %w", d.name, d.program.err)
			}
			v, err := r.evaluate(r.ctx, d.program)
			if err != nil {
				return celtypes.NewErr("composited variable %q fails to evaluate: %w", d.name, err)
			}
			return v
		})
	}
	return all
}

// resource is what authorizer.requestResource asks about.
type resource struct{ *admissionv1.AdmissionRequest }

func (r resource) GetName() string        { return r.Name }
func (r resource) GetNamespace() string   { return r.Namespace }
func (r resource) GetSubresource() string { return r.RequestSubResource }
func (r resource) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource(*r.RequestResource)
}

var _ cel.Activation = (*Run)(nil)
