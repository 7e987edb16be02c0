package writes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

func TestList(t *testing.T) {
	s := start(t, "", registry.Options{})
	w, ns := s.widgets(), s.at("", "v1", "namespaces")
	empty, err := w.List(s.ctx, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := empty.Write(s.ctx, &b); err != nil || !strings.HasSuffix(b.String(), `"items":[]}`+"\n") {
		t.Errorf("empty list %q, %v", b.String(), err)
	}
	var last string
	for i, color := range []string{"red", "blue", "red"} {
		for _, namespace := range []string{"default", "kube-system"} {
			body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"%c","labels":{"tier":"t%d"}},"spec":{"color":"%s"}}`, 'a'+i, i, color)
			last = s.ok(w.Create(s.ctx, namespace, nil, []byte(body))).str("metadata.resourceVersion")
		}
	}
	for _, c := range []struct{ namespace, query, want string }{
		{"", "", "a b c a b c"},
		{"default", "", "a b c"},
		{"kube-public", "", ""},
		{"missing", "", ""},
		{"", "limit=1", "a"},
		{"", "limit=1&resourceVersion=0", "a b c a b c"},
		{"", "resourceVersion=0", "a b c a b c"},
		{"", "resourceVersion=" + last, "a b c a b c"},
		{"default", "labelSelector=tier=t1", "b"},
		{"default", "labelSelector=tier in (t0,t2)", "a c"},
		{"default", "fieldSelector=spec.color=red", "a c"},
		{"", "fieldSelector=spec.color!=red", "b b"},
		{"", "fieldSelector=metadata.name=b", "b b"},
		{"", "fieldSelector=metadata.namespace=default", "a b c"},
		{"default", "fieldSelector=metadata.namespace=kube-system", ""},
		{"", "fieldSelector=metadata.namespace=default,metadata.name=c,spec.color=red", "c"},
		{"", "fieldSelector=metadata.name!=b", "a c a c"},
		{"", "fieldSelector=metadata.name=a,metadata.name=b", ""},
	} {
		t.Run(c.namespace+"?"+c.query, func(t *testing.T) {
			l := s.list(w, c.namespace, params(c.query))
			if got := names(l); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if l.str("kind") != "WidgetList" || l.str("apiVersion") != "example.com/v1" || l.str("metadata.resourceVersion") < last {
				t.Errorf("header %v", l)
			}
		})
	}
	item := tree(s.list(w, "default", nil)["items"].([]any)[0].(map[string]any))
	if item.str("kind") != "Widget" || item.str("metadata.resourceVersion") == "" {
		t.Errorf("item %v", item)
	}
	builtin := s.list(ns, "", params("fieldSelector=name=default"))
	item = tree(builtin["items"].([]any)[0].(map[string]any))
	if names(builtin) != "default" || item.get("kind") != nil || item.get("apiVersion") != nil {
		t.Errorf("items of built-in kinds have no type: %v", builtin)
	}
	if got := names(s.list(ns, "", params("fieldSelector=status.phase=Terminating"))); got != "" {
		t.Errorf("terminating: %s", got)
	}
	for _, c := range []struct {
		e           *client
		query, part string
	}{
		{w, "labelSelector=a b", "unable to parse requirement"},
		{w, "fieldSelector=x", "invalid selector: 'x'; can't understand 'x'"},
		{w, "fieldSelector=spec.size=1", "field label not supported: spec.size"},
		{ns, "fieldSelector=spec.x=1", "field label not supported: spec.x"},
		{ns, "fieldSelector=name!=default", "metadata.name"},
	} {
		_, err := c.e.List(s.ctx, "", params(c.query))
		s.refused(err, 400, metav1.StatusReasonBadRequest, c.part)
		_, _, err = c.e.Watch(s.ctx, "", "", params(c.query))
		s.refused(err, 400, metav1.StatusReasonBadRequest, c.part)
	}
}

// A list is written in pieces, and its end says when the client is gone.
func TestListStreams(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	for i := range 40 {
		s.ok(w.Create(s.ctx, "default", nil, widget(fmt.Sprintf("w%02d", i), `,"spec":{"x":"`+strings.Repeat("x", 40<<10)+`"}`)))
	}
	l, err := w.List(s.ctx, "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	pieces := &counter{}
	if err := l.Write(s.ctx, pieces); err != nil || pieces.writes < 5 || pieces.largest > 2*reads.ListBuffer {
		t.Errorf("%d writes, the largest of %d bytes, %v", pieces.writes, pieces.largest, err)
	}
	pieces.failAfter = pieces.writes + 2
	if err := l.Write(s.ctx, pieces); err != io.ErrClosedPipe {
		t.Errorf("a closed connection: %v", err)
	}
}

type counter struct{ writes, largest, failAfter int }

func (c *counter) Write(p []byte) (int, error) {
	c.writes++
	c.largest = max(c.largest, len(p))
	if c.failAfter > 0 && c.writes > c.failAfter {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestServedVersions(t *testing.T) {
	s := start(t, "", registry.Options{})
	s.widgets()
	old := s.at("example.com", "v1beta1", "widgets")
	body := `{"apiVersion":"example.com/v1beta1","kind":"Widget","metadata":{"name":"a"},"spec":{"apiVersion":"x"}}`
	if got := s.ok(old.Create(s.ctx, "default", nil, []byte(body))); got.str("apiVersion") != "example.com/v1beta1" {
		t.Errorf("created %v", got)
	}
	got := s.ok(s.at("example.com", "v1", "widgets").Get(s.ctx, "default", "a", "", nil))
	if got.str("apiVersion") != "example.com/v1" || got.str("spec.apiVersion") != "x" {
		t.Errorf("in the other version %v", got)
	}
	patched := s.ok(old.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(`{}`)))
	if patched.str("metadata.resourceVersion") != got.str("metadata.resourceVersion") {
		t.Error("a patch of nothing in another version wrote")
	}
}

func TestWatch(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	before := s.ok(w.Create(s.ctx, "default", nil, widget("a", `,"spec":{"color":"red"}`))).str("metadata.resourceVersion")
	open := func(namespace, name, query string) func(n int) string {
		t.Helper()
		c, _, err := w.Watch(s.ctx, namespace, name, params(query))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return func(n int) string {
			if n == 0 {
				return string(untaken(t, s.ctx, c))
			}
			var got []string
			for _, e := range events(t, s.ctx, c, n) {
				got = append(got, e.str("type")+" "+e.str("object.metadata.name"))
			}
			return strings.Join(got, ", ")
		}
	}
	all := open("", "", "")
	after := open("", "", "resourceVersion="+before)
	now := open("default", "", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
	red := open("", "", "fieldSelector=spec.color=red&resourceVersion="+before)
	named := open("default", "b", "")
	elsewhere := open("kube-system", "", "fieldSelector=metadata.namespace=default")

	if got := all(1); got != "ADDED a" {
		t.Errorf("the state: %s", got)
	}
	s.ok(w.Create(s.ctx, "default", nil, widget("b", `,"spec":{"color":"red"}`)))
	s.ok(w.Create(s.ctx, "kube-system", nil, widget("c", "")))
	s.ok(w.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(`{"spec":{"color":"blue"}}`)))
	s.ok(w.Delete(s.ctx, "default", "b", nil, nil))
	for _, c := range []struct {
		name string
		take func(int) string
		want string
	}{
		{"all", all, "ADDED b, ADDED c, MODIFIED a, DELETED b"},
		{"after a version", after, "ADDED b, ADDED c, MODIFIED a, DELETED b"},
		{"from now", now, "ADDED b, MODIFIED a, DELETED b"},
		{"selected field", red, "ADDED b, DELETED a, DELETED b"},
		{"one name", named, "ADDED b, DELETED b"},
		{"contradiction", elsewhere, ""},
	} {
		n := 0
		if c.want != "" {
			n = strings.Count(c.want, ",") + 1
		}
		if got := c.take(n); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	_, _, err := w.Watch(s.ctx, "default", "a", params("fieldSelector=metadata.name=b"))
	s.refused(err, 400, metav1.StatusReasonBadRequest, "doesn't match the name")
	_, _, err = w.Watch(s.ctx, "", "", params("resourceVersion=999999"))
	s.refused(err, 410, metav1.StatusReasonExpired, "999999")
	if about := (*reads.StreamError)(nil); !errors.As(err, &about) {
		t.Errorf("a version of the future is told as %T", err)
	}
	for query, want := range map[string]bool{
		"allowWatchBookmarks=true":                           true,
		"allowWatchBookmarks=true&resourceVersion=0":         true,
		"allowWatchBookmarks=true&resourceVersion=" + before: false,
		"": false,
	} {
		c, o, err := w.Watch(s.ctx, "", "", params(query))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if o.InitialEnd != want {
			t.Errorf("%s: the bookmark after the state: %v", query, o.InitialEnd)
		}
	}
}

// A version that isn't there yet is waited for, and then named in a 504.
func TestFutureVersions(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	ask := map[string]func() error{
		"get":  func() error { return errOf(w.Get(s.ctx, "default", "a", "", params("resourceVersion=999999"))) },
		"list": func() error { _, err := w.List(s.ctx, "", params("resourceVersion=999999")); return err },
		"watch list": func() error {
			_, _, err := w.Watch(s.ctx, "", "", params("resourceVersion=999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"))
			return err
		},
	}
	var wg sync.WaitGroup
	for name, fn := range ask {
		wg.Go(func() {
			err := fn()
			status := wantAny(t, err)
			if status.Code != 504 || status.Reason != metav1.StatusReasonTimeout || !strings.Contains(status.Message, "Too large resource version: 999999, current: ") ||
				status.Details.RetryAfterSeconds != 1 || len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge {
				t.Errorf("%s: %+v", name, status)
			}
		})
	}
	wg.Wait()
	rv := s.ok(w.Create(s.ctx, "default", nil, widget("a", ""))).str("metadata.resourceVersion")
	s.ok(w.Get(s.ctx, "default", "a", "", params("resourceVersion="+rv)))
	s.ok(w.Get(s.ctx, "default", "a", "status", params("resourceVersion=0")))
	_, err := w.Get(s.ctx, "default", "a", "", params("resourceVersion=x"))
	s.refused(err, 500, "", `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`)
}

// After a restore another object can have a name and a revision again. It has another tag.
func TestTags(t *testing.T) {
	e := fuzzEndpoint()
	tagOf := func(uid string, revision storage.Revision, f form.Form) string {
		t.Helper()
		r := &registry.Request{Target: registry.Target{Namespace: "default", Name: "a"}, Form: f}
		shown, err := e.Shown(r)
		if err != nil {
			t.Fatal(err)
		}
		o := kube.NewObject(fuzzKey, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"default","uid":"`+uid+`"}}`), revision)
		raw, err := e.Show(t.Context(), shown.Single, o)
		if err != nil {
			t.Fatal(err)
		}
		return reads.Tag(o, shown.Key, raw)
	}
	whole, partial := form.Form{}, form.Form{Kind: form.MetadataOnly, Version: "v1"}
	first := tagOf("1", 7, whole)
	if again := tagOf("1", 7, whole); first == "" || again != first {
		t.Errorf("one object has the tags %q and %q", first, again)
	}
	for what, other := range map[string]string{
		"another object": tagOf("2", 7, whole), "another revision": tagOf("1", 8, whole), "another form": tagOf("1", 7, partial),
	} {
		if other == first || other == "" {
			t.Errorf("%s has the tag %q", what, other)
		}
	}
}

// What somebody else wrote and nobody can read is reported, left out, and deleted by who asks for that.
func TestUnreadableObjects(t *testing.T) {
	var log lockedBuffer
	s := start(t, "", registry.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	w := s.widgets()
	s.ok(w.Create(s.ctx, "default", nil, widget("good", "")))
	for name, value := range map[string]string{"bad": "{", "worse": "\x00\xff", "list": "[]"} {
		if _, err := s.Store.Create(s.ctx, "/registry/example.com/widgets/default/"+name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Store.Create(s.ctx, "/registry/apiextensions.k8s.io/customresourcedefinitions/x.example.com", []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := names(s.list(w, "", nil)); got != "good" {
			t.Errorf("list: %s", got)
		}
	}
	if n := strings.Count(log.String(), "widgets/default/bad"); n != 1 {
		t.Errorf("reported %d times", n)
	}
	_, err := w.Get(s.ctx, "default", "bad", "", nil)
	s.refused(err, 500, metav1.StatusReasonStoreReadError, `"bad"`)
	_, err = w.Patch(s.ctx, "default", "bad", "", "application/merge-patch+json", nil, []byte("{}"))
	s.refused(err, 500, metav1.StatusReasonStoreReadError, `"bad"`)
	_, err = w.Update(s.ctx, "default", "bad", "", nil, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"bad","resourceVersion":"1"}}`))
	s.refused(err, 500, metav1.StatusReasonStoreReadError, `"bad"`)
	_, err = w.Create(s.ctx, "default", nil, widget("bad", ""))
	s.refused(err, 409, metav1.StatusReasonAlreadyExists)
	_, err = w.Delete(s.ctx, "default", "bad", nil, nil)
	s.refused(err, 500, metav1.StatusReasonStoreReadError, `"bad"`)
	ignoring := url.Values{"ignoreStoreReadErrorWithClusterBreakingPotential": {"true"}}
	s.ok(w.Delete(s.ctx, "default", "bad", ignoring, nil))
	s.ok(w.Create(s.ctx, "default", nil, widget("bad", "")))
	_, err = s.Lookup(s.ctx, gvr("example.com", "v1", "x"))
	s.refused(err, 404, metav1.StatusReasonNotFound)
	s.ok(s.crds().Delete(s.ctx, "", "x.example.com", ignoring, nil))
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
