package webhook

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry"
	builtin "github.com/apiserver-lite/apiserver-lite/registry/builtin/hooks"
)

// Validating is the plug-in ValidatingAdmissionWebhook. It's safe for concurrent use.
type Validating struct{ plugin }

// NewValidating returns the plug-in.
func NewValidating(c Config) *Validating {
	v := &Validating{plugin{Config: c, step: "validating", failedOpen: "failed-open.validating"}}
	derive(&v.plugin, "validatingwebhookconfigurations", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) (string, []admissionregistrationv1.MutatingWebhook) {
		return c.Name, builtin.AsMutating(c)
	})
	return v
}

// Validate asks all webhooks at once. The first refusal, in their order, is answered.
func (v *Validating) Validate(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	candidates := v.current.Get().about(&r.Attributes, v.Registry.Catalog())
	if len(candidates) == 0 {
		return pass, nil
	}
	q := match.NewRequest(r, v.Registry)
	var chosen []candidate
	for _, c := range candidates {
		ok, err := v.chosen(ctx, q, c)
		if err != nil {
			return pass, err
		}
		if ok {
			c.index = len(chosen)
			chosen = append(chosen, c)
		}
	}
	answers := make([]answer, len(chosen)) // each call has its place
	var calls sync.WaitGroup
	for i, c := range chosen {
		calls.Go(func() { answers[i] = v.judged(ctx, q, c) })
	}
	calls.Wait()
	first := answer{}
	for i, c := range chosen {
		v.noted(ctx, q, c, answers[i].response)
		if first.err == nil && !first.said.Refused() {
			first = answers[i]
		}
	}
	return first.said, first.err
}

// judged calls one webhook. It's run on a goroutine of its own, where nobody else would stop a panic.
func (v *Validating) judged(ctx context.Context, q *match.Request, c candidate) (got answer) {
	defer func() {
		if cause := recover(); cause != nil {
			v.Log.Error("calling an admission webhook panicked", "webhook", c.name, "panic", cause, "stack", string(debug.Stack()))
			got = answer{err: fmt.Errorf("admission webhook %q: internal error", c.name)}
		}
	}()
	return v.call(ctx, q, c, nil)
}
