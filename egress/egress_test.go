package egress_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/egress"
)

// TestRead: what a file says is there, and what can't be used is an error of one line that names the flag.
func TestRead(t *testing.T) {
	const head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"
	for name, test := range map[string]struct{ text, want string }{
		"direct":       {head + "- {name: cluster, connection: {proxyProtocol: Direct}}", ""},
		"over a file":  {head + "- {name: controlplane, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /run/proxy.sock}}}}", ""},
		"other name":   {head + "- {name: internet, connection: {proxyProtocol: Direct}}", "internet"},
		"twice":        {head + "- {name: etcd, connection: {proxyProtocol: Direct}}\n- {name: etcd, connection: {proxyProtocol: Direct}}", "Duplicate value"},
		"no transport": {head + "- {name: etcd, connection: {proxyProtocol: HTTPConnect}}", "Required value"},
		"protocol":     {head + "- {name: etcd, connection: {proxyProtocol: SOCKS}}", "SOCKS"},
		"other kind":   {"apiVersion: v1\nkind: Config", "Config"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "egress.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := egress.Read(egress.Options{ConfigFile: file})
			if test.want == "" && err != nil {
				t.Error(err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "--egress-selector-config-file: ") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("the error is %v, want one line with the flag and %q", err, test.want)
			}
		})
	}
	if _, err := egress.Read(egress.Options{ConfigFile: filepath.Join(t.TempDir(), "absent")}); err == nil {
		t.Error("a file that isn't there is read")
	}
	if ways, err := egress.Read(egress.Options{}); err != nil || ways.Cluster != nil || ways.ControlPlane != nil || ways.Etcd != nil {
		t.Errorf("without a file: %v, %v", ways, err)
	}
}

// read writes a file and reads it.
func read(t *testing.T, selections string) egress.Ways {
	t.Helper()
	file := filepath.Join(t.TempDir(), "egress.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"+selections), 0o600); err != nil {
		t.Fatal(err)
	}
	ways, err := egress.Read(egress.Options{ConfigFile: file})
	if err != nil {
		t.Fatal(err)
	}
	return ways
}

// TestDirect: what a file says is reached directly is dialled by who asks, so that his rules for addresses hold, and has a name all the same.
func TestDirect(t *testing.T) {
	ways := read(t, "- {name: controlplane, connection: {proxyProtocol: Direct}}")
	if ways.ControlPlane != nil {
		t.Error("the way to the control plane isn't left to who asks")
	}
	if way, ok := ways.Named("controlplane"); way != nil || !ok {
		t.Errorf("by its name: %t", ok)
	}
	if _, ok := ways.Named("cluster"); ok {
		t.Error("a way that the file doesn't name has one")
	}
}

// TestSilentProxy: a dial by a proxy that takes connections and says nothing ends with its context, and when there are too many of them the
// next one is refused at once.
func TestSilentProxy(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "p.sock")
	proxy, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	taken, held := make(chan net.Conn, 1000), []net.Conn{}
	go func() {
		for {
			c, err := proxy.Accept()
			if err != nil {
				close(taken)
				return
			}
			taken <- c
		}
	}()
	ways := read(t, "- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: "+socket+"}}}}")
	dial := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error)
		go func() { _, err := ways.Cluster(ctx, "tcp", "10.0.0.1:443"); ended <- err }()
		select {
		case c := <-taken:
			defer func() { held = append(held, c) }()
		case err := <-ended:
			return err
		}
		cancel()
		return <-ended
	}
	for range 1000 { // the proxy has answered none of those before
		if err = dial(); !errors.Is(err, context.Canceled) {
			break
		}
	}
	if !strings.Contains(err.Error(), "too many connections") || len(held) == 0 {
		t.Errorf("%d dials are under way, and the next one ends with %v", len(held), err)
	}
	for _, c := range held {
		c.Close()
	}
	proxy.Close()
	for c := range taken {
		c.Close()
	}
}
