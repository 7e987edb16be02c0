package e2e

import (
	"net"
	"sync"
	"testing"
	"time"
)

// link leads connections on to one address. A test can cut it: connections then neither get through nor end, as when packets
// are lost.
type link struct {
	mu     sync.Mutex // guards all below
	target string     // "" while there is nobody: connections are refused
	cut    chan struct{}
	open   map[net.Conn]struct{}
}

func newLink(target string) *link { return &link{target: target, open: map[net.Conn]struct{}{}} }

// relay is a link with a port of its own, which leads there.
type relay struct {
	*link
	listener net.Listener
	done     sync.WaitGroup
}

// newRelay listens at a free port. It ends with the test.
func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &relay{link: newLink(target), listener: listener}
	l.done.Go(l.accept)
	t.Cleanup(func() {
		listener.Close()
		l.heal()
		l.drop()
		l.done.Wait()
	})
	return l
}

func (l *relay) address() string { return l.listener.Addr().String() }

// to says where connections go from now on.
func (l *link) to(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// split makes everything wait until heal.
func (l *link) split() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut == nil {
		l.cut = make(chan struct{})
	}
}

// heal ends a split. What waited goes on, except for connections that somebody gave up.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != nil {
		close(l.cut)
		l.cut = nil
	}
}

// drop breaks all connections.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.Close()
	}
}

// whole returns when the link isn't split.
func (l *link) whole() {
	for {
		l.mu.Lock()
		cut := l.cut
		l.mu.Unlock()
		if cut == nil {
			return
		}
		<-cut
	}
}

func (l *relay) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.done.Go(func() { l.join(from) })
	}
}

// join copies between a connection and one to the target until either ends.
func (l *link) join(from net.Conn) {
	l.keep(from)
	defer l.forget(from)
	l.whole()
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	to, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		return
	}
	l.keep(to)
	defer l.forget(to)
	back := make(chan struct{})
	go func() {
		defer close(back)
		l.copy(from, to)
	}()
	l.copy(to, from)
	<-back
}

func (l *link) keep(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
}

func (l *link) forget(c net.Conn) {
	c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// copy copies what comes, and holds it back while the link is split.
func (l *link) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.whole()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
