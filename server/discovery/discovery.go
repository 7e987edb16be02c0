// Package discovery has the documents that tell clients what is served: discovery, older and aggregated, and OpenAPI of versions 2
// and 3. Those that take work are built when they're first asked for, and kept. Nothing is done at start or when a definition changes.
package discovery

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/apiserver-lite/apiserver-lite/aggregator"
	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// Sources are what the documents are about.
type Sources struct {
	Registry *registry.Registry
	Others   *aggregator.Aggregator // what other servers have; nil: none has anything
	Version  version.Info
	Log      *slog.Logger
}

// Discovery has the documents of a server.
type Discovery struct {
	Sources
	groups  *documents // of aggregated discovery
	openAPI *documents // which take much longer
	hashes  *hashes    // of OpenAPI's documents
}

// New returns the documents of what sources have, of which none is built yet.
func New(s Sources) *Discovery {
	return &Discovery{Sources: s, groups: newDocuments(), openAPI: newDocuments(), hashes: newHashes(s.Version.GitVersion)}
}

// Collect registers the metric of what is kept.
func (d *Discovery) Collect(r *prometheus.Registry) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "apiserver_lite_openapi_bytes",
		Help: "OpenAPI documents that are kept, compressed.",
	}, d.openAPI.bytes))
}

// The paths of aggregated discovery: of the core group, and of all others.
const (
	Core   = "api"
	Groups = "apis"
)

// Message is a document that is built for each request.
type Message interface {
	runtime.Object
	Marshal() ([]byte, error)
}

// Encode returns a message as it's sent.
func Encode(doc Message, encoding form.Encoding) ([]byte, error) {
	if encoding != form.Protobuf {
		return json.Marshal(doc)
	}
	message, err := doc.Marshal()
	kind := doc.GetObjectKind().GroupVersionKind()
	return kubeproto.TypeOf(kind.GroupVersion().String(), kind.Kind).Append(nil, message), err
}

// List returns the document from which older clients go on: the versions of the core group, at which a client finds the server at
// host, or all other groups.
func (d *Discovery) List(path, host string) Message {
	versions := &metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: host}},
	}
	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, g := range d.all() {
		if g.Name != "" {
			groups.Groups = append(groups.Groups, apiGroup(g))
			continue
		}
		for _, v := range g.Versions {
			versions.Versions = append(versions.Versions, v.Name)
		}
	}
	if path == Core {
		return versions
	}
	return groups
}

func (d *Discovery) all() []aggregator.Group { return d.Others.Groups(d.Registry.Catalog()) }

// Group returns the document of a group; nil if it isn't served, or is the core one.
func (d *Discovery) Group(name string) Message {
	for _, g := range d.all() {
		if g.Name == name && name != "" {
			doc := apiGroup(g)
			doc.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return &doc
		}
	}
	return nil
}

func apiGroup(g aggregator.Group) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.Name}
	for _, v := range g.Versions {
		at := schema.GroupVersion{Group: g.Name, Version: v.Name}
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: at.String(), Version: v.Name})
	}
	if len(out.Versions) > 0 {
		out.PreferredVersion = out.Versions[0]
	}
	return out
}

// Resources returns the document of a group version; nil if this server doesn't have it.
func (d *Discovery) Resources(of schema.GroupVersion) Message {
	v, found := versionAt(d.Registry.Catalog(), Path(of))
	if !found {
		return nil
	}
	doc := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList"},
		GroupVersion: of.String(),
		APIResources: []metav1.APIResource{},
	}
	if of.Group != "" { // kube-apiserver doesn't say it of the core group's list
		doc.APIVersion = "v1"
	}
	for _, e := range v.Resources {
		doc.APIResources = append(doc.APIResources, metav1.APIResource{
			Name: e.Plural, SingularName: e.Singular, Namespaced: e.Namespaced, Kind: e.Kind,
			Verbs: e.Verbs, ShortNames: e.ShortNames, Categories: e.Categories, StorageVersionHash: e.StorageVersionHash,
		})
		for _, subresource := range e.Subresources {
			r := metav1.APIResource{
				Name: e.Plural + "/" + subresource, Namespaced: e.Namespaced, Kind: e.Kind, Verbs: e.SubresourceVerbs(subresource),
			}
			if of := e.SubresourceKind(subresource); of.Kind != e.Kind {
				r.Kind = of.Kind
				if of.Group != e.Group || of.Version != e.Version {
					r.Group, r.Version = of.Group, of.Version
				}
			}
			doc.APIResources = append(doc.APIResources, r)
		}
	}
	return doc
}

// Aggregated returns the document with all groups at a path, and their versions and resources.
func (d *Discovery) Aggregated(ctx context.Context, path string, encoding form.Encoding) (*Document, error) {
	catalog := d.Registry.Catalog()
	of := struct {
		catalog string
		others  aggregator.State
	}{catalog.Hash, d.Others.State()}
	return d.groups.get(ctx, key{path, encoding, of}, func() (*Document, error) {
		body, err := Encode(aggregated(path, d.Others.Groups(catalog)), encoding)
		return Plain(body), err
	})
}

func aggregated(path string, groups []aggregator.Group) *apidiscovery.APIGroupDiscoveryList {
	list := &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscovery.SchemeGroupVersion.String()},
		Items:    []apidiscovery.APIGroupDiscovery{},
	}
	for _, g := range groups {
		if (g.Name == "") != (path == Core) {
			continue
		}
		item := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
		for _, v := range g.Versions {
			if v.Remote != nil {
				item.Versions = append(item.Versions, v.Remote.Discovery())
			} else {
				item.Versions = append(item.Versions, versionDiscovery(*v.Local))
			}
		}
		list.Items = append(list.Items, item)
	}
	return list
}

func versionDiscovery(v registry.Version) apidiscovery.APIVersionDiscovery {
	out := apidiscovery.APIVersionDiscovery{Version: v.Name, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
	for _, e := range v.Resources {
		scope := apidiscovery.ScopeCluster
		if e.Namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		kind := &metav1.GroupVersionKind{Kind: e.Kind}
		if !e.GoType() { // kube-apiserver says the group and version of custom resources alone
			kind.Group, kind.Version = e.Group, e.Version
		}
		r := apidiscovery.APIResourceDiscovery{
			Resource: e.Plural, ResponseKind: kind, Scope: scope, SingularResource: e.Singular,
			Verbs: e.Verbs, ShortNames: e.ShortNames, Categories: e.Categories,
		}
		for _, subresource := range e.Subresources {
			s := apidiscovery.APISubresourceDiscovery{Subresource: subresource, ResponseKind: kind, Verbs: e.SubresourceVerbs(subresource)}
			if of := metav1.GroupVersionKind(e.SubresourceKind(subresource)); of.Kind != e.Kind {
				if of.Group == e.Group && of.Version == e.Version {
					of.Group, of.Version = kind.Group, kind.Version
				}
				s.ResponseKind = &of
			}
			r.Subresources = append(r.Subresources, s)
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}
