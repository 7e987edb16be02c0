package e2e

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdEnv makes this test's binary an etcd with its data in the directory that the variable has. The file "address" in it
// then says where the etcd listens.
const etcdEnv = "E2E_ETCD"

func init() {
	if dir := os.Getenv(etcdEnv); dir != "" {
		os.Exit(runEtcd(dir))
	}
}

// runEtcd is etcd's main.
func runEtcd(dir string) int {
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.LogOutputs = filepath.Join(dir, "data"), "error", []string{"stderr"}
	config.UnsafeNoFsync = true // nobody cuts the power
	local := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{local}, []url.URL{local}
	e, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer e.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	select {
	case <-e.Server.ReadyNotify():
	case <-stop:
		return 0
	}
	path := filepath.Join(dir, "address")
	if err := os.WriteFile(path+".tmp", []byte(e.Clients[0].Addr().String()), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-stop
	return 0
}

// etcdProcess is an etcd that runs elsewhere, as far as the servers can tell.
type etcdProcess struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
}

// startEtcd starts an etcd, which ends with the test.
func startEtcd(t *testing.T) *etcdProcess {
	t.Helper()
	e := &etcdProcess{t: t, dir: t.TempDir()}
	e.start()
	t.Cleanup(e.kill)
	return e
}

// start starts it on what it had, and returns its address.
func (e *etcdProcess) start() string {
	e.t.Helper()
	path, log := filepath.Join(e.dir, "address"), &output{}
	os.Remove(path)
	e.cmd = exec.Command(os.Args[0])
	e.cmd.Env = append(os.Environ(), etcdEnv+"="+e.dir)
	e.cmd.Stderr = log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	cmd, exited := e.cmd, make(chan struct{})
	e.exited = exited
	go func() {
		defer close(exited)
		cmd.Wait()
	}()
	eventually(e.t, "etcd is ready", func() bool {
		select {
		case <-exited:
			e.t.Fatalf("etcd ended: %s", log)
		default:
		}
		return exists(e.t, path)
	})
	return e.address()
}

func (e *etcdProcess) address() string {
	e.t.Helper()
	address, err := os.ReadFile(filepath.Join(e.dir, "address"))
	if err != nil {
		e.t.Fatal(err)
	}
	return string(address)
}

func (e *etcdProcess) kill() {
	e.cmd.Process.Kill()
	<-e.exited
}
