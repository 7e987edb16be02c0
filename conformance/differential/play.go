package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/conformance/pair"
)

// advertised is the address under which servers say that they can be reached: the same on each machine.
const advertised = "192.0.2.7"

// admission is a file that flags may name.
//
//go:embed testdata/admission.yaml
var admission []byte

// playFlagged starts a server with the flags of each scenario, and plays all that have the same flags side by side.
func (o options) playFlagged(ctx context.Context, name, bin string, lag time.Duration, all []scenario, got func(scenario, []answer) error) error {
	for len(all) > 0 {
		var some, others []scenario
		for _, sc := range all {
			if slices.Equal(sc.flags, all[0].flags) {
				some = append(some, sc)
			} else {
				others = append(others, sc)
			}
		}
		s, stop, err := o.start(ctx, name, bin, some[0].flags)
		if err != nil {
			return err
		}
		if err := errors.Join(o.playAll(ctx, s, lag, some, got), stop()); err != nil {
			return err
		}
		all, name = others, name+"-flags"
	}
	return nil
}

// start starts the programs in a directory.
func (o options) start(ctx context.Context, name, bin string, flags []string) (_ *pair.Server, stop func() error, err error) {
	dir := filepath.Join(o.keep, name)
	clean := func() error { return nil }
	if o.keep == "" {
		if dir, err = os.MkdirTemp("", "differential-"+name+"-"); err != nil {
			return nil, nil, err
		}
		clean = func() error { return os.RemoveAll(dir) }
	} else if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil { // what an earlier run left
		return nil, nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, nil, err
	}
	if bin == "" {
		bin = filepath.Join(dir, "assets")
		if err := pair.Ours(o.server, bin); err != nil {
			return nil, nil, errors.Join(err, clean())
		}
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "admission.yaml"), admission, 0o600); err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	args := []string{"--advertise-address=" + advertised}
	for _, flag := range flags {
		args = append(args, strings.ReplaceAll(flag, "$DIR", dir))
	}
	s, err := pair.Start(ctx, pair.Options{Bin: bin, Dir: dir, Args: args})
	if err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	return s, func() error { return errors.Join(s.Stop(), clean()) }, nil
}

// upstreamLag is what upstream's caches are given to learn of quotas, bindings and policies.
const upstreamLag = 2 * time.Second

// slow is after how long a request is worth a line of --slow.
const slow = time.Second

// playAll runs scenarios side by side, and hands over the answers of each.
func (o options) playAll(ctx context.Context, s *pair.Server, lag time.Duration, all []scenario, got func(scenario, []answer) error) error {
	t, err := newTarget(ctx, s)
	if err != nil {
		return err
	}
	t.lag, t.started = lag, s.Started
	if t.hooks, err = startHooks(); err != nil {
		return err
	}
	defer t.hooks.Close()
	t.took = func(what string, took time.Duration) {
		if o.slow && took > slow {
			fmt.Fprintf(os.Stderr, "%v: %s\n", took.Round(time.Millisecond), what)
		}
	}
	defer t.client.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	play := func(sc scenario) {
		answers, err := t.play(ctx, sc)
		if err == nil {
			err = got(sc, answers)
		}
		if err != nil {
			cancel(err)
		}
	}
	for _, sc := range all {
		if sc.alone && ctx.Err() == nil {
			play(sc)
		}
	}
	next := make(chan []scenario)
	var workers sync.WaitGroup
	for range o.workers {
		workers.Go(func() {
			for some := range next {
				for _, sc := range some {
					play(sc)
				}
			}
		})
	}
	for _, some := range inTurn(all) {
		select {
		case next <- some:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// inTurn are the scenarios that may run beside others, in lists whose own come one after the other.
func inTurn(all []scenario) (lists [][]scenario) {
	for _, sc := range all {
		last := len(lists) - 1
		switch {
		case sc.alone:
		case last >= 0 && sc.after == lists[last][0].name:
			lists[last] = append(lists[last], sc)
		default:
			lists = append(lists, []scenario{sc})
		}
	}
	return lists
}
