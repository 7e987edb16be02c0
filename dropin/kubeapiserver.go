package dropin

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// KubeAPIServer is the name by which this program takes kube-apiserver's flags.
const KubeAPIServer = "kube-apiserver"

// ControllersVariable names the variable of the environment that turns our controllers on for suites that want namespaces and
// dependents to go: kube-apiserver alone removes neither.
const ControllersVariable = "APISERVER_LITE_CONTROLLERS"

// ConsoleVariable names the variable of the environment that turns the console on, if it's "true". kube-apiserver has no flag of that name.
const ConsoleVariable = "APISERVER_LITE_CONSOLE"

// FaultsVariable names the variable of the environment that has the server fail on purpose where rules say so, if it's "true". kube-apiserver never does.
const FaultsVariable = "APISERVER_LITE_FAULTS"

// FakeClockVariable names the variable of the environment that has the server go by a clock that stands still until it's moved, if it's "true".
const FakeClockVariable = "APISERVER_LITE_FAKE_CLOCK"

// AddressesVariable names the variable of the environment that has networks, with commas between them, in which webhooks and
// aggregated API servers may be called besides public addresses. kube-apiserver calls any address and has no flag for it.
const AddressesVariable = "APISERVER_LITE_WEBHOOK_ADDRESSES"

// What kube-apiserver's flags default to.
const (
	defaultCertDir    = "/var/run/kubernetes"
	defaultSecurePort = 6443
	defaultPrefix     = "/registry"
)

// compactionFlag says how long history is kept: kube-apiserver removes in each interval what is older than one.
const compactionFlag = "etcd-compaction-interval"

// endless is a history that no server lives to see the end of.
const endless time.Duration = math.MaxInt64

// debugVerbosity is the --v from which on the log has what is there for debugging. Kubernetes keeps 4 for that.
const debugVerbosity = 4

// APIServer is what the flags of kube-apiserver ask for.
type APIServer struct {
	Server   server.Server
	LogLevel slog.Level
	etcd     []string // names of given flags that are about an etcd cluster
	Unused   []string // names of given flags that have no effect, for the log
	Say      string   // print this, and exit: help, or the version; "" unless asked for
}

// flags are those whose values have to be understood together.
type flags struct {
	bindAddress, certDir, serviceIPs string
	advertise, reconciler            string
	port, verbosity                  int
	fair                             bool
	tls                              tlsFlags
	featureGates, runtimeConfig      []string
	version                          bool
}

// ParseAPIServer reads the arguments of kube-apiserver.
func ParseAPIServer(args []string, getenv func(string) string) (*APIServer, error) {
	a := &APIServer{}
	var f flags
	set := a.flagSet(&f)
	if err := set.Parse(args); errors.Is(err, pflag.ErrHelp) {
		a.Say = "Stands in for kube-apiserver.\n\nUsage:\n  " + KubeAPIServer + " [flags]\n\nFlags:\n\n" + set.FlagUsages()
		return a, nil
	} else if err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: there are flags only", set.Arg(0))
	}
	if f.version {
		a.Say = "Kubernetes " + server.Version().GitVersion + "\n"
		return a, nil
	}
	s := &a.Server
	s.Data.Ephemeral = true // unless ChooseStore finds an etcd cluster: the data goes with the process, as that of envtest's etcd does
	s.API.ManagedFieldsAlways = true
	s.Serving.NoConsole = getenv(ConsoleVariable) != "true" // programs use that name, and have no use for a page
	s.API.Builtin = builtin.All
	s.Plugins.Kubernetes = true
	s.System.On = true
	s.API.Controllers = cmp.Or(getenv(ControllersVariable), "none")
	s.API.Faults, s.API.FakeClock = getenv(FaultsVariable) == "true", getenv(FakeClockVariable) == "true"
	set.Visit(func(g *pflag.Flag) {
		if strings.HasPrefix(g.Name, etcdFlags) && g.Name != compactionFlag && !slices.Contains(a.Unused, "--"+g.Name) {
			a.etcd = append(a.etcd, "--"+g.Name)
		}
	})
	err := errors.Join(a.apply(&f), a.chooseAPIs(&f), a.addAddresses(getenv(AddressesVariable)))
	slices.Sort(a.Unused)
	return a, err
}

// Check refuses what can't be used of the flags and of the files that they name. It comes before ChooseStore, which may wait.
func (a *APIServer) Check() error {
	s := &a.Server
	defer func(was bool) { s.Data.Ephemeral = was }(s.Data.Ephemeral)
	s.Data.Ephemeral = !s.Etcd.On() // as if a cluster were there: which store it is says nothing about the flags
	if err := s.Check(); err != nil {
		return Explain(err)
	}
	return nil
}

func (a *APIServer) flagSet(f *flags) *pflag.FlagSet {
	s := &a.Server
	s.API.NodePorts = builtin.DefaultNodePorts
	set := pflag.NewFlagSet(KubeAPIServer, pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-")) // as Kubernetes' programs do
	})
	set.StringVar(&f.bindAddress, "bind-address", "0.0.0.0", "address to serve on")
	set.IntVar(&f.port, "secure-port", defaultSecurePort, "port to serve HTTPS on")
	set.StringVar(&f.certDir, "cert-dir", defaultCertDir, "directory with apiserver.crt and apiserver.key, which are made if missing; without effect if --tls-cert-file is given")
	set.StringVar(&s.TLS.CertFile, "tls-cert-file", "", "PEM file with the certificate to serve HTTPS with")
	set.StringVar(&s.TLS.KeyFile, "tls-private-key-file", "", "PEM file with its key")
	s.TLS.AddNamed(set)
	f.tls.add(set)
	set.StringVar(&f.serviceIPs, "service-cluster-ip-range", server.DefaultServiceIPs, "addresses for Services; of two networks, the first is used")
	set.StringSliceVar(&s.Serving.CORSAllowedOrigins, "cors-allowed-origins", nil, "regular expressions for the origins of web pages that may use this server")
	s.Serving.AddKubernetesFlags(set)
	set.IntVar(&s.Bounds.HTTP2MaxStreams, "http2-max-streams-per-connection", 0, "requests that one HTTP/2 connection may have open; 0 leaves it to the server")
	s.Bounds.AddKubernetesFlags(set)
	set.BoolVar(&f.fair, "enable-priority-and-fairness", true, "false has no effect: requests are always shared fairly")
	set.StringSliceVar(&f.featureGates, "feature-gates", nil, "Name=true|false pairs of Kubernetes' feature gates; the log names those without an effect here")
	set.StringSliceVar(&f.runtimeConfig, "runtime-config", nil, "what of the API is served: pairs of true|false and group/version, group/version/resource, api/all, api/ga, api/beta or api/alpha")
	set.StringVar(&f.advertise, "advertise-address", "", "IP address at which others reach this server (default that of --bind-address or, where others can't reach that, of the interface with the default route)")
	set.StringVar(&f.reconciler, "endpoint-reconciler-type", "lease", "none leaves the Endpoints of default/kubernetes alone; lease and master-count have all servers in them")
	set.Int32Var(&s.System.NodePort, "kubernetes-service-node-port", 0, "port that default/kubernetes has on all nodes; 0 for none")
	set.Var(&s.API.NodePorts, "service-node-port-range", "ports for Services of the types NodePort and LoadBalancer")
	set.IntVarP(&f.verbosity, "v", "v", 0, "number for the verbosity of the log: "+strconv.Itoa(debugVerbosity)+" and more is for debugging")
	set.BoolVar(&f.version, "version", false, "print the version and exit")
	s.Etcd.AddKubernetesFlags(set, defaultPrefix)
	set.Lookup(compactionFlag).Usage = "how long history is kept; 0 keeps all of it"
	s.Access.AddFlags(set)
	s.Data.Encryption.AddFlags(set)
	s.Audit.AddFlags(set)
	s.Telemetry.AddFlags(set)
	s.Plugins.AddFlags(set)
	s.Aggregation.AddFlags(set)
	s.API.Egress.AddFlags(set)
	addOthers(set, &a.Unused)
	return set
}

// apply makes settings of the flags.
func (a *APIServer) apply(f *flags) error {
	s := &a.Server
	ip, err := netip.ParseAddr(f.bindAddress)
	if err != nil {
		return fmt.Errorf("--bind-address %q is no IP address", f.bindAddress)
	}
	if f.port < 1 || f.port > 65535 { // 0 would turn HTTPS off, and there is nothing else
		return fmt.Errorf("--secure-port %d is not between 1 and 65535", f.port)
	}
	if !ip.IsLoopback() && !s.Access.On() {
		return fmt.Errorf("--bind-address %s is more than a loopback address, and nobody is asked who they are: set --client-ca-file and --authorization-mode=RBAC, or --bind-address=127.0.0.1", ip)
	}
	s.Serving.Listen = net.JoinHostPort(ip.String(), strconv.Itoa(f.port))
	if (s.TLS.CertFile == "") != (s.TLS.KeyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file need each other")
	}
	if s.TLS.CertFile == "" {
		s.TLS.On, s.TLS.Dir = true, f.certDir
	}
	if s.TLS.Config, err = f.tls.config(); err != nil {
		return err
	}
	first, _, _ := strings.Cut(f.serviceIPs, ",")
	if s.API.ServiceIPs, err = netip.ParsePrefix(strings.TrimSpace(first)); err != nil {
		return fmt.Errorf("--service-cluster-ip-range %q is no network such as 10.0.0.0/24", f.serviceIPs)
	}
	if ip.IsLoopback() { // the webhooks of a test run beside it
		s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	if f.advertise != "" {
		if s.System.Advertise, err = netip.ParseAddr(f.advertise); err != nil || s.System.Advertise.IsLoopback() || s.System.Advertise.IsUnspecified() {
			return fmt.Errorf("--advertise-address %q is no IP address at which others could reach this server", f.advertise)
		}
	}
	if !slices.Contains([]string{"", "lease", "master-count", "none"}, f.reconciler) {
		return fmt.Errorf("--endpoint-reconciler-type %q is none of lease, master-count and none", f.reconciler)
	}
	s.System.NoEndpoints = f.reconciler == "none"
	if !f.fair { // it stays on; the log says so
		a.Unused = append(a.Unused, "--enable-priority-and-fairness=false")
	}
	if b := s.Bounds; b.MaxReads < 0 || b.MaxWrites < 0 || b.MaxReads+b.MaxWrites == 0 {
		return fmt.Errorf("--max-requests-inflight=%d and --max-mutating-requests-inflight=%d must not be negative, and add up to something positive", b.MaxReads, b.MaxWrites)
	}
	if s.Data.History = s.Etcd.CompactionInterval; s.Data.History < 0 { // nothing is compacted
		s.Data.History = endless
	}
	if f.verbosity >= debugVerbosity {
		a.LogLevel = slog.LevelDebug
	}
	return nil
}

// addAddresses reads what AddressesVariable says.
func (a *APIServer) addAddresses(list string) error {
	if list == "" {
		return nil
	}
	for network := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(network))
		if err != nil {
			return fmt.Errorf("%s: %q is no network such as 10.0.0.0/8", AddressesVariable, network)
		}
		a.Server.API.WebhookAddresses = append(a.Server.API.WebhookAddresses, p)
	}
	return nil
}

// chooseAPIs decides by --feature-gates and --runtime-config which parts of the API are there.
func (a *APIServer) chooseAPIs(f *flags) error {
	if len(f.featureGates)+len(f.runtimeConfig) == 0 {
		return nil
	}
	gates, unused, err := parseGates(f.featureGates)
	if err != nil {
		return err
	}
	config, more, err := parseRuntimeConfig(f.runtimeConfig)
	if err != nil {
		return err
	}
	a.Unused = slices.Concat(a.Unused, unused, more)
	s := &a.Server
	s.API.Unserved = func(path schema.GroupVersionResource) bool { return !gates.serves(path) || !config.serves(path) }
	s.API.NoInitialEvents = !gates[watchListGate].on
	for gate, plugin := range gatedPlugins {
		if !gates[gate].on {
			s.Plugins.Enable = slices.DeleteFunc(s.Plugins.Enable, func(name string) bool { return name == plugin })
			s.Plugins.Disable = append(s.Plugins.Disable, plugin)
		}
	}
	return nil
}

// ourFlags are flags that the server's errors name, with what kube-apiserver calls them.
var ourFlags = strings.NewReplacer("--listen", "--bind-address and --secure-port", "--tls-key-file", "--tls-private-key-file", "--tls:", "--cert-dir:",
	" (--etcd-timeout)", " (--etcd-servers)")

// Explain returns an error of the server in the words of kube-apiserver's flags.
func Explain(err error) error { return errors.New(ourFlags.Replace(err.Error())) }

// tlsFlags say which TLS is spoken.
type tlsFlags struct {
	minVersion string
	suites     []string
	curves     []int32
}

func (f *tlsFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.minVersion, "tls-min-version", "", "least version of TLS: VersionTLS12 or VersionTLS13")
	set.StringSliceVar(&f.suites, "tls-cipher-suites", nil, "names of the cipher suites for TLS 1.2 and before; Go's own choice if empty")
	set.Int32SliceVar(&f.curves, "tls-curve-preferences", nil, "numbers of the key exchanges; Go's own choice if empty")
}

// config returns what HTTPS begins from; nil leaves it to the server.
func (f *tlsFlags) config() (*tls.Config, error) {
	if f.minVersion == "" && len(f.suites) == 0 && len(f.curves) == 0 {
		return nil, nil
	}
	version, err := cliflag.TLSVersion(f.minVersion)
	if err != nil {
		return nil, fmt.Errorf("--tls-min-version: %w", err)
	}
	suites, err := cliflag.TLSCipherSuites(f.suites) // insecure ones, too
	if err != nil {
		return nil, fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	config := &tls.Config{MinVersion: max(version, tls.VersionTLS12), CipherSuites: suites}
	for _, id := range f.curves {
		config.CurvePreferences = append(config.CurvePreferences, tls.CurveID(id))
	}
	return config, nil
}
