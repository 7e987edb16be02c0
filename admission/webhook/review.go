package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// maxMessage bounds, in runes, what a refusal repeats of a webhook's message.
const maxMessage = 32 << 10

const (
	v1      = "v1"
	v1beta1 = "v1beta1"
)

// review is what a webhook is asked.
type review struct {
	request *admissionv1.AdmissionRequest
	version string // of AdmissionReview; "" if the webhook accepts none that is known
	body    []byte
}

// ask sends a review to a webhook, and returns its answer, whose form is right. An answer that allows nothing isn't an error
// here; every error is the webhook's failure, but for the end of ctx.
func (p *plugin) ask(ctx context.Context, c candidate, r *review) (*admissionv1.AdmissionResponse, error) {
	if r.version == "" {
		return nil, errors.New("could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)")
	}
	answer, err := p.post(ctx, c.hook, r.body)
	var got admissionv1.AdmissionReview
	if err == nil {
		err = hookclient.Decode(answer, reviewKind(r.version), &got)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to call webhook: %w", err)
	}
	response, err := checked(r.request, r.version, &got, p.mutating)
	if err != nil {
		return nil, fmt.Errorf("received invalid webhook response: %w", err)
	}
	return response, nil
}

// reviewKind is an AdmissionReview of a version.
func reviewKind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: admissionv1.GroupName, Version: version, Kind: "AdmissionReview"}
}

// newReview writes an AdmissionReview about a request for a webhook. An error is the server's: the object can't be converted.
func newReview(ctx context.Context, q *match.Request, c candidate) (*review, error) {
	version := hookclient.ReviewVersion(c.spec.AdmissionReviewVersions)
	obj, old, err := q.Texts(ctx, c.at)
	if err != nil {
		return nil, err
	}
	r := q.Describe(c.at)
	r.UID = uuid.NewUUID()
	r.Object.Raw, r.OldObject.Raw = obj, old
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: reviewKind(version).GroupVersion().String(), Kind: reviewKind(version).Kind}, Request: r,
	})
	return &review{r, version, body}, err
}

// post sends a body, and returns what was answered within the webhook's time.
func (p *plugin) post(parent context.Context, h *hook, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(parent, h.timeout)
	defer cancel()
	client, err := p.clients.begin(h.calls)
	if err != nil {
		return nil, err
	}
	defer client.Done()
	ctx, step := tracing.Begin(ctx, tracing.Webhooks, "webhook "+h.name)
	defer func() { step.End(err) }()
	answer, err := client.Post(ctx, body, url.Values{"timeout": {timeoutOf(ctx)}})
	switch {
	case err == nil:
		return answer, nil
	case parent.Err() != nil:
		return nil, parent.Err()
	case ctx.Err() != nil:
		return nil, errors.New(err.Error()) // of the call alone: the request goes on
	}
	return nil, err
}

// timeoutOf tells the webhook how long it has, in seconds begun.
func timeoutOf(ctx context.Context) string {
	deadline, _ := ctx.Deadline()
	return max((time.Until(deadline) + time.Second - 1).Truncate(time.Second), time.Second).String()
}

// checked returns the answer to a request, if its form is right.
func checked(r *admissionv1.AdmissionRequest, version string, got *admissionv1.AdmissionReview, mutating bool) (*admissionv1.AdmissionResponse, error) {
	response := got.Response
	if response == nil {
		return nil, errors.New("webhook response was absent")
	}
	patched, typed := len(response.Patch) > 0, response.PatchType != nil
	if version == v1beta1 { // webhooks of v1beta1 set neither type nor uid, and say nothing of the patch's type
		response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		if !mutating {
			response.Patch = nil
		}
		return response, nil
	}
	switch want, is := reviewKind(v1), got.GroupVersionKind(); {
	case response.UID != r.UID:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", r.UID, hookclient.Quote(string(response.UID)))
	case is != want:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, is)
	case !mutating && patched:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && typed:
		return nil, errors.New("validating webhook may not return response.patchType")
	case patched && !typed:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case typed && !patched:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case typed && *response.PatchType == "":
		return nil, errors.New(`webhook returned invalid response.patchType of ""`)
	}
	return response, nil
}

// refusal is what is answered to the client of a request that a webhook doesn't allow.
func refusal(hook string, result *metav1.Status) *apierrors.StatusError {
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
	why := cmp.Or(s.Message, string(s.Reason))
	s.Message = fmt.Sprintf("admission webhook %q denied the request", hook)
	if why == "" {
		s.Message += " without explanation"
	} else {
		s.Message += ": " + clip.To(why, maxMessage)
	}
	return &apierrors.StatusError{ErrStatus: s}
}
