// Package callout calls the servers that kubeconfigs name, which this one asks or tells: webhooks of authentication, authorization and audit.
//
// Goroutines: none of its own. Locks: none of its own.
package callout

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

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
	if config, err = load(file); err != nil {
		return nil, paths, err
	}
	config.Dial, config.Timeout = c.connect, timeout
	config.QPS = -1 // how many requests there are is for who sends them
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

// load reads a kubeconfig. One that says nothing is an error: where the library looks for files by itself, it would call the API server of the
// cluster that this process is a pod of, and tell it what is the webhook's to know.
func load(file string) (*rest.Config, error) {
	switch info, err := os.Stat(file); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // it's read again when it changes, and a pipe can't be
		return nil, fmt.Errorf("%s is no regular file", file)
	}
	kubeconfig, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := clientcmd.ResolveLocalPaths(kubeconfig); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %s", file, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return config, nil
}

// timeout is how long a call may take; kube-apiserver's.
const timeout = 30 * time.Second

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
