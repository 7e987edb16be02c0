package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// discoveryTimeout is how long a server has to say what it serves.
	discoveryTimeout = 5 * time.Second
	// maxDiscovery bounds that, in bytes: ten times what all of Kubernetes' groups and a thousand definitions take.
	maxDiscovery = 16 << 20
)

const aggregatedForm = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discovered is what a server has said about its version.
type discovered struct {
	version apidiscovery.APIVersionDiscovery
	etag    string
}

// refreshDiscovery asks the server what it serves in its group version. If it can't say so, the version is there, without
// resources and stale.
func (b *Backend) refreshDiscovery(ctx context.Context) error {
	next, err := b.askDiscovery(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		next = &discovered{version: apidiscovery.APIVersionDiscovery{Version: b.Version, Freshness: apidiscovery.DiscoveryFreshnessStale}}
	}
	old := b.discovery.Swap(next)
	if old == nil || !reflect.DeepEqual(old.version, next.version) {
		b.aggregator.news.Add(1)
	}
	return err
}

// askDiscovery asks for everything at once, and if the server doesn't know that form, for the list of its resources.
func (b *Backend) askDiscovery(ctx context.Context) (*discovered, error) {
	header := http.Header{"Accept": {aggregatedForm}}
	known := b.discovery.Load()
	if known != nil && known.etag != "" {
		header.Set("If-None-Match", known.etag)
	}
	got, err := b.ask(ctx, "/apis", &user.DefaultInfo{Name: aggregatorUser, Groups: masters}, header, maxDiscovery, discoveryTimeout)
	switch {
	case err != nil:
		return nil, err
	case got.code == http.StatusNotModified && known != nil:
		return known, nil
	case got.code == http.StatusServiceUnavailable:
		return nil, fmt.Errorf("service %s/%s:%d returned non-success response code: %d", b.spec.Service.Namespace, b.spec.Service.Name, portOf(b), got.code)
	case got.code == http.StatusOK && isAggregated(got.header.Get("Content-Type")):
		return b.readAggregated(got)
	}
	return b.askResources(ctx)
}

func isAggregated(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json" && params["g"] == apidiscovery.GroupName && params["v"] == "v2" && params["as"] == "APIGroupDiscoveryList"
}

// readAggregated takes the server's version from a document of everything. A version that isn't in it has no resources.
func (b *Backend) readAggregated(got *answer) (*discovered, error) {
	list := &apidiscovery.APIGroupDiscoveryList{}
	if err := json.Unmarshal(got.body, list); err != nil {
		return nil, err
	}
	d := &discovered{version: apidiscovery.APIVersionDiscovery{Version: b.Version}, etag: got.header.Get("ETag")}
	for _, g := range list.Items {
		for _, v := range g.Versions {
			if g.Name == b.Group && v.Version == b.Version {
				d.version = v
			}
		}
	}
	for i := range d.version.Resources {
		r := &d.version.Resources[i]
		r.ResponseKind = orEmpty(r.ResponseKind)
		for j := range r.Subresources {
			r.Subresources[j].ResponseKind = orEmpty(r.Subresources[j].ResponseKind)
		}
	}
	d.version.Freshness = apidiscovery.DiscoveryFreshnessCurrent
	return d, nil
}

// orEmpty returns a kind that isn't nil: there are clients that don't look.
func orEmpty(k *metav1.GroupVersionKind) *metav1.GroupVersionKind {
	if k == nil {
		return &metav1.GroupVersionKind{}
	}
	return k
}

// askResources asks for the list of resources.
func (b *Backend) askResources(ctx context.Context) (*discovered, error) {
	path := b.ownPath()
	got, err := b.ask(ctx, path, &user.DefaultInfo{Name: aggregatorUser}, http.Header{"Accept": {"application/json"}}, maxDiscovery, discoveryTimeout)
	if err == nil && got.code != http.StatusOK {
		err = fmt.Errorf("%w but %d", errNotOK, got.code)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to download legacy discovery for %s: %w", path, err)
	}
	list := &metav1.APIResourceList{}
	if err := json.Unmarshal(got.body, list); err != nil {
		return nil, err
	}
	resources, err := resourcesOf(list.APIResources)
	if err != nil {
		return nil, err
	}
	return &discovered{version: apidiscovery.APIVersionDiscovery{Version: b.Version, Resources: resources, Freshness: apidiscovery.DiscoveryFreshnessCurrent}}, nil
}

// resourcesOf turns a list of resources, in which subresources are resources with a slash, into those of aggregated discovery.
func resourcesOf(list []metav1.APIResource) (out []apidiscovery.APIResourceDiscovery, err error) {
	scope := func(r metav1.APIResource) apidiscovery.ResourceScope {
		if r.Namespaced {
			return apidiscovery.ScopeNamespace
		}
		return apidiscovery.ScopeCluster
	}
	kind := func(r metav1.APIResource) *metav1.GroupVersionKind {
		return &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	}
	index := map[string]int{}
	for _, r := range list {
		if strings.Contains(r.Name, "/") {
			continue
		}
		index[r.Name] = len(out)
		out = append(out, apidiscovery.APIResourceDiscovery{
			Resource: r.Name, ResponseKind: kind(r), Scope: scope(r), SingularResource: r.SingularName, Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	for _, r := range list {
		of, name, below := strings.Cut(r.Name, "/")
		if !below {
			continue
		}
		i, ok := index[of]
		if !ok {
			i = len(out)
			index[of] = i
			out = append(out, apidiscovery.APIResourceDiscovery{Resource: of, Scope: scope(r), ResponseKind: &metav1.GroupVersionKind{}})
		}
		if out[i].Scope != scope(r) {
			return nil, fmt.Errorf("%s has another scope than %s", r.Name, of)
		}
		s := apidiscovery.APISubresourceDiscovery{Subresource: name, Verbs: r.Verbs, ResponseKind: &metav1.GroupVersionKind{}}
		if r.Kind != "" {
			s.ResponseKind = kind(r)
		}
		out[i].Subresources = append(out[i].Subresources, s)
	}
	return out, nil
}
