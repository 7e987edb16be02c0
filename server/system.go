package server

import (
	"net"
	"net/netip"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/system"
)

// manager is the server's name in managedFields; "" for its own.
func (s *Server) manager() string {
	if s.System.On {
		return system.Manager
	}
	return ""
}

// priorities returns what says where built-in groups stand in discovery; nil: they're in the order of their names.
func (s *Server) priorities() func(schema.GroupVersion) (group, version int32, ok bool) {
	if s.System.On {
		return system.Priority
	}
	return nil
}

// duties are what the server makes and keeps as kube-apiserver does.
func (in *instance) duties(s *Server) []controllers.Duty {
	w := system.Wiring{
		Registry: in.registry, Address: s.System.Advertised(listenAddress(in.port.Addr())), ServiceIPs: s.API.ServiceIPs,
		ClientCAFile: s.Access.ClientCAFile, RequestHeader: s.Access.RequestHeader,
	}
	if !w.ServiceIPs.IsValid() {
		w.ServiceIPs = netip.MustParsePrefix(builtin.DefaultServiceIPs)
	}
	if in.replica != nil {
		w.Addresses = in.replica.Alive
	}
	return system.Duties(s.System, w)
}

// replicaName is the name of a replica in the election: where others reach it. One that listens on all addresses is reached
// at the one that kube-apiserver would take, that of the interface with the default route.
func replicaName(listens net.Addr, o system.Options) string {
	at := listenAddress(listens)
	switch {
	case !at.IsValid():
		return listens.String()
	case o.On:
		return o.Advertised(at).String()
	case at.Addr().IsUnspecified():
		if ip, err := utilnet.ChooseHostInterface(); err == nil {
			if own, ok := netip.AddrFromSlice(ip); ok {
				at = netip.AddrPortFrom(own.Unmap(), at.Port())
			}
		}
	}
	return at.String()
}

// ownRules returns who writes Kubernetes' own rules; nil if nobody does. kube-apiserver writes them also where they don't count.
func (in *instance) ownRules(s *Server) *access.RBAC {
	if !in.rights.may.RBAC() && s.System.On {
		return access.NewRBAC(in.registry)
	}
	return in.rights.may.Rules()
}

// listenAddress returns where the server listens, zero for a unix socket.
func listenAddress(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}
