// Package egress makes connections through the proxies that a file of --egress-selector-config-file names, as kube-apiserver does.
//
// Goroutines: those of a proxy that speaks gRPC, for each connection until it's closed; and one for each connection that's being made, until the
// proxy has answered, has closed the connection, or has been given up by the library. A caller waits no longer than its context and dialTimeout, and
// finds no room when maxDials are under way. Locks: none.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/egressselector"
)

// Options say through which proxies connections go.
type Options struct {
	// ConfigFile is a file with an EgressSelectorConfiguration of apiserver.k8s.io. It's read once. By default all connections are direct.
	ConfigFile string
}

// AddFlags adds kube-apiserver's flag.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&o.ConfigFile, "egress-selector-config-file", "", "file with an EgressSelectorConfiguration: the proxies through which webhooks, aggregated API servers and etcd are reached")
}

// Dial makes a connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Ways are how connections are made, by where they lead. A nil Dial leaves it to who asks: directly.
type Ways struct {
	// ControlPlane leads to what the server asks or tells: webhooks of admission and conversion with a URL, those of authentication,
	// authorization and audit, and the collector of traces.
	ControlPlane Dial
	// Cluster leads to Services: webhooks and aggregated API servers there.
	Cluster Dial
	// Etcd leads to an etcd elsewhere.
	Etcd Dial

	named map[egressselector.EgressType]bool // those that the file names, directly or not
}

// Named returns the way that has a name in files of configuration. ok is false if the file of the options doesn't name it.
func (w Ways) Named(name string) (way Dial, ok bool) {
	switch name {
	case egressselector.ControlPlane.String():
		return w.ControlPlane, w.named[egressselector.ControlPlane]
	case egressselector.Cluster.String():
		return w.Cluster, w.named[egressselector.Cluster]
	}
	return nil, false
}

const (
	// dialTimeout is how long a proxy may take to make a connection.
	dialTimeout = 10 * time.Second
	// maxDials is how many connections may be under way to proxies, for each name. The library doesn't give up where a proxy takes the connection
	// and says nothing.
	maxDials = 256
)

// Read returns the ways of the options. The error has one line.
func Read(o Options) (Ways, error) {
	if o.ConfigFile == "" {
		return Ways{}, nil
	}
	fail := func(err error) (Ways, error) {
		return Ways{}, fmt.Errorf("--egress-selector-config-file: %s: %s", o.ConfigFile, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	config, err := egressselector.ReadEgressSelectorConfiguration(o.ConfigFile)
	if err != nil {
		return fail(err)
	}
	if err := egressselector.ValidateEgressSelectorConfiguration(config).ToAggregate(); err != nil {
		return fail(err)
	}
	selector, err := egressselector.NewEgressSelector(config)
	if err != nil || selector == nil {
		if err == nil {
			return Ways{}, nil
		}
		return fail(err)
	}
	ways := Ways{named: map[egressselector.EgressType]bool{}}
	for _, s := range config.EgressSelections {
		for to, way := range map[egressselector.EgressType]*Dial{egressselector.ControlPlane: &ways.ControlPlane, egressselector.Cluster: &ways.Cluster, egressselector.Etcd: &ways.Etcd} {
			if !strings.EqualFold(s.Name, to.String()) {
				continue
			}
			ways.named[to] = true
			if s.Connection.ProxyProtocol != apiserver.ProtocolDirect { // who connects directly does it by its own rules for addresses
				dial, _ := selector.Lookup(to.AsNetworkContext())
				*way = bounded(Dial(dial))
			}
		}
	}
	return ways, nil
}

var errBusy = errors.New("too many connections to the egress proxy are being made")

// bounded makes a Dial that ends with its context, and after dialTimeout, of one that may not.
func bounded(dial Dial) Dial {
	room := make(chan struct{}, maxDials)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case room <- struct{}{}:
		default:
			return nil, errBusy
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		type outcome struct {
			made net.Conn
			err  error
		}
		ended := make(chan outcome) // without room: what is sent has an owner
		go func() {
			defer func() { <-room }()
			made, err := dial(ctx, network, address)
			select {
			case ended <- outcome{made, err}:
			case <-ctx.Done():
				if err == nil {
					made.Close()
				}
			}
		}()
		select {
		case o := <-ended:
			return o.made, o.err
		case <-ctx.Done():
			return nil, fmt.Errorf("the egress proxy makes no connection: %w", ctx.Err())
		}
	}
}
