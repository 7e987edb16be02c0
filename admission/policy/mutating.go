package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/expression"
)

// Mutating is the plug-in MutatingAdmissionPolicy. It's safe for concurrent use.
type Mutating struct {
	config   Config
	policies *registry.Derived[*policies[mutations]]
}

// mutations are a MutatingAdmissionPolicy's own expressions.
type mutations struct {
	patches   []mutation
	reinvoked bool // asked again when somebody has changed the object since
}

// mutation is an expression that makes a change, and how the change is made.
type mutation struct {
	program *expression.Program
	patch   patcher
}

// NewMutating returns the plug-in.
func NewMutating(c Config) *Mutating {
	return &Mutating{c, derive(c, &c.Metrics.mutating, kind[admissionregistrationv1.MutatingAdmissionPolicy, admissionregistrationv1.MutatingAdmissionPolicyBinding, mutations]{
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", newMutating, newMutatingBinding,
	})}
}

func newMutating(stored *admissionregistrationv1.MutatingAdmissionPolicy) *policy[mutations] {
	spec := &stored.Spec
	p := &policy[mutations]{
		name: stored.Name, lenient: isIgnore(spec.FailurePolicy), params: spec.ParamKind,
		selection: constraints(spec.MatchConstraints), conditions: spec.MatchConditions, variables: spec.Variables,
	}
	p.lazily(func(set *expression.Set) mutations {
		own := mutations{reinvoked: spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy}
		for _, m := range spec.Mutations {
			switch {
			case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
				own.patches = append(own.patches, mutation{program(set, m.ApplyConfiguration.Expression, expression.ApplyConfiguration), applyConfiguration})
			case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
				own.patches = append(own.patches, mutation{program(set, m.JSONPatch.Expression, expression.JSONPatch), applyJSONPatch})
			}
		}
		return own
	})
	return p
}

func newMutatingBinding(stored *admissionregistrationv1.MutatingAdmissionPolicyBinding) (policy string, b *binding) {
	spec := &stored.Spec
	return spec.PolicyName, &binding{name: stored.Name, params: spec.ParamRef, selection: newSelection(spec.MatchResources)}
}

// Concerns tells whether a policy may be about a request.
func (m *Mutating) Concerns(a *registry.Attributes) bool {
	return a.Operation != registry.Delete && m.policies.Get().concern(a, m.config.Registry)
}

// Admit lets the policies change an object. Which of them are about it is decided before the first of them changes it.
func (m *Mutating) Admit(ctx context.Context, r *admissionRequest) (pass registry.Verdict, err error) {
	if r.Object == nil {
		return pass, nil
	}
	c := &changes{request: m.config.request(r), round: match.RoundOf(ctx)}
	var all []invocation
	for _, p := range m.policies.Get().all {
		all = append(all, c.invocations(ctx, p)...)
	}
	for _, i := range all {
		c.invoke(ctx, i)
	}
	if err := cmp.Or(ctx.Err(), c.unable); err != nil {
		return pass, err
	}
	return registry.Refuse(c.refusal()), nil
}

// changes are what policies make of a request's object.
type changes struct {
	*request
	round  *match.Round
	failed []problem
	unable error // see registry.Unable
}

// problem is why a policy couldn't change an object.
type problem struct {
	policy, binding string // binding is "" if the policy itself can't be evaluated
	text            string
	reason          metav1.StatusReason // "" for Forbidden
}

func (p problem) String() string {
	if p.binding == "" {
		return fmt.Sprintf("policy %q denied request: %s", p.policy, p.text)
	}
	return fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", p.policy, p.binding, p.text)
}

// invocation is a policy that is to be evaluated for a binding and one set of parameters.
type invocation struct {
	*policy[mutations]
	binding string
	at      match.Place
	params  map[string]any
}

// key identifies an invocation in both rounds.
type key struct{ policy, binding, paramNamespace, paramName string }

func (i *invocation) key() key {
	k := key{policy: i.name, binding: i.binding}
	if metadata, ok := i.params["metadata"].(map[string]any); ok {
		k.paramNamespace, _ = metadata["namespace"].(string)
		k.paramName, _ = metadata["name"].(string)
	}
	return k
}

// fail notes a problem and what has caused it, unless the policy ignores that.
func (c *changes) fail(p *policy[mutations], is problem, cause error) {
	if registry.Unable(cause) {
		c.unable = cause
	} else if !p.lenient {
		c.failed = append(c.failed, is)
	}
}

// invocations returns what a policy is to be evaluated with.
func (c *changes) invocations(ctx context.Context, p bound[mutations]) (all []invocation) {
	fail := func(binding, what string, err error) {
		c.fail(p.policy, problem{policy: p.name, binding: binding, text: what + err.Error()}, err)
	}
	eachBinding(ctx, c.request, p, fail, func(b *binding, at match.Place, found []map[string]any) {
		for _, params := range found {
			all = append(all, invocation{p.policy, b.name, at, params})
		}
	})
	return all
}

// invoke lets a policy change the object: its mutations, one after the other. What goes wrong is noted.
func (c *changes) invoke(ctx context.Context, i invocation) {
	in, err := c.input(ctx, i.at, i.params)
	if err != nil {
		c.fail(i.policy, problem{policy: i.name, text: "failed to configure policy: " + err.Error()}, err)
		return
	}
	problem := problem{policy: i.name, binding: i.binding, reason: metav1.StatusReasonInvalid}
	expressions := i.compiled()
	if ok, err := expressions.conditions.Match(ctx, in); err != nil {
		problem.text = err.Error()
		c.fail(i.policy, problem, err)
		return
	} else if !ok || !c.round.Calls(i.key()) {
		return
	}
	before := c.Object
	for _, m := range expressions.own.patches {
		began, outcome := time.Now(), "no_error"
		err := c.mutate(ctx, &i, m)
		if err != nil {
			outcome = errorType(err)
		}
		c.config.Metrics.mutating.checked(time.Since(began), i.name, i.binding, outcome)
		if err != nil {
			problem.text = err.Error()
			c.fail(i.policy, problem, err)
		}
	}
	if c.Object != before && !equality.Semantic.DeepEqual(before, c.Object) {
		c.round.Changed()
	}
	if expressions.own.reinvoked {
		c.round.Called(i.key())
	}
}

// mutate makes one change. Each has a budget of its own, and sees the object as the one before left it.
func (c *changes) mutate(ctx context.Context, i *invocation, m mutation) error {
	in, err := c.input(ctx, i.at, i.params)
	if err != nil {
		return err
	}
	v, err := i.compiled().set.Run(in, celconfig.RuntimeCELCostBudget).Evaluate(ctx, m.program)
	if err != nil {
		return err
	}
	next, err := c.patched(i.at, &unstructured.Unstructured{Object: in.Object}, m, v)
	if err != nil || next == nil {
		return err
	}
	return c.Set(ctx, i.at, next)
}

// refusal is a Status with all problems; nil if there are none.
func (c *changes) refusal() error {
	if len(c.failed) == 0 {
		return nil
	}
	refused := apierrors.NewForbidden(c.Resource.GroupResource(), c.Told(), errors.New("admission request denied by policy"))
	s := &refused.ErrStatus
	s.Message = c.failed[0].String()
	if reason := c.failed[0].reason; reason != "" {
		s.Reason = reason
	}
	for _, p := range c.failed {
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Message: p.String()})
	}
	return refused
}
