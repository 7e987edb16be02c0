package server_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	const form = "application/x-www-form-urlencoded"
	const unknown = "the server could not find the requested resource"
	const page = "404 page" // instead of a Status
	type headers []string
	for _, tc := range []struct {
		name, method, path, body string
		headers                  headers
		code                     int
		reason, message          string
	}{
		{"unknown version", "GET", "/apis/example.com/v2", "", nil, 404, page, ""},
		{"unserved version", "GET", "/apis/example.com/v2/widgets", "", nil, 404, page, ""},
		{"unknown type", "GET", "/apis/example.com/v1/gadgets", "", nil, 404, page, ""},
		{"type in another case", "GET", "/apis/example.com/v1/Widgets", "", nil, 404, page, ""},
		{"custom type under the core group", "GET", "/api/v1/widgets", "", nil, 404, "NotFound", unknown},
		{"unknown subresource", "GET", widgetsPath + "/a/scale", "", nil, 404, "NotFound", `widgets.example.com "a" not found`},
		{"missing object", "GET", widgetsPath + "/b", "", nil, 404, "NotFound", `widgets.example.com "b" not found`},
		{"namespaced object without a namespace", "GET", allWidgets + "/a", "", nil, 404, page, ""},
		{"namespaced object deleted without a namespace", "DELETE", allWidgets + "/a", "", nil, 404, page, ""},
		{"create across namespaces", "POST", allWidgets, widget("x"), nil, 404, page, ""},
		{"put to a collection across namespaces", "PUT", allWidgets, "", nil, 404, page, ""},
		{"empty segment", "GET", "/apis//example.com/v1/widgets", "", nil, 404, page, ""},
		{"cluster object in a namespace", "GET", "/apis/apiextensions.k8s.io/v1/namespaces/default/customresourcedefinitions/widgets.example.com", "", nil, 404, "NotFound", unknown},
		{"namespace in a namespace", "GET", "/api/v1/namespaces/default/namespaces/default", "", nil, 404, "NotFound", unknown},
		{"create in a missing namespace", "POST", "/apis/example.com/v1/namespaces/nowhere/widgets", widget("x"), nil, 404, "NotFound", `namespaces "nowhere" not found`},

		{"delete of all namespaces", "DELETE", "/api/v1/namespaces", "", nil, 405, "MethodNotAllowed", "the server does not allow this method on the requested resource"},
		{"post to an object", "POST", widgetsPath + "/b", widget("a"), nil, 409, "AlreadyExists", `widgets.example.com "a" already exists`}, // it's about that in the body
		{"put to a collection", "PUT", widgetsPath, widget("a"), nil, 400, "BadRequest", "name must be provided"},
		{"delete of a status", "DELETE", widgetsPath + "/a/status", "", nil, 405, "MethodNotAllowed", `delete is not supported on resources of kind "widgets.example.com"`},
		{"post to a status", "POST", widgetsPath + "/a/status", "", nil, 405, "MethodNotAllowed", `create is not supported on resources of kind "widgets.example.com"`},
		{"unknown method", "FROB", widgetsPath, "", nil, 405, "MethodNotAllowed", ""},
		{"options", "OPTIONS", widgetsPath, "", nil, 405, "MethodNotAllowed", ""},
		{"trace", "TRACE", widgetsPath, "", nil, 405, "MethodNotAllowed", ""},
		{"post to discovery", "POST", "/apis", "", nil, 405, "MethodNotAllowed", "only GET"},
		{"post to health", "POST", "/readyz", "", nil, 405, "MethodNotAllowed", "only GET"},

		{"html only", "GET", widgetsPath + "/a", "", headers{"Accept", "text/html"}, 406, "NotAcceptable", "application/json, application/yaml"},
		{"table of an unknown version", "GET", widgetsPath, "", headers{"Accept", "application/json;as=Table;v=v2;g=meta.k8s.io"}, 406, "NotAcceptable", "application/json"},
		{"watch as such a table", "GET", widgetsPath + "?watch=true", "", headers{"Accept", "application/json;as=Table;v=v2;g=meta.k8s.io"}, 406, "NotAcceptable", "application/json"},
		{"table of a question", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`,
			headers{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}, 406, "NotAcceptable", "application/json"},
		{"create that couldn't be answered", "POST", widgetsPath, widget("y"), headers{"Accept", "text/html"}, 406, "NotAcceptable", ""},

		{"text", "POST", widgetsPath, widget("x"), headers{"Content-Type", "text/plain"}, 415, "UnsupportedMediaType", "application/json, application/yaml"},
		{"form", "POST", widgetsPath, "a=b", headers{"Content-Type", form}, 415, "UnsupportedMediaType", "application/json, application/yaml"},
		{"protobuf", "POST", widgetsPath, "k8s\x00", headers{"Content-Type", "application/vnd.kubernetes.protobuf"}, 415, "UnsupportedMediaType", "application/json"},
		{"cbor", "PUT", widgetsPath + "/a", "\xd9\xd9\xf7", headers{"Content-Type", "application/cbor"}, 415, "UnsupportedMediaType", "application/json"},
		{"nonsense type", "POST", widgetsPath, widget("x"), headers{"Content-Type", ";;;"}, 415, "UnsupportedMediaType", "application/json"},
		{"delete with a form", "DELETE", widgetsPath + "/a", "a=b", headers{"Content-Type", form}, 415, "UnsupportedMediaType", "application/json"},
		{"compressed", "POST", widgetsPath, "\x1f\x8b", headers{"Content-Encoding", "gzip"}, 415, "UnsupportedMediaType", "gzip"},
		{"patch without a type", "PATCH", widgetsPath + "/a", "{}", nil, 415, "UnsupportedMediaType", "application/merge-patch+json"},
		{"patch of an unknown type", "PATCH", widgetsPath + "/a", "{}", headers{"Content-Type", "application/json"}, 415, "UnsupportedMediaType", "application/merge-patch+json"},
		{"apply of nothing", "PATCH", widgetsPath + "/a?fieldManager=x", "{}", headers{"Content-Type", "application/apply-patch+yaml"}, 400, "BadRequest", "invalid object type: /, Kind="},
		{"apply by nobody", "PATCH", widgetsPath + "/a", "{}", headers{"Content-Type", "application/apply-patch+yaml"}, 422, "Invalid", "fieldManager"},

		{"large", "POST", widgetsPath, `{"a":"` + strings.Repeat("x", 3<<20) + `"}`, nil, 413, "RequestEntityTooLarge", "3145728 bytes"},
		{"long URI", "GET", "/api/" + strings.Repeat("x", 70_000), "", nil, 414, "BadRequest", "longer than"},

		{"no JSON", "POST", widgetsPath, `{"a":`, nil, 400, "BadRequest", ""},
		{"empty", "POST", widgetsPath, "", nil, 400, "BadRequest", ""},
		{"no object", "POST", widgetsPath, `[]`, nil, 400, "BadRequest", ""},
		{"deep", "POST", widgetsPath, strings.Repeat(`{"a":`, 200_000), nil, 400, "BadRequest", "exceeded max depth"},
		{"deep yaml", "POST", widgetsPath, strings.Repeat("[", 50_000), headers{"Content-Type", "application/yaml"}, 400, "BadRequest", "the object provided is unrecognized"},
		{"deep patch", "PATCH", widgetsPath + "/a", strings.Repeat(`[`, 200_000), headers{"Content-Type", "application/json-patch+json"}, 400, "BadRequest", "invalid JSON patch"},
		{"not UTF-8", "POST", widgetsPath, "{\"a\":\"\xff\"}", nil, 400, "BadRequest", "UTF-8"},
		{"not UTF-8 in a patch", "PATCH", widgetsPath + "/a", "{\"a\":\"\xff\"}", headers{"Content-Type", "application/merge-patch+json"}, 400, "BadRequest", "UTF-8"},
		{"alias bomb", "POST", widgetsPath, "a: &a [x]\nb: [*a,*a]", headers{"Content-Type", "application/yaml"}, 400, "BadRequest", "anchors"},
		{"duplicate yaml key, strictly", "POST", widgetsPath + "?fieldValidation=Strict", "a: 1\na: 2\n", headers{"Content-Type", "application/yaml"}, 400, "BadRequest", `key "a" already set in map`},

		{"query that doesn't parse", "GET", widgetsPath + "?a=%zz", "", nil, 400, "BadRequest", "query"},
		{"semicolon in the query", "GET", widgetsPath + "?a=1;b=2", "", nil, 400, "BadRequest", "query"},
		{"bad selector on a watch", "GET", widgetsPath + "?watch=true&labelSelector=a%3D%3D%3D", "", nil, 400, "BadRequest", ""},
		{"bad version on a watch", "GET", widgetsPath + "?watch=true&resourceVersion=x", "", nil, 500, "", `resourceVersion: Invalid value: "x"`},

		{"encoded slash", "GET", widgetsPath + "/a%2fstatus", "", nil, 400, "BadRequest", "path"},
		{"encoded dots", "GET", widgetsPath + "/%2e%2e/gadgets", "", nil, 400, "BadRequest", "path"},
		{"dots", "GET", widgetsPath + "/../../../../../version", "", nil, 400, "BadRequest", "path"},
		{"NUL", "GET", widgetsPath + "/a%00", "", nil, 400, "BadRequest", "path"},
		{"backslash", "GET", widgetsPath + "/a%5c", "", nil, 400, "BadRequest", "path"},
		{"encoded dots as a namespace", "POST", "/apis/example.com/v1/namespaces/%2e%2e/widgets", widget("x"), nil, 400, "BadRequest", "path"},

		{"foreign host", "GET", "/api", "", headers{"Host", "evil.example"}, 403, "Forbidden", "--allowed-hosts"},
		{"foreign host on an unknown path", "GET", "/nothing", "", headers{"Host", "evil.example"}, 403, "Forbidden", "--allowed-hosts"},
		{"cross-site write", "POST", widgetsPath, widget("x"), headers{"Sec-Fetch-Site", "cross-site"}, 403, "Forbidden", "a web page of another site"},
		{"cross-site deletion", "DELETE", widgetsPath + "/a", "", headers{"Origin", "http://evil.example"}, 403, "Forbidden", "a web page of another site"},
		{"impersonation", "GET", "/api", "", headers{"Impersonate-User", "root"}, 403, "Forbidden", "Impersonate-User"},
		{"front proxy", "GET", "/api", "", headers{"X-Remote-User", "root"}, 403, "Forbidden", "X-Remote-User"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			res, body := s.Do(tc.method, tc.path, tc.body, tc.headers...)
			if tc.reason == page {
				if res.StatusCode != tc.code || body != "404 page not found\n" || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
					t.Errorf("%d %v %s, want a page", res.StatusCode, res.Header, body)
				}
				return
			}
			got := status(t, res, body)
			if res.StatusCode != tc.code || string(got.Reason) != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%d %s %.300q, want %d %s %q", res.StatusCode, got.Reason, got.Message, tc.code, tc.reason, tc.message)
			}
			checkHeaders(t, res)
			if (res.StatusCode == http.StatusMethodNotAllowed) != (res.Header.Get("Allow") != "") {
				t.Errorf("Allow is %q", res.Header.Get("Allow"))
			}
		})
	}
	if got := s.Get(widgetsPath); strings.Count(got, `"kind":"Widget"`) != 1 {
		t.Errorf("one of them wrote something: %s", got)
	}
}

func checkHeaders(t *testing.T, res *http.Response) {
	t.Helper()
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Content-Type": "application/json", "Cache-Control": "no-cache, private"} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if res.Header.Get("Audit-Id") == "" {
		t.Error("there is no Audit-Id")
	}
	for name := range res.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("there is %s", name)
		}
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for path, want := range map[string]string{
		widgetsPath:                           "DELETE, GET, POST",
		widgetsPath + "/a":                    "DELETE, GET, PATCH, POST, PUT",
		"/apis/coordination.k8s.io/v1/leases": "DELETE, GET",
		widgetsPath + "/a/status":             "GET, PATCH, PUT",
		"/api/v1/namespaces/default":          "DELETE, GET, PATCH, PUT",
		"/api/v1/namespaces/default/finalize": "PUT",
		"/apis":                               "GET, HEAD",
	} {
		if res, _ := s.Do("TRACE", path, ""); res.Header.Get("Allow") != want {
			t.Errorf("Allow of %s is %q, want %q", path, res.Header.Get("Allow"), want)
		}
	}
}

// TestDetails: a refusal that is about a resource says which, and about an object whose.
func TestDetails(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, tc := range []struct{ name, method, path, body, want string }{
		{"unknown subresource", "GET", widgetsPath + "/a/other", "", `{"group":"example.com","kind":"widgets","name":"a"}`},
		{"method of a collection", "TRACE", widgetsPath, "", `{"group":"example.com","kind":"widgets"}`},
		{"method of a subresource", "DELETE", widgetsPath + "/a/status", "", `{"group":"example.com","kind":"widgets"}`},
		{"failed precondition", "DELETE", widgetsPath + "/a", `{"preconditions":{"uid":"x"}}`, `{"group":"example.com","kind":"Widget","name":"a"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			_, body := s.Do(tc.method, tc.path, tc.body)
			if got := value(body, "details"); got != tc.want {
				t.Errorf("the details are %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAuditID(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, tc := range []struct {
		name, id string
		echoed   bool
	}{
		{"kept", "f3a1-x", true},
		{"none", "", false},
		{"too long", strings.Repeat("x", 65), false},
		{"not printable", "a\tb", false},
		{"not ASCII", "é", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			res, _ := s.Do("GET", "/version", "", "Audit-Id", tc.id)
			if got := res.Header.Get("Audit-Id"); (got == tc.id) != tc.echoed || got == "" {
				t.Errorf("Audit-Id %q was answered with %q", tc.id, got)
			}
		})
	}
}

func TestErrorsAreNegotiated(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	if res, body := s.Do("GET", widgetsPath+"/b", "", "Accept", "application/yaml"); res.Header.Get("Content-Type") != "application/yaml" || !strings.Contains(body, "reason: NotFound\n") {
		t.Errorf("as YAML: %s %s", res.Header.Get("Content-Type"), body)
	}
	if _, body := s.Do("GET", widgetsPath+"/b", "", "User-Agent", "curl/8"); !strings.HasPrefix(body, "{\n  \"kind\": \"Status\",\n") || !strings.HasSuffix(body, "\n}") {
		t.Errorf("for curl: %s", body)
	}
}

// TestNoPage: a path that leads to nothing of the API has a page of text, as kube-apiserver's, and no Status.
func TestNoPage(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, path := range []string{"/nothing", "/apis/other.example.com", "/apis/other.example.com/v1/things", "/apis/core/v1/namespaces", widgetsPath + "/a/status/x", "/readyz/nothing", "/debug/pprof/",
		"/metrics/", "/healthz/", "/livez/ping/", "/openapi/v2/"} {
		if res, body := s.Do("GET", path, ""); res.StatusCode != 404 || body != "404 page not found\n" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("GET %s: %s, %q of %s", path, res.Status, body, res.Header.Get("Content-Type"))
		}
	}
	for _, path := range []string{"/version/", "/api/", "/apis/", "/apis/example.com/", "/apis/example.com/v1/", widgetsPath + "/", "/index.html"} {
		if res, body := s.Do("GET", path, ""); res.StatusCode != 200 {
			t.Errorf("GET %s: %s, %q", path, res.Status, body)
		}
	}
}
