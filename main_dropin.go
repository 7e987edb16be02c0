package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/dropin"
)

// envtestCommand fills a directory for KUBEBUILDER_ASSETS.
const envtestCommand = "envtest"

// runKubeAPIServer is the program under the name kube-apiserver. Its exit codes are that one's: 0, or 1.
func runKubeAPIServer(args []string, getenv func(string) string, stdout, stderr io.Writer, parent int) int {
	a, err := dropin.ParseAPIServer(args, getenv)
	switch {
	case err != nil:
		return failed(stderr, dropin.KubeAPIServer, err)
	case a.Say != "":
		fmt.Fprint(stdout, a.Say)
		return exitOK
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: a.LogLevel}))
	process(log)
	ctx, stop := signals(log)
	defer stop()
	if ctx, err = withParent(ctx, getenv, parent, log); err != nil {
		return failed(stderr, dropin.KubeAPIServer, err)
	}
	if err := a.Check(); err != nil {
		return failed(stderr, dropin.KubeAPIServer, err)
	}
	store, err := a.ChooseStore(ctx)
	if err != nil {
		return failed(stderr, dropin.KubeAPIServer, err)
	}
	log.Info("the store is " + store)
	if len(a.Unused) > 0 {
		log.Info("these flags have no effect here", "flags", strings.Join(a.Unused, " "))
	}
	a.Server.Log = log
	a.Server.Metrics = prometheus.DefaultGatherer
	a.Server.FreeMemory = debug.FreeOSMemory
	if err := serve(ctx, &a.Server, io.Discard); err != nil {
		return failed(stderr, dropin.KubeAPIServer, dropin.Explain(err))
	}
	return exitOK
}

// runEtcd is the program under the name etcd.
func runEtcd(args []string, getenv func(string) string, stdout, stderr io.Writer, parent int) int {
	o, err := dropin.ParseEtcd(args)
	switch {
	case err != nil:
		return failed(stderr, dropin.Etcd, err)
	case o.Say != "":
		fmt.Fprint(stdout, o.Say)
		return exitOK
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	ctx, stop := signals(log)
	defer stop()
	if ctx, err = withParent(ctx, getenv, parent, log); err != nil {
		return failed(stderr, dropin.Etcd, err)
	}
	defer forgetStart()()
	if err := dropin.RunEtcd(ctx, o, log); err != nil {
		return failed(stderr, dropin.Etcd, err)
	}
	return exitOK
}

// exitWithParent is the variable of --exit-with-parent. Under the other names it has no flag, because those have none.
const exitWithParent = envPrefix + "EXIT_WITH_PARENT"

// withParent returns a context that ends with the parent, if the environment asks for that: a test that is killed then leaves no
// process.
func withParent(ctx context.Context, getenv func(string) string, parent int, log *slog.Logger) (context.Context, error) {
	p := parentFlag{pid: parent}
	if value := getenv(exitWithParent); value != "" {
		if err := p.Set(value); err != nil {
			return nil, fmt.Errorf("%s: %w", exitWithParent, err)
		}
	}
	if !p.on {
		return ctx, nil
	}
	return p.watch(ctx, log), nil
}

// runEnvtest is the command that fills a directory for KUBEBUILDER_ASSETS, and prints its path for a Makefile.
func runEnvtest(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		fmt.Fprintf(stderr, "Usage: apiserver-lite %s DIR\n\nPuts this program into DIR as kube-apiserver and etcd, and prints the path for KUBEBUILDER_ASSETS.\n", envtestCommand)
		if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
			return exitOK
		}
		return exitUsage
	}
	self, err := os.Executable()
	if err != nil {
		return failed(stderr, "apiserver-lite", err)
	}
	dir, err := dropin.FillAssets(args[0], self)
	if err != nil {
		return failed(stderr, "apiserver-lite", err)
	}
	fmt.Fprintln(stdout, dir)
	return exitOK
}

func failed(stderr io.Writer, name string, err error) int {
	fmt.Fprintf(stderr, "%s: %s\n", name, oneLine(err))
	return exitFailure
}
