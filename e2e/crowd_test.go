package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCrowd has many more clients than the server has descriptors. It serves as many as it can and keeps what its
// store needs, tells the others to come back, and takes others when some leave.
func TestCrowd(t *testing.T) {
	t.Parallel()
	const descriptors, clients = 1024, 5000
	const logInterval = 30 * time.Second // of the server: it says once in so long that connections are refused
	for _, listen := range []string{"127.0.0.1:0", "unix"} {
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			if listen == "unix" {
				listen = "unix:" + t.TempDir() + "/s"
			}
			p := launch(t, run{args: []string{"--ephemeral", "--listen=" + listen}, descriptors: descriptors}).ready()
			p.define()
			if got := p.metric("process_max_fds "); got != descriptors {
				t.Fatalf("the server may open %v files, want %d", got, descriptors)
			}
			most := int(p.metric("apiserver_lite_connections_max "))
			if most < descriptors/2 || most > descriptors-64 {
				t.Fatalf("%d connections may be open with %d descriptors", most, descriptors)
			}

			c, begun := newCrowd(p), time.Now()
			c.come(clients)
			if taken := len(c.streams); taken < most*9/10 || taken > most || taken+c.refused != clients {
				t.Fatalf("%d of %d watches are served and %d refused; %d connections may be open", taken, clients, c.refused, most)
			}
			// The client's own connection is one of those that the server has taken.
			p.do(http.StatusCreated, "POST", widgets, widget("a", 1))
			for _, s := range c.streams {
				s.expect("ADDED", "a")
			}
			if open := p.metric("process_open_fds "); open > descriptors-50 {
				t.Errorf("%v of %d descriptors are used: too few are left for the store", open, descriptors)
			}
			// Others see how the server is.
			other := newClient(t, p.url)
			other.do(http.StatusOK, "GET", "/readyz", "")
			if refused := other.metric("apiserver_lite_connections_refused_total "); refused < float64(c.refused) {
				t.Errorf("%v refused connections are counted, and %d clients were refused", refused, c.refused)
			}
			// On a machine that does much else the clients come for longer than one interval.
			lines := 1 + int(time.Since(begun)/logInterval)
			if n := strings.Count(p.stderr.String(), "connections are refused"); n < 1 || n > lines {
				t.Errorf("the log says %d times that connections are refused, want 1 to %d times", n, lines)
			}

			half := len(c.streams) / 2
			for _, s := range c.streams[:half] {
				s.body.Close()
			}
			c.streams = c.streams[half:]
			eventually(t, "their places are free", func() bool {
				return other.metric("apiserver_lite_connections ") <= float64(most-half+1)
			})
			c.come(half / 2)
			p.do(http.StatusCreated, "POST", widgets, widget("b", 1))
			for _, s := range c.streams {
				for e, err := s.next(); e.Object.Metadata.Name != "b"; e, err = s.next() {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			p.stop()
		})
	}
}

// crowd is many clients, each with a connection of its own.
type crowd struct {
	p    *process
	http *http.Client

	mu      sync.Mutex // guards the following
	streams []*stream
	refused int
}

func newCrowd(p *process) *crowd {
	transport := p.client.http.Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	return &crowd{p: p, http: &http.Client{Transport: transport}}
}

// come has so many clients open a watch, once each.
func (c *crowd) come(clients int) {
	c.p.t.Helper()
	const atOnce = 100
	var all sync.WaitGroup
	for worker := range atOnce {
		all.Go(func() {
			for i := worker; i < clients; i += atOnce {
				if err := c.one(); err != nil {
					c.p.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if c.p.t.Failed() {
		c.p.t.FailNow()
	}
}

func (c *crowd) one() error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	c.p.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", c.p.base+widgets+"?watch=true", nil)
	if err != nil {
		return err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return err
	}
	c.p.t.Cleanup(func() { res.Body.Close() })
	c.mu.Lock()
	defer c.mu.Unlock()
	if res.StatusCode == http.StatusOK {
		c.streams = append(c.streams, &stream{c.p.t, res.Body, bufio.NewReader(res.Body)})
		return nil
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || !strings.Contains(string(body), `"kind":"Status"`) {
		return fmt.Errorf("a client too many got %s %v %s, %v", res.Status, res.Header, body, err)
	}
	c.refused++
	return nil
}
