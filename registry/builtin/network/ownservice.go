package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// The Service by which pods reach the server, and its endpoints.

// ownName is the name of the Service that leads to this server, and of its EndpointSlice. Of several EndpointSlices it's the
// name of the first one.
const ownName = "kubernetes"

// ownManager marks further EndpointSlices of default/kubernetes as the server's own. Nobody else's are removed.
const ownManager = "apiserver-lite"

// MakeOwnService makes default/kubernetes, which leads to where the server listens; zero if that isn't an address. It may have changed
// since the last start: then the Service and its EndpointSlice are changed. Of a shared store one server calls WriteEndpoints.
func (a *Allocator) MakeOwnService(ctx context.Context, listens netip.AddrPort, shared bool) error {
	r := a.registry
	meta := metav1.ObjectMeta{Name: ownName, Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"}}
	ports := []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(int32(max(1, listens.Port())))}}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: a.first().String(), Ports: ports}}
	err := makeOwn(ctx, r.Catalog().Kind("v1", "Service"), service, func(s *corev1.Service) { s.Spec.Ports = ports })
	if err != nil || shared || !listens.IsValid() {
		return err
	}
	return WriteEndpoints(ctx, r, []netip.AddrPort{listens})
}

// WriteEndpoints writes the EndpointSlices of default/kubernetes, so that they lead to all addresses, and to no others. An
// EndpointSlice has one list of ports for all of its addresses. So there is one for each port and family of addresses:
// "kubernetes" has those that share the port of the first address, and each other one is named after its own.
//
// It's for the set All, and for caches that have what the last call has written. Only one server may call it at a time. The
// error names the EndpointSlice that can't be written or removed; what was written before it stays.
func WriteEndpoints(ctx context.Context, r *registry.Registry, at []netip.AddrPort) error {
	e := r.Catalog().Kind("discovery.k8s.io/v1", "EndpointSlice")
	if e == nil { // the program has a type of its own in its place
		return nil
	}
	written := map[string]bool{}
	// The first one is written last, and only then others go: an address that moves from one to another is always in one.
	for _, slice := range slices.Backward(endpointSlices(at)) {
		written[slice.Name] = true
		err := makeOwn(ctx, e, slice, func(s *discoveryv1.EndpointSlice) {
			s.AddressType, s.Endpoints, s.Ports = slice.AddressType, slice.Endpoints, slice.Ports
		})
		if err != nil {
			return fmt.Errorf("write the EndpointSlice %q of default/%s: %w", slice.Name, ownName, err)
		}
	}
	return removeEndpoints(ctx, e, written)
}

// endpointSlices returns the EndpointSlices that lead to the addresses, the one named ownName first.
func endpointSlices(at []netip.AddrPort) (all []*discoveryv1.EndpointSlice) {
	type group struct {
		kind discoveryv1.AddressType
		port int32
	}
	var groups []group
	members := map[group][]netip.Addr{}
	for _, a := range at {
		g := group{discoveryv1.AddressTypeIPv4, int32(a.Port())}
		if a.Addr().Is6() {
			g.kind = discoveryv1.AddressTypeIPv6
		}
		if members[g] == nil {
			groups = append(groups, g)
		}
		members[g] = append(members[g], a.Addr())
	}
	name, protocol, ready := "https", corev1.ProtocolTCP, true
	for i, g := range groups {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: ownName, Labels: map[string]string{discoveryv1.LabelServiceName: ownName}},
			AddressType: g.kind,
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &g.port}},
		}
		if i > 0 {
			slice.Name = fmt.Sprintf("%s-%s-%d", ownName, strings.ToLower(string(g.kind)), g.port)
			slice.Labels[discoveryv1.LabelManagedBy] = ownManager
		}
		slices.SortFunc(members[g], netip.Addr.Compare) // it isn't written again only because another server comes first
		for _, a := range slices.Compact(members[g]) {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{a.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			})
		}
		all = append(all, slice)
	}
	return all
}

// removeEndpoints removes those EndpointSlices of the server's own that weren't written now.
func removeEndpoints(ctx context.Context, e *registry.Endpoint, written map[string]bool) error {
	others, err := e.Prefix().Key(metav1.NamespaceDefault, ownName+"-")
	if err != nil {
		return err
	}
	for o := range e.Cache().Snapshot().All(others) {
		var slice discoveryv1.EndpointSlice
		if written[o.Name()] || json.Unmarshal(o.Raw(), &slice) != nil || slice.Labels[discoveryv1.LabelManagedBy] != ownManager {
			continue
		}
		_, _, err := writes.Of(e).Remove(ctx, writes.Removal{Namespace: metav1.NamespaceDefault, Name: o.Name(), UID: slice.UID})
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("remove the EndpointSlice %q of default/%s: %w", o.Name(), ownName, err)
		}
	}
	return nil
}

// makeOwn makes an object in the namespace default, or lets again change the one that is there. Another replica
// may make it at the same time.
func makeOwn[T any, P registry.Pointer[T]](ctx context.Context, e *registry.Endpoint, obj P, again func(obj *T)) error {
	if e == nil { // the program has a type of its own in its place
		return nil
	}
	obj.GetObjectMeta().SetNamespace(metav1.NamespaceDefault)
	name := obj.GetObjectMeta().GetName()
	there, err := reads.Of(e).Current(ctx, metav1.NamespaceDefault, name)
	if err == nil {
		_, err = writes.AmendAs[T, P](ctx, e, metav1.NamespaceDefault, name, there.UID, again)
		return err
	}
	if !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	_, err = writes.MakeAs(ctx, e, obj, "")
	if errors.Is(err, storage.ErrExists) {
		return makeOwn(ctx, e, obj, again)
	}
	return err
}
