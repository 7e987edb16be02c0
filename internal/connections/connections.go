// Package connections keeps the connections that one owner has dialled, so that none is left when the owner ends: net/http may
// open one for a request that has ended since, and hands it to nobody.
package connections

import (
	"errors"
	"net"
	"sync"
)

// ErrClosed is returned by Set.Dial after Refuse or Close.
var ErrClosed = errors.New("the server is shutting down")

// Set is the connections that are open, and the dials under way. Its zero value is empty. Its methods may be called concurrently.
type Set struct {
	dials sync.WaitGroup // Add is called under mu while refused is false

	mu      sync.Mutex // guards the following; a leaf
	refused bool
	open    map[*connection]struct{}
}

type connection struct {
	net.Conn
	in *Set
}

// Close closes the connection and takes it out of its Set.
func (c *connection) Close() error {
	c.in.mu.Lock()
	delete(c.in.open, c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

// Dial calls dial and keeps the connection that it returns until that is closed. An error is dial's, or ErrClosed.
func (s *Set) Dial(dial func() (net.Conn, error)) (net.Conn, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.dials.Done()
	raw, err := dial()
	if err != nil {
		return nil, err
	}
	made := &connection{raw, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*connection]struct{}{}
	}
	s.open[made] = struct{}{}
	return made, nil
}

func (s *Set) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused {
		return ErrClosed
	}
	s.dials.Add(1)
	return nil
}

// Len returns how many connections are open.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Refuse lets no further dial begin.
func (s *Set) Refuse() {
	s.mu.Lock()
	s.refused = true
	s.mu.Unlock()
}

// Close refuses further dials, waits for those under way, and closes the connections that are left. Whoever owns the Set makes
// sure that no request uses one any more.
func (s *Set) Close() {
	s.Refuse()
	s.dials.Wait()
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for one := range open {
		one.Conn.Close()
	}
}
