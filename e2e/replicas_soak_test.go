//go:build soak

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// faultTime is how long a fault of a soak lasts at most: longer than the lease of the one that acts.
const faultTime = 15 * time.Second

// soakReplicas runs rounds of random faults, until half of the soak is over.
func soakReplicas(t *testing.T, run func(round int, faults []fault), faults func(time.Duration) []fault) {
	for end, round := time.Now().Add(soak(t)/2), 0; time.Now().Before(end) && !t.Failed(); round++ {
		some := faults(faultTime)
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		run(round, some)
	}
}

// TestSoakReplicas is TestMembersModel with longer faults, again and again. As root the members have networks of their own,
// so that packets are lost.
func TestSoakReplicas(t *testing.T) {
	var between network = newProxies(t)
	if os.Getuid() == 0 {
		between = newCables(t)
	}
	m := newMembers(t, between, 3)
	soakReplicas(t, m.run, m.faults)
}

// cables are a network of the system's own: a name space for each member, and a bridge between them.
type cables struct {
	t      *testing.T
	id     string
	bridge string
	ends   map[string]string // by the name of the replica: the bridge's end of its cable
}

func newCables(t *testing.T) *cables {
	id := fmt.Sprintf("%05x", rand.Uint32N(1<<20))
	n := &cables{t: t, id: id, bridge: "lite" + id, ends: map[string]string{}}
	n.ip("link", "add", "name", n.bridge, "type", "bridge")
	t.Cleanup(func() { n.ip("link", "del", n.bridge) })
	n.ip("link", "set", n.bridge, "up")
	return n
}

// ip configures the network.
func (n *cables) ip(args ...string) {
	n.t.Helper()
	if output, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// place makes a name space for a member, which clients reach by a socket in a directory of its own.
func (n *cables) place(name string) (r run, listen, address string) {
	i := len(n.ends) + 1
	space, end := fmt.Sprintf("lite%s-%d", n.id, i), fmt.Sprintf("lite%s.%d", n.id, i)
	n.ends[name] = end
	n.ip("netns", "add", space)
	n.t.Cleanup(func() { n.ip("netns", "del", space) })
	n.ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
	n.ip("link", "set", end, "master", n.bridge, "up")
	address = fmt.Sprintf("10.213.0.%d", i)
	n.ip("-n", space, "addr", "add", address+"/24", "dev", "eth0")
	n.ip("-n", space, "link", "set", "eth0", "up")
	n.ip("-n", space, "link", "set", "lo", "up")
	return run{space: space}, "unix:" + filepath.Join(n.t.TempDir(), "socket"), address + ":2380"
}

// split takes members' cables out.
func (n *cables) split(cut []*replica) {
	for _, r := range cut {
		n.ip("link", "set", n.ends[r.name], "down")
	}
}

// heal puts all cables in again.
func (n *cables) heal() {
	for _, end := range n.ends {
		n.ip("link", "set", end, "up")
	}
}
