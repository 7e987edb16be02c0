package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// kubeAPIServer is the program under that name.
type kubeAPIServer struct {
	t       *testing.T
	program string
	cmd     *exec.Cmd
	url     string
	log     output
	token   string // of an administrator; without one whoever asks may do everything, as with AlwaysAllow on loopback
	client  http.Client
}

// newKubeAPIServer puts the program under the name into a directory.
func newKubeAPIServer(t *testing.T) *kubeAPIServer {
	t.Helper()
	assets := t.TempDir()
	if output, err := exec.Command(binary(), "envtest", assets).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return &kubeAPIServer{t: t, program: filepath.Join(assets, "kube-apiserver"), client: http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // its certificate is made for it
	}}}
}

// start starts the program with further flags, and waits until it's ready. The test's end stops it.
func (k *kubeAPIServer) start(env []string, flags ...string) {
	k.t.Helper()
	port := loopback.Port(k.t)
	k.cmd = exec.Command(k.program, append([]string{"--bind-address=127.0.0.1", "--secure-port=" + port}, flags...)...)
	k.cmd.Env, k.cmd.Stderr = append(os.Environ(), env...), &k.log
	if err := k.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		k.client.CloseIdleConnections()
		k.cmd.Process.Signal(syscall.SIGTERM)
		if err := k.cmd.Wait(); err != nil {
			k.t.Errorf("it ends with %v\n%s", err, k.log.String())
		}
	})
	k.url = "https://127.0.0.1:" + port
	eventually(k.t, "it's ready", func() bool {
		res, _, err := k.send(&k.client, "GET", "/readyz", "", k.asAdministrator()...)
		return err == nil && res.StatusCode == http.StatusOK
	})
}

// withUsers writes the file for --token-auth-file, with an administrator whom the requests are from and alice, and returns the flag.
func (k *kubeAPIServer) withUsers() string {
	k.t.Helper()
	file := filepath.Join(k.t.TempDir(), "users.csv")
	if err := os.WriteFile(file, []byte("root-token,root,1,system:masters\nalice-token,alice,2\n"), 0o600); err != nil {
		k.t.Fatal(err)
	}
	k.token = "root-token"
	return "--token-auth-file=" + file
}

func (k *kubeAPIServer) asAdministrator() []string {
	if k.token == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + k.token}
}

// send sends a request. An error means that there was no whole answer. headers are names and values in turn.
func (k *kubeAPIServer) send(by *http.Client, method, path, body string, headers ...string) (*http.Response, string, error) {
	r, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Content-Type", "application/yaml")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := by.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return res, string(answer), err
}

// ask sends a request of somebody who shows nothing but the headers, and the client certificate if there's one.
func (k *kubeAPIServer) ask(cert *tls.Certificate, method, path, body string, headers ...string) (*http.Response, string) {
	k.t.Helper()
	by := &k.client
	if cert != nil {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*cert}}}
		defer transport.CloseIdleConnections()
		by = &http.Client{Timeout: k.client.Timeout, Transport: transport}
	}
	res, answer, err := k.send(by, method, path, body, headers...)
	if err != nil {
		k.t.Fatal(err)
	}
	return res, answer
}

// do sends a request of the administrator, and returns the code and the answer.
func (k *kubeAPIServer) do(method, path, body string) (int, string) {
	k.t.Helper()
	res, answer := k.ask(nil, method, path, body, k.asAdministrator()...)
	return res.StatusCode, answer
}

// must is do with a code of success.
func (k *kubeAPIServer) must(method, path, body string) string {
	k.t.Helper()
	code, answer := k.do(method, path, body)
	if code >= 300 {
		k.t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	return answer
}

// TestKubeAPIServerRefuses: what isn't served is an error of one line that names it, and the exit code is kube-apiserver's.
func TestKubeAPIServerRefuses(t *testing.T) {
	k := newKubeAPIServer(t)
	for flag, names := range map[string]string{
		"--authentication-token-webhook-config-file=hook.yaml":      "--authentication-token-webhook-config-file",
		"--authorization-webhook-config-file=hook.yaml":             "--authorization-webhook-config-file",
		"--authorization-mode=Webhook":                              "Webhook",
		"--feature-gates=Frob=true":                                 "Frob",
		"--runtime-config=example.com/v1=true":                      "example.com",
		"--enable-admission-plugins=ImagePolicyWebhook":             "ImagePolicyWebhook",
		"--service-node-port-range=x":                               "--service-node-port-range",
		"--insecure-port=8080":                                      "--insecure-port",
		"--client-ca-file=" + filepath.Join(t.TempDir(), "missing"): "--client-ca-file",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience) // a server that isn't refused serves on
		output, err := exec.CommandContext(ctx, k.program, "--bind-address=127.0.0.1", "--secure-port="+loopback.Port(t), "--cert-dir="+t.TempDir(), flag).CombinedOutput()
		cancel()
		var exit *exec.ExitError
		if !asExit(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%s: %v\n%s", flag, err, output)
		}
		last := lastLine(string(output))
		if !strings.HasPrefix(last, "kube-apiserver: ") || !strings.Contains(last, names) {
			t.Errorf("%s: the last line is %q, want one that names %s", flag, last, names)
		}
	}
}

// TestKubeAPIServerCertDir: a pair that is in --cert-dir is what the server shows, and stays as it is.
func TestKubeAPIServerCertDir(t *testing.T) {
	mine := credentials.NewAuthority(t, "authority").Issue(t, "mine", nil, func(c *x509.Certificate) {
		c.IPAddresses, c.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	certFile, keyFile := credentials.Files(t, mine)
	dir, files := t.TempDir(), map[string][]byte{}
	for name, file := range map[string]string{"apiserver.crt": certFile, "apiserver.key": keyFile} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		files[name] = content
	}
	k := newKubeAPIServer(t)
	k.start(nil, "--cert-dir="+dir)
	conn, err := tls.Dial("tcp", strings.TrimPrefix(k.url, "https://"), &tls.Config{InsecureSkipVerify: true}) // compared below
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if shown := conn.ConnectionState().PeerCertificates[0]; !bytes.Equal(shown.Raw, mine.Certificate[0]) {
		t.Errorf("it shows the certificate of %v", shown.Subject)
	}
	for name, content := range files {
		if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(now, content) {
			t.Errorf("%s has changed: %v", name, err)
		}
	}
}

// TestKubeAPIServerControllers: by default namespaces and dependents stay, as with kube-apiserver alone. With the variable they go.
func TestKubeAPIServerControllers(t *testing.T) {
	const spaces, maps = "/api/v1/namespaces", "/api/v1/namespaces/default/configmaps"
	for _, tc := range []struct {
		name string
		env  []string
		goes bool
	}{
		{"none", nil, false},
		{"all", []string{"APISERVER_LITE_CONTROLLERS=all"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newKubeAPIServer(t)
			k.start(tc.env, "--cert-dir="+t.TempDir())
			k.must("POST", spaces, "metadata: {name: shop}")
			k.must("POST", spaces+"/shop/configmaps", "metadata: {name: a}")
			owner := k.must("POST", maps, "metadata: {name: owner}")
			_, uid, _ := strings.Cut(owner, `"uid":"`)
			uid, _, _ = strings.Cut(uid, `"`)
			k.must("POST", maps, "metadata: {name: dependent, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: "+uid+"}]}")
			k.must("DELETE", spaces+"/shop", "")
			k.must("DELETE", maps+"/owner", "")
			for _, path := range []string{spaces + "/shop", maps + "/dependent"} {
				if !tc.goes {
					if answer := k.must("GET", path, ""); strings.HasPrefix(path, spaces+"/shop") && !strings.Contains(answer, `"phase":"Terminating"`) {
						t.Errorf("%s is %s", path, answer)
					}
					continue
				}
				eventually(t, path+" is gone", func() bool {
					code, _ := k.do("GET", path, "")
					return code == http.StatusNotFound
				})
			}
		})
	}
}

// TestKubeAPIServerHistory: a continue token expires with --etcd-compaction-interval, also one whose page was just kept, and the
// answer has one that goes on.
func TestKubeAPIServerHistory(t *testing.T) {
	k := newKubeAPIServer(t)
	k.start(nil, "--etcd-compaction-interval=1s", "--cert-dir="+t.TempDir())
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, name := range []string{"a", "b"} {
		k.must("POST", maps, "metadata: {name: "+name+"}")
	}
	token := func(answer string) string {
		var list struct{ Metadata struct{ Continue string } }
		if err := json.Unmarshal([]byte(answer), &list); err != nil {
			t.Fatal(err)
		}
		return list.Metadata.Continue
	}
	given, fresh := token(k.must("GET", maps+"?limit=1", "")), ""
	eventually(t, "the token expires", func() bool {
		k.must("PUT", maps+"/a", "metadata: {name: a, annotations: {at: '"+time.Now().String()+"'}}")
		code, answer := k.do("GET", maps+"?limit=1&continue="+given, "")
		fresh = token(answer)
		return code == http.StatusGone
	})
	if rest := k.must("GET", maps+"?limit=1&continue="+fresh, ""); !strings.Contains(rest, `"name":"b"`) {
		t.Errorf("the rest is %s", rest)
	}
}

// TestKubeAPIServerVerbosity: the log of -v=4 has what is there for debugging, and that of -v=3 hasn't.
func TestKubeAPIServerVerbosity(t *testing.T) {
	for flag, debugs := range map[string]bool{"-v=3": false, "--v=4": true} {
		t.Run(flag, func(t *testing.T) {
			k := newKubeAPIServer(t)
			t.Cleanup(func() { // after the server has ended
				if got := strings.Contains(k.log.String(), "level=DEBUG"); got != debugs {
					t.Errorf("the log has lines for debugging: %v\n%s", got, k.log.String())
				}
			})
			k.start(nil, flag, "--cert-dir="+t.TempDir())
		})
	}
}

// TestKubeAPIServerFlags: flags that have a meaning have it under this name, too.
func TestKubeAPIServerFlags(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	const rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, resources: [{resources: [secrets]}]}]\n"
	if err := os.WriteFile(policy, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	k := newKubeAPIServer(t)
	k.start(nil, "--cert-dir="+t.TempDir(), k.withUsers(), "--authorization-mode=Node,RBAC", "--audit-policy-file="+policy, "--audit-log-path="+log,
		"--cors-allowed-origins=^https://web[.]example$", "--service-account-issuer=https://issuer.example", "--api-audiences=here",
		"--service-cluster-ip-range=10.9.0.0/24", "--disable-admission-plugins=ServiceAccount")
	const space = "/api/v1/namespaces/default/"
	for _, tc := range []struct {
		name, token, method, path, body string
		code                            int
		want                            string // part of the answer
	}{
		{"--token-auth-file", "nobody's", "GET", space + "secrets", "", 401, "Unauthorized"},
		{"--authorization-mode", "alice-token", "GET", space + "secrets", "", 403, `User \"alice\" cannot list resource \"secrets\"`},
		{"--audit-log-path", "root-token", "GET", space + "secrets", "", 200, "SecretList"},
		{"--service-cluster-ip-range", "root-token", "POST", space + "services", `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}]}}`, 201, `"clusterIP":"10.9.0.`},
		{"--disable-admission-plugins", "root-token", "POST", space + "pods", `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201, `"name":"a"`},
		{"account", "root-token", "POST", space + "serviceaccounts", `{"metadata":{"name":"robot"}}`, 201, "robot"},
		{"--api-audiences", "root-token", "POST", space + "serviceaccounts/robot/token", `{"spec":{}}`, 201, `"audiences":["here"]`},
		{"--service-account-issuer", "root-token", "GET", "/.well-known/openid-configuration", "", 200, `"issuer":"https://issuer.example"`},
	} {
		res, answer := k.ask(nil, tc.method, tc.path, tc.body, "Authorization", "Bearer "+tc.token, "Origin", "https://web.example")
		if res.StatusCode != tc.code || !strings.Contains(answer, tc.want) {
			t.Errorf("%s: %s %s, want %d with %s", tc.name, res.Status, answer, tc.code, tc.want)
		}
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != "https://web.example" {
			t.Errorf("--cors-allowed-origins: %s: a page of that origin is allowed as %q", tc.name, got)
		}
	}
	eventually(t, "the audit log has the lines about secrets, and no others", func() bool {
		lines, err := os.ReadFile(log)
		has := func(part string) bool { return strings.Contains(string(lines), part) }
		return err == nil && has(`"username":"alice"`) && has(`"username":"root"`) && !has("services")
	})
}
