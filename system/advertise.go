package system

import (
	"net/netip"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Advertised returns where others reach a server that listens at an address. As kube-apiserver does, it takes the address of the
// interface with the default route in the place of one that others can't reach, if there is one. Without On it's what the server listens at.
func (o Options) Advertised(listens netip.AddrPort) netip.AddrPort {
	if !listens.IsValid() || !o.On {
		return listens
	}
	if o.Advertise.IsValid() {
		return netip.AddrPortFrom(o.Advertise, listens.Port())
	}
	ip, err := utilnet.ResolveBindAddress(listens.Addr().AsSlice())
	if err != nil {
		return listens
	}
	at, ok := netip.AddrFromSlice(ip)
	if !ok {
		return listens
	}
	return netip.AddrPortFrom(at.Unmap(), listens.Port())
}
