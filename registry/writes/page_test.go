package writes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// fill stores widgets without asking the verbs, many in one transaction: w000000 and so on, alternating between
// two namespaces, of about so many bytes each. color says what each has.
func (s *server) fill(n, size int, color func(i int) string) {
	s.t.Helper()
	const perTxn = 100
	var rev int64
	for from := 0; from < n; from += perTxn {
		var ops []clientv3.Op
		for i := from; i < min(from+perTxn, n); i++ {
			ns := []string{"default", "kube-system"}[i%2]
			key := fmt.Sprintf("/registry/example.com/widgets/%s/w%06d", ns, i)
			ops = append(ops, clientv3.OpPut(key, fmt.Sprintf(
				`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"app":"a","color":"%s"},"name":"w%06d","namespace":"%s","uid":"u"},"spec":{"color":"%s","text":"%s"}}`,
				color(i), i, ns, color(i), strings.Repeat("x", max(0, size-200)))))
		}
		res, err := s.etcd.Client.Txn(s.ctx).Then(ops...).Commit()
		if err != nil {
			s.t.Fatal(err)
		}
		rev = res.Header.Revision
	}
	if err := s.Cacher.WaitFor(s.ctx, storage.Revision(rev)); err != nil {
		s.t.Fatal(err)
	}
}

// pages follows a list to its end, calling between before each page but the first.
func (s *server) pages(e *client, namespace, query string, between func()) (pages []tree) {
	s.t.Helper()
	q := params(query)
	for {
		l := s.list(e, namespace, q)
		pages = append(pages, l)
		token := l.str("metadata.continue")
		if token == "" {
			return pages
		}
		q.Del("resourceVersion")
		q.Del("resourceVersionMatch")
		q.Set("continue", token)
		between()
	}
}

// allNames is the names on all pages, with a bar between pages.
func allNames(pages []tree) string {
	var all []string
	for _, p := range pages {
		all = append(all, names(p))
	}
	return strings.Join(all, " | ")
}

// Pages are of one instant, whatever is written between them, and however the server gets at that.
func TestPages(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		body := widget(name, fmt.Sprintf(`,"spec":{"color":"%s"}`, []string{"red", "blue"}[i%2]))
		body = []byte(strings.Replace(string(body), `"name":`, fmt.Sprintf(`"labels":{"n":"%d"},"name":`, i%2), 1))
		s.ok(w.Create(s.ctx, "default", nil, body))
		s.ok(w.Create(s.ctx, "kube-system", nil, body))
	}
	turn := 0
	write := func() { // deletes what was listed, what will be, and adds
		turn++
		s.ok(w.Create(s.ctx, "default", nil, widget(fmt.Sprintf("a%03d", turn), `,"spec":{"color":"red"}`)))
		s.ok(w.Create(s.ctx, "kube-system", nil, widget(fmt.Sprintf("zz%03d", turn), `,"spec":{"color":"red"}`)))
	}
	for _, c := range []struct{ namespace, query, want, remaining string }{
		{"default", "limit=2", "a b | c d | e", "3 1 "},
		{"default", "limit=1", "a | b | c | d | e", "4 3 2 1 "},
		{"default", "limit=5", "a b c d e", ""},
		{"default", "limit=1000", "a b c d e", ""},
		{"", "limit=4", "a b c d | e a b c | d e", "6 2 "},
		{"default", "limit=2&resourceVersionMatch=NotOlderThan&resourceVersion=%s", "a b | c d | e", "3 1 "},
		{"default", "limit=2&resourceVersionMatch=Exact&resourceVersion=%s", "a b | c d | e", "3 1 "},
		{"default", "limit=2&resourceVersion=%s", "a b | c d | e", "3 1 "},
		{"default", "limit=2&labelSelector=n=0", "a c | e", "  "},
		{"", "limit=2&labelSelector=n=1", "b d | b d | ", "  "},
		{"default", "limit=2&fieldSelector=spec.color=red", "a c | e", "  "},
		{"", "limit=3&fieldSelector=spec.color=red", "a c e | a c e", "  "},
		{"", "limit=2&fieldSelector=spec.color!=red", "b d | b d | ", "  "},
		{"", "limit=1&fieldSelector=metadata.name=c", "c | c | ", "  "},
		{"", "limit=3&fieldSelector=metadata.namespace=kube-system", "a b c | d e", "  "},
		{"default", "limit=2&fieldSelector=metadata.name=c", "c", ""},
		{"kube-public", "limit=2", "", ""},
	} {
		for _, forgetful := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s?%s forgetful=%v", c.namespace, c.query, forgetful), func(t *testing.T) {
				before := s.list(w, "", nil)
				query := c.query
				if strings.Contains(query, "%s") {
					query = fmt.Sprintf(query, before.str("metadata.resourceVersion"))
				}
				for _, o := range before["items"].([]any) { // what the case before has left
					if m := tree(o.(map[string]any)); len(m.str("metadata.name")) > 1 {
						s.ok(w.Delete(s.ctx, m.str("metadata.namespace"), m.str("metadata.name"), nil, nil))
					}
				}
				if query != c.query {
					query = strings.Replace(query, before.str("metadata.resourceVersion"), s.list(w, "", nil).str("metadata.resourceVersion"), 1)
				}
				got := s.pages(w, c.namespace, query, func() {
					write()
					if forgetful {
						s.forget(w)
					}
				})
				if all := allNames(got); all != c.want {
					t.Errorf("got %q, want %q", all, c.want)
				}
				var remaining []string
				for _, p := range got {
					n, _ := p.get("metadata.remainingItemCount").(string)
					remaining = append(remaining, n)
					if p.str("metadata.resourceVersion") != got[0].str("metadata.resourceVersion") {
						t.Errorf("pages at %v and %v", got[0]["metadata"], p["metadata"])
					}
				}
				if want := strings.Split(c.remaining, " "); strings.TrimSpace(c.remaining) != "" && strings.Join(remaining, " ") != strings.Join(want, " ") ||
					strings.TrimSpace(c.remaining) == "" && strings.TrimSpace(strings.Join(remaining, "")) != "" {
					t.Errorf("remaining: %q, want %q", remaining, c.remaining)
				}
			})
		}
	}
}

// forget makes the server drop the snapshots that it keeps, by keeping too many others.
func (s *server) forget(e *client) {
	s.t.Helper()
	for i := range 70 {
		if _, err := s.Cacher.Barrier(s.ctx); err != nil { // each is another one
			s.t.Fatal(err)
		}
		e.Res.Cache.Keep(e.Res.Cache.Snapshot())
		name := fmt.Sprintf("forget-%d", i%2)
		if i%2 == 1 {
			name = "forget-0"
			s.ok(e.Delete(s.ctx, "kube-public", name, nil, nil))
			continue
		}
		s.ok(e.Create(s.ctx, "kube-public", nil, widget(name, "")))
	}
}

// A token of kube-apiserver's form, and what becomes of it when history is compacted.
func TestTokens(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	for _, name := range []string{"a", "b", "c"} {
		s.ok(w.Create(s.ctx, "default", nil, widget(name, "")))
	}
	first := s.list(w, "", params("limit=1"))
	rv, given := first.str("metadata.resourceVersion"), first.str("metadata.continue")
	text, err := base64.RawURLEncoding.DecodeString(given)
	if want := `{"v":"meta.k8s.io/v1","rv":` + rv + `,"start":"/default/a\u0000"}`; err != nil || string(text) != want {
		t.Fatalf("token %s, %v, want %s", text, err, want)
	}
	encode := func(v string, rv any, start string) string {
		quoted, err := json.Marshal(start)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf(`{"v":%q,"rv":%v,"start":%s}`, v, rv, quoted)))
	}
	for _, c := range []struct {
		name, namespace, token string
		want                   string // names, or a part of the message
		code                   int32
	}{
		{"as given", "", given, "b", 0},
		{"inside a namespace", "default", encode(registry.TokenVersion, rv, "a\x00"), "b", 0},
		{"a key that's included", "default", encode(registry.TokenVersion, rv, "b"), "b", 0},
		{"a leading slash", "default", encode(registry.TokenVersion, rv, "/b"), "b", 0},
		{"a key that isn't there", "default", encode(registry.TokenVersion, rv, "aa"), "b", 0},
		{"behind the last", "default", encode(registry.TokenVersion, rv, "x"), "", 0},
		{"before the first", "default", encode(registry.TokenVersion, rv, "/"), "a", 0},
		{"of another namespace", "default", encode(registry.TokenVersion, rv, "default/a"), "", 0},
		{"the newest", "default", encode(registry.TokenVersion, -1, "b"), "b", 0},
		{"any negative version", "default", encode(registry.TokenVersion, -7, "b"), "b", 0},
		{"not base64", "", "%%%", "illegal base64", 400},
		{"padded", "", given + "==", "illegal base64", 400},
		{"not JSON", "", base64.RawURLEncoding.EncodeToString([]byte("{")), "unexpected end of JSON input", 400},
		{"a text as version", "", encode(registry.TokenVersion, `"x"`, "b"), "cannot unmarshal string", 400},
		{"of another version", "", encode("meta.k8s.io/v2", rv, "b"), "server does not recognize this encoded version meta.k8s.io/v2", 400},
		{"no resource version", "", encode(registry.TokenVersion, 0, "b"), "incorrect encoded start resourceVersion", 400},
		{"no start", "", encode(registry.TokenVersion, rv, ""), "encoded start key empty", 400},
		{"parent", "", encode(registry.TokenVersion, rv, "../gadgets/a"), "continue key is not valid: ../gadgets/a", 400},
		{"parent within", "", encode(registry.TokenVersion, rv, "default/../../x"), "continue key is not valid: default/../../x", 400},
		{"here", "", encode(registry.TokenVersion, rv, "./a"), "continue key is not valid: ./a", 400},
		{"twice a slash", "", encode(registry.TokenVersion, rv, "default//a"), "continue key is not valid: default//a", 400},
		{"a trailing slash", "", encode(registry.TokenVersion, rv, "default/"), "continue key is not valid: default/", 400},
		{"of the future", "", encode(registry.TokenVersion, 1<<60, "b"), "this store doesn't have", 410},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := url.Values{"continue": {c.token}, "limit": {"1"}}
			l, err := w.List(s.ctx, c.namespace, q)
			if c.code == 400 {
				s.refused(err, 400, metav1.StatusReasonBadRequest, "invalid continue token", c.want)
				return
			}
			if c.code == 410 {
				s.refused(err, 410, metav1.StatusReasonExpired, c.want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := l.Write(s.ctx, &b); err != nil {
				t.Fatal(err)
			}
			if got := names(parse(t, []byte(b.String()))); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}

	s.ok(w.Delete(s.ctx, "default", "b", nil, nil))
	s.forget(w)
	now := s.list(w, "", nil).str("metadata.resourceVersion")
	compact, _ := strconv.ParseInt(now, 10, 64)
	if _, err := s.etcd.Client.Compact(s.ctx, compact); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"resourceVersionMatch=Exact&resourceVersion=" + rv, "limit=1&resourceVersion=" + rv} {
		_, err = w.List(s.ctx, "", params(query))
		if status := s.refused(err, 410, metav1.StatusReasonExpired, "The resourceVersion for the provided list is too old."); status.Continue != "" {
			t.Errorf("%s: a token came: %s", query, status.Continue)
		}
	}
	_, err = w.List(s.ctx, "", url.Values{"continue": {given}, "limit": {"1"}})
	status := s.refused(err, 410, metav1.StatusReasonExpired, "The provided continue parameter is too old to display a consistent list result. "+
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "+
		"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted "+
		"between the time the first chunk was returned and now may show up in the list.")
	if text, _ := base64.RawURLEncoding.DecodeString(status.Continue); string(text) != `{"v":"meta.k8s.io/v1","rv":-1,"start":"/default/a\u0000"}` {
		t.Fatalf("the fresh token: %s", text)
	}
	rest := s.list(w, "", url.Values{"continue": {status.Continue}, "limit": {"1"}})
	if names(rest) != "c" || rest.str("metadata.resourceVersion") != now {
		t.Errorf("the inconsistent rest: %s at %s, want c at %s", names(rest), rest.str("metadata.resourceVersion"), now)
	}
}

// Versions that a list may ask for.
func TestListVersions(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	var rvs []string
	for _, name := range []string{"a", "b", "c"} {
		rvs = append(rvs, s.ok(w.Create(s.ctx, "default", nil, widget(name, ""))).str("metadata.resourceVersion"))
	}
	for _, c := range []struct{ query, want, rv string }{
		{"", "a b c", rvs[2]},
		{"limit=2", "a b", rvs[2]},
		{"resourceVersion=0", "a b c", rvs[2]},
		{"resourceVersion=0&limit=2", "a b c", rvs[2]},
		{"resourceVersion=0&limit=2&resourceVersionMatch=NotOlderThan", "a b c", rvs[2]},
		{"resourceVersion=" + rvs[0], "a b c", rvs[2]},
		{"resourceVersion=" + rvs[0] + "&resourceVersionMatch=NotOlderThan", "a b c", rvs[2]},
		{"resourceVersion=" + rvs[0] + "&resourceVersionMatch=NotOlderThan&limit=1", "a", rvs[2]},
		{"resourceVersion=" + rvs[0] + "&resourceVersionMatch=Exact", "a", rvs[0]},
		{"resourceVersion=" + rvs[1] + "&resourceVersionMatch=Exact", "a b", rvs[1]},
		{"resourceVersion=" + rvs[2] + "&resourceVersionMatch=Exact", "a b c", rvs[2]},
		{"resourceVersion=" + rvs[1] + "&limit=1", "a", rvs[1]},
		{"resourceVersion=" + rvs[1] + "&limit=5", "a b", rvs[1]},
		{"resourceVersion=" + rvs[0] + "&resourceVersionMatch=Exact&fieldSelector=metadata.name=a", "a", rvs[0]},
		{"resourceVersion=" + rvs[0] + "&resourceVersionMatch=Exact&fieldSelector=metadata.name=b", "", rvs[0]},
	} {
		t.Run(c.query, func(t *testing.T) {
			l := s.list(w, "default", params(c.query))
			if names(l) != c.want || l.str("metadata.resourceVersion") != c.rv {
				t.Errorf("got %s at %s, want %s at %s", names(l), l.str("metadata.resourceVersion"), c.want, c.rv)
			}
		})
	}
	var wg sync.WaitGroup
	for _, query := range []string{"resourceVersionMatch=Exact", "limit=1", "resourceVersionMatch=NotOlderThan"} {
		wg.Go(func() {
			_, err := w.List(s.ctx, "", params("resourceVersion=999999&"+query))
			if status := wantAny(t, err); status.Code != 504 || !strings.Contains(status.Message, "Too large resource version: 999999, current: ") {
				t.Errorf("%s: %+v", query, status)
			}
		})
	}
	wg.Wait()
}

// gate holds up whoever reads the key, which is the feed.
type gate struct {
	key  string
	open chan struct{}
}

func (g *gate) onRead(key string) error {
	if key == g.key {
		<-g.open
	}
	return nil
}

// A cache that lags behind what was acknowledged is waited for, and never shown as fresh.
func TestLaggingCache(t *testing.T) {
	g := &gate{key: "/registry/example.com/widgets/default/slow", open: make(chan struct{})}
	s := startOver(t, "", g.onRead, registry.Options{})
	w := s.widgets()
	s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
	s.list(w, "", nil) // the cache has it, else it might come together with the next
	if _, err := s.Store.Create(s.ctx, g.key, widget("slow", "")); err != nil {
		t.Fatal(err)
	}
	newest, err := s.Store.Barrier(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	forged := url.Values{"continue": {registry.Token{Version: registry.TokenVersion, Revision: int64(newest), Start: "default/a"}.String()}}
	var wg sync.WaitGroup
	for name, ask := range map[string]func() error{
		"get":  func() error { _, err := w.Get(s.ctx, "default", "a", "", nil); return err },
		"list": func() error { _, err := w.List(s.ctx, "", nil); return err },
		"page": func() error { _, err := w.List(s.ctx, "", params("limit=1")); return err },
		// No list has given a token of this version yet.
		"next page": func() error { _, err := w.List(s.ctx, "", forged); return err },
	} {
		wg.Go(func() {
			if status := wantAny(t, ask()); status.Code != 504 || status.Reason != metav1.StatusReasonTimeout || !strings.Contains(status.Message, "Too large resource version") {
				t.Errorf("%s: %+v", name, status)
			}
		})
	}
	wg.Wait()
	if got := names(s.list(w, "", params("resourceVersion=0"))); got != "a" {
		t.Errorf("what there is: %s", got)
	}
	close(g.open)
	if got := names(s.list(w, "", nil)); got != "a slow" {
		t.Errorf("when it has caught up: %s", got)
	}
	if got := names(s.list(w, "", forged)); got != "a slow" {
		t.Errorf("the next page then: %s", got)
	}
}

// Writing a list takes no more memory for many objects than for few.
func TestListMemory(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	s.fill(20_000, 400, func(i int) string { return strconv.Itoa(i % 100) })
	for _, query := range []string{"", "labelSelector=app=a", "fieldSelector=spec.color!=7", "fieldSelector=spec.color=7"} {
		l, err := w.List(s.ctx, "", params(query))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Write(s.ctx, io.Discard); err != nil { // fills the pool
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := l.Write(s.ctx, io.Discard); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 8*reads.ListBuffer { // a buffer that grew; the list is some 10 MB
			t.Errorf("%q allocated %d bytes", query, took)
		}
	}
}

// FuzzToken: any token is refused, or reaches nothing but the collection that it's given with.
func FuzzToken(f *testing.F) {
	s := start(f, "", registry.Options{})
	w := s.widgets()
	for _, ns := range []string{"default", "kube-public", "kube-system"} {
		s.ok(w.Create(s.ctx, ns, nil, widget("of-"+ns, "")))
	}
	rv, err := strconv.ParseInt(s.list(w, "", nil).str("metadata.resourceVersion"), 10, 64)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("", registry.TokenVersion, rv, "of-default\x00")
	f.Add("", registry.TokenVersion, rv, "kube-system/of-kube-system")
	f.Add("", registry.TokenVersion, rv, "../kube-system/of-kube-system")
	f.Add("", registry.TokenVersion, int64(-1), "/")
	f.Add("", registry.TokenVersion, int64(1)<<62, "a")
	f.Add("", "v1", rv, "a")
	f.Add("e30", "", int64(0), "")
	f.Add("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0", "", int64(0), "")
	f.Fuzz(func(t *testing.T, given, version string, rv int64, start string) {
		if given == "" {
			given = registry.Token{Version: version, Revision: rv, Start: start}.String()
		}
		for _, ns := range []string{"kube-public", ""} {
			l, err := w.List(t.Context(), ns, url.Values{"continue": {given}})
			if err != nil {
				if code := wantAny(t, err).Code; code != 400 && code != 410 {
					t.Fatalf("%d: %v", code, err)
				}
				continue
			}
			for o, err := range l.Items(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if ns != "" && o.Namespace() != ns || !strings.HasPrefix(o.Key, "/registry/example.com/widgets/") {
					t.Fatalf("a list of %q reached %s", ns, o.Key)
				}
			}
		}
	})
}
