package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// TestDropIn: the directory of `envtest` has two programs that do as envtest asks of kube-apiserver and etcd, and leave nothing.
func TestDropIn(t *testing.T) {
	assets := filepath.Join(t.TempDir(), "assets")
	said, err := exec.Command(binary(), "envtest", assets).Output()
	if err != nil || string(said) != assets+"\n" {
		t.Fatalf("%q, %v", said, err)
	}
	temporary, standIn := t.TempDir(), "http://127.0.0.1:"+loopback.Port(t)
	etcd := exec.Command(filepath.Join(assets, "etcd"), "--listen-client-urls="+standIn)
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		etcd.Process.Kill()
		etcd.Wait()
	})
	for _, p := range []struct {
		name, health string
		flags        func(dir string, port string) []string
	}{
		{"etcd", "http://127.0.0.1:%s/health", func(dir, port string) []string {
			url := "http://127.0.0.1:" + port
			return []string{"--advertise-client-urls=" + url, "--data-dir=" + dir, "--listen-client-urls=" + url, "--listen-peer-urls=http://127.0.0.1:0", "--unsafe-no-fsync=true"}
		}},
		{"kube-apiserver", "https://127.0.0.1:%s/healthz", func(dir, port string) []string {
			return []string{"--allow-privileged=true", "--bind-address=127.0.0.1", "--cert-dir=" + dir, "--disable-admission-plugins=ServiceAccount",
				"--etcd-servers=" + standIn, "--secure-port=" + port, "--service-cluster-ip-range=10.0.0.0/24"}
		}},
	} {
		t.Run(p.name, func(t *testing.T) {
			program := filepath.Join(assets, p.name)
			help, err := exec.Command(program, "--help").CombinedOutput()
			if err != nil || regexp.MustCompile(`(?m)^\s*--insecure-port\b`).Match(help) {
				t.Errorf("--help: %v\n%s", err, help)
			}
			var exit *exec.ExitError
			if out, err := exec.Command(program, "--frob").CombinedOutput(); !asExit(err, &exit) || exit.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 {
				t.Errorf("an unknown flag: %v, %q", err, out)
			}
			dir, port := t.TempDir(), loopback.Port(t)
			cmd := exec.Command(program, p.flags(dir, port)...)
			cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
			var log strings.Builder
			cmd.Stderr = &log
			began := time.Now()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			awaitHealth(t, fmt.Sprintf(p.health, port))
			t.Logf("ready after %v", time.Since(began).Round(time.Millisecond))
			began = time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ends with %v\n%s", err, log.String())
			}
			t.Logf("stopped after %v", time.Since(began).Round(time.Millisecond))
			if p.name == "kube-apiserver" && (!strings.Contains(log.String(), "--etcd-servers") || !strings.Contains(log.String(), "the store is inside")) {
				t.Errorf("the log doesn't say that the store is inside, whatever --etcd-servers says:\n%s", log.String())
			}
			for _, name := range []string{"apiserver.crt", "apiserver.key"} {
				os.Remove(filepath.Join(dir, name)) // what --cert-dir is for
			}
			for _, d := range []string{dir, temporary} {
				if left, err := os.ReadDir(d); err != nil || len(left) > 0 {
					t.Errorf("left in %s: %v, %v", d, left, err)
				}
			}
		})
	}
}

// TestDropInWithEtcd: at an address where an etcd answers, the data is in it, and survives the process.
func TestDropInWithEtcd(t *testing.T) {
	address := startEtcd(t).address()
	first := newKubeAPIServer(t)
	first.start(nil, "--etcd-servers=http://"+address, "--cert-dir="+t.TempDir())
	const names = "/api/v1/namespaces"
	if code, answer := first.do("POST", names, "apiVersion: v1\nkind: Namespace\nmetadata: {name: kept}\n"); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	second := newKubeAPIServer(t)
	t.Cleanup(func() { // when it has ended
		if log := second.log.String(); !strings.Contains(log, "the store is in etcd at http://"+address+" below /registry") {
			t.Errorf("the log doesn't say where the store is:\n%s", log)
		}
	})
	second.start(nil, "--etcd-servers=http://"+address, "--cert-dir="+t.TempDir())
	if code, answer := second.do("GET", names+"/kept", ""); code != http.StatusOK {
		t.Errorf("another process over the etcd answers %d %s", code, answer)
	}
}

func asExit(err error, to **exec.ExitError) bool {
	exit, ok := err.(*exec.ExitError)
	*to = exit
	return ok
}

// awaitHealth asks until the answer is 200, with no check of the certificate, as envtest does.
func awaitHealth(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	eventually(t, url+" answers 200", func() bool {
		res, err := client.Get(url)
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// TestDropInEndsWithParent: with the variable set, neither program outlives the one that started it.
func TestDropInEndsWithParent(t *testing.T) {
	assets := filepath.Join(t.TempDir(), "assets")
	if out, err := exec.Command(binary(), "envtest", assets).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	certificates, temporary := t.TempDir(), t.TempDir()
	etcdPort, port := loopback.Port(t), loopback.Port(t)
	script := fmt.Sprintf(`%[1]s/etcd --listen-client-urls=http://127.0.0.1:%[2]s & %[1]s/kube-apiserver --bind-address=127.0.0.1 --secure-port=%[3]s --cert-dir=%[4]s & read line`,
		assets, etcdPort, port, certificates)
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "APISERVER_LITE_EXIT_WITH_PARENT=true")
	held, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StderrPipe() // ends when the last process that has it does
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() {
		log, _ := io.ReadAll(out)
		ended <- string(log)
	}()
	awaitHealth(t, "http://127.0.0.1:"+etcdPort+"/health")
	awaitHealth(t, "https://127.0.0.1:"+port+"/healthz")
	held.Close()
	select {
	case log := <-ended:
		if strings.Count(log, "the parent process ended") != 2 {
			t.Errorf("they ended otherwise:\n%s", log)
		}
	case <-time.After(time.Minute):
		t.Error("they outlive the process that started them")
	}
	cmd.Wait()
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
