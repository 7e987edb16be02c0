package kubeconfig_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	write("informed", "#!/bin/sh\n"+`echo "$KUBERNETES_EXEC_INFO" | grep -qF '"server":"'"`+url+`"'"' && echo "$KUBERNETES_EXEC_INFO" | grep -qF '"certificate-authority-data":"`+base64.StdEncoding.EncodeToString(ca)+`"' &&
echo "$KUBERNETES_EXEC_INFO" | grep -qF '"config":{"audience":"shop"}' && echo '{"kind":"ExecCredential","status":{"token":"informed"}}'`+"\n", 0o700)
	write("endless", "#!/bin/sh\nexec yes\n", 0o700)
	write("complaining", "#!/bin/sh\nexec yes >&2\n", 0o700)
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
- {name: informed, context: {cluster: extended, user: informed}}
- {name: asking, context: {cluster: by-data, user: asking}}
- {name: broken, context: {cluster: by-data, user: broken}}
- {name: endless, context: {cluster: by-data, user: endless}}
- {name: complaining, context: {cluster: by-data, user: complaining}}
- {name: no-cluster, context: {cluster: none, user: token}}
- {name: no-user, context: {cluster: by-data, user: none}}
clusters:
- {name: by-file, cluster: {server: "`+url+`", certificate-authority: ca.crt}}
- {name: by-data, cluster: {server: "`+url+`", certificate-authority-data: `+base64.StdEncoding.EncodeToString(ca)+`}}
- name: extended
  cluster:
    server: "`+url+`"
    certificate-authority: ca.crt
    extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: shop}}]
users:
- {name: informed, user: {exec: {command: ./informed, provideClusterInfo: true}}}
- {name: asking, user: {exec: {command: ./plugin, interactiveMode: Always}}}
- {name: token, user: {token: secret}}
- {name: token-file, user: {tokenFile: token, token: ignored}}
- {name: exec, user: {exec: {command: ./plugin, args: [arg], env: [{name: WHO, value: me}]}}}
- {name: basic, user: {username: me, password: secret}}
- {name: broken, user: {exec: {command: ./broken}}}
- {name: endless, user: {exec: {command: ./endless}}}
- {name: complaining, user: {exec: {command: ./complaining}}}
`, 0o600)
	other := write("other", `{current-context: late, contexts: [{name: late, context: {cluster: by-data, user: token}}, {name: dev, context: {cluster: none}}]}`, 0o600)
	for _, tt := range []struct {
		name, path, context  string
		user, namespace, err string
	}{
		{"the current one", path, "", "secret", "blue", ""},
		{"another one", path, "data", "from-file", "default", ""},
		{"a plug-in", path, "exec", "me-arg", "default", ""},
		{"a plug-in that is told of the server", path, "informed", "informed", "default", ""},
		{"a plug-in that wants to ask", path, "asking", "", "", "interactiveMode"},
		{"nobody", path, "nobody", "", "default", ""},
		{"files, the first wins", path + ":" + other, "", "secret", "blue", ""},
		{"files, one isn't there", dir + "/none:" + path, "", "secret", "blue", ""},
		{"files, from the second", path + ":" + other, "late", "secret", "default", ""},
		{"no such context", path, "prod", "", "", `no context "prod"`},
		{"no such cluster", path, "no-cluster", "", "", `no cluster "none"`},
		{"no such user", path, "no-user", "", "", `no user "none"`},
		{"basic", path, "basic", "", "", "basic authentication"},
		{"a plug-in that fails", path, "broken", "", "", "sorry"},
		{"a plug-in without an end", path, "endless", "", "", "./endless printed more than 1048576 bytes"},
		{"a plug-in that complains without an end", path, "complaining", "", "", "./complaining printed more than 1048576 bytes"},
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

// plugged returns a client for a server whose user has a plug-in with that script.
func plugged(t *testing.T, handler http.HandlerFunc, script string) client.Collection[client.Object] {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"plugin": "#!/bin/sh\ncd " + dir + "\n" + script,
		"config": `{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: "` + s.URL + `"}}],
users: [{name: a, user: {exec: {command: ./plugin}}}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c, err := kubeconfig.Open(filepath.Join(dir, "config"), "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return client.Resource[client.Object](c, "v1", "things")
}

// TestPluginAfter401: a token that doesn't say when it expires is fetched anew when the server refuses it.
func TestPluginAfter401(t *testing.T) {
	things := plugged(t, func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if token == "run-1" || token == "run-2" && r.URL.Path == "/api/v1/things/later" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"metadata":{"name":%q}}`, token)
	}, `echo x >>runs; echo '{"kind":"ExecCredential","status":{"token":"run-'$(wc -l <runs | tr -d ' ')'"}}'`)
	for _, tt := range []struct{ name, want string }{{"x", "run-2"}, {"x", "run-2"}, {"later", "run-3"}} {
		got, err := things.Get(t.Context(), tt.name)
		if err != nil || got.Name() != tt.want {
			t.Errorf("%s: the token is %q, %v; want %q", tt.name, got.Name(), err, tt.want)
		}
	}
}

// TestPluginHangs: who needs a token waits for the command within his own context, whoever has started it.
func TestPluginHangs(t *testing.T) {
	things := plugged(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}, `if [ -e ran ]; then exec sleep 1000; fi; touch ran; echo '{"kind":"ExecCredential","status":{"token":"x"}}'`)
	long, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	ended := make(chan error, 1)
	go func() {
		_, err := things.Get(long, "x")
		ended <- err
	}()
	short, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if _, err := things.Get(short, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request with a deadline ended with %v", err)
	}
	cancel(enough)
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("the one that runs the command ended with %v", err)
	}
}
