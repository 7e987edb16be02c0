package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"

	"github.com/apiserver-lite/apiserver-lite/internal/callout"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
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
	log       *slog.Logger
	calls     *callout.Calls

	paths   []string   // the files that say where it is; of the start, afterwards run's
	sum     reload.Sum // of them, or of what they were before
	current atomic.Pointer[authenticator.Token]
}

// newTokenWebhook reads the kubeconfig. It returns nil if there is none.
func newTokenWebhook(o AuthenticationWebhook, audiences []string, log *slog.Logger) (*tokenWebhook, error) {
	if o.ConfigFile == "" {
		return nil, nil
	}
	w := &tokenWebhook{options: o, audiences: audiences, log: log, calls: callout.New()}
	err := w.read()
	if err == nil {
		w.sum, _ = reload.SumOf(w.paths...)
		err = w.read() // since the sum, so that no change is missed
	}
	if err != nil {
		w.calls.Close()
		return nil, err
	}
	return w, nil
}

// read has the kubeconfig take effect. Answers that were kept count no more.
func (w *tokenWebhook) read() error {
	config, paths, err := w.calls.Read(w.options.ConfigFile)
	if err != nil {
		return fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	asks, err := webhook.New(config, w.options.version(), w.audiences, *webhook.DefaultRetryBackoff())
	if err != nil {
		return fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	keeps := tokencache.New(asks, false, w.options.CacheTTL, w.options.CacheTTL)
	w.paths = paths
	w.current.Store(&keeps)
	return nil
}

// run reads the kubeconfig again when it changes, until ctx ends. One that can't be used is logged, and what it said before stays in effect.
func (w *tokenWebhook) run(ctx context.Context) {
	for ctx.Err() == nil {
		until, replaced := context.WithCancel(ctx) // it may name other files afterwards
		reload.Files{
			Paths: w.paths, Used: w.sum,
			Read: func(context.Context) error {
				sum, err := reload.SumOf(w.paths...)
				if err == nil {
					err = w.read()
				}
				if err != nil {
					return err
				}
				w.sum = sum
				w.log.Info("the kubeconfig of --authentication-token-webhook-config-file has changed, and is in effect", "file", w.options.ConfigFile)
				replaced()
				return nil
			},
			Refused: func(err error) {
				w.log.Error("the kubeconfig of --authentication-token-webhook-config-file can't be used; what it said before stays in effect", "error", err)
			},
		}.Watch(until)
		replaced()
	}
}

func (w *tokenWebhook) close() {
	if w != nil {
		w.calls.Close()
	}
}

// unasked is why a webhook couldn't be asked.
type unasked struct{ why error }

func (e unasked) Error() string { return "the webhook of tokens can't be asked: " + e.why.Error() }

// authenticate tells whose a token is, and for which of the audiences. The error is errUnknownToken, why the webhook doesn't believe it, or unasked.
func (w *tokenWebhook) authenticate(ctx context.Context, token string, wanted []string) (user.Info, []string, error) {
	answer, ok, err := (*w.current.Load()).AuthenticateToken(authenticator.WithAudiences(ctx, wanted), token)
	switch {
	case ok && err == nil:
		return authenticated(answer.User), answer.Audiences, nil
	case err == nil:
		return nil, nil, errUnknownToken
	case isOfCall(err):
		return nil, nil, unasked{err}
	}
	return nil, nil, err
}

// isOfCall tells whether an error is of a call, and not what was answered.
func isOfCall(err error) bool {
	var answered *apierrors.StatusError // by something else than a TokenReview
	var unanswered *url.Error
	return errors.As(err, &answered) || errors.As(err, &unanswered) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (w AuthenticationWebhook) version() string {
	if w.Version == "" {
		return defaultReviewVersion
	}
	return w.Version
}
