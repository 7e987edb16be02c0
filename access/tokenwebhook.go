package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/internal/callout"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
	"github.com/apiserver-lite/apiserver-lite/registry"
)

// AuthenticationWebhook is a server that is asked by TokenReviews whose the bearer tokens are that nobody here knows.
type AuthenticationWebhook struct {
	// ConfigFile is a kubeconfig that says where it is. It's read again when it changes. Empty: nobody is asked.
	ConfigFile string
	// Version is that of the TokenReviews, v1 or v1beta1. Defaults to v1beta1, as kube-apiserver.
	Version string
	// CacheTTL is how long answers are kept. Defaults to 2 minutes by the flag. Zero keeps none.
	CacheTTL time.Duration
}

// tokenWebhook asks an AuthenticationWebhook.
type tokenWebhook struct {
	options   AuthenticationWebhook
	audiences authenticator.Audiences // of the server
	calls     *callout.Calls
	files     reload.Named // that say where it is
	current   atomic.Pointer[authenticator.Token]
	room      chan struct{} // an entry for each question under way, which may outlast its request
}

// maxTokenQuestions is how many tokens a webhook is asked about at once. More of them count as unknown meanwhile.
const maxTokenQuestions = 256

// newTokenWebhook reads the kubeconfig. It returns nil if there is none.
func newTokenWebhook(o AuthenticationWebhook, audiences []string, way egress.Dial, log *slog.Logger) (*tokenWebhook, error) {
	if o.ConfigFile == "" {
		return nil, nil
	}
	w := &tokenWebhook{options: o, audiences: audiences, calls: callout.New(way), room: make(chan struct{}, maxTokenQuestions)}
	w.files = reload.Named{Read: w.read, Refused: func(err error) {
		log.Error("the webhook of tokens can't be asked as its changed kubeconfig says; what it said before stays in effect", "error", err)
	}}
	if err := w.files.Open(); err != nil {
		w.calls.Close()
		return nil, err
	}
	return w, nil
}

// read has the kubeconfig take effect. Answers that were kept count no more.
func (w *tokenWebhook) read() ([]string, error) {
	config, paths, err := w.calls.Read(w.options.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	version := cmp.Or(w.options.Version, defaultReviewVersion)
	ask, err := newReviewer(config, version, "authenticator")
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	asks := authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		return w.ask(ctx, ask, token)
	})
	keeps := tokencache.New(asks, false, w.options.CacheTTL, w.options.CacheTTL)
	w.current.Store(&keeps)
	return paths, nil
}

// ask asks whose a token is. ok is false for a token that isn't believed, of which the error, if there is one, says why.
func (w *tokenWebhook) ask(ctx context.Context, by *reviewer, token string) (answer *authenticator.Response, ok bool, err error) {
	select {
	case w.room <- struct{}{}:
		defer func() { <-w.room }()
	default:
		return nil, false, apierrors.NewTooManyRequests("the webhook that knows tokens is being asked about too many", registry.RetryAfter) // a 401 would have clients drop tokens that count
	}
	wanted, _ := authenticator.AudiencesFrom(ctx)
	var review authenticationv1.TokenReview
	err = by.review(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: wanted}}, &review)
	if err != nil {
		return nil, false, unasked{err}
	}
	status := review.Status
	shared := wanted.Intersect(w.audiences) // of one that doesn't know audiences
	if len(status.Audiences) > 0 {
		shared = wanted.Intersect(status.Audiences)
	}
	switch {
	case len(shared) == 0:
		return nil, false, nil
	case !status.Authenticated && status.Error != "":
		return nil, false, errors.New(status.Error)
	case !status.Authenticated:
		return nil, false, nil
	}
	u := &user.DefaultInfo{Name: status.User.Username, UID: status.User.UID, Groups: status.User.Groups}
	for key, values := range status.User.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[key] = values
	}
	return &authenticator.Response{User: u, Audiences: shared}, true, nil
}

func (w *tokenWebhook) close() {
	if w != nil {
		w.calls.Close()
	}
}

// unasked is why a webhook couldn't be asked.
type unasked struct{ why error }

func (e unasked) Error() string { return e.why.Error() } // without Unwrap: no Status of the webhook's is to become an answer

// authenticate tells whose a token is, and for which of the audiences. The error is errUnknownToken, why the webhook doesn't believe it, or unasked.
func (w *tokenWebhook) authenticate(ctx context.Context, token string, wanted []string) (user.Info, []string, error) {
	answer, ok, err := (*w.current.Load()).AuthenticateToken(authenticator.WithAudiences(ctx, wanted), token)
	switch {
	case ok && err == nil:
		return authenticated(answer.User), answer.Audiences, nil
	case err == nil:
		return nil, nil, errUnknownToken
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded): // it wasn't waited for
		return nil, nil, unasked{err}
	}
	return nil, nil, err
}
