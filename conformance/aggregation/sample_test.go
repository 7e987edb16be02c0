package aggregation

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/program"
)

// patience is how long a program may take on a machine that does much else.
const patience = 2 * time.Minute

// Where TestMain leaves the programs, as absolute paths.
var apiserverBinary, kubectlBinary, sampleBinary, etcdBinary string

func TestMain(m *testing.M) {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func build() error {
	bin, err := filepath.Abs("../../bin/aggregation")
	if err != nil {
		return err
	}
	apiserverBinary, kubectlBinary, sampleBinary = filepath.Join(bin, "apiserver-lite"), filepath.Join(bin, "kubectl"), filepath.Join(bin, "sample-apiserver")
	if etcdBinary, err = filepath.Abs("../../bin/peer/etcd"); err != nil {
		return err
	}
	for _, b := range []struct{ dir, path, program string }{
		{"../..", ".", apiserverBinary}, {"..", "./kubectl", kubectlBinary}, {".", "k8s.io/sample-apiserver", sampleBinary},
	} {
		if _, err := program.BuildPackage(b.dir, b.path, b.program, "-trimpath"); err != nil {
			return err
		}
	}
	return nil
}

// cluster is the server with a sample-apiserver behind it.
type cluster struct {
	t    *testing.T
	home string
	ca   authority // of everything

	networks string // in which the server may call others, besides loopback
}

func (c *cluster) path(name string) string { return filepath.Join(c.home, name) }

// start starts a program, which is stopped with the test. Ours may call this machine's own addresses; the others don't know the
// variable.
func (c *cluster) start(program string, args ...string) {
	c.t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &log, &log, c.home
	cmd.Env = append(os.Environ(), "APISERVER_LITE_WEBHOOK_ADDRESSES="+c.networks)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("the log of %s:\n%s", filepath.Base(program), last(log.String(), 8<<10))
		}
	})
}

func last(s string, most int) string { return s[max(0, len(s)-most):] }

// kubectl runs kubectl and returns what it prints.
func (c *cluster) kubectl(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, kubectlBinary, append([]string{"--kubeconfig=" + c.path("config"), "--cache-dir=" + c.path("cache")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// must is kubectl that has to succeed, and print something with want in it.
func (c *cluster) must(want, input string, args ...string) string {
	c.t.Helper()
	output, err := c.kubectl(input, args...)
	if err != nil || !strings.Contains(output, want) {
		c.t.Fatalf("kubectl %q: %v, and no %q in\n%s", args, err, want, output)
	}
	return output
}

// until waits until something is right.
func (c *cluster) until(what string, right func() bool) {
	c.t.Helper()
	late, look := time.After(patience), time.NewTicker(100*time.Millisecond)
	defer look.Stop()
	for !right() {
		select {
		case <-late:
			c.t.Fatalf("not within %v: %s", patience, what)
		case <-look.C:
		}
	}
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// newCluster starts etcd and the server, as kube-apiserver, with RBAC. The server may call others in these networks, too.
func newCluster(t *testing.T, networks string, flags ...string) (c *cluster, etcd string) {
	t.Helper()
	c = &cluster{t: t, home: t.TempDir(), networks: networks}
	c.ca = newAuthority(t)
	c.write("ca.crt", c.ca.pem())
	for name, groups := range map[string][]string{"admin": {"system:masters"}, "front-proxy-client": nil} {
		c.certificate(name, groups)
	}
	c.certificate("server", nil)
	etcd = "http://127.0.0.1:" + freePort(t)
	peer := "http://127.0.0.1:" + freePort(t)
	c.start(etcdBinary, "--data-dir", c.path("etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	port := freePort(t)
	// A link gives it the name whose flags it takes.
	program := c.path("kube-apiserver")
	if err := os.Symlink(apiserverBinary, program); err != nil {
		t.Fatal(err)
	}
	c.start(program, append([]string{"--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + c.path("certs"), "--etcd-servers=" + etcd, "--authorization-mode=RBAC",
		"--client-ca-file=" + c.path("ca.crt"), "--requestheader-client-ca-file=" + c.path("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.path("front-proxy-client.crt"), "--proxy-client-key-file=" + c.path("front-proxy-client.key")}, flags...)...)
	c.write("config", []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:%s", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {client-certificate: %s, client-key: %s}}]
contexts: [{name: c, context: {cluster: c, user: admin}}]
current-context: c
`, port, c.path("admin.crt"), c.path("admin.key"))))
	c.until("the server is ready", func() bool { _, err := c.kubectl("", "get", "--raw", "/readyz"); return err == nil })
	return c, etcd
}

// startSample starts sample-apiserver, which asks the server who users are and what they may do, and returns its port.
func (c *cluster) startSample(etcd, address string) (port string) {
	port = freePort(c.t)
	c.until("the ConfigMap for aggregated servers is there", func() bool {
		_, err := c.kubectl("", "-n", "kube-system", "get", "configmap", "extension-apiserver-authentication")
		return err == nil
	})
	config := c.path("config")
	c.start(sampleBinary, "--etcd-servers="+etcd, "--bind-address="+address, "--secure-port="+port, "--kubeconfig="+config, "--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config,
		"--tls-cert-file="+c.path("server.crt"), "--tls-private-key-file="+c.path("server.key"), "--enable-priority-and-fairness=false")
	return port
}

// use does with flunders what people do, and returns when it has seen all of it.
func (c *cluster) use(port string) {
	t := c.t
	t.Helper()
	ca, _ := json.Marshal(c.ca.pem())
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		c.must("created", fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"%s.wardle.example.com"},"spec":{"group":"wardle.example.com","version":"%s",
			"groupPriorityMinimum":2000,"versionPriority":200,"caBundle":%s,"service":{"namespace":"default","name":"api","port":%s}}}`, version, version, ca, port), "create", "-f", "-")
	}
	c.must("condition met", "", "wait", "--for=condition=Available", "--timeout=120s", "apiservice/v1alpha1.wardle.example.com", "apiservice/v1beta1.wardle.example.com")
	c.until("flunders are in discovery", func() bool {
		out, err := c.kubectl("", "api-resources", "--api-group=wardle.example.com", "--cached=false")
		return err == nil && strings.Contains(out, "flunders") && strings.Contains(out, "fischers")
	})
	c.must("flunder.wardle.example.com/a created", `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a","namespace":"default","labels":{"sea":"north"}}}`, "create", "-f", "-")
	c.must("a ", "", "get", "flunders")
	c.must("sea: north", "", "get", "flunder", "a", "-o", "yaml")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	watch := exec.CommandContext(ctx, kubectlBinary, "--kubeconfig="+c.path("config"), "get", "flunders", "-w", "-o", "name")
	output, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	seen := bufio.NewScanner(output)
	sees := func(name string) {
		t.Helper()
		for seen.Scan() {
			if strings.HasSuffix(seen.Text(), "/"+name) {
				return
			}
		}
		t.Fatalf("the watch doesn't see %s: %v", name, context.Cause(ctx))
	}
	sees("a") // it has listed
	c.must("created", `{"apiVersion":"wardle.example.com/v1beta1","kind":"Flunder","metadata":{"name":"b","namespace":"default"}}`, "create", "-f", "-")
	c.must("labeled", "", "label", "flunder", "a", "depth=10")
	c.must("configured", `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"b","namespace":"default","labels":{"x":"y"}}}`, "apply", "-f", "-")
	c.until("kubectl explain knows flunders", func() bool {
		out, err := c.kubectl("", "explain", "flunders")
		return err == nil && strings.Contains(out, "KIND:       Flunder") && strings.Contains(out, "spec")
	})
	c.must("yes", "", "auth", "can-i", "list", "flunders.wardle.example.com")
	c.must("no", "", "auth", "whoami", "--as=nobody", "-o", "jsonpath={.status.userInfo.username}")
	if out, err := c.kubectl("", "get", "flunders", "--as=nobody"); err == nil || !strings.Contains(out, "forbidden") {
		t.Errorf("nobody gets flunders: %v, %s", err, out)
	}
	c.must("deleted", "", "delete", "flunder", "a")
	sees("b")
	sees("a") // its label or its end
	stop()
	watch.Wait() // it was ended
	for _, path := range []string{"/apis", "/apis/wardle.example.com", "/apis/wardle.example.com/v1alpha1", "/openapi/v3"} {
		c.must("wardle.example.com", "", "get", "--raw", path)
	}
}

// TestExternalName: behind a Service of type ExternalName.
func TestExternalName(t *testing.T) {
	t.Parallel()
	c, etcd := newCluster(t, "")
	c.must("created", "", "create", "service", "externalname", "api", "--external-name=localhost")
	c.use(c.startSample(etcd, "127.0.0.1"))
}

// TestEndpointSlice: behind an EndpointSlice, with --enable-aggregator-routing. kube-apiserver's rules allow no loopback address
// in one, so it's an address of this machine's.
func TestEndpointSlice(t *testing.T) {
	t.Parallel()
	conn, err := net.Dial("udp", "192.0.2.1:9") // nothing is sent
	if err != nil {
		t.Fatalf("this test needs a machine with a route: %v", err)
	}
	address, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	conn.Close()
	c, etcd := newCluster(t, address+"/32", "--enable-aggregator-routing")
	port := c.startSample(etcd, address)
	c.must("created", fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"api","namespace":"default"},"spec":{"ports":[{"name":"https","port":%s}]}}`, port), "create", "-f", "-")
	c.must("created", fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"api","namespace":"default","labels":{"kubernetes.io/service-name":"api"}},
		"addressType":"IPv4","ports":[{"name":"https","port":%s}],"endpoints":[{"addresses":[%q]}]}`, port, address), "create", "-f", "-")
	c.use(port)
}

func (c *cluster) write(name string, content []byte) {
	if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a authority) pem() []byte { return pemOf(a.cert.Raw) }

func pemOf(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }

func newAuthority(t *testing.T) authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

// certificate writes a certificate for a client or, by its name, for the aggregated server.
func (c *cluster) certificate(name string, groups []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: groups}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, DNSNames: []string{"api.default.svc"}}
	der, err := x509.CreateCertificate(rand.Reader, template, c.ca.cert, key.Public(), c.ca.key)
	if err != nil {
		c.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(name+".crt", pemOf(der))
	c.write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}
