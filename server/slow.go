package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// maxLoggedAgent is how much of a client's name for itself the log has, in bytes.
const maxLoggedAgent = 128

// traced returns a context in which it's noted where the time of a request goes. If the request is traced, its span is there.
func (h *handler) traced(ctx context.Context, w *response, r *http.Request) context.Context {
	return h.tells.tracer.Begin(ctx, &w.trace, tracing.About{
		Request: r, Namespace: chi.URLParam(r, "namespace"), Name: chi.URLParam(r, "name"),
		AuditID: w.auditID, Begun: w.begun, User: registry.UserFrom(ctx),
	})
}

// tellTime ends the trace of a request that was answered, and says in the log where the time went if it was slow.
func (h *handler) tellTime(w *response, r *http.Request, took time.Duration) {
	w.trace.Ended(w.code, w.bytes)
	if took < tracing.Slow || w.trace.Long {
		return
	}
	left, ok := h.tells.slow.Allow(time.Now(), wire.ClientOf(r))
	if !ok {
		return
	}
	line := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", shortPath(r)), slog.Int("code", w.code), slog.Int64("bytes", w.bytes),
		slog.Duration("took", took.Round(time.Millisecond)),
	}
	line = append(line, w.trace.Attributes(took)...)
	line = append(line, slog.String("user_agent", clip.To(r.UserAgent(), maxLoggedAgent)), slog.String("audit_id", w.auditID), slog.Int("not_logged_before", left))
	h.log.LogAttrs(r.Context(), slog.LevelInfo, "a request was slow", line...)
}
