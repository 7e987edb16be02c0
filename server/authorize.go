package server

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/bulk"
	"github.com/apiserver-lite/apiserver-lite/server/traffic"
)

// authorize refuses a request whose user may not make it, before anything is done for it: every request goes through here
// after identify, also one that leads nowhere. The error is 403, or 500 if nobody could tell. What was allowed is in w.Asks then, and nothing else is
// served (see allowed).
func (h *handler) authorize(w *response, r *http.Request) error {
	if h.may == nil {
		return nil
	}
	w.Asks = access.AttributesOf(r)
	w.Asks.User = registry.UserFrom(r.Context())
	if w.Asks.Verb == "watch" && access.NamesOne(w.Asks, r.URL.Path) && h.aggregator.Route(r.URL.Path) != nil {
		w.Asks.Verb = "get" // which another server answers it as
	}
	switch {
	case r.URL.Path == mergedPath && r.Method == http.MethodGet:
		return nil // each of its resources is asked about: see mayWatch
	case bulk.Takes(r) && !w.stranger:
		audit.Annotate(r.Context(), audit.Decision, "allow")
		audit.Annotate(r.Context(), audit.Reason, "each of its objects is asked about")
		return nil
	case r.URL.Path == traffic.Path:
		w.Asks.Path = metricsPath
	}
	err := h.decide(r.Context(), w.Asks)
	if err != nil {
		w.name(h.capacity.levels.Place(r, w.Asks)) // which the answer says, as if the request had taken a seat
	}
	return err
}

// decide returns nil if a user may do something, and else 403, or 500 if nobody allows it and somebody couldn't tell. The request's record of
// audit gets the decision.
func (h *handler) decide(ctx context.Context, asks *authorizer.AttributesRecord) error {
	decision, reason, err := h.may.Authorize(ctx, asks)
	switch {
	case decision == authorizer.DecisionAllow:
		audit.Annotate(ctx, audit.Decision, "allow")
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		audit.Annotate(ctx, audit.Reason, "internal error")
		return apierrors.NewInternalError(err)
	default:
		audit.Annotate(ctx, audit.Decision, "forbid")
	}
	audit.Annotate(ctx, audit.Reason, reason)
	if decision != authorizer.DecisionAllow {
		return access.Forbidden(asks, reason)
	}
	return nil
}

// allowed tells whether a target and a verb are what the request was allowed. They always are, unless a definition has a
// name that means something else in a path: "status", "watch" or "proxy".
func (h *handler) allowed(w *response, t target, verb string) bool {
	a := w.Asks
	if h.may == nil {
		return true
	}
	namespace := t.Namespace
	if t.endpoint.Group == "" && t.endpoint.Plural == "namespaces" {
		namespace = t.Name // a namespace is in itself
	}
	named := a.Name == t.Name || t.Name == "" && (verb == "list" || verb == "watch") // by a field selector, then
	return a.ResourceRequest && a.APIGroup == t.endpoint.Group && a.APIVersion == t.endpoint.Version && a.Resource == t.endpoint.Plural &&
		a.Subresource == t.Subresource && a.Namespace == namespace && named && (a.Verb == verb || verb == "")
}

// mayCreate returns what is asked before an update or a patch creates an object.
func (h *handler) mayCreate(w *response) func(ctx context.Context) error {
	if h.may == nil {
		return nil
	}
	return func(ctx context.Context) error {
		asks := *w.Asks
		asks.Verb = "create"
		return h.decide(ctx, &asks)
	}
}

// mayConnect returns nil if a user who may do something may create there, too, and else 403 as Kubernetes says it of streams.
func (h *handler) mayConnect(ctx context.Context, w *response, t target) error {
	if h.may == nil || w.Asks.Verb == "create" {
		return nil
	}
	asks := *w.Asks
	asks.Verb = "create"
	if decision, reason, _ := h.may.Authorize(ctx, &asks); decision != authorizer.DecisionAllow {
		return apierrors.NewForbidden(t.resource(), t.Name, errors.New(reason))
	}
	return nil
}
