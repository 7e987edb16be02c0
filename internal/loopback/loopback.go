// Package loopback gives tests addresses of this machine that stay theirs until they listen there, and while what listens there
// is started again.
package loopback

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"testing"
)

// Address returns a host and port at which nobody listens. On Linux the host is any of 127.0.0.0/8: connections to this machine,
// and servers that take any port, have theirs at 127.0.0.1, and so never take this one. Elsewhere it's 127.0.0.1, and
// somebody else may be faster.
func Address(t testing.TB) string {
	t.Helper()
	host := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if runtime.GOOS == "linux" {
		host = netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(host, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The ports that no system gives by itself: Linux begins at 32768, others at 49152.
const firstPort, lastPort = 20_000, 32_000

// portTries is how many ports may be taken in turn.
const portTries = 100

// Port returns a port of 127.0.0.1 at which nobody listens, and that no connection and no server that takes any port will have.
func Port(t testing.TB) string {
	t.Helper()
	var err error
	for range portTries {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort))
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal(err)
	return ""
}
