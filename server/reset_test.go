package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const (
	namespacesPath = "/api/v1/namespaces"
	mapsPath       = "/api/v1/namespaces/default/configmaps"
)

// stored is what a server holds, by resource and name, without resourceVersions, and the largest of these.
func stored(t testing.TB, s *servertest.Server, paths ...string) (objects map[string]string, newest int64) {
	t.Helper()
	objects = map[string]string{}
	for _, path := range paths {
		var l unstructured.UnstructuredList
		if err := l.UnmarshalJSON([]byte(s.Get(path))); err != nil {
			t.Fatal(err)
		}
		for _, o := range l.Items {
			rev, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			newest = max(newest, rev)
			o.SetResourceVersion("")
			b, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			objects[path+" "+o.GetNamespace()+"/"+o.GetName()] = string(b)
		}
	}
	return objects, newest
}

func listOf(t *testing.T, s *servertest.Server, path string) listed {
	t.Helper()
	return decode[listed](t, s.Get(path))
}

func namesOf(t *testing.T, s *servertest.Server, path string) string {
	t.Helper()
	l := listOf(t, s, path)
	return l.names()
}

// compare fails the test if a server holds something else than it should.
func compare(t testing.TB, got, want map[string]string) {
	t.Helper()
	for name, object := range want {
		if got[name] != object {
			t.Errorf("%s is\n%s\nwant\n%s", name, got[name], object)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is left", name)
		}
	}
}

// TestReset: a reset takes the server back to how it started.
func TestReset(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	start, _ := stored(t, s, namespacesPath, definitionsPath)
	discovery := s.Get("/apis")
	for range 2 { // the second time with the same names
		s.PostYAML(definitionsPath, gizmosDefinition())
		s.PostYAML(gizmosPath, applied("a", ""))
		s.PostYAML(gizmosPath, applied("held", `,"finalizers":["x.y/z"]`))
		s.PostYAML(namespacesPath, "metadata: {name: shop, finalizers: [x.y/z]}")
		send(t, s, 200, "PATCH", namespacesPath+"/default", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`)
		send(t, s, 200, "DELETE", gizmosPath+"/held", "", "")
		send(t, s, 200, "DELETE", namespacesPath+"/shop", "", "")
		send(t, s, 200, "DELETE", namespacesPath+"/kube-node-lease", "", "")
		_, before := stored(t, s, namespacesPath, definitionsPath)

		s.Reset()
		got, after := stored(t, s, namespacesPath, definitionsPath)
		compare(t, got, start)
		if after <= before {
			t.Errorf("the newest resourceVersion was %d and is %d", before, after)
		}
		if now := s.Get("/apis"); now != discovery {
			t.Errorf("discovery is %s, and was %s", now, discovery)
		}
		res, body := s.Do("GET", gizmosPath, "")
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("the definition's objects: %s %s", res.Status, body)
		}
	}
}

// TestResetTo: a reset to a snapshot brings back objects that were changed or deleted, and takes those that are new.
func TestResetTo(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	paths := []string{namespacesPath, definitionsPath, gizmosPath}
	s.PostYAML(gizmosPath, applied("kept", ""))
	s.PostYAML(gizmosPath, applied("changed", ""))
	s.PostYAML(gizmosPath, applied("deleted", ""))
	s.Snapshot("some")
	some, _ := stored(t, s, paths...)
	kept := value(s.Get(gizmosPath+"/kept"), "metadata.resourceVersion")

	send(t, s, 200, "PATCH", gizmosPath+"/changed", mergePatch, `{"spec":{"size":"L"}}`)
	send(t, s, 200, "DELETE", gizmosPath+"/deleted", "", "")
	s.PostYAML(gizmosPath, applied("new", ""))
	s.Snapshot("other")
	other, before := stored(t, s, paths...)

	s.ResetTo("some")
	got, after := stored(t, s, paths...)
	compare(t, got, some)
	for _, name := range []string{"changed", "deleted"} {
		if rev, _ := strconv.ParseInt(value(s.Get(gizmosPath+"/"+name), "metadata.resourceVersion"), 10, 64); rev <= before || rev != after {
			t.Errorf("%s has the resourceVersion %d: the newest was %d and is %d", name, rev, before, after)
		}
	}
	if rev := value(s.Get(gizmosPath+"/kept"), "metadata.resourceVersion"); rev != kept {
		t.Errorf("what wasn't changed had the resourceVersion %s and has %s", kept, rev)
	}
	s.ResetTo("other")
	got, _ = stored(t, s, paths...)
	compare(t, got, other)
	s.Reset()
	s.ResetTo("some") // also after a reset that took the definition
	got, _ = stored(t, s, paths...)
	compare(t, got, some)
	s.PostYAML(gizmosPath, applied("new", ""))
	s.Snapshot("some") // a name may be used again
	s.Reset()
	s.ResetTo("some")
	s.Get(gizmosPath + "/new")
}

// TestResetRefusals: what is no reset of this server.
func TestResetRefusals(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.None }) // it counts the objects that are there
	lasting := servertest.New(t, func(s *server.Server) { s.Data.Ephemeral = false })
	for _, tc := range []struct {
		name, method, path string
		to                 *servertest.Server
		code               int
		want               string
	}{
		{"not ephemeral", "POST", "/debug/reset", lasting, 404, "only a server with --ephemeral can be reset"},
		{"not ephemeral, snapshot", "POST", "/debug/snapshot?name=a", lasting, 404, "only a server with --ephemeral"},
		{"unknown", "POST", "/debug/reset?to=a", s, 404, `there is no snapshot \"a\"`},
		{"no name to go to", "POST", "/debug/reset?to=", s, 400, "to must be given once, and be a name"},
		{"no name", "POST", "/debug/snapshot", s, 400, "name must be given once"},
		{"two names", "POST", "/debug/snapshot?name=a&name=b", s, 400, "name must be given once"},
		{"a space", "POST", "/debug/snapshot?name=a%20b", s, 400, "letters, digits"},
		{"a path", "POST", "/debug/reset?to=../a", s, 400, "letters, digits"},
		{"too long", "POST", "/debug/snapshot?name=" + strings.Repeat("a", 64), s, 400, "1 to 63"},
		{"the longest", "POST", "/debug/snapshot?name=" + strings.Repeat("a", 63), s, 200, `"objects":4`},
		{"a name for a reset", "POST", "/debug/reset?name=b", s, 400, `there is no parameter \"name\" here, only to`},
		{"a misspelt parameter", "POST", "/debug/reset?T0=b", s, 400, `there is no parameter \"T0\" here, only to`},
		{"one parameter more", "POST", "/debug/reset?to=" + strings.Repeat("a", 63) + "&dryRun=All", s, 400, `\"dryRun\" here`},
		{"a snapshot to go to", "POST", "/debug/snapshot?name=a&to=b", s, 400, `there is no parameter \"to\" here, only name`},
		{"a bad query", "POST", "/debug/reset?to=%zz", s, 400, "the query doesn't parse"},
		{"GET", "GET", "/debug/reset", s, 405, "only POST is served here"},
		{"PUT", "PUT", "/debug/snapshot?name=a", s, 405, "only POST is served here"},
		{"reset", "POST", "/debug/reset", s, 200, `"resourceVersion":"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, body := tc.to.Do(tc.method, tc.path, "")
			if res.StatusCode != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("%s: %s, want %d and %s", res.Status, body, tc.code, tc.want)
			}
			if tc.code != http.StatusOK {
				status(t, res, body)
			}
		})
	}
	for _, path := range []string{"/debug/reset", "/debug/snapshot?name=a"} {
		res, body := s.Do("POST", path, `{"to":"a"}`)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "this takes no body") {
			t.Errorf("%s with a body: %s %s", path, res.Status, body)
		}
		status(t, res, body)
	}
	for i := 1; i < 64; i++ { // with the one of the longest name
		s.Snapshot("state-" + strconv.Itoa(i))
	}
	if res, body := s.Do("POST", "/debug/snapshot?name=more", ""); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "there are 64 snapshots") {
		t.Errorf("one more snapshot: %s %s", res.Status, body)
	}
	s.Snapshot("state-1")
}

// TestResetEndsWatches: watches are told 410 and nothing of the reset, and nothing reaches back before it.
func TestResetEndsWatches(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	s.Snapshot("empty")
	for i := range 5 {
		s.PostYAML(gizmosPath, applied(fmt.Sprintf("g%d", i), ""))
	}
	old := listOf(t, s, gizmosPath+"?limit=2")
	at := old.Metadata.ResourceVersion
	var watches []*servertest.Stream
	for _, path := range []string{
		gizmosPath + "?watch=true&resourceVersion=" + at,
		gizmosPath + "?watch=true&labelSelector=nobody",
		namespacesPath + "?watch=true&resourceVersion=" + at,
		definitionsPath + "?watch=true&allowWatchBookmarks=true&resourceVersion=" + at,
	} {
		watches = append(watches, s.Watch(path))
	}
	const gone = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"The resourceVersion for the provided watch is too old.","reason":"Expired","code":410}}`
	s.ResetTo("empty")
	for i, w := range watches {
		if line, err := w.Next(); line != gone || err != nil {
			t.Errorf("watch %d: %s, %v", i, line, err)
		}
		if line, err := w.Next(); err != io.EOF {
			t.Errorf("watch %d goes on: %s, %v", i, line, err)
		}
	}
	w := s.Watch(gizmosPath + "?watch=true&resourceVersion=" + at)
	if line, err := w.Next(); err != nil || !strings.Contains(line, `"type":"ERROR"`) || !strings.Contains(line, `"code":410`) {
		t.Errorf("a watch from before the reset: %s, %v", line, err)
	}
	for _, query := range []string{"?resourceVersionMatch=Exact&resourceVersion=" + at, "?limit=2&continue=" + old.Metadata.Continue} {
		if res, body := s.Do("GET", gizmosPath+query, ""); res.StatusCode != http.StatusGone {
			t.Errorf("%s: %s %s", query, res.Status, body)
		}
	}
	now := listOf(t, s, gizmosPath+"?resourceVersion="+at) // at least as new
	if now.names() != "" {
		t.Errorf("%s are left", now.names())
	}
	w = s.Watch(gizmosPath + "?watch=true&resourceVersion=" + now.Metadata.ResourceVersion)
	s.PostYAML(gizmosPath, applied("new", ""))
	if line, err := w.Next(); err != nil || !strings.Contains(line, `"type":"ADDED"`) || !strings.Contains(line, `"name":"new"`) {
		t.Errorf("a watch from after the reset: %s, %v", line, err)
	}
}

// TestResetDefinitions: the objects that come back are served as their definition says, also those that are older than it.
func TestResetDefinitions(t *testing.T) {
	t.Parallel()
	definition := func(schema string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"parts.example.com"},
			"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"parts","kind":"Part"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",
			"properties":{"size":{"type":"integer"}` + schema + `}}}}}}]}}`
	}
	const parts = "/apis/example.com/v1/parts"
	s := servertest.New(t)
	made := s.PostYAML(definitionsPath, definition(""))
	s.PostYAML(parts, "{apiVersion: example.com/v1, kind: Part, metadata: {name: old}, spec: {size: 1}}")
	patch := func(schema string) {
		t.Helper()
		send(t, s, 200, "PATCH", definitionsPath+"/parts.example.com", mergePatch, `{"spec":`+memberOf(t, definition(schema), "spec")+`}`)
	}
	s.Snapshot("before")
	patch(`,"color":{"type":"string","default":"red"}`)
	check(t, s.Get(parts+"/old"), "spec.color=red")
	s.Snapshot("colored")
	send(t, s, 200, "PATCH", parts+"/old", mergePatch, `{"spec":{"size":2,"color":"blue"}}`)
	s.ResetTo("colored") // the object is older than its definition
	check(t, s.Get(parts+"/old"), "spec.size=1 spec.color=red")
	s.ResetTo("before")
	check(t, s.Get(parts+"/old"), "spec.size=1")
	if body := s.Get(parts + "/old"); strings.Contains(body, "color") {
		t.Errorf("the object has what its definition lacks: %s", body)
	}
	if uid := value(s.Get(definitionsPath+"/parts.example.com"), "metadata.uid"); uid != value(made, "metadata.uid") {
		t.Errorf("the definition had the uid %s and has %s", value(made, "metadata.uid"), uid)
	}
	s.PostYAML(parts, "{apiVersion: example.com/v1, kind: Part, metadata: {name: new}, spec: {size: 3, color: green}}")
	if body := s.Get(parts + "/new"); strings.Contains(body, "color") {
		t.Errorf("a new object has what its definition lacks: %s", body)
	}
}

// memberOf is a member of a JSON document, as JSON.
func memberOf(t *testing.T, doc, member string) string {
	t.Helper()
	return string(decode[map[string]json.RawMessage](t, doc)[member])
}

// TestResetDuringWrites: a write that is under way falls after the reset, wholly.
func TestResetDuringWrites(t *testing.T) {
	t.Parallel()
	reached, release := make(chan string), make(chan struct{})
	var armed atomic.Bool
	hook := func(ctx context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
		if r.Resource.Resource != "gizmos" || !armed.CompareAndSwap(true, false) {
			return pass, nil
		}
		select {
		case reached <- r.Name:
		case <-ctx.Done():
			return pass, ctx.Err()
		}
		<-release
		return pass, nil
	}
	s := servertest.New(t, func(s *server.Server) {
		s.API.Admission = []registry.Admission[unstructured.Unstructured]{registry.AdmissionFunc[unstructured.Unstructured](hook)}
	})
	s.PostYAML(definitionsPath, gizmosDefinition())
	for _, name := range []string{"a", "b", "c"} {
		s.PostYAML(gizmosPath, applied(name, ""))
	}
	s.Snapshot("three")
	for _, tc := range []struct {
		name, to           string
		method, path, body string
		code               int
		left               string
	}{
		{"a collection", "three", "DELETE", gizmosPath, "", 200, ""},
		{"a deletion", "three", "DELETE", gizmosPath + "/b", "", 200, "a c"},
		{"a patch", "three", "PATCH", gizmosPath + "/b", `{"spec":{"size":"L"}}`, 200, "a b c"},
		{"a patch of what goes", "", "PATCH", gizmosPath + "/b", `{"spec":{"size":"L"}}`, 404, "-"},
		{"a create", "three", "POST", gizmosPath, applied("new", ""), 201, "a b c new"},
		{"a create of what goes", "", "POST", gizmosPath, applied("new", ""), 404, "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			s.ResetTo("three")
			armed.Store(true)
			type answered struct {
				code int
				body string
			}
			answer := make(chan answered, 1)
			var client sync.WaitGroup
			defer client.Wait()
			client.Go(func() {
				media := "application/json"
				if tc.method == "PATCH" {
					media = mergePatch
				}
				res, body := s.Do(tc.method, tc.path, tc.body, "Content-Type", media)
				answer <- answered{res.StatusCode, body}
			})
			<-reached
			if tc.to == "" {
				s.Reset()
			} else {
				s.ResetTo(tc.to)
			}
			release <- struct{}{}
			if got := <-answer; got.code != tc.code {
				t.Errorf("answered %d, want %d: %s", got.code, tc.code, got.body)
			}
			left := "-"
			if res, _ := s.Do("GET", gizmosPath, ""); res.StatusCode == http.StatusOK {
				left = namesOf(t, s, gizmosPath)
			}
			if left != tc.left {
				t.Errorf("left are %s, want %s", left, tc.left)
			}
		})
	}
}

// TestResetModel: clients write, list and delete while resets run. After a reset nothing is left that was acknowledged
// before it began. What one client creates, which nobody deletes, is there until the next reset if it was begun after the
// last one had ended.
func TestResetModel(t *testing.T) {
	t.Parallel()
	const writers, readers, resets = 4, 2, 40
	s := newGizmos(t)
	s.PostYAML(gizmosPath, applied("base", ""))
	s.Snapshot("base")
	var ended atomic.Int64 // how many resets have ended
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var working sync.WaitGroup
	var rev atomic.Int64
	advance := func(to string) { // resourceVersions never go back
		n, err := strconv.ParseInt(to, 10, 64)
		if err != nil {
			t.Error(err)
		}
		for old := rev.Load(); old < n && !rev.CompareAndSwap(old, n); old = rev.Load() {
		}
	}
	var mu sync.Mutex         // guards acknowledged and kept
	var acknowledged []string // the names of gizmos
	// kept are the names of config maps whose creates were acknowledged, by how many resets had ended when they began.
	kept := map[int64][]string{}
	keptAfter := func(n int64) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(kept[n])
	}
	checkKept := func(want []string) {
		t.Helper()
		left := strings.Fields(namesOf(t, s, mapsPath))
		for _, name := range want {
			if !slices.Contains(left, name) {
				t.Errorf("%s is lost: it was begun after the last reset had ended", name)
			}
		}
	}
	working.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			began, name := ended.Load(), fmt.Sprint("kept-", n)
			body, code := try(ctx, s, "POST", mapsPath, `{"metadata":{"name":"`+name+`"}}`)
			switch {
			case ctx.Err() != nil:
			case code == http.StatusCreated:
				mu.Lock()
				kept[began] = append(kept[began], name)
				mu.Unlock()
			default:
				t.Errorf("create a config map: %d %s", code, body)
			}
		}
	})
	for i := range writers {
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("w%d-%d", i, n)
				body, code := try(ctx, s, "POST", gizmosPath, applied(name, ""))
				switch {
				case ctx.Err() != nil:
				case code == http.StatusCreated:
					advance(value(body, "metadata.resourceVersion"))
					mu.Lock()
					acknowledged = append(acknowledged, name)
					mu.Unlock()
				default:
					t.Errorf("create: %d %s", code, body)
				}
				if n%5 == 0 {
					if body, code := try(ctx, s, "DELETE", gizmosPath, ""); ctx.Err() == nil && code != http.StatusOK {
						t.Errorf("delete the collection: %d %s", code, body)
					}
				}
			}
		})
	}
	for range readers {
		working.Go(func() {
			for ctx.Err() == nil {
				floor := rev.Load()
				body, code := try(ctx, s, "GET", gizmosPath, "")
				if ctx.Err() != nil {
					return
				}
				if code != http.StatusOK {
					t.Errorf("list: %d %s", code, body)
					continue
				}
				var l listed
				if err := json.Unmarshal([]byte(body), &l); err != nil {
					t.Error(err)
					continue
				}
				if n, _ := strconv.ParseInt(l.Metadata.ResourceVersion, 10, 64); n < floor {
					t.Errorf("a list has the resourceVersion %d after %d", n, floor)
				}
			}
		})
	}
	for i := range int64(resets) {
		least := rand.IntN(20)
		for n := 0; !t.Failed() && (n < least || len(keptAfter(i)) == 0); n++ { // some writes come between
			s.PostYAML(namespacesPath, fmt.Sprintf("metadata: {name: n%d-%d}", i, n))
		}
		checkKept(keptAfter(i))
		mu.Lock()
		before := slices.Clone(acknowledged)
		mu.Unlock()
		s.ResetTo("base")
		ended.Add(1)
		if got := namesOf(t, s, namespacesPath); got != "default kube-node-lease kube-public kube-system" {
			t.Errorf("the namespaces are %s", got)
		}
		left := listOf(t, s, gizmosPath)
		for _, item := range left.Items {
			if slices.Contains(before, item.Metadata.Name) {
				t.Errorf("%s is left of what was acknowledged before", item.Metadata.Name)
			}
		}
	}
	for !t.Failed() && len(keptAfter(resets)) < 10 {
		s.Get(mapsPath)
	}
	cancel()
	working.Wait()
	checkKept(keptAfter(resets))
}

// try sends a request and returns what came, if anything.
func try(ctx context.Context, s *servertest.Server, method, path, body string) (answer string, code int) {
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return err.Error(), 0
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := s.Client.Do(r)
	if err != nil {
		return err.Error(), 0
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil && !errors.Is(err, context.Canceled) {
		return err.Error(), 0
	}
	return string(b), res.StatusCode
}

// TestResetDuringDeletion: a reset brings back a namespace whose content is being deleted, and the controllers, which know
// that from before, delete nothing of it any more.
func TestResetDuringDeletion(t *testing.T) {
	t.Parallel()
	const objects = 60
	s := newGizmos(t)
	const shop = "/apis/example.com/v1/namespaces/shop/gizmos"
	s.PostYAML(namespacesPath, "metadata: {name: shop}")
	for i := range objects {
		s.PostYAML(shop, applied(fmt.Sprintf("g%02d", i), ""))
	}
	s.Snapshot("shop")
	before, _ := stored(t, s, namespacesPath, definitionsPath, shop)
	for range 15 {
		watch := s.Watch(shop + "?watch=true")
		send(t, s, 200, "DELETE", namespacesPath+"/shop", "", "")
		for range rand.IntN(objects / 2) {
			if line, err := watch.Next(); err != nil {
				t.Fatal(line, err)
			}
		}
		s.ResetTo("shop")
		got, _ := stored(t, s, namespacesPath, definitionsPath, shop)
		compare(t, got, before)
		watch.Close()
		if t.Failed() {
			return // with less content, a watch may wait for ever
		}
	}
	s.PostYAML(namespacesPath, "metadata: {name: other}") // and the controllers work on
	watch := s.Watch(namespacesPath + "?watch=true")
	send(t, s, 200, "DELETE", namespacesPath+"/other", "", "")
	deletions(t, watch, "other")
	got, _ := stored(t, s, namespacesPath, definitionsPath, shop)
	compare(t, got, before)
}

// TestResetUnderQuota: a write that is being charged to a quota while everything is reset begins again; it isn't refused.
func TestResetUnderQuota(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "ResourceQuota")
	s.PostYAML(namespaceDefault+"resourcequotas", "{metadata: {name: q}, spec: {hard: {configmaps: '100000'}}}")
	if used := usedOf(t, s, "q"); used["configmaps"] == "" {
		t.Fatalf("at first %v is used", used)
	}
	s.Snapshot("counted")
	var stop atomic.Bool
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				code, answer := post(s, mapsPath, fmt.Sprintf("metadata: {name: c%d-%d}", w, i))
				if code != http.StatusCreated && code != http.StatusConflict {
					t.Errorf("a create is answered %d %s", code, answer)
				}
			}
		})
	}
	for range 60 {
		if res, answer := s.Do("POST", "/debug/reset?to=counted", ""); res.StatusCode != http.StatusOK {
			t.Error(answer)
		}
	}
	stop.Store(true)
	writers.Wait()
}
