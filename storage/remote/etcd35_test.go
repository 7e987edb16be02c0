package remote_test

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/program"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
)

// buildEtcd builds an older etcd from its own module, because no process can have two versions. flags choose another version
// than that of go.mod. The build is cached.
func buildEtcd(t *testing.T, flags ...string) string {
	t.Helper()
	etcd, err := program.Build(filepath.Join("..", "..", "conformance", "etcd35"), filepath.Join(t.TempDir(), "etcd"), flags...)
	if err != nil {
		t.Fatal(err)
	}
	return etcd.Path()
}

// startOld returns the starter of that program. Its stop is a crash, and waits.
func startOld(program string) starter {
	return func(t testing.TB, dir, address, token string) (string, func()) {
		t.Helper()
		cmd := exec.Command(program, "-dir", dir, "-listen", address, "-token", token)
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
		stop := sync.OnceFunc(func() {
			in.Close()
			cmd.Process.Kill()
			cmd.Wait()
		})
		t.Cleanup(stop)
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil && err != io.EOF || line == "" {
			stop()
			t.Fatalf("etcd says no address: %v\n%s", err, log.String())
		}
		return strings.TrimSpace(line), stop
	}
}

// TestEtcd35: the oldest minor version that is supported does all that the newest does.
func TestEtcd35(t *testing.T) {
	start := startOld(buildEtcd(t))
	t.Run("alone", func(t *testing.T) { testStore(t, start) })
	t.Run("shared", func(t *testing.T) { testShared(t, start) })
}

// TestEtcdBefore3513: older versions are refused by name.
func TestEtcdBefore3513(t *testing.T) {
	at, _ := startOld(buildEtcd(t, "-modfile", "old.mod"))(t, t.TempDir(), anyAddress, etcdToken)
	refusedAtOnce(t, remote.Options{Servers: []string{at}}, "has version 3.5.12: 3.5.13 or newer is needed")
}
