package server

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/apiserver-lite/apiserver-lite/aggregator"
	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
)

// The media types of a whole discovery document; clients look for these parameters in the answer.
const (
	aggregated         = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedJSON     = mediaJSON + aggregated
	aggregatedProtobuf = mediaProtobuf + aggregated
)

// acceptDiscovery is acceptMessage and the aggregated forms besides.
func acceptDiscovery(c clause) (mediaType, bool) {
	if c.params["as"] == "APIGroupDiscoveryList" && c.params["g"] == "apidiscovery.k8s.io" && c.params["v"] == "v2" {
		switch mediaType(c.media) {
		case mediaJSON:
			return aggregatedJSON, true
		case mediaProtobuf:
			return aggregatedProtobuf, true
		}
	}
	return acceptMessage(c)
}

// discovered is a document of discovery.
type discovered interface {
	runtime.Object
	Marshal() ([]byte, error)
}

// serveCoreVersions serves /api: the versions of the core group.
func (h *handler) serveCoreVersions(w *response, r *http.Request) error {
	return h.serveDiscovery(w, r, "api", func(groups []aggregator.Group) discovered {
		doc := &metav1.APIVersions{
			TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
			Versions:                   []string{},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}},
		}
		for _, g := range groups {
			for _, v := range g.Versions {
				if g.Name == "" {
					doc.Versions = append(doc.Versions, v.Name)
				}
			}
		}
		return doc
	})
}

// serveGroups serves /apis: all groups but the core one.
func (h *handler) serveGroups(w *response, r *http.Request) error {
	return h.serveDiscovery(w, r, "apis", func(groups []aggregator.Group) discovered {
		doc := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
		for _, g := range groups {
			if g.Name != "" {
				doc.Groups = append(doc.Groups, apiGroup(g))
			}
		}
		return doc
	})
}

// serveDiscovery serves /api and /apis in the form that the client wants: everything at once, or the
// list from which older clients go on.
func (h *handler) serveDiscovery(w *response, r *http.Request, root string, list func([]aggregator.Group) discovered) error {
	media, err := negotiate(r.Header.Values("Accept"), acceptDiscovery)
	if err != nil {
		return err
	}
	catalog := h.registry.Catalog()
	if media != aggregatedJSON && media != aggregatedProtobuf {
		return w.writeDiscovered(r, media, list(h.aggregator.Groups(catalog)))
	}
	of := documented{catalog.Hash, h.aggregator.State()}
	built, err := h.discovery.get(r.Context(), of, func() (map[string]*document, error) { return buildDiscovery(h.aggregator.Groups(catalog)) })
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "public")
	return w.writeDocument(r, built[documentName(root, media)], media)
}

// serveGroup serves /apis/{group}.
func (h *handler) serveGroup(w *response, r *http.Request) error {
	name := chi.URLParam(r, "group")
	for _, g := range h.aggregator.Groups(h.registry.Catalog()) {
		if g.Name == name && name != "" {
			doc := apiGroup(g)
			doc.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return w.writeNegotiated(r, &doc)
		}
	}
	return noPage(w)
}

// hasTypes tells whether Go types of a group of the API are served.
func (h *handler) hasTypes(name string) bool {
	return slices.ContainsFunc(h.registry.Catalog().Groups, func(g registry.Group) bool {
		return g.Name == name && slices.ContainsFunc(g.Versions, func(v registry.Version) bool {
			return slices.ContainsFunc(v.Resources, (*registry.Endpoint).GoType)
		})
	})
}

// serveResources serves /api/{version} and /apis/{group}/{version}.
func (h *handler) serveResources(w *response, r *http.Request) error {
	group, version := chi.URLParam(r, "group"), chi.URLParam(r, "version")
	for _, g := range h.registry.Catalog().Groups {
		for _, v := range g.Versions {
			if g.Name == group && v.Name == version {
				return w.writeNegotiated(r, resourceList(group, v))
			}
		}
	}
	if group != "" && !h.hasTypes(group) {
		return noPage(w)
	}
	err := errUnknownPath()
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

func (w *response) writeNegotiated(r *http.Request, doc discovered) error {
	media, err := negotiate(r.Header.Values("Accept"), acceptMessage)
	if err != nil {
		return err
	}
	return w.writeDiscovered(r, media, doc)
}

func (w *response) writeDiscovered(r *http.Request, media mediaType, doc discovered) error {
	encode := encodeJSON
	if media == mediaProtobuf {
		encode = encodeProtobuf
	}
	body, err := encode(doc)
	if err != nil {
		return err
	}
	return w.writeObject(r, http.StatusOK, media, body)
}

func encodeJSON(doc discovered) ([]byte, error) { return json.Marshal(doc) }

func encodeProtobuf(doc discovered) ([]byte, error) {
	message, err := doc.Marshal()
	kind := doc.GetObjectKind().GroupVersionKind()
	return kubeproto.TypeOf(kind.GroupVersion().String(), kind.Kind).Append(nil, message), err
}

func apiGroup(g aggregator.Group) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.Name}
	for _, v := range g.Versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: groupVersion(g.Name, v.Name), Version: v.Name})
	}
	if len(out.Versions) > 0 {
		out.PreferredVersion = out.Versions[0]
	}
	return out
}

func groupVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

func resourceList(group string, v registry.Version) *metav1.APIResourceList {
	doc := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList"},
		GroupVersion: groupVersion(group, v.Name),
		APIResources: []metav1.APIResource{},
	}
	if group != "" { // kube-apiserver doesn't say it of the core group's list
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

// documentName is what an aggregated document is called among those that buildDiscovery builds.
func documentName(root string, media mediaType) string { return root + " " + string(media) }

// buildDiscovery builds the aggregated documents, each as JSON and as protobuf: "api" has the core group, "apis" all others.
func buildDiscovery(groups []aggregator.Group) (map[string]*document, error) {
	lists := map[string]*apidiscovery.APIGroupDiscoveryList{}
	for _, root := range []string{"api", "apis"} {
		lists[root] = &apidiscovery.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscovery.SchemeGroupVersion.String()},
			Items:    []apidiscovery.APIGroupDiscovery{},
		}
	}
	for _, g := range groups {
		root := "apis"
		if g.Name == "" {
			root = "api"
		}
		item := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
		for _, v := range g.Versions {
			if v.Remote != nil {
				item.Versions = append(item.Versions, v.Remote.Discovery())
			} else {
				item.Versions = append(item.Versions, versionDiscovery(*v.Local))
			}
		}
		lists[root].Items = append(lists[root].Items, item)
	}
	built := map[string]*document{}
	for root, list := range lists {
		for media, encode := range map[mediaType]func(discovered) ([]byte, error){aggregatedJSON: encodeJSON, aggregatedProtobuf: encodeProtobuf} {
			body, err := encode(list)
			if err != nil {
				return nil, err
			}
			built[documentName(root, media)] = newDocument(body)
		}
	}
	return built, nil
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
