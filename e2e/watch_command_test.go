package e2e

import (
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestWatchCommand: `apiserver-lite watch` prints each event once, as the server's data goes through a restart, and lists anew
// when the server comes back with other data. It ends with 0 when it's interrupted.
func TestWatchCommand(t *testing.T) {
	data := t.TempDir() + "/data"
	s := start(t, "--data-dir", data)
	command := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(binary(), append(args, "--server", s.url)...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	apply := func(names ...string) {
		t.Helper()
		for _, name := range names {
			cmd := exec.Command(binary(), "apply", "-f", "-", "--server", s.url)
			cmd.Stdin = strings.NewReader(`{apiVersion: v1, kind: Namespace, metadata: {name: ` + name + `, labels: {team: blue}}}`)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("apply %s: %v\n%s", name, err, out)
			}
		}
	}
	apply("a", "b")

	w := exec.Command(binary(), "watch", "namespaces", "-l", "team=blue", "-o", "line", "--server", s.url)
	stdout, stderr := &output{}, &output{}
	w.Stdout, w.Stderr = stdout, stderr
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Wait()
	}()
	defer func() {
		w.Process.Kill()
		<-done
	}()
	printed := func() (events []string) {
		for line := range strings.Lines(stdout.String()) {
			if fields := strings.Fields(line); len(fields) == 4 {
				events = append(events, fields[1]+" "+fields[2])
			}
		}
		return events
	}
	expect := func(want ...string) {
		t.Helper()
		eventually(t, strings.Join(want, ", "), func() bool { return strings.Join(printed(), ", ") == strings.Join(want, ", ") })
	}
	all := []string{"ADDED a", "ADDED b"}
	expect(all...)

	listen := strings.TrimPrefix(s.url, "http://")
	if u, err := url.Parse(s.url); err != nil || u.Host != listen {
		t.Fatalf("the server's URL is %q", s.url)
	}
	s.stop()
	s = start(t, "--data-dir", data, "--listen", listen)
	apply("c")
	all = append(all, "ADDED c")
	expect(all...)

	s.stop()
	s = start(t, "--data-dir", data+"-other", "--listen", listen)
	apply("d")
	eventually(t, "what the other server has, and what it hasn't", func() bool {
		events := strings.Join(printed()[len(all):], ", ")
		return strings.Contains(events, "DELETED a") && strings.Contains(events, "DELETED b") && strings.Contains(events, "DELETED c") && strings.Contains(events, "ADDED d")
	})
	if !strings.Contains(stderr.String(), "listing anew") {
		t.Errorf("standard error says nothing of it: %s", stderr)
	}
	command("delete", "namespaces", "d")
	eventually(t, "DELETED d", func() bool { return strings.Contains(strings.Join(printed(), ", "), "DELETED d") })

	if err := w.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-done
	if code := w.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %d: %s", code, stderr)
	}
}
