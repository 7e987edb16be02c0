// Package condition compiles and evaluates match conditions: the CEL expressions by which webhooks and policies say which
// requests they're about. It's one level below its users, because a configuration's conditions are checked when the
// configuration is written, and evaluated by admission.
//
// Nothing is compiled before the first condition is: the CEL environment alone takes some 10 ms. The package starts no
// goroutine. What one evaluation may cost is bounded by Kubernetes' budget for match conditions.
package condition

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// maxConditions is how many conditions one webhook or policy may have; Kubernetes' number.
const maxConditions = 64

// variables are what conditions see besides request, object and oldObject.
var variables = admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}

// compiler is made at its first use, for the whole process: it's expensive, and has no state but the environment.
var compiler = sync.OnceValue(func() admissioncel.Compiler {
	return admissioncel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// expression is a condition as the compiler takes it.
type expression struct {
	admissionregistrationv1.MatchCondition
}

func (e *expression) GetExpression() string { return e.Expression }

func (e *expression) ReturnTypes() []*cel.Type { return []*cel.Type{cel.BoolType} }

// Conditions are compiled match conditions. They're safe for concurrent use.
type Conditions struct {
	evaluator admissioncel.ConditionEvaluator
}

// Compile compiles conditions. One that doesn't compile is an error whenever it's evaluated: Validate keeps such
// conditions out, but an older server may have stored them.
func Compile(conditions []admissionregistrationv1.MatchCondition) *Conditions {
	results := make([]admissioncel.CompilationResult, len(conditions))
	for i, c := range conditions {
		results[i] = compiler().CompileCELExpression(&expression{c}, variables, environment.StoredExpressions)
	}
	return &Conditions{admissioncel.NewCondition(results)}
}

// Match tells whether all conditions are true of a request. One that is false decides, whatever the others are.
// Otherwise a condition that can't be evaluated is an error, which failurePolicy is about.
func (c *Conditions) Match(ctx context.Context, a *admission.VersionedAttributes, about metav1.GroupVersionResource, by authorizer.UnconditionalAuthorizer) (bool, error) {
	request := admissioncel.CreateAdmissionRequest(a.Attributes, about, metav1.GroupVersionKind(a.VersionedKind))
	bindings := admissioncel.OptionalVariableBindings{Authorizer: by}
	results, _, err := c.evaluator.ForInput(ctx, a, request, bindings, nil, celconfig.RuntimeCELCostBudgetMatchConditions)
	if err != nil {
		return false, err
	}
	var failures []error
	for _, r := range results {
		switch {
		case r.Error != nil:
			failures = append(failures, r.Error)
		case r.EvalResult == celtypes.False:
			return false, nil
		}
	}
	return true, errors.Join(failures...)
}

// Validate returns what is wrong with conditions that are written; stored are those that were stored before, which stay
// valid as they are. The rules and words are Kubernetes'.
func Validate(conditions, stored []admissionregistrationv1.MatchCondition, at *field.Path) (errs field.ErrorList) {
	if len(conditions) > maxConditions {
		errs = append(errs, field.TooMany(at, len(conditions), maxConditions))
	}
	names := map[string]bool{}
	for i, c := range conditions {
		at := at.Index(i)
		errs = append(errs, validateName(c.Name, at.Child("name"))...)
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		errs = append(errs, validateExpression(c, stored, at.Child("expression"))...)
	}
	return errs
}

func validateName(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	for _, problem := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(at, name, problem))
	}
	return errs
}

func validateExpression(c admissionregistrationv1.MatchCondition, stored []admissionregistrationv1.MatchCondition, at *field.Path) field.ErrorList {
	if c.Expression == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	mode := environment.NewExpressions
	for _, s := range stored {
		if s.Expression == c.Expression {
			mode = environment.StoredExpressions
		}
	}
	if err := compiler().CompileCELExpression(&expression{c}, variables, mode).Error; err != nil {
		return field.ErrorList{field.Invalid(at, c.Expression, fmt.Sprintf("compilation failed: %s", err.Detail))}
	}
	return nil
}
