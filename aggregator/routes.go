package aggregator

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

const (
	// maxCalls is how many requests of ordinary length may wait for the answer of one server at once: a third of what this
	// server works for.
	maxCalls = 200
	// callShare lets one flow have so many times the calls that it leaves to others.
	callShare = 3
	// maxFlowCalls and maxWaiting are how many requests of one flow, and of all, may wait for a call.
	maxFlowCalls, maxWaiting = 300, 6400
)

// Routes are who serves which group version, at one moment. They never change.
type Routes struct {
	remote   []*Route // the group versions that other servers have, in the order of the names of their APIServices
	byGroup  map[schema.GroupVersion]*Route
	declared map[schema.GroupVersion]priority // by all APIServices
}

// priority is what decides on the order in discovery.
type priority struct{ group, version int32 }

// customPriority is that of the group versions of definitions.
var customPriority = priority{group: 1000, version: 100}

// Route is a group version that another server has.
type Route struct {
	*Backend
	*stored
	available bool // says the APIService's status
}

// stored is an APIService as it's stored. Nobody changes it.
type stored struct {
	revision   storage.Revision
	apiService apiregistrationv1.APIService
}

// Backend is the server of a group version, as long as its APIService says the same about it.
type Backend struct {
	schema.GroupVersion
	Name string // of the APIService
	// Calls has a seat for each request that waits for the server's answer.
	Calls *fair.Level

	aggregator *Aggregator
	uid        types.UID
	spec       apiregistrationv1.APIServiceSpec
	clients    *clients

	discovery atomic.Pointer[discovered] // nil until it was asked for
	openapi   atomic.Pointer[described]  // nil while nothing is known
}

// ownGroup is served by this server whatever APIServices say: they couldn't be mended otherwise.
const ownGroup = "apiregistration.k8s.io"

// derive makes the routes of the APIServices.
func (a *Aggregator) derive(of func(storage.Prefix) []*kube.Object) *Routes {
	t := &Routes{byGroup: map[schema.GroupVersion]*Route{}, declared: map[schema.GroupVersion]priority{}}
	read, backends := map[string]*stored{}, map[string]*Backend{}
	for _, o := range of(apiServices) {
		one := a.read[o.Key]
		if one == nil || one.revision != o.Revision {
			one = &stored{revision: o.Revision}
			if o.Err != nil || json.Unmarshal(o.Raw(), &one.apiService) != nil {
				continue // whoever reads it has it logged
			}
		}
		read[o.Key] = one
		s := &one.apiService
		at := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
		t.declared[at] = priority{s.Spec.GroupPriorityMinimum, s.Spec.VersionPriority}
		if s.Spec.Service == nil || at.Group == ownGroup {
			continue
		}
		r := &Route{Backend: a.backend(s), stored: one, available: isAvailable(s)}
		backends[s.Name] = r.Backend
		t.remote = append(t.remote, r)
		t.byGroup[at] = r
	}
	a.read, a.backends = read, backends
	return t
}

// backend returns the server that an APIService names: the one that there is, unless something else is said about it now.
func (a *Aggregator) backend(s *apiregistrationv1.APIService) *Backend {
	spec := *s.Spec.DeepCopy()
	spec.GroupPriorityMinimum, spec.VersionPriority = 0, 0 // these change nothing about the server
	if b := a.backends[s.Name]; b != nil && b.uid == s.UID && equality.Semantic.DeepEqual(b.spec, spec) {
		return b
	}
	return &Backend{
		GroupVersion: schema.GroupVersion{Group: spec.Group, Version: spec.Version}, Name: s.Name,
		Calls:      fair.NewLevel(fair.Limits{Most: maxCalls, Times: callShare, PerFlow: maxFlowCalls, Waiting: maxWaiting}),
		aggregator: a, uid: s.UID, spec: spec, clients: a.newClients(spec),
	}
}

// noRoutes is what there is where APIServices aren't served.
var noRoutes = &Routes{}

// current returns the routes at the moment of the call.
func (a *Aggregator) current() *Routes {
	if a == nil || a.routes == nil {
		return noRoutes
	}
	return a.routes.Get()
}

// Route returns whose a path is; nil if it's this server's. The path must be clean.
func (a *Aggregator) Route(path string) *Route {
	t := a.current()
	if len(t.remote) == 0 {
		return nil
	}
	rest, grouped := strings.CutPrefix(path, "/apis/")
	if !grouped {
		if path == "/api" || strings.HasPrefix(path, "/api/") {
			return t.byGroup[schema.GroupVersion{Version: "v1"}] // the core group has one APIService, for all of it
		}
		return nil
	}
	group, rest, versioned := strings.Cut(rest, "/")
	if !versioned {
		return nil // a group's own document is made here
	}
	v, _, _ := strings.Cut(rest, "/")
	return t.byGroup[schema.GroupVersion{Group: group, Version: v}]
}

// Group is a group with who serves its versions.
type Group struct {
	Name     string
	Versions []Version // the preferred one first
	priority int32
}

// Version is a version of a group.
type Version struct {
	Name     string
	Local    *registry.Version // nil if another server has it
	Remote   *Backend          // nil if this server has it
	priority int32
}

// Groups returns all groups that this server and the others have, in the order of discovery: by what their APIServices say,
// and the core group first.
func (a *Aggregator) Groups(c *registry.Catalog) []Group {
	t := a.current()
	byName := map[string]int{}
	var groups []Group
	add := func(at schema.GroupVersion, v Version) {
		p := a.priorityOf(t, at)
		i, ok := byName[at.Group]
		if !ok {
			i = len(groups)
			byName[at.Group] = i
			groups = append(groups, Group{Name: at.Group})
		}
		v.priority = p.version
		g := &groups[i]
		g.priority = max(g.priority, p.group)
		g.Versions = append(g.Versions, v)
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		for j := range g.Versions {
			v := &g.Versions[j]
			at := schema.GroupVersion{Group: g.Name, Version: v.Name}
			if t.byGroup[at] == nil {
				add(at, Version{Name: v.Name, Local: v})
			}
		}
	}
	for _, r := range t.remote {
		add(r.GroupVersion, Version{Name: r.Version, Remote: r.Backend})
	}
	slices.SortStableFunc(groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.priority, x.priority), cmp.Compare(x.Name, y.Name))
	})
	for i := range groups {
		slices.SortStableFunc(groups[i].Versions, func(x, y Version) int {
			return cmp.Or(cmp.Compare(y.priority, x.priority), -version.CompareKubeAwareVersionStrings(x.Name, y.Name))
		})
	}
	return groups
}

// ownPriority is that of apiregistration.k8s.io and of the core group: more than any APIService may have.
var ownPriority = priority{group: 20001, version: 1}

func (a *Aggregator) priorityOf(t *Routes, at schema.GroupVersion) priority {
	if at.Group == ownGroup {
		return ownPriority
	}
	if p, ok := t.declared[at]; ok {
		return p
	}
	if a != nil && a.priority != nil {
		if group, v, ok := a.priority(at); ok {
			return priority{group, v}
		}
	}
	return customPriority
}

// State identifies what Groups returns and what the servers say about themselves: while it's the same, so are they. It's
// comparable.
type State struct {
	routes *Routes
	news   int64
}

// State returns the state at the moment of the call.
func (a *Aggregator) State() State {
	if a == nil {
		return State{}
	}
	return State{a.current(), a.news.Load()}
}

// Discovery returns what a server says about its version. If it can't be asked, that's nothing, and said to be stale.
func (b *Backend) Discovery() apidiscovery.APIVersionDiscovery {
	if d := b.discovery.Load(); d != nil {
		return d.version
	}
	return apidiscovery.APIVersionDiscovery{Version: b.Version, Freshness: apidiscovery.DiscoveryFreshnessStale}
}

// byPriority returns the routes in the order in which their documents of OpenAPI are merged: the higher priority of the
// group first, and then by name.
func (t *Routes) byPriority() []*Route {
	all := slices.Clone(t.remote)
	slices.SortStableFunc(all, func(x, y *Route) int {
		a, b := x.apiService.Spec, y.apiService.Spec
		if a.Group == b.Group {
			return cmp.Compare(x.Name, y.Name)
		}
		return cmp.Or(cmp.Compare(t.groupPriority(b.Group), t.groupPriority(a.Group)), cmp.Compare(x.Name, y.Name))
	})
	return all
}

// groupPriority returns the highest priority that a server's APIService claims for a group.
func (t *Routes) groupPriority(group string) (most int32) {
	for _, r := range t.remote {
		if r.Group == group {
			most = max(most, r.apiService.Spec.GroupPriorityMinimum)
		}
	}
	return most
}
