// Package cluster starts a cluster without machines on loopback: kube-apiserver and etcd, upstream's or ours in their place,
// upstream's controller manager and scheduler, and nodes of kwok's, under RBAC, each part with an identity of its own.
//
// A Cluster owns its processes and its directory. It may be used by several goroutines, but Stop comes last.
package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/apiserver-lite/apiserver-lite/conformance/pair"
)

// Sides are whose kube-apiserver and etcd a cluster can have: upstream's, and ours.
var Sides = []string{"pair", "ours"}

// Options say what Start starts.
type Options struct {
	As       string // one of Sides
	Programs string // the directory with upstream's programs, kubectl and kwok
	Ours     string // our program
	Nodes    int    // 0: neither nodes, nor who makes and schedules pods
}

// Main is that of a command that runs clusters: it gets the flags that all of these have, and ends when it's interrupted. The command adds its
// own flags before. An error ends the process with exit code 1.
func Main(name string, run func(context.Context, Options) error) {
	var o Options
	flag.StringVar(&o.Programs, "programs", "../bin/oracle", "directory with upstream's programs, kubectl and kwok")
	flag.StringVar(&o.Ours, "program", "../bin/apiserver-lite", "our program")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := fmt.Errorf("there are no arguments, such as %q", flag.Arg(0))
	if flag.NArg() == 0 {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		stop()
		os.Exit(1)
	}
}

// Cluster is one that runs.
type Cluster struct {
	Dir    string // for what belongs to it; removed by Stop
	Server *pair.Server

	programs string
	parts    *exec.Cmd    // examples/kwok/parts.sh
	log      bytes.Buffer // of parts; read when it has ended
}

// parts.sh looks for a kubeconfig by the name of each part.
var users = map[string]string{
	"kube-controller-manager": "system:kube-controller-manager",
	"kube-scheduler":          "system:kube-scheduler",
	"kwok":                    "kwok",
}

//go:embed kwok.yaml
var kwokRole string

const (
	// script starts what isn't kube-apiserver, from the directory of a package of this module or that of the module.
	script = "../examples/kwok/parts.sh"
	// nodesPatience is for nodes to come and be ready.
	nodesPatience = 2 * time.Minute
	nodesPause    = time.Second
)

// Start starts a cluster, and returns when its nodes are ready. It runs in the directory of this module.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	c := &Cluster{}
	if c.programs, err = filepath.Abs(o.Programs); err != nil {
		return nil, err
	}
	if c.Dir, err = os.MkdirTemp("", "cluster-"+o.As+"-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	options := pair.Options{Bin: c.programs, Dir: c.Dir, Args: []string{"--enable-aggregator-routing"}}
	if o.As == "ours" {
		options.Bin = filepath.Join(c.Dir, "bin")
		ours, err := filepath.Abs(o.Ours)
		if err := errors.Join(err, os.Mkdir(options.Bin, 0o700), pair.Ours(ours, options.Bin)); err != nil {
			return nil, err
		}
	}
	if c.Server, err = pair.Start(ctx, options); err != nil {
		return nil, err
	}
	if o.Nodes == 0 {
		return c, nil
	}
	for name, user := range users {
		if err := c.Server.User(filepath.Join(c.Dir, name+".kubeconfig"), user); err != nil {
			return nil, err
		}
	}
	if _, err := c.Kubectl(ctx, kwokRole, "apply", "-f", "-"); err != nil {
		return nil, err
	}
	c.parts = exec.Command(script, c.Dir)
	c.parts.Env = append(os.Environ(), "PARTS="+c.programs, "NODES="+strconv.Itoa(o.Nodes), "PATH="+c.programs+":"+os.Getenv("PATH"))
	c.parts.Stdout, c.parts.Stderr = &c.log, &c.log
	c.parts.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is for us
	if err := c.parts.Start(); err != nil {
		return nil, err
	}
	return c, c.nodes(ctx, o.Nodes)
}

// nodes waits until so many nodes are ready.
func (c *Cluster) nodes(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, nodesPatience)
	defer cancel()
	for {
		ready, err := c.Kubectl(ctx, "", "get", "nodes", "-o", `jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}`)
		if strings.Count(ready, "True") == n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d nodes aren't ready: %w: %s", n, errors.Join(context.Cause(ctx), err), ready)
		case <-time.After(nodesPause):
		}
	}
}

// Kubectl runs upstream's as an administrator, with this input, and returns what it prints.
func (c *Cluster) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.programs, "kubectl"), append([]string{"--kubeconfig=" + c.Server.Kubeconfig}, args...)...)
	var failure bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &failure
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", args[0], err, bytes.TrimSpace(failure.Bytes()))
	}
	return string(out), err
}

// Stop ends everything, waits for it, and removes the directory.
func (c *Cluster) Stop() error {
	if c.parts != nil && c.parts.Process != nil {
		c.parts.Process.Signal(syscall.SIGTERM)
		c.parts.Wait() // how it ends after a signal says nothing
	}
	var err error
	if c.Server != nil {
		err = c.Server.Stop()
	}
	return errors.Join(err, os.RemoveAll(c.Dir))
}
