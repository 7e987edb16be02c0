package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

// maxMessage bounds, in runes, what a refusal repeats of a webhook's message.
const maxMessage = 32 << 10

const (
	v1      = "v1"
	v1beta1 = "v1beta1"
)

// callError is the failure of a call, about which failurePolicy decides.
type callError struct {
	hook  string
	cause error
}

func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.hook, e.cause)
}

func (e *callError) Unwrap() error { return e.cause }

// ask sends a request to a webhook, and returns its answer, whose form is right. An answer that allows nothing isn't an
// error here; every error is one of the call, but for a request that may not be sent, and the end of ctx.
func (p *plugin) ask(ctx context.Context, q *match.Request, c candidate) (*admissionv1.AdmissionResponse, error) {
	if !c.mayRun(q.DryRun) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", c.name))
	}
	version := reviewVersion(c.spec.AdmissionReviewVersions)
	if version == "" {
		return nil, &callError{c.name, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")}
	}
	r, body, err := newReview(ctx, q, c.at, version)
	if err != nil {
		return nil, err
	}
	answer, err := p.post(ctx, c.hook, body)
	if err != nil {
		return nil, err
	}
	response, err := checked(r, version, answer, p.mutating)
	if err != nil {
		return nil, &callError{c.name, fmt.Errorf("received invalid webhook response: %w", err)}
	}
	return response, nil
}

func reviewVersion(versions []string) string {
	for _, v := range versions {
		if v == v1 || v == v1beta1 {
			return v
		}
	}
	return ""
}

// newReview writes an AdmissionReview about a request at a place.
func newReview(ctx context.Context, q *match.Request, at match.Place, version string) (*admissionv1.AdmissionRequest, []byte, error) {
	obj, old, err := q.Objects(ctx, at)
	if err != nil {
		return nil, nil, unconverted(err)
	}
	r := q.Describe(at)
	r.UID = uuid.NewUUID()
	r.Object, r.OldObject = rawOf(obj), rawOf(old)
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.GroupName + "/" + version, Kind: "AdmissionReview"}, Request: r,
	}
	body, err := json.Marshal(review)
	return r, body, err
}

// rawOf is null of nil.
func rawOf(obj *unstructured.Unstructured) runtime.RawExtension {
	if obj == nil {
		return runtime.RawExtension{}
	}
	return runtime.RawExtension{Object: obj}
}

// post sends a body, and returns what was answered within the webhook's time.
func (p *plugin) post(parent context.Context, h *hook, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(parent, h.timeout)
	defer cancel()
	fail := func(err error) error { return &callError{h.name, fmt.Errorf("failed to call webhook: %w", err)} }
	client, err := p.clients.begin(h.calls)
	if err != nil {
		return nil, fail(err)
	}
	defer client.Done()
	answer, err := client.Post(ctx, body, url.Values{"timeout": {timeoutOf(ctx)}})
	switch {
	case err == nil:
		return answer, nil
	case parent.Err() != nil:
		return nil, parent.Err()
	case ctx.Err() != nil:
		return nil, fail(fmt.Errorf("no answer within %v: %w", h.timeout, ctx.Err()))
	}
	return nil, fail(err)
}

// timeoutOf tells the webhook how long it has, in whole seconds.
func timeoutOf(ctx context.Context) string {
	deadline, _ := ctx.Deadline()
	return max(time.Until(deadline).Round(time.Second), time.Second).String()
}

// checked returns the answer to a request, if its form is right. Its errors say what was expected, and nothing of what
// came.
func checked(r *admissionv1.AdmissionRequest, version string, answer []byte, mutating bool) (*admissionv1.AdmissionResponse, error) {
	if !utf8.Valid(answer) {
		return nil, errors.New("it isn't UTF-8")
	}
	var got admissionv1.AdmissionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(answer, &got); err != nil {
		return nil, fmt.Errorf("it isn't an AdmissionReview: %w", hookclient.WithoutValues(err))
	}
	response := got.Response
	if response == nil {
		return nil, errors.New("webhook response was absent")
	}
	typed := response.PatchType != nil
	if version == v1beta1 { // webhooks of v1beta1 set neither type nor uid, and say nothing of the patch's type
		if !mutating {
			response.Patch = nil
		}
		return response, nil
	}
	switch {
	case got.APIVersion != admissionv1.GroupName+"/v1" || got.Kind != "AdmissionReview":
		return nil, errors.New("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got another or none")
	case response.UID != r.UID:
		return nil, fmt.Errorf("expected response.uid=%q, got another or none", r.UID)
	case !mutating && len(response.Patch) > 0:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && typed:
		return nil, errors.New("validating webhook may not return response.patchType")
	case len(response.Patch) > 0 && !typed:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case typed && len(response.Patch) == 0:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case typed && *response.PatchType != admissionv1.PatchTypeJSONPatch:
		return nil, errors.New("webhook returned a response.patchType that isn't JSONPatch")
	}
	return response, nil
}

// refusal is what is answered to the client of a request that a webhook doesn't allow.
func refusal(hook string, result *metav1.Status) *registry.HookAnswer {
	s := metav1.Status{}
	if result != nil {
		s = *result
	}
	if s.Code < http.StatusBadRequest {
		s.Code = http.StatusBadRequest
	}
	if s.Code > 599 { // no HTTP status
		s.Code = http.StatusInternalServerError
	}
	if s.Status == "" || s.Status == metav1.StatusSuccess {
		s.Status = metav1.StatusFailure
	}
	why := s.Message
	if why == "" {
		why = string(s.Reason)
	}
	s.Message = fmt.Sprintf("admission webhook %q denied the request", hook)
	if why == "" {
		s.Message += " without explanation"
	} else {
		s.Message += ": " + clip.To(why, maxMessage)
	}
	return &registry.HookAnswer{StatusError: &apierrors.StatusError{ErrStatus: s}}
}
