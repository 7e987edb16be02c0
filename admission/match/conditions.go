package match

import (
	"context"
	"errors"

	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/apiserver-lite/apiserver-lite/registry/expression"
)

// Conditions are compiled match conditions of a webhook or a policy. They're safe for concurrent use. The zero Conditions
// are none.
type Conditions struct {
	set      *expression.Set
	programs []*expression.Program
}

// CompileConditions compiles match conditions in a Set. One that doesn't compile is an error whenever it's evaluated:
// validation keeps such conditions out, but another server may have stored them.
func CompileConditions(set *expression.Set, conditions []admissionregistrationv1.MatchCondition) Conditions {
	c := Conditions{set: set}
	for _, condition := range conditions {
		p, _ := set.Compile(condition.Expression, expression.Condition)
		c.programs = append(c.programs, p)
	}
	return c
}

// Match tells whether all conditions are true. One that is false decides, whatever the others are. Otherwise a condition
// that can't be evaluated is an error, which failurePolicy is about. So are conditions that cost too much together.
func (c Conditions) Match(ctx context.Context, in *expression.Input) (bool, error) {
	if len(c.programs) == 0 {
		return true, nil
	}
	without := *in
	without.Namespace = nil // conditions see no namespace in Kubernetes
	run := c.set.Run(&without, celconfig.RuntimeCELCostBudgetMatchConditions)
	var failures []error
	for _, p := range c.programs {
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
	return true, utilerrors.NewAggregate(failures)
}
