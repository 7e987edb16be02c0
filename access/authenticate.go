package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Authenticator tells who requests come from.
type Authenticator struct {
	clients    *authorities // nil: their certificates aren't believed
	proxies    *proxies     // nil: likewise
	tokens     atomic.Pointer[tokenFile]
	admin      func(token string) bool
	accounts   *Accounts
	configured atomic.Pointer[configured]
	webhook    *tokenWebhook // nil: nobody else is asked about tokens
	open       func() bool
	on         bool // users are told apart

	reading sync.WaitGroup // the goroutines that read files again
	stop    context.CancelFunc
}

// Wiring is what an Authenticator needs besides Options.
type Wiring struct {
	// Admin tells whether a token is one whose holders may do everything.
	Admin func(token string) bool
	// Open tells whether everybody who is let in may do everything now. Then nobody is anonymous. Defaults to never.
	Open func() bool
	// Ways lead to the webhook of tokens, and to issuers that name one.
	Ways egress.Ways
	Log  *slog.Logger
}

// New reads the files of the options, and refuses what can't be used of them. It needs nothing of the server, so that a start which
// is refused has left nothing. Attach completes the Authenticator. ctx is for all that goes on until Close.
func New(ctx context.Context, o Options, w Wiring) (*Authenticator, error) {
	a := &Authenticator{admin: w.Admin, open: w.Open, on: o.On(), stop: func() {}}
	if a.open == nil {
		a.open = func() bool { return false }
	}
	var err error
	if a.clients, err = newAuthorities(o.ClientCAFile, w.Log); err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	believed, err := newAuthorities(o.RequestHeader.ClientCAFile, w.Log)
	if err != nil {
		return nil, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	if len(o.RequestHeader.AllowedNames) == 0 && a.clients.overlaps(believed) { // kube-apiserver's check
		return nil, errors.New("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users")
	}
	a.proxies = newProxies(o.RequestHeader, believed)
	tokens, err := a.readTokens(o.TokenAuthFile, w.Log)
	if err != nil {
		return nil, err
	}
	var keys reload.Files
	if a.accounts, keys, err = newAccounts(o, w.Log); err != nil {
		return nil, err
	}
	if a.webhook, err = newTokenWebhook(o.AuthenticationWebhook, a.accounts.audiences, w.Ways.ControlPlane, w.Log); err != nil {
		return nil, err
	}
	f := newFollower(o, a.accounts.issuers, w.Ways, w.Log)
	now, err := f.read(ctx)
	if err != nil {
		a.webhook.close()
		return nil, err
	}
	a.configured.Store(now)
	ctx, a.stop = context.WithCancel(ctx)
	if f.file != "" {
		a.reading.Go(func() { f.follow(ctx, &a.configured) })
	}
	for _, files := range []reload.Files{tokens, keys} {
		if len(files.Paths) > 0 {
			a.reading.Go(func() { files.Watch(ctx) })
		}
	}
	if a.webhook != nil {
		a.reading.Go(func() { a.webhook.files.Watch(ctx) })
	}
	return a, nil
}

// readTokens reads the file of tokens, if there is one, and returns it as one that's to be read again.
func (a *Authenticator) readTokens(file string, log *slog.Logger) (reload.Files, error) {
	a.tokens.Store(&tokenFile{})
	if file == "" {
		return reload.Files{}, nil
	}
	read := func(context.Context) error {
		users, err := readTokenFile(file, log)
		if err == nil {
			a.tokens.Store(&users)
		}
		return err
	}
	used, _ := reload.SumOf(file)
	return reload.Files{Paths: []string{file}, Used: used, Read: read, Refused: func(err error) {
		log.Error("the file of --token-auth-file can't be used; the tokens that it held before stay", "error", err)
	}}, read(context.Background())
}

// Attach gives the Authenticator what it needs of the server before it's used, and returns its ServiceAccounts. The error is that
// of the server's own key.
func (a *Authenticator) Attach(home Home) (*Accounts, error) {
	a.accounts.attach(home)
	if a.on {
		if _, err := a.accounts.keys(); err != nil { // rather now than at the first token
			return nil, err
		}
	}
	return a.accounts, nil
}

// anonymous returns which paths need no credential.
func anonymous(o Options, config *apiserver.AuthenticationConfiguration, log *slog.Logger) (func(path string) bool, error) {
	decided := !o.open() && !slices.Contains(o.modes(), alwaysAllow) // as kube-apiserver
	allowed := decided
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
	if allowed && !decided {
		log.Warn("requests without a credential are refused nevertheless: with --authorization-mode=AlwaysAllow they might do everything")
		allowed = false
	}
	return func(path string) bool { return allowed && (len(paths) == 0 || slices.Contains(paths, path)) }, nil
}

// Close ends what New began.
func (a *Authenticator) Close() {
	if a != nil {
		a.stop()
		a.reading.Wait()
		a.configured.Load().issuers.close()
		a.webhook.close()
	}
}

// ErrNoCredential is why a request is refused that has shown none.
var ErrNoCredential = errors.New("it has no credential")

var errUnknownToken = errors.New("the bearer token is nobody's")

// Grounds is why a request was let in.
type Grounds struct {
	Credential Credential                   // of its user
	Asks       *authorizer.AttributesRecord // what the user was allowed; nil if everybody may do everything
	As         *Impersonated                // for whom the credential's user is taken; nil: for himself
}

// Credential is what has shown who a request comes from. The zero Credential is that of everybody where users aren't told apart.
type Credential struct {
	kind  credentialKind
	shown []*x509.Certificate // of a proxy or a client
	token string
	path  string // that needed none
}

type credentialKind int

const (
	noCredential credentialKind = iota // users aren't told apart
	anonymousUser
	ofProxy
	ofClient
	bearer
)

// CredentialKey tells credentials apart.
type CredentialKey [sha256.Size]byte

// Key returns the key of a credential: two with the same key count alike.
func (c Credential) Key() CredentialKey {
	h := sha256.New()
	h.Write([]byte{byte(c.kind)})
	h.Write([]byte(c.token))
	h.Write([]byte(c.path))
	for _, cert := range c.shown {
		h.Write(cert.Raw)
	}
	return CredentialKey(h.Sum(nil))
}

// Still returns whose a token is by now, nil of another credential, and an error if the credential doesn't count any more: because it has expired,
// what it's bound to is gone, or nobody believes any more who issued it. Where that can't be found out before ctx ends, the error is ctx's; where the store or a webhook can't tell,
// it's a Status.
func (a *Authenticator) Still(ctx context.Context, c Credential) (u user.Info, err error) {
	switch c.kind {
	case anonymousUser:
		if !a.anonymous(c.path) {
			err = ErrNoCredential
		}
	case ofProxy:
		_, err = a.proxies.authorities.verify(c.shown)
	case ofClient:
		_, err = a.clients.verify(c.shown)
	case bearer:
		u, _, err = a.token(ctx, c.token, a.accounts.audiences)
		if unasked := (unasked{}); errors.As(err, &unasked) {
			return nil, apierrors.NewServiceUnavailable(err.Error())
		}
	}
	return u, err
}

// SameUser tells whether two users are one, with the same rights.
func SameUser(a, b user.Info) bool {
	groups := func(u user.Info) []string { return slices.Sorted(slices.Values(u.GetGroups())) }
	return a.GetName() == b.GetName() && a.GetUID() == b.GetUID() && slices.Equal(groups(a), groups(b)) &&
		maps.EqualFunc(a.GetExtra(), b.GetExtra(), slices.Equal)
}

// Authenticate tells who a request comes from: a proxy says it, or a client certificate, or a bearer token, "" if there is
// none; otherwise it's anonymous, if it may be. The error says why, for the log: it's ErrNoCredential, or what's wrong
// with each credential. One that is right is enough.
//
// After it the request has no header by which a proxy names a user.
func (a *Authenticator) Authenticate(r *http.Request, token string) (user.Info, Credential, error) {
	defer a.proxies.drop(r.Header)
	u, proxyErr := a.proxies.authenticate(r)
	if u != nil {
		return authenticated(u), Credential{kind: ofProxy, shown: shownBy(r)}, nil
	}
	var certErr, tokenErr error
	cert, certErr := a.clients.verify(shownBy(r))
	if cert != nil {
		if u, certErr = certificateUser(cert); u != nil {
			return authenticated(u), Credential{kind: ofClient, shown: shownBy(r)}, nil
		}
	}
	if token != "" {
		if u, _, tokenErr = a.token(r.Context(), token, a.accounts.audiences); tokenErr == nil {
			return u, Credential{kind: bearer, token: token}, nil
		}
	}
	if err := errors.Join(proxyErr, certErr, tokenErr); err != nil {
		return nil, Credential{}, err
	}
	if a.anonymous(r.URL.Path) {
		return &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, Credential{kind: anonymousUser, path: r.URL.Path}, nil
	}
	return nil, Credential{}, ErrNoCredential
}

// anonymous tells whether a path needs no credential.
func (a *Authenticator) anonymous(path string) bool {
	return a.configured.Load().anonymous(path) && !a.open()
}

// token tells whose a bearer token is, and for which of the audiences. A webhook, if there is one, is asked about tokens that aren't believed here.
func (a *Authenticator) token(ctx context.Context, token string, wanted []string) (user.Info, []string, error) {
	u, audiences, err := a.tokenHere(ctx, token, wanted)
	var unknown *apierrors.StatusError
	if err == nil || a.webhook == nil || len(token) > maxToken || errors.As(err, &unknown) {
		return u, audiences, err
	}
	u, audiences, asked := a.webhook.authenticate(ctx, token, wanted)
	switch {
	case asked == nil:
		return u, audiences, nil
	case errors.Is(asked, errUnknownToken):
		return nil, nil, err
	case errors.Is(err, errUnknownToken):
		return nil, nil, asked
	}
	return nil, nil, errors.Join(err, asked)
}

// tokenHere is token without a webhook. Tokens that name no audience are for the server's.
func (a *Authenticator) tokenHere(ctx context.Context, token string, wanted []string) (user.Info, []string, error) {
	if len(token) > maxToken {
		return nil, nil, errUnknownToken
	}
	hash := sha256.Sum256([]byte(token))
	if c := a.accounts.seen(hash); c != nil {
		return a.account(ctx, c, wanted)
	}
	t, err := parseJWT(token)
	if err == nil && a.accounts.knows(t) {
		c, err := a.accounts.verify(hash, t)
		if err != nil {
			return nil, nil, err
		}
		return a.account(ctx, c, wanted)
	}
	u := a.tokens.Load().find(hash)
	switch {
	case a.admin(token):
		u = registry.Everyone
	case u == nil && err == nil:
		if u, err = a.configured.Load().issuers.authenticate(ctx, token); err != nil {
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

// account tells whose a ServiceAccount's token is that was verified, now or before.
func (a *Authenticator) account(ctx context.Context, c *tokenClaims, wanted []string) (user.Info, []string, error) {
	u, shared, err := a.accounts.userOf(ctx, c, wanted)
	if err != nil {
		return nil, nil, err
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
// server's. As with kube-apiserver, what else was sent as the answer stays in it.
func (a *Authenticator) Review(ctx context.Context, r *authenticationv1.TokenReview) {
	wanted := r.Spec.Audiences
	if len(wanted) == 0 {
		wanted = a.accounts.audiences
	}
	u, shared, err := a.token(ctx, r.Spec.Token, wanted)
	r.Status.Authenticated = err == nil
	switch {
	case errors.Is(err, errUnknownToken):
		r.Status.Error = "invalid bearer token" // as in kube-apiserver's answer
		return
	case err != nil:
		r.Status.Error = "[invalid bearer token, " + err.Error() + "]"
		return
	}
	r.Status.User, r.Status.Audiences = registry.UserInfo(u), shared
}
