package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
)

// who answers with the user's token as the object's name.
var who = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, `{"metadata":{"name":%q}}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
})

// name asks the server who asks.
func name(t *testing.T, c *Client) string {
	t.Helper()
	defer c.CloseIdleConnections()
	object, err := Resource[Object](c, "v1", "things").Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return object.Name()
}

// TestInPod: a pod's client finds everything where the kubelet puts it, and takes a token that is replaced.
func TestInPod(t *testing.T) {
	s := httptest.NewTLSServer(who)
	defer s.Close()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"token": "pod\n", "namespace": "blue", "ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}[name]
	}
	c, err := inPod(dir, getenv, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := name(t, c); got != "pod" || c.Namespace() != "blue" {
		t.Errorf("the user is %q in %q", got, c.Namespace())
	}
	if _, err := inPod(dir, func(string) string { return "" }, Options{}); err == nil {
		t.Error("a pod was found where there is none")
	}
	if _, err := inPod(dir+"/none", getenv, Options{}); err == nil {
		t.Error("a pod without files is taken")
	}
}

// TestFileIsReadAgain: a file that was replaced is read again a minute later, or when the server refuses what was in it; what was in it is
// kept if there is nothing.
func TestFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	f := &file{path: path}
	expect := func(want string) {
		t.Helper()
		if got, err := f.token(t.Context()); got != want || err != nil {
			t.Errorf("the token is %q, %v; want %q", got, err, want)
		}
	}
	expect("one")
	write("two")
	expect("one")
	f.read = time.Now().Add(-fileAge)
	expect("two")
	f.read = time.Now().Add(-fileAge)
	write("")
	expect("two")
	write("three")
	expect("three")
	write("four")
	f.unauthorized(f.read) // a request that was sent before this was read
	expect("three")
	f.unauthorized(time.Now())
	expect("four")
}

// TestSentAgainAfter401: a request that's answered 401 is sent once more with the newer token.
func TestSentAgainAfter401(t *testing.T) {
	requests := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; r.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		who(w, r)
	}))
	defer s.Close()
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	c, err := New(s.URL, Options{TokenFile: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	if _, err := Resource[Object](c, "v1", "things").Get(t.Context(), "x"); !errors.Is(err, ErrUnauthorized) || requests != 2 {
		t.Errorf("a token that is refused ends with %v after %d requests", err, requests)
	}
	write("new")
	if got := name(t, c); got != "new" {
		t.Errorf("the user is %q", got)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestCertificatesReplaced: files of the client's certificate and of the server's authority may be replaced at any time, one
// after the other. A server that refuses the old certificate has the new one at once.
func TestCertificatesReplaced(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var now atomic.Pointer[credentials.Authority] // which signs both sides' certificates, and is the only one that the server believes
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(now.Load().PEM())
		user := r.TLS.PeerCertificates[0]
		if _, err := user.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"metadata":{"name":%q}}`, user.Subject.CommonName)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	var serving atomic.Pointer[tls.Config]
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return serving.Load(), nil }}
	s.StartTLS()
	defer s.Close()
	user := func(a *credentials.Authority, name string) (cert, key []byte) {
		certFile, keyFile := credentials.Files(t, a.Issue(t, name, nil, nil))
		return readFile(t, certFile), readFile(t, keyFile)
	}
	serve := func(a *credentials.Authority) {
		c := a.Issue(t, "server", nil, func(c *x509.Certificate) {
			c.IPAddresses, c.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})
		serving.Store(&tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{*c}})
		now.Store(a)
	}
	first, second := credentials.NewAuthority(t, "first"), credentials.NewAuthority(t, "second")
	serve(first)
	cert, key := user(first, "first")
	write("ca", first.PEM())
	write("cert", cert)
	write("key", key)
	c, err := New(s.URL, Options{CAFile: dir + "/ca", CertFile: dir + "/cert", KeyFile: dir + "/key", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	get := func() (string, error) {
		object, err := Resource[Object](c, "v1", "things").Get(t.Context(), "x")
		if err != nil {
			return "", err
		}
		return object.Name(), nil
	}
	expect := func(want string) {
		t.Helper()
		if got, err := get(); got != want || err != nil {
			t.Errorf("the user is %q, %v; want %q", got, err, want)
		}
	}
	expect("first")
	cert, key = user(second, "second")
	write("cert", cert)
	c.unauthorized[0](time.Now())
	expect("first") // the new certificate doesn't fit the old key
	write("key", key)
	write("ca", append(first.PEM(), second.PEM()...))
	serve(second)
	expect("second") // over a new connection: on the old one the first is answered 401
	write("ca", first.PEM())
	c.unauthorized[0](time.Now())
	if got, err := get(); err == nil {
		t.Errorf("a server of an authority that was taken away is believed, as %q", got)
	}
}

// TestAddressesAndOptions: addresses and options that are taken, and those that aren't.
func TestAddressesAndOptions(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: who}
	go s.Serve(listener)
	defer s.Close()
	for _, address := range []string{"unix:" + socket, "unix://" + socket} {
		c, err := New(address, Options{Token: "me"})
		if err != nil {
			t.Fatal(err)
		}
		if got := name(t, c); got != "me" {
			t.Errorf("%s: the user is %q", address, got)
		}
	}
	for _, tt := range []struct {
		name, address string
		o             Options
		want          string
	}{
		{"no scheme", "localhost:8080", Options{}, "localhost:8080"},
		{"another scheme", "ftp://x", Options{}, "http://host:port"},
		{"no host", "http://", Options{}, "http://host:port"},
		{"a user", "http://me:secret@x", Options{}, "must not have a user"},
		{"a relative socket", "unix:x", Options{}, "absolute"},
		{"two tokens", "http://x", Options{Token: "a", TokenFile: "b"}, "one of"},
		{"no token file", "http://x", Options{TokenFile: "/none"}, "/none"},
		{"no certificate", "https://x", Options{CA: []byte("x")}, "CA"},
		{"two certificates", "https://x", Options{Cert: []byte("x"), CertFile: "x"}, "Cert and CertFile"},
		{"no certificate file", "https://x", Options{CertFile: "/none", KeyFile: "/none"}, "/none"},
		{"a key alone", "https://x", Options{Key: []byte("x")}, "certificate"},
	} {
		if _, err := New(tt.address, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error is %v, want one with %q", tt.name, err, tt.want)
		}
	}
}
