package e2e

import (
	"crypto/tls"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// BenchmarkKubeAPIServerStart measures, under the name kube-apiserver with TLS, client certificates and RBAC, from the start of the
// process until it's ready. What it must reach: 120 ms.
func BenchmarkKubeAPIServerStart(b *testing.B) {
	assets := filepath.Join(b.TempDir(), "assets")
	if out, err := exec.Command(binary(), "envtest", assets).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	dir := b.TempDir()
	ca := credentials.NewAuthority(b, "clients").File
	var took time.Duration
	for b.Loop() {
		port := loopback.Port(b)
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
