package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the server's program, which TestMain builds.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "console")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "apiserver-lite")
	build := exec.Command("make", "-s", "-C", "..", "build", "BIN="+dir) // the program that users get, whose packages other tests need, too
	code := 1
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n%s", build, err, output)
	} else {
		code = m.Run()
	}
	stopBrowser()
	os.RemoveAll(dir)
	os.Exit(code)
}

// process is a server that runs.
type process struct {
	t   testing.TB
	url string
	cmd *exec.Cmd
}

// start starts a server of its own for a test, and waits until it's ready.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	if len(args) == 0 {
		args = []string{"--ephemeral", "--builtin=all"}
	}
	cmd := exec.Command(binary, append([]string{"--listen=127.0.0.1:0", "--log-level=warn"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd}
	t.Cleanup(p.stop)
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the server says nothing: %v", err)
	}
	go io.Copy(io.Discard, lines) // ends with the process
	p.url = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	return p
}

// stop stops the server, and waits until it has.
func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Wait()
}

// ask sends a request and fails the test if it's refused. It returns the answer's body.
func (p *process) ask(method, path, body string, headers ...string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/yaml")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		p.t.Fatalf("%s %s: %s %v\n%s", method, path, res.Status, err, answer)
	}
	return string(answer)
}
