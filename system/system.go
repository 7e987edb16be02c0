package system

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Manager is the name of kube-apiserver in managedFields.
const Manager = "kube-apiserver"

// Options are kube-apiserver's flags about what it makes for itself.
type Options struct {
	// On makes all that there is to make. Otherwise nothing is made.
	On bool
	// Advertise is the address for default/kubernetes and the Lease. Defaults to what the server listens at or, where others
	// can't reach that, to the address of the interface with the default route.
	Advertise netip.Addr
	// NoEndpoints leaves the Endpoints and EndpointSlices of default/kubernetes to others.
	NoEndpoints bool
	// NodePort makes default/kubernetes a Service of the type NodePort with this port; 0 for a ClusterIP alone.
	NodePort int32
}

// Wiring is what else the duties go by.
type Wiring struct {
	Registry *registry.Registry
	// Address is where others reach this server.
	Address netip.AddrPort
	// Addresses returns where all servers over the store are reached, at least this one. Nil: Address alone.
	Addresses func() []netip.AddrPort
	// ServiceIPs is where Services get their addresses from.
	ServiceIPs netip.Prefix
	// ClientCAFile and RequestHeader say how aggregated servers find out who asks.
	ClientCAFile  string
	RequestHeader access.RequestHeader
}

// The intervals at which kube-apiserver looks again.
const (
	endpointsInterval  = 10 * time.Second
	serviceCIDRs       = 10 * time.Second
	leaseInterval      = 10 * time.Second
	namespacesInterval = time.Minute
	flowInterval       = time.Minute
	// authenticationInterval is how often the files of authorities are read again.
	authenticationInterval = time.Minute
	// trackingInterval is how often kube-apiserver makes the ConfigMap about old tokens, if it's missing.
	trackingInterval = 30 * time.Minute
	leaseSweep       = time.Hour
)

// Duties returns what is to be done. It's nil unless the options are on.
func Duties(o Options, w Wiring) []controllers.Duty {
	if !o.On {
		return nil
	}
	m := &maker{Options: o, Wiring: w, identity: newIdentity()}
	one := []string{""}
	all := []controllers.Duty{
		{Name: "Namespace", Keys: systemNamespaces, Every: namespacesInterval, Do: m.namespace},
		{Name: "PriorityClass", Keys: []string{nodeCritical, clusterCritical}, Do: m.priorityClass},
		{Name: "Service", Keys: one, Every: endpointsInterval, Do: m.service},
		{Name: "ServiceCIDR", Keys: one, Every: serviceCIDRs, Do: m.serviceCIDR},
		{Name: "IPAddress", After: addressesOf, Do: m.ipAddress},
		{Name: "APIService", Keys: builtinServices(), After: apiServicesOf, Do: m.apiService},
		{Name: "FlowSchema", Keys: flowKeys(), Every: flowInterval, Do: m.flow},
		{Name: "FlowSchema/status", Keys: one, After: flowChanges, Do: m.flowStatus},
		{Name: "Lease", Keys: one, Every: leaseInterval, Do: m.lease},
		{Name: "Leases", Keys: one, Every: leaseSweep, Do: m.sweepLeases},
		{Name: "ConfigMap/" + authenticationMap, Keys: one, Every: authenticationInterval, After: changesOf(authenticationMap), Do: m.authentication},
		{Name: "ConfigMap/" + trackingMap, Keys: one, Every: trackingInterval, Do: m.tracking},
	}
	return all
}

// maker does the duties.
type maker struct {
	Options
	Wiring
	identity identity
}

// systemNamespaces are those that every cluster has.
var systemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, metav1.NamespaceDefault}

func (m *maker) namespace(ctx context.Context, served *registry.Catalog, name string) (storage.Revision, error) {
	e := served.Kind("v1", "Namespace")
	if cached[corev1.Namespace](e, "", name) != nil {
		return 0, nil
	}
	return create(ctx, e, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}, "")
}

// The PriorityClasses that Kubernetes' own pods have.
const (
	nodeCritical    = "system-node-critical"
	clusterCritical = "system-cluster-critical"
	// systemPriority is the lowest priority that users can't give.
	systemPriority int32 = 2_000_000_000
)

// priorityClass makes one of the PriorityClasses, at the start alone.
func (m *maker) priorityClass(ctx context.Context, served *registry.Catalog, name string) (storage.Revision, error) {
	e := served.Kind("scheduling.k8s.io/v1", "PriorityClass")
	if e == nil || cached[schedulingv1.PriorityClass](e, "", name) != nil {
		return 0, nil
	}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: systemPriority,
		Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."}
	if name == nodeCritical {
		class.Value += 1000
		class.Description = "Used for system critical pods that must not be moved from their current node."
	}
	return create(ctx, e, class, "")
}

// addresses returns where the servers are reached.
func (m *maker) addresses() []netip.AddrPort {
	if m.Addresses != nil {
		if all := m.Addresses(); len(all) > 0 {
			return all
		}
	}
	return []netip.AddrPort{m.Address}
}
