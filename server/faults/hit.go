package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// Hit is the fault that a request has met.
type Hit struct {
	rule    *armed
	kind    string
	what    string        // as the log has it
	request int64         // which of the rule's it is
	delay   time.Duration // that was drawn
	version int64         // of a stale list
}

// errCut is why a connection is closed.
var errCut = wire.Gone(errors.New("a rule for faults cuts the connection"))

// Serve serves a request with its fault. serve does what is done without one, with the ResponseWriter that it's given. An error is the Status to answer
// with, whatever serve has answered, or wire.ErrGone if the connection is to be closed.
func (h *Hit) Serve(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request)) error {
	switch h.kind {
	case kindStatus:
		if h.rule.Status.After {
			serve(&withheld{ResponseWriter: w, header: http.Header{}}, r)
		}
		return h.status()
	case kindDelay:
		if err := wait(r.Context(), h.delay); err != nil {
			return err
		}
	case kindCut:
		return h.cut(w, r, serve)
	case kindWatch:
		r = r.WithContext(context.WithValue(r.Context(), hitKey{}, h))
	case kindStale:
		r = h.stale(r)
	}
	serve(w, r)
	return nil
}

// wait returns after a delay, or with the error of ctx, which ends when the client leaves or the server closes.
func wait(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-ctx.Done():
		return context.Canceled
	}
}

// status returns the Status of a fault.
func (h *Hit) status() error {
	s := h.rule.Status
	done := "nothing was done"
	if s.After {
		done = "the request was done, and this comes in the place of its answer"
	}
	err := registry.Refusal(s.Code, reasons[s.Code], fmt.Sprintf("the rule %s for faults answers so on purpose; %s", h.rule.name, done))
	after := s.RetryAfterSeconds
	if s.Code == http.StatusTooManyRequests {
		after = max(after, 1)
	}
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: after, Causes: []metav1.StatusCause{{Type: Cause, Message: h.rule.name}}}
	return err
}

// Cause is the type of the cause by which a client knows that a Status is a fault. Its message is the name of the rule.
const Cause metav1.CauseType = "FaultInjected"

// cut closes a connection.
func (h *Hit) cut(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request)) error {
	switch h.rule.Cut {
	case CutBefore:
		serve(&withheld{ResponseWriter: w, header: http.Header{}}, r)
	case CutMiddle:
		serve(&torn{ResponseWriter: w}, r)
	case CutAfter:
		if r.ProtoMajor > 1 { // a GOAWAY, with which the connection ends after the answer
			w.Header().Set("Connection", "close")
		}
		whole := &counted{ResponseWriter: w}
		serve(whole, r)
		return whole.closeAfter(r)
	}
	return errCut
}

// stale returns a request for the list as it was at a version.
func (h *Hit) stale(r *http.Request) *http.Request {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return r // it's refused
	}
	query.Set("resourceVersion", strconv.FormatInt(h.version, 10))
	query.Set("resourceVersionMatch", "Exact")
	old := *r
	at := *r.URL
	old.URL, at.RawQuery = &at, query.Encode()
	return &old
}

// withheld is an answer that nobody gets.
type withheld struct {
	http.ResponseWriter
	header http.Header
}

// Header is that of the answer alone.
func (w *withheld) Header() http.Header { return w.header }

// WriteHeader does nothing.
func (w *withheld) WriteHeader(int) {}

// Write takes everything.
func (w *withheld) Write(p []byte) (int, error) { return len(p), nil }

// FlushError does nothing.
func (w *withheld) FlushError() error { return nil }

// Unwrap is for the deadlines of http.ResponseController.
func (w *withheld) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// torn is an answer of which the client gets a part: half of what is written first.
type torn struct{ http.ResponseWriter }

func (w *torn) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p[:len(p)/2])
	if err == nil {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	if err == nil {
		err = errCut
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *torn) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// counted is an answer of which it's remembered how it's framed.
type counted struct {
	http.ResponseWriter
	code int
}

func (w *counted) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *counted) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// closeAfter sends what there is of an answer and closes its connection. net/http would tell the client so. Over HTTP/2 it does.
func (w *counted) closeAfter(r *http.Request) error {
	if r.ProtoMajor > 1 {
		return nil
	}
	control := http.NewResponseController(w.ResponseWriter)
	if err := control.Flush(); err != nil {
		return errCut
	}
	conn, out, err := control.Hijack()
	if err != nil {
		return errCut
	}
	defer conn.Close()
	empty := r.Method == http.MethodHead || w.code == http.StatusNoContent || w.code == http.StatusNotModified
	if r.ProtoAtLeast(1, 1) && !empty && w.Header().Get("Content-Length") == "" {
		_, _ = out.WriteString("0\r\n\r\n") // the last chunk; an error means that the client is gone
	}
	_ = out.Flush() // likewise
	return nil
}
