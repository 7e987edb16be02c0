package kubeconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// command is a plug-in that gives credentials (client.authentication.k8s.io).
type command struct {
	APIVersion string   `json:"apiVersion"`
	Command    string   `json:"command"`
	Args       []string `json:"args"`
	Env        []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	InstallHint        string `json:"installHint"`
	ProvideClusterInfo bool   `json:"provideClusterInfo"`
	InteractiveMode    string `json:"interactiveMode"`

	path    string // of the program
	cluster any    // what it's told about the server; nil for nothing

	running chan struct{} // capacity 1: whoever has put something in may run the program

	mu      sync.Mutex // guards both below, and isn't held while the program runs
	got     credential
	fetched time.Time // zero before the first, and when the server has refused it
}

const (
	// early is how long before it expires a credential is replaced.
	early = 10 * time.Second
	// patience is how long the program may take. It can't ask anybody: it has no standard input.
	patience = time.Minute
	// afterKill is how long the program's own children may hold its output open once it has been killed.
	afterKill = time.Second
	// maxCredential is how many bytes the program may print, and as many to standard error. A certificate with its chain has
	// a few thousand.
	maxCredential = 1 << 20
)

// output keeps what the program prints.
type output struct {
	bytes []byte
	full  bool // it would have had more than maxCredential
}

// Write is io.Writer's. Its error closes the pipe, which ends the program.
func (o *output) Write(p []byte) (int, error) {
	if o.full = len(o.bytes)+len(p) > maxCredential; o.full {
		return 0, io.ErrShortWrite
	}
	o.bytes = append(o.bytes, p...)
	return len(p), nil
}

// credential is what the command prints.
type credential struct {
	Kind   string `json:"kind"`
	Status struct {
		Token   string    `json:"token"`
		Cert    string    `json:"clientCertificateData"`
		Key     string    `json:"clientKeyData"`
		Expires time.Time `json:"expirationTimestamp"`
	} `json:"status"`
}

// clusterInfo is what a command is told about the server, if it asks for that.
type clusterInfo struct {
	Server             string          `json:"server"`
	ServerName         string          `json:"tls-server-name,omitempty"`
	InsecureSkipVerify bool            `json:"insecure-skip-tls-verify,omitempty"`
	CAData             []byte          `json:"certificate-authority-data,omitempty"`
	Config             json.RawMessage `json:"config,omitempty"`
}

// execExtension is the cluster's extension that is for commands.
const execExtension = "client.authentication.k8s.io/exec"

// fill runs the command, and has what it printed replaced by running it again when that expires, or when the server refuses it.
func (c *command) fill(o *client.Options, directory string, cluster *namedCluster) error {
	if c.InteractiveMode == "Always" {
		return fmt.Errorf("the command %s wants to ask somebody (interactiveMode: Always), and here it can't", c.Command)
	}
	c.path, c.running = c.Command, make(chan struct{}, 1)
	if strings.ContainsRune(c.path, filepath.Separator) {
		c.path = relative(directory, c.path)
	}
	if c.ProvideClusterInfo {
		info := clusterInfo{Server: cluster.Cluster.Server, ServerName: o.ServerName, InsecureSkipVerify: o.InsecureSkipVerify, CAData: o.CA}
		if o.CAFile != "" {
			var err error
			if info.CAData, err = os.ReadFile(o.CAFile); err != nil {
				return fmt.Errorf("the authority: %w", err)
			}
		}
		for _, e := range cluster.Cluster.Extensions {
			if e.Name == execExtension {
				info.Config = e.Extension
			}
		}
		c.cluster = info
	}
	got, err := c.current(context.Background())
	if err != nil {
		return err
	}
	o.GetToken = func(ctx context.Context) (string, error) {
		now, err := c.current(ctx)
		return now.Status.Token, err
	}
	if got.Status.Cert != "" {
		o.GetCert = func(ctx context.Context) (cert, key []byte, err error) {
			now, err := c.current(ctx)
			return []byte(now.Status.Cert), []byte(now.Status.Key), err
		}
	}
	o.Unauthorized = c.unauthorized
	return nil
}

// current returns the credential that is valid now. One goroutine at a time runs the command; the others wait, each until its
// own context ends.
func (c *command) current(ctx context.Context) (credential, error) {
	if got, ok := c.kept(); ok {
		return got, nil
	}
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return credential{}, fmt.Errorf("wait for %s: %w", c.Command, context.Cause(ctx))
	}
	if got, ok := c.kept(); ok { // whoever ran it meanwhile has got it
		return got, nil
	}
	got, err := c.run(ctx)
	if err != nil {
		return credential{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got, c.fetched = got, time.Now()
	return got, nil
}

// kept returns the last credential, if it's still good.
func (c *command) kept() (credential, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expires := c.got.Status.Expires
	return c.got, !c.fetched.IsZero() && (expires.IsZero() || time.Until(expires) > early)
}

// unauthorized drops a credential that was fetched before a request was sent which was answered 401.
func (c *command) unauthorized(sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fetched.Before(sent) {
		c.fetched = time.Time{}
	}
}

func (c *command) run(ctx context.Context) (got credential, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no credential within %v: %w", patience, context.DeadlineExceeded))
	defer cancel()
	spec := map[string]any{"interactive": false}
	if c.cluster != nil {
		spec["cluster"] = c.cluster
	}
	info, err := json.Marshal(map[string]any{"kind": "ExecCredential", "apiVersion": c.APIVersion, "spec": spec})
	if err != nil {
		return got, err
	}
	program := exec.CommandContext(ctx, c.path, c.Args...)
	program.WaitDelay = afterKill
	program.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+string(info))
	for _, e := range c.Env {
		program.Env = append(program.Env, e.Name+"="+e.Value)
	}
	var stdout, stderr output
	program.Stdout, program.Stderr = &stdout, &stderr
	err = program.Run()
	switch {
	case stdout.full || stderr.full:
		return got, fmt.Errorf("%s printed more than %d bytes", c.Command, maxCredential)
	case errors.Is(err, exec.ErrNotFound) && c.InstallHint != "":
		return got, fmt.Errorf("%w: %s", err, c.InstallHint)
	case err != nil && ctx.Err() != nil:
		return got, fmt.Errorf("%s: %w", c.Command, context.Cause(ctx))
	case err != nil:
		return got, fmt.Errorf("%s: %w: %s", c.Command, err, strings.TrimSpace(string(stderr.bytes)))
	}
	if err := json.Unmarshal(stdout.bytes, &got); err != nil || got.Kind != "ExecCredential" {
		return got, fmt.Errorf("%s printed no ExecCredential", c.Command)
	}
	switch {
	case got.Status.Token == "" && got.Status.Cert == "" && got.Status.Key == "":
		return got, fmt.Errorf("%s gave neither a token nor a certificate", c.Command)
	case (got.Status.Cert == "") != (got.Status.Key == ""):
		return got, fmt.Errorf("%s gave a certificate without its key, or a key without its certificate", c.Command)
	}
	return got, nil
}
