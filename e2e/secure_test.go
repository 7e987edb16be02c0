package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// trust makes a client trust what is in the file, and talk HTTP/2.
func (c *client) trust(path string) {
	c.t.Helper()
	pem, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		c.t.Fatalf("no certificate in %s", path)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	c.t.Cleanup(transport.CloseIdleConnections)
	c.http = &http.Client{Transport: transport}
}

// TestTLS: the certificate that the server makes is kept, so that clients trust it after a restart, and
// connections are HTTP/2.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "--tls", "--data-dir", dir)
	if !strings.HasPrefix(p.base, "https://") {
		t.Errorf("the URL is %s", p.base)
	}
	if _, err := p.try("GET", "/readyz", ""); err == nil {
		t.Error("a client that doesn't know the certificate trusts it")
	}
	p.trust(filepath.Join(dir, "tls.crt"))
	res, err := p.http.Get(p.base + "/api/v1/namespaces")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
		t.Errorf("answer is %s %s, want HTTP/2 and 200", res.Proto, res.Status)
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is %v, %v; want mode 0600", name, info, err)
		}
	}
	p.define()
	s := p.watch(widgets + "?watch=true&allowWatchBookmarks=true")
	s.expect("BOOKMARK", "") // the end of the state
	p.do(http.StatusCreated, "POST", widgets, widget("a", 1))
	s.expect("ADDED", "a")
	p.stop()
	s.expect("BOOKMARK", "")
	if rest, err := s.rest(); err != nil || len(rest) > 0 {
		t.Errorf("the watch ended with %v, %v", rest, err)
	}

	before, _ := os.ReadFile(filepath.Join(dir, "tls.crt"))
	p = start(t, "--tls", "--data-dir", dir)
	if after, err := os.ReadFile(filepath.Join(dir, "tls.crt")); err != nil || string(before) != string(after) {
		t.Errorf("the certificate is another one after the restart (%v)", err)
	}
	p.trust(filepath.Join(dir, "tls.crt"))
	p.do(http.StatusOK, "GET", widgets+"/a", "")
	p.stop()

	// The same pair, as someone else's.
	own := start(t, "--ephemeral", "--tls-cert-file="+filepath.Join(dir, "tls.crt"), "--tls-key-file="+filepath.Join(dir, "tls.key"))
	own.trust(filepath.Join(dir, "tls.crt"))
	own.do(http.StatusOK, "GET", "/api/v1/namespaces", "")
	own.stop()
}

// TestH2C: plain HTTP takes HTTP/2 by prior knowledge.
func TestH2C(t *testing.T) {
	t.Parallel()
	p := start(t, "--ephemeral")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	res, err := (&http.Client{Transport: transport}).Get(p.base + "/api/v1/namespaces")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
		t.Errorf("answer is %s %s, want HTTP/2 and 200", res.Proto, res.Status)
	}
}

// TestTokens: with tokens, from a file or the environment, the server may listen anywhere, and everything
// but the health checks asks for one of them. None is in the log.
func TestTokens(t *testing.T) {
	t.Parallel()
	tokenFile := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokenFile, []byte("# ours\nfrom-the-file-1\n\nfrom-the-file-2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, run{
		args: []string{"--ephemeral", "--listen=0.0.0.0:0", "--token-file=" + tokenFile, "--log-level=debug"},
		env:  []string{"APISERVER_LITE_TOKEN=from-the-environment"},
	}).ready()
	for _, token := range []string{"from-the-file-1", "from-the-file-2", "from-the-environment"} {
		for _, path := range []string{"/api/v1/namespaces", "/apis", "/version", "/metrics", "/openapi/v3"} {
			p.do(http.StatusOK, "GET", path, "", "Authorization", "Bearer "+token)
		}
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		p.do(http.StatusOK, "GET", path, "")
	}
	want := p.do(http.StatusUnauthorized, "GET", "/api/v1/namespaces", "")
	if want.object.Reason != "Unauthorized" || want.header.Get("WWW-Authenticate") == "" {
		t.Errorf("without a token: %v\n%s", want.header, want.body)
	}
	for _, credentials := range []string{"Bearer", "Bearer wrong-token", "Bearer from-the-file-", "Bearer from-the-file-12", "Bearer # ours", "Basic from-the-file-1"} {
		for _, path := range []string{"/api/v1/namespaces", "/api/v1/namespaces?watch=true", "/metrics", "/nowhere", "/api/v1/namespaces?token=from-the-file-1"} {
			if a := p.do(http.StatusUnauthorized, "GET", path, "", "Authorization", credentials); a.body != want.body {
				t.Errorf("with %q GET %s answers %s, want the same as without", credentials, path, a.body)
			}
		}
	}
	p.stop()
	for _, secret := range []string{"from-the-", "wrong-token"} {
		if strings.Contains(p.stderr.String()+p.stdout.String(), secret) {
			t.Errorf("the output has %q", secret)
		}
	}
}

// TestForeignHost: without a token a web page that points its own name here, or writes from another site,
// gets nothing.
func TestForeignHost(t *testing.T) {
	t.Parallel()
	p := start(t, "--ephemeral", "--allowed-hosts=dev.example,other.example")
	for host, code := range map[string]int{
		"localhost": 200, "localhost:1234": 200, "127.0.0.1": 200, "[::1]:80": 200, "dev.example:8080": 200,
		"evil.example": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "10.0.0.1": 403,
	} {
		p.do(code, "GET", "/api/v1/namespaces", "", "Host", host)
	}
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		p.do(http.StatusForbidden, "POST", "/api/v1/namespaces", `{"metadata":{"name":"a"}}`, name, value, "Content-Type", "application/json")
	}
	p.do(http.StatusUnsupportedMediaType, "POST", "/api/v1/namespaces", `{"metadata":{"name":"a"}}`, "Content-Type", "text/plain")
	p.stop()
}
