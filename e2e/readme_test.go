package e2e

import (
	"bufio"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write what is generated into docs/flags.md")

const readmePath = "../README.md"

func readReadme(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(readmePath)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// walkThrough runs blocks of the README's in a shell, as a newcomer would who pastes them.
type walkThrough struct {
	t      *testing.T
	blocks map[string]string
	url    string        // of the server as it runs now
	dir    string        // where the lines are pasted
	exited chan struct{} // closed when the server's command has ended
}

// blockPattern finds the marked blocks. Every block of shell lines must be marked.
var blockPattern = regexp.MustCompile("(?s)(?:<!-- walk-through: ([a-z ]+) -->\n)?```(sh|json lines)\n(.*?)```\n")

func newWalkThrough(t *testing.T) *walkThrough {
	t.Helper()
	w := &walkThrough{t: t, blocks: map[string]string{}, dir: t.TempDir()}
	for _, m := range blockPattern.FindAllStringSubmatch(readReadme(t), -1) {
		if m[1] == "" {
			t.Errorf("this block of the README is executed by no test:\n%s", m[3])
		}
		w.blocks[m[1]] = m[3]
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "testdata"), filepath.Join(w.dir, "testdata")); err != nil {
		t.Fatal(err)
	}
	return w
}

// take returns a block, which is then done with.
func (w *walkThrough) take(name string) string {
	w.t.Helper()
	block, ok := w.blocks[name]
	if !ok {
		w.t.Fatalf("the README has no block %q", name)
	}
	return block
}

// shell is a block's command. Only the server's address differs from what is in the README.
func (w *walkThrough) shell(name string) *exec.Cmd {
	w.t.Helper()
	lines := strings.ReplaceAll(w.take(name), "http://127.0.0.1:8080", w.url)
	cmd := exec.Command("bash", "-c", "set -o pipefail\n"+lines)
	cmd.Dir = w.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's job: signals reach all of it
	w.t.Cleanup(func() {
		if cmd.Process != nil {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	})
	return cmd
}

// paste runs a block to its end. No line may be answered with an error.
func (w *walkThrough) paste(name string) {
	w.t.Helper()
	output, err := w.shell(name).CombinedOutput()
	if err != nil || strings.Contains(string(output), `"status": "Failure"`) {
		w.t.Fatalf("%q: %v\n%s", name, err, output)
	}
}

// server runs the block that starts the server, in the repository as it is there, and waits until it's ready. Where it
// is built, listens and stores is what the environment says. The build may take as long as it takes; when it fails, or
// the server does, the shell ends.
func (w *walkThrough) server(data string, env ...string) *exec.Cmd {
	w.t.Helper()
	urlFile := filepath.Join(w.dir, "url")
	cmd := w.shell("start")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "BIN="+filepath.Join(w.dir, "bin"), "APISERVER_LITE_LISTEN=127.0.0.1:0",
		"APISERVER_LITE_DATA_DIR="+data, "APISERVER_LITE_URL_FILE="+urlFile)
	cmd.Env = append(cmd.Env, env...)
	log := &output{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.exited = make(chan struct{})
	go func(exited chan struct{}) {
		defer close(exited)
		cmd.Wait()
	}(w.exited)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the server's output:\n%s", log)
		}
	})
	for !exists(w.t, urlFile) {
		select {
		case <-w.exited:
			w.t.Fatalf("the README's command ended before the server was ready: %v", cmd.ProcessState)
		case <-time.After(10 * time.Millisecond):
		}
	}
	content, err := os.ReadFile(urlFile)
	if err != nil {
		w.t.Fatal(err)
	}
	w.url = strings.TrimSpace(string(content))
	return cmd
}

// interrupt is ctrl-C in the server's terminal. The shell ends as shells do then: not with 0.
func (w *walkThrough) interrupt(server *exec.Cmd) {
	w.t.Helper()
	if err := syscall.Kill(-server.Process.Pid, syscall.SIGINT); err != nil {
		w.t.Fatal(err)
	}
	<-w.exited
	eventually(w.t, "the server has ended", func() bool { return !exists(w.t, filepath.Join(w.dir, "url")) })
}

// watch runs a block that prints events, and returns when the watch is open.
func (w *walkThrough) watch(name string) (*exec.Cmd, *bufio.Reader) {
	w.t.Helper()
	cmd := w.shell(name)
	output, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	c := newClient(w.t, w.url)
	eventually(w.t, "the README's watch is open", func() bool {
		return c.metric(`apiserver_longrunning_requests{group="example.com",resource="widgets",`) == 1
	})
	return cmd, bufio.NewReader(output)
}

// expect compares what a watch prints with what the README says, which is shortened: its values must be there.
func (w *walkThrough) expect(lines *bufio.Reader, block string) {
	w.t.Helper()
	for want := range strings.Lines(w.take(block)) {
		got, err := lines.ReadString('\n')
		if err != nil {
			w.t.Fatalf("the watch ended with %v where the README says %s", err, want)
		}
		var g, e any
		if err := json.Unmarshal([]byte(want), &e); err != nil {
			w.t.Fatalf("the README's line %s: %v", want, err)
		}
		if err := json.Unmarshal([]byte(got), &g); err != nil || !includes(g, e) {
			w.t.Fatalf("the watch printed %s (%v)\nthe README says %s", got, err, want)
		}
	}
}

// includes tells whether everything that's in part is also in whole.
func includes(whole, part any) bool {
	fields, ok := part.(map[string]any)
	if !ok {
		return whole == part
	}
	w, _ := whole.(map[string]any)
	for name, value := range fields {
		if !includes(w[name], value) {
			return false
		}
	}
	return true
}

// TestReadmeWalkThrough executes the README's walk-through: `make run`, the curl lines, ctrl-C, a second start,
// and the watch that goes on where it was.
func TestReadmeWalkThrough(t *testing.T) {
	t.Parallel()
	w := newWalkThrough(t)
	data := filepath.Join(t.TempDir(), "data")
	server := w.server(data)
	w.paste("define")
	watch, lines := w.watch("watch")
	w.paste("write")
	w.expect(lines, "events")
	w.interrupt(server)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after ctrl-C the watch prints %q, %v", rest, err)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("the watch ended with %v, want a clean end", err)
	}

	// This time git refuses to read the clone, as it does if that belongs to another user.
	server = w.server(data, "GIT_TEST_ASSUME_DIFFERENT_OWNER=1")
	w.paste("write more")
	_, lines = w.watch("resume")
	w.expect(lines, "events after")
	// It's live again.
	newClient(t, w.url).do(http.StatusCreated, "POST", widgets, widget("b", 1))
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, `{"type":"ADDED"`) || !strings.Contains(line, `"name":"b"`) {
		t.Errorf("after the resumed events the watch prints %q, %v", line, err)
	}
	if answer, err := w.shell("refuse").CombinedOutput(); err != nil || !strings.Contains(string(answer), `"field": "spec.size"`) {
		t.Errorf("an object that its schema forbids is answered %v, %s", err, answer)
	}
	w.paste("apply")
	w.interrupt(server)
}

// TestReadmeCompletion executes the line that makes bash complete commands, and asks for some completions.
func TestReadmeCompletion(t *testing.T) {
	t.Parallel()
	w := newWalkThrough(t)
	if err := os.Symlink(binary(), filepath.Join(w.dir, "apiserver-lite")); err != nil {
		t.Fatal(err)
	}
	// The function is one of Debian's package bash-completion, which interactive shells have.
	const words = `_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
complete_line() { COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_WORDS=("$@") COMP_CWORD=$(($#-1)); __start_apiserver-lite 2>/dev/null; echo "${COMPREPLY[@]}"; }
complete_line apiserver-lite sna
complete_line apiserver-lite snapshot res
complete_line apiserver-lite get --sele
complete_line apiserver-lite --data-d
`
	cmd := exec.Command("bash", "-c", w.take("complete")+words)
	cmd.Env = append(os.Environ(), "PATH="+w.dir+":"+os.Getenv("PATH"))
	output, err := cmd.CombinedOutput()
	got := regexp.MustCompile(` +\([^\n]*|[ =]*\n`).ReplaceAllString(string(output), "\n") // without what a word is for
	if want := "snapshot\nrestore\n--selector\n--data-dir\n"; err != nil || got != want {
		t.Errorf("%v\n%q\nwant\n%q", err, output, want)
	}
}

// The tables of flags stand between these in docs/flags.md.
const (
	flagsPath  = "../docs/flags.md"
	flagsBegin = "<!-- flags: made from --help by `go test ./e2e -run TestFlagsPage -update` -->\n"
	flagsEnd   = "<!-- end of flags -->\n"
)

var (
	// groupPattern finds the title of a group of flags in --help, and the group's lines.
	groupPattern = regexp.MustCompile(`(?m)^([A-Z].*):\n((?: +--.*\n)+)`)
	// flagPattern takes a line of --help apart: the flag, its value, what it does, its default.
	flagPattern = regexp.MustCompile(`(?m)^ +(--[a-z0-9-]+)(?: ([a-zA-Z0-9]+)(?:\[=[^\]]*\])?)? {2,}(.*?)(?: \(default "?([^() ]*?)"?\))?$`)
)

// TestFlagsPage compares the page of flags with what --help says.
func TestFlagsPage(t *testing.T) {
	t.Parallel()
	output, err := exec.Command(binary(), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	help := string(output)
	var tables strings.Builder
	understood := 0
	for _, group := range groupPattern.FindAllStringSubmatch(help, -1) {
		tables.WriteString("\n## " + group[1] + "\n\n| flag | default | |\n|---|---|---|\n")
		for _, m := range flagPattern.FindAllStringSubmatch(group[2], -1) {
			name, value, text, standard := m[1], m[2], m[3], m[4]
			if value != "" {
				name += " " + strings.ToUpper(value)
			}
			if standard != "" {
				standard = "`" + standard + "`"
			}
			tables.WriteString("| `" + name + "` | " + standard + " | " + text + " |\n")
			understood++
		}
	}
	if n := strings.Count(help, "\n      --"); understood != n {
		t.Fatalf("--help has %d flags, and %d were understood:\n%s", n, understood, help)
	}
	content, err := os.ReadFile(flagsPath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), flagsBegin)
	have, after, closed := strings.Cut(rest, flagsEnd)
	if !found || !closed {
		t.Fatal("docs/flags.md has no place for the flags")
	}
	want := tables.String() + "\n"
	if have == want {
		return
	}
	if !*update {
		t.Fatalf("the tables of docs/flags.md aren't what --help says; run this test with -update")
	}
	if err := os.WriteFile(flagsPath, []byte(before+flagsBegin+want+flagsEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReadmeLeavesOut: what isn't there is refused, and the message names it: what it is, and how to get it or why there's none.
func TestReadmeLeavesOut(t *testing.T) {
	t.Parallel()
	const (
		pods      = "/api/v1/namespaces/default/pods"
		flag      = " is served, as data that nothing acts on, if the server is started with --builtin=all"
		noKubelet = "there is no kubelet: nothing runs on this server, so "
		pod       = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"nodeName":"a","containers":[{"name":"a","image":"a"}]}}`
	)
	type row struct{ method, path, body, names string }
	for builtin, rows := range map[string][]row{
		"core": {
			{"GET", widgets + "/a/scale", "", `widgets.example.com "a" not found`}, // its definition has none; kube-apiserver's words
			{"GET", pods, "", "pods" + flag},
			{"GET", pods + "/a/log", "", "pods" + flag},
			{"POST", pods, pod, "pods" + flag},
			{"POST", "/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"a"}}`, "deployments.apps" + flag},
			{"GET", "/api/v1/nodes/a/proxy", "", "nodes" + flag},
		},
		"all": {
			{"GET", pods + "/a/log", "", noKubelet + "log isn't served"},
			{"POST", pods + "/a/exec?command=ls", "", noKubelet + "exec isn't served"},
			{"POST", pods + "/a/attach", "", noKubelet + "attach isn't served"},
			{"POST", pods + "/a/portforward", "", noKubelet + "portforward isn't served"},
			{"GET", pods + "/a/proxy", "", noKubelet + "proxy isn't served"},
			{"GET", "/api/v1/namespaces/default/services/kubernetes/proxy", "", noKubelet + "proxy isn't served"},
			{"GET", "/api/v1/nodes/a/proxy", "", noKubelet + "proxy isn't served"},
		},
	} {
		t.Run(builtin, func(t *testing.T) {
			p := start(t, "--ephemeral", "--builtin="+builtin)
			p.define()
			p.do(http.StatusCreated, "POST", widgets, widget("a", 1))
			if builtin == "all" {
				p.do(http.StatusCreated, "POST", pods, pod)
				p.do(http.StatusCreated, "POST", "/api/v1/nodes", `{"metadata":{"name":"a"}}`)
			}
			for _, r := range rows {
				a := p.do(http.StatusNotFound, r.method, r.path, r.body)
				if o := a.object; o.Kind != "Status" || o.Reason != "NotFound" || !strings.Contains(o.Message, r.names) {
					t.Errorf("%s %s is refused with %q, which doesn't name %q", r.method, r.path, a.body, r.names)
				}
			}
			if o := p.do(http.StatusOK, "GET", widgets+"/a", "").object; o.Spec.Size != 1 {
				t.Errorf("something that was refused was done: %+v", o)
			}
			p.stop()
		})
	}
}
