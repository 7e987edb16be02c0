package e2e

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// clusterMember is a process of a cluster, and how it's started again.
type clusterMember struct {
	*process
	dir, address string
}

// startMember starts a process in a directory of its own. It joins the given member, or begins a cluster.
func startMember(t *testing.T, join *clusterMember, args ...string) *clusterMember {
	t.Helper()
	m := &clusterMember{dir: filepath.Join(t.TempDir(), "data"), address: freeAddress(t)}
	if join != nil {
		args = append(args, "--join", join.address, "--join-token-file", filepath.Join(join.dir, "join-token"))
	}
	m.process = start(t, append(m.args(), args...)...)
	return m
}

func (m *clusterMember) args() []string {
	return []string{"--listen=127.0.0.1:0", "--data-dir", m.dir, "--cluster-listen", m.address}
}

// freeAddress returns an address of this machine that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestMembers has two processes share a store: what is written at one is read at the other.
func TestMembers(t *testing.T) {
	t.Parallel()
	one := startMember(t, nil)
	two := startMember(t, one)
	one.define()
	one.do(http.StatusCreated, "POST", widgets, widget("a", 1))
	two.do(http.StatusOK, "GET", widgets+"/a", "")
	two.do(http.StatusCreated, "POST", widgets, widget("b", 1))
	one.do(http.StatusOK, "GET", widgets+"/b", "")
	two.stop()
	one.stop()
}
