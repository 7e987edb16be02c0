package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kubeAPIServer is the program under that name, with AlwaysAllow on loopback.
type kubeAPIServer struct {
	t       *testing.T
	program string
	cmd     *exec.Cmd
	url     string
	log     bytes.Buffer
	client  http.Client
}

// newKubeAPIServer puts the program under the name into a directory.
func newKubeAPIServer(t *testing.T) *kubeAPIServer {
	t.Helper()
	assets := t.TempDir()
	if output, err := exec.Command(binary, "envtest", assets).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return &kubeAPIServer{t: t, program: filepath.Join(assets, "kube-apiserver"), client: http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // its certificate is made for it
	}}}
}

// start starts the program with further flags, and waits until it answers. The test's end stops it.
func (k *kubeAPIServer) start(env []string, flags ...string) {
	k.t.Helper()
	port := freePort(k.t)
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
	awaitHealth(k.t, k.url+"/readyz")
}

// do sends a request, and returns the code and the answer.
func (k *kubeAPIServer) do(method, path, body string) (int, string) {
	k.t.Helper()
	r, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/yaml")
	res, err := k.client.Do(r)
	if err != nil {
		k.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return res.StatusCode, string(answer)
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
		"--encryption-provider-config=keys.yaml":                    "--encryption-provider-config",
		"--authentication-token-webhook-config-file=hook.yaml":      "--authentication-token-webhook-config-file",
		"--authorization-webhook-config-file=hook.yaml":             "--authorization-webhook-config-file",
		"--authorization-mode=Webhook":                              "Webhook",
		"--feature-gates=Frob=true":                                 "Frob",
		"--runtime-config=example.com/v1=true":                      "example.com",
		"--enable-admission-plugins=PodSecurity":                    "PodSecurity",
		"--service-node-port-range=x":                               "--service-node-port-range",
		"--insecure-port=8080":                                      "--insecure-port",
		"--client-ca-file=" + filepath.Join(t.TempDir(), "missing"): "--client-ca-file",
	} {
		output, err := exec.Command(k.program, "--bind-address=127.0.0.1", "--secure-port="+freePort(t), "--cert-dir="+t.TempDir(), flag).CombinedOutput()
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "mine"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string][]byte{
		"apiserver.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		"apiserver.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := newKubeAPIServer(t)
	k.start(nil, "--cert-dir="+dir)
	conn, err := tls.Dial("tcp", strings.TrimPrefix(k.url, "https://"), &tls.Config{InsecureSkipVerify: true}) // compared below
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if shown := conn.ConnectionState().PeerCertificates[0]; !bytes.Equal(shown.Raw, certificate) {
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
				for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
					code, answer := k.do("GET", path, "")
					if code == http.StatusNotFound {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("%s stays: %s", path, answer)
					}
				}
			}
		})
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
	users, policy, log := filepath.Join(dir, "users.csv"), filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	for file, text := range map[string]string{
		users:  "root-token,root,1,system:masters\nalice-token,alice,2\n",
		policy: "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, resources: [{resources: [secrets]}]}]\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := newKubeAPIServer(t)
	k.start(nil, "--cert-dir="+t.TempDir(), "--token-auth-file="+users, "--authorization-mode=Node,RBAC", "--audit-policy-file="+policy, "--audit-log-path="+log,
		"--cors-allowed-origins=^https://web[.]example$", "--service-account-issuer=https://issuer.example", "--api-audiences=here",
		"--service-cluster-ip-range=10.9.0.0/24", "--disable-admission-plugins=ServiceAccount")
	send := func(token, method, path, body string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, k.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "https://web.example")
		res, err := k.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(answer)
	}
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
		res, answer := send(tc.token, tc.method, tc.path, tc.body)
		if res.StatusCode != tc.code || !strings.Contains(answer, tc.want) {
			t.Errorf("%s: %s %s, want %d with %s", tc.name, res.Status, answer, tc.code, tc.want)
		}
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != "https://web.example" {
			t.Errorf("--cors-allowed-origins: %s: a page of that origin is allowed as %q", tc.name, got)
		}
	}
	want := []string{`"username":"alice"`, `"username":"root"`}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		lines, err := os.ReadFile(log)
		if err == nil && strings.Contains(string(lines), want[0]) && strings.Contains(string(lines), want[1]) && !strings.Contains(string(lines), "services") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the audit log is %s, %v", lines, err)
		}
	}
}
