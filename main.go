// Command apiserver-lite serves the Kubernetes API for custom resources from one process, with etcd
// inside.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/commands"
	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/dropin"
	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// envPrefix begins the name of the environment variable of a flag: APISERVER_LITE_DATA_DIR for --data-dir.
const envPrefix = "APISERVER_LITE_"

func main() {
	// Its parent is looked at before anything else, so that its end isn't missed.
	p := process{cli.Process{Getenv: os.Getenv, In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Getppid()}
	runtime.MemProfileRate = 0 // until --profiling asks for samples: they take about 1 % of a write's CPU
	uuid.EnableRandPool()      // one system call for the random bytes of sixteen requests
	switch filepath.Base(os.Args[0]) {
	case dropin.KubeAPIServer:
		os.Exit(p.runKubeAPIServer(os.Args[1:]))
	case dropin.Etcd:
		os.Exit(p.runEtcd(os.Args[1:]))
	default:
		os.Exit(p.run(os.Args[1:]))
	}
}

// process is what the program has of the process that it runs in.
type process struct {
	cli.Process
	parent int // the id of the process that started it
}

// flags are the server's settings and those that only the process has.
type flags struct {
	server   server.Server
	logLevel string
	version  bool
	parent   parentFlag

	config           string
	check            bool
	console          bool
	managedFields    string
	serviceIPs       string
	webhookAddresses []string
}

func (p process) run(args []string) int {
	var f flags
	f.parent.pid = p.parent
	set := flagSet(&f)
	return commands.Run(args, p.Process, commands.Server{Flags: set, Run: func() error { return p.serve(&f, set) }})
}

// serve is what the program does without a command, after the flags have their values.
func (p process) serve(f *flags, set *pflag.FlagSet) error {
	if err := f.read(set, p.Getenv); err != nil {
		return exit.With(exit.Usage, err)
	}
	if f.version {
		v := server.Version()
		fmt.Fprintf(p.Out, "apiserver-lite %s (%s, %s)\n", v.GitVersion, v.GoVersion, v.Platform)
		return nil
	}
	level, _ := parseLevel(f.logLevel) // read has looked at it
	log := slog.New(slog.NewTextHandler(p.Err, &slog.HandlerOptions{Level: level}))
	setGlobals(log)
	if f.check {
		return check(&f.server, p.Out)
	}
	ctx, stop := signals(log, f.server.Serving.ShutdownDelay)
	defer stop()
	if f.parent.on {
		ctx = f.parent.watch(ctx, log)
	}
	return serve(ctx, &f.server, log, p.Out)
}

// setGlobals sets what a process has one of: SIGXFSZ, the default log, klog's. GOMEMLIMIT and GOMAXPROCS stay Go's; memory.go sets GOGC's
// percentage unless the environment does.
func setGlobals(log *slog.Logger) {
	ignoreFileSize()
	slog.SetDefault(log)
	klog.SetSlogLogger(log) // the Kubernetes libraries' logger
}

// serve runs the server until ctx ends. What to paste first goes to out.
func serve(ctx context.Context, s *server.Server, log *slog.Logger, out io.Writer) error {
	s.Telemetry.Profiling.Sample()
	s.Log, s.Metrics, s.FreeMemory = log, prometheus.DefaultGatherer, debug.FreeOSMemory
	if err := s.Start(ctx); err != nil {
		if errors.Is(err, context.Canceled) {
			return nil // told to stop before it was ready
		}
		return err
	}
	fmt.Fprint(out, banner(s))
	telling, stopTelling := context.WithCancel(ctx)
	defer tellSystemd(telling, s, log)()
	defer stopTelling()
	collectLess()
	defer forgetStart()()
	return s.Run(ctx)
}

// banner says where the server is, and what to paste into a terminal first.
func banner(s *server.Server) string {
	data := "data in " + s.Dir()
	if s.Etcd.On() {
		data = "data in etcd at " + strings.Join(s.Etcd.Servers, ",") + " below " + s.Etcd.Prefix
	}
	if s.Data.Ephemeral {
		data += " (ephemeral: not synced to disk, and removed at exit)"
	}
	curl, url := "curl", s.URL()
	if path, ok := strings.CutPrefix(url, "unix:"); ok {
		curl, url = "curl --unix-socket "+path, "http://localhost"
	}
	if s.TLS.On {
		curl += " --cacert " + s.Dir() + "/tls.crt"
	}
	if s.Token != "" || s.TokenFile != "" || s.Access.On() {
		curl += ` -H "Authorization: Bearer $TOKEN"`
	}
	return fmt.Sprintf("listening on %s\n%s\n  %s %s/api/v1/namespaces\n  %s -N '%s/api/v1/namespaces?watch=true'\n%s", s.URL(), data, curl, url, curl, url, kubectl(s))
}

// kubectl is the banner's line for kubectl, or nothing where kubectl can't: it knows no unix sockets, and sends a token
// over HTTPS only.
func kubectl(s *server.Server) string {
	withToken := s.Token != "" || s.TokenFile != "" || s.Access.On()
	secure := strings.HasPrefix(s.URL(), "https:")
	if strings.HasPrefix(s.URL(), "unix:") || withToken && !secure {
		return ""
	}
	command := "kubectl --server " + s.URL()
	switch {
	case s.Serving.KubeconfigFile != "":
		return "  kubectl --kubeconfig " + s.Serving.KubeconfigFile + " get namespaces\n"
	case s.TLS.On:
		command += " --certificate-authority " + s.Dir() + "/tls.crt"
	}
	switch {
	case withToken:
		command += ` --token "$TOKEN"`
	case secure:
		command += " --token none" // with no credentials at all it asks for a name
	}
	return "  " + command + " get namespaces\n"
}

// exitTimeout is when a signal's process ends if stopping takes longer: a start, or a close, may wait for a disk
// that doesn't answer. It is a little more than a close takes at most, and within the ten seconds that
// those who sent the signal wait.
const exitTimeout = 9500 * time.Millisecond

// signals returns a context that the first SIGINT or SIGTERM ends. The second one ends the process at
// once, and so does exitTimeout after the delay of the end: nothing that was acknowledged is lost by that.
func signals(log *slog.Logger, delay time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 2) // capacity 2: the second signal must not be lost while the first is handled
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-c:
				if ctx.Err() != nil {
					log.Warn("exiting at once", "signal", sig.String())
					os.Exit(exit.Forced)
				}
				log.Info("shutting down; a second signal exits at once", "signal", sig.String())
				time.AfterFunc(delay+exitTimeout, func() {
					fmt.Fprintf(os.Stderr, "apiserver-lite: not stopped %v after the signal: exiting\n", delay+exitTimeout)
					os.Exit(exit.Failure)
				})
				cancel()
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		close(done)
		cancel()
	}
}

// read completes flags that have the command line's values: by the environment, and by the file that they name.
func (f *flags) read(set *pflag.FlagSet, getenv func(string) string) error {
	var err error
	set.VisitAll(func(flag *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if value := getenv(name); value != "" && !flag.Changed && err == nil {
			if bad := set.Set(flag.Name, value); bad != nil {
				err = fmt.Errorf("%s: %w", name, bad)
			}
		}
	})
	f.server.Token = getenv(envPrefix + "TOKEN")
	if err == nil && f.config != "" {
		err = fromFile(set, f.config)
	}
	if err != nil {
		return err
	}
	if _, err := parseLevel(f.logLevel); err != nil {
		return err
	}
	f.server.Serving.NoConsole = !f.console
	return f.parseWriting()
}

// What --managed-fields may be.
const (
	managedOnApply = "on-apply"
	managedAlways  = "always"
)

// parseWriting reads what flags say about writes.
func (f *flags) parseWriting() error {
	switch f.managedFields {
	case managedOnApply, managedAlways:
		f.server.API.ManagedFieldsAlways = f.managedFields == managedAlways
	default:
		return fmt.Errorf("--managed-fields %q is neither %s nor %s", f.managedFields, managedOnApply, managedAlways)
	}
	var err error
	if f.server.API.ServiceIPs, err = netip.ParsePrefix(f.serviceIPs); err != nil {
		return fmt.Errorf("--service-cluster-ip-range %q is no network such as 10.0.0.0/24", f.serviceIPs)
	}
	for _, s := range f.webhookAddresses {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("--webhook-addresses %q is no network such as 127.0.0.0/8", s)
		}
		f.server.API.WebhookAddresses = append(f.server.API.WebhookAddresses, p)
	}
	return nil
}

// flagGroup is what --help and docs/flags.md show under one title.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// flagGroups are the program's flags, each in one group, in the order in which somebody needs them.
func flagGroups(f *flags) []flagGroup {
	s := &f.server
	var groups []flagGroup
	group := func(title string) *pflag.FlagSet {
		set := pflag.NewFlagSet(title, pflag.ContinueOnError)
		groups = append(groups, flagGroup{title: title, flags: set})
		return set
	}

	set := group("Where it serves")
	set.StringVar(&s.Serving.Listen, "listen", server.DefaultListen, "address to serve on: host:port (port 0 picks one), unix:/path, or systemd for the socket that a unit of systemd hands over")
	set.StringVar(&s.Serving.URLFile, "url-file", "", "file to write the URL to when ready")
	set.StringVar(&s.Serving.KubeconfigFile, "write-kubeconfig", "", "file to write a kubeconfig to when ready, with mode 0600; removed at exit")
	set.StringSliceVar(&s.Serving.AllowedHosts, "allowed-hosts", nil, "further names that the Host header may carry on a loopback address without a token")
	set.StringSliceVar(&s.Serving.CORSAllowedOrigins, "cors-allowed-origins", nil, "regular expressions, as '^https://app\\.example$', for the origins of web pages of other sites that may use this server")
	s.Serving.AddKubernetesFlags(set)
	set.BoolVar(&f.console, "console", true, "serve the console, a page for browsers, at /console and at /")

	addData(&s.Data, group("Data"))
	s.Data.Backups.AddFlags(group("Backups"))
	s.Data.Encryption.AddFlags(group("Encryption at rest"))

	f.addAPI(group("What it serves and does"))
	s.Aggregation.AddFlags(group("Aggregated API servers"))

	set = group("TLS and tokens")
	set.BoolVar(&s.TLS.On, "tls", false, "serve HTTPS with a certificate made for it, tls.crt in the data directory")
	set.StringVar(&s.TLS.CertFile, "tls-cert-file", "", "PEM file with the certificate to serve HTTPS with; read again, with its key, when it changes")
	s.TLS.AddNamed(set)
	set.StringVar(&s.TLS.KeyFile, "tls-key-file", "", "PEM file with its key")
	set.StringVar(&s.TokenFile, "token-file", "", "file with the bearer tokens to accept, one per line ("+envPrefix+"TOKEN holds one)")

	s.Access.AddFlags(group("Users and their rights"))
	s.Audit.AddFlags(group("Audit log"))
	s.Telemetry.AddFlags(group("What it tells of itself"))

	set = group("Bounds")
	s.Bounds.AddFlags(set)
	s.Bounds.AddKubernetesFlags(set)

	s.Cluster.AddFlags(group("Several processes, one store"))
	s.Etcd.AddFlags(group("An etcd cluster elsewhere"))

	f.addProcess(group("The process"))
	return groups
}

// addData adds the flags that are about the data directory, and what is kept of the past.
func addData(data *server.Data, set *pflag.FlagSet) {
	set.StringVar(&data.Dir, "data-dir", "", "directory for the data (default "+server.DefaultDataDir+"; with --ephemeral the system's temporary one)")
	set.BoolVar(&data.Ephemeral, "ephemeral", false, "keep the data in a fresh directory that is removed at exit; UNSAFE: nothing is synced to disk")
	set.DurationVar(&data.History, "history", server.DefaultHistory, "how long a watch can resume from an old resourceVersion, and the versions of objects are kept")
	set.BoolVar(&data.HistoryUsers, "history-users", false, "note with each write who asked for it, for the history of objects")
}

// addAPI adds the flags of what the server serves, and of what it does by itself.
func (f *flags) addAPI(set *pflag.FlagSet) {
	s := &f.server
	set.StringVar((*string)(&s.API.Builtin), "builtin", server.DefaultBuiltin, "built-in kinds of Kubernetes to serve: none, core (ConfigMap, Secret, Event, Lease, RBAC, …) or all (also Pod, Deployment, …, as data that nothing acts on)")
	set.StringVar(&f.serviceIPs, "service-cluster-ip-range", server.DefaultServiceIPs, "addresses for Services, with --builtin=all")
	set.StringVar(&s.API.Controllers, "controllers", "all", "what the server does by itself: all, none, or some of "+strings.Join(controllers.Names, ","))
	set.BoolVar(&s.API.Faults, "faults", false, "fail on purpose where rules say so, which come over HTTP: for tests alone")
	set.BoolVar(&s.API.FakeClock, "fake-clock", false, "go by a clock that stands still until POST /debug/clock?advance=1h moves it, with --ephemeral: for tests alone")
	set.BoolVar(&s.API.AutoCreateNamespaces, "auto-create-namespaces", false, "create a missing namespace with the first object in it")
	set.StringVar(&f.managedFields, "managed-fields", managedOnApply, "which objects' metadata.managedFields are kept: "+managedOnApply+" (those that were applied) or "+managedAlways+" (all, as kube-apiserver does)")
	s.Plugins.AddFlags(set)
	set.StringSliceVar(&f.webhookAddresses, "webhook-addresses", nil, "networks, as 127.0.0.0/8, in which webhooks and aggregated API servers may be called besides public addresses")
	s.API.Egress.AddFlags(set)
	s.API.Manifests.AddFlags(set)
}

// addProcess adds the flags that are about the process.
func (f *flags) addProcess(set *pflag.FlagSet) {
	set.StringVar(&f.logLevel, "log-level", "info", "least level to log: debug, info, warn or error")
	set.Var(&f.parent, "exit-with-parent", "shut down when the process that started this one ends; =PID names it")
	set.Lookup("exit-with-parent").NoOptDefVal = "true"
	set.StringVar(&f.config, configFlag, "", "YAML file with flags and their values, as 'data-dir: data'; flags and the environment win over it")
	set.BoolVar(&f.check, "check", false, "say whether a server could start with these flags, files and data directory, and exit")
	set.BoolVar(&f.version, "version", false, "print the version and exit")
}

// flagSet is all of flagGroups, in their order.
func flagSet(f *flags) *pflag.FlagSet {
	set := pflag.NewFlagSet(commandline.Program, pflag.ContinueOnError)
	set.SortFlags = false
	for _, g := range flagGroups(f) {
		commandline.Titled(g.title, g.flags)
		set.AddFlagSet(g.flags)
	}
	return set
}

func parseLevel(s string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("--log-level %q is none of debug, info, warn, error", s)
	}
	return level, nil
}

// parentFlag is --exit-with-parent. The parent is the process that has our parent's id when main
// begins, or the one that the flag names: then it isn't missed even if it ended before that.
type parentFlag struct {
	on  bool
	pid int
}

// parentPoll is how often the parent is looked for. (A death signal from the kernel, PR_SET_PDEATHSIG,
// comes when the parent's thread ends that started us, which in Go and Java is any time.)
const parentPoll = 100 * time.Millisecond

func (p *parentFlag) String() string { return strconv.FormatBool(p.on) }
func (p *parentFlag) Type() string   { return "pid" }

// Set takes true, false or a process id.
func (p *parentFlag) Set(s string) error {
	if on, err := strconv.ParseBool(s); err == nil { // 1 is true: nobody outlives process 1
		p.on = on
		return nil
	}
	pid, err := strconv.Atoi(s)
	if err != nil || pid < 1 {
		return errors.New("must be true, false or a process id")
	}
	p.on, p.pid = true, pid
	return nil
}

// watch returns a context that ends when our parent isn't that process any more.
func (p *parentFlag) watch(ctx context.Context, log *slog.Logger) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		for os.Getppid() == p.pid {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		log.Info("shutting down: the parent process ended", "pid", p.pid)
	}()
	return ctx
}
