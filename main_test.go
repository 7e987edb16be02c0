package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// asCommand makes the test binary be the command: tests start it as a process of its own.
const asCommand = "APISERVER_LITE_TEST_MAIN"

func TestMain(m *testing.M) {
	switch os.Getenv(asCommand) {
	case "server":
		main()
	case "parent": // starts the server as a child, says its id, and waits to be killed
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Env = append(os.Environ(), asCommand+"=server")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", cmd.Process.Pid)
		cmd.Wait()
	default:
		os.Exit(m.Run())
	}
}

func noEnv(string) string { return "" }

// parse reads flags as a start does.
func parse(f *flags, args []string, getenv func(string) string) error {
	set := flagSet(f)
	if err := set.Parse(args); err != nil {
		return err
	}
	return f.read(set, getenv)
}

func TestBadSettingsAreRefused(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(foreign, "precious")
	for _, tc := range []struct {
		name string
		args []string
		env  string // NAME=value
		code int
		want string
	}{
		{"unknown flag", []string{"--frob"}, "", exit.Usage, "--frob"},
		{"misspelt flag", []string{"--dta-dir=x"}, "", exit.Usage, "unknown flag: --dta-dir: did you mean --data-dir?"},
		{"misspelt command", []string{"gte", "widgets", "-n", "x"}, "", exit.Usage, `unknown command "gte" for "apiserver-lite": did you mean get?`},
		{"two words that it may be", []string{"exprt"}, "", exit.Usage, "did you mean export"},
		{"unknown command", []string{"frobnicate"}, "", exit.Usage, "--help lists"},
		{"argument of serve", []string{"serve", "get"}, "", exit.Usage, `"get"`},
		{"flag of serve", []string{"serve", "--frob"}, "", exit.Usage, "--frob"},
		{"help about nothing", []string{"help", "gte"}, "", exit.Usage, "did you mean get?"},
		{"snapshot's word", []string{"snapshot", "sav"}, "", exit.Usage, "did you mean save?"},
		{"member's word", []string{"member"}, "", exit.Usage, "list or remove"},
		{"shell", []string{"completion", "csh"}, "", exit.Usage, "csh"},
		{"no number", []string{"--http2-max-streams=x"}, "", exit.Usage, "--http2-max-streams"},
		{"no duration", []string{"--history=1"}, "", exit.Usage, "--history"},
		{"log level", []string{"--log-level=loud"}, "", exit.Usage, "--log-level"},
		{"parent", []string{"--exit-with-parent=x"}, "", exit.Usage, "process id"},
		{"variable", nil, "APISERVER_LITE_EPHEMERAL=perhaps", exit.Usage, "APISERVER_LITE_EPHEMERAL"},
		{"port", []string{"--listen=127.0.0.1:99999"}, "", exit.Failure, "--listen"},
		{"public address", []string{"--listen=:0"}, "", exit.Failure, "--token-file"},
		{"public address by a variable", nil, "APISERVER_LITE_LISTEN=0.0.0.0:0", exit.Failure, "--token-file"},
		{"negative history", []string{"--history=-1h"}, "", exit.Failure, "--history"},
		{"foreign directory", []string{"--listen=127.0.0.1:0", "--data-dir", foreign}, "", exit.Failure, foreign},
		{"directory that is a file", []string{"--listen=127.0.0.1:0", "--data-dir", file}, "", exit.Failure, file},
		{"directory below a file", []string{"--listen=127.0.0.1:0", "--data-dir", file + "/x"}, "", exit.Failure, file},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			name, value, _ := strings.Cut(tc.env, "=")
			getenv := func(asked string) string {
				if asked == name && name != "" {
					return value
				}
				return ""
			}
			code := process{cli.Process{Getenv: getenv, Out: &stdout, Err: &stderr}, 0}.run(tc.args)
			message := stderr.String()
			if code != tc.code || !strings.HasPrefix(message, "apiserver-lite: ") || strings.Count(message, "\n") != 1 || !strings.Contains(message, tc.want) || stdout.Len() > 0 {
				t.Errorf("exit %d, stdout %q, stderr %q; want %d and one line with %q", code, stdout.String(), message, tc.code, tc.want)
			}
		})
	}
}

// TestRefusedBeforeTheStore: what can't be used of kube-apiserver's flags and their files is refused although no etcd answers, and
// instead of saying so.
func TestRefusedBeforeTheStore(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("kind: Nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{
		"--authorization-mode=Hope", "--audit-policy-file=" + bad, "--client-ca-file=" + bad, "--token-auth-file=" + filepath.Join(dir, "missing"),
		"--admission-control-config-file=" + bad, "--enable-admission-plugins=Hope", "--authentication-config=" + bad, "--cors-allowed-origins=(",
		"--service-account-key-file=" + bad, "--tls-cert-file=" + bad + " --tls-private-key-file=" + bad, "--proxy-client-cert-file=" + bad + " --proxy-client-key-file=" + bad,
	} {
		t.Run(strings.ReplaceAll(flag, dir, ""), func(t *testing.T) {
			args := append([]string{"--bind-address=127.0.0.1", "--cert-dir=" + dir, "--etcd-servers=http://127.0.0.1:1"}, strings.Fields(flag)...)
			var stdout, stderr bytes.Buffer
			code := process{cli.Process{Getenv: noEnv, Out: &stdout, Err: &stderr}, 0}.runKubeAPIServer(args)
			name, _, _ := strings.Cut(flag, "=")
			if message := stderr.String(); code != exit.Failure || strings.Contains(message, "etcd-servers") || !strings.Contains(message, name) {
				t.Errorf("exit %d, stderr %q; want %d and %s", code, message, exit.Failure, name)
			}
		})
	}
}

// The command envtest fills a directory, and says which.
func TestEnvtestCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "assets")
	for _, tc := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{dir}, exit.OK, dir + "\n", ""},
		{nil, exit.Usage, "", "apiserver-lite: which directory? apiserver-lite envtest DIR"},
		{[]string{"--frob"}, exit.Usage, "", "apiserver-lite: unknown flag: --frob"},
		{[]string{filepath.Join(dir, "etcd")}, exit.Failure, "", "apiserver-lite: "},
	} {
		var stdout, stderr bytes.Buffer
		code := process{cli.Process{Getenv: noEnv, Out: &stdout, Err: &stderr}, 0}.run(append([]string{"envtest"}, tc.args...))
		if code != tc.code || stdout.String() != tc.stdout || !strings.HasPrefix(stderr.String(), tc.stderr) || tc.stderr == "" && stderr.Len() > 0 {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
}

// A start that was told to stop is no failure, unless it had failed anyway.
func TestStartToldToStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		dir  string
		want string // "" for none
	}{{filepath.Join(dir, "data"), ""}, {file, "is a file"}} {
		err := serve(ctx, &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Dir: tt.dir}}, slog.Default(), io.Discard)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.dir, err, tt.want)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for args, want := range map[string]string{
		"--help": "\nOperate:\n", "-h": "\nData:\n      --data-dir", "help": "\nData:\n", "help serve": "Usage: apiserver-lite serve\n", "serve --help": "--data-dir",
		"help get": "Usage: apiserver-lite get RESOURCE [NAME...]\n", "get --help": "\nThe server:\n      --server", "help snapshot restore": "\nFlags:\n      --data-dir",
		"snapshot --help": "\n       apiserver-lite snapshot save FILE", "member --help": "apiserver-lite member remove NAME", "envtest --help": "Usage: apiserver-lite envtest DIR",
		"migrate --help": "Usage: apiserver-lite migrate --from DIR|--to DIR --etcd-servers URL,...\n", "export --help": "--secrets", "completion bash": "__start_apiserver-lite",
		"completion zsh": "#compdef apiserver-lite", "completion fish": "fish completion", "completion powershell": "powershell completion", "__complete sna": "snapshot",
		"__complete serve --data-d": "--data-dir", "__complete get --sel": "--selector", "--version": "apiserver-lite v1.37.0-lite+", "serve --version": "apiserver-lite v1.37.0-lite+",
	} {
		var stdout, stderr bytes.Buffer
		if code := (process{cli.Process{Getenv: noEnv, Out: &stdout, Err: &stderr}, 0}).run(strings.Fields(args)); code != exit.OK || !strings.Contains(stdout.String(), want) || stderr.Len() > 0 && !strings.HasPrefix(args, "__") {
			t.Errorf("%s: exit %d, %q, %q", args, code, stdout.String(), stderr.String())
		}
	}
}

// TestHelpHasAll: help shows each command, and each has something to say about itself.
func TestHelpHasAll(t *testing.T) {
	var stdout bytes.Buffer
	process{cli.Process{Getenv: noEnv, Out: &stdout, Err: io.Discard}, 0}.run([]string{"help"})
	for _, cmd := range tree(t).Commands() {
		line := regexp.MustCompile(`\n  ` + cmd.Name() + `  +` + regexp.QuoteMeta(cmd.Short) + `\n`)
		if !cmd.Hidden && (!line.MatchString(stdout.String()) || cmd.Short == "") {
			t.Errorf("help doesn't have %q: give it a place in the groups of package commands", line)
		}
	}
}

// TestManual: there is a man page for each command that help has, with its flags.
func TestManual(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var stdout, stderr bytes.Buffer
	if code := (process{cli.Process{Getenv: noEnv, Out: &stdout, Err: &stderr}, 0}).run([]string{"man", dir}); code != exit.OK || !strings.HasSuffix(stdout.String(), " pages in "+dir+"\n") {
		t.Fatalf("exit %d, %q, %q", code, stdout.String(), stderr.String())
	}
	for name, parts := range map[string][]string{
		"":                  {".TH \"APISERVER\\-LITE\" 1\n", ".SH DATA\n", "\n\\fB\\-\\-data\\-dir\\fR \\fIstring\\fR\n", ".TP\n\\fBsnapshot\\fR\n", "(default 127.0.0.1:8080)"},
		"-get":              {"apiserver\\-lite\\-get \\- print objects\n", ".SH THE SERVER\n", "\n\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fIstring\\fR\n", ".SH SEE ALSO\n\\fBapiserver\\-lite\\fR(1)"},
		"-snapshot-restore": {"data\\-dir"}, "-completion-bash": {"SYNOPSIS"}, "-serve": {"data\\-dir"},
	} {
		page, err := os.ReadFile(filepath.Join(dir, "apiserver-lite"+name+".1"))
		if err != nil {
			t.Error(err)
		}
		for _, part := range parts {
			if !strings.Contains(string(page), part) {
				t.Errorf("the page of apiserver-lite%s doesn't have %q", name, part)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "apiserver-lite-man.1")); err == nil {
		t.Error("a hidden command has a page")
	}
}

func TestFlagsAndEnvironment(t *testing.T) {
	env := map[string]string{
		"APISERVER_LITE_LISTEN":                 "127.0.0.1:1",
		"APISERVER_LITE_DATA_DIR":               "from-env",
		"APISERVER_LITE_ALLOWED_HOSTS":          "a.test,b.test",
		"APISERVER_LITE_AUTO_CREATE_NAMESPACES": "true",
		"APISERVER_LITE_EXIT_WITH_PARENT":       "1",
		"APISERVER_LITE_TOKEN":                  "sesame",
	}
	var f flags
	f.parent.pid = 77
	if err := parse(&f, []string{"--data-dir=from-flag", "--watch-write-timeout=5s"}, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	s := &f.server
	if s.Serving.Listen != "127.0.0.1:1" || s.Data.Dir != "from-flag" || strings.Join(s.Serving.AllowedHosts, " ") != "a.test b.test" || !s.API.AutoCreateNamespaces || s.Token != "sesame" || s.Bounds.WatchWriteTimeout != 5*time.Second || !f.parent.on || f.parent.pid != 77 {
		t.Errorf("it is listen %q, data-dir %q, hosts %q, namespaces %v, timeout %v, parent %+v", s.Serving.Listen, s.Data.Dir, s.Serving.AllowedHosts, s.API.AutoCreateNamespaces, s.Bounds.WatchWriteTimeout, f.parent)
	}
	f = flags{}
	if err := parse(&f, []string{"--exit-with-parent=123"}, noEnv); err != nil || !f.parent.on || f.parent.pid != 123 {
		t.Errorf("a named parent: %+v, %v", f.parent, err)
	}
}

func TestBanner(t *testing.T) {
	const data = "DATA"
	for _, tc := range []struct {
		name, curl, kubectl string
		set                 func(*server.Server)
	}{
		{"as it is", "curl URL", "kubectl --server URL get namespaces", func(*server.Server) {}},
		{"TLS and a token", `curl --cacert DATA/tls.crt -H "Authorization: Bearer $TOKEN" URL`,
			`kubectl --server URL --certificate-authority DATA/tls.crt --token "$TOKEN" get namespaces`, func(s *server.Server) { s.TLS.On, s.Token = true, "sesame" }},
		{"TLS", "curl --cacert DATA/tls.crt URL", "kubectl --server URL --certificate-authority DATA/tls.crt --token none get namespaces", func(s *server.Server) { s.TLS.On = true }},
		{"a token that kubectl wouldn't send", `curl -H "Authorization: Bearer $TOKEN" URL`, "", func(s *server.Server) { s.Token = "sesame" }},
		{"a kubeconfig", "curl URL", "kubectl --kubeconfig " + data + "/../config get namespaces", func(s *server.Server) { s.Serving.KubeconfigFile = data + "/../config" }},
		{"a socket", "curl --unix-socket SOCKET http://localhost", "", func(s *server.Server) { s.Serving.Listen = "unix:" + data + "/../socket" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, dir := &server.Server{}, t.TempDir()
			tc.set(s)
			s.Serving.Listen = strings.Replace(cmp.Or(s.Serving.Listen, "127.0.0.1:0"), data+"/..", dir, 1)
			s.Serving.KubeconfigFile = strings.Replace(s.Serving.KubeconfigFile, data+"/..", dir, 1)
			s.Data.Ephemeral, s.Data.Dir = true, dir
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			names := strings.NewReplacer("URL", s.URL(), data+"/..", dir, data, s.Dir(), "SOCKET", dir+"/socket")
			text := banner(s)
			want := fmt.Sprintf("listening on %s\ndata in %s (ephemeral: not synced to disk, and removed at exit)\n", s.URL(), s.Dir())
			curl := names.Replace(tc.curl)
			command, address := curl[:strings.LastIndexByte(curl, ' ')], curl[strings.LastIndexByte(curl, ' ')+1:]
			want += fmt.Sprintf("  %s %s/api/v1/namespaces\n  %s -N '%s/api/v1/namespaces?watch=true'\n", command, address, command, address)
			if tc.kubectl != "" {
				want += "  " + names.Replace(tc.kubectl) + "\n"
			}
			if text != want {
				t.Errorf("the banner is\n%s\nwant\n%s", text, want)
			}
		})
	}
}

// command is the command, running.
type command struct {
	*exec.Cmd
	url    string
	stderr bytes.Buffer
	dir    string
}

// start starts the command with a directory of its own and waits for its URL.
func start(t *testing.T, role string, args ...string) *command {
	t.Helper()
	p := &command{dir: filepath.Join(t.TempDir(), "data")}
	file := filepath.Join(t.TempDir(), "url")
	p.Cmd = exec.Command(os.Args[0], append([]string{"--listen=127.0.0.1:0", "--url-file", file, "--data-dir", p.dir}, args...)...)
	p.Env = append(os.Environ(), asCommand+"="+role)
	p.Stderr = &p.stderr
	if p.Stdout == nil && role == "server" {
		p.Stdout = io.Discard
	}
	return p.begin(t, file)
}

func (p *command) begin(t *testing.T, file string) *command {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	until(t, func() bool {
		text, err := os.ReadFile(file)
		p.url = strings.TrimSpace(string(text))
		return err == nil
	})
	return p
}

// until asks every few milliseconds.
func until(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatal("it didn't happen")
		case <-tick.C:
		}
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "server", "--ephemeral")
			watch, err := http.Get(p.url + "/api/v1/namespaces?watch=true&allowWatchBookmarks=true")
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Body.Close()
			if err := p.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			events, err := io.ReadAll(watch.Body)
			if err != nil {
				t.Errorf("the watch's end was not clean: %v", err)
			}
			if lines := bytes.Split(bytes.TrimSpace(events), []byte("\n")); !bytes.Contains(lines[len(lines)-1], []byte(`"BOOKMARK"`)) {
				t.Errorf("there was no last bookmark: %s", events)
			}
			if err := p.Wait(); err != nil {
				t.Errorf("it exited with %v: %s", err, p.stderr.String())
			}
			if left, err := os.ReadDir(p.dir); err == nil && len(left) > 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}

// TestSecondSignal: with a request that doesn't end, the first signal waits and the second doesn't.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	p := start(t, "server")
	body, feed := io.Pipe()
	defer feed.Close()
	go func() {
		if res, err := http.Post(p.url+"/api/v1/namespaces", "application/json", body); err == nil {
			res.Body.Close()
		}
	}()
	io.WriteString(feed, "{")
	until(t, func() bool { return metricIs(p.url, `apiserver_current_inflight_requests{request_kind="mutating"} 1`) })
	p.Process.Signal(syscall.SIGTERM)
	until(t, func() bool {
		res, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusInternalServerError
	})
	p.Process.Signal(syscall.SIGTERM)
	var ended *exec.ExitError
	if err := p.Wait(); !errors.As(err, &ended) || ended.ExitCode() != exit.Forced {
		t.Errorf("it exited with %v, want code %d: %s", err, exit.Forced, p.stderr.String())
	}
}

func metricIs(url, line string) bool {
	res, err := http.Get(url + "/metrics")
	if err != nil {
		return false
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return bytes.Contains(text, []byte(line))
}

func TestExitWithParent(t *testing.T) {
	t.Parallel()
	p := &command{dir: filepath.Join(t.TempDir(), "data")}
	file := filepath.Join(t.TempDir(), "url")
	p.Cmd = exec.Command(os.Args[0], "--listen=127.0.0.1:0", "--ephemeral", "--exit-with-parent", "--url-file", file, "--data-dir", p.dir)
	p.Env = append(os.Environ(), asCommand+"=parent")
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.begin(t, file)
	buf := make([]byte, 1<<10)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(buf[:n]), "child ")
	digits, _, _ := strings.Cut(rest, "\n")
	child, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatalf("the parent said %q", buf[:n])
	}
	p.Process.Kill() // it can't tell its child
	// The pipe ends when the child, which has its other end, is gone.
	if _, err := io.ReadAll(out); err != nil {
		t.Error(err)
	}
	p.Wait()
	if _, err := os.Stat(file); err == nil {
		t.Errorf("process %d ended without closing the server", child)
	}
}

// TestExitWithAParentThatIsGone: the flag's process was never our parent.
func TestExitWithAParentThatIsGone(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "--listen=127.0.0.1:0", "--ephemeral", "--exit-with-parent=999999999", "--data-dir", t.TempDir())
	cmd.Env = append(os.Environ(), asCommand+"=server")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("it exited with %v: %s", err, out)
	}
}
