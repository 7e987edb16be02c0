package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/dropin"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
)

// runKubeAPIServer is the program under the name kube-apiserver. Its exit codes are that one's: 0, or 1.
func (p process) runKubeAPIServer(args []string) int {
	a, err := dropin.ParseAPIServer(args, p.Getenv)
	switch {
	case err != nil:
		return exit.Why(p.Err, dropin.KubeAPIServer, exit.Failure, err)
	case a.Say != "":
		fmt.Fprint(p.Out, a.Say)
		return exit.OK
	}
	log := slog.New(slog.NewTextHandler(p.Err, &slog.HandlerOptions{Level: a.LogLevel}))
	setGlobals(log)
	ctx, stop := signals(log, a.Server.Serving.ShutdownDelay)
	defer stop()
	if ctx, err = p.withParent(ctx, log); err != nil {
		return exit.Why(p.Err, dropin.KubeAPIServer, exit.Failure, err)
	}
	if err := a.Check(); err != nil {
		return exit.Why(p.Err, dropin.KubeAPIServer, exit.Failure, err)
	}
	store, err := a.ChooseStore(ctx)
	if err != nil {
		return exit.Why(p.Err, dropin.KubeAPIServer, exit.Failure, err)
	}
	log.Info("the store is " + store)
	if len(a.Unused) > 0 {
		log.Info("these flags have no effect here", "flags", strings.Join(a.Unused, " "))
	}
	if err := serve(ctx, &a.Server, log, io.Discard); err != nil {
		return exit.Why(p.Err, dropin.KubeAPIServer, exit.Failure, dropin.Explain(err))
	}
	return exit.OK
}

// runEtcd is the program under the name etcd.
func (p process) runEtcd(args []string) int {
	o, err := dropin.ParseEtcd(args)
	switch {
	case err != nil:
		return exit.Why(p.Err, dropin.Etcd, exit.Failure, err)
	case o.Say != "":
		fmt.Fprint(p.Out, o.Say)
		return exit.OK
	}
	log := slog.New(slog.NewTextHandler(p.Err, nil))
	ctx, stop := signals(log, 0)
	defer stop()
	if ctx, err = p.withParent(ctx, log); err != nil {
		return exit.Why(p.Err, dropin.Etcd, exit.Failure, err)
	}
	defer forgetStart()()
	if err := dropin.RunEtcd(ctx, o, log); err != nil {
		return exit.Why(p.Err, dropin.Etcd, exit.Failure, err)
	}
	return exit.OK
}

// exitWithParent is the variable of --exit-with-parent. Under the other names it has no flag, because those have none.
const exitWithParent = envPrefix + "EXIT_WITH_PARENT"

// withParent returns a context that ends with the parent, if the environment asks for that: a test that is killed then leaves no
// process.
func (p process) withParent(ctx context.Context, log *slog.Logger) (context.Context, error) {
	parent := parentFlag{pid: p.parent}
	if value := p.Getenv(exitWithParent); value != "" {
		if err := parent.Set(value); err != nil {
			return nil, fmt.Errorf("%s: %w", exitWithParent, err)
		}
	}
	if !parent.on {
		return ctx, nil
	}
	return parent.watch(ctx, log), nil
}
