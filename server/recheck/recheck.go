// Package recheck ends open watches whose users have lost the right to them, or whose credentials don't count any more.
//
// Goroutines: none of its own. Locks: none.
package recheck

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/internal/loglimit"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

const (
	// Interval is how often it's checked whether users may still watch what they watch. A check takes some
	// microseconds, with a token of OIDC some hundred.
	Interval = 20 * time.Second
	// credentialTime is how long the look at one credential may take. The next look finds out what this one couldn't.
	credentialTime = 5 * time.Second
	// roundTime is how long the rights of all watches may take, and after that all credentials: a webhook that hangs may decide about many. What
	// it hasn't answered by then the next round asks.
	roundTime = 20 * time.Second
	// maxReason is how much of a reason the log has, in bytes: it may quote what a client sent.
	maxReason = 1 << 10
)

// Recheck is what it takes to look at open watches again.
type Recheck struct {
	Watches *watches.Set
	// May decides what users may do. Nil: everybody may do everything.
	May *access.Authorizer
	// Access tells whose credentials are. Nil: nobody is asked.
	Access *access.Authenticator
	// Fresh returns a context in which everything is read that the store has acknowledged.
	Fresh func(ctx context.Context) (context.Context, error)
	// Every defaults to Interval.
	Every time.Duration
	Log   *slog.Logger

	refusals loglimit.Limit
}

// Run looks at the watches until ctx ends. If nobody is asked and everybody may do everything, it returns at once.
func (c *Recheck) Run(ctx context.Context) {
	if c.May == nil && c.Access == nil {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, cmp.Or(c.Every, Interval), false, func(ctx context.Context) (bool, error) {
		_ = c.All(ctx) // the next round finds out what this one couldn't
		return false, nil
	})
}

// All looks at all open watches once. What a user may do is decided from memory, unless webhooks decide. Whether a credential counts may take the
// store, so each is looked at once, however many watches it has opened, and what the store has acknowledged is waited for once. The error
// is the store's, which doesn't answer, so that nobody can tell.
func (c *Recheck) All(ctx context.Context) error {
	byCredential := map[access.CredentialKey][]*watches.Watch{}
	rights, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	for _, w := range c.Watches.All() {
		switch {
		case !c.mayStill(rights, w):
			w.Cancel(watchstream.ErrRevoked)
		case c.Access != nil:
			key := w.Why.Credential.Key()
			byCredential[key] = append(byCredential[key], w)
		}
	}
	fresh, err := c.Fresh(ctx)
	if err != nil {
		return err
	}
	fresh, cancel = context.WithTimeout(fresh, roundTime)
	defer cancel()
	for _, shown := range byCredential {
		counts, whose := c.stillCounts(fresh, shown[0])
		for _, w := range shown {
			if was := openedBy(w); !counts || whose != nil && was != nil && !access.SameUser(whose, was) {
				w.Cancel(watchstream.ErrRevoked)
			}
		}
	}
	return nil
}

// openedBy returns whose credential a watch was opened with, nil where rights don't count.
func openedBy(w *watches.Watch) user.Info {
	switch {
	case w.Why.As != nil:
		return w.Why.As.By()
	case len(w.Asks) > 0:
		return w.Asks[0].User
	}
	return nil
}

// mayStill tells whether a watch's user has the right to it, and whoever has impersonated him the right to that. What nobody can tell counts as it did.
func (c *Recheck) mayStill(ctx context.Context, w *watches.Watch) bool {
	if c.May == nil {
		return true
	}
	for _, asks := range w.Asks {
		if decision, _, err := c.May.Authorize(ctx, asks); decision != authorizer.DecisionAllow && err == nil {
			return false
		}
	}
	if w.Why.As == nil {
		return true
	}
	err := w.Why.As.Still(ctx)
	return err == nil || access.Undecided(err) || ctx.Err() != nil
}

// stillCounts tells whether the credential of a watch counts, and of a token whose it is by now. What can't be found out counts as it did.
func (c *Recheck) stillCounts(ctx context.Context, w *watches.Watch) (bool, user.Info) {
	ctx, cancel := context.WithTimeout(ctx, credentialTime)
	defer cancel()
	u, err := c.Access.Still(ctx, w.Why.Credential)
	var unknown *apierrors.StatusError
	switch {
	case err == nil:
		return true, u
	case ctx.Err() != nil || errors.As(err, &unknown):
		return true, nil
	}
	const nobody = "" // no request causes this
	if left, ok := c.refusals.Allow(time.Now(), nobody); ok {
		reason := clip.To(strings.ReplaceAll(err.Error(), "\n", "; "), maxReason)
		c.Log.Info("a watch ends, because the credential of its user doesn't count any more", "reason", reason, "resource", strings.Join(w.Resources, ","), "not_logged_before", left)
	}
	return false, nil
}
