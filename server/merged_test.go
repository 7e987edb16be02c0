package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const mergedPath = "/apiserver-lite/v1/watch?resource=configmaps&resource=widgets.example.com&namespace=default"

// inShort is an event in short, as "ADDED ConfigMap a", and its version. A bookmark that ends the state is "STATE".
func inShort(t *testing.T, line string) (what, version string) {
	t.Helper()
	var e struct {
		Type   string
		Object struct {
			Kind     string
			Code     int
			Metadata struct {
				Name, ResourceVersion string
				Annotations           map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	m := e.Object.Metadata
	switch {
	case e.Object.Code != 0:
		return fmt.Sprint(e.Type, " ", e.Object.Code), ""
	case e.Type == "BOOKMARK" && m.Annotations["k8s.io/initial-events-end"] == "true":
		return "STATE", m.ResourceVersion
	}
	return strings.TrimSpace(e.Type + " " + e.Object.Kind + " " + m.Name), m.ResourceVersion
}

// expectTold compares the next events, and returns the last one's version.
func expectTold(t *testing.T, w *servertest.Stream, want ...string) (version string) {
	t.Helper()
	for _, wanted := range want {
		line, err := w.Next()
		if err != nil {
			t.Fatalf("the stream ended with %v, want %s", err, wanted)
		}
		var got string
		if got, version = inShort(t, line); got != wanted {
			t.Fatalf("it is %q, want %q: %s", got, wanted, line)
		}
	}
	return version
}

func makeConfigMap(s *servertest.Server, name string) {
	s.PostYAML("/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"}}`)
}

// TestMergedWatch: a stream of two kinds has their state, one end of it, and their changes in one order; and it goes on from any version.
func TestMergedWatch(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	makeConfigMap(s, "a")
	w := s.Watch(mergedPath + "&initialEvents=true")
	state := expectTold(t, w, "ADDED ConfigMap a", "ADDED Widget a", "STATE")
	makeConfigMap(s, "b")
	s.PostYAML(widgetsPath, widget("b"))
	s.Do("DELETE", "/api/v1/namespaces/default/configmaps/b", "")
	s.Do("DELETE", widgetsPath+"/a", "")
	all := []string{"ADDED ConfigMap b", "ADDED Widget b", "DELETED ConfigMap b", "DELETED Widget a"}
	second := ""
	for i, want := range all {
		if version := expectTold(t, w, want); i == 1 {
			second = version
		}
	}
	expectTold(t, s.Watch(mergedPath+"&resourceVersion="+state), all...)
	expectTold(t, s.Watch(mergedPath+"&resourceVersion="+second), all[2:]...)
	expectTold(t, s.Watch(mergedPath+"&labelSelector=none&initialEvents=true"), "STATE")
	expectTold(t, s.Watch(mergedPath+"&initialEvents=true&fieldSelector=metadata.name=b"), "ADDED Widget b", "STATE")
	expectTold(t, s.Watch(mergedPath+"&initialEvents=true&lite=true&fieldSelector=metadata.name^=b"), "ADDED Widget b", "STATE")
	expectTold(t, s.Watch(mergedPath+"&initialEvents=true&resource=namespaces"), "ADDED ConfigMap a", "ADDED Widget b", "ADDED Namespace default", "ADDED Namespace kube-node-lease", "ADDED Namespace kube-public", "ADDED Namespace kube-system", "STATE")
	expectTold(t, s.Watch(mergedPath+"&resourceVersion=9000000000"), "ERROR 410")

	now := s.Watch(mergedPath)
	makeConfigMap(s, "c")
	expectTold(t, now, "ADDED ConfigMap c")

	socket := openSocket(t, s, mergedPath+"&initialEvents=true", nil)
	for _, want := range []string{"ADDED a", "ADDED c", "ADDED b", "BOOKMARK "} {
		if e := socket.next(); e.Type+" "+e.Object.Metadata.Name != want {
			t.Errorf("over a WebSocket it's %+v, want %s", e, want)
		}
	}
}

// TestMergedTables: each kind's first event has its columns, and each event says of which resource its row is.
func TestMergedTables(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	makeConfigMap(s, "a")
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+mergedPath+"&initialEvents=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	res, err := s.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	var columns, links []string
	for range 2 {
		lines.Scan()
		var e struct {
			Object struct {
				Metadata          struct{ SelfLink string }
				ColumnDefinitions []struct{ Name string }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		links = append(links, e.Object.Metadata.SelfLink)
		for _, c := range e.Object.ColumnDefinitions {
			columns = append(columns, c.Name)
		}
	}
	if want := []string{"Name", "Data", "Age", "Name", "Age"}; !slices.Equal(columns, want) {
		t.Errorf("the columns are %q, want %q", columns, want)
	}
	if want := []string{"/api/v1/configmaps", "/apis/example.com/v1/widgets"}; !slices.Equal(links, want) {
		t.Errorf("the links are %q, want %q", links, want)
	}
}

// TestMergedServerSent: as of one kind, the state has no ids, and a browser that comes back with its last id misses nothing.
func TestMergedServerSent(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	makeConfigMap(s, "a")
	e := openEventSource(t, s, mergedPath+"&initialEvents=true", "")
	e.expect("ADDED a", "ADDED a", "id #*")
	makeConfigMap(s, "b")
	e.expect("ADDED b #*")
	e.body.Close()
	s.PostYAML(widgetsPath, widget("c"))
	openEventSource(t, s, mergedPath+"&initialEvents=true", e.lastID).expect("ADDED c #*")
	gone := mergedPath + "&resourceVersion=9000000000"
	openEventSource(t, s, gone, "9000000000").expect("ERROR 410 #", "end")
	openEventSource(t, s, gone, "").expect("ADDED a", "ADDED b", "ADDED a", "ADDED c", "id #*")
}

// TestMergedRefusals: what can't be watched is refused by name, before anything is sent.
func TestMergedRefusals(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	many := strings.Repeat("&resource=configmaps", 257)
	for _, test := range []struct {
		query   string
		code    int
		message string // a part
	}{
		{"", 400, "the parameter resource is missing"},
		{"resource=", 404, `names "", which isn't served`},
		{"resource=widgets", 404, `names "widgets", which isn't served`},
		{"resource=widgets.v7.example.com", 404, `names "widgets.v7.example.com", which isn't served`},
		{"resource=configmaps&resource=widgets.v1.example.com&labelSelector=a%20b", 400, "unable to parse requirement"},
		{"resource=configmaps&resource=widgets.example.com&fieldSelector=spec.size=1", 400, "spec.size"},
		{"resource=configmaps&resourceVersion=0", 400, `resourceVersion must be a version that an object, a list or an event has, and is "0": leave it out, or ask for initialEvents=true`},
		{"resource=configmaps&resourceVersion=x", 400, `resourceVersion must be a version that an object, a list or an event has, and is "x": leave it out, or ask for initialEvents=true`},
		{"resource=configmaps&namespace=a/b", 400, "namespace"},
		{"resource=tokenreviews.authentication.k8s.io", 405, "watch is not supported"},
		{strings.TrimPrefix(many, "&"), 400, "257 resources are named"},
	} {
		res, body := s.Do("GET", "/apiserver-lite/v1/watch?"+test.query, "")
		if st := status(t, res, body); res.StatusCode != test.code || !strings.Contains(st.Message, test.message) {
			t.Errorf("%.80s: %d %q, want %d with %q", test.query, res.StatusCode, st.Message, test.code, test.message)
		}
	}
	res, body := s.Do("GET", mergedPath, "", "Accept", "text/plain")
	if st := status(t, res, body); res.StatusCode != http.StatusNotAcceptable || !strings.Contains(st.Message, "text/event-stream") {
		t.Errorf("text: %d %q", res.StatusCode, st.Message)
	}
	res, body = s.Do("POST", mergedPath, "")
	if st := status(t, res, body); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d %q", res.StatusCode, st.Message)
	}
}

// TestMergedDefinition: when a definition changes, the stream ends cleanly, with all that happened until then; and /debug/watchers has a row
// for each kind.
func TestMergedDefinition(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	w := s.Watch(mergedPath)
	var page struct {
		Watchers []struct{ Resource, Namespace string }
	}
	if err := json.Unmarshal([]byte(s.Get("/debug/watchers")), &page); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, row := range page.Watchers {
		rows = append(rows, row.Resource+" "+row.Namespace)
	}
	if slices.Sort(rows); !slices.Equal(rows, []string{"configmaps.v1 default", "widgets.v1.example.com default"}) {
		t.Errorf("the watchers are %q", rows)
	}
	makeConfigMap(s, "a")
	if res, body := s.Do("DELETE", definitionsPath+"/widgets.example.com", ""); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, body)
	}
	expectTold(t, w, "ADDED ConfigMap a", "DELETED Widget a")
	if line, err := w.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("it goes on with %q, %v", line, err)
	}
}

// TestMergedRights: each kind needs the right to watch it, a refusal names the kind, and the stream ends when one right goes.
func TestMergedRights(t *testing.T) {
	t.Parallel()
	s := newRuled(t, server.RecheckSoon)
	s.role("maps", "ann", `[`+aRule("", "configmaps", "watch")+`]`)
	const one, both = "/apiserver-lite/v1/watch?resource=configmaps&namespace=default", "/apiserver-lite/v1/watch?resource=configmaps&resource=secrets&namespace=default"
	s.expect("ann", "GET "+both, "", 403, `secrets is forbidden: User "ann" cannot watch resource "secrets" in API group "" in the namespace "default"`)
	s.expect("ann", "GET /apiserver-lite/v1/watch?resource=configmaps", "", 403, `configmaps is forbidden: User "ann" cannot watch resource "configmaps" in API group "" at the cluster scope`)
	s.expect("bob", "GET "+one, "", 403, `configmaps is forbidden: User "bob" cannot watch resource "configmaps" in API group "" in the namespace "default"`)
	s.expect("", "GET "+one, "", 403, `configmaps is forbidden: User "system:anonymous" cannot watch resource "configmaps" in API group "" in the namespace "default"`)
	const named, nothings = "GET /apiserver-lite/v1/watch?resource=", `nothings.example.com is forbidden: User "bob" cannot watch resource "nothings" in API group "example.com" `
	for _, refused := range []struct{ user, names, message string }{ // what isn't served is refused as what is
		{"bob", "nothings.example.com", nothings + "at the cluster scope"},
		{"bob", "nothings.example.com&namespace=default", nothings + `in the namespace "default"`},
		{"bob", "nothings.v1.example.com", nothings + "at the cluster scope"},
		{"bob", "namespaces&namespace=default", `namespaces is forbidden: User "bob" cannot watch resource "namespaces" in API group "" in the namespace "default"`},
		{"bob", "leases.v1.coordination.k8s.io", `leases.coordination.k8s.io is forbidden: User "bob" cannot watch resource "leases" in API group "coordination.k8s.io" at the cluster scope`},
		{"bob", "", `forbidden: User "bob" cannot watch resource "" in API group "" at the cluster scope`},
		{"ann", "configmaps&namespace=default&resource=nothings.x", `nothings.x is forbidden: User "ann" cannot watch resource "nothings" in API group "x" in the namespace "default"`},
	} {
		s.expect(refused.user, named+refused.names, "", 403, refused.message)
	}
	s.role("nothings", "ann", `[`+aRule("example.com", "nothings", "watch")+`]`)
	for _, name := range []string{"nothings.example.com", "nothings.v1.example.com"} {
		s.expect("ann", named+name+"&namespace=default", "", 404, `the parameter resource names "`+name+`", which isn't served: see /apis, and write it as configmaps, widgets.example.com or widgets.v1.example.com`)
	}
	s.role("secrets", "ann", `[`+aRule("", "secrets", "watch")+`]`)
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+both, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer ann")
	res, err := s.Client.Do(r)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res, err)
	}
	defer res.Body.Close()
	s.expect("root", "DELETE "+rulesInNS+"/rolebindings/secrets", "", 200, "")
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
