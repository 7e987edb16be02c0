package kubeconfig_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/kubeconfig"
)

// server is a TLS server that says which user asked: its objects are named after the token.
func server(t *testing.T) (url string, ca []byte) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"metadata":{"name":%q}}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}))
	t.Cleanup(s.Close)
	return s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// TestOpen: who the client is, and where it works.
func TestOpen(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) }) // after the server is closed
	url, ca := server(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("ca.crt", string(ca), 0o600)
	write("token", "from-file\n", 0o600)
	write("plugin", "#!/bin/sh\necho '{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"'$WHO-$1'\"}}'\n", 0o700)
	write("broken", "#!/bin/sh\necho sorry >&2; exit 3\n", 0o700)
	path := write("config", `
apiVersion: v1
kind: Config
current-context: dev
contexts:
- {name: dev, context: {cluster: by-file, user: token, namespace: blue}}
- {name: data, context: {cluster: by-data, user: token-file}}
- {name: exec, context: {cluster: by-data, user: exec}}
- {name: nobody, context: {cluster: by-data}}
- {name: basic, context: {cluster: by-data, user: basic}}
- {name: broken, context: {cluster: by-data, user: broken}}
- {name: no-cluster, context: {cluster: none, user: token}}
- {name: no-user, context: {cluster: by-data, user: none}}
clusters:
- {name: by-file, cluster: {server: "`+url+`", certificate-authority: ca.crt}}
- {name: by-data, cluster: {server: "`+url+`", certificate-authority-data: `+base64.StdEncoding.EncodeToString(ca)+`}}
users:
- {name: token, user: {token: secret}}
- {name: token-file, user: {tokenFile: token, token: ignored}}
- {name: exec, user: {exec: {command: ./plugin, args: [arg], env: [{name: WHO, value: me}]}}}
- {name: basic, user: {username: me, password: secret}}
- {name: broken, user: {exec: {command: ./broken}}}
`, 0o600)
	other := write("other", `{current-context: late, contexts: [{name: late, context: {cluster: by-data, user: token}}, {name: dev, context: {cluster: none}}]}`, 0o600)
	for _, tt := range []struct {
		name, path, context  string
		user, namespace, err string
	}{
		{"the current one", path, "", "secret", "blue", ""},
		{"another one", path, "data", "from-file", "default", ""},
		{"a plug-in", path, "exec", "me-arg", "default", ""},
		{"nobody", path, "nobody", "", "default", ""},
		{"files, the first wins", path + ":" + other, "", "secret", "blue", ""},
		{"files, one isn't there", dir + "/none:" + path, "", "secret", "blue", ""},
		{"files, from the second", path + ":" + other, "late", "secret", "default", ""},
		{"no such context", path, "prod", "", "", `no context "prod"`},
		{"no such cluster", path, "no-cluster", "", "", `no cluster "none"`},
		{"no such user", path, "no-user", "", "", `no user "none"`},
		{"basic", path, "basic", "", "", "basic authentication"},
		{"a plug-in that fails", path, "broken", "", "", "sorry"},
		{"no file", dir + "/none", "", "", "", "none"},
		{"no kubeconfig", dir + "/token", "", "", "", "token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := kubeconfig.Open(tt.path, tt.context, client.Options{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error is %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdleConnections()
			got, err := client.Resource[client.Object](c, "v1", "things").Get(t.Context(), "x")
			if err != nil || got.Name() != tt.user || c.Namespace() != tt.namespace {
				t.Errorf("user %q in %q, %v; want %q in %q", got.Name(), c.Namespace(), err, tt.user, tt.namespace)
			}
		})
	}
}
