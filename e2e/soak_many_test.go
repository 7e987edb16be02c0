//go:build soak

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// soakDropped opens and drops a thousand watches ten times.
func soakDropped(t *testing.T, s *soaked) {
	const watches = 1000
	open := func() {
		clients := openRaw(t, s, watches)
		eventually(t, "they are open", func() bool { return s.metric("apiserver_longrunning_requests{") >= watches })
		for _, c := range clients {
			c.conn.Close()
		}
		eventually(t, "they are gone", func() bool { return s.metric("apiserver_longrunning_requests{") == 0 })
	}
	open() // what a first time leaves stays
	goroutines, resident := s.metric("go_goroutines "), s.metric("process_resident_memory_bytes ")
	for range 10 {
		open()
	}
	eventually(t, "goroutines are back within a tenth", func() bool { return s.metric("go_goroutines ") <= 1.1*goroutines })
	eventually(t, "memory is back within a tenth", func() bool { return s.metric("process_resident_memory_bytes ") <= 1.1*resident })
	t.Logf("%.0f goroutines and %.1f MB before; %.0f and %.1f MB after", goroutines, resident/1e6, s.metric("go_goroutines "), s.metric("process_resident_memory_bytes ")/1e6)
}

// raw is a watch that costs this process little.
type raw struct {
	conn  net.Conn
	lines *bufio.Reader
}

// openRaw opens so many watches of what follows.
func openRaw(t *testing.T, s *soaked, n int) []raw {
	from := s.now().do(http.StatusOK, "GET", widgets+"?limit=1", "").object.rv(t)
	clients := make([]raw, n)
	var opening sync.WaitGroup
	const atOnce = 100
	for k := range atOnce {
		opening.Go(func() {
			for i := k; i < n; i += atOnce {
				var err error
				if clients[i], err = dialRaw(s.now().base, from); err != nil {
					t.Error(err)
				}
			}
		})
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return clients
}

// dialRaw opens a watch of what follows a version, and returns when the server has answered.
func dialRaw(base string, from int64) (raw, error) {
	address := strings.TrimPrefix(base, "http://")
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return raw{}, err
	}
	fmt.Fprintf(conn, "GET %s?watch=true&resourceVersion=%d HTTP/1.1\r\nHost: %s\r\n\r\n", widgets, from, address)
	c := raw{conn, bufio.NewReaderSize(conn, 512)}
	conn.SetReadDeadline(time.Now().Add(patience))
	line, err := c.lines.ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		err = fmt.Errorf("it answered %q", line)
	}
	if err != nil {
		conn.Close()
	}
	return c, err
}

// event reads to the end of the next event.
func (c raw) event() error {
	c.conn.SetReadDeadline(time.Now().Add(2 * patience))
	for {
		line, err := c.lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if strings.HasPrefix(string(line), `{"type":`) {
			return nil
		}
	}
}

// maxStorm is how many clients come back at once, as far as file descriptors allow it.
const maxStorm = 10_000

// soakStorm kills the server under as many watches as there can be, which all come back at once.
func soakStorm(t *testing.T, s *soaked) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	n := min(maxStorm, int(files.Cur)-500)
	clients := openRaw(t, s, n)
	resident := s.metric("process_resident_memory_bytes ")
	seen := s.do(http.StatusOK, "GET", widgets+"?limit=1", "").object.rv(t)
	s.restart(true)
	for _, c := range clients {
		c.conn.Close()
	}
	s.do(http.StatusCreated, "POST", widgets, widget("storm-missed", 1))

	begin := time.Now()
	clients = make([]raw, n)
	var back, served sync.WaitGroup
	const atOnce = 1000 // the race detector has a bound on goroutines
	for k := range atOnce {
		back.Go(func() {
			var err error
			for i := k; i < n && err == nil; i += atOnce {
				clients[i], err = dialRaw(s.base, seen)
			}
			for i := k; i < n && err == nil; i += atOnce {
				err = clients[i].event()
			}
			if err != nil {
				t.Errorf("of %d clients: %v", n, err)
			}
		})
	}
	var slowest time.Duration
	writing := make(chan struct{})
	served.Go(func() {
		for i := 0; ; i++ {
			sent := time.Now()
			if a, err := s.try("POST", widgets, widget(fmt.Sprint("storm-", i), 1)); err != nil || a.code != http.StatusCreated {
				t.Errorf("a write beside them is answered %d: %v %s", a.code, err, a.body)
			}
			slowest = max(slowest, time.Since(sent))
			select {
			case <-writing:
				return
			case <-time.NewTimer(20 * time.Millisecond).C:
			}
		}
	})
	back.Wait()
	took := time.Since(begin)
	close(writing)
	served.Wait()
	peak := s.peak(t)
	t.Logf("%d clients were all served again after %v; the slowest write took %v; resident were %.0f MB before, and at most %.0f MB", n, took, slowest, resident/1e6, peak/1e6)
	const bound = 30 * time.Second
	if took > bound {
		t.Errorf("it took %v until all were served again, more than %v", took, bound)
	}
	if peak > 2*resident {
		t.Errorf("%.0f MB are more than twice what they were before", peak/1e6)
	}
	for _, c := range clients {
		c.conn.Close()
	}
}

// peak is the most memory that the process has had, in bytes.
func (p *process) peak(t *testing.T) (bytes float64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &bytes); err != nil {
		t.Fatal("VmHWM: ", err)
	}
	return bytes * 1024
}
