package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Config is what webhooks are called with.
type Config struct {
	Registry   *registry.Registry
	Authorizer authorizer.UnconditionalAuthorizer // of the variable authorizer in match conditions
	Metrics    *Metrics
	Log        *slog.Logger
}

// request is a write that webhooks are asked about.
type request = registry.AdmissionRequest[unstructured.Unstructured]

// plugin is what the two kinds of webhooks have in common.
type plugin struct {
	Config
	mutating   bool
	step       string // of metrics: "admit" or "validating"
	failedOpen string // what the audit log calls a failure that lets a request pass
	current    *registry.Derived[*hooks]
	clients    clients
}

// annotation is the key of an audit annotation about a call.
func annotation(ctx context.Context, about string, c candidate) string {
	round := 0
	if match.RoundOf(ctx).Second() {
		round = 1
	}
	return fmt.Sprintf("%s.webhook.admission.k8s.io/round_%d_index_%d", about, round, c.index)
}

// derive has current made of the configurations of a kind.
func derive[T any](p *plugin, resource string, webhooks func(*T) (name string, all []admissionregistrationv1.MutatingWebhook)) {
	decoded := &registry.Decoded[T]{}
	prefix := storage.PrefixOf(admissionregistrationv1.GroupName, resource)
	p.clients.network = p.Registry.Network()
	p.current = registry.Derive(p.Registry, func(of func(storage.Prefix) []*kube.Object) *hooks {
		made := &hooks{}
		configurations := decoded.All(of(prefix), func(o *kube.Object, err error) {
			p.Log.Error("a webhook configuration can't be read, so its webhooks aren't called", "name", o.Name(), "error", err)
		})
		for _, c := range configurations {
			name, all := webhooks(c)
			for i := range all {
				made.all = append(made.all, newHook(name, &all[i]))
			}
		}
		p.clients.keep(made.all)
		p.Metrics.keep(p.step, made.all)
		return made
	}, prefix)
}

// Concerns tells whether a webhook has rules about a request.
func (p *plugin) Concerns(a *registry.Attributes) bool {
	return len(p.current.Get().about(a, p.Registry.Catalog())) > 0
}

// Close ends the connections to webhooks.
func (p *plugin) Close() error { return p.clients.Close() }

// chosen tells whether a webhook's selectors and match conditions choose a request. If they can't tell, the request is
// answered with the error, which is a Status or storage's.
func (p *plugin) chosen(ctx context.Context, q *match.Request, c candidate) (bool, error) {
	if c.err != nil {
		return false, apierrors.NewInternalError(c.err)
	}
	selected, err := q.Selected(ctx, c.namespaces, c.objects)
	if err != nil || !selected {
		return false, err
	}
	if len(c.spec.MatchConditions) == 0 {
		return true, nil
	}
	in, err := q.Input(ctx, c.at, p.Authorizer)
	if err != nil {
		return false, err
	}
	matches, err := c.conditions().Match(ctx, in)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, ctx.Err()
	case registry.Unable(err):
		return false, err
	case err != nil && c.ignores():
		p.Metrics.conditionFailed(c.hook, p.step, q)
		return false, nil
	case err != nil:
		p.Metrics.conditionFailed(c.hook, p.step, q)
		return false, apierrors.NewForbidden(q.Resource.GroupResource(), q.Path.Name, err)
	case !matches:
		p.Metrics.excluded(c.hook, p.step, q)
	}
	return matches, nil
}

// answer is what a webhook says of a request.
type answer struct {
	response *admissionv1.AdmissionResponse // nil if the call failed
	said     registry.Verdict
	err      error // why it couldn't be called at all
}

// call asks a webhook, lets take make use of an answer that allows the request, and decides what a failure means. take may be
// nil. Its error is a failure of the webhook, unless the server is unable to go on.
func (p *plugin) call(ctx context.Context, q *match.Request, c candidate, take func(*admissionv1.AdmissionResponse) error) answer {
	if !c.mayRun(q.DryRun) {
		return p.refused(q, c, time.Now(), nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", c.name)))
	}
	began := time.Now()
	review, err := newReview(ctx, q, c)
	if err != nil {
		p.Metrics.called(c.hook, p.step, q, outcome{took: time.Since(began), err: err})
		return answer{err: err}
	}
	response, err := p.ask(ctx, c, review)
	if err == nil && !response.Allowed {
		return p.refused(q, c, began, response, refusal(c.name, response.Result))
	}
	if err == nil && take != nil {
		err = take(response)
	}
	var broken *brokenPatchError
	switch {
	case ctx.Err() != nil:
		return answer{err: ctx.Err()}
	case registry.Unable(err):
		return answer{err: err}
	case errors.As(err, &broken):
		return p.refused(q, c, began, nil, broken.status())
	case err == nil:
		p.Metrics.called(c.hook, p.step, q, outcome{took: time.Since(began)})
		return answer{response: response}
	}
	return p.failed(ctx, q, c, began, fmt.Errorf("failed calling webhook %q: %w", c.name, err))
}

// brokenPatchError is that of a patch that can be read, and that leaves no object that may be taken. In Kubernetes it's the server's
// failure, and not the webhook's: failurePolicy isn't asked.
type brokenPatchError struct{ cause error }

func (e *brokenPatchError) Error() string { return e.cause.Error() }

// status is what is answered.
func (e *brokenPatchError) status() error {
	var status apierrors.APIStatus
	if errors.As(e.cause, &status) && status.Status().Code == http.StatusInternalServerError {
		return e.cause
	}
	return apierrors.NewInternalError(e.cause)
}

// refused is the answer that refuses a request.
func (p *plugin) refused(q *match.Request, c candidate, began time.Time, response *admissionv1.AdmissionResponse, why error) answer {
	p.Metrics.called(c.hook, p.step, q, outcome{took: time.Since(began), err: why})
	return answer{response: response, said: registry.Refuse(why)}
}

// failed is the answer of a webhook that couldn't be called, or whose answer is of no use: failurePolicy decides.
func (p *plugin) failed(ctx context.Context, q *match.Request, c candidate, began time.Time, why error) answer {
	p.Metrics.called(c.hook, p.step, q, outcome{time.Since(began), why, true})
	if c.ignores() {
		p.Log.Warn("an admission webhook failed, and its failurePolicy lets requests pass", "webhook", c.name, "configuration", c.configuration, "error", why)
		audit.Annotate(ctx, annotation(ctx, p.failedOpen, c), c.name)
		return answer{}
	}
	p.Log.Warn("an admission webhook failed, and its failurePolicy refuses requests", "webhook", c.name, "configuration", c.configuration, "error", why)
	return answer{said: registry.Refuse(apierrors.NewInternalError(why))}
}

// noted passes on what an answer has for the audit log and for the client.
func (p *plugin) noted(ctx context.Context, q *match.Request, c candidate, response *admissionv1.AdmissionResponse) {
	if response == nil {
		return
	}
	for key, value := range response.AuditAnnotations {
		audit.Annotate(ctx, c.name+"/"+key, value)
	}
	for _, w := range response.Warnings {
		q.Warn(w)
	}
}
