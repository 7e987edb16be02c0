package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/bulk"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// authorize refuses a request whose user may not make it, before anything is done for it: every request goes through here
// after identify, also one that leads nowhere. The error is 403. What was allowed is in w.Asks then, and nothing else is
// served (see allowed).
func (h *handler) authorize(w *response, r *http.Request) error {
	if h.rbac == nil {
		return nil
	}
	w.Asks = access.AttributesOf(r)
	w.Asks.User = registry.UserFrom(r.Context())
	switch {
	case r.URL.Path == mergedPath && r.Method == http.MethodGet:
		return nil // each of its resources is asked about: see mayWatch
	case bulk.Takes(r) && !w.stranger:
		audit.Annotate(r.Context(), audit.Decision, "allow")
		audit.Annotate(r.Context(), audit.Reason, "each of its objects is asked about")
		return nil
	case r.URL.Path == trafficPath:
		w.Asks.Path = metricsPath
	}
	err := h.decide(r.Context(), w.Asks)
	if err != nil {
		w.name(h.capacity.levels.Place(r, w.Asks)) // which the answer says, as if the request had taken a seat
	}
	return err
}

// decide returns nil if a user may do something, and else 403. The request's record of audit gets the decision.
func (h *handler) decide(ctx context.Context, asks *authorizer.AttributesRecord) error {
	allowed, reason := h.rbac.Decide(asks)
	audit.Annotate(ctx, audit.Reason, reason)
	if !allowed {
		audit.Annotate(ctx, audit.Decision, "forbid")
		return access.Forbidden(asks, reason)
	}
	audit.Annotate(ctx, audit.Decision, "allow")
	return nil
}

// allowed tells whether a target and a verb are what the request was allowed. They always are, unless a definition has a
// name that means something else in a path: "status", "watch" or "proxy".
func (h *handler) allowed(w *response, t target, verb string) bool {
	a := w.Asks
	if h.rbac == nil {
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
	if h.rbac == nil {
		return nil
	}
	return func(ctx context.Context) error {
		asks := *w.Asks
		asks.Verb = "create"
		return h.decide(ctx, &asks)
	}
}

// mayConnect returns nil if a user who may do something may create there, too, and else 403 as Kubernetes says it of streams.
func (h *handler) mayConnect(w *response, t target) error {
	if h.rbac == nil || w.Asks.Verb == "create" {
		return nil
	}
	asks := *w.Asks
	asks.Verb = "create"
	if allowed, reason := h.rbac.Decide(&asks); !allowed {
		return apierrors.NewForbidden(t.resource(), t.Name, errors.New(reason))
	}
	return nil
}

const (
	// recheckInterval is how often it's checked whether users may still watch what they watch. A check takes some
	// microseconds, with a token of OIDC some hundred.
	recheckInterval = 20 * time.Second
	// recheckTime is how long the look at one credential may take. The next look finds out what this one couldn't.
	recheckTime = 5 * time.Second
)

// rechecks tells whether watches can end because of who watches.
func (h *handler) rechecks() bool { return h.rbac != nil || h.identity.on }

// recheck ends watches whose users have lost the right to them, or whose credentials don't count any more, until ctx ends.
func (h *handler) recheck(ctx context.Context, every time.Duration) {
	_ = wait.PollUntilContextCancel(ctx, every, false, func(ctx context.Context) (bool, error) {
		h.recheckAll(ctx)
		return false, nil
	})
}

// recheckAll looks at all open watches once. What a user may do is decided from memory. Whether a credential counts may take the
// store, so each is looked at once, however many watches it has opened, and what the store has acknowledged is waited for once.
func (h *handler) recheckAll(ctx context.Context) {
	open := h.watches.All()
	byCredential := map[access.CredentialKey][]*watches.Watch{}
	for _, w := range open {
		switch {
		case !h.mayStill(ctx, w):
			w.Cancel(watchstream.ErrRevoked)
		case h.identity.on:
			key := w.Why.Credential.Key()
			byCredential[key] = append(byCredential[key], w)
		}
	}
	fresh, err := h.registry.Fresh(ctx)
	if err != nil {
		return // the store doesn't answer, so nobody can tell: the next round will
	}
	for _, shown := range byCredential {
		if h.stillCounts(fresh, shown[0]) {
			continue
		}
		for _, w := range shown {
			w.Cancel(watchstream.ErrRevoked)
		}
	}
}

// mayStill tells whether a watch's user has the right to it, and whoever has impersonated him the right to that.
func (h *handler) mayStill(ctx context.Context, w *watches.Watch) bool {
	if h.rbac == nil {
		return true
	}
	for _, asks := range w.Asks {
		if allowed, _ := h.rbac.Decide(asks); !allowed {
			return false
		}
	}
	return w.Why.As == nil || w.Why.As.Still(ctx) == nil
}

// stillCounts tells whether the credential of a watch counts. What can't be found out counts as it did.
func (h *handler) stillCounts(ctx context.Context, w *watches.Watch) bool {
	ctx, cancel := context.WithTimeout(ctx, recheckTime)
	defer cancel()
	err := h.identity.access.Still(ctx, w.Why.Credential)
	var unknown *apierrors.StatusError
	if err == nil || ctx.Err() != nil || errors.As(err, &unknown) {
		return true
	}
	const nobody = "" // no request causes this
	if left, ok := h.identity.refusals.Allow(time.Now(), nobody); ok {
		reason := clip.To(strings.ReplaceAll(err.Error(), "\n", "; "), maxRefusalReason)
		h.log.Info("a watch ends, because the credential of its user doesn't count any more", "reason", reason, "resource", strings.Join(w.Resources, ","), "not_logged_before", left)
	}
	return false
}
