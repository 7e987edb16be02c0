package remote_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
)

// startEtcd runs an etcd that listens, in a directory, and returns its client URL. configure may be nil.
func startEtcd(t testing.TB, dir string, configure func(*embed.Config)) (string, listening) {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel, config.LogOutputs = "panic", []string{filepath.Join(t.TempDir(), "etcd.log")}
	config.UnsafeNoFsync = true
	// bcrypt's least: etcd's client sends its password for each stream, and with the race detector bcrypt's default takes
	// a second of CPU to check it.
	config.BcryptCost = 4
	client, peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}, url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{client}, []url.URL{peer}
	if configure != nil {
		configure(config)
	}
	e, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(e.Close)
	t.Cleanup(stop)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd isn't ready")
	}
	return config.ListenClientUrls[0].Scheme + "://" + e.Clients[0].Addr().String(), listening{e, stop}
}

// listening is an etcd that may be stopped before the test ends.
type listening struct {
	*embed.Etcd
	stop func()
}

// file writes a file for a flag and returns its path.
func file(t testing.TB, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func connect(t testing.TB, o remote.Options) *clientv3.Client {
	t.Helper()
	c, err := remote.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// refusedAtOnce checks an error of Connect that doesn't wait for the timeout.
func refusedAtOnce(t *testing.T, o remote.Options, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.Wait = true // only ctx would end it
	c, err := remote.Connect(ctx, o)
	if err == nil {
		c.Close()
	}
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want one with %q", err, want)
	}
}

// TestConnectByAWay: every connection is made by the Way, if there is one.
func TestConnectByAWay(t *testing.T) {
	a, _ := startEtcd(t, t.TempDir(), nil)
	var made atomic.Int64
	way := func(ctx context.Context, network, address string) (net.Conn, error) {
		made.Add(1)
		if address != "etcd.example:2379" {
			return nil, fmt.Errorf("%s is dialled", address)
		}
		return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(a, "http://"))
	}
	client := connect(t, remote.Options{Servers: []string{"http://etcd.example:2379"}, Way: way}) // a name that only the way knows
	before := made.Load()
	if _, err := client.Put(t.Context(), "/k", "v"); err != nil {
		t.Fatal(err)
	}
	if before == 0 {
		t.Error("nothing was dialled by the way")
	}
}

func TestConnect(t *testing.T) {
	a, _ := startEtcd(t, t.TempDir(), nil)
	b, _ := startEtcd(t, t.TempDir(), func(c *embed.Config) { c.InitialClusterToken = "another" })
	client := connect(t, remote.Options{Servers: []string{a}, Prefix: "/x"})
	whole := connect(t, remote.Options{Servers: []string{a}, Prefix: "/x/registry"})
	if _, err := client.Put(t.Context(), "/registry/k", "v"); err != nil {
		t.Fatal(err)
	}
	if got, err := whole.Get(t.Context(), "/k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the prefix isn't before the key: %v, %v", got, err)
	}
	refusedAtOnce(t, remote.Options{Servers: []string{a, b}}, "two clusters")

	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{}
	go server.Serve(plain)
	defer server.Close()
	refusedAtOnce(t, remote.Options{Servers: []string{"http://" + plain.Addr().String()}}, "isn't the client URL of an etcd")
	secure := remote.Options{Servers: []string{strings.Replace(a, "http:", "https:", 1)}}
	if err := remote.Try(t.Context(), secure); err == nil || !strings.Contains(err.Error(), "speaks TLS") {
		t.Errorf("error is %v", err)
	}
}

func TestConnectWaits(t *testing.T) {
	port, err := net.Listen("tcp", "127.0.0.1:0") // nobody answers there
	if err != nil {
		t.Fatal(err)
	}
	silent := "http://" + port.Addr().String()
	if _, err := remote.Connect(t.Context(), remote.Options{Servers: []string{silent}, Timeout: time.Second}); err == nil || !strings.Contains(err.Error(), "--etcd-timeout") {
		t.Errorf("error is %v", err)
	}
	port.Close()
	if _, err := remote.Connect(t.Context(), remote.Options{Servers: []string{silent}, Timeout: time.Second}); err == nil || !strings.Contains(err.Error(), "--etcd-timeout") {
		t.Errorf("error is %v", err)
	}
	connected := make(chan error, 1)
	go func() {
		c, err := remote.Connect(t.Context(), remote.Options{Servers: []string{silent}, Timeout: time.Millisecond, Wait: true})
		if err == nil {
			c.Close()
		}
		connected <- err
	}()
	startEtcd(t, t.TempDir(), func(c *embed.Config) {
		c.ListenClientUrls = []url.URL{{Scheme: "http", Host: strings.TrimPrefix(silent, "http://")}}
	})
	if err := <-connected; err != nil {
		t.Error(err)
	}
}

// withUsers lets nobody into an etcd but root, whose password is "r", and a user who may read and write what begins with one of the
// prefixes. It returns the options with that user.
func withUsers(t testing.TB, o remote.Options, prefixes ...string) remote.Options {
	t.Helper()
	root, ctx := connect(t, o), t.Context()
	steps := []func() error{
		func() error { _, err := root.UserAdd(ctx, "root", "r"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.UserAdd(ctx, "lite", "secret"); return err },
		func() error { _, err := root.RoleAdd(ctx, "lite"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "lite", "lite"); return err },
	}
	for _, p := range prefixes {
		steps = append(steps, func() error {
			_, err := root.RoleGrantPermission(ctx, "lite", p, clientv3.GetPrefixRangeEnd(p), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		})
	}
	steps = append(steps, func() error { _, err := root.AuthEnable(ctx); return err })
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	o.Username, o.PasswordFile = "lite", file(t, "secret\n", 0o600)
	return o
}

// TestOpenWaits: the start waits for the claim as it does for the connection: here for an etcd that can be read, and not
// written.
func TestOpenWaits(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), func(c *embed.Config) { c.QuotaBackendBytes = 1 })
	s, err := remote.Open(t.Context(), remote.Options{Servers: []string{url}, Timeout: 2 * time.Second})
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "--etcd-timeout") {
		t.Errorf("error is %v, want one that names --etcd-timeout", err)
	}
}

func TestUsers(t *testing.T) {
	a, _ := startEtcd(t, t.TempDir(), nil)
	user := withUsers(t, remote.Options{Servers: []string{a}, Prefix: "/x"}, "/x/")
	if _, _, err := remote.Claim(t.Context(), connect(t, user)); err != nil {
		t.Error(err)
	}
	other := user
	other.Prefix = "/y"
	refusedAtOnce(t, other, "permission denied")
	nobody := remote.Options{Servers: []string{a}, Prefix: "/x"}
	refusedAtOnce(t, nobody, "user name is empty")
	wrong := user
	wrong.PasswordFile = file(t, "guess", 0o600)
	refusedAtOnce(t, wrong, "authentication failed")
	open := user
	open.PasswordFile = file(t, "secret", 0o644)
	refusedAtOnce(t, open, "chmod 600")
}

func TestClaim(t *testing.T) {
	a, _ := startEtcd(t, t.TempDir(), nil)
	ctx := t.Context()
	empty := connect(t, remote.Options{Servers: []string{a}, Prefix: "/empty"})
	first, at, err := remote.Claim(ctx, empty)
	if err != nil || first.ID == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, then, err := remote.Claim(ctx, empty); err != nil || again != first || then != at {
		t.Errorf("claimed twice: %+v and %+v at %d and %d, %v", first, again, at, then, err)
	}
	put := func(c *clientv3.Client, key, value string) {
		t.Helper()
		if _, err := c.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, key, value, want string }{
		{"keys of others", "/registry/pods/default/a", "k8s", "aren't this program's"},
		{"no marker of ours", storage.MarkerKey, "x", "is no marker"},
		{"a newer layout", storage.MarkerKey, `{"layout":2,"id":"x"}`, "newer version"},
		{"a migration", storage.MigrationKey, "x", "migration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := connect(t, remote.Options{Servers: []string{a}, Prefix: "/" + strings.ReplaceAll(c.name, " ", "-")})
			put(client, c.key, c.value)
			if _, _, err := remote.Claim(ctx, client); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	secure := []string{"https://127.0.0.1:2379"}
	for _, c := range []struct {
		name string
		o    remote.Options
		want string
	}{
		{"nothing", remote.Options{}, ""},
		{"a server", remote.Options{Servers: []string{"http://127.0.0.1:2379"}}, ""},
		{"no scheme", remote.Options{Servers: []string{"127.0.0.1:2379"}}, "--etcd-servers"},
		{"no port", remote.Options{Servers: []string{"http://127.0.0.1"}}, "--etcd-servers"},
		{"a path", remote.Options{Servers: []string{"http://127.0.0.1:1/x"}}, "--etcd-servers"},
		{"two schemes", remote.Options{Servers: []string{"http://127.0.0.1:1", secure[0]}}, "--etcd-servers"},
		{"a CA without TLS", remote.Options{Servers: []string{"http://127.0.0.1:1"}, CAFile: "x"}, "--etcd-cafile"},
		{"a CA without servers", remote.Options{CAFile: "x"}, "--etcd-cafile needs --etcd-servers"},
		{"a certificate alone", remote.Options{Servers: secure, CertFile: "x"}, "--etcd-keyfile"},
		{"a password in the clear", remote.Options{Servers: []string{"http://127.0.0.1:2379", "http://10.0.0.1:2379"}, Username: "x", PasswordFile: "y"}, "--etcd-username"},
		{"a user alone", remote.Options{Servers: secure, Username: "x"}, "--etcd-password-file"},
		{"no prefix", remote.Options{Servers: secure, Prefix: "/"}, "--etcd-prefix"},
		{"a prefix that isn't clean", remote.Options{Servers: secure, Prefix: "/a/../b"}, "--etcd-prefix"},
		{"a prefix with a slash at its end", remote.Options{Servers: secure, Prefix: "/a/"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.o.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestTLS: a member that asks for certificates is reached with the right ones, and each wrong one is named.
func TestTLS(t *testing.T) {
	ours, others := credentials.NewAuthority(t, "authority"), credentials.NewAuthority(t, "authority")
	serverCert, serverKey := issueFor(t, ours, "etcd")
	clientCert, clientKey := issueFor(t, ours, "client")
	strangerCert, strangerKey := issueFor(t, others, "stranger")
	a, _ := startEtcd(t, t.TempDir(), func(c *embed.Config) {
		c.ListenClientUrls[0].Scheme = "https"
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = serverCert, serverKey
		c.ClientTLSInfo.TrustedCAFile, c.ClientTLSInfo.ClientCertAuth = ours.File, true
	})
	good := remote.Options{Servers: []string{a}, CAFile: ours.File, CertFile: clientCert, KeyFile: clientKey}
	if _, _, err := remote.Claim(t.Context(), connect(t, good)); err != nil {
		t.Error(err)
	}
	wrong := good
	wrong.CAFile = others.File
	refusedAtOnce(t, wrong, "--etcd-cafile")
	wrong = good
	wrong.CAFile = ""
	refusedAtOnce(t, wrong, "--etcd-cafile")
	wrong = good
	wrong.CertFile, wrong.KeyFile = "", ""
	refusedAtOnce(t, wrong, "--etcd-certfile")
	wrong = good
	wrong.CertFile, wrong.KeyFile = strangerCert, strangerKey
	refusedAtOnce(t, wrong, "--etcd-certfile")
	wrong = good
	wrong.KeyFile = file(t, "x", 0o644)
	refusedAtOnce(t, wrong, "chmod 600")
	wrong = good
	wrong.CAFile = file(t, "x", 0o600)
	refusedAtOnce(t, wrong, "has no certificate")
}

// issueFor returns the files of a certificate for 127.0.0.1, and of its key.
func issueFor(t testing.TB, a *credentials.Authority, name string) (certFile, keyFile string) {
	t.Helper()
	return credentials.Files(t, a.Issue(t, name, nil, func(c *x509.Certificate) {
		c.IPAddresses, c.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}))
}
