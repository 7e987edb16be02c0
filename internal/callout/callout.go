// Package callout calls the servers that kubeconfigs name, which this one asks or tells: webhooks of authentication, authorization and audit.
//
// Goroutines: none of its own. Locks: none of its own.
package callout

import (
	"context"
	"fmt"
	"net"
	"os"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/internal/connections"
)

// Calls are an owner's calls to such servers.
type Calls struct {
	open connections.Set
	dial egress.Dial     // without the Set
	ctx  context.Context // of all dials
	stop context.CancelFunc
}

// New returns Calls, which must be closed. With a nil way they go directly.
func New(way egress.Dial) *Calls {
	if way == nil {
		way = new(net.Dialer).DialContext
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Calls{dial: way, ctx: ctx, stop: stop}
}

// Read returns how to call the server that a kubeconfig names, and the files that say it: the kubeconfig, and those with certificates and keys
// that it names. Their content is part of the answer: whoever wants what they hold later reads again. Errors have one line.
func (c *Calls) Read(file string) (config *rest.Config, paths []string, err error) {
	paths = []string{file}
	if config, err = webhook.LoadKubeconfig(file, c.connect); err != nil {
		return nil, paths, err
	}
	t := &config.TLSClientConfig
	for _, from := range []struct {
		path *string
		to   *[]byte
	}{{&t.CAFile, &t.CAData}, {&t.CertFile, &t.CertData}, {&t.KeyFile, &t.KeyData}} {
		if *from.path == "" {
			continue
		}
		paths = append(paths, *from.path)
		if len(*from.to) == 0 { // what is written into the kubeconfig wins, as with kubectl
			if *from.to, err = os.ReadFile(*from.path); err != nil {
				return nil, paths, fmt.Errorf("%s: %w", file, err)
			}
		}
		*from.path = "" // otherwise the library would look after the file in a goroutine that never ends
	}
	return config, paths, nil
}

// connect dials until Close.
func (c *Calls) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	return c.open.Dial(func() (net.Conn, error) { return c.dial(ctx, network, address) })
}

// Close ends dials and closes all connections. Calls that are under way fail, and so do later ones.
func (c *Calls) Close() {
	c.stop()
	c.open.Close()
}
