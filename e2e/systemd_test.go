package e2e

import (
	"net"
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
)

// TestSystemdIsTold: a unit of Type=notify learns that the server is ready, that it's well, and that it stops.
func TestSystemdIsTold(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--ephemeral"}, {"--ephemeral", "--tls"}, {"--ephemeral", "--listen=unix:" + filepath.Join(t.TempDir(), "s")}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "notify")
			socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { socket.Close() })
			next := func() string {
				buffer := make([]byte, 1<<10)
				socket.SetReadDeadline(time.Now().Add(patience))
				n, err := socket.Read(buffer)
				if err != nil {
					t.Fatal(err)
				}
				return string(buffer[:n])
			}
			p := launch(t, run{args: args, env: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=300000"}})
			for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
				if got := next(); got != want {
					t.Fatalf("systemd is told %q, want %q", got, want)
				}
			}
			p.signal(syscall.SIGTERM)
			got := next()
			for got == "WATCHDOG=1" { // what was on its way
				got = next()
			}
			if got != "STOPPING=1" {
				t.Errorf("at the end systemd is told %q", got)
			}
			if code := p.wait(patience); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// handed returns a socket as systemd hands it over.
func handed(t *testing.T, network, address string) *os.File {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); l.Close() })
	return f
}

// TestSocketActivation: the server takes the socket that systemd has opened, and judges it as one of its own.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	p := launch(t, run{args: []string{"--ephemeral", "--listen=systemd"}, handed: handed(t, "tcp", "127.0.0.1:0")}).ready()
	p.do(http.StatusOK, "GET", "/api/v1/namespaces", "")
	p.stop()
	all, private := filepath.Join(t.TempDir(), "all"), filepath.Join(t.TempDir(), "private")
	shared, own := handed(t, "unix", all), handed(t, "unix", private)
	for path, mode := range map[string]os.FileMode{all: 0o666, private: 0o600} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	p = launch(t, run{args: []string{"--ephemeral", "--listen=systemd"}, handed: own}).ready()
	if p.url != "unix:"+private {
		t.Errorf("its URL is %s", p.url)
	}
	p.stop()
	for name, test := range map[string]struct {
		handed *os.File
		want   string
	}{"none": {nil, "one socket"}, "one for others": {handed(t, "tcp", "0.0.0.0:0"), "--token-file"}, "a file for others": {shared, "SocketMode=0600"}} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, run{args: []string{"--ephemeral", "--listen=systemd"}, handed: test.handed})
			if code := p.wait(patience); code != 1 || !strings.Contains(p.stderr.String(), test.want) {
				t.Errorf("exit code %d, want 1 and %q", code, test.want)
			}
		})
	}
}

// maxExposure is how much of the system the unit may leave open, by systemd's own measure from 0 to 10.
const maxExposure = 2

// TestUnitIsHardened asks systemd, where it's there, what it thinks of the unit.
func TestUnitIsHardened(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd isn't here to judge the unit")
		return
	}
	output, err := exec.Command(analyze, "security", "--offline=true", "../examples/install/apiserver-lite.service").CombinedOutput()
	m := regexp.MustCompile(`exposure level for apiserver-lite\.service: ([0-9.]+)`).FindSubmatch(output)
	if err != nil || m == nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if exposure, err := strconv.ParseFloat(string(m[1]), 64); err != nil || exposure >= maxExposure {
		t.Errorf("the unit's exposure is %s, want less than %d\n%s", m[1], maxExposure, output)
	}
	for _, unit := range []string{"service", "socket"} {
		verified, err := exec.Command(analyze, "verify", "--man=no", "../examples/install/apiserver-lite."+unit).CombinedOutput()
		if text := string(verified); err != nil && !strings.Contains(text, "/usr/local/bin/apiserver-lite is not executable") {
			t.Errorf("of the %s systemd says %v\n%s", unit, err, text)
		}
	}
}
