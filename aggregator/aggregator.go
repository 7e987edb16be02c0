package aggregator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/internal/connections"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Options are kube-apiserver's flags, and mean the same here.
type Options struct {
	// ProxyClientCertFile and ProxyClientKeyFile are PEM files of the certificate by which aggregated servers know this one.
	// They're read again when they change. Defaults to none: then no aggregated server believes whom a request comes from.
	ProxyClientCertFile, ProxyClientKeyFile string
	// EndpointRouting calls the endpoints of a Service, as its EndpointSlices have them, and not its ClusterIP. As with
	// kube-apiserver, a Service of type ExternalName can't be called then.
	EndpointRouting bool
}

// AddFlags adds kube-apiserver's flags for the options.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&o.ProxyClientCertFile, "proxy-client-cert-file", "", "PEM file with the certificate that aggregated API servers are shown")
	set.StringVar(&o.ProxyClientKeyFile, "proxy-client-key-file", "", "PEM file with its key")
	set.BoolVar(&o.EndpointRouting, "enable-aggregator-routing", false, "call aggregated API servers at the addresses of EndpointSlices, and not at the ClusterIP of their Service")
}

// Validate tells what can't work, by the name of the flag. It reads no file.
func (o *Options) Validate() error {
	if (o.ProxyClientCertFile == "") != (o.ProxyClientKeyFile == "") {
		return fmt.Errorf("--proxy-client-cert-file and --proxy-client-key-file need each other")
	}
	return nil
}

// Wiring is what an Aggregator needs of the server that it's in.
type Wiring struct {
	Registry *registry.Registry
	// Certificate is what servers are shown.
	Certificate *Certificate
	// Policy says at which addresses servers may be called.
	Policy hookclient.Policy
	// Way leads to the servers, whatever Policy says. Nil: directly.
	Way egress.Dial
	// Priority returns what the APIService of a built-in group version has, and is called without one. Nil: none is known.
	Priority func(schema.GroupVersion) (group, version int32, ok bool)
	Log      *slog.Logger // defaults to slog.Default()
}

// Aggregator serves what other servers have. Its methods may be called concurrently. It must be closed.
type Aggregator struct {
	registry *registry.Registry
	policy   hookclient.Policy
	way      egress.Dial // nil: directly
	priority func(schema.GroupVersion) (group, version int32, ok bool)
	log      *slog.Logger
	options  Options

	certificate *Certificate
	connections connections.Set
	routes      *registry.Derived[*Routes] // nil: APIServices aren't served
	read        map[string]*stored         // by their keys; only derive uses it, of which one runs at a time
	backends    map[string]*Backend        // by the names of APIServices; likewise
	news        atomic.Int64               // how often something has come that servers say about themselves
	unavailable *prometheus.CounterVec
}

var (
	apiServices    = storage.PrefixOf("apiregistration.k8s.io", "apiservices")
	services       = storage.PrefixOf("", "services")
	endpointSlices = storage.PrefixOf(discoveryv1.GroupName, "endpointslices")
)

// New returns an Aggregator. The Registry must have all its types.
func New(o Options, w Wiring) *Aggregator {
	a := &Aggregator{
		registry: w.Registry, policy: w.Policy, way: w.Way, priority: w.Priority, log: cmp.Or(w.Log, slog.Default()), options: o,
		certificate: w.Certificate, backends: map[string]*Backend{}, unavailable: newUnavailable(),
	}
	if w.Registry.Catalog().Prefix(apiServices) != nil {
		a.routes = registry.Derive(w.Registry, a.derive, apiServices)
	}
	return a
}

// Close closes the connections to servers. Nothing of the Aggregator may run any more.
func (a *Aggregator) Close() {
	if a != nil {
		a.connections.Close()
	}
}

// Run asks the servers what they have until ctx ends, and returns nil then, when nothing of it runs any more. The Registry must
// be running.
func (a *Aggregator) Run(ctx context.Context) error {
	a.forEach(ctx, func(ctx context.Context, b *Backend, news <-chan struct{}) {
		defer b.clients.retire()
		var both sync.WaitGroup
		defer both.Wait()
		documents := make(chan struct{}, 1)
		both.Go(func() { repeat(ctx, documents, openAPIPace, b.refreshOpenAPI) })
		repeat(ctx, news, discoveryPace, func(ctx context.Context) error {
			ring(documents) // for those who failed: the server may be back
			return b.refreshDiscovery(ctx)
		})
	})
	return nil
}

// Act looks whether the servers are available, and writes it into the status of their APIServices, until ctx ends. It returns
// when nothing of it runs any more. One of several replicas calls it at a time.
func (a *Aggregator) Act(ctx context.Context) {
	a.forEach(ctx, func(ctx context.Context, b *Backend, news <-chan struct{}) {
		repeat(ctx, news, availabilityPace, func(ctx context.Context) error { return a.checkAndReport(ctx, b) })
	})
}
