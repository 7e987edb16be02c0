package e2e

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a condition may take to come true before a test gives up: with the race detector, a cold cache
// and a machine that does much else.
const patience = 2 * time.Minute

// run says how to start the binary.
type run struct {
	program string // "" is the one under test
	args    []string
	env     []string // beside PATH, HOME and TMPDIR
	// TMPDIR and --url-file; default to paths of the test's own.
	tmp, urlFile string
	// dir is where it's started; "" is where the test is.
	dir string
	// descriptors is the limit of open files; 0 leaves the one of the test.
	descriptors int
	// space is the network namespace that it's started in; "" is that of the test.
	space string
	// fileBlocks limits the size of each file, in blocks of 512 bytes; 0 leaves the limit of the test.
	fileBlocks int
	// handed is the socket that it's given, as systemd does; nil for none.
	handed *os.File
}

// process is a binary that was started.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	stdout  *output
	stderr  *output
	urlFile string
	url     string        // set by ready
	exited  chan struct{} // closed when the process is gone and its output has been read
	*client               // set by ready
}

// launch starts the binary and doesn't wait for it. It ends with the test, if not before, and with the
// test's process, however that ends.
func launch(t *testing.T, r run) *process {
	t.Helper()
	p := &process{t: t, stdout: &output{}, stderr: &output{}, exited: make(chan struct{}), urlFile: r.urlFile}
	if p.urlFile == "" {
		p.urlFile = filepath.Join(t.TempDir(), "url")
	}
	args := r.args
	if !slices.ContainsFunc(slices.Concat(args, r.env), func(s string) bool { return strings.Contains(strings.ToLower(s), "listen") }) {
		args = append([]string{"--listen=127.0.0.1:0"}, args...)
	}
	if r.tmp == "" {
		r.tmp = t.TempDir()
	}
	p.cmd = exec.Command(cmp.Or(r.program, binary()), append([]string{"--url-file=" + p.urlFile, "--exit-with-parent"}, args...)...)
	limits := ""
	if r.descriptors > 0 {
		limits += fmt.Sprintf("ulimit -n %d && ", r.descriptors)
	}
	if r.fileBlocks > 0 {
		limits += fmt.Sprintf("ulimit -f %d && ", r.fileBlocks)
	}
	if r.handed != nil { // whose variables name the process
		limits += "export LISTEN_FDS=1 LISTEN_PID=$$ && "
	}
	if limits != "" {
		p.cmd = exec.Command("/bin/sh", append([]string{"-c", limits + `exec "$0" "$@"`}, p.cmd.Args...)...)
	}
	if r.space != "" { // which takes the place of itself by the program
		p.cmd = exec.Command("ip", append([]string{"netns", "exec", r.space}, p.cmd.Args...)...)
	}
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + r.tmp}, r.env...)
	if r.handed != nil {
		p.cmd.ExtraFiles = []*os.File{r.handed}
	}
	p.cmd.Dir = r.dir
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		p.cmd.Wait() // the state says how it ended
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.exited
		if strings.Contains(p.stderr.String(), "WARNING: DATA RACE") {
			t.Error("the server has a data race")
		}
		if t.Failed() {
			t.Logf("standard error of %v:\n%s", p.cmd, p.stderr)
		}
	})
	return p
}

// start starts the binary and returns when it's ready.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return launch(t, run{args: args}).ready()
}

// ready waits for the file with the URL, which is there when the server is.
func (p *process) ready() *process {
	p.t.Helper()
	eventually(p.t, "the server is ready", func() bool {
		select {
		case <-p.exited:
			p.t.Fatalf("%v ended with code %d before it was ready:\n%s", p.cmd, p.cmd.ProcessState.ExitCode(), p.stderr)
		default:
		}
		content, err := os.ReadFile(p.urlFile)
		p.url = strings.TrimSuffix(string(content), "\n")
		return err == nil
	})
	p.client = newClient(p.t, p.url)
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %v: %v", s, err)
	}
}

// wait returns the exit code, -1 if a signal ended the process.
func (p *process) wait(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(within):
		p.cmd.Process.Signal(syscall.SIGQUIT) // its stacks tell why
		<-p.exited
		p.t.Fatalf("%v still ran after %v:\n%s", p.cmd, within, p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

// stopTime is how long a server may take to stop.
const stopTime = 10 * time.Second

// stop ends the server as an operator does, and fails the test unless it went well.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(stopTime); code != 0 {
		p.t.Fatalf("exit code %d after SIGTERM, want 0:\n%s", code, p.stderr)
	}
}

// kill ends the server as a crash does.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait(patience)
}

// output is what a process wrote so far.
type output struct {
	mu     sync.Mutex // guards buffer
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// lines returns the lines that are whole.
func (o *output) lines() []string {
	whole := o.String()
	whole = whole[:strings.LastIndexByte(whole, '\n')+1]
	return slices.Collect(func(yield func(string) bool) {
		for line := range strings.Lines(whole) {
			if !yield(strings.TrimSuffix(line, "\n")) {
				return
			}
		}
	})
}

// eventually waits until a condition holds, and fails the test if it doesn't in time.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// exists tells whether there is a file.
func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
