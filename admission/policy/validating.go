package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/expression"
)

// Kubernetes' bounds of what goes into the audit log.
const (
	maxAuditedFailures = 50
	maxAuditedValue    = 10 << 10 // bytes
)

// Validating is the plug-in ValidatingAdmissionPolicy. It's safe for concurrent use.
type Validating struct {
	config   Config
	policies *registry.Derived[*policies[rules]]
}

// rules are a ValidatingAdmissionPolicy's own expressions.
type rules struct {
	validations []rule
	annotations []annotation
}

// rule is a validation.
type rule struct {
	admissionregistrationv1.Validation
	condition *expression.Program
	message   *expression.Program // nil for none
}

type annotation struct {
	key   string
	value *expression.Program
}

// NewValidating returns the plug-in.
func NewValidating(c Config) *Validating {
	return &Validating{c, derive(c, &c.Metrics.validating, kind[admissionregistrationv1.ValidatingAdmissionPolicy, admissionregistrationv1.ValidatingAdmissionPolicyBinding, rules]{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", newValidating, newValidatingBinding,
	})}
}

func newValidating(stored *admissionregistrationv1.ValidatingAdmissionPolicy) *policy[rules] {
	spec := &stored.Spec
	p := &policy[rules]{
		name: stored.Name, lenient: isIgnore(spec.FailurePolicy), params: spec.ParamKind,
		selection: constraints(spec.MatchConstraints), conditions: spec.MatchConditions, variables: spec.Variables,
	}
	p.lazily(func(set *expression.Set) (own rules) {
		for _, v := range spec.Validations {
			r := rule{Validation: v, condition: program(set, v.Expression, expression.Condition)}
			if v.MessageExpression != "" {
				r.message = program(set, v.MessageExpression, expression.Message)
			}
			own.validations = append(own.validations, r)
		}
		for _, a := range spec.AuditAnnotations {
			own.annotations = append(own.annotations, annotation{a.Key, program(set, a.ValueExpression, expression.Annotation)})
		}
		return own
	})
	return p
}

func newValidatingBinding(stored *admissionregistrationv1.ValidatingAdmissionPolicyBinding) (policy string, b *binding) {
	spec := &stored.Spec
	return spec.PolicyName, &binding{stored.Name, spec.ParamRef, newSelection(spec.MatchResources), spec.ValidationActions}
}

func isIgnore(p *admissionregistrationv1.FailurePolicyType) bool {
	return p != nil && *p == admissionregistrationv1.Ignore
}

// Concerns tells whether a policy may be about a request.
func (v *Validating) Concerns(a *registry.Attributes) bool {
	return v.policies.Get().concern(a, v.config.Registry)
}

// Validate refuses an object if a policy does. All policies are asked, and the answer is the first refusal.
func (v *Validating) Validate(ctx context.Context, r *admissionRequest) (registry.Verdict, error) {
	out := &outcome{request: v.config.request(r)}
	for _, p := range v.policies.Get().all {
		out.judge(ctx, p)
	}
	out.audit(ctx)
	if err := cmp.Or(ctx.Err(), out.unable); err != nil {
		return registry.Verdict{}, err
	}
	return registry.Refuse(out.refusal()), nil
}

// outcome is what policies say of a request.
type outcome struct {
	*request
	denied   []denial
	failures []auditedFailure // for the audit log
	unable   error            // why the server can't tell what policies say; see registry.Unable
}

// denial is why a request isn't valid by a policy.
type denial struct {
	policy, binding string // binding is "" if the policy itself can't be evaluated
	message         string
	reason          metav1.StatusReason // "" for Invalid
}

// auditedFailure is a validation that failed, as Kubernetes writes it into the audit log.
type auditedFailure struct {
	Message           string                                     `json:"message"`
	Policy            string                                     `json:"policy"`
	Binding           string                                     `json:"binding"`
	ExpressionIndex   int                                        `json:"expressionIndex"`
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// judge evaluates a policy for each of its bindings and their parameters.
func (o *outcome) judge(ctx context.Context, p bound[rules]) {
	fail := func(binding, what string, err error) {
		if registry.Unable(err) {
			o.unable = err
		} else if !p.lenient {
			o.denied = append(o.denied, denial{policy: p.name, binding: binding, message: what + err.Error()})
		}
	}
	noted := notes{}
	eachBinding(ctx, o.request, p, fail, func(b *binding, at match.Place, all []map[string]any) {
		for _, params := range all {
			in, err := o.input(ctx, at, params)
			if err != nil {
				fail(b.name, "failed to configure binding: failed to convert object version: ", err)
				break
			}
			o.apply(p.name, b, evaluate(ctx, p.policy, in, noted))
		}
	})
	noted.publish(ctx, p.name)
}

// failure is a validation that failed, or that couldn't be evaluated.
type failure struct {
	index   int // of the expression
	message string
	reason  metav1.StatusReason
	always  bool  // refuses whatever the binding's actions are
	err     error // why it couldn't be evaluated
	ignored bool  // it couldn't, and the policy lets the request pass
	took    time.Duration
}

// apply does what a binding says is to be done about failures.
func (o *outcome) apply(policy string, b *binding, failures []failure) {
	for _, f := range failures {
		if registry.Unable(f.err) {
			o.unable = f.err
			continue
		}
		deny := denial{policy, b.name, f.message, f.reason}
		counted := func(action string) {
			o.config.Metrics.validating.checked(f.took, policy, b.name, errorType(f.err), action)
		}
		if f.ignored {
			counted("allow")
			continue
		}
		if f.always {
			o.denied = append(o.denied, deny)
			counted("deny")
			continue
		}
		for _, action := range b.actions {
			counted(strings.ToLower(string(action)))
			switch action {
			case admissionregistrationv1.Deny:
				o.denied = append(o.denied, deny)
			case admissionregistrationv1.Audit:
				o.failures = append(o.failures, auditedFailure{f.message, policy, b.name, f.index, b.actions})
			case admissionregistrationv1.Warn:
				o.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", policy, b.name, f.message))
			}
		}
	}
}

// evaluate evaluates a policy for one set of parameters. What it has for the audit log goes into noted.
func evaluate(ctx context.Context, p *policy[rules], in *expression.Input, noted notes) (failures []failure) {
	began := time.Now()
	failed := func(err error) []failure {
		return []failure{{message: err.Error(), err: err, ignored: p.lenient, took: time.Since(began)}}
	}
	c := p.compiled()
	if ok, err := c.conditions.Match(ctx, in); err != nil {
		return failed(err)
	} else if !ok {
		return nil
	}
	run := c.set.Run(in, celconfig.RuntimeCELCostBudget)
	for i, r := range c.own.validations {
		began = time.Now()
		v, err := run.Evaluate(ctx, r.condition)
		switch {
		case errors.Is(err, expression.ErrBudget):
			return failed(err)
		case err != nil:
			failures = append(failures, failed(err)...)
		case v != celtypes.True:
			message, err := messageOf(ctx, run, &r)
			if err != nil {
				failures = append(failures, failed(err)...)
				continue
			}
			reason := metav1.StatusReasonInvalid
			if r.Reason != nil {
				reason = *r.Reason
			}
			failures = append(failures, failure{index: i, message: message, reason: reason, took: time.Since(began)})
		}
	}
	if len(c.own.annotations) == 0 {
		return failures
	}
	return append(failures, annotate(ctx, p, c, in, noted)...)
}

// messageOf returns what is said about a validation that failed: what the message's expression makes, if that is one line of
// acceptable length, or else the message, or else the expression. The expression is only evaluated here, where it's needed.
func messageOf(ctx context.Context, run *expression.Run, r *rule) (string, error) {
	if r.message != nil {
		v, err := run.Evaluate(ctx, r.message)
		if errors.Is(err, expression.ErrBudget) {
			return "", fmt.Errorf("failed messageExpression: %w", err)
		}
		if err == nil {
			text, _ := v.Value().(string)
			text = strings.TrimSpace(text)
			if text != "" && len(text) <= celconfig.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(text, "\n") {
				return text, nil
			}
		}
	}
	if text := strings.TrimSpace(r.Message); text != "" {
		return text, nil
	}
	return "failed expression: " + strings.TrimSpace(r.Expression), nil
}

// annotate evaluates a policy's audit annotations. One that can't be evaluated refuses the request, whatever the binding's
// actions are.
func annotate(ctx context.Context, p *policy[rules], c *compiled[rules], in *expression.Input, noted notes) (failures []failure) {
	run := c.set.Run(in, celconfig.RuntimeCELCostBudget)
	for _, a := range c.own.annotations {
		began := time.Now()
		v, err := run.Evaluate(ctx, a.value)
		if err != nil {
			if !p.lenient {
				failures = append(failures, failure{message: err.Error(), always: true, err: err, took: time.Since(began)})
			}
			if errors.Is(err, expression.ErrBudget) {
				return failures
			}
			continue
		}
		if text, ok := v.Value().(string); ok {
			noted.add(a.key, strings.TrimSpace(text))
		}
	}
	return failures
}

// notes are a policy's audit annotations: the values of each key, without repetition.
type notes map[string][]string

func (n notes) add(key, value string) {
	if len(value) > maxAuditedValue {
		value = value[:maxAuditedValue]
	}
	if value != "" && !slices.Contains(n[key], value) {
		n[key] = append(n[key], value)
	}
}

func (n notes) publish(ctx context.Context, policy string) {
	for key, values := range n {
		audit.Annotate(ctx, policy+"/"+key, strings.Join(values, ", "))
	}
}

// audit notes the failures that bindings want in the audit log.
func (o *outcome) audit(ctx context.Context) {
	if len(o.failures) == 0 {
		return
	}
	text, err := json.Marshal(o.failures[:min(len(o.failures), maxAuditedFailures)])
	if err != nil {
		o.config.Log.Error("failures of admission policies can't be written to the audit log", "error", err)
		return
	}
	audit.Annotate(ctx, "validation.policy.admission.k8s.io/validation_failure", string(text))
}

// refusal returns the first denial as a Status; nil if there is none.
func (o *outcome) refusal() error {
	if len(o.denied) == 0 {
		return nil
	}
	first := o.denied[0]
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", first.policy, first.binding, first.message)
	if first.binding == "" {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", first.policy, first.message)
	}
	refused := apierrors.NewForbidden(o.Resource.GroupResource(), o.Told(), errors.New(message))
	s := &refused.ErrStatus
	s.Reason = first.reason
	s.Reason = cmp.Or(s.Reason, metav1.StatusReasonInvalid)
	s.Code = codeOf(s.Reason)
	s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Message: message})
	return refused
}

// codeOf returns the code of the reasons that a validation may have.
func codeOf(reason metav1.StatusReason) int32 {
	switch reason {
	case metav1.StatusReasonForbidden:
		return http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		return http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusUnprocessableEntity
}
