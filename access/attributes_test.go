package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// requests are methods and paths, with what they ask for: a verb, and "group version resource/subresource namespace name"
// or a path.
var requests = []struct{ method, url, want string }{
	{"GET", "/", "get /"},
	{"GET", "/healthz", "get /healthz"},
	{"HEAD", "/healthz", "head /healthz"},
	{"POST", "/debug/reset", "post /debug/reset"},
	{"OPTIONS", "/version", "options /version"},
	{"GET", "/api", "get /api"},
	{"GET", "/api/v1", "get /api/v1"},
	{"GET", "/apis", "get /apis"},
	{"GET", "/apis/apps", "get /apis/apps"},
	{"GET", "/apis/apps/v1", "get /apis/apps/v1"},
	{"DELETE", "/apis/apps/v1", "delete /apis/apps/v1"},
	{"GET", "/openapi/v3/apis/apps/v1", "get /openapi/v3/apis/apps/v1"},
	{"GET", "/apiserver/v1/pods", "get /apiserver/v1/pods"},

	{"GET", "/api/v1/pods", "list [ v1 pods  ]"},
	{"HEAD", "/api/v1/pods", "list [ v1 pods  ]"},
	{"GET", "/api/v1/pods?watch", "watch [ v1 pods  ]"},
	{"GET", "/api/v1/pods?watch=true", "watch [ v1 pods  ]"},
	{"GET", "/api/v1/pods?watch=1", "watch [ v1 pods  ]"},
	{"GET", "/api/v1/pods?watch=maybe", "watch [ v1 pods  ]"},
	{"GET", "/api/v1/pods?watch=False", "list [ v1 pods  ]"},
	{"GET", "/api/v1/pods?watch=0", "list [ v1 pods  ]"},
	{"GET", "/api/v1/pods?watch=false&watch=true", "list [ v1 pods  ]"},
	{"POST", "/api/v1/pods", "create [ v1 pods  ]"},
	{"DELETE", "/api/v1/pods", "deletecollection [ v1 pods  ]"},
	{"PUT", "/api/v1/pods", "update [ v1 pods  ]"},
	{"OPTIONS", "/api/v1/pods", " [ v1 pods  ]"},
	{"GET", "/api/v1/nodes/a", "get [ v1 nodes  a]"},
	{"DELETE", "/api/v1/nodes/a", "delete [ v1 nodes  a]"},
	{"PATCH", "/api/v1/nodes/a/status", "patch [ v1 nodes/status  a]"},
	{"GET", "/api/v1/namespaces/n/pods", "list [ v1 pods n ]"},
	{"GET", "/api/v1/namespaces/n/pods/a", "get [ v1 pods n a]"},
	{"PUT", "/api/v1/namespaces/n/pods/a", "update [ v1 pods n a]"},
	{"POST", "/api/v1/namespaces/n/pods/a/binding", "create [ v1 pods/binding n a]"},
	{"DELETE", "/api/v1/namespaces/n/pods/a/binding", "delete [ v1 pods/binding n a]"},
	{"GET", "/api/v1/namespaces/n/pods/a/proxy/some/path", "get [ v1 pods/proxy n a]"},
	{"DELETE", "/apis/example.com/v1/namespaces/n/widgets", "deletecollection [example.com v1 widgets n ]"},
	{"GET", "/apis/example.com/v1/widgets/a/scale", "get [example.com v1 widgets/scale  a]"},

	{"GET", "/api/v1/namespaces", "list [ v1 namespaces  ]"},
	{"POST", "/api/v1/namespaces", "create [ v1 namespaces  ]"},
	{"GET", "/api/v1/namespaces/n", "get [ v1 namespaces n n]"},
	{"DELETE", "/api/v1/namespaces/n", "delete [ v1 namespaces n n]"},
	{"PUT", "/api/v1/namespaces/n/status", "update [ v1 namespaces/status n n]"},
	{"PUT", "/api/v1/namespaces/n/finalize", "update [ v1 namespaces/finalize n n]"},
	{"GET", "/api/v1/namespaces/n/status/x", "get [ v1 namespaces/status n n]"},
	{"GET", "/api/v1/namespaces/namespaces/namespaces", "list [ v1 namespaces namespaces ]"},

	{"GET", "/api/v1/watch/pods", "watch [ v1 pods  ]"},
	{"GET", "/api/v1/watch/pods?watch=false", "watch [ v1 pods  ]"},
	{"POST", "/api/v1/watch/pods", "watch [ v1 pods  ]"},
	{"DELETE", "/api/v1/watch/namespaces/n/pods/a", "watch [ v1 pods n a]"},
	{"GET", "/apis/apps/v1/watch/namespaces/n/deployments", "watch [apps v1 deployments n ]"},
	{"GET", "/api/v1/watch/namespaces/n", "watch [ v1 namespaces n n]"},
	{"GET", "/api/v1/proxy/nodes/a", "proxy [ v1 nodes  a]"},
	{"GET", "/api/v1/proxy/nodes/a/b", "proxy [ v1 nodes  a]"},

	{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Da", "list [ v1 pods  a]"},
	{"GET", "/api/v1/pods?fieldSelector=metadata.name%3D%3Da,spec.nodeName%3Dx&watch=true", "watch [ v1 pods  a]"},
	{"GET", "/api/v1/pods?fieldSelector=metadata.name!%3Da", "list [ v1 pods  ]"},
	{"GET", "/api/v1/pods?fieldSelector=metadata.name%3D", "list [ v1 pods  ]"},
	{"GET", "/api/v1/pods?fieldSelector=metadata.name%3D..", "list [ v1 pods  ]"},
	{"GET", "/api/v1/pods?fieldSelector=metadata.name", "list [ v1 pods  ]"},
	{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dx", "list [ v1 pods  ]"},
	{"DELETE", "/api/v1/pods?fieldSelector=metadata.name%3Da", "deletecollection [ v1 pods  ]"},
	{"GET", "/api/v1/watch/pods?fieldSelector=metadata.name%3Da", "watch [ v1 pods  ]"},
	{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Da&fieldSelector=", "list [ v1 pods  a]"},
	{"GET", "/api/v1/pods?fieldSelector=&fieldSelector=metadata.name%3Da", "list [ v1 pods  ]"},
}

// TestAttributes: a request asks for what the table says, and what Kubernetes' own code says.
func TestAttributes(t *testing.T) {
	theirs := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for _, tc := range requests {
		t.Run(tc.method+" "+tc.url, func(t *testing.T) {
			r := httptest.NewRequest(tc.method, tc.url, nil)
			a := AttributesOf(r)
			got := a.Verb + " " + a.Path
			if a.ResourceRequest {
				got = shown(a.Verb, a.APIGroup, a.APIVersion, a.Resource, a.Subresource, a.Namespace, a.Name)
			}
			if got != tc.want {
				t.Errorf("it asks for %q, want %q", got, tc.want)
			}
			info, err := theirs.NewRequestInfo(r)
			if err != nil {
				t.Fatal(err)
			}
			want := info.Verb + " " + info.Path
			if info.IsResourceRequest {
				want = shown(info.Verb, info.APIGroup, info.APIVersion, info.Resource, info.Subresource, info.Namespace, info.Name)
			}
			if got != want {
				t.Errorf("it asks for %q, and Kubernetes says %q", got, want)
			}
		})
	}
}

func shown(verb, group, version, resource, subresource, namespace, name string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	return fmt.Sprintf("%s [%s %s %s %s %s]", verb, group, version, resource, namespace, name)
}

// TestAttributesOfOurs: where this server answers otherwise than Kubernetes, it asks for what it answers with. And what says
// nothing is a request for a resource that has no name, which only rules for everything allow.
func TestAttributesOfOurs(t *testing.T) {
	for _, tc := range []struct{ method, url, want string }{
		{"GET", "/api/v1/namespaces/n/pods/a?watch=true", "watch [ v1 pods n a]"},
		{"GET", "/api/v1/namespaces/n/pods/a/status?watch=true", "get [ v1 pods/status n a]"},
		{"GET", "/api/v1/watch", "watch [ v1   ]"},
		{"GET", "/apis/apps/v1/proxy", "proxy [apps v1   ]"},
		{"PUT", "/api/v1/watch", "watch [ v1   ]"},
		{"GET", "/api/v1/pods?lite=true&fieldSelector=metadata.name%20%3D%20'a',spec.x>1", "list [ v1 pods  a]"},
		{"GET", "/api/v1/pods?lite=true&fieldSelector=metadata.name%3Da,spec.x!%3D1||!spec.y", "list [ v1 pods  ]"},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Da,spec.x!%3D1||!spec.y", "list [ v1 pods  a]"},
	} {
		a := AttributesOf(httptest.NewRequest(tc.method, tc.url, nil))
		if got := shown(a.Verb, a.APIGroup, a.APIVersion, a.Resource, a.Subresource, a.Namespace, a.Name); got != tc.want {
			t.Errorf("%s %s asks for %q, want %q", tc.method, tc.url, got, tc.want)
		}
	}
}

func BenchmarkAttributes(b *testing.B) {
	for _, url := range []string{"/api/v1/namespaces/n/configmaps/a", "/api/v1/namespaces/n/configmaps?limit=500&resourceVersion=0"} {
		b.Run(url, func(b *testing.B) {
			r := httptest.NewRequest("GET", url, nil)
			b.ReportAllocs()
			for b.Loop() {
				AttributesOf(r)
			}
		})
	}
}

// FuzzAttributes: whatever a request looks like, it asks for what Kubernetes' own code says, apart from watches of one object.
func FuzzAttributes(f *testing.F) {
	theirs := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for _, tc := range requests {
		r := httptest.NewRequest(tc.method, tc.url, nil)
		f.Add(tc.method, r.URL.Path, r.URL.RawQuery)
	}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		r, err := http.NewRequest(method, "http://host"+path, nil)
		if err != nil || !isClean(r.URL.Path) || len(query) > 0 {
			return
		}
		info, err := theirs.NewRequestInfo(r)
		if err != nil {
			return
		}
		a := AttributesOf(r)
		got := shown(a.Verb, a.APIGroup, a.APIVersion, a.Resource, a.Subresource, a.Namespace, a.Name)
		want := shown(info.Verb, info.APIGroup, info.APIVersion, info.Resource, info.Subresource, info.Namespace, info.Name)
		if got != want || a.ResourceRequest != info.IsResourceRequest || a.Path != info.Path {
			t.Errorf("%s %s asks for %q, and Kubernetes says %q", method, path, got, want)
		}
	})
}

// isClean tells whether a path is one that the server lets in: it has no empty segment.
func isClean(path string) bool {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' && (path[i-1] == '/' || i == len(path)-1) {
			return false
		}
	}
	return path != "" && path[0] == '/'
}
