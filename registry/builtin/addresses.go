package builtin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// addresses gives Services their ClusterIPs. What is taken is read from the Services themselves, so nothing has to be kept
// in step with them.
type addresses struct {
	registry *registry.Registry
	ips      netip.Prefix

	mu    sync.Mutex               // guards given
	given map[netip.Addr]time.Time // addresses that a Service may be about to be stored with
}

// giveTimeout is how long an address that was given out counts as taken although no Service has it: longer than a write
// takes.
const giveTimeout = time.Minute

// services returns the endpoint of Services; nil before they're registered.
func (a *addresses) services() *registry.Endpoint { return a.registry.Catalog().Kind("v1", "Service") }

// taken returns the addresses that Services have.
func (a *addresses) taken() map[netip.Addr]bool {
	taken := map[netip.Addr]bool{}
	e := a.services()
	if e == nil {
		return taken
	}
	for o := range e.Cache().Snapshot().All(string(e.Prefix())) {
		if ip, err := netip.ParseAddr(o.Field("spec.clusterIP")); err == nil {
			taken[ip] = true
		}
	}
	return taken
}

// next returns a free address, somewhere in the range; false if there's none.
func (a *addresses) next() (netip.Addr, bool) {
	taken := a.taken()
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for ip, at := range a.given {
		if taken[ip] || now.Sub(at) > giveTimeout {
			delete(a.given, ip)
		}
	}
	size := a.size()
	for i, start := 0, rand.IntN(size); i < size; i++ {
		ip := a.at(1 + (start+i)%size)
		if _, soon := a.given[ip]; !soon && !taken[ip] && a.ips.Contains(ip) {
			if a.given == nil {
				a.given = map[netip.Addr]time.Time{}
			}
			a.given[ip] = now
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// size is how many addresses can be given out: without the first, which stands for the network, and the last.
func (a *addresses) size() int {
	const most = 16 // bits that are looked at
	return max(1, 1<<min(most, a.ips.Addr().BitLen()-a.ips.Bits())-2)
}

// at returns the nth address of the range.
func (a *addresses) at(n int) netip.Addr {
	bytes := a.ips.Addr().AsSlice()
	for i := len(bytes) - 1; n > 0 && i >= 0; i-- {
		n += int(bytes[i])
		bytes[i] = byte(n)
		n >>= 8
	}
	ip, _ := netip.AddrFromSlice(bytes)
	return ip
}

// own is the address of default/kubernetes.
func (a *addresses) own() netip.Addr { return a.at(1) }

// check refuses an address that is outside of the range or taken.
func (a *addresses) check(s *corev1.Service) field.ErrorList {
	at := field.NewPath("spec", "clusterIPs").Index(0)
	if a == nil || s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	ip, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		return nil // said elsewhere
	}
	if !a.ips.Contains(ip) {
		return field.ErrorList{field.Invalid(at, s.Spec.ClusterIP, fmt.Sprintf("failed to allocate IP %s: the provided IP is not in the valid range %s", ip, a.ips))}
	}
	if a.taken()[ip] {
		return field.ErrorList{field.Invalid(at, s.Spec.ClusterIP, fmt.Sprintf("failed to allocate IP %s: provided IP is already allocated", ip))}
	}
	return nil
}

// prepareService gives a service an address, unless it has one or wants none, and takes it away from one that leads
// elsewhere by a name.
func (o Options) prepareService(s, old *corev1.Service, _ string) {
	spec := &s.Spec
	if spec.Type == corev1.ServiceTypeExternalName {
		if old != nil && old.Spec.Type != corev1.ServiceTypeExternalName && spec.ClusterIP == old.Spec.ClusterIP {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		return
	}
	if old != nil && old.Spec.Type != corev1.ServiceTypeExternalName && spec.ClusterIP == "" { // an update that says nothing
		spec.ClusterIP, spec.ClusterIPs = old.Spec.ClusterIP, old.Spec.ClusterIPs
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	if spec.ClusterIP == "" && o.addresses != nil {
		if ip, ok := o.addresses.next(); ok {
			spec.ClusterIP = ip.String()
		}
	}
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	orPointTo(&spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack)
	if len(spec.IPFamilies) == 0 {
		family := corev1.IPv4Protocol
		if o.addresses != nil && o.addresses.ips.Addr().Is6() {
			family = corev1.IPv6Protocol
		}
		spec.IPFamilies = []corev1.IPFamily{family}
	}
}

// ownName is the name of the Service and of the EndpointSlice that lead to this server.
const ownName = "kubernetes"

// makeOwnService makes default/kubernetes. Where the server listens may have changed since the last start: then the
// EndpointSlice is made anew.
func (o Options) makeOwnService(ctx context.Context, r *registry.Registry) error {
	labels := map[string]string{"component": "apiserver", "provider": "kubernetes"}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.ServiceSpec{
			ClusterIP: o.addresses.own().String(),
			Ports:     []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(int32(max(1, o.Address.Port())))}},
		},
	}
	if err := makeOwn(ctx, r.Catalog().Kind("v1", "Service"), service); err != nil || !o.Address.IsValid() {
		return err
	}
	name, protocol, port, ready := "https", corev1.ProtocolTCP, int32(o.Address.Port()), true
	kind := discoveryv1.AddressTypeIPv4
	if o.Address.Addr().Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: ownName}},
		AddressType: kind,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{o.Address.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	}
	slices := r.Catalog().Kind("discovery.k8s.io/v1", "EndpointSlice")
	if _, _, err := slices.Remove(ctx, registry.Removal{Namespace: metav1.NamespaceDefault, Name: ownName}); err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return makeOwn(ctx, slices, slice)
}

// makeOwn makes an object in the namespace default, unless it's there.
func makeOwn(ctx context.Context, e *registry.Endpoint, obj registry.Typed) error {
	if e == nil { // the program has a type of its own in its place
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	_, err = e.Make(ctx, registry.Made{Namespace: metav1.NamespaceDefault, Name: ownName, Labels: obj.GetObjectMeta().GetLabels(), Content: content})
	if errors.Is(err, storage.ErrExists) {
		return nil
	}
	return err
}
