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
// and the network between them breaks, too.
func TestSoakReplicas(t *testing.T) {
	if os.Getuid() != 0 {
		m := newMembers(t, 3)
		soakReplicas(t, m.run, m.faults)
		return
	}
	n := newNetwork(t)
	m := &membersOf{replicas: replicas{t: t, forgets: true}, place: n.place}
	m.join(3)
	m.all[0].process.define()
	m.awaitVoters(3)
	soakReplicas(t, m.run, func(length time.Duration) []fault {
		return append(m.faults(length), fault{"a member is cut off", func(*clients) { n.split(m.any(), rand.N(length)) }},
			fault{"all are cut off from each other", func(*clients) { n.splitAll(rand.N(length)) }})
	})
}

// network is a network for each of several processes, and a bridge between them.
type network struct {
	t      *testing.T
	id     string
	bridge string
	ends   map[string]string // by the name of the replica: the bridge's end of its cable
}

func newNetwork(t *testing.T) *network {
	id := fmt.Sprintf("%05x", rand.Uint32N(1<<20))
	n := &network{t: t, id: id, bridge: "lite" + id, ends: map[string]string{}}
	n.ip("link", "add", "name", n.bridge, "type", "bridge")
	t.Cleanup(func() { n.ip("link", "del", n.bridge) })
	n.ip("link", "set", n.bridge, "up")
	return n
}

// ip configures the network.
func (n *network) ip(args ...string) {
	n.t.Helper()
	if output, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// place makes a network for a member, which clients reach by a socket in a directory of its own.
func (n *network) place(name string) (r run, listen, address string) {
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

// split takes a member's cable out for a while.
func (n *network) split(r *replica, length time.Duration) {
	n.ip("link", "set", n.ends[r.name], "down")
	time.Sleep(length)
	n.ip("link", "set", n.ends[r.name], "up")
}

// splitAll takes all cables out for a while.
func (n *network) splitAll(length time.Duration) {
	for _, end := range n.ends {
		n.ip("link", "set", end, "down")
	}
	time.Sleep(length)
	for _, end := range n.ends {
		n.ip("link", "set", end, "up")
	}
}
