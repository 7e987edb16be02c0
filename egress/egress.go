// Package egress makes connections through the proxies that a file of --egress-selector-config-file names, as kube-apiserver does.
//
// Goroutines: those of a proxy that speaks gRPC, for each connection until it's closed. Locks: none.
package egress

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"
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
	// ControlPlane leads to what the server asks or tells: webhooks of admission and conversion with a URL, and those of authentication,
	// authorization and audit.
	ControlPlane Dial
	// Cluster leads to Services: webhooks and aggregated API servers there.
	Cluster Dial
	// Etcd leads to an etcd elsewhere.
	Etcd Dial
}

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
	way := func(to egressselector.EgressType) Dial {
		dial, _ := selector.Lookup(to.AsNetworkContext())
		return Dial(dial)
	}
	return Ways{ControlPlane: way(egressselector.ControlPlane), Cluster: way(egressselector.Cluster), Etcd: way(egressselector.Etcd)}, nil
}
