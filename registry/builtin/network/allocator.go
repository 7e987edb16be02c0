package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Allocator gives Services what only one of them may have: a ClusterIP, and ports that all nodes have. What is taken is read
// from the Services themselves, so nothing has to be kept in step with them, and a restart changes nothing. What a write is
// about to store, and what the cache doesn't show yet, is held here.
type Allocator struct {
	registry  *registry.Registry
	ips       netip.Prefix
	nodePorts utilnet.PortRange

	mu sync.Mutex // guards held; held while the cache is looked at, so that two writes don't find the same free
	// held is what writes have taken that the cache may not show yet: until it's at the revision, which is 0 while it isn't known
	// whether the write was stored. The registry ends that.
	held map[one]storage.Revision
}

// one is an address or a port that one Service has.
type one struct {
	ip   netip.Addr
	port int32
}

// NewAllocator makes one for a range of addresses, of which the first is that of default/kubernetes, and for ports of nodes.
func NewAllocator(r *registry.Registry, ips netip.Prefix, nodePorts utilnet.PortRange) *Allocator {
	return &Allocator{registry: r, ips: ips.Masked(), nodePorts: nodePorts}
}

// portColumns are where Services have ports of nodes. An index of each finds who has one, where there are many Services.
var portColumns = []kube.Lookup{{Column: kube.MustColumn("spec.ports[*].nodePort")}, {Column: kube.MustColumn("spec.healthCheckNodePort")}}

// services returns the cache of Services, and the prefix of their keys; nil if the program has a type of its own in their
// place.
func (a *Allocator) services() (*cacher.Snapshot, storage.Range) {
	e := a.registry.Catalog().Kind("v1", "Service")
	if e == nil {
		return nil, storage.Range{}
	}
	return e.Cache().Snapshot(), storage.Range{Prefix: string(e.Prefix())}
}

// dryRunPort is the port after which those of dry runs come, as in Kubernetes.
const dryRunPort = 32768

// claim is one write's: what it has taken, and what is taken by others.
type claim struct {
	*Allocator
	snapshot *cacher.Snapshot
	keys     storage.Range
	ports    map[int32]bool // that Services have; nil until asked for
	own      []one          // what the write has taken
	dryRun   bool           // which takes nothing, and gets ports as Kubernetes makes them up
	errs     field.ErrorList
}

// claim gives a service what it needs and doesn't have yet, and takes what the service asks for.
func (a *Allocator) claim(s, old *corev1.Service, dryRun bool) (registry.Settle, error) {
	if old == nil {
		old = &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}} // which has nothing
	}
	if !hasIP(s) {
		s.Spec.InternalTrafficPolicy = nil // which the rules have looked at, and nobody shows
	}
	if e := a.registry.Catalog().Kind("v1", "Service"); e != nil && hasNodePorts(s) {
		e.Cache().Demand(portColumns) // before the snapshot is taken
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	snapshot, keys := a.services()
	if snapshot == nil {
		return nil, nil
	}
	a.forget(snapshot)
	c := &claim{Allocator: a, snapshot: snapshot, keys: keys, dryRun: dryRun}
	err := c.claimIP(s, old)
	if err == nil {
		err = c.claimPorts(s, old)
	}
	switch {
	case err != nil:
		return nil, err
	case len(c.errs) > 0:
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, s.Name, c.errs)
	case dryRun || len(c.own) == 0:
		return nil, nil
	}
	if a.held == nil {
		a.held = map[one]storage.Revision{}
	}
	for _, o := range c.own {
		a.held[o] = 0
	}
	return func(shown storage.Revision) { a.settle(c.own, shown) }, nil
}

// forget drops what the cache shows by now.
func (a *Allocator) forget(s *cacher.Snapshot) {
	maps.DeleteFunc(a.held, func(_ one, shown storage.Revision) bool { return shown > 0 && shown <= s.Revision })
}

// settle ends a claim.
func (a *Allocator) settle(own []one, shown storage.Revision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range own {
		if shown > 0 {
			a.held[o] = shown
		} else {
			delete(a.held, o)
		}
	}
}

// hasIP and hasNodePorts tell what a type of service has.
func hasIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// hasHealthPort tells whether nodes have a port that tells whether they have pods of the service.
func hasHealthPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// claimIP takes the address that a service asks for, or gives it one.
func (c *claim) claimIP(s, old *corev1.Service) error {
	if !hasIP(s) || s.Spec.ClusterIP == corev1.ClusterIPNone || hasIP(old) && old.Spec.ClusterIP == s.Spec.ClusterIP && s.Spec.ClusterIP != "" {
		return nil
	}
	if s.Spec.ClusterIP == "" && c.dryRun {
		ip := c.ips.Addr().String() // as in Kubernetes: the address of the range itself
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ip, []string{ip}
		return nil
	}
	if s.Spec.ClusterIP == "" {
		ip, ok := c.freeIP()
		if !ok {
			return apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: range is full"))
		}
		c.own = append(c.own, one{ip: ip})
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ip.String(), []string{ip.String()}
		return nil
	}
	ip, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		return nil // the rules have refused it
	}
	problem := ""
	switch outside := !c.gives(ip); { // a dry run doesn't ask who has it, as in Kubernetes
	case outside && c.dryRun:
		problem = fmt.Sprintf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", ip, c.ips)
	case outside:
		problem = "the provided network does not match the current range"
	case !c.dryRun && c.ipTaken(ip):
		problem = "provided IP is already allocated"
	}
	if problem != "" {
		c.errs = append(c.errs, field.Invalid(field.NewPath("spec", "clusterIPs"), s.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %s", ip, problem)))
	}
	c.own = append(c.own, one{ip: ip})
	return nil
}

// ipTaken tells whether a Service has an address, or will.
func (c *claim) ipTaken(ip netip.Addr) bool {
	if _, soon := c.held[one{ip: ip}]; soon {
		return true
	}
	found, _ := c.snapshot.Where("spec.clusterIP", ip.String(), c.keys)
	for range found {
		return true
	}
	return false
}

// freeIP returns a free address, somewhere in the range; false if there's none.
func (c *claim) freeIP() (netip.Addr, bool) {
	const share, least, most = 16, 16, 256 // as in Kubernetes: a sixteenth of the network, between these
	size := c.size()
	static := max(least, min((size+2)/share, most))
	for n := range fromAbove(size, static) {
		if ip := c.at(1 + n); ip != c.first() && c.ips.Contains(ip) && !c.ipTaken(ip) {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// fromAbove returns the numbers below size: from a random one on those that are at least static, and then the others. People choose what they
// want to have by number from the low ones, so it's mostly free.
func fromAbove(size, static int) iter.Seq[int] {
	if static >= size {
		static = 0
	}
	return func(yield func(int) bool) {
		for _, part := range []struct{ from, size int }{{static, size - static}, {0, static}} {
			for i, start := 0, rand.IntN(max(1, part.size)); i < part.size; i++ {
				if !yield(part.from + (start+i)%part.size) {
					return
				}
			}
		}
	}
}

// size is how many addresses can be given out: without the first, which stands for the network, and the last.
func (a *Allocator) size() int {
	const most = 16 // bits that are looked at
	return max(1, 1<<min(most, a.ips.Addr().BitLen()-a.ips.Bits())-2)
}

// gives tells whether an address can be given out: all of the range but the one of the network itself and, of IPv4, the one that reaches all.
func (a *Allocator) gives(ip netip.Addr) bool {
	if !a.ips.Contains(ip) || ip == a.ips.Addr() {
		return false
	}
	next := ip.Next()
	return ip.Is6() || next.IsValid() && a.ips.Contains(next)
}

// at returns the nth address of the range.
func (a *Allocator) at(n int) netip.Addr {
	bytes := a.ips.Addr().AsSlice()
	for i := len(bytes) - 1; n > 0 && i >= 0; i-- {
		n += int(bytes[i])
		bytes[i] = byte(n)
		n >>= 8
	}
	ip, _ := netip.AddrFromSlice(bytes)
	return ip
}

// first is the address of default/kubernetes.
func (a *Allocator) first() netip.Addr { return a.at(1) }

// claimPorts takes the ports of nodes that a service asks for, and gives it those that it lacks. Ports of a
// service that differ in their protocol alone share one.
func (c *claim) claimPorts(s, old *corev1.Service) error {
	if !hasNodePorts(s) {
		return nil
	}
	had := map[int32]bool{}
	if hasNodePorts(old) {
		for _, p := range old.Spec.Ports {
			had[p.NodePort] = true
		}
		had[old.Spec.HealthCheckNodePort] = true
	}
	chosen := map[int32]int32{} // node ports, by the ports that lead to them
	missing := []*int32{}
	take := func(i int, p *corev1.ServicePort) {
		c.takePort(p.NodePort, had, field.NewPath("spec", "ports").Index(i).Child("nodePort"))
		had[p.NodePort], chosen[p.Port] = true, p.NodePort
	}
	give := func(p *corev1.ServicePort) {
		if p.NodePort = chosen[p.Port]; p.NodePort == 0 && givesPorts(s) {
			chosen[p.Port] = c.freePort(had)
			p.NodePort = chosen[p.Port]
			missing = append(missing, &p.NodePort)
		}
	}
	var later []*corev1.ServicePort // which get what nobody asks for; in a dry run each is made up from those before it
	for i := range s.Spec.Ports {
		switch p := &s.Spec.Ports[i]; {
		case p.NodePort != 0:
			take(i, p)
		case c.dryRun && requestedPort(s, p.Port) == 0:
			give(p)
		default:
			later = append(later, p)
		}
	}
	for _, p := range later {
		if givesPorts(s) {
			give(p)
		}
	}
	if at := &s.Spec.HealthCheckNodePort; hasHealthPort(s) {
		if *at == 0 {
			*at = c.freePort(had)
			missing = append(missing, at)
		} else {
			c.takePort(*at, had, field.NewPath("spec", "healthCheckNodePort"))
		}
	}
	for _, port := range missing {
		if *port == 0 {
			return apierrors.NewInternalError(errors.New("failed to allocate a nodePort: range is full"))
		}
	}
	return nil
}

// givesPorts tells whether a service gets ports of nodes that it doesn't ask for.
func givesPorts(s *corev1.Service) bool {
	allocates := s.Spec.AllocateLoadBalancerNodePorts
	return s.Spec.Type == corev1.ServiceTypeNodePort || isBalanced(s) && (allocates == nil || *allocates)
}

// requestedPort returns the port of nodes that a service asks for in front of a port of its own; 0 for none.
func requestedPort(s *corev1.Service, port int32) int32 {
	for _, p := range s.Spec.Ports {
		if p.Port == port && p.NodePort != 0 {
			return p.NodePort
		}
	}
	return 0
}

// madeUpPort is the port that a dry run makes up after others.
func madeUpPort(others []int32) int32 {
	if len(others) == 0 {
		return dryRunPort + 1
	}
	return max(0, slices.Max(others)) + 1
}

// takePort takes a port that a service asks for, and hasn't had.
func (c *claim) takePort(port int32, had map[int32]bool, at *field.Path) {
	switch {
	case had[port]:
		return
	case !c.dryRun && !c.nodePorts.Contains(int(port)):
		c.errs = append(c.errs, field.Invalid(at, port, fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %v", c.nodePorts)))
	case c.portTaken(port):
		c.errs = append(c.errs, field.Invalid(at, port, "provided port is already allocated"))
	}
	c.own = append(c.own, one{port: port})
}

// freePort takes a free port, and notes it in had; 0 if there's none.
func (c *claim) freePort(had map[int32]bool) int32 {
	if c.dryRun {
		var taken []int32
		for _, o := range c.own {
			if o.port != 0 {
				taken = append(taken, o.port)
			}
		}
		port := madeUpPort(taken)
		c.own = append(c.own, one{port: port})
		had[port] = true
		return port
	}
	const share, least, most = 32, 16, 128 // as in Kubernetes
	for n := range fromAbove(c.nodePorts.Size, max(least, min(c.nodePorts.Size/share, most))) {
		if port := int32(c.nodePorts.Base + n); !had[port] && !c.portTaken(port) {
			c.own = append(c.own, one{port: port})
			had[port] = true
			return port
		}
	}
	return 0
}

// portTaken tells whether a Service has a port of nodes, or will.
func (c *claim) portTaken(port int32) bool {
	if _, soon := c.held[one{port: port}]; soon {
		return true
	}
	if taken, ok := c.portIndexed(port); ok {
		return taken
	}
	if c.ports == nil {
		c.ports = map[int32]bool{}
		for _, kind := range []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer} {
			found, _ := c.snapshot.Where("spec.type", string(kind), c.keys)
			for o := range found {
				c.notePorts(o)
			}
		}
	}
	return c.ports[port]
}

// portIndexed is portTaken by the indexes of Services, if there are such.
func (c *claim) portIndexed(port int32) (taken, ok bool) {
	for _, l := range portColumns {
		found, ok := c.snapshot.Having(l.Column, strconv.Itoa(int(port)), c.keys)
		if !ok {
			return false, false
		}
		for o := range found {
			switch corev1.ServiceType(o.Field("spec.type")) {
			case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
				return true, true
			}
		}
	}
	return false, true
}

// notePorts notes the ports of nodes that a Service has. One that can't be read has none.
func (c *claim) notePorts(o *kube.Object) {
	var s corev1.Service
	if json.Unmarshal(o.Raw(), &s) != nil {
		return
	}
	c.ports[s.Spec.HealthCheckNodePort] = true
	for _, p := range s.Spec.Ports {
		c.ports[p.NodePort] = true
	}
}
