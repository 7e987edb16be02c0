package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Tests wait with GET /debug/quiescent until the controllers have nothing left to do, instead of sleeping. Kubernetes has
// nothing like it.

const (
	// quiescentTimeout is for queries that don't say one: longer than what controllers do after a test, and short
	// enough that a test that hangs is told why.
	quiescentTimeout = 30 * time.Second
	// maxQuiescentTimeout is what a connection leaves for an answer. Who wants to wait longer asks again.
	maxQuiescentTimeout = readDeadline
)

// causePending is the type of the causes of a 504: one for each object about which something is left to do.
const causePending metav1.CauseType = "ControllerPending"

// quiescentPage is the answer when nothing is left to do.
type quiescentPage struct {
	ResourceVersion string             `json:"resourceVersion"` // everything up to it was acted on, and what followed
	Held            []controllers.Held `json:"held"`            // objects that are being deleted, and that others hold
	HeldMore        int                `json:"heldMore,omitempty"`
}

// serveQuiescent answers GET /debug/quiescent?resourceVersion=N&timeout=30s.
func (h *handler) serveQuiescent(w *response, r *http.Request) error {
	if r.Method != http.MethodGet {
		return methodNotAllowed(w, http.MethodGet, "only GET is served here")
	}
	rev, timeout, err := quiescentOptions(w.query)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	report, err := h.quiescent(ctx, rev)
	switch {
	case err == nil:
		return w.writePage(quiescentPage{report.Revision.String(), report.Held, report.HeldMore})
	case r.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return errPending(report, timeout)
	case r.Context().Err() != nil:
		return err // the request has ended, or the server
	}
	return h.registry.Failed(err)
}

// quiescentOptions reads the query. The revision is 0 for now.
func quiescentOptions(query url.Values) (rev storage.Revision, timeout time.Duration, err error) {
	timeout = quiescentTimeout
	for name, values := range query {
		text, bad := values[0], len(values) > 1
		switch name {
		case "resourceVersion":
			n, err := strconv.ParseUint(text, 10, 63)
			rev, bad = storage.Revision(n), bad || err != nil || n == 0
		case "timeout":
			d, err := time.ParseDuration(text)
			timeout, bad = d, bad || err != nil || d <= 0 || d > maxQuiescentTimeout
		default:
			bad = true
		}
		if bad {
			return 0, 0, status.BadRequest(fmt.Sprintf("%s=%s can't be used: "+
				"the parameters are resourceVersion, which some write was answered, and timeout, as 30s, of at most %v, each once",
				clip.Text(name), clip.Text(text), maxQuiescentTimeout))
		}
	}
	return rev, timeout, nil
}

// errPending says what is left to do.
func errPending(report controllers.Report, timeout time.Duration) error {
	err := status.Error(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("the controllers have something left to do after %v", timeout))
	err.ErrStatus.Details = &metav1.StatusDetails{}
	for _, p := range report.Pending {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: causePending, Message: p.Cause, Field: p.Object.String()})
	}
	return err
}
