package builtin

import (
	"context"
	"net/netip"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/capacity"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/certificates"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/configs"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/controlplane"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/devices"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/events"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/hooks"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/network"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/pods"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rights"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/volumes"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin/workloads"
)

// Set says which kinds are served.
type Set string

// The sets. None is what package registry itself has: Namespace and CustomResourceDefinition.
const (
	None Set = "none"
	Core Set = "core"
	All  Set = "all"
)

// Options of Register.
type Options struct {
	Set Set // defaults to Core
	// Authorizer decides what users may do. Nil: everybody may do everything.
	Authorizer rights.Authorizer
	// PrepareToken judges and completes a TokenRequest that is posted to a ServiceAccount's token, and IssueToken answers it. Nil: there is no such path.
	PrepareToken func(ctx context.Context, a *registry.Action) error
	IssueToken   func(ctx context.Context, a *registry.Action) (any, error)
	// ReviewToken answers a TokenReview. Nil: no token is anybody's.
	ReviewToken func(ctx context.Context, r *authenticationv1.TokenReview)
	// ServiceIPs is where Services get their ClusterIP from; its first address is that of default/kubernetes. Defaults to
	// DefaultServiceIPs.
	ServiceIPs netip.Prefix
	// NodePorts are the ports that Services may have on all nodes. Defaults to DefaultNodePorts.
	NodePorts utilnet.PortRange
	// EventTTL is how long an Event lives after its last write. Defaults to events.DefaultTTL.
	EventTTL time.Duration
	// Address is where the server listens, for default/kubernetes; zero if that isn't an address.
	Address netip.AddrPort
	// CheckPolicies has the answer to the write of a ValidatingAdmissionPolicy say what its expressions get wrong about the objects
	// that it's about.
	CheckPolicies bool
	// NoService leaves default/kubernetes to somebody else.
	NoService bool
	// Shared says that other servers have the same store. Then one of them calls network.WriteEndpoints with the addresses of all.
	Shared bool
}

// DefaultServiceIPs are kube-apiserver's, cut to what one machine needs.
const DefaultServiceIPs = "10.0.0.0/24"

// DefaultNodePorts are kube-apiserver's.
var DefaultNodePorts = utilnet.PortRange{Base: 30000, Size: 2768}

// Register adds the built-in kinds of a set to a registry, except those in whose place the program has registered a type of
// its own. A path of a data-only kind that isn't in the set is answered with how to get it.
func Register(r *registry.Registry, o Options) {
	switch o.Set {
	case None:
		return
	case All:
		if !o.ServiceIPs.IsValid() {
			o.ServiceIPs = netip.MustParsePrefix(DefaultServiceIPs)
		}
		if o.NodePorts.Size == 0 {
			o.NodePorts = DefaultNodePorts
		}
		addresses := network.NewAllocator(r, o.ServiceIPs, o.NodePorts)
		if !o.NoService {
			r.AtStart(func(ctx context.Context) error { return addresses.MakeOwnService(ctx, o.Address, o.Shared) })
		}
		add(r, core(r, o))
		add(r, data(r, o, addresses))
	default:
		add(r, core(r, o))
		r.Explain(unserved)
	}
}

// core are the kinds that are served by default, besides Namespace and CustomResourceDefinition, which package registry has.
func core(r *registry.Registry, o Options) []registry.Type {
	return slices.Concat(
		configs.Kinds(), events.Kinds(o.EventTTL), controlplane.Leases(),
		rights.Kinds(rights.Options{Authorizer: o.Authorizer, PrepareToken: o.PrepareToken, IssueToken: o.IssueToken, ReviewToken: o.ReviewToken, Clock: clockOf(r)}),
		hooks.Kinds(r, o.Authorizer, o.CheckPolicies),
	)
}

// data are the kinds that are stored and shown, and that nothing acts on.
func data(r *registry.Registry, o Options, a *network.Allocator) []registry.Type {
	c := clockOf(r)
	return slices.Concat(
		pods.Kinds(c), workloads.Kinds(), network.Kinds(a), volumes.Kinds(c), capacity.Kinds(),
		certificates.Kinds(o.Authorizer, c), devices.Kinds(r, o.Authorizer, c), controlplane.Kinds(c),
	)
}

// clockOf returns the clock of a registry, if there is one: lines are looked at without.
func clockOf(r *registry.Registry) *clock.Clock {
	if r == nil {
		return nil
	}
	return r.Clock
}

// add registers lines. One that converts to the stored version is a further version of the kind in the line before it.
func add(r *registry.Registry, lines []registry.Type) {
	for len(lines) > 0 {
		versions := 1
		for versions < len(lines) && lines[versions].Stored.To != nil {
			versions++
		}
		for i := range versions {
			lines[i].MetaRules = metaRules(lines[i].Kind, lines[i].Group)
			lines[i].Validate = rules.InInternalForm(lines[i].Validate)
		}
		if first := lines[0]; !r.Has(schema.GroupResource{Group: first.Group, Resource: first.Plural}) {
			r.Add(first, lines[1:versions]...)
		}
		lines = lines[versions:]
	}
}

// unserved says why nothing is served at the path of a data-only kind; "" for the paths of other kinds.
func unserved(path schema.GroupVersionResource) string {
	for _, t := range data(nil, Options{}, nil) {
		if t.Group == path.Group && t.Version == path.Version && t.Plural == path.Resource {
			return "the server could not find the requested resource: " + schema.GroupResource{Group: t.Group, Resource: t.Plural}.String() +
				" is served, as data that nothing acts on, if the server is started with --builtin=all"
		}
	}
	return ""
}
