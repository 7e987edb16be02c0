package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// boats are custom resources whose schema has a field of each type.
const boats = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              built: {type: string, format: date-time}
              cabins: {type: array, items: {type: object, properties: {beds: {type: integer}, door: {x-kubernetes-int-or-string: true}}}}
              draught: {type: number}
              extra: {type: object, x-kubernetes-preserve-unknown-fields: true}
              flags: {type: object, additionalProperties: {type: string}}
              hull: {type: string}
              sails: {type: boolean}
              size: {type: integer}
`

const boatsPath = "/apis/example.com/v1/namespaces/default/boats"

// boat returns a boat whose spec has these members.
func boat(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Boat","metadata":{"name":%q,"annotations":{"a.b/c":%q}},"spec":{%s}}`, name, name, spec)
}

// newBoats starts a server with four boats.
func newBoats(t *testing.T) *servertest.Server {
	t.Helper()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, boats)
	for name, spec := range map[string]string{
		"ant": `"size":3,"hull":"oak","sails":true,"built":"2001-01-01T00:00:00Z","cabins":[{"beds":1,"door":1},{"beds":2,"door":"left"}]`,
		"bee": `"size":12,"hull":"steel","draught":2.5,"built":"2020-06-01T02:00:00+02:00","flags":{"x-y":"1"}`,
		"cow": `"size":7,"hull":"oak, tarred","cabins":[],"sails":false`,
		"dog": `"hull":"","draught":10`,
	} {
		s.PostYAML(boatsPath, boat(name, spec))
	}
	return s
}

// withLite returns a path with lite=true and a parameter.
func withLite(path, parameter, value string) string {
	return path + "?lite=true&" + parameter + "=" + url.QueryEscape(value)
}

// namesIn lists, and returns the names in the order of the list.
func namesIn(t *testing.T, s *servertest.Server, path string) string {
	t.Helper()
	var l listed
	if err := json.Unmarshal([]byte(s.Get(path)), &l); err != nil {
		t.Fatal(err)
	}
	return l.names()
}

func TestSelectByAnyField(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	for selector, want := range map[string]string{
		"":                                                "ant bee cow dog",
		"spec.size>3":                                     "bee cow",
		".spec.size >= 3 , spec.sails = true":             "ant",
		"spec.size!=3":                                    "bee cow dog",
		"spec.size in (3, 12)":                            "ant bee",
		"spec.size notin (3,12)":                          "cow dog",
		"spec.size":                                       "ant bee cow",
		"!spec.size":                                      "dog",
		"spec.hull^=oak":                                  "ant cow",
		"spec.hull='oak, tarred'":                         "cow",
		`spec.hull=oak\,\ tarred`:                         "cow",
		"spec.hull=":                                      "dog",
		"spec.draught>2.25":                               "bee dog",
		"spec.built>2020-05-31T23:59:59Z":                 "bee",
		"spec.built=2020-06-01T00:00:00Z":                 "bee",
		"spec.cabins[*].beds>1":                           "ant",
		"spec.cabins[*].beds!=2":                          "bee cow dog",
		"spec.cabins[*].door in (1)":                      "ant",
		"spec.cabins":                                     "ant cow",
		"spec.cabins[*]":                                  "ant",
		"spec.flags.x-y=1":                                "bee",
		"metadata.annotations['a.b/c'] in (cow)":          "cow",
		"metadata.name=bee":                               "bee",
		"metadata.name=bee,spec.size=3":                   "",
		"metadata.namespace=other":                        "",
		"metadata.namespace=default,!spec.sails":          "bee dog",
		"metadata.resourceVersion>1":                      "ant bee cow dog",
		"metadata.creationTimestamp>2024-01-01T00:00:00Z": "ant bee cow dog",
		"spec.size=3||spec.size=7,spec.sails=true":        "ant",
		"spec.sails=false||!spec.size":                    "cow dog",
		"spec.size>3,spec.size<3":                         "",
		"spec.extra":                                      "",
	} {
		if got := namesIn(t, s, withLite(boatsPath, "fieldSelector", selector)); got != want {
			t.Errorf("%q selects %q, want %q", selector, got, want)
		}
	}
	const labelled = boatsPath + "?lite=true&labelSelector=x%3Dy&fieldSelector=spec.size"
	if got := namesIn(t, s, labelled); got != "" {
		t.Errorf("with labels, too: %q", got)
	}
	if got := namesIn(t, s, withLite("/apis/example.com/v1/boats", "fieldSelector", "metadata.name=bee||spec.size=3")+"&limit=1"); got != "ant" {
		t.Errorf("the first of two is %q", got)
	}
}

func TestSelectBuiltinKindsByAnyField(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.All })
	for _, name := range []string{"one", "two"} {
		s.PostYAML("/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"},"data":{"key.txt":"`+name+`","n":"1"}}`)
		s.PostYAML("/api/v1/namespaces/default/services", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"`+name+`"},"spec":{"ports":[{"port":80,"name":"`+name+`"},{"port":443,"name":"tls"}]}}`)
	}
	for _, test := range []struct{ kind, selector, want string }{
		{"configmaps", "data['key.txt']=two", "two"},
		{"configmaps", "data.n=1,data['key.txt']!=two,metadata.name!=kube-root-ca.crt", "one"},
		{"configmaps", "!immutable,metadata.name^=t", "two"},
		{"services", "spec.ports[*].name=one", "one"},
		{"services", "spec.ports[*].port>400,metadata.name!=kubernetes", "one two"},
		{"services", "spec.ports[*].targetPort=80,metadata.name=two", "two"},
		{"services", "spec.clusterIP^=10.,metadata.uid,!metadata.labels.component", "one two"},
	} {
		if got := namesIn(t, s, withLite("/api/v1/namespaces/default/"+test.kind, "fieldSelector", test.selector)); got != test.want {
			t.Errorf("%s by %q: %q, want %q", test.kind, test.selector, got, test.want)
		}
	}
}

// TestBadFieldSelectors: what is wrong, where, and what belongs there.
func TestBadFieldSelectors(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	for _, test := range []struct{ parameter, value, want string }{
		{"fieldSelector", "spec.size>", "found '' at position 10, expected an integer"},
		{"fieldSelector", "spec.size>x", "found 'x' at position 10, expected an integer"},
		{"fieldSelector", "spec.size>3&&spec.hull=x", "at position 11, expected ',' or '||' or the end"},
		{"fieldSelector", "spec.hull=x,spec.siez=3", "found spec.siez at position 12, and boats.example.com have no field spec.siez; the nearest is spec.size"},
		{"fieldSelector", "status.phase=x", "have no field status; the nearest is spec"},
		{"fieldSelector", "metadata.labels.app.kubernetes.io/name=x", "have no field metadata.labels.app.kubernetes; a name with dots is written as metadata.labels['app.kubernetes.io/name']"},
		{"fieldSelector", "size=3", "have no field size; the nearest is spec.size"},
		{"fieldSelector", "spec.cabins.beds=3", "write spec.cabins[*].beds"},
		{"fieldSelector", "spec.size[*]=3", "have no field spec.size[*]"},
		{"fieldSelector", "spec.extra.x=3", "have no field spec.extra.x"},
		{"fieldSelector", "spec=3", "found a comparison of 'spec' at position 0, which is an object or a list"},
		{"fieldSelector", "kind=Boat", "the same in all objects"},
		{"fieldSelector", strings.Repeat("spec.size,", 65), "more than 64 comparisons"},
		{"shardSelector", "shardRange(object.metadata.uid, '0x0', '0x8')", "expected a number of 16 hexadecimal digits"},
	} {
		for _, watch := range []string{"", "&watch=true"} {
			path := withLite(boatsPath, test.parameter, test.value) + watch
			res, body := s.Do("GET", path, "")
			if res.StatusCode != http.StatusBadRequest || !strings.Contains(status(t, res, body).Message, test.want) {
				t.Errorf("%s: %s %s, want %q", path, res.Status, body, test.want)
			}
		}
	}
	// Without the parameter all is as Kubernetes has it.
	for selector, want := range map[string]string{
		"spec.size>3": "invalid selector: 'spec.size>3'; can't understand 'spec.size>3'", "spec.size=3": "field label not supported: spec.size",
	} {
		res, body := s.Do("GET", boatsPath+"?fieldSelector="+url.QueryEscape(selector), "")
		if res.StatusCode != http.StatusBadRequest || status(t, res, body).Message != want {
			t.Errorf("%q without lite: %s %s", selector, res.Status, body)
		}
	}
	if got := namesIn(t, s, boatsPath+"?shardSelector=x"); got != "ant bee cow dog" {
		t.Errorf("shardSelector without lite selects %q", got)
	}
}

func TestWatchByAnyField(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	const everywhere = "/apis/example.com/v1/boats" // where a watch is found by the values of its fields
	watches, across := map[string]*servertest.Stream{}, map[string]*servertest.Stream{}
	for _, selector := range []string{"spec.size>5", "spec.hull=pine", "spec.size=1,spec.size=2", "spec.hull in (pine,elm)||spec.sails=true"} {
		watches[selector] = s.Watch(withLite(boatsPath, "fieldSelector", selector) + "&watch=true&resourceVersion=" + boatsVersion(t, s))
		across[selector] = s.Watch(withLite(everywhere, "fieldSelector", selector) + "&watch=true&resourceVersion=" + boatsVersion(t, s))
	}
	s.PostYAML(boatsPath, boat("eel", `"size":6,"hull":"pine"`))
	for _, spec := range []string{`{"size":5}`, `{"size":9}`, `{"hull":"elm"}`, `{"hull":"fir"}`} {
		if res, body := s.Do("PATCH", boatsPath+"/eel", `{"spec":`+spec+`}`, "Content-Type", "application/merge-patch+json"); res.StatusCode >= 300 {
			t.Fatal(res.Status, body)
		}
	}
	s.PostYAML(boatsPath, boat("fox", `"size":1,"hull":"pine","sails":true`))
	if res, body := s.Do("DELETE", boatsPath+"/eel", ""); res.StatusCode >= 300 {
		t.Fatal(res.Status, body)
	}
	for selector, want := range map[string][]string{
		"spec.size>5":    {"ADDED eel", "DELETED eel", "ADDED eel", "MODIFIED eel", "MODIFIED eel", "DELETED eel"},
		"spec.hull=pine": {"ADDED eel", "MODIFIED eel", "MODIFIED eel", "DELETED eel", "ADDED fox"},
		"spec.hull in (pine,elm)||spec.sails=true": {"ADDED eel", "MODIFIED eel", "MODIFIED eel", "MODIFIED eel", "DELETED eel", "ADDED fox"},
	} {
		for i, event := range want {
			if got := next(t, watches[selector]).String(); got != event {
				t.Errorf("%q: event %d is %s, want %s", selector, i, got, event)
			}
			if got := next(t, across[selector]).String(); got != event {
				t.Errorf("%q across namespaces: event %d is %s, want %s", selector, i, got, event)
			}
		}
	}
	if w := s.Watch(withLite(boatsPath, "fieldSelector", "spec.size<5") + "&watch=true"); next(t, w).String() != "ADDED ant" || next(t, w).String() != "ADDED fox" {
		t.Error("the state isn't what is selected")
	}
}

// boatsVersion returns the version of the boats.
func boatsVersion(t *testing.T, s *servertest.Server) string {
	t.Helper()
	var l listed
	if err := json.Unmarshal([]byte(s.Get(boatsPath)), &l); err != nil {
		t.Fatal(err)
	}
	return l.Metadata.ResourceVersion
}

func TestDeleteByAnyField(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	if res, body := s.Do("DELETE", withLite(boatsPath, "fieldSelector", "spec.siez=3"), ""); res.StatusCode != http.StatusBadRequest {
		t.Fatal(res.Status, body)
	}
	if res, body := s.Do("DELETE", withLite(boatsPath, "fieldSelector", "spec.size>5"), ""); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, body)
	}
	if got := namesIn(t, s, boatsPath); got != "ant dog" {
		t.Errorf("%q are left", got)
	}
}

func TestShards(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	seen := ""
	for _, half := range []string{"'0x0000000000000000', '0x8000000000000000'", "'0x8000000000000000', '0x10000000000000000'"} {
		selector := "shardRange(object.metadata.uid, " + half + ")"
		answer := s.Get(withLite(boatsPath, "shardSelector", selector))
		var l struct {
			listed
			Metadata struct{ ShardInfo struct{ Selector string } }
		}
		if err := json.Unmarshal([]byte(answer), &l); err != nil || l.Metadata.ShardInfo.Selector != selector {
			t.Errorf("the shard is called %q (%v)", l.Metadata.ShardInfo.Selector, err)
		}
		seen += " " + l.names()
	}
	for _, name := range []string{"ant", "bee", "cow", "dog"} {
		if strings.Count(seen, name) != 1 {
			t.Errorf("%s isn't in one half: %q", name, seen)
		}
	}
}

func TestSortBy(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	for sortBy, want := range map[string]string{
		".spec.size":                     "ant cow bee dog",
		"-.spec.size":                    "bee cow ant dog",
		"spec.hull":                      "dog ant cow bee",
		"-spec.sails":                    "ant cow bee dog",
		"spec.draught":                   "bee dog ant cow",
		"-spec.cabins[*].beds":           "ant bee cow dog",
		"spec.built":                     "ant bee cow dog",
		"metadata.name":                  "ant bee cow dog",
		"-metadata.annotations['a.b/c']": "dog cow bee ant",
		"metadata.namespace":             "ant bee cow dog",
	} {
		path := withLite(boatsPath, "sortBy", sortBy)
		if got := namesIn(t, s, path); got != want {
			t.Errorf("by %s: %q, want %q", sortBy, got, want)
		}
		for _, limit := range []string{"1", "2", "3"} {
			if got := pagesOf(t, s, path+"&limit="+limit, func() {}); got != want {
				t.Errorf("by %s in pages of %s: %q, want %q", sortBy, limit, got, want)
			}
		}
	}
	if got := namesIn(t, s, withLite(boatsPath, "sortBy", "-spec.size")+"&fieldSelector=spec.size<10&limit=1"); got != "cow" {
		t.Errorf("the largest below 10 is %q", got)
	}
	if got := namesIn(t, s, boatsPath+"?sortBy=-spec.size"); got != "ant bee cow dog" {
		t.Errorf("without lite: %q", got)
	}
	then := boatsVersion(t, s)
	// Pages show one version, whatever is written meanwhile.
	path := withLite(boatsPath, "sortBy", "spec.size") + "&limit=1"
	if got := pagesOf(t, s, path, func() {
		s.Do("DELETE", boatsPath+"/cow", "")
		s.Do("PATCH", boatsPath+"/bee", `{"spec":{"size":1}}`, "Content-Type", "application/merge-patch+json")
	}); got != "ant cow bee dog" {
		t.Errorf("pages while something is written: %q", got)
	}
	old := withLite(boatsPath, "sortBy", "-spec.size") + "&resourceVersionMatch=Exact&resourceVersion=" + then
	if got := namesIn(t, s, old); got != "bee cow ant dog" {
		t.Errorf("an older version is %q", got)
	}
}

// TestSortedHistory: what is sorted of a version that is only in history is bounded in bytes, and a smaller page has room.
func TestSortedHistory(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	for i := range 5 {
		s.PostYAML(boatsPath, boat(fmt.Sprintf("long%d", i), fmt.Sprintf(`"size":%d,"hull":%q`, 100+i, strings.Repeat("x", 1<<20))))
	}
	then := boatsVersion(t, s)
	s.PostYAML(boatsPath, boat("newer", `"size":200`))
	old := withLite(boatsPath, "sortBy", "-spec.size") + "&resourceVersionMatch=Exact&resourceVersion=" + then
	if res, body := s.Do("GET", old, ""); res.StatusCode != http.StatusBadRequest || !strings.Contains(status(t, res, body).Message, "4 MiB of an older version: ask for fewer with a smaller limit") {
		t.Errorf("all of it: %s %.200s", res.Status, body)
	}
	if got := namesIn(t, s, old+"&limit=2"); got != "long4 long3" {
		t.Errorf("a page of it is %q", got)
	}
	if got := namesIn(t, s, withLite(boatsPath, "sortBy", "-spec.size")); !strings.HasPrefix(got, "newer long4 long3") {
		t.Errorf("what is in memory: %q", got)
	}
}

// TestSortByIndex: an order is the same when an index gives it, of all objects, in a namespace and of those that are selected.
func TestSortByIndex(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	const everywhere, boatsIn = "/apis/example.com/v1/boats", "/apis/example.com/v1/namespaces/other/boats"
	s.PostYAML("/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"other"}}`)
	const objects = 1100 // enough for an index
	for i := range objects {
		spec := fmt.Sprintf(`"size":%d,"hull":"%d","cabins":[{"beds":%d},{"beds":%d}]`, i*7%100, i%3, i%50, i*3%70)
		if i%10 == 0 {
			spec = `"hull":"0"` // these come last
		}
		s.PostYAML([]string{boatsPath, boatsIn}[i%2], boat(fmt.Sprintf("b%04d", i), spec))
	}
	for _, sortBy := range []string{"spec.size", "-spec.size", "spec.cabins[*].beds", "-spec.cabins[*].beds"} {
		for _, path := range []string{withLite(everywhere, "sortBy", sortBy), withLite(boatsIn, "sortBy", sortBy), withLite(everywhere, "sortBy", sortBy) + "&fieldSelector=spec.hull!%3D1", withLite(everywhere, "sortBy", sortBy) + "&labelSelector=!x"} {
			whole := namesIn(t, s, path) // which no index gives
			for range 2 {
				if got := pagesOf(t, s, path+"&limit=150", func() {}); got != whole {
					t.Errorf("%s in pages is\n%s, want\n%s", path, got, whole)
				}
			}
			var first struct {
				Metadata struct{ RemainingItemCount int }
			}
			if err := json.Unmarshal([]byte(s.Get(path+"&limit=150")), &first); err != nil {
				t.Fatal(err)
			}
			want := len(strings.Fields(whole)) - 150
			if strings.Contains(path, "Selector") {
				want = 0
			}
			if got := first.Metadata.RemainingItemCount; got != want {
				t.Errorf("%s: %d follow the first page, want %d", path, got, want)
			}
		}
	}
}

// pagesOf reads all pages, and calls between after the first one.
func pagesOf(t *testing.T, s *servertest.Server, path string, between func()) string {
	t.Helper()
	var all []string
	token, version := "", ""
	for {
		var l listed
		if err := json.Unmarshal([]byte(s.Get(path+"&continue="+url.QueryEscape(token))), &l); err != nil {
			t.Fatal(err)
		}
		if version == "" {
			version = l.Metadata.ResourceVersion
			between()
		}
		if l.Metadata.ResourceVersion != version {
			t.Errorf("a page is of version %s, and the first of %s", l.Metadata.ResourceVersion, version)
		}
		all = append(all, l.names())
		if token = l.Metadata.Continue; token == "" {
			return strings.Join(all, " ")
		}
	}
}

func TestBadSortBy(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	sorted := withLite(boatsPath, "sortBy", "spec.size") + "&limit=1"
	var l listed
	if err := json.Unmarshal([]byte(s.Get(sorted)), &l); err != nil {
		t.Fatal(err)
	}
	token := "&continue=" + url.QueryEscape(l.Metadata.Continue)
	for path, want := range map[string]string{
		withLite(boatsPath, "sortBy", "spec.siez"):                       "the nearest is spec.size",
		withLite(boatsPath, "sortBy", "spec"):                            "has no order",
		withLite(boatsPath, "sortBy", "spec.size,spec.hull"):             "a list is sorted by one field",
		withLite(boatsPath, "sortBy", "spec.size") + "&watch=true":       "sortBy is for lists",
		withLite(boatsPath, "sortBy", "-spec.size") + "&limit=1" + token: `it's of a list that is sorted by "spec.size", and not by "-spec.size"`,
		boatsPath + "?limit=1" + token:                                   `it's of a list that is sorted by "spec.size", and not by ""`,
	} {
		if res, body := s.Do("GET", path, ""); res.StatusCode != http.StatusBadRequest || !strings.Contains(status(t, res, body).Message, want) {
			t.Errorf("%s: %s %s, want %q", path, res.Status, body, want)
		}
	}
}

func TestProjection(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	answer := s.Get(withLite(boatsPath, "fields", "spec.size,spec.cabins[*].beds") + "&fieldSelector=spec.size=3")
	var l struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(answer), &l); err != nil || len(l.Items) != 1 {
		t.Fatal(answer, err)
	}
	item := string(l.Items[0])
	before, rest, _ := strings.Cut(item, `"resourceVersion":"`)
	_, after, _ := strings.Cut(rest, `"`)
	const want = `{"apiVersion":"example.com/v1","kind":"Boat","metadata":{"name":"ant","namespace":"default",},"spec":{"cabins":[{"beds":1},{"beds":2}],"size":3}}`
	if before+after != want {
		t.Errorf("of the object is left\n%s, want\n%s with a resourceVersion", before+after, want)
	}
	if whole := s.Get(boatsPath + "?fields=spec.size"); !strings.Contains(whole, `"hull":"oak"`) {
		t.Errorf("without lite fields are left out: %s", whole)
	}

	// Two watches of the same have one view; what they don't show is no event.
	path := withLite(boatsPath, "fields", "spec.size") + "&watch=true&resourceVersion=" + boatsVersion(t, s)
	one, other := s.Watch(path), s.Watch(path+"&fieldSelector=spec.sails=true")
	for _, spec := range []string{`{"hull":"elm"}`, `{"size":4}`, `{"sails":false}`, `{"size":5,"sails":true}`} {
		if res, body := s.Do("PATCH", boatsPath+"/ant", `{"spec":`+spec+`}`, "Content-Type", "application/merge-patch+json"); res.StatusCode >= 300 {
			t.Fatal(res.Status, body)
		}
	}
	s.Do("DELETE", boatsPath+"/ant", "")
	for name, w := range map[string]struct {
		watch *servertest.Stream
		want  []string
	}{"all": {one, []string{`MODIFIED {"size":4}`, `MODIFIED {"size":5}`, `DELETED {"size":5}`}}, "with sails": {other, []string{`MODIFIED {"size":4}`, `DELETED {"size":4}`, `ADDED {"size":5}`, `DELETED {"size":5}`}}} {
		for i, want := range w.want {
			line, err := w.watch.Next()
			var e struct {
				Type   string
				Object struct{ Spec json.RawMessage }
			}
			if json.Unmarshal([]byte(line), &e); err != nil || e.Type+" "+string(e.Object.Spec) != want {
				t.Errorf("%s: event %d is %s (%v), want %s", name, i, line, err, want)
			}
		}
	}
	initial := s.Watch(withLite(boatsPath, "fields", "spec.size") + "&watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&fieldSelector=spec.size=7")
	if added, err := initial.Next(); err != nil || !strings.Contains(added, `"spec":{"size":7}`) {
		t.Errorf("the state is %s (%v)", added, err)
	}
	if end, err := initial.Next(); err != nil || !strings.Contains(end, `"k8s.io/initial-events-end":"true"`) {
		t.Errorf("the state ends with %s (%v)", end, err)
	}
	for path, want := range map[string]string{
		withLite(boatsPath, "fields", "spec.siez"):  "the nearest is spec.size",
		withLite(boatsPath, "fields", "spec.size,"): "expected the name of a field",
	} {
		if res, body := s.Do("GET", path, ""); res.StatusCode != http.StatusBadRequest || !strings.Contains(status(t, res, body).Message, want) {
			t.Errorf("%s: %s %s", path, res.Status, body)
		}
	}
}

// TestCrowdedWatches: more different fields than events may be looked up by are refused, with what to do; who compares the same ones isn't.
func TestCrowdedWatches(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	const everywhere = "/apis/example.com/v1/boats"
	compared := func(first int) string {
		var all []string
		for i := range 8 {
			all = append(all, fmt.Sprintf("spec.flags.f%d=x", first+i))
		}
		return strings.Join(all, "||")
	}
	for i := range 8 {
		s.Watch(withLite(everywhere, "fieldSelector", compared(8*i)) + "&watch=true")
	}
	s.Watch(withLite(everywhere, "fieldSelector", "spec.flags.f1=y") + "&watch=true")
	for _, path := range []string{
		withLite(everywhere, "fieldSelector", "spec.hull=oak") + "&watch=true",
		"/apiserver-lite/v1/watch?resource=configmaps&resource=boats.example.com&lite=true&fieldSelector=metadata.uid=x", // configmaps have room for one
	} {
		res, body := s.Do("GET", path, "")
		st := status(t, res, body)
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" || !strings.Contains(st.Message, "at most 64 different fields") || !strings.Contains(st.Message, "select by a label or in one namespace") {
			t.Errorf("%s: %s %s", path, res.Status, body)
		}
	}
	s.Watch(withLite(boatsPath, "fieldSelector", "spec.hull=oak") + "&watch=true")
}

// TestProjectionForms: fields leave the same of one object and of a list, as JSON and as YAML; what isn't whole objects as JSON is refused, with
// what to do.
func TestProjectionForms(t *testing.T) {
	t.Parallel()
	s := newBoats(t)
	_, one := s.Do("GET", withLite(boatsPath+"/ant", "fields", "spec.size"), "")
	if !strings.Contains(one, `"spec":{"size":3}}`) || strings.Contains(one, "uid") || !strings.Contains(one, `"kind":"Boat"`) {
		t.Errorf("of one object is left %s", one)
	}
	for _, path := range []string{boatsPath, boatsPath + "/ant"} {
		res, body := s.Do("GET", withLite(path, "fields", "spec.size"), "", "Accept", "application/yaml")
		if res.StatusCode != http.StatusOK || !strings.Contains(body, "size: 3") || strings.Contains(body, "hull") || strings.Contains(body, "uid") {
			t.Errorf("as YAML %s is %s", path, body)
		}
	}
	if res, body := s.Do("DELETE", withLite(boatsPath, "fields", "spec.hull")+"&dryRun=All&limit=1&sortBy=-spec.size", ""); res.StatusCode != http.StatusOK || !strings.Contains(body, `"spec":{"hull":"steel"}}`) {
		t.Errorf("a deletion answers %s", body)
	}
	const table, metadata, metadataList = "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	const protobuf = "application/vnd.kubernetes.protobuf"
	const columns, whole, json = "a Table has columns: leave fields out, or ask with Accept: application/json", "ask with Accept: application/json, and for all of it with fields=metadata", "the answer would be protobuf: leave fields out"
	const mapsPath = "/api/v1/namespaces/default/configmaps"
	s.PostYAML(mapsPath, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	for _, test := range []struct{ path, accept, message string }{
		{boatsPath, table, columns},
		{boatsPath + "/ant", table, columns},
		{boatsPath, metadataList, whole},
		{boatsPath + "/ant", metadata, whole},
		{mapsPath, protobuf, json},
		{mapsPath + "/a", protobuf, json},
	} {
		for _, watched := range []string{"", "&watch=true"} {
			accept := test.accept
			if watched != "" {
				accept = strings.Replace(accept, "MetadataList", "Metadata", 1)
			}
			res, body := s.Do("GET", withLite(test.path, "fields", "metadata.name")+watched, "", "Accept", accept)
			if res.StatusCode != http.StatusBadRequest || !strings.Contains(body, test.message) {
				t.Errorf("%s%s as %s: %s %s, want %q", test.path, watched, accept, res.Status, body, test.message)
			}
		}
	}
	if res, body := s.Do("GET", "/apiserver-lite/v1/watch?resource=boats.example.com&lite=true&fields=spec.size", "", "Accept", table); res.StatusCode != http.StatusBadRequest {
		t.Errorf("a watch of several kinds: %s %s", res.Status, body)
	}
	if res, body := s.Do("GET", withLite(boatsPath+"/ant", "sortBy", "spec.size"), ""); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "sortBy is for lists") {
		t.Errorf("an order of one object: %s %s", res.Status, body)
	}
	s.PostYAML(definitionsPath, strings.NewReplacer("boat", "raft", "Boat", "Raft").Replace(boats)+"    subresources: {scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}\n")
	if res, body := s.Do("GET", "/apis/example.com/v1/namespaces/default/rafts/a/scale?lite=true&fields=spec.size", ""); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "and scale is none") {
		t.Errorf("fields of a scale: %s %s", res.Status, body)
	}
}

// TestLiteMisspelt: a value of lite that isn't true or false is refused, so that a deletion takes no more than was meant.
func TestLiteMisspelt(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, lite := range []string{"1", "True", "yes", "true&lite=false"} {
		res, body := s.Do("DELETE", widgetsPath+"?shardSelector=x&lite="+lite, "")
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "the parameter lite must be true or false") {
			t.Errorf("lite=%s: %s %s", lite, res.Status, body)
		}
	}
	if res, body := s.Do("GET", widgetsPath+"/a?lite=false", ""); res.StatusCode != http.StatusOK {
		t.Error(res.Status, body)
	}
}
