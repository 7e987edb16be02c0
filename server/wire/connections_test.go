package wire

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// dialled is a listener whose connections the test makes.
type dialled struct {
	conns chan net.Conn
	err   error // what Accept returns instead, if set
}

func (d *dialled) Accept() (net.Conn, error) {
	if d.err != nil {
		return nil, d.err
	}
	conn, ok := <-d.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (d *dialled) Close() error   { close(d.conns); return nil }
func (d *dialled) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection of a client with an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 1} }

// dial has somebody at the address connect, and returns the connection as the server accepts it.
func (d *dialled) dial(t *testing.T, l *listener, address string) *connection {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	d.conns <- from{ours, address}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*connection)
}

func newDialled(most int) (*dialled, *listener, *strings.Builder) {
	var log strings.Builder
	d := &dialled{conns: make(chan net.Conn, 1)}
	return d, newListener(d, most, false, slog.New(slog.NewTextHandler(&log, nil))), &log
}

// TestConnectionsPerAddress: one address leaves a quarter to others, except on this machine, where all share one.
func TestConnectionsPerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, _ := newDialled(8)
		for i, step := range []struct {
			address string
			refused bool
		}{
			{"192.0.2.1", false}, {"192.0.2.1", false}, {"192.0.2.1", false}, {"192.0.2.1", false}, {"192.0.2.1", false}, {"192.0.2.1", false},
			{"192.0.2.1", true}, {"192.0.2.2", false}, {"192.0.2.1", true}, {"192.0.2.2", false}, {"192.0.2.3", true},
		} {
			if c := d.dial(t, l, step.address); c.lobby != step.refused {
				t.Errorf("connection %d, from %s: refused is %v, want %v", i, step.address, c.lobby, step.refused)
			}
		}
		d, l, _ = newDialled(8)
		for i := range 9 {
			if c := d.dial(t, l, "::1"); c.lobby != (i == 8) {
				t.Errorf("connection %d from this machine: refused is %v", i, c.lobby)
			}
		}
		d, l, _ = newDialled(8)
		for i := range 7 {
			if c := d.dial(t, l, fmt.Sprintf("2001:db8::%x", i)); c.lobby != (i == 6) {
				t.Errorf("connection %d from one network: refused is %v", i, c.lobby)
			}
		}
		synctest.Wait()
		time.Sleep(lobbyTime + seatTime) // nobody stays in the lobby
	})
}

// TestSurplusOfOneAddress: whatever one address has waiting, another one is accepted while places are free for it, with no
// time gone by.
func TestSurplusOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, _ := newDialled(8)
		for range 6 + lobbySeats {
			d.dial(t, l, "192.0.2.1")
		}
		start := time.Now()
		go func() {
			for range 4096 { // what waits in the kernel
				ours, theirs := net.Pipe()
				defer theirs.Close()
				d.conns <- from{ours, "192.0.2.1"}
			}
			ours, theirs := net.Pipe()
			defer theirs.Close()
			d.conns <- from{ours, "192.0.2.2"}
		}()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if c := conn.(*connection); c.lobby || c.address.Addr().String() != "192.0.2.2" || time.Since(start) != 0 {
			t.Errorf("after %v %v is accepted, in the lobby: %v", time.Since(start), c.address, c.lobby)
		}
		synctest.Wait()
		time.Sleep(lobbyTime + seatTime) // nobody stays in the lobby
	})
}

// TestLobby: a connection in the lobby must go, its seat is free a moment later, and when all are taken the next
// connection waits for a place or a seat.
func TestLobby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, log := newDialled(1)
		first := d.dial(t, l, "127.0.0.1")
		var guests []*connection
		for range lobbySeats {
			guests = append(guests, d.dial(t, l, "127.0.0.1"))
		}
		start := time.Now()
		guests[0].Close()
		guests[0].Close() // gives nothing back twice
		if c := d.dial(t, l, "127.0.0.1"); !c.lobby || time.Since(start) != seatTime {
			t.Errorf("the next one has a seat: %v, after %v, want %v", c.lobby, time.Since(start), seatTime)
		}
		time.AfterFunc(seatTime, func() { first.Close() })
		if c := d.dial(t, l, "127.0.0.1"); c.lobby || time.Since(start) != 2*seatTime {
			t.Errorf("the one that waits gets the place: %v, after %v, want %v", !c.lobby, time.Since(start), 2*seatTime)
		}
		time.Sleep(lobbyTime - time.Since(start))
		synctest.Wait()
		if _, err := guests[1].Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a guest is still there after %v: %v", lobbyTime, err)
		}
		time.Sleep(lobbyTime)
		synctest.Wait()
		if l.now() != 1 || l.lobby != 0 {
			t.Errorf("%d have a place and %d a seat, want 1 and 0", l.now(), l.lobby)
		}
		if n := strings.Count(log.String(), "connections are refused"); n != 1 || l.refused.Load() != lobbySeats+1 {
			t.Errorf("%d were refused, and the log says so %d times:\n%s", l.refused.Load(), n, log)
		}
	})
}

// TestLobbyCloses: Close ends an Accept that waits for a place.
func TestLobbyCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, _ := newDialled(1)
		for range 1 + lobbySeats {
			d.dial(t, l, "127.0.0.1")
		}
		ours, theirs := net.Pipe()
		d.conns <- ours
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept returned %v", err)
			}
		})
		synctest.Wait()
		l.Close()
		waiting.Wait()
		if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection that waited is open: %v", err)
		}
		time.Sleep(lobbyTime + seatTime)
	})
}

// TestAcceptFails: without descriptors the log says so, not more than now and then, and net/http, which gets the
// error, tries again later.
func TestAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, log := newDialled(1)
		d.err = &net.OpError{Op: "accept", Err: syscall.EMFILE}
		for range 100 {
			var temporary interface{ Temporary() bool }
			if _, err := l.Accept(); !errors.As(err, &temporary) || !temporary.Temporary() {
				t.Fatalf("Accept returned %v: net/http would give up", err)
			}
		}
		if n := strings.Count(log.String(), "too many open files"); n != 1 {
			t.Errorf("the log says so %d times", n)
		}
		time.Sleep(fullLogInterval)
		l.Accept()
		if n := strings.Count(log.String(), "too many open files"); n != 2 {
			t.Errorf("after %v the log has said so %d times", fullLogInterval, n)
		}
	})
}

func TestLeftForConnections(t *testing.T) {
	for _, tc := range []struct {
		descriptors uint64
		want        int
	}{{1 << 63, 1<<30 - reservedDescriptors}, {1024, 1024 - reservedDescriptors}, {256, 64}, {64, 16}, {0, 1}} {
		if got := leftForConnections(tc.descriptors); got != tc.want {
			t.Errorf("%d descriptors leave %d, want %d", tc.descriptors, got, tc.want)
		}
	}
}
