package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// BenchmarkKubeAPIServerStart measures, under the name kube-apiserver with TLS, client certificates and RBAC, from the start of the
// process until it's ready. What it must reach: 120 ms.
func BenchmarkKubeAPIServerStart(b *testing.B) {
	assets := filepath.Join(b.TempDir(), "assets")
	if out, err := exec.Command(binary, "envtest", assets).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	dir := b.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, authority(b), 0o600); err != nil {
		b.Fatal(err)
	}
	var took time.Duration
	for b.Loop() {
		port := freePort(b)
		cmd := exec.Command(filepath.Join(assets, "kube-apiserver"), "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+dir, "--client-ca-file="+ca,
			"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount")
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		began := time.Now()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		for deadline := began.Add(time.Minute); ; time.Sleep(time.Millisecond) {
			res, err := client.Get("https://127.0.0.1:" + port + "/readyz")
			if err == nil {
				res.Body.Close()
				if res.StatusCode == http.StatusOK {
					break
				}
			}
			if time.Now().After(deadline) {
				b.Fatal("it doesn't get ready")
			}
		}
		took += time.Since(began)
		client.CloseIdleConnections()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			b.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(took)/float64(time.Millisecond)/float64(b.N), "ms/start")
}

// authority returns the certificate of an authority, as PEM.
func authority(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
