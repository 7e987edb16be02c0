package builtin

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
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
	Authorizer Authorizer
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
	// Address is where the server listens, for default/kubernetes; zero if that isn't an address.
	Address netip.AddrPort
	// CheckPolicies has the answer to the write of a ValidatingAdmissionPolicy say what its expressions get wrong about the objects
	// that it's about.
	CheckPolicies bool
	// NoService leaves default/kubernetes to somebody else.
	NoService bool
	// Shared says that other servers have the same store. Then one of them calls WriteEndpoints with the addresses of all.
	Shared bool

	registry  *registry.Registry // set by Register
	allocator *allocator         // of Services' addresses and ports; likewise
}

// Authorizer decides what users may do, tells all of it, and refuses writes of rules by which users would give what they
// don't have. access.RBAC is the only one, which this package can't import: it's above.
type Authorizer interface {
	authorizer.UnconditionalAuthorizer
	authorizer.RuleResolver
	MayGrant(ctx context.Context, obj, old registry.Typed) error
	// Ask returns nil for what a user may do, and a Status error for what he mayn't.
	Ask(ctx context.Context, a authorizer.Attributes) error
}

// DefaultServiceIPs are kube-apiserver's, cut to what one machine needs.
const DefaultServiceIPs = "10.0.0.0/24"

// DefaultNodePorts are kube-apiserver's.
var DefaultNodePorts = utilnet.PortRange{Base: 30000, Size: 2768}

// Register adds the built-in kinds of a set to a registry, except those in whose place the program has registered a type of
// its own. A path of a data-only kind that isn't in the set is answered with how to get it.
func Register(r *registry.Registry, o Options) {
	o.registry = r
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
		o.allocator = &allocator{registry: r, ips: o.ServiceIPs.Masked(), nodePorts: o.NodePorts}
		if !o.NoService {
			r.AtStart(func(ctx context.Context) error { return o.makeOwnService(ctx, r) })
		}
		add(r, core(o))
		add(r, data(o))
	default:
		add(r, core(o))
		r.Explain(unserved)
	}
}

// add registers lines. One that converts to the stored version is a further version of the kind in the line before it.
func add(r *registry.Registry, lines []registry.Type) {
	for len(lines) > 0 {
		versions := 1
		for versions < len(lines) && lines[versions].ToStored != nil {
			versions++
		}
		for i := range versions {
			lines[i].MetaRules = metaRules(lines[i].Kind, lines[i].Group)
			lines[i].Validate = inInternalForm(lines[i].Validate)
		}
		if first := lines[0]; !r.Has(schema.GroupResource{Group: first.Group, Resource: first.Plural}) {
			r.Add(first, lines[1:versions]...)
		}
		lines = lines[versions:]
	}
}

// unserved says why nothing is served at the path of a data-only kind; "" for the paths of other kinds.
func unserved(path schema.GroupVersionResource) string {
	for _, t := range data(Options{}) {
		if t.Group == path.Group && t.Version == path.Version && t.Plural == path.Resource {
			return "the server could not find the requested resource: " + schema.GroupResource{Group: t.Group, Resource: t.Plural}.String() +
				" is served, as data that nothing acts on, if the server is started with --builtin=all"
		}
	}
	return ""
}

// names are those of a kind whose plural is regular.
func names(group, version, kind string, short ...string) registry.Names {
	plural := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(plural, "s"):
		plural += "es"
	case strings.HasSuffix(plural, "y"):
		plural = strings.TrimSuffix(plural, "y") + "ies"
	default:
		plural += "s"
	}
	return registry.Names{Group: group, Version: version, Kind: kind, Plural: plural, ShortNames: short}
}

// inAll puts a kind among those that `kubectl get all` shows.
func inAll(n registry.Names) registry.Names {
	n.Categories = []string{"all"}
	return n
}

// of makes a new object of a Go type.
func of[T any, P registry.Pointer[T]]() registry.Typed { return P(new(T)) }

// set makes a Default, or what else changes an object, of a function with the type.
func set[T any, P registry.Pointer[T]](fn func(obj *T)) func(registry.Typed) {
	return func(obj registry.Typed) { fn(obj.(P)) }
}

// prepare makes a Prepare of a function with the type. old is nil for a new object.
func prepare[T any, P registry.Pointer[T]](fn func(obj, old *T, subresource string)) func(ctx context.Context, obj, old registry.Typed, subresource string) {
	return func(_ context.Context, obj, old registry.Typed, subresource string) {
		before, _ := old.(P)
		fn(obj.(P), before, subresource)
	}
}

// rules makes a Validate of a function with the type. old is nil for a new object. Writes of a status aren't asked about:
// Kubernetes has no rules for that of such a kind.
func rules[T any, P registry.Pointer[T]](fn func(obj, old *T) field.ErrorList) func(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
	return func(_ context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
		if subresource == "status" {
			return nil
		}
		before, _ := old.(P)
		return declaredLast(fn(obj.(P), before))
	}
}

// declaredLast puts last what Kubernetes finds by the tags of its types: its functions are asked before.
func declaredLast(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		switch {
		case a.CoveredByDeclarative == b.CoveredByDeclarative:
			return 0
		case a.CoveredByDeclarative:
			return 1
		}
		return -1
	})
	return errs
}

// counting makes a Generation of a function with the type. old is nil for a new object.
func counting[T any, P registry.Pointer[T]](fn func(obj, old *T) int64) func(obj, old registry.Typed) int64 {
	return func(obj, old registry.Typed) int64 {
		before, _ := old.(P)
		return fn(obj.(P), before)
	}
}

// firstOr is a generation that never changes: the first, or that of an object that was there.
func firstOr(old metav1.Object) int64 {
	if reflect.ValueOf(old).IsNil() {
		return 1
	}
	return old.GetGeneration()
}

// parts makes a Validate of two functions with the type, for writes of a whole object and of its status. Without a second one the first
// is asked about both.
func parts[T any, P registry.Pointer[T]](whole, status func(obj, old *T) field.ErrorList) func(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
	return func(_ context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
		before, _ := old.(P)
		if subresource == "status" && status != nil {
			return declaredLast(status(obj.(P), before))
		}
		return declaredLast(whole(obj.(P), before))
	}
}

// warnings makes a Warnings of a function with the type. old is nil for a new object. Writes of a status aren't asked about.
func warnings[T any, P registry.Pointer[T]](fn func(obj, old *T) []string) func(ctx context.Context, obj, old registry.Typed, subresource string) []string {
	return func(_ context.Context, obj, old registry.Typed, subresource string) []string {
		if subresource == "status" {
			return nil
		}
		before, _ := old.(P)
		return fn(obj.(P), before)
	}
}

// claiming makes a Claim of a function with the type. old is nil for a new object.
func claiming[T any, P registry.Pointer[T]](fn func(obj, old *T, dryRun bool) (registry.Settle, error)) func(obj, old registry.Typed, dryRun bool) (registry.Settle, error) {
	return func(obj, old registry.Typed, dryRun bool) (registry.Settle, error) {
		before, _ := old.(P)
		return fn(obj.(P), before, dryRun)
	}
}

// answer makes an Answer of a function with the type.
func answer[T any, P registry.Pointer[T]](fn func(ctx context.Context, question *T) error) func(context.Context, registry.Typed) error {
	return func(ctx context.Context, question registry.Typed) error { return fn(ctx, question.(P)) }
}

// specOnly are the StatusResets of kinds whose status may be written together with metadata, as that of most built-in kinds.
var specOnly = []string{"spec"}

// orDefault sets what is missing.
func orDefault[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// orPointTo sets a pointer that is missing.
func orPointTo[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}
