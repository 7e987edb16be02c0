package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// unread is a watch command whose output nobody reads, unless the test does.
type unread struct {
	t      *testing.T
	server *process
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	size   int      // of what is written next, so that each write changes something
	acked  []string // the versions of the object that the server has answered with
}

const unreadMap = "/api/v1/namespaces/default/configmaps/a"

// write changes the object that is watched.
func (u *unread) write() {
	u.t.Helper()
	u.size++
	body := fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"a":%q}}`, strings.Repeat("x", 100<<10+u.size))
	u.acked = append(u.acked, u.server.do(http.StatusOK, "PUT", unreadMap, body).object.Metadata.ResourceVersion)
}

// fill changes the object until the server gives the command up, which reads nothing more because its output isn't read.
func (u *unread) fill() {
	u.t.Helper()
	// What the kernel may keep between server and command, twice: a command that reads on has all of that, and isn't given up.
	const most = 200
	n := 0
	eventually(u.t, "the server ends the watch whose client takes nothing", func() bool {
		if n++; n <= most {
			u.write()
		}
		return u.server.metric(`apiserver_longrunning_requests{`) == 0
	})
}

// TestWatchCommandUnread: the command waits for whoever reads its output and keeps nothing meanwhile, so that the server gives it
// up at some time. When the output is read again it goes on, and nothing is lost. A signal doesn't end the wait for the reader, and
// the second one ends the process.
func TestWatchCommandUnread(t *testing.T) {
	t.Parallel()
	s := start(t, "--ephemeral", "--watch-write-timeout=1s")
	first := s.do(http.StatusCreated, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	u := &unread{t: t, server: s, cmd: exec.Command(binary(), "watch", "configmaps", "a", "-o", "json", "--server", s.url), lines: bufio.NewScanner(read)}
	u.lines.Buffer(nil, 1<<20)
	u.acked = []string{first.object.Metadata.ResourceVersion}
	stderr := &output{}
	u.cmd.Stdout, u.cmd.Stderr = write, stderr
	err = u.cmd.Start()
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.cmd.Wait()
	}()
	defer func() {
		u.cmd.Process.Kill()
		<-ended
	}()
	eventually(t, "the watch is open", func() bool { return s.metric(`apiserver_longrunning_requests{`) == 1 })
	u.fill()
	for i, version := range u.acked {
		if !u.lines.Scan() {
			t.Fatalf("the output ends after %d of %d events: %v\n%s", i, len(u.acked), u.lines.Err(), stderr)
		}
		if line := u.lines.Text(); !strings.Contains(line, `"resourceVersion":"`+version+`"`) {
			t.Fatalf("event %d of %d isn't that of version %s: %.300s", i+1, len(u.acked), version, line)
		}
	}
	eventually(t, "the watch goes on", func() bool { return s.metric(`apiserver_longrunning_requests{`) == 1 })

	u.fill()
	eventually(t, "the process ends with the second signal", func() bool {
		u.cmd.Process.Signal(syscall.SIGINT) // those that come before the first one is noticed are part of it
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if state := u.cmd.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() || state.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v, not by the signal: %s", u.cmd.ProcessState, stderr)
	}
}
