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
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
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
		return nil, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
	}
	answer, err := p.post(ctx, c.hook, r.body)
	if err != nil {
		return nil, fmt.Errorf("failed to call webhook: %w", err)
	}
	response, err := checked(r.request, r.version, answer, p.mutating)
	if err != nil {
		return nil, fmt.Errorf("received invalid webhook response: %w", err)
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

// newReview writes an AdmissionReview about a request for a webhook. An error is the server's: the object can't be converted.
func newReview(ctx context.Context, q *match.Request, c candidate) (*review, error) {
	version := reviewVersion(c.spec.AdmissionReviewVersions)
	obj, old, err := q.Objects(ctx, c.at)
	if err != nil {
		return nil, err
	}
	r := q.Describe(c.at)
	r.UID = uuid.NewUUID()
	r.Object, r.OldObject = rawOf(obj), rawOf(old)
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.GroupName + "/" + version, Kind: "AdmissionReview"}, Request: r,
	})
	return &review{r, version, body}, err
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
	client, err := p.clients.begin(h.calls)
	if err != nil {
		return nil, err
	}
	defer client.Done()
	answer, err := client.Post(ctx, body, url.Values{"timeout": {timeoutOf(ctx)}})
	switch {
	case err == nil:
		return answer, nil
	case parent.Err() != nil:
		return nil, parent.Err()
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %v: %v", h.timeout, ctx.Err()) // of the call alone: the request goes on
	}
	return nil, err
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
	return &apierrors.StatusError{ErrStatus: s}
}
