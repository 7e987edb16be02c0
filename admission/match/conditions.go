package match

import (
	"context"
	"errors"
	"fmt"

	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/apiserver-lite/apiserver-lite/registry/expression"
)

// Conditions are compiled match conditions. They're safe for concurrent use.
type Conditions struct {
	set      *expression.Set
	programs []*expression.Program
	names    []string
}

// CompileConditions compiles match conditions; nil if there are none. One that doesn't compile is an error whenever it's
// evaluated: validation keeps such conditions out, but another server may have stored them.
func CompileConditions(conditions []admissionregistrationv1.MatchCondition) *Conditions {
	if len(conditions) == 0 {
		return nil
	}
	c := &Conditions{set: expression.New(false)}
	for _, condition := range conditions {
		p, _ := c.set.Compile(condition.Expression, expression.Condition)
		c.programs, c.names = append(c.programs, p), append(c.names, condition.Name)
	}
	return c
}

// Match tells whether all conditions are true. One that is false decides, whatever the others are. Otherwise a condition
// that can't be evaluated is an error, which failurePolicy is about.
func (c *Conditions) Match(ctx context.Context, in *expression.Input) (bool, error) {
	if c == nil {
		return true, nil
	}
	without := *in
	without.Namespace = nil // conditions see no namespace in Kubernetes
	run := c.set.Run(&without, celconfig.RuntimeCELCostBudgetMatchConditions)
	var failures []error
	for i, p := range c.programs {
		v, err := run.Evaluate(ctx, p)
		switch {
		case err != nil:
			failures = append(failures, fmt.Errorf("match condition %q: %w", c.names[i], err))
		case v == celtypes.False:
			return false, nil
		}
	}
	return true, errors.Join(failures...)
}
