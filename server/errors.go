package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// errUnknownPath is what kube-apiserver says about paths that it doesn't serve: registry.ErrNotServed without its empty details.
var errUnknownPath = status.Error(http.StatusNotFound, metav1.StatusReasonNotFound, registry.ErrNotServed.Error())

// noPage answers as kube-apiserver does at a path that leads to nothing of the API, such as a group that isn't served.
func noPage(w *response) error {
	w.writeText(http.StatusNotFound, "404 page not found\n")
	return nil
}

// fail answers with the error: as the Status it is, or as the one that its kind asks for (see statusOf). Any other
// error becomes "internal error", with the cause in the log. An answer that has begun is cut off instead, so that the
// client doesn't take it for whole.
func (w *response) fail(r *http.Request, err error) {
	var refused *status.Refusal
	switch {
	case errors.Is(err, wire.ErrGone):
		w.end.cutOff = true
	case w.code != 0:
		w.internal(r, err)
		w.end.cutOff = true
	case errors.Is(err, registry.ErrEnded):
		w.answerEnded(r)
	default:
		if errors.As(err, &refused) {
			w.end.refused = refused.Name
		}
		w.answerStatus(r, w.statusOf(r, err))
	}
}

// answerEnded answers a request whose time is over as the filter does that kube-apiserver has around all else: with a Status that doesn't say it is
// one, as text.
func (w *response) answerEnded(r *http.Request) {
	if w.callBack(r, registry.ErrEnded.ErrStatus) {
		return
	}
	for _, name := range []string{"ETag", flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID, flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID} {
		w.Header().Del(name)
	}
	body, err := json.Marshal(registry.ErrEnded.ErrStatus)
	if err != nil {
		panic(err) // metav1.Status always marshals
	}
	w.writeText(http.StatusGatewayTimeout, string(body)+"\n")
}

// answerStatus answers with a Status, in the form that the client accepts.
func (w *response) answerStatus(r *http.Request, answer metav1.Status) {
	w.Header().Del("ETag") // of the answer that this is instead of
	w.auditStatus(answer)
	if w.callBack(r, answer) {
		return
	}
	if answer.Details != nil && answer.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(answer.Details.RetryAfterSeconds)))
	}
	media, err := negotiation.Negotiate(r.Header.Values("Accept"), negotiation.Message)
	if err != nil { // as of who wants a Table: indented, which is also the form of the 406 itself
		vary(w.Header(), "Accept, Accept-Encoding")
		if err := w.writeIndented(r, int(answer.Code), status.JSON(answer)); err != nil {
			w.fail(r, err)
		}
		return
	}
	var body []byte
	if media == negotiation.Protobuf {
		body = kubeproto.AppendStatus(nil, status.Message(answer))
	} else {
		body = status.JSON(answer)
	}
	if err := w.writeObject(r, int(answer.Code), media, body); err != nil {
		w.fail(r, err)
	}
}

// statusOf returns the Status that an error becomes. A Status 500 that says internal error is logged, too: what failed is in
// the server, or in a webhook that it calls; a fault is in its own. A 507 isn't logged: a full disk would fill its own log.
func (w *response) statusOf(r *http.Request, err error) metav1.Status {
	var known apierrors.APIStatus
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &known) && known.Status().Code >= 400:
		if s := known.Status(); s.Code == http.StatusInternalServerError && s.Reason == metav1.StatusReasonInternalError && !apierrors.HasStatusCause(err, faults.Cause) {
			w.internal(r, err)
		}
		return known.Status()
	case errors.As(err, &tooLarge):
		return status.Error(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			"the body is larger than "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes").ErrStatus
	case errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded):
		return status.Error(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the body did not arrive in time").ErrStatus
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			"the request was not done in time; if it was a write, it may or may not have happened").ErrStatus
	case errors.Is(err, context.Canceled): // the client is gone, or we are about to be
		return status.Error(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the request was cancelled").ErrStatus
	}
	w.internal(r, err)
	return w.internalStatus()
}

// internalStatus says nothing about the cause, which is in the log.
func (w *response) internalStatus() metav1.Status {
	return status.Error(http.StatusInternalServerError, metav1.StatusReasonInternalError,
		"internal error; the server's log has the cause under the id "+w.auditID).ErrStatus
}

// internal logs what isn't the client's business.
func (w *response) internal(r *http.Request, err error) {
	w.log.ErrorContext(r.Context(), "internal error", "audit_id", w.auditID, "method", r.Method, "path", shortPath(r), "error", err)
}
