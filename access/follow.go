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

	"github.com/apiserver-lite/apiserver-lite/egress"
)

const (
	// issuersWait is how long the issuers of a file that has changed have to answer. Otherwise what was in effect stays, and the
	// file is tried again.
	issuersWait = 30 * time.Second
	issuersPoll = 100 * time.Millisecond
)

// configured is what a file of --authentication-config says; without one, what the flags say, and --oidc-ca-file.
type configured struct {
	anonymous func(path string) bool // which paths need no credential
	issuers   *issuers               // nil: there are none
}

// follower reads a file of --authentication-config or --oidc-ca-file, and again when it changes.
type follower struct {
	options Options
	flag    string // of the file
	file    string // "": there is none
	ways    egress.Ways
	own     []string // our own issuers, which the file may not name
	log     *slog.Logger

	text []byte // that was read last and is in effect, or was refused
	seen []byte // at the last look; what is still being written isn't to be read
}

// newFollower returns a follower of the file that the options name, if they name one. own are our own issuers.
func newFollower(o Options, own []string, ways egress.Ways, log *slog.Logger) *follower {
	f := &follower{options: o, flag: "--authentication-config", file: o.AuthenticationConfigFile, own: own, ways: ways, log: log}
	if o.OIDC.on() {
		f.flag, f.file = "--oidc-ca-file", o.OIDC.CAFile
	}
	return f
}

// read returns what the file says. Its issuers needn't have answered.
func (f *follower) read(ctx context.Context) (*configured, error) {
	if f.file != "" {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.flag, err)
		}
		f.text = text
	}
	return f.understood(ctx)
}

// understood returns what the text says.
func (f *follower) understood(ctx context.Context) (*configured, error) {
	config, where, err := f.configuration()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	c := &configured{}
	if c.anonymous, err = anonymous(f.options, config, f.log); err != nil {
		return nil, err
	}
	if config != nil && len(config.JWT) > 0 {
		if c.issuers, err = newIssuers(ctx, config, f.options.OIDC.algorithms(), f.own, f.ways); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	return c, nil
}

// configuration returns what the file and the flags say, nil for nothing, and where they say it.
func (f *follower) configuration() (config *apiserver.AuthenticationConfiguration, where string, err error) {
	switch {
	case f.options.OIDC.on():
		config, err = f.options.OIDC.configuration(string(f.text), f.own)
		return config, "the flags --oidc-*", err
	case f.file != "":
		config, err = parseConfiguration(f.text, f.own)
		return config, f.flag + ": " + f.file, err
	}
	return nil, "", nil
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
			f.log.Error("the file of "+f.flag+" can't be used; what it said before stays in effect", "error", err)
		case next != nil:
			before := current.Swap(next)
			told = ""
			replaced.Go(func() { before.closeLater(ctx) })
			f.log.Info("the file of "+f.flag+" has changed, and is in effect", "file", f.file)
		}
	}
}

// changed returns what the file says, when it has been the same at two looks and its issuers have answered; nil if it hasn't changed.
func (f *follower) changed(ctx context.Context) (*configured, error) {
	text, err := os.ReadFile(f.file)
	same := bytes.Equal(text, f.seen)
	f.seen = text
	if err != nil || !same || bytes.Equal(text, f.text) {
		return nil, err
	}
	before := f.text
	f.text = text
	next, err := f.understood(ctx)
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
