package client

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// TestTokenFile: a token that was replaced is found a minute later, and the old one is kept if there is none.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	f := &tokenFile{path: path}
	expect := func(want string) {
		t.Helper()
		if got, err := f.get(t.Context()); got != want || err != nil {
			t.Errorf("the token is %q, %v; want %q", got, err, want)
		}
	}
	expect("one")
	write("two")
	expect("one")
	f.read = time.Now().Add(-tokenAge)
	expect("two")
	f.read = time.Now().Add(-tokenAge)
	write("")
	expect("two")
}

// TestNew: addresses and options that are taken, and those that aren't.
func TestNew(t *testing.T) {
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
		{"a key alone", "https://x", Options{Key: []byte("x")}, "certificate"},
	} {
		if _, err := New(tt.address, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error is %v, want one with %q", tt.name, err, tt.want)
		}
	}
}
