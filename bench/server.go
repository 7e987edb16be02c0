package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long a server may take to start, to stop, or to do what a scenario waits for.
const patience = 2 * time.Minute

// server is what is measured. One that was started has cmd; its binary or command is set.
type server struct {
	binary, args, command string
	url, token            string
	secure                secure
	pids                  []int
	dir                   string // with the data, while the scenario runs
	cmd                   *exec.Cmd
	exited                chan error // gets what cmd's Wait returns
	http                  *http.Client
	replicas
	firstMember string // the address of the first member for the others
	stateless   bool   // it keeps no data itself
}

// secure is how the server is spoken to where it has TLS.
type secure struct {
	anyCertificate bool // will do
	http2          bool
}

// register adds the flags that say what is measured.
func (s *server) register(flags *flag.FlagSet) {
	flags.StringVar(&s.binary, "server", "", "start this apiserver-lite, for each run")
	flags.StringVar(&s.args, "args", "", "further flags for it, separated by blanks")
	flags.StringVar(&s.command, "command", "", "start another server with this command, for each run")
	flags.StringVar(&s.url, "url", "", "measure the server that runs there")
	flags.StringVar(&s.token, "token", "", "bearer token to send")
	flags.BoolVar(&s.secure.anyCertificate, "insecure", false, "don't look at the server's certificate")
	flags.BoolVar(&s.secure.http2, "http2", false, "speak HTTP/2 where there is TLS, as clients of a cluster do; watches don't")
	flags.Func("pid", "with --url: the server's processes, separated by commas", func(list string) (err error) {
		s.pids, err = integers(list)
		return err
	})
	s.replicas.register(flags)
}

// errRestart is returned when a scenario has to restart a server that it didn't start.
var errRestart = errors.New("it takes --server or --command: the server has to be restarted")

// errSeveral is returned when a scenario is about replicas, and there is one server.
var errSeveral = errors.New("it takes --server, and --members or --etcd: it's about replicas")

// check looks at the flags.
func (s *server) check(needs need) error {
	set := 0
	for _, value := range []string{s.binary, s.command, s.url} {
		if value != "" {
			set++
		}
	}
	switch {
	case needs == nothing:
		return nil
	case set != 1:
		return errors.New("say what to measure: --server FILE, --command COMMAND or --url URL, one of them")
	case s.url == "" && len(s.pids) > 0:
		return errors.New("--pid is for --url: of what bench starts it knows the processes")
	case needs == restartable && (s.url != "" || s.on()):
		return errRestart
	case (needs == several || needs == sizes) && (s.binary == "" || !s.on()):
		return errSeveral
	}
	return s.replicas.check(s.binary)
}

// open starts the server, unless it runs.
func (s *server) open(ctx context.Context) (err error) {
	const connections = 256 // that stay open; more than any scenario has clients
	s.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true,
		ReadBufferSize: 64 << 10, TLSClientConfig: s.tls(), ForceAttemptHTTP2: s.secure.http2}}
	if s.binary == "" && s.command == "" {
		return nil
	}
	if s.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	if s.on() {
		err = s.openAll(ctx)
	} else {
		_, err = s.start(ctx)
	}
	if err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

func (s *server) tls() *tls.Config { return &tls.Config{InsecureSkipVerify: s.secure.anyCertificate} }

// close stops what open started, and removes its data.
func (s *server) close() error {
	s.http.CloseIdleConnections()
	if s.dir == "" {
		return nil
	}
	err := errors.Join(s.stop(), s.closeAll(), os.RemoveAll(s.dir))
	s.dir, s.url, s.pids = "", "", nil
	return err
}

// start starts the server and returns how long it took until it was ready. Another server's command finds a directory
// for its data in the environment's DATA; when it's ready it prints a line with url=URL and, for each of its
// processes, something that ends with pid=N; then it stays until SIGTERM.
func (s *server) start(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	words, ready := strings.Fields(s.command), s.readLine
	if s.binary != "" {
		words = append([]string{s.binary, "--listen=127.0.0.1:0", "--log-level=warn", "--exit-with-parent", "--url-file=" + s.urlFile()}, strings.Fields(s.args)...)
		if !s.stateless {
			words = append(words, "--data-dir="+filepath.Join(s.dir, "data"))
		}
		ready = s.readURL
		os.Remove(s.urlFile())
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	s.cmd = cmd
	cmd.Cancel = sync.OnceValue(func() error { return cmd.Process.Signal(syscall.SIGTERM) }) // twice means at once
	s.cmd.WaitDelay = patience
	s.cmd.Env = append(os.Environ(), "DATA="+s.dir)
	s.cmd.Stderr = os.Stderr
	err := ready(ctx)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", words[0], err)
	}
	return time.Since(begin), nil
}

func (s *server) urlFile() string { return filepath.Join(s.dir, "url") }

// readURL starts the binary and waits for the file that it writes when it's ready.
func (s *server) readURL(ctx context.Context) error {
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.await()
	s.pids = []int{s.cmd.Process.Pid}
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		select {
		case err := <-s.exited:
			s.cmd = nil
			return fmt.Errorf("it ended before it was ready: %v", err)
		default:
		}
		if url, err := os.ReadFile(s.urlFile()); err == nil {
			s.url = strings.TrimSpace(string(url))
			return nil
		}
	}
	return fmt.Errorf("it isn't ready after %v", patience)
}

// readLine starts the command and waits for the line that it prints.
func (s *server) readLine(context.Context) error {
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(patience, func() { s.cmd.Process.Kill() })
	defer late.Stop()
	defer s.await() // not before: it closes out
	for lines := bufio.NewScanner(out); lines.Scan(); {
		s.url, s.pids = "", nil
		for word := range strings.FieldsSeq(lines.Text()) {
			name, value, _ := strings.Cut(word, "=")
			if name == "url" {
				s.url = value
			}
			if strings.HasSuffix(name, "pid") {
				pids, err := integers(value)
				if err != nil {
					return err
				}
				s.pids = append(s.pids, pids...)
			}
		}
		if s.url != "" {
			return nil
		}
	}
	return errors.New("it printed no line with url=")
}

// await makes the process's end come out of exited.
func (s *server) await() {
	cmd, exited := s.cmd, make(chan error, 1)
	s.exited = exited
	go func() { exited <- cmd.Wait() }()
}

// stop ends a server that was started.
func (s *server) stop() error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	cmd := s.cmd
	s.cmd = nil
	cmd.Cancel()
	kill := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer kill.Stop()
	if err := <-s.exited; err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	return nil
}

// restarts tells whether restart works.
func (s *server) restarts() bool { return s.dir != "" && !s.on() }

// restart stops the server and starts it on the same data. It returns how long the start took.
func (s *server) restart(ctx context.Context) (time.Duration, error) {
	if !s.restarts() {
		return 0, errRestart
	}
	if err := s.stop(); err != nil {
		return 0, err
	}
	s.http.CloseIdleConnections()
	return s.start(ctx)
}

// restartKilled is restart with a kill, as a crash of the process. It's for a binary: of a command, processes of its own would stay.
func (s *server) restartKilled(ctx context.Context) (time.Duration, error) {
	cmd := s.cmd
	s.cmd = nil
	if err := cmd.Process.Kill(); err != nil {
		return 0, err
	}
	<-s.exited
	s.http.CloseIdleConnections()
	return s.start(ctx)
}

// startEmpty stops the server and starts it without the data that it had. It returns when the start began.
func (s *server) startEmpty(ctx context.Context) (begin time.Time, err error) {
	if err := s.stop(); err != nil {
		return begin, err
	}
	s.http.CloseIdleConnections()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return begin, err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(s.dir, entry.Name())); err != nil {
			return begin, err
		}
	}
	begin = time.Now()
	_, err = s.start(ctx)
	return begin, err
}
