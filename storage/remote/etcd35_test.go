package remote_test

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// buildEtcd builds an older etcd from its own module, because no process can have two versions. flags choose another version
// than that of go.mod. The build is cached.
func buildEtcd(t *testing.T, flags ...string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "etcd")
	build := exec.Command("go", append([]string{"build", "-buildvcs=false", "-o", program}, flags...)...)
	build.Dir = filepath.Join("..", "..", "conformance", "etcd35")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// oldEtcd is a process of an older etcd.
type oldEtcd struct {
	program, url string
	stop         func() // as a crash does; it waits
}

// start runs it, at an address or at any.
func (e *oldEtcd) start(t testing.TB, dir, address, token string) {
	t.Helper()
	cmd := exec.Command(e.program, "-dir", dir, "-listen", address, "-token", token)
	in, err := cmd.StdinPipe() // its end is the process's
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	e.stop = func() {
		if stopped {
			return
		}
		stopped = true
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(e.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && err != io.EOF || line == "" {
		e.stop()
		t.Fatalf("etcd says no address: %v\n%s", err, log.String())
	}
	e.url = strings.TrimSpace(line)
}

// anyAddress lets etcd choose a port.
const anyAddress = "127.0.0.1:0"

// TestEtcd35: the oldest minor version that is supported does all that the newest does.
func TestEtcd35(t *testing.T) {
	program := buildEtcd(t)
	n := 0
	t.Run("alone", func(t *testing.T) {
		e := &oldEtcd{program: program}
		e.start(t, t.TempDir(), anyAddress, "etcd-cluster")
		storagetest.Run(t, func(t testing.TB) storage.Store {
			n++
			return open(t, remote.Options{Servers: []string{e.url}, Prefix: "/test/" + strings.Repeat("x", n)})
		})
	})
	t.Run("shared", func(t *testing.T) {
		storagetest.RunShared(t, func(t testing.TB) *storagetest.Etcd {
			e, dir := &oldEtcd{program: program}, t.TempDir()
			e.start(t, dir, anyAddress, "etcd-cluster")
			address := strings.TrimPrefix(e.url, "http://")
			again := func(t testing.TB, dir, token string) {
				e.stop()
				e.start(t, dir, address, token)
			}
			return &storagetest.Etcd{
				Open: func(t testing.TB) storage.Store { return open(t, remote.Options{Servers: []string{e.url}}) },
				Client: func(t testing.TB) *clientv3.Client {
					c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.url}, Logger: zap.NewNop()})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { c.Close() })
					return c
				},
				Restart: func(t testing.TB) { again(t, dir, "etcd-cluster") },
				Replace: func(t testing.TB) { again(t, t.TempDir(), "another") },
			}
		})
	})
}

// TestEtcdBefore3513: older versions are refused by name.
func TestEtcdBefore3513(t *testing.T) {
	e := &oldEtcd{program: buildEtcd(t, "-modfile", "old.mod")}
	e.start(t, t.TempDir(), anyAddress, "etcd-cluster")
	refusedAtOnce(t, remote.Options{Servers: []string{e.url}}, "has version 3.5.12: 3.5.13 or newer is needed")
}
