package server_test

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// listed is what a test looks at in a list.
type listed struct {
	Kind     string
	Metadata struct {
		ResourceVersion, Continue string
		RemainingItemCount        *int64
	}
	Items []struct {
		Metadata struct{ Name, ResourceVersion string }
	}
}

func (l *listed) names() string {
	var names []string
	for _, i := range l.Items {
		names = append(names, i.Metadata.Name)
	}
	return strings.Join(names, " ")
}

func list(t *testing.T, s *servertest.Server, path string) *listed {
	t.Helper()
	var l listed
	if err := json.Unmarshal([]byte(s.Get(path)), &l); err != nil {
		t.Fatal(err)
	}
	if l.Kind != "WidgetList" || l.Items == nil {
		t.Fatalf("%+v", l)
	}
	return &l
}

// TestListVersions is the table of what resourceVersion, resourceVersionMatch, limit and continue mean
// together, as the Kubernetes API has it.
func TestListVersions(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, name := range []string{"b", "c"} {
		s.PostYAML(widgetsPath, widget(name))
	}
	at := list(t, s, widgetsPath) // where a, b and c were all
	token := url.QueryEscape(list(t, s, widgetsPath+"?limit=1").Metadata.Continue)
	s.PostYAML(widgetsPath, widget("d"))
	n, now := at.Metadata.ResourceVersion, list(t, s, widgetsPath).Metadata.ResourceVersion
	const future = "999999999"

	for _, tc := range []struct {
		version, match, limit, token string

		code    int
		names   string // of a 200
		rv      string // of a 200
		message string // a part, of any other
	}{
		{"", "", "", "", 200, "a b c d", now, ""},
		{"", "", "2", "", 200, "a b", now, ""},
		{"", "", "", token, 200, "b c", n, ""},
		{"", "", "1", token, 200, "b", n, ""},
		{"", "Exact", "", "", 422, "", "", "resourceVersionMatch is forbidden unless resourceVersion is provided"},
		{"", "NotOlderThan", "", "", 422, "", "", "resourceVersionMatch is forbidden unless resourceVersion is provided"},
		{"", "Exact", "", token, 422, "", "", "resourceVersionMatch is forbidden when continue is provided"},
		{"", "NotOlderThan", "2", token, 422, "", "", "resourceVersionMatch is forbidden when continue is provided"},
		{"0", "", "", "", 200, "a b c d", now, ""},
		{"0", "", "2", "", 200, "a b c d", now, ""},
		{"0", "NotOlderThan", "", "", 200, "a b c d", now, ""},
		{"0", "NotOlderThan", "2", "", 200, "a b c d", now, ""},
		{"0", "Exact", "", "", 422, "", "", `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{"0", "Exact", "2", "", 422, "", "", `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{"0", "", "1", token, 200, "b c", n, ""},
		{n, "", "", "", 200, "a b c d", now, ""},
		{n, "", "2", "", 200, "a b", n, ""},
		{n, "", "9", "", 200, "a b c", n, ""},
		{n, "NotOlderThan", "", "", 200, "a b c d", now, ""},
		{n, "NotOlderThan", "3", "", 200, "a b c", now, ""},
		{n, "Exact", "", "", 200, "a b c", n, ""},
		{n, "Exact", "2", "", 200, "a b", n, ""},
		{n, "", "", token, 400, "", "", "specifying resource version is not allowed when using continue"},
		{n, "", "1", token, 400, "", "", "specifying resource version is not allowed when using continue"},
		{n, "Exact", "", token, 422, "", "", "resourceVersionMatch is forbidden when continue is provided"},
		{n, "NotOlderThan", "", token, 422, "", "", "resourceVersionMatch is forbidden when continue is provided"},
		{"0", "NotOlderThan", "", token, 422, "", "", "resourceVersionMatch is forbidden when continue is provided"},
		{n, "Nearly", "", "", 422, "", "", `resourceVersionMatch: Unsupported value: "Nearly"`},
		{future, "", "", "", 504, "", "", "Too large resource version: " + future + ", current: "},
		{future, "", "2", "", 504, "", "", "Too large resource version: " + future + ", current: "},
		{future, "NotOlderThan", "", "", 504, "", "", "Too large resource version: " + future + ", current: "},
		{future, "Exact", "", "", 504, "", "", "Too large resource version: " + future + ", current: "},
		{"x", "", "", "", 400, "", "", "invalid resource version: "},
		{"-1", "", "", "", 400, "", "", "invalid resource version: "},
		{"", "", "-1", "", 200, "a b c d", now, ""},
		{"", "", "many", "", 400, "", "", `strconv.ParseInt: parsing "many": invalid syntax`},
		{"", "", "", "garbage", 400, "", "", "invalid continue token"},
	} {
		query := fmt.Sprintf("?resourceVersion=%s&resourceVersionMatch=%s&limit=%s&continue=%s", tc.version, tc.match, tc.limit, tc.token)
		t.Run(query, func(t *testing.T) {
			s := s.In(t)
			t.Parallel()
			if tc.code == http.StatusOK {
				if l := list(t, s, widgetsPath+query); l.names() != tc.names || l.Metadata.ResourceVersion != tc.rv {
					t.Errorf("got %s at %s, want %s at %s", l.names(), l.Metadata.ResourceVersion, tc.names, tc.rv)
				}
				return
			}
			res, body := s.Do("GET", widgetsPath+query, "")
			got := status(t, res, body)
			if res.StatusCode != tc.code || !strings.Contains(got.Message, tc.message) {
				t.Fatalf("%s %q, want %d %q", res.Status, got.Message, tc.code, tc.message)
			}
			switch tc.code {
			case http.StatusUnprocessableEntity:
				if got.Reason != "Invalid" || got.Details.Kind != "ListOptions" || got.Details.Group != "meta.k8s.io" {
					t.Errorf("%s, %+v", got.Reason, got.Details)
				}
			case http.StatusGatewayTimeout:
				if res.Header.Get("Retry-After") != "1" || got.Reason != "Timeout" || got.Details.Causes[0].Type != "ResourceVersionTooLarge" {
					t.Errorf("Retry-After %s, %+v", res.Header.Get("Retry-After"), got)
				}
			}
		})
	}
	res, body := s.Do("GET", widgetsPath+"?sendInitialEvents=true", "")
	if got := status(t, res, body); res.StatusCode != 422 || !strings.Contains(got.Message, "sendInitialEvents is forbidden for list") {
		t.Errorf("initial events of a list: %s %s", res.Status, got.Message)
	}
	for query, code := range map[string]int{"": 200, "?resourceVersion=0": 200, "?resourceVersion=" + now: 200, "?resourceVersion=x": 500, "?resourceVersion=" + future: 504} {
		if res, body := s.Do("GET", widgetsPath+"/d"+query, ""); res.StatusCode != code {
			t.Errorf("get %s: %s %s, want %d", query, res.Status, body, code)
		}
	}
}

// TestPages reads a list page by page while objects come and go.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, name := range []string{"b", "c", "d", "e"} {
		s.PostYAML(widgetsPath, strings.Replace(widget(name), `"name"`, `"labels":{"x":"y"},"name"`, 1))
	}
	first := list(t, s, widgetsPath)
	path := widgetsPath + "?limit=2"
	var pages []*listed
	for token := "-"; token != ""; {
		l := list(t, s, path)
		pages = append(pages, l)
		token = l.Metadata.Continue
		path = widgetsPath + "?limit=2&continue=" + token
		s.Do("DELETE", widgetsPath+"/"+[]string{"c", "a", "e"}[len(pages)-1], "")
		s.PostYAML(widgetsPath, widget([]string{"bb", "dd", "f"}[len(pages)-1]))
	}
	for i, want := range []struct {
		names     string
		remaining int64
	}{{"a b", 3}, {"c d", 1}, {"e", 0}} {
		p := pages[i]
		if p.names() != want.names || p.Metadata.ResourceVersion != first.Metadata.ResourceVersion {
			t.Errorf("page %d: %s at %s", i, p.names(), p.Metadata.ResourceVersion)
		}
		if got := p.Metadata.RemainingItemCount; (got == nil) != (want.remaining == 0) || got != nil && *got != want.remaining {
			t.Errorf("page %d: %v remain, want %d", i, got, want.remaining)
		}
	}
	text, err := base64.RawURLEncoding.DecodeString(pages[0].Metadata.Continue)
	if want := `{"v":"meta.k8s.io/v1","rv":` + first.Metadata.ResourceVersion + `,"start":"/b\u0000"}`; err != nil || string(text) != want {
		t.Errorf("the token is %s, want %s", text, want)
	}
	if l := list(t, s, widgetsPath+"?limit=1&labelSelector=x"); l.names() != "b" || l.Metadata.Continue == "" || l.Metadata.RemainingItemCount != nil {
		t.Errorf("with a selector: %+v", l)
	}
}

// TestCompressedAnswers asks for large and small answers in both encodings.
func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	large := strings.Replace(widget("large"), `"size":1`, `"text":"`+strings.Repeat("lorem ipsum ", 20_000)+`"`, 1)
	s.PostYAML(widgetsPath, large)
	s.Client.Transport.(*http.Transport).DisableCompression = true // it would hide what we look at
	for _, tc := range []struct {
		path, accept string
		compressed   bool
	}{
		{widgetsPath, "gzip", true},
		{widgetsPath, "gzip, deflate, br", true},
		{widgetsPath, "*", true},
		{widgetsPath, "gzip;q=0.5, identity;q=0.1", true},
		{widgetsPath, "", false},
		{widgetsPath, "gzip;q=0", false},
		{widgetsPath, "*;q=0", false},
		{widgetsPath, "gzip;q=0, *", false},
		{widgetsPath, "identity, gzip;q=0.5", false},
		{widgetsPath, "br", false},
		{widgetsPath + "?pretty=true", "gzip", true},
		{widgetsPath + "?limit=1", "gzip", false}, // small
		{widgetsPath + "/large", "gzip", true},
		{widgetsPath + "/large?pretty=true", "gzip", true},
		{widgetsPath + "/large", "", false},
		{widgetsPath + "/a", "gzip", false},
	} {
		t.Run(tc.path+" "+tc.accept, func(t *testing.T) {
			s := s.In(t)
			plain := s.Get(tc.path)
			res, body := s.Do("GET", tc.path, "", "Accept-Encoding", tc.accept)
			if got := res.Header.Get("Content-Encoding") == "gzip"; got != tc.compressed {
				t.Fatalf("Content-Encoding is %q", res.Header.Get("Content-Encoding"))
			}
			if got := strings.Join(res.Header.Values("Vary"), ", "); !strings.Contains(got, "Accept-Encoding") {
				t.Errorf("Vary is %q", got)
			}
			if tc.compressed {
				if len(body) > len(plain)/10 {
					t.Errorf("%d bytes were compressed to %d", len(plain), len(body))
				}
				z, err := gzip.NewReader(strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				all, err := io.ReadAll(z)
				if err != nil {
					t.Fatal(err)
				}
				body = string(all)
			}
			if body != plain {
				t.Errorf("%d bytes, want the same %d", len(body), len(plain))
			}
		})
	}
	w := s.Watch(widgetsPath + "?watch=true")
	if line, err := w.Next(); err != nil || !json.Valid([]byte(line)) {
		t.Errorf("a watch: %v", err)
	}
}

// TestPackedLists: a large list that several ask for is the same however it comes: from the first request on, which compresses it, and to the third, which
// gets what the second has left. So it is after each write.
func TestPackedLists(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.Client.Transport.(*http.Transport).DisableCompression = true
	text := strings.Repeat("lorem ipsum ", 1000)
	for i := range 30 {
		s.PostYAML(widgetsPath, strings.Replace(widget(fmt.Sprintf("w%d", i)), `"metadata":{`, fmt.Sprintf(`"metadata":{"labels":{"odd":"%t"},"annotations":{"a":"%s"},`, i%2 == 1, text), 1))
	}
	get := func(t *testing.T, path, accept string, encoding ...string) (body string, packed bool) {
		t.Helper()
		res, body := s.In(t).Do("GET", path, "", append([]string{"Accept", accept}, encoding...)...)
		if res.StatusCode != http.StatusOK || (res.Header.Get("Content-Encoding") == "gzip") != (encoding != nil) {
			t.Fatalf("%s with %q is %s, encoded as %q", path, accept, res.Status, res.Header.Get("Content-Encoding"))
		}
		if encoding == nil {
			return body, false
		}
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		z.Multistream(false)
		all, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return string(all), res.ContentLength > 0 // what is compressed while it's sent has no length
	}
	for _, step := range []struct {
		name    string
		change  func()
		forgets bool // what was packed
	}{
		{"at first", func() {}, true},
		{"unchanged", func() {}, false},
		{"another kind is written", func() {
			s.PostYAML("/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"other"}}`)
		}, false},
		{"an object is created", func() { s.PostYAML(widgetsPath, widget("new")) }, true},
		{"an object changes", func() {
			s.Do("PATCH", widgetsPath+"/w7", `{"metadata":{"annotations":{"b":"1"}}}`, "Content-Type", "application/merge-patch+json")
		}, true},
		{"an object is deleted", func() { s.Do("DELETE", widgetsPath+"/w3", "") }, true},
	} {
		step.change()
		s.Quiescent() // nothing is written any more, so that lists have one version
		for _, form := range []struct {
			path, accept string
			never        bool // it's packed
		}{
			{widgetsPath, "application/json", false},
			{widgetsPath + "?resourceVersion=0", "application/json", false},
			{widgetsPath + "?limit=20", "application/json", false},
			{widgetsPath + "?labelSelector=odd%3Dtrue", "application/json", false},
			{"/apis/example.com/v1/widgets", "application/json", false},
			{widgetsPath, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", false},
			{widgetsPath, partialsProto, false},
			{widgetsPath, "application/json;as=Table;g=meta.k8s.io;v=v1", true},
			{widgetsPath + "?pretty=true", "application/json", true},
		} {
			t.Run(step.name+" "+form.path+" "+form.accept, func(t *testing.T) {
				plain, _ := get(t, form.path, form.accept)
				for n := range 4 {
					body, packed := get(t, form.path, form.accept, "Accept-Encoding", "gzip")
					if table := strings.Contains(form.accept, "Table"); body != plain && !table { // which tells ages
						t.Fatalf("answer %d differs: %d and %d bytes", n, len(body), len(plain))
					}
					if want := !form.never && (n > 0 || !step.forgets); packed != want {
						t.Errorf("answer %d comes from what was packed: %t, want %t", n, packed, want)
					}
				}
			})
		}
	}
}

func TestConditionalReads(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	path := widgetsPath + "/a"
	etag := func(headers ...string) string {
		t.Helper()
		res, _ := s.Do("GET", path, "", headers...)
		tag := res.Header.Get("ETag")
		if tag == "" {
			t.Fatalf("no ETag: %v", res.Header)
		}
		for _, known := range []string{tag, `"x", ` + tag, "W/" + tag, "*"} {
			res, body := s.Do("GET", path, "", append(headers, "If-None-Match", known)...)
			if res.StatusCode != http.StatusNotModified || body != "" || res.Header.Get("ETag") != tag {
				t.Errorf("with %s: %s %v %s", known, res.Status, res.Header, body)
			}
		}
		return tag
	}
	tags := map[string]bool{
		etag():                             true,
		etag("Accept", "application/yaml"): true,
		etag("User-Agent", "curl/8"):       true,
		etag("Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"): true,
	}
	if len(tags) != 4 {
		t.Errorf("different forms share tags: %v", tags)
	}
	before := etag()
	if version, _, _ := strings.Cut(before, "-"); !strings.Contains(s.Get(path), `"resourceVersion":`+version+`"`) {
		t.Errorf("%s isn't of the version of %s", before, s.Get(path))
	}
	s.Do("PATCH", path, `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	if res, body := s.Do("GET", path, "", "If-None-Match", before); res.StatusCode != http.StatusOK || !strings.Contains(body, `"size":2`) {
		t.Errorf("after a change: %s %s", res.Status, body)
	}
	if res, _ := s.Do("GET", path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"); res.Header.Get("ETag") != "" {
		t.Error("a table, which shows ages, has an ETag")
	}
	if res, _ := s.Do("GET", widgetsPath+"/missing", "", "If-None-Match", "*"); res.StatusCode != http.StatusNotFound {
		t.Errorf("what isn't there: %s", res.Status)
	}
}

func TestHead(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for path, code := range map[string]int{
		widgetsPath + "/a": 200, widgetsPath: 200, allWidgets: 200, widgetsPath + "/missing": 404, widgetsPath + "?watch=true": 405,
		"/api/v1/gadgets": 404, widgetsPath + "/a/status": 200,
	} {
		res, body := s.Do("HEAD", path, "")
		if res.StatusCode != code || body != "" || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s %v %q, want %d", path, res.Status, res.Header, body, code)
		}
	}
	get, body := s.Do("GET", widgetsPath+"/a", "")
	head, _ := s.Do("HEAD", widgetsPath+"/a", "")
	if head.ContentLength != int64(len(body)) || head.Header.Get("ETag") != get.Header.Get("ETag") {
		t.Errorf("HEAD says %v, GET %v", head.Header, get.Header)
	}
	if res, _ := s.Do("HEAD", widgetsPath+"/a", "", "If-None-Match", get.Header.Get("ETag")); res.StatusCode != http.StatusNotModified {
		t.Errorf("conditional: %s", res.Status)
	}
}
