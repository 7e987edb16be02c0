package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// watchAs opens a watch over a connection of its own. It returns what waits for the stream's end, nil if the
// watch is refused.
func (d *doors) watchAs(cert *tls.Certificate, token string, headers ...string) (end func() error) {
	d.t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	transport := &http.Transport{TLSClientConfig: config}
	d.t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.URL+configMaps+"?watch=true", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil
	}
	return func() error {
		defer res.Body.Close()
		_, err := io.ReadAll(res.Body)
		return err
	}
}

// TestWatchesEndWithCredentials: a watch ends cleanly soon after the credential has ended that let it in, and
// isn't let in again.
func TestWatchesEndWithCredentials(t *testing.T) {
	t.Parallel()
	d := newDoors(t, server.RecheckSoon)
	asRoot := func(method, path, body string) string {
		t.Helper()
		res, text := d.Do(method, path, body, "Authorization", "Bearer root-token", "Content-Type", "application/json")
		if res.StatusCode >= 300 {
			t.Fatalf("%s %s: %s %s", method, path, res.Status, text)
		}
		return text
	}
	stays := d.watchAs(nil, "root-token")
	stayed := make(chan error, 1)
	go func() { stayed <- stays() }()

	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	asRoot("POST", accounts, `{"metadata":{"name":"sa"}}`)
	var made struct{ Status struct{ Token string } }
	if err := json.Unmarshal([]byte(asRoot("POST", accounts+"/sa/token", `{"spec":{}}`)), &made); err != nil {
		t.Fatal(err)
	}
	var account []func() error
	for range 3 {
		account = append(account, d.watchAs(nil, made.Status.Token))
	}
	asRoot("DELETE", accounts+"/sa", "")
	for _, ends := range account {
		if err := ends(); err != nil || d.watchAs(nil, made.Status.Token) != nil {
			t.Errorf("the ServiceAccount is gone: the watch ended with %v, and is let in again", err)
		}
	}
	const ended = "a watch ends, because the credential of its user doesn't count any more"
	if line := d.log.Take(); strings.Count(line, ended) != 1 || strings.Contains(line, made.Status.Token) {
		t.Errorf("three watches had one credential, which is looked at once; the log has %q", line)
	}

	var expired *tls.Certificate
	for life := 2 * time.Second; ; life *= 2 { // long enough to be let in on a busy machine
		cert := d.clients.Issue(t, "ann", nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(life) })
		if end := d.watchAs(cert, ""); end != nil {
			if err := end(); err != nil {
				t.Errorf("the certificate has expired: the watch ended with %v", err)
			}
			expired = cert
			break
		}
	}
	if d.watchAs(expired, "") != nil {
		t.Error("an expired certificate is let in again")
	}

	bob := d.clients.Issue(t, "bob", nil, nil)
	end := d.watchAs(bob, "")
	if err := os.WriteFile(d.clients.File, credentials.NewAuthority(t, "others").PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil || d.watchAs(bob, "") != nil {
		t.Errorf("nobody believes the authority any more: the watch ended with %v, and is let in again", err)
	}
	if line := d.log.Take(); !strings.Contains(line, ended) {
		t.Errorf("the log has %q", line)
	}
	select {
	case err := <-stayed:
		t.Errorf("a watch whose credential counts has ended: %v", err)
	default:
	}
}

// TestWatchesEndWithImpersonation: a watch ends when whoever opened it as somebody else loses the right to be taken for him, though
// the other keeps his. It ends in each mode of impersonation.
func TestWatchesEndWithImpersonation(t *testing.T) {
	t.Parallel()
	d := newDoors(t, server.RecheckSoon, withRules)
	d.grant("carol", "- {apiGroups: [''], resources: [configmaps], verbs: [watch]}\n")
	d.grant("alice", "- {apiGroups: [''], resources: [users], verbs: [impersonate], resourceNames: [carol]}\n")
	d.grant("bob", "- {apiGroups: [authentication.k8s.io], resources: [users], verbs: ['impersonate:user-info'], resourceNames: [carol]}\n"+
		"- {apiGroups: [''], resources: [configmaps], verbs: ['impersonate-on:user-info:watch']}\n")
	ends := map[string]func() error{}
	for _, by := range []string{"root", "alice", "bob"} {
		if ends[by] = d.watchAs(nil, by+"-token", "Impersonate-User", "carol"); ends[by] == nil {
			t.Fatalf("%s may not watch as carol", by)
		}
	}
	stayed := make(chan error, 1)
	go func() { stayed <- ends["root"]() }()
	for _, by := range []string{"alice", "bob"} {
		d.Do("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"+by, "", "Authorization", "Bearer root-token")
		if err := ends[by](); err != nil || d.watchAs(nil, by+"-token", "Impersonate-User", "carol") != nil {
			t.Errorf("%s's watch ended with %v, and is let in again", by, err)
		}
	}
	select {
	case err := <-stayed:
		t.Errorf("a watch by somebody who still may has ended: %v", err)
	default:
	}
}

// TestAuthenticationConfigurationReread: the file takes effect when it changes. What can't be used is logged, and
// changes nothing.
func TestAuthenticationConfigurationReread(t *testing.T) {
	t.Parallel()
	i := credentials.NewIssuer(t)
	good, file := i.Configuration(), filepath.Join(t.TempDir(), "authentication.yaml")
	writeFile(t, file, good)
	d := newDoors(t, server.RecheckSoon, func(s *server.Server) { s.Access.AuthenticationConfigFile = file })
	write := func(text string) {
		t.Helper()
		writeFile(t, file+".new", text)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	token := i.Token(t, nil)
	is := func(user string) func() bool {
		return func() bool { return strings.HasPrefix(d.whoHas(token), user) }
	}
	until(t, "the issuer's keys", is("oidc:ann/"))

	d.log.Take()
	write("nonsense")
	log := ""
	until(t, "the log", func() bool {
		log += d.log.Take()
		return strings.Contains(log, "the file of --authentication-config can't be used; what it said before stays in effect")
	})
	if !is("oidc:ann/")() {
		t.Errorf("with a bad file the token is %s", d.whoHas(token))
	}
	write(strings.Replace(good, `"oidc:" + claims.sub`, `"new:" + claims.sub`, 1))
	until(t, "the new mapping", is("new:ann/"))
	end := d.watchAs(nil, token)
	write("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n")
	if err := end(); err != nil {
		t.Errorf("the issuer is gone: the watch ended with %v", err)
	}
	until(t, "no issuer", is("401"))
	write(good)
	until(t, "the issuer again", is("oidc:ann/"))
}
