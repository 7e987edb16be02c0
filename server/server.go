package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/admission"
	"github.com/apiserver-lite/apiserver-lite/aggregator"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server/backups"
	"github.com/apiserver-lite/apiserver-lite/server/bounds"
	"github.com/apiserver-lite/apiserver-lite/server/manifests"
	"github.com/apiserver-lite/apiserver-lite/server/profile"
	"github.com/apiserver-lite/apiserver-lite/server/secrets"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
	"github.com/apiserver-lite/apiserver-lite/storage/seal"
	"github.com/apiserver-lite/apiserver-lite/system"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// What a Server's fields default to.
const (
	DefaultListen         = "127.0.0.1:8080"
	DefaultDataDir        = "./data"
	DefaultHistory        = time.Hour
	DefaultMaxConnections = wire.DefaultMaxConnections
	DefaultBuiltin        = string(builtin.Core)
	DefaultServiceIPs     = builtin.DefaultServiceIPs
)

// Server is one API server, by default with its own etcd. Its zero value is useful: it serves
// http://127.0.0.1:8080 from ./data. The fields must not change after Start or Run. Any number of
// Servers can live in one process; each serves once, from Start or Run to Close. Its settings are grouped as the help of the
// program's flags is.
type Server struct {
	// Serving says where it serves, and for whom: by default at 127.0.0.1:8080, for this machine.
	Serving Serving

	// Data says where the data is: by default in ./data.
	Data Data

	// API says what it serves, and what it does by itself.
	API API

	// Plugins says which admission plug-ins are on. By default those that do nothing until somebody writes an
	// object that asks for it: webhooks, policies, and with builtin.All quotas, LimitRanges and default storage classes.
	Plugins admission.Options

	// System says whether the server makes for itself what kube-apiserver does, under that name. It takes Builtin
	// builtin.All. By default it makes namespaces and, with Builtin, default/kubernetes and Kubernetes' own roles.
	System system.Options

	// Aggregation says how servers are called that APIServices name. They're called at the addresses at which webhooks may be
	// called. APIServices are served with builtin.All.
	Aggregation aggregator.Options

	// TLS says whether and how it serves HTTPS.
	TLS TLS

	// Token, if set, is a bearer token that requests must carry, except those for /healthz, /livez
	// and /readyz.
	Token string

	// TokenFile holds more such tokens, one per line; empty lines and lines that begin with #
	// don't count. Its mode is checked as the key's, and it's read once, at start.
	TokenFile string

	// Access says who else is let in, and what users may do. By default nobody is asked, apart from Token and TokenFile:
	// everyone who reaches the server is system:masters. Holders of Token and TokenFile's tokens always are.
	Access access.Options

	// Audit says which requests are noted in an audit log. By default none is.
	Audit audit.Options

	// Telemetry says what it tells of what it does.
	Telemetry Telemetry

	// Bounds are how much clients may take.
	Bounds Bounds

	// Cluster makes the store one that other processes have, too. By default this process has it alone, and opens no port
	// for it.
	Cluster etcd.ClusterOptions

	// Etcd names an etcd cluster that keeps the data instead of a data directory, and that other servers may use at the same
	// time. Data.Dir then defaults to none, and holds only what this server has for itself, as the certificate of TLS.
	Etcd remote.Options

	// FreeMemory, if set, is called when a thousand watches or more have come or gone and no further ones do. The
	// program apiserver-lite sets debug.FreeOSMemory, which gives back what the whole process doesn't use.
	FreeMemory func()

	// Metrics, if set, are shown on /metrics besides the server's own: prometheus.DefaultGatherer adds
	// etcd's and the Go runtime's, which are one set per process.
	Metrics prometheus.Gatherer

	// Log takes what the server has to say. Defaults to slog.Default().
	Log *slog.Logger

	tests tests
	life  life
}

// Telemetry says what a Server tells of what it does, besides its log and /metrics.
type Telemetry struct {
	// Profiling says whether Go's profiles are served at /debug/pprof/. By default they are where users' rights count.
	Profiling profile.Options

	// Tracing says which requests are traced. By default none are.
	Tracing tracing.Options
}

// AddFlags adds the flags of what a server tells.
func (t *Telemetry) AddFlags(set *pflag.FlagSet) {
	t.Profiling.AddFlags(set)
	t.Tracing.AddFlags(set)
}

// tests is what tests set.
type tests struct {
	shares   *sharedEtcd
	timeouts timeouts // the last defaults to recheck.Interval
}

// Serving says where a Server serves, and for whom.
type Serving struct {
	// Listen is the address to serve on: "host:port", where port 0 picks a free one, or
	// "unix:/path" for a socket of mode 0600. Without a token only loopback addresses and sockets
	// are accepted. Defaults to 127.0.0.1:8080.
	Listen string

	// URLFile, if set, is a file that gets the server's URL and a newline, whole or not at all, when it
	// is ready. It's removed at the start and by Close.
	URLFile string

	// KubeconfigFile, if set, is a file that gets a kubeconfig of mode 0600, whole or not at all, when the server is
	// ready: with its URL, the certificate to trust if the machine doesn't trust it by itself, and a token if the server
	// asks for one. Close removes it. A file that another program wrote isn't replaced: the start fails. No client of
	// kubeconfigs knows unix sockets.
	KubeconfigFile string

	// AllowedHosts are names that the Host header may carry, besides localhost and loopback
	// addresses, while the server listens on a loopback address without a token: a web page that
	// rebinds its own name to 127.0.0.1 gets nothing. A port is ignored.
	AllowedHosts []string

	// CORSAllowedOrigins are regular expressions, as `//example\.com(:|$)`, that match the origins of web pages of other
	// sites that may read and write here and watch over WebSocket. By default no page of another site may.
	CORSAllowedOrigins []string

	// NoConsole leaves out the console at /console, and for browsers at /, which then have a list of what is served there.
	// By default there is the console: its files need no credential, and all that it shows it asks for as its user.
	NoConsole bool

	// TransportSecurity are the directives of the header Strict-Transport-Security, as "max-age=31536000", which answers over HTTPS have. By default
	// there is no such header.
	TransportSecurity []string

	// NoHTTP2 leaves out HTTP/2. By default clients choose.
	NoHTTP2 bool

	// ShutdownDelay is how long the server goes on to serve when it's told to end, while /readyz fails, so that load balancers notice. By default not at
	// all.
	ShutdownDelay time.Duration
}

// AddKubernetesFlags adds those of kube-apiserver's flags that mean the same here.
func (s *Serving) AddKubernetesFlags(set *pflag.FlagSet) {
	set.StringSliceVar(&s.TransportSecurity, "strict-transport-security-directives", nil, "directives of the header Strict-Transport-Security, as max-age=31536000, which answers over HTTPS have then")
	set.BoolVar(&s.NoHTTP2, "disable-http2-serving", false, "serve HTTP/1.1 only")
	set.DurationVar(&s.ShutdownDelay, "shutdown-delay-duration", 0, "how long the server goes on to serve when it's told to end, while /readyz fails, so that load balancers notice")
}

// validate tells the first setting that can't work, by the name of its flag.
func (s *Serving) validate() error {
	if s.ShutdownDelay < 0 {
		return fmt.Errorf("--shutdown-delay-duration can not be negative value: %v", s.ShutdownDelay)
	}
	for _, d := range s.TransportSecurity {
		if !slices.Contains([]string{"includeSubDomains", "preload"}, d) && !strings.HasPrefix(d, "max-age=") {
			return errors.New("--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload: see RFC 6797, section 6.1")
		}
	}
	return nil
}

// Data says where the data is, and how long its history.
type Data struct {
	// Dir is the directory that holds etcd's data, made with mode 0700 if it's missing.
	// Defaults to ./data; with Ephemeral, to the system's temporary directory.
	Dir string

	// Ephemeral keeps the data in a fresh directory (inside Dir, if that's set) that Close
	// removes, and never syncs it to disk. UNSAFE: everything is lost when the process ends.
	Ephemeral bool

	// History is how long a watch can resume from an old resourceVersion. Defaults to 1h.
	History time.Duration
	// HistoryUsers has the history of objects say who has written what.
	HistoryUsers bool

	// Backups says whether the server takes snapshots of itself on schedule. By default it doesn't.
	Backups backups.Options

	// Encryption says which objects are encrypted at rest. By default none are.
	Encryption seal.Options
}

// API says what a Server serves, and what it does by itself.
type API struct {
	// Builtin says which of Kubernetes's built-in kinds are served: builtin.None, builtin.Core, or builtin.All,
	// which adds those that are only data here, such as Pod and Deployment. Defaults to builtin.Core.
	Builtin builtin.Set

	// ServiceIPs is the range from which Services get their ClusterIPs, with builtin.All. Defaults to 10.0.0.0/24.
	ServiceIPs netip.Prefix

	// NodePorts are the ports that Services of the types NodePort and LoadBalancer may have, with builtin.All. Defaults to
	// 30000-32767.
	NodePorts utilnet.PortRange

	// Unserved, if set, tells of paths of built-in kinds that they aren't served, as kube-apiserver's --runtime-config does.
	Unserved func(schema.GroupVersionResource) bool

	// Controllers says what the server does by itself after the writes of clients: "all", "none", or names separated by
	// commas, of garbage-collector, namespace, expiry, serviceaccount, clusterrole-aggregation, resourcequota, storage-version-migrator and validatingadmissionpolicy-status. With
	// "none" it does what kube-apiserver does alone. Defaults to "all".
	Controllers string

	// Faults has the server fail on purpose where rules say so, which come over HTTP: see package faults. It's for tests alone. By default there are none.
	Faults bool

	// FakeClock has the server go by a clock that stands still until POST /debug/clock moves it, for tests alone: see package faketime. It takes
	// Data.Ephemeral, and a store of this process alone. By default the clock is the machine's.
	FakeClock bool

	// Manifests says which directory's files the server applies, at its start and when they change. By default none.
	Manifests manifests.Options

	// AutoCreateNamespaces makes a missing namespace when an object is created in it, instead of
	// answering 404 as Kubernetes does.
	AutoCreateNamespaces bool

	// ManagedFieldsAlways tracks in metadata.managedFields who set which field from an object's creation
	// on, as kube-apiserver does. Otherwise an object is tracked once it has been applied (server-side
	// apply): tracking costs several times what a write does.
	ManagedFieldsAlways bool

	// NoInitialEvents refuses requests with sendInitialEvents, as kube-apiserver does without its feature WatchList.
	NoInitialEvents bool

	// WebhookAddresses are the networks, as "127.0.0.0/8", in which webhooks may be called besides public
	// addresses. By default none that is private, loopback or link-local.
	WebhookAddresses []netip.Prefix

	// Egress says through which proxies webhooks, aggregated API servers and an etcd elsewhere are reached. By default directly.
	Egress egress.Options

	// Register, if set, is called before the server starts to serve, for Go programs that serve types
	// of their own: see registry.Register.
	Register func(*registry.Registry)

	// Admission, if set, is asked about what clients write to any resource, definitions and namespaces too, and may change
	// or refuse it: see registry.Admission. Objects of one Go type are the matter of its registry.Definition.
	Admission []registry.Admission[unstructured.Unstructured]
}

// TLS says whether and how a Server serves HTTPS, and Bounds how much clients may take.
type (
	TLS    = secrets.TLS
	Bounds = bounds.Bounds
)

// life is a Server's state from Start to Close.
type life struct {
	mu      sync.Mutex    // guards started, closing and giveUp, which are set once
	started chan struct{} // made by the first Start, Run or Close; closed when in and the start's error are set

	giveUp    context.CancelFunc // ends a start under way
	in        *instance          // nil unless the start succeeded; written before started is closed
	startErr  error              // likewise
	closeOnce sync.Once
	closing   chan struct{} // closed when Close begins; made with started
	closeErr  error
}

// timeouts are how long clients may take, and how long watches go on whose users may no longer watch.
type timeouts struct {
	wire.Timeouts
	recheck time.Duration
}

var errUsed = errors.New("server: already started or closed; a Server serves once")

// Start starts the server and returns when it's ready: when it serves every request, and all that was
// stored before. ctx bounds the start and nothing after it. After an error nothing is left, and
// Close needn't be called.
func (s *Server) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.life.begin(cancel) {
		return errUsed
	}
	s.life.in, s.life.startErr = s.open(ctx)
	close(s.life.started)
	return s.life.startErr
}

// Run starts the server, unless Start did, and blocks until ctx ends, Close is called, or the server
// can't go on. Then it closes the server. Its error is one of Start or Close, or says why the server can't go on.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil && !errors.Is(err, errUsed) {
		return err
	}
	l := &s.life
	<-l.started
	if l.in == nil {
		return cmp.Or(l.startErr, errUsed)
	}
	var err error
	select {
	case <-ctx.Done():
	case <-l.closing:
	case err = <-l.in.loops.failed:
	case <-l.in.storeDone():
		err = l.in.etcdStopped()
	}
	closeErr := s.Close()
	if err != nil && closeErr != nil { // a consequence, which would hide the cause
		l.in.log.Warn("the server wasn't closed cleanly", "error", closeErr)
		return err
	}
	return cmp.Or(err, closeErr)
}

// Close stops the server and waits until it has: readiness fails, requests under way are answered,
// watches get what was acknowledged, a last bookmark and a clean end, connections close, and etcd
// stops last. A start that is under way gives up. It takes at most about ten seconds. It can be called at any time, any
// number of times.
func (s *Server) Close() error {
	l := &s.life
	if l.begin(func() {}) {
		close(l.started)
	}
	l.giveUp()
	<-l.started
	l.closeOnce.Do(func() {
		close(l.closing)
		if l.in != nil {
			l.closeErr = l.in.close()
		}
	})
	return l.closeErr
}

// Closed returns a channel that is closed when Close begins. Before Start it's nil.
func (s *Server) Closed() <-chan struct{} {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	return s.life.closing
}

// begin reports whether the caller is the first to start or close the Server. Then giveUp ends what it does.
func (l *life) begin(giveUp context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started != nil {
		return false
	}
	l.started, l.closing, l.giveUp = make(chan struct{}), make(chan struct{}), giveUp
	return true
}

// URL returns where the server serves, as "http://127.0.0.1:8080", "https://…" or "unix:/path". It's
// empty until Start has returned.
func (s *Server) URL() string {
	if in := s.life.instance(); in != nil {
		return in.url
	}
	return ""
}

// Dir returns the directory that the data is in. It's empty until Start has returned, and with Etcd if there is no Data.Dir.
func (s *Server) Dir() string {
	if in := s.life.instance(); in != nil {
		return in.backing.dataDir
	}
	return ""
}

// instance returns what a finished start left, or nil.
func (l *life) instance() *instance {
	l.mu.Lock()
	started := l.started
	l.mu.Unlock()
	if started == nil {
		return nil
	}
	select {
	case <-started:
		return l.in
	default:
		return nil
	}
}

// validate tells the first setting that can't work, by the name of its flag.
func (s *Server) validate() error {
	switch {
	case s.Data.History < 0:
		return fmt.Errorf("--history must not be negative: %v", s.Data.History)
	case s.API.Builtin != "" && s.API.Builtin != builtin.None && s.API.Builtin != builtin.Core && s.API.Builtin != builtin.All:
		return fmt.Errorf("--builtin must be none, core or all: %q", s.API.Builtin)
	case s.API.NodePorts.Size != 0 && s.API.NodePorts.Base < 1:
		return fmt.Errorf("--service-node-port-range must begin with 1 or more: %v", s.API.NodePorts)
	case s.API.FakeClock && (!s.Data.Ephemeral || s.Etcd.On() || s.Cluster.Listen != "" || s.Cluster.Join != ""):
		return errors.New("--fake-clock is for tests, of a server that is alone: set --ephemeral, and leave --etcd-servers, --cluster-listen and --join out")
	case s.Serving.KubeconfigFile != "" && strings.HasPrefix(s.Serving.Listen, wire.UnixScheme):
		return errors.New("--write-kubeconfig: kubectl can't use a unix socket: listen on 127.0.0.1")
	}
	for _, validate := range []func() error{s.Bounds.Validate, s.Serving.validate, s.TLS.Validate, s.Data.Encryption.Validate, s.validateEtcd, s.Data.Backups.Validate, s.API.Manifests.Validate, s.Aggregation.Validate, s.Audit.Validate, s.Access.Validate, s.Plugins.Validate} {
		if err := validate(); err != nil {
			return err
		}
	}
	if s.Access.NeedsTLS() && !s.TLS.On && s.TLS.CertFile == "" {
		return errors.New("client certificates need HTTPS: set --tls, or --tls-cert-file and --tls-key-file, with --client-ca-file and --requestheader-client-ca-file")
	}
	if _, err := controllers.ParseSet(s.API.Controllers); err != nil {
		return fmt.Errorf("--controllers: %w", err)
	}
	return nil
}

func (s *Server) log() *slog.Logger { return cmp.Or(s.Log, slog.Default()) }
