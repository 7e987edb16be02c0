// Command peer is what apiserver-lite is compared with: upstream's k8s.io/apiextensions-apiserver, with which
// kube-apiserver serves custom resources, over etcd in a process of its own. The scenarios of bench start it with
// --command, as they start any other server:
//
//	make peer
//	go run ./bench writes --command bin/peer/peer
//
// It expects the program etcd of this module in its own directory. The data is in the directory that DATA names, or in
// a temporary one, which it removes. When it's ready it prints one line with the URL and the processes; SIGTERM ends
// it and etcd.
//
// What it serves with is upstream's chain of handlers, storage and watch cache, with their defaults. What needs a core
// API is left out: every request is system:masters's, there is no admission, and no priority and fairness (the bound of
// requests in flight remains). It speaks plain HTTP/1.1.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// patience is how long it and etcd may take to start.
const patience = time.Minute

func main() {
	runtime.MemProfileRate = 0 // as in apiserver-lite, so that neither pays for samples
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	klog.LogToStderr(false) // what it logs at each start isn't for people
	klog.SetOutput(new(discarded))
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// discarded is where upstream's log goes.
type discarded struct{}

func (*discarded) Write(p []byte) (int, error) { return len(p), nil }

// run serves until the context ends.
func run(ctx context.Context) (err error) {
	data := os.Getenv("DATA")
	if data == "" {
		if data, err = os.MkdirTemp("", "peer-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	}
	e, err := startEtcd(filepath.Join(data, "etcd"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	stopped, err := serve(serving, listener, e.url)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	if err := answers(ctx, url+"/readyz"); err != nil {
		return err
	}
	fmt.Printf("url=%s api_pid=%d etcd_pid=%d\n", url, os.Getpid(), e.cmd.Process.Pid)
	select {
	case <-ctx.Done():
	case err := <-e.exited:
		return fmt.Errorf("etcd ended: %v", err)
	}
	stop()
	<-stopped
	return nil
}

// etcd is the process.
type etcd struct {
	url    string
	cmd    *exec.Cmd
	exited chan error // gets what Wait returns
}

// startEtcd starts the etcd beside this program. Whether it answers shows in the API server's readiness.
func startEtcd(dir string) (*etcd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	clients, err := freeURL()
	if err != nil {
		return nil, err
	}
	peers, err := freeURL()
	if err != nil {
		return nil, err
	}
	e := &etcd{url: clients, exited: make(chan error, 1)}
	e.cmd = exec.Command(filepath.Join(filepath.Dir(self), "etcd"), "--name=peer", "--data-dir="+dir, "--log-level=error",
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients, "--listen-peer-urls="+peers,
		"--initial-advertise-peer-urls="+peers, "--initial-cluster=peer="+peers)
	e.cmd.Stderr = os.Stderr
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // whatever ends this program
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { e.exited <- e.cmd.Wait() }()
	return e, nil
}

// stop ends etcd and waits for it. etcd is made to survive a kill; asked to stop, it takes seconds to wait for watches.
func (e *etcd) stop() error {
	err := e.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	<-e.exited
	return err
}

// freeURL returns a URL with a port that nobody listens on. It's below those that systems give to clients, one of which may
// have any of them by the time that etcd listens.
func freeURL() (string, error) {
	const first, ports, tries = 10_000, 20_000, 100
	var err error
	for range tries {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(ports))); err == nil {
			return "http://" + l.Addr().String(), l.Close()
		}
	}
	return "", err
}

// answers waits until the URL is answered with 200.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(r)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it isn't ready after %v: %v", patience, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
