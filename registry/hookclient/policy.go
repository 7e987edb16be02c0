package hookclient

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// Policy says at which addresses webhooks may be called. The zero Policy means public addresses only: no
// loopback, private, link-local, multicast, shared (CGNAT), documentation or reserved ones, and not those at
// which clouds keep a machine's metadata. It's checked for each connection, with the address that is dialled,
// so it holds whatever a name resolves to.
type Policy struct {
	// Allowed are allowed in addition to public addresses. An IPv4-mapped IPv6 address is the IPv4 address,
	// so prefixes of those are written in their IPv4 form. Zones (fe80::1%eth0) don't count.
	Allowed []netip.Prefix
}

// allows tells whether a webhook may be called at an address.
func (p Policy) allows(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	contain := func(prefix netip.Prefix) bool { return prefix.Contains(a) }
	return slices.ContainsFunc(p.Allowed, contain) || a.Is4() && !slices.ContainsFunc(special4, contain) ||
		a.Is6() && global6.Contains(a) && !slices.ContainsFunc(special6, contain)
}

// Control is a net.Dialer's: it's called with the address of each connection before that is made. Its error is ErrRefused if
// the address isn't allowed.
func (p Policy) Control(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q isn't an IP address and a port", address)
	}
	if !p.allows(a.Addr()) {
		return &refusedError{a.Addr()}
	}
	return nil
}

// ErrRefused is in the errors that say that an address isn't allowed.
var ErrRefused = errors.New("the address isn't allowed")

// refusedError is returned when a webhook's address isn't allowed.
type refusedError struct{ addr netip.Addr }

func (e *refusedError) Error() string { return refusal(e.addr.String()) }

func (e *refusedError) Is(target error) bool { return target == ErrRefused }

func refusal(address string) string {
	return fmt.Sprintf("address %s isn't allowed: webhooks are called at public addresses, and at those that this server is configured to allow", address)
}

// What of IPv4 isn't public: IANA's special-purpose registry, and multicast.
var special4 = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // "this network"; 0.0.0.0 reaches the machine itself
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // shared (CGNAT); metadata at Alibaba
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("168.63.129.16/32"), // the host of a virtual machine at Azure
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local; metadata at 169.254.169.254
	netip.MustParsePrefix("172.16.0.0/12"),    // private
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments; metadata at Oracle
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays, deprecated
	netip.MustParsePrefix("192.168.0.0/16"),   // private
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("224.0.0.0/4"),      // multicast
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, broadcast
}

// Of IPv6, only what is in global6 and not in special6 is public. Loopback, unspecified, unique local (with
// the metadata at fd00:ec2::254), link-local, multicast, IPv4-compatible and NAT64 are outside of global6.
var (
	global6  = netip.MustParsePrefix("2000::/3")
	special6 = []netip.Prefix{
		netip.MustParsePrefix("2001::/23"),     // protocol assignments; Teredo, which carries IPv4 addresses
		netip.MustParsePrefix("2001:db8::/32"), // documentation
		netip.MustParsePrefix("2002::/16"),     // 6to4, which carries IPv4 addresses
		netip.MustParsePrefix("3fff::/20"),     // documentation
	}
)
