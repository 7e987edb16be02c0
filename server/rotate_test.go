package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestCertificateRotates: new connections get the certificate that is in the files, those that are open go on, and files that can't be used
// change nothing.
func TestCertificateRotates(t *testing.T) {
	authority := credentials.NewAuthority(t, "servers")
	certFile, keyFile := credentials.Files(t, authority.Issue(t, "first", nil, nil))
	log := new(await.Log)
	s := servertest.New(t, func(o *server.Server) {
		o.TLS.CertFile, o.TLS.KeyFile = certFile, keyFile
		o.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	s.Client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	shown := func() string { return shownFor(t, s, "") }
	put := func(from, to string) {
		t.Helper()
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := s.Watch("/api/v1/namespaces?watch=true")
	defer w.Close()
	newCert, newKey := credentials.Files(t, authority.Issue(t, "second", nil, nil))
	put(newCert, certFile) // without its key
	until(t, "a line about the pair", func() bool { return strings.Contains(log.Take(), "the one before is shown") })
	if name := shown(); name != "first" {
		t.Errorf("with a certificate that doesn't fit its key, %s is shown", name)
	}
	put(newKey, keyFile)
	until(t, "the new certificate", func() bool { return shown() == "second" })
	s.PostYAML("/api/v1/namespaces", "metadata: {name: later}")
	for line := ""; !strings.Contains(line, `"later"`); {
		var err error
		if line, err = w.Next(); err != nil {
			t.Fatalf("the watch ended: %v", err)
		}
	}
}

// shownFor is the common name of the certificate that a server shows to who asks for a name; "" for who names none.
func shownFor(t *testing.T, s *servertest.Server, name string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{InsecureSkipVerify: true, ServerName: name})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// TestNamedCertificates: who asks for a name gets the certificate that has it, by the rules of kube-apiserver's --tls-sni-cert-key.
func TestNamedCertificates(t *testing.T) {
	authority := credentials.NewAuthority(t, "servers")
	named := func(name string, dns ...string) (cert, key string) {
		return credentials.Files(t, authority.Issue(t, name, nil, func(c *x509.Certificate) { c.DNSNames = dns }))
	}
	mainCert, mainKey := named("main")
	ownCert, ownKey := named("own", "a.test", "*.wild.test")
	saidCert, saidKey := named("said", "ignored.test")
	laterCert, laterKey := named("later", "a.test", "b.test")
	s := servertest.New(t, func(o *server.Server) {
		o.TLS.CertFile, o.TLS.KeyFile = mainCert, mainKey
		o.TLS.Named = []cliflag.NamedCertKey{
			{CertFile: ownCert, KeyFile: ownKey}, {CertFile: saidCert, KeyFile: saidKey, Names: []string{"Said.Test", "b.test"}}, {CertFile: laterCert, KeyFile: laterKey},
		}
	})
	s.Client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	for name, want := range map[string]string{
		"": "main", "other.test": "main", "ignored.test": "main", "a.test": "own", "A.TEST": "own", "x.wild.test": "own", "x.y.wild.test": "main",
		"said.test": "said", "b.test": "said",
	} {
		if got := shownFor(t, s, name); got != want {
			t.Errorf("%q gets %s, want %s", name, got, want)
		}
	}
}

// TestTokensRotate: the next request counts by the tokens, and by the keys of ServiceAccounts' tokens, that files have now. Files that can't be used
// change nothing.
func TestTokensRotate(t *testing.T) {
	dir := t.TempDir()
	admins, signing := filepath.Join(dir, "admins"), filepath.Join(dir, "signing.pem")
	newSigning := func() {
		t.Helper()
		_, text, err := access.NewSigningKey()
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, signing, string(text))
	}
	writeFile(t, admins, "first-admin\n")
	newSigning()
	var users string
	d := newDoors(t, func(s *server.Server) {
		users = s.Access.TokenAuthFile
		s.TokenFile, s.Access.ServiceAccountSigningKeyFile = admins, signing
	})
	is := func(token string) string { return d.whoHas(token) }
	issue := func() string {
		t.Helper()
		_, text := d.Do("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", "{}", "Authorization", "Bearer root-token")
		return decode[authenticationv1.TokenRequest](t, text).Status.Token
	}
	d.Do("POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`, "Authorization", "Bearer root-token")
	ofOldKey := issue()
	if is("first-admin") == "401" || is("alice-token") == "401" || is(ofOldKey) == "401" {
		t.Fatal("the files of the start don't count")
	}

	writeFile(t, admins, "second-admin\n")
	until(t, "the new file of --token-file", func() bool { return is("second-admin") != "401" })
	writeFile(t, users, "carla-token,carla,u3\n")
	until(t, "the new file of --token-auth-file", func() bool { return is("carla-token") != "401" })
	newSigning()
	until(t, "the new key", func() bool { return is(ofOldKey) == "401" })
	for _, gone := range []string{"first-admin", "alice-token"} {
		if got := is(gone); got != "401" {
			t.Errorf("%s is still %s", gone, got)
		}
	}
	if got := is(issue()); got == "401" {
		t.Error("a token of the new key isn't believed")
	}

	writeFile(t, admins, "a token with spaces\n")
	writeFile(t, users, "half-a-line\n")
	writeFile(t, signing, "no key\n")
	for _, flag := range []string{"--token-file", "--token-auth-file", "keys of ServiceAccounts' tokens"} {
		until(t, flag+" is reported", func() bool { return strings.Contains(d.log.String(), flag+" can't be used") })
	}
	for _, token := range []string{"second-admin", "carla-token", issue()} {
		if got := is(token); got == "401" {
			t.Error("after files that can't be used, what was read before doesn't count any more")
		}
	}
}
