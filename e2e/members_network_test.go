package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// network is what the members of a store reach each other by. Clients reach them in another way.
type network interface {
	// place says how a member is started, and where it listens for clients and for members.
	place(name string) (how run, listen, address string)
	// split cuts members off, from all others and from each other. What they send is held back.
	split(cut []*replica)
	// heal ends all splits.
	heal()
}

// proxies are a network on any machine: each member reaches the others by a proxy of its own, so that it's known who talks
// to whom.
type proxies struct {
	t       *testing.T
	serving sync.WaitGroup // the proxies' requests

	mu    sync.Mutex // guards all below
	links map[way]*link
	cut   map[string]bool // members that are cut off, by the address for members
}

// way leads from a member to another one, by their addresses. Either may send on it once it's open.
type way struct{ from, to string }

func newProxies(t *testing.T) *proxies {
	p := &proxies{t: t, links: map[way]*link{}, cut: map[string]bool{}}
	t.Cleanup(func() { // the members are gone
		p.heal()
		p.serving.Wait()
	})
	return p
}

func (p *proxies) place(string) (how run, listen, address string) {
	// A proxy is never asked for 127.0.0.1 and localhost. In capitals it's another name of the same.
	address = "LOCALHOST:" + loopback.Port(p.t)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.serving.Add(1)
		defer p.serving.Done()
		if r.Method != http.MethodConnect {
			http.Error(w, "members talk TLS", http.StatusMethodNotAllowed)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return // the member is gone
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n") // join finds out if nobody reads it
		p.link(way{address, r.Host}).join(conn)
	}))
	p.t.Cleanup(proxy.Close)
	return run{env: []string{"HTTPS_PROXY=" + proxy.URL}}, "127.0.0.1:0", address
}

// link returns the link of a way.
func (p *proxies) link(w way) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[w]
	if l == nil {
		l = newLink(w.to)
		p.links[w] = l
		p.setLocked(w, l)
	}
	return l
}

// setLocked splits or heals a link, with mu held.
func (p *proxies) setLocked(w way, l *link) {
	if p.cut[w.from] || p.cut[w.to] {
		l.split()
	} else {
		l.heal()
	}
}

func (p *proxies) split(cut []*replica) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range cut {
		p.cut[r.peer] = true
	}
	for w, l := range p.links {
		p.setLocked(w, l)
	}
}

func (p *proxies) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.cut)
	for w, l := range p.links {
		p.setLocked(w, l)
	}
}
