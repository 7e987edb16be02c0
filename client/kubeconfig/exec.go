package kubeconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	InstallHint string `json:"installHint"`

	path string // of the program

	mu      sync.Mutex // guards both below, and is held while the command runs
	token   string
	expires time.Time // zero for never
}

// early is how long before it expires a token is replaced.
const early = 10 * time.Second

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

// fill runs the command, and has tokens that expire replaced by running it again. A certificate is taken once.
func (c *command) fill(o *client.Options, directory string) error {
	c.path = c.Command
	if strings.ContainsRune(c.path, filepath.Separator) {
		c.path = relative(directory, c.path)
	}
	got, err := c.run(context.Background())
	if err != nil {
		return err
	}
	if got.Status.Cert != "" {
		o.Cert, o.Key = []byte(got.Status.Cert), []byte(got.Status.Key)
	}
	if got.Status.Token == "" {
		return nil
	}
	c.token, c.expires = got.Status.Token, got.Status.Expires
	o.GetToken = c.get
	return nil
}

func (c *command) get(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expires.IsZero() || time.Until(c.expires) > early {
		return c.token, nil
	}
	got, err := c.run(ctx)
	if err != nil {
		return "", err
	}
	c.token, c.expires = got.Status.Token, got.Status.Expires
	return c.token, nil
}

func (c *command) run(ctx context.Context) (got credential, err error) {
	info, _ := json.Marshal(map[string]any{"kind": "ExecCredential", "apiVersion": c.APIVersion, "spec": map[string]any{"interactive": false}})
	program := exec.CommandContext(ctx, c.path, c.Args...)
	program.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+string(info))
	for _, e := range c.Env {
		program.Env = append(program.Env, e.Name+"="+e.Value)
	}
	var stderr bytes.Buffer
	program.Stderr = &stderr
	out, err := program.Output()
	if errors.Is(err, exec.ErrNotFound) && c.InstallHint != "" {
		return got, fmt.Errorf("%w: %s", err, c.InstallHint)
	}
	if err != nil {
		return got, fmt.Errorf("%s: %w: %s", c.Command, err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(out, &got); err != nil || got.Kind != "ExecCredential" {
		return got, fmt.Errorf("%s printed no ExecCredential", c.Command)
	}
	if got.Status.Token == "" && got.Status.Cert == "" {
		return got, fmt.Errorf("%s gave neither a token nor a certificate", c.Command)
	}
	return got, nil
}
