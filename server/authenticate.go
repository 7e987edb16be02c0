package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/internal/loglimit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/health"
	"github.com/apiserver-lite/apiserver-lite/server/secrets"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// identity says how requests show who they come from.
type identity struct {
	tokens   *secrets.Tokens // whose holders may do everything
	on       bool            // users are told apart; otherwise a token lets in, if there are any
	proxies  bool            // some are believed when they name users in headers
	access   *access.Authenticator
	accounts *access.Accounts
	may      authorizer.UnconditionalAuthorizer // nil: everything is allowed
	refusals loglimit.Limit
}

// asks tells whether clients need credentials.
func (i *identity) asks() bool { return i.on || i.tokens.Any() }

// identify answers who a request comes from, before anything is done for it: every request goes through here, also one that
// leads nowhere. The request that it returns has the user in its context, if users are told apart. The error is 401, always
// the same, and the log says why; 503 or 504, if the store can't tell; or 400 or 403, if the user wants to be taken for
// somebody else.
func (h *handler) identify(w *response, r *http.Request) (*http.Request, error) {
	u, err := h.authenticate(w, r)
	if err != nil {
		h.auditRefused(w, r)
		return nil, err
	}
	if r, err = h.beginAudit(w, r, u); err != nil {
		return nil, err
	}
	if !h.identity.on {
		return r, nil
	}
	r.Header.Del("Authorization")
	as, err := access.Impersonate(r, u, h.identity.may)
	if err != nil {
		return nil, err
	}
	if as != nil {
		h.log.Debug("impersonation", "user", u.GetName(), "as", as.User.GetName(), "constraint", as.Constraint, "audit_id", w.auditID)
		w.audit.Impersonate(as.User, as.Constraint)
		u, w.As = as.User, as
	}
	return withUser(r, u), nil
}

// nobody is who asks without a credential where users aren't told apart and a token lets in: a probe.
var nobody user.Info = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

// authenticate answers whose credentials a request has. The error is 401, or that of the store.
func (h *handler) authenticate(w *response, r *http.Request) (user.Info, error) {
	i := h.identity
	if !i.asks() {
		return registry.Everyone, nil
	}
	token, known := bearerToken(r)
	if i.on {
		u, credential, err := i.access.Authenticate(r, token)
		var unknown *apierrors.StatusError
		switch {
		case err == nil:
		case errors.As(err, &unknown): // the store can't tell whose it is
			return nil, unknown
		case r.Context().Err() != nil:
			return nil, r.Context().Err()
		default:
			h.logRefusal(w, r, err)
			return nil, unauthorized(w, r)
		}
		w.Credential, w.stranger = credential, u.GetName() == user.Anonymous
		wire.Part(w.Header(), r, w.stranger)
		return u, nil
	}
	switch {
	case known && i.tokens.Has(token):
		return registry.Everyone, nil
	case health.Asks(r):
		w.stranger = true
		return nobody, nil
	}
	return nil, unauthorized(w, r)
}

func withUser(r *http.Request, u user.Info) *http.Request {
	return r.WithContext(registry.WithUser(r.Context(), u))
}

func unauthorized(w *response, r *http.Request) error {
	w.Header().Set("WWW-Authenticate", "Bearer")
	wire.Part(w.Header(), r, true)
	return status.Error(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
}

// bearerToken returns the token that a request carries, "" if it has none. known is false if the request has a credential
// of another kind, which nobody looks at.
func bearerToken(r *http.Request) (token string, known bool) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return wire.SocketToken(r), true
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// logRefusal says why a request got a 401. What has shown no credential at all is not worth a line.
func (h *handler) logRefusal(w *response, r *http.Request, err error) {
	if errors.Is(err, access.ErrNoCredential) {
		h.log.Debug("unauthorized", "reason", err.Error(), "path", shortPath(r), "from", r.RemoteAddr, "audit_id", w.auditID)
		return
	}
	if left, ok := h.identity.refusals.Allow(time.Now(), wire.ClientOf(r)); ok {
		reason := strings.ReplaceAll(err.Error(), "\n", "; ")
		h.log.Info("unauthorized", "reason", clip.To(reason, maxRefusalReason), "path", shortPath(r), "from", r.RemoteAddr, "audit_id", w.auditID, "not_logged_before", left)
	}
}

// maxRefusalReason is how much of a reason the log has, in bytes: it may quote what a client sent.
const maxRefusalReason = 1 << 10

// serveKeys serves the keys by which others can verify tokens of ServiceAccounts.
func (h *handler) serveKeys(w *response, _ *http.Request) error {
	body, err := h.identity.accounts.KeySet()
	if err != nil {
		return fmt.Errorf("the keys of ServiceAccounts' tokens: %w", err)
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, err = w.Write(body)
	return err
}

// serveIssuer serves what OpenID Connect asks of an issuer: who it is, and where its keys are.
func (h *handler) serveIssuer(w *response, _ *http.Request) error {
	body, err := h.identity.accounts.Discovery()
	if err != nil {
		return fmt.Errorf("the keys of ServiceAccounts' tokens: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, err = w.Write(body)
	return err
}
