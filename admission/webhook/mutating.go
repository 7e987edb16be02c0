package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
)

// Mutating is the plug-in MutatingAdmissionWebhook. It's safe for concurrent use.
type Mutating struct{ plugin }

// NewMutating returns the plug-in.
func NewMutating(c Config) *Mutating {
	m := &Mutating{plugin{Config: c, mutating: true, step: "admit", failedOpen: "failed-open.mutation"}}
	derive(&m.plugin, "mutatingwebhookconfigurations", func(c *admissionregistrationv1.MutatingWebhookConfiguration) (string, []admissionregistrationv1.MutatingWebhook) {
		return c.Name, c.Webhooks
	})
	return m
}

// Admit lets the webhooks change an object, each as the one before it left it.
func (m *Mutating) Admit(ctx context.Context, r *request) (pass registry.Verdict, err error) {
	candidates := m.current.Get().about(&r.Attributes, m.Registry.Catalog())
	if len(candidates) == 0 {
		return pass, nil
	}
	q, round := match.NewRequest(r, m.Registry), match.RoundOf(ctx)
	for _, c := range candidates {
		chosen, err := m.chosen(ctx, q, c)
		if err != nil {
			return pass, err
		}
		if !chosen || !round.Calls(c.key()) {
			continue
		}
		if said, err := m.mutate(ctx, q, c, round); err != nil || said.Refused() {
			return said, err
		}
	}
	return pass, nil
}

// mutate calls one webhook, and makes the request's object what it says.
func (m *Mutating) mutate(ctx context.Context, q *match.Request, c candidate, round *match.Round) (registry.Verdict, error) {
	changed := false
	got := m.call(ctx, q, c, func(response *admissionv1.AdmissionResponse) error {
		if len(response.Patch) == 0 {
			return nil
		}
		operations, err := jsonpatch.DecodePatch(response.Patch)
		switch {
		case err != nil:
			return fmt.Errorf("received undecodable patch in webhook response: %w", err)
		case len(operations) == 0:
			return nil
		case *response.PatchType != admissionv1.PatchTypeJSONPatch:
			return fmt.Errorf("unsupported patch type %q", hookclient.Quote(string(*response.PatchType)))
		}
		if changed, err = m.apply(ctx, q, c, response.Patch); err != nil && !registry.Unable(err) {
			return &brokenPatchError{err}
		}
		if err == nil {
			m.annotate(ctx, c, "patch", patched{c.configuration, c.name, response.Patch, admissionv1.PatchTypeJSONPatch}, audit.AnnotateBody)
		}
		return err
	})
	m.noted(ctx, q, c, got.response)
	m.annotate(ctx, c, "mutation", mutation{c.configuration, c.name, changed}, audit.Annotate)
	if changed {
		round.Changed()
	}
	if c.again() {
		round.Called(c.key())
	}
	return got.said, got.err
}

// What the audit log has of a call: whether it changed the object, and where the log has bodies, how.
type (
	mutation struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}
	patched struct {
		Configuration string                `json:"configuration"`
		Webhook       string                `json:"webhook"`
		Patch         json.RawMessage       `json:"patch"`
		PatchType     admissionv1.PatchType `json:"patchType"`
	}
)

// annotate has the audit log note something about a call.
func (m *Mutating) annotate(ctx context.Context, c candidate, about string, what any, note func(ctx context.Context, key, value string)) {
	if audit.FromContext(ctx) == nil {
		return
	}
	if text, err := json.Marshal(what); err == nil {
		note(ctx, annotation(ctx, about, c), string(text))
	}
}

// apply applies a patch to the request's object as a webhook sees it, and tells whether that changed it.
func (m *Mutating) apply(ctx context.Context, q *match.Request, c candidate, patch []byte) (bool, error) {
	at := c.at
	before, _, err := q.Objects(ctx, at)
	switch {
	case err != nil:
		return false, err
	case before == nil:
		return false, fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", c.name)
	}
	doc, _, err := q.Texts(ctx, at)
	if err != nil {
		return false, err
	}
	patched, err := writes.PatchJSON(doc, patch)
	if err != nil {
		return false, err
	}
	next := &unstructured.Unstructured{}
	if e := m.Registry.Catalog().Endpoint(at.Resource); e != nil && at.Kind == e.SubresourceKind("") {
		next, err = reads.Of(e).ReadPatched(patched)
	} else {
		next.Object, err = object.ParseTree(patched)
	}
	if err != nil {
		return false, err
	}
	if equality.Semantic.DeepEqual(before.Object, next.Object) {
		return false, nil
	}
	return true, q.Set(ctx, at, next)
}
