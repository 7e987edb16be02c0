// Package pair starts a kube-apiserver and an etcd on loopback, with users, RBAC and keys, as tests of clusters have them. The
// programs are upstream's, which `make oracle` builds, or ours under the same two names: the flags are the same.
//
// A Server owns its two processes and its directory. Stop ends both and waits for them; nothing else runs. A Server may be used by
// several goroutines.
package pair

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	certificateLife = 30 * 24 * time.Hour   // longer than any run
	startPatience   = 3 * time.Minute       // upstream's takes six seconds, and much more on a busy machine
	stopPatience    = 30 * time.Second      // then the processes are killed
	readyPause      = 20 * time.Millisecond // between two looks
	logTail         = 4 << 10               // bytes of a log that an error quotes
)

// Options say what Start starts.
type Options struct {
	Bin      string   // the directory with the programs kube-apiserver and etcd
	Dir      string   // an existing directory for certificates, data and logs; it's left as it is in the end
	Args     []string // further flags of kube-apiserver, which come last and so win. Without any about authorization it's RBAC
	EtcdArgs []string // further flags of etcd
}

// Server is a kube-apiserver that runs, with its etcd.
type Server struct {
	URL        string      // https://127.0.0.1:PORT
	Kubeconfig string      // a file with an administrator's credentials
	TLS        *tls.Config // an administrator's; clone it
	Authority  []byte      // the certificate that clients' are signed by, as PEM
	PID        int         // of kube-apiserver
	EtcdPID    int
	Started    time.Time // when Start was called

	dir       string
	authority *identity // of all certificates
	processes []*process
}

// process is one that was started.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
	err  error         // of Wait; read after done
}

// Start starts both and returns when kube-apiserver is ready. An error has the end of the log.
func Start(ctx context.Context, o Options) (s *Server, err error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	s = &Server{Started: time.Now(), URL: "https://127.0.0.1:" + ports[0], dir: o.Dir, Kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
	if err := s.credentials(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	etcd := "http://127.0.0.1:" + ports[1]
	if s.EtcdPID, err = s.run(o.Dir, "etcd", filepath.Join(o.Bin, "etcd"), append([]string{
		"--data-dir=" + filepath.Join(o.Dir, "etcd"), "--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
		"--listen-peer-urls=http://127.0.0.1:" + ports[2], "--unsafe-no-fsync"}, o.EtcdArgs...)); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(o.Args, func(arg string) bool { return strings.HasPrefix(arg, "--authorization-") }) { // modes add up
		o.Args = append([]string{"--authorization-mode=RBAC"}, o.Args...)
	}
	in := func(name string) string { return filepath.Join(o.Dir, name) }
	if s.PID, err = s.run(o.Dir, "kube-apiserver", filepath.Join(o.Bin, "kube-apiserver"), append([]string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--secure-port=" + ports[0], "--cert-dir=" + in("certs"),
		"--tls-cert-file=" + in("server.crt"), "--tls-private-key-file=" + in("server.key"), "--client-ca-file=" + in("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + in("sa.key"), "--service-account-key-file=" + in("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged"}, o.Args...)); err != nil {
		return nil, err
	}
	return s, s.ready(ctx)
}

// run starts a program whose output goes to a file of its name.
func (s *Server) run(dir, name, path string, args []string) (pid int, err error) {
	p := &process{cmd: exec.Command(path, args...), log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, dir
	p.cmd.Env = append(os.Environ(), "APISERVER_LITE_EXIT_WITH_PARENT=true") // ours alone knows it
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                  // an interrupt from the terminal is for who calls Stop
	if err := p.cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", name, err)
	}
	s.processes = append(s.processes, p)
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p.cmd.Process.Pid, nil
}

// ready waits until kube-apiserver says that it's ready.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	client := s.Client()
	defer client.CloseIdleConnections()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		res, err := client.Do(r)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		for _, p := range s.processes {
			select {
			case <-p.done:
				return fmt.Errorf("%s ended with %v before it was ready: %s", p.cmd.Path, p.err, p.tail())
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver isn't ready: %w: %s", context.Cause(ctx), s.processes[len(s.processes)-1].tail())
		case <-time.After(readyPause):
		}
	}
}

// Client returns an administrator's client, with connections of its own.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: s.TLS.Clone(), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100, DisableCompression: true}}
}

// Stop ends the processes, kube-apiserver first, and waits for them. It may be called twice.
func (s *Server) Stop() error {
	var errs []error
	for i := len(s.processes) - 1; i >= 0; i-- {
		p := s.processes[i]
		p.cmd.Process.Signal(syscall.SIGTERM) // one that has ended is none to send to
		select {
		case <-p.done:
		case <-time.After(stopPatience):
			errs = append(errs, fmt.Errorf("%s didn't end within %v and was killed: %s", p.cmd.Path, stopPatience, p.tail()))
			p.cmd.Process.Kill()
			<-p.done
		}
	}
	s.processes = nil
	return errors.Join(errs...)
}

// tail is the end of what a process wrote.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log)
	return strings.TrimSpace(string(text[max(0, len(text)-logTail):]))
}

// credentials makes an authority, the server's certificate, the key of ServiceAccounts, and an administrator.
func (s *Server) credentials() (err error) {
	s.authority, err = newIdentity(nil, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	if err != nil {
		return err
	}
	server, err := newIdentity(s.authority, &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", "kubernetes.default.svc"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return err
	}
	accounts, err := newIdentity(nil, &x509.Certificate{Subject: pkix.Name{CommonName: "accounts"}})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": s.authority.certificate, "server.crt": server.certificate, "server.key": server.privateKey, "sa.key": accounts.privateKey,
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
			return err
		}
	}
	admin, err := s.user(s.Kubeconfig, "admin", "system:masters")
	if err != nil {
		return err
	}
	s.Authority = s.authority.certificate
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.authority.certificate)
	shown, err := tls.X509KeyPair(admin.certificate, admin.privateKey)
	s.TLS = &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{shown}}
	return err
}

// User writes a kubeconfig to a file: that of a user of these groups, with a certificate.
func (s *Server) User(path, name string, groups ...string) error {
	_, err := s.user(path, name, groups...)
	return err
}

func (s *Server) user(path, name string, groups ...string) (*identity, error) {
	user, err := newIdentity(s.authority, &x509.Certificate{
		Subject:  pkix.Name{CommonName: name, Organization: groups},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	text := base64.StdEncoding.EncodeToString
	return user, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: pair, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: %q, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: pair, context: {cluster: pair, user: %[3]q}}]
current-context: pair
`, s.URL, text(s.authority.certificate), name, text(user.certificate), text(user.privateKey)), 0o600)
}

// identity is a certificate and its key, as PEM.
type identity struct {
	certificate, privateKey []byte
	template                *x509.Certificate
	key                     *ecdsa.PrivateKey
}

// newIdentity fills in the template and has it signed by the authority; without one it signs itself.
func newIdentity(by *identity, template *x509.Certificate) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(now.UnixNano()), now.Add(-time.Hour), now.Add(certificateLife)
	made := &identity{template: template, key: key}
	if by == nil {
		by = made
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.template, key.Public(), by.key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	made.certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	made.privateKey = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
	return made, nil
}

// freePorts returns ports of loopback that nobody listens at.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after all were found, so that none comes twice
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}

// Ours fills a directory with links to our program under both names.
func Ours(program, dir string) error {
	out, err := exec.Command(program, "envtest", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s envtest: %w: %s", program, err, bytes.TrimSpace(out))
	}
	return nil
}
