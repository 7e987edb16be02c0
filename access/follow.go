package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
)

const (
	// issuersWait is how long the issuers of a file that has changed have to answer. Otherwise what was in effect stays, and the
	// file is tried again.
	issuersWait = 30 * time.Second
	issuersPoll = 100 * time.Millisecond
)

// configured is what a file of --authentication-config says; without one, what the flags say.
type configured struct {
	anonymous func(path string) bool // which paths need no credential
	issuers   *issuers               // nil: there are none
}

// follower reads a file of --authentication-config, and again when it changes.
type follower struct {
	options Options
	own     []string // our own issuers, which the file may not name
	log     *slog.Logger

	text []byte // that was read last and is in effect, or was refused
}

// read returns what the file says. Its issuers needn't have answered.
func (f *follower) read(ctx context.Context) (*configured, error) {
	var config *apiserver.AuthenticationConfiguration
	if file := f.options.AuthenticationConfigFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--authentication-config: %w", err)
		}
		f.text = text
		if config, err = parseConfiguration(text, f.own); err != nil {
			return nil, fmt.Errorf("--authentication-config: %s: %w", file, err)
		}
	}
	c := &configured{}
	var err error
	if c.anonymous, err = anonymous(f.options, config, f.log); err != nil {
		return nil, err
	}
	if config != nil && len(config.JWT) > 0 {
		c.issuers, err = newIssuers(ctx, config, f.own)
	}
	return c, err
}

// follow has what the file says take effect when it changes, until ctx ends. What can't be used is logged, and changes nothing.
func (f *follower) follow(ctx context.Context, current *atomic.Pointer[configured]) {
	tick := time.NewTicker(rereadAfter)
	defer tick.Stop()
	var replaced sync.WaitGroup // those that requests may still ask
	defer replaced.Wait()
	told := "" // what the log has
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		next, err := f.changed(ctx)
		switch {
		case err != nil && ctx.Err() == nil && err.Error() != told:
			told = err.Error()
			f.log.Error("the file of --authentication-config can't be used; what it said before stays in effect", "error", err)
		case next != nil:
			before := current.Swap(next)
			told = ""
			replaced.Go(func() { before.closeLater(ctx) })
			f.log.Info("the file of --authentication-config has changed, and is in effect", "file", f.options.AuthenticationConfigFile)
		}
	}
}

// changed returns what the file says, when its issuers have answered; nil if it hasn't changed.
func (f *follower) changed(ctx context.Context) (*configured, error) {
	text, err := os.ReadFile(f.options.AuthenticationConfigFile)
	if err != nil || bytes.Equal(text, f.text) {
		return nil, err
	}
	before := f.text
	next, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := next.issuers.ready(ctx); err != nil {
		next.close()
		f.text = before // the issuers may answer later
		return nil, err
	}
	return next, nil
}

// closeLater closes what was replaced when the requests that began with it have had their answers from issuers, or ctx ends.
func (c *configured) closeLater(ctx context.Context) {
	asked := time.NewTimer(issuerTimeout)
	defer asked.Stop()
	select {
	case <-asked.C:
	case <-ctx.Done():
	}
	c.close()
}

func (c *configured) close() {
	if c != nil {
		c.issuers.close()
	}
}

// ready waits until all issuers have said where their keys are.
func (s *issuers) ready(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, issuersWait)
	defer cancel()
	for {
		var errs []error
		for _, a := range s.all {
			errs = append(errs, a.HealthCheck())
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(issuersPoll):
		}
	}
}
