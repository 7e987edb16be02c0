package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestRepresentations(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	const compact, indented = `{"apiVersion"`, "{\n  \"apiVersion\": \"example.com/v1\",\n"
	for _, tc := range []struct {
		name, path        string
		headers           []string
		media, start, end string
	}{
		{"program", widgetsPath + "/a", nil, "application/json", compact, "}\n"},
		{"curl", widgetsPath + "/a", []string{"User-Agent", "curl/8.5.0"}, "application/json", indented, "\n}"},
		{"pretty", widgetsPath + "/a?pretty=true", nil, "application/json", indented, "\n}"},
		{"curl, not pretty", widgetsPath + "/a?pretty=0", []string{"User-Agent", "curl/8.5.0"}, "application/json", compact, "}\n"},
		{"yaml", widgetsPath + "/a", []string{"Accept", "application/yaml"}, "application/yaml", "apiVersion: example.com/v1\nkind: Widget\n", "size: 1\n"},
		{"list", widgetsPath, nil, "application/json", `{"kind":"WidgetList"`, "]}\n"},
		{"list for curl", widgetsPath, []string{"User-Agent", "curl/8.5.0"}, "application/json", "{\n  \"kind\": \"WidgetList\",\n", "\n  ]\n}"},
		{"list in yaml", widgetsPath, []string{"Accept", "application/yaml"}, "application/yaml", "apiVersion: example.com/v1\nitems:\n- apiVersion", ""},
		{"empty list", "/apis/example.com/v1/namespaces/kube-public/widgets?pretty=1", nil, "application/json", "{\n", "\"items\": []\n}"},
		{"groups in yaml", "/apis", []string{"Accept", "application/yaml"}, "application/yaml", "apiVersion: v1\ngroups:\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do("GET", tc.path, "", tc.headers...)
			if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != tc.media {
				t.Fatalf("%s, %s: %s", res.Status, res.Header.Get("Content-Type"), body)
			}
			if !strings.HasPrefix(body, tc.start) || !strings.HasSuffix(body, tc.end) {
				t.Errorf("it is\n%s\nwant it to begin with\n%s\nand to end with\n%s", body, tc.start, tc.end)
			}
		})
	}
}

// TestLargeList sends a list that needs many writes, in each of its forms, and expects the same one.
func TestLargeList(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	text := strings.Repeat(`a \"quoted\" [text] `, 500)
	for _, name := range []string{"b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		s.PostYAML(widgetsPath, strings.Replace(widget(name), `"size":1`, `"text":"`+text+`"`, 1))
	}
	var plain, pretty, fromYAML any
	for _, tc := range []struct {
		query, accept string
		into          *any
	}{
		{"", "application/json", &plain}, {"?pretty=true", "", &pretty}, {"", "application/yaml", &fromYAML},
	} {
		res, body := s.Do("GET", widgetsPath+tc.query, "", "Accept", tc.accept)
		if err := yaml.Unmarshal([]byte(body), tc.into); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v", res.Status, err)
		}
	}
	want, _ := json.Marshal(plain)
	for name, other := range map[string]any{"indented": pretty, "as YAML": fromYAML} {
		if got, _ := json.Marshal(other); string(got) != string(want) {
			t.Errorf("the list %s is another one", name)
		}
	}
	if n := strings.Count(string(want), `"kind":"Widget"`); n != 10 {
		t.Errorf("%d objects, want 10", n)
	}
}

func TestYAMLBodies(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	const object = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: b\nspec:\n  size: 1\n  size: 2\n"
	res, body := s.Do("POST", widgetsPath, object, "Content-Type", "application/yaml; charset=utf-8")
	if res.StatusCode != http.StatusCreated || !strings.Contains(body, `"size":2`) {
		t.Fatalf("%s: %s", res.Status, body)
	}
	if got := res.Header.Values("Warning"); len(got) != 1 || got[0] != `299 - "line 7: key \"size\" already set in map"` {
		t.Errorf("Warning is %q", got)
	}
	res, body = s.Do("DELETE", widgetsPath+"/b", "kind: DeleteOptions\napiVersion: v1\n", "Content-Type", "application/yaml")
	if res.StatusCode != http.StatusOK {
		t.Errorf("delete with options in YAML: %s: %s", res.Status, body)
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, tc := range []struct {
		path, accept string
		want         []string
	}{
		{"/api", "", []string{`"kind":"APIVersions"`, `"versions":["v1"]`, `"serverAddressByClientCIDRs"`}},
		{"/apis", "", []string{`"kind":"APIGroupList"`, `"name":"apiextensions.k8s.io"`, `"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}`}},
		{"/apis/example.com", "", []string{`"kind":"APIGroup"`, `"name":"example.com"`}},
		{"/api/v1", "", []string{`"kind":"APIResourceList"`, `"groupVersion":"v1"`, `"name":"namespaces","singularName":"namespace","namespaced":false,"kind":"Namespace"`, `"name":"namespaces/finalize"`, `"storageVersionHash":"Q3oi5N2YM8M="`}},
		{"/apis/example.com/v1", "", []string{`"groupVersion":"example.com/v1"`, `"name":"widgets"`, `"shortNames":["wd"]`, `"categories":["all"],"storageVersionHash":"gIwvi5rymmg="`, `"name":"widgets/status","singularName":"","namespaced":true,"kind":"Widget","verbs":["get","patch","update"]`}},
		{"/api", aggregated, []string{`"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2"`, `"version":"v1"`, `"resource":"namespaces","responseKind":{"group":"","version":"","kind":"Namespace"},"scope":"Cluster"`}},
		{"/apis", aggregated, []string{`"metadata":{"name":"example.com"`, `"freshness":"Current"`, `"scope":"Namespaced"`, `"subresources":[{"subresource":"status"`}},
	} {
		t.Run(tc.path+" "+tc.accept, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do("GET", tc.path, "", "Accept", tc.accept)
			want := "application/json"
			if tc.accept != "" {
				want = tc.accept
			}
			if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != want {
				t.Fatalf("%s %s: %s", res.Status, res.Header.Get("Content-Type"), body)
			}
			for _, piece := range tc.want {
				if !strings.Contains(body, piece) {
					t.Errorf("there is no %s in %s", piece, body)
				}
			}
		})
	}

	res, _ := s.Do("GET", "/apis", "", "Accept", aggregated)
	etag := res.Header.Get("ETag")
	if etag == "" || res.Header.Get("Vary") != "Accept" || res.Header.Get("Cache-Control") != "public" {
		t.Errorf("headers of a cacheable document: %v", res.Header)
	}
	if res, body := s.Do("GET", "/apis", "", "Accept", aggregated, "If-None-Match", etag); res.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("the same again: %s %s", res.Status, body)
	}
	s.PostYAML(definitionsPath, strings.NewReplacer("widget", "gadget", "Widget", "Gadget", "[wd]", "[gd]").Replace(widgets))
	if res, body := s.Do("GET", "/apis", "", "Accept", aggregated, "If-None-Match", etag); res.StatusCode != http.StatusOK || !strings.Contains(body, `"resource":"gadgets"`) {
		t.Errorf("after a definition's POST was answered: %s %s", res.Status, body)
	}
}

// TestOpenAPI looks where kubectl looks before it lets the server validate.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal([]byte(s.Get("/openapi/v3")), &root); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{"api/v1": "Namespace", "apis/apiextensions.k8s.io/v1": "CustomResourceDefinition", "apis/example.com/v1": "Widget"} {
		t.Run(path, func(t *testing.T) {
			s := s.In(t)
			url := root.Paths[path].ServerRelativeURL
			res, body := s.Do("GET", url, "")
			if res.StatusCode != http.StatusOK || res.Header.Get("Cache-Control") != "public, immutable" || res.Header.Get("Expires") == "" {
				t.Fatalf("GET %s: %s, %v", url, res.Status, res.Header)
			}
			var doc struct {
				Paths map[string]struct {
					Patch *struct {
						Parameters []struct{ Name, In string }
						Kind       map[string]string `json:"x-kubernetes-group-version-kind"`
						Action     string            `json:"x-kubernetes-action"`
					}
				}
			}
			if err := json.Unmarshal([]byte(body), &doc); err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for _, item := range doc.Paths {
				if item.Patch != nil && item.Patch.Kind["kind"] == kind && item.Patch.Action == "patch" {
					for _, p := range item.Patch.Parameters {
						found[p.In+" "+p.Name] = true
					}
				}
			}
			if !found["query fieldValidation"] || !found["query dryRun"] {
				t.Errorf("the PATCH operations of %s have the parameters %v", kind, found)
			}
			if res, _ := s.Do("GET", url, "", "If-None-Match", res.Header.Get("ETag")); res.StatusCode != http.StatusNotModified {
				t.Errorf("the same again: %s", res.Status)
			}
			old, _, _ := strings.Cut(url, "=")
			if res, _ := s.Do("GET", old+"=OLD", ""); res.Request.URL.RequestURI() != url {
				t.Errorf("an old hash led to %s, want %s", res.Request.URL.RequestURI(), url)
			}
		})
	}
	if res, body := s.Do("GET", "/openapi/v3/apis/none/v1", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("a group that isn't there: %s %s", res.Status, body)
	}
}

func TestHealthAndVersion(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for path, want := range map[string]string{
		"/healthz":                     "ok",
		"/livez":                       "ok",
		"/readyz":                      "ok",
		"/readyz/etcd":                 "ok",
		"/livez?verbose":               "[+]ping ok\n[+]store ok\nlivez check passed\n",
		"/healthz?verbose":             "[+]ping ok\n[+]store ok\n[+]etcd ok\nhealthz check passed\n",
		"/readyz?verbose&exclude=etcd": "[+]ping ok\n[+]store ok\n[+]caches ok\n[+]definitions ok\n[+]serving ok\nreadyz check passed\n",
	} {
		if got := s.Get(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	var version map[string]string
	if err := json.Unmarshal([]byte(s.Get("/version")), &version); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"} {
		if _, ok := version[field]; !ok {
			t.Errorf("/version has no %s", field)
		}
	}
	if !strings.HasPrefix(version["gitVersion"], "v1.37.0-lite+") {
		t.Errorf("gitVersion is %s", version["gitVersion"])
	}
}
