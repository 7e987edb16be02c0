package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Authenticator tells who requests come from.
type Authenticator struct {
	clients   *authorities // nil: their certificates aren't believed
	proxies   *proxies     // nil: likewise
	tokens    tokenFile
	admin     func(token string) bool
	accounts  *Accounts
	issuers   *issuers // nil: there are none
	anonymous func(path string) bool
}

// Wiring is what an Authenticator needs besides Options.
type Wiring struct {
	Accounts *Accounts
	// Admin tells whether a token is one whose holders may do everything.
	Admin func(token string) bool
	Log   *slog.Logger
}

// New reads the files of the options. ctx is for all that goes on until Close.
func New(ctx context.Context, o Options, w Wiring) (*Authenticator, error) {
	a := &Authenticator{accounts: w.Accounts, admin: w.Admin}
	var err error
	if a.clients, err = newAuthorities(o.ClientCAFile, w.Log); err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	believed, err := newAuthorities(o.RequestHeader.ClientCAFile, w.Log)
	if err != nil {
		return nil, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	if a.proxies, err = newProxies(o.RequestHeader, believed); err != nil {
		return nil, err
	}
	if a.tokens, err = readTokenFile(o.TokenAuthFile); err != nil {
		return nil, err
	}
	if o.On() {
		if _, err := a.accounts.keys(); err != nil { // rather now than at the first token
			return nil, err
		}
	}
	var config *apiserver.AuthenticationConfiguration
	if o.AuthenticationConfigFile != "" {
		if config, err = readConfiguration(o.AuthenticationConfigFile, a.accounts.issuers); err != nil {
			return nil, err
		}
	}
	if a.anonymous, err = anonymous(o, config, w.Log); err != nil {
		return nil, err
	}
	if config != nil && len(config.JWT) > 0 {
		a.issuers, err = newIssuers(ctx, config, a.accounts.issuers)
	}
	return a, err
}

// anonymous returns which paths need no credential.
func anonymous(o Options, config *apiserver.AuthenticationConfiguration, log *slog.Logger) (func(path string) bool, error) {
	allowed := o.RBAC()
	var paths []string
	if config != nil && config.Anonymous != nil {
		if o.AnonymousAuth != nil {
			return nil, errors.New("--anonymous-auth and anonymous in the file of --authentication-config exclude each other")
		}
		allowed = config.Anonymous.Enabled
		for _, c := range config.Anonymous.Conditions {
			paths = append(paths, c.Path)
		}
	} else if o.AnonymousAuth != nil {
		allowed = *o.AnonymousAuth
	}
	if allowed && !o.RBAC() {
		log.Warn("requests without a credential are refused nevertheless: without --authorization-mode=RBAC they might do everything")
		allowed = false
	}
	return func(path string) bool { return allowed && (len(paths) == 0 || slices.Contains(paths, path)) }, nil
}

// Close ends what New began.
func (a *Authenticator) Close() {
	if a != nil {
		a.issuers.close()
	}
}

// ErrNoCredential is why a request is refused that has shown none.
var ErrNoCredential = errors.New("it has no credential")

var errUnknownToken = errors.New("the bearer token is nobody's")

// Authenticate tells who a request comes from: a proxy says it, or a client certificate, or a bearer token, "" if there is
// none; otherwise it's anonymous, if it may be. The error says why, for the log: it's ErrNoCredential, or what's wrong
// with each credential. One that is right is enough.
func (a *Authenticator) Authenticate(r *http.Request, token string) (user.Info, error) {
	u, proxyErr := a.proxies.authenticate(r)
	if u != nil {
		return authenticated(u), nil
	}
	var certErr, tokenErr error
	cert, certErr := a.clients.verify(r)
	if cert != nil {
		if u, certErr = certificateUser(cert); certErr == nil {
			return authenticated(u), nil
		}
	}
	if token != "" {
		if u, _, tokenErr = a.token(r.Context(), token, a.accounts.audiences); tokenErr == nil {
			return u, nil
		}
	}
	if err := errors.Join(proxyErr, certErr, tokenErr); err != nil {
		return nil, err
	}
	if a.anonymous(r.URL.Path) {
		return &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, nil
	}
	return nil, ErrNoCredential
}

// token tells whose a bearer token is, and for which of the audiences. Tokens that name no audience are for the server's.
func (a *Authenticator) token(ctx context.Context, token string, wanted []string) (user.Info, []string, error) {
	if len(token) > maxToken {
		return nil, nil, errUnknownToken
	}
	t, err := parseJWT(token)
	if err == nil && a.accounts.knows(t) {
		u, shared, err := a.accounts.authenticate(ctx, token, t, wanted)
		if err != nil {
			return nil, nil, err
		}
		return authenticated(u), shared, nil
	}
	u := a.tokens.find(token)
	switch {
	case a.admin(token):
		u = registry.Everyone
	case u == nil && err == nil:
		if u, err = a.issuers.authenticate(ctx, token); err != nil {
			return nil, nil, err
		}
	}
	if u == nil {
		return nil, nil, errUnknownToken
	}
	shared := common(wanted, a.accounts.audiences)
	if len(shared) == 0 {
		return nil, nil, fmt.Errorf("the token is for the audiences %q, not %q", a.accounts.audiences, wanted)
	}
	return authenticated(u), shared, nil
}

// common returns those of wanted that are among given.
func common(wanted, given []string) []string {
	return slices.DeleteFunc(slices.Clone(wanted), func(s string) bool { return !slices.Contains(given, s) })
}

// authenticated puts a user into the group of all who have shown who they are.
func authenticated(u user.Info) user.Info {
	groups := u.GetGroups()
	if u.GetName() == user.Anonymous || slices.Contains(groups, user.AllAuthenticated) || slices.Contains(groups, user.AllUnauthenticated) {
		return u
	}
	return &user.DefaultInfo{
		Name: u.GetName(), UID: u.GetUID(), Extra: u.GetExtra(),
		Groups: append(slices.Clip(groups), user.AllAuthenticated),
	}
}

// Review answers a TokenReview: whose the token is, and for which of the audiences that it asks about, or else the
// server's.
func (a *Authenticator) Review(ctx context.Context, r *authenticationv1.TokenReview) {
	wanted := r.Spec.Audiences
	if len(wanted) == 0 {
		wanted = a.accounts.audiences
	}
	u, shared, err := a.token(ctx, r.Spec.Token, wanted)
	r.Status = authenticationv1.TokenReviewStatus{}
	if err != nil {
		if !errors.Is(err, errUnknownToken) {
			r.Status.Error = err.Error()
		}
		return
	}
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: registry.UserInfo(u), Audiences: shared}
}
