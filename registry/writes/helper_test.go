package writes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// deadline bounds what a test waits for, on a machine that does much else. Only a failure takes as long.
const deadline = 2 * time.Minute

// RunControllers runs the controllers of a registry. controllers_test.go sets it, because a test of this package can't
// import them.
var RunControllers func(ctx context.Context, r *registry.Registry, c *cacher.Cacher) error

// server is everything under a registry, on a real embedded etcd.
type server struct {
	*registry.Registry
	t    testing.TB
	ctx  context.Context
	etcd *etcd.Server
	stop func()
}

// current returns the store's newest revision.
func (s *server) current() storage.Revision {
	s.t.Helper()
	_, newest, err := s.Store.Window(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return newest
}

// etcdOf opens an etcd that lives in dir, or an ephemeral one for "".
func etcdOf(t testing.TB, dir string) *etcd.Server {
	t.Helper()
	o := etcd.Options{DataDir: dir, Ephemeral: dir == "", Log: slog.New(slog.DiscardHandler)}
	if dir == "" {
		o.DataDir = t.TempDir()
	}
	s, err := etcd.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs a registry. prepare may register types before it runs.
func start(t testing.TB, dir string, o registry.Options, prepare ...func(r *registry.Registry)) *server {
	t.Helper()
	return startOver(t, dir, nil, o, prepare...)
}

// startOver is start with a storagetest.OnRead, unless that is nil.
func startOver(t testing.TB, dir string, onRead func(key string) error, o registry.Options, prepare ...func(r *registry.Registry)) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e := etcdOf(t, dir)
	store, err := embedded.New(e.Client, e.Local)
	if err != nil {
		t.Fatal(err)
	}
	if onRead != nil {
		store.SetTransformer(storagetest.OnRead(onRead))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := cacher.New(store, cacher.Options{Log: o.Log})
	o.Store, o.Cacher = store, c
	r := registry.New(o)
	InitialNamespaces(r)
	for _, p := range prepare {
		p(r)
	}
	var wg sync.WaitGroup
	run := func(name string, fn func(context.Context) error) {
		wg.Go(func() {
			if err := fn(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	run("cacher", c.Run)
	run("registry", r.Run)
	run("controllers", func(ctx context.Context) error { return RunControllers(ctx, r, c) })
	s := &server{Registry: r, t: t, etcd: e}
	s.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		store.Close()
		if err := e.Close(); err != nil {
			t.Errorf("close etcd: %v", err)
		}
	})
	t.Cleanup(s.stop)
	var done context.CancelFunc
	s.ctx, done = context.WithTimeout(ctx, deadline)
	t.Cleanup(done)
	select {
	case <-r.Ready():
	case <-s.ctx.Done():
		t.Fatal("the registry isn't ready")
	}
	return s
}

// at returns an endpoint, which must be served.
func (s *server) at(group, version, plural string) *client {
	s.t.Helper()
	e, err := s.Lookup(s.ctx, gvr(group, version, plural))
	if err != nil {
		s.t.Fatalf("lookup %s/%s %s: %v", group, version, plural, err)
	}
	return &client{Writer: Of(e)}
}

func (s *server) crds() *client {
	return s.at("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

// widgets posts the definition that most tests use, and returns its endpoint.
func (s *server) widgets() *client {
	s.t.Helper()
	s.ok(s.crds().Create(s.ctx, "", nil, []byte(widgetCRD)))
	return s.at("example.com", "v1", "widgets")
}

const widgetCRD = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "widgets.example.com"},
  "spec": {
    "group": "example.com", "scope": "Namespaced",
    "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
    "versions": [
      {"name": "v1", "served": true, "storage": true,
       "subresources": {"status": {}}, "selectableFields": [{"jsonPath": ".spec.color"}],
       "schema": {"openAPIV3Schema": {"type": "object", "properties": {
         "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"color": {"type": "string"}, "size": {"type": "integer"}}},
         "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}},
      {"name": "v1beta1", "served": true, "storage": false, "subresources": {"status": {}},
       "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
      {"name": "v1alpha1", "served": false, "storage": false,
       "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}
    ]
  }
}`

// ok returns an answer's object, which must be one.
func (s *server) ok(r registry.Result, err error) tree {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("refused: %v", err)
	}
	return parse(s.t, r.Object)
}

// refused checks that an error is a Status of that code and reason whose message has the parts.
func (s *server) refused(err error, code int32, reason metav1.StatusReason, parts ...string) *metav1.Status {
	s.t.Helper()
	return wantStatus(s.t, err, code, reason, parts...)
}

func wantStatus(t testing.TB, err error, code int32, reason metav1.StatusReason, parts ...string) *metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got %v, want a Status %d %s", err, code, reason)
	}
	got := status.Status()
	if got.Code != code || got.Reason != reason {
		t.Fatalf("got %d %s %q, want %d %s", got.Code, got.Reason, got.Message, code, reason)
	}
	for _, p := range parts {
		if !strings.Contains(got.Message, p) {
			t.Fatalf("message %q lacks %q", got.Message, p)
		}
	}
	return &got
}

// wantFailure checks that an error is the server's own, which no client is told, and that its text has the parts.
func wantFailure(t testing.TB, err error, parts ...string) {
	t.Helper()
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		t.Fatalf("got %v, want a failure that is no Status", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Fatalf("failure %q lacks %q", err, p)
		}
	}
}

// tree is decoded JSON with access by path.
type tree map[string]any

func parse(t testing.TB, b []byte) tree {
	t.Helper()
	var v tree
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("answer isn't JSON: %v\n%s", err, b)
	}
	return v
}

// get returns the value at a path such as "metadata.name", nil if there's none. Numbers are strings.
func (v tree) get(path string) any {
	var at any = map[string]any(v)
	for _, name := range strings.Split(path, ".") {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	if n, ok := at.(json.Number); ok {
		return n.String()
	}
	return at
}

func (v tree) str(path string) string {
	s, _ := v.get(path).(string)
	return s
}

func widget(name, more string) []byte {
	return []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `"}` + more + `}`)
}

// events takes n events from a cursor.
func events(t testing.TB, ctx context.Context, c *cacher.Cursor, n int) []tree {
	t.Helper()
	var got []tree
	var buf []byte
	for len(got) < n {
		out, wait, err := c.Next(ctx, buf[:0])
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(got), n, err)
		}
		for _, line := range bytes.Split(bytes.TrimSpace(out), []byte("\n")) {
			if len(line) > 0 {
				got = append(got, parse(t, line))
			}
		}
		if wait != nil {
			select {
			case <-wait:
			case <-ctx.Done():
				t.Fatalf("after %d of %d events: %v", len(got), n, ctx.Err())
			}
		}
	}
	if len(got) > n {
		t.Fatalf("got %d events, want %d: %v", len(got), n, got)
	}
	return got
}

// untaken takes all that a cursor has got by now.
func untaken(t testing.TB, ctx context.Context, c *cacher.Cursor) (got []byte) {
	t.Helper()
	for {
		out, wait, err := c.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, bytes.TrimSpace(out)...); wait != nil {
			return got
		}
	}
}

// ends waits for a cursor's clean end and returns the events before it.
func ends(t testing.TB, ctx context.Context, c *cacher.Cursor) (got []tree) {
	t.Helper()
	for {
		out, wait, err := c.Next(ctx, nil)
		for _, line := range bytes.Split(bytes.TrimSpace(out), []byte("\n")) {
			if len(line) > 0 {
				got = append(got, parse(t, line))
			}
		}
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if wait != nil {
			select {
			case <-wait:
			case <-ctx.Done():
				t.Fatal("the watch didn't end")
			}
		}
	}
}

// eventually waits until fn is true after some change of the store.
func (s *server) eventually(what string, fn func() bool) {
	s.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !fn() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (s *server) list(e *client, namespace string, q url.Values) tree {
	s.t.Helper()
	l, err := e.List(s.ctx, namespace, q)
	if err != nil {
		s.t.Fatalf("list: %v", err)
	}
	var b bytes.Buffer
	if err := l.Write(s.ctx, &b); err != nil {
		s.t.Fatalf("write list: %v", err)
	}
	return parse(s.t, b.Bytes())
}

func names(list tree) string {
	var all []string
	items, _ := list["items"].([]any)
	for _, i := range items {
		all = append(all, tree(i.(map[string]any)).str("metadata.name"))
	}
	return strings.Join(all, " ")
}

func params(s string) url.Values {
	v, err := url.ParseQuery(s)
	if err != nil {
		panic(err)
	}
	return v
}

var _ watchstream.Source = (*cacher.Cursor)(nil)

func wantAny(t testing.TB, err error) metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got %v, want a Status", err)
	}
	return status.Status()
}

func gvr(group, version, plural string) runtimeschema.GroupVersionResource {
	return runtimeschema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}
