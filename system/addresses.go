//lint:file-ignore SA1019 kube-apiserver still writes Endpoints

package system

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/network"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// ownName is the name of the Service that leads to this server, of its Endpoints, and of the ServiceCIDR.
const ownName = "kubernetes"

// httpsPort is the port of default/kubernetes.
const httpsPort = 443

// service makes default/kubernetes if it's missing, and lets its Endpoints lead to all servers. A Service that is there stays as
// it is.
func (m *maker) service(ctx context.Context, served *registry.Catalog, _ string) (storage.Revision, error) {
	made, err := m.makeService(ctx, served.Kind("v1", "Service"))
	if err != nil || m.NoEndpoints || !m.Address.IsValid() {
		return made, err
	}
	wrote, err := m.writeEndpoints(ctx, served.Kind("v1", "Endpoints"))
	if err != nil {
		return 0, err
	}
	return max(made, wrote), network.WriteEndpoints(ctx, m.Registry, m.addresses())
}

func (m *maker) makeService(ctx context.Context, e *registry.Endpoint) (storage.Revision, error) {
	if e == nil || cached[corev1.Service](e, metav1.NamespaceDefault, ownName) != nil {
		return 0, nil
	}
	policy, kind := corev1.IPFamilyPolicySingleStack, corev1.ServiceTypeClusterIP
	if m.NodePort > 0 {
		kind = corev1.ServiceTypeNodePort
	}
	return create(ctx, e, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: ownName, Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		Spec: corev1.ServiceSpec{
			Type: kind, ClusterIP: m.ServiceIPs.Masked().Addr().Next().String(), IPFamilyPolicy: &policy, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name: "https", Protocol: corev1.ProtocolTCP, Port: httpsPort, TargetPort: intstr.FromInt32(int32(m.Address.Port())), NodePort: m.NodePort,
			}},
		},
	}, "")
}

// writeEndpoints makes the Endpoints of default/kubernetes lead to all servers and no others.
func (m *maker) writeEndpoints(ctx context.Context, e *registry.Endpoint) (storage.Revision, error) {
	if e == nil {
		return 0, nil
	}
	want := subsets(m.addresses())
	have := cached[corev1.Endpoints](e, metav1.NamespaceDefault, ownName)
	if have == nil {
		return create(ctx, e, &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: ownName, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
			Subsets:    want,
		}, "")
	}
	if have.Labels[discoveryv1.LabelSkipMirror] == "true" && equality.Semantic.DeepEqual(have.Subsets, want) {
		return 0, nil
	}
	return amend(ctx, e, have, "", func(o *corev1.Endpoints) {
		metav1.SetMetaDataLabel(&o.ObjectMeta, discoveryv1.LabelSkipMirror, "true")
		o.Subsets = want
	})
}

// subsets groups addresses by their ports.
func subsets(at []netip.AddrPort) (all []corev1.EndpointSubset) {
	at = slices.Clone(at)
	slices.SortFunc(at, func(a, b netip.AddrPort) int {
		if a.Port() != b.Port() {
			return int(a.Port()) - int(b.Port())
		}
		return a.Addr().Compare(b.Addr())
	})
	for _, a := range slices.Compact(at) {
		if n := len(all); n == 0 || all[n-1].Ports[0].Port != int32(a.Port()) {
			all = append(all, corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "https", Port: int32(a.Port()), Protocol: corev1.ProtocolTCP}}})
		}
		last := &all[len(all)-1]
		last.Addresses = append(last.Addresses, corev1.EndpointAddress{IP: a.Addr().String()})
	}
	return all
}

// cidrManager is who says of a ServiceCIDR that it's ready.
const cidrManager = "kubernetes-service-cidr-controller"

// serviceCIDR makes the ServiceCIDR of --service-cluster-ip-range if it's missing, and says that it's ready. One of other networks
// stays as it is.
func (m *maker) serviceCIDR(ctx context.Context, served *registry.Catalog, _ string) (made storage.Revision, err error) {
	e := served.Kind("networking.k8s.io/v1", "ServiceCIDR")
	if e == nil {
		return 0, nil
	}
	cidrs := []string{m.ServiceIPs.Masked().String()}
	have := cached[networkingv1.ServiceCIDR](e, "", ownName)
	if have == nil {
		have = &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: ownName}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
		if made, err = create(ctx, e, have, ""); err != nil {
			return 0, err
		}
		there, err := reads.Of(e).Current(ctx, "", ownName)
		if err != nil {
			return made, err
		}
		have.UID = there.UID
	}
	ready := meta.FindStatusCondition(have.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	if have.DeletionTimestamp != nil || !slices.Equal(have.Spec.CIDRs, cidrs) || ready != nil && ready.Status != metav1.ConditionUnknown {
		return made, nil
	}
	condition := map[string]any{
		"type": networkingv1.ServiceCIDRConditionReady, "status": string(metav1.ConditionTrue), "message": "Kubernetes default Service CIDR is ready",
		"lastTransitionTime": m.Registry.Now().ToUnstructured(),
	}
	rev, err := writes.Of(e).Report(ctx, "", ownName, have.UID, cidrManager, map[string]any{"conditions": []any{condition}})
	return max(made, rev), err
}

var (
	servicesPrefix  = storage.PrefixOf("", "services")
	addressesPrefix = storage.PrefixOf("networking.k8s.io", "ipaddresses")
)

// addressManager is who manages the IPAddresses of Services, by their label.
const addressManager = "ipallocator.k8s.io"

// addressesOf returns the addresses whose IPAddress may have to be made or removed after a change.
func addressesOf(e *cacher.Event) (all []string) {
	switch e.Prefix {
	case addressesPrefix:
		return []string{e.Object().Name()}
	case servicesPrefix:
		for _, o := range []*kube.Object{e.Prev, e.Cur} {
			if s := decoded[corev1.Service](o); s != nil {
				all = append(all, s.Spec.ClusterIPs...)
			}
		}
	}
	return all
}

// ipAddress makes the IPAddress of an address that a Service has, and removes the one of an address that none has any more.
func (m *maker) ipAddress(ctx context.Context, served *registry.Catalog, key string) (storage.Revision, error) {
	services, addresses := served.Kind("v1", "Service"), served.Kind("networking.k8s.io/v1", "IPAddress")
	ip, err := netip.ParseAddr(key)
	if services == nil || addresses == nil || err != nil { // err: "None", or no address of ours
		return 0, nil
	}
	want := ipAddressOf(services, ip)
	have := cached[networkingv1.IPAddress](addresses, "", ip.String())
	ours := have != nil && have.Labels[networkingv1.LabelManagedBy] == addressManager
	switch {
	case have == nil && want == nil:
		return 0, nil
	case have == nil:
		return create(ctx, addresses, want, "")
	case want == nil && !ours:
		return 0, nil
	case want == nil:
		return remove(ctx, addresses, have)
	case ours && have.Labels[networkingv1.LabelIPAddressFamily] == want.Labels[networkingv1.LabelIPAddressFamily] && equality.Semantic.DeepEqual(have.Spec, want.Spec):
		return 0, nil
	}
	// One that says something else is made anew: what it refers to can't be changed.
	if _, err := remove(ctx, addresses, have); err != nil {
		return 0, err
	}
	return create(ctx, addresses, want, "")
}

// ipAddressOf returns the IPAddress of an address that a Service has; nil if none has it.
func ipAddressOf(services *registry.Endpoint, ip netip.Addr) *networkingv1.IPAddress {
	found, _ := services.Cache().Snapshot().Where("spec.clusterIP", ip.String(), storage.Range{Prefix: string(services.Prefix())})
	for o := range found {
		family := string(corev1.IPv4Protocol)
		if ip.Is6() {
			family = string(corev1.IPv6Protocol)
		}
		return &networkingv1.IPAddress{
			ObjectMeta: metav1.ObjectMeta{
				Name:   ip.String(),
				Labels: map[string]string{networkingv1.LabelIPAddressFamily: family, networkingv1.LabelManagedBy: addressManager},
			},
			Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: o.Namespace(), Name: o.Name()}},
		}
	}
	return nil
}
