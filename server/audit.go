package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/status"
)

// beginAudit notes for the audit log that a user asks for something. It comes when it's known who asks, and
// before anything is decided about the request. The request that it returns has its record in the context. Its
// error refuses the request. Without an audit log it does nothing.
func (h *handler) beginAudit(w *response, r *http.Request, u user.Info) (*http.Request, error) {
	if h.audit == nil {
		return r, nil
	}
	about := w.auditedRequest(r)
	about.Attributes.User = u
	record, err := h.audit.Begin(about)
	if err != nil {
		return nil, fmt.Errorf("the request is refused, because it can't be audited: %w", err)
	}
	if record == nil {
		return r, nil
	}
	w.audit = record
	if h.identity.may == nil { // otherwise whoever decides says so
		record.Annotate(audit.Decision, "allow")
		record.Annotate(audit.Reason, "")
	}
	return r.WithContext(audit.NewContext(r.Context(), record)), nil
}

// auditRefused notes a request that is about to be refused, before it's known who asks.
func (h *handler) auditRefused(w *response, r *http.Request) {
	if h.audit == nil {
		return
	}
	about := w.auditedRequest(r)
	about.Refused = true
	w.audit, _ = h.audit.Begin(about) // no error: it's refused in any case
}

func (w *response) auditedRequest(r *http.Request) audit.Request {
	return audit.Request{Request: r, ID: w.auditID, Received: w.begun, Attributes: access.AttributesOf(r)}
}

// auditRequest notes the body of a request for an object.
func (w *response) auditRequest(b body) {
	if w.audit == nil {
		return
	}
	document := b.data
	if b.protobuf != nil {
		document, _ = reads.Of(w.endpoint).JSONOf(w.named.Subresource, b.protobuf) // what can't be decoded is refused, and has no JSON
	}
	w.audit.Request(document)
}

// auditResponse notes an answer, as JSON or protobuf.
func (w *response) auditResponse(media negotiation.Media, document []byte) {
	if !w.audit.WantsResponse() {
		return
	}
	if media == negotiation.Protobuf {
		var err error
		if document, err = reads.Of(w.endpoint).JSONOf(w.named.Subresource, document); err != nil {
			w.audit.NoResponse()
			return
		}
	}
	w.audit.Response(document)
}

// auditStatus notes an answer that is a Status.
func (w *response) auditStatus(s metav1.Status) {
	if w.audit == nil {
		return
	}
	w.audit.Status(s)
	if w.audit.WantsResponse() {
		w.audit.Response(status.JSON(s))
	}
}

// auditedStream returns a function that writes what another does, and notes it as the answer.
func (w *response) auditedStream(media negotiation.Media, write func(io.Writer) error) func(io.Writer) error {
	if !w.audit.WantsResponse() {
		return write
	}
	return func(out io.Writer) error {
		var kept keeper
		err := write(io.MultiWriter(out, &kept))
		switch {
		case err != nil:
		case kept.Len() > audit.MaxBody:
			w.audit.NoResponse()
		default:
			w.auditResponse(media, kept.Bytes())
		}
		return err
	}
}

// keeper keeps what is written, but not much more than the audit log takes.
type keeper struct{ bytes.Buffer }

func (k *keeper) Write(p []byte) (int, error) {
	if k.Len() <= audit.MaxBody {
		k.Buffer.Write(p[:min(len(p), audit.MaxBody+1-k.Len())])
	}
	return len(p), nil
}
