package server_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// past is an answer to history=true.
type past struct {
	Kind     string
	Metadata struct{ ResourceVersion, Begins, Continue string }
	Items    []pastVersion
}

type pastVersion struct {
	ResourceVersion, Within, Change, UID, Manager, User string
	Time                                                time.Time
	Patch                                               json.RawMessage
}

// historyOf reads the history of an object, in pages of a size; 0 for all at once.
func historyOf(t *testing.T, s *servertest.Server, path string, page int) (all []pastVersion) {
	t.Helper()
	query := "?history=true"
	if page > 0 {
		query += fmt.Sprint("&limit=", page)
	}
	for from := ""; ; {
		var h past
		if text := s.Get(path + query + from); json.Unmarshal([]byte(text), &h) != nil || h.Kind != "History" || h.Metadata.Begins == "" {
			t.Fatalf("no history: %s", text)
		}
		if all = append(all, h.Items...); h.Metadata.Continue == "" {
			return all
		}
		if len(h.Items) != page {
			t.Fatalf("a page of %d has %d versions, and others follow", page, len(h.Items))
		}
		from = "&from=" + h.Metadata.Continue
	}
}

// brief is a history in few words, newest first.
func briefHistory(all []pastVersion) (out []string) {
	for _, v := range all {
		out = append(out, v.ResourceVersion+" "+v.Change)
	}
	return out
}

// seen is what a recorder saw of an object: each event's version, and the object.
type seen struct {
	version, change string
	object          string // without what patches leave out
}

// compared is an object without its managedFields and its resourceVersion.
func compared(t *testing.T, text string) string {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	metadata := tree["metadata"].(map[string]any)
	delete(metadata, "managedFields")
	delete(metadata, "resourceVersion")
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestHistoryIsWhatWasSeen: whatever is done to objects, by several clients at once and in transactions, their histories are what a watch saw
// that was there all along, page by page, too; each patch makes of one version the next; and each version can still be read.
func TestHistoryIsWhatWasSeen(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *servertest.Server{
		"one server": func(t *testing.T) *servertest.Server { return newWidgets(t) },
		"a replica": func(t *testing.T) *servertest.Server {
			all := newReplicas(t, 2)
			all[0].PostYAML(definitionsPath, widgets)
			return all[1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			begin := now(t, s, widgetsPath)
			watch := s.Watch(fmt.Sprint(widgetsPath, "?watch=true&resourceVersion=", begin))
			const names, rounds = 3, 60
			var all sync.WaitGroup
			for w := range 3 {
				random := rand.New(rand.NewPCG(7, uint64(w)))
				all.Go(func() {
					for i := range rounds {
						name := fmt.Sprint("w", random.IntN(names))
						body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"labels":{"by":"%d"}},"spec":{"size":%d}}`, name, w, i)
						switch random.IntN(8) {
						case 0:
							s.Do(http.MethodDelete, widgetsPath+"/"+name, "")
						case 1, 2:
							s.Do(http.MethodPost, widgetsPath, body)
						case 3:
							s.Do(http.MethodPost, "/apiserver-lite/v1/transactions", fmt.Sprintf(`{"operations":[{"create":%s},{"patch":{"resource":"widgets","name":"w0","type":"merge","body":{"spec":{"size":%d}}}}]}`, body, i))
						default:
							s.Do(http.MethodPatch, widgetsPath+"/"+name, fmt.Sprintf(`{"spec":{"size":%d},"metadata":{"labels":{"l%d":"x"}}}`, i, random.IntN(3)), "Content-Type", mergePatch)
						}
					}
				})
			}
			all.Wait()
			end := now(t, s, widgetsPath)
			s.PostYAML(widgetsPath, widget("last"))
			recorded := map[string][]seen{}
			for {
				line, err := watch.Next()
				if err != nil {
					t.Fatal(err)
				}
				var e struct {
					Type   string
					Object json.RawMessage
				}
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				version, name := value(string(e.Object), "metadata.resourceVersion"), value(string(e.Object), "metadata.name")
				if n, _ := strconv.ParseInt(version, 10, 64); n > end {
					break
				}
				change := map[string]string{"ADDED": "created", "MODIFIED": "changed", "DELETED": "deleted"}[e.Type]
				recorded[name] = slices.Insert(recorded[name], 0, seen{version, change, compared(t, string(e.Object))})
			}
			for name, want := range recorded {
				checkHistory(t, s, widgetsPath+"/"+name, want)
			}
			if len(recorded) < names {
				t.Errorf("only %d objects were written", len(recorded))
			}
		})
	}
}

// checkHistory compares the history of an object with what was seen, newest first.
func checkHistory(t *testing.T, s *servertest.Server, path string, want []seen) {
	t.Helper()
	got := historyOf(t, s, path, 0)
	var told []string
	for _, w := range want {
		told = append(told, w.version+" "+w.change)
	}
	if !slices.Equal(briefHistory(got), told) {
		t.Fatalf("%s: history has %q, and the watch saw %q", path, briefHistory(got), told)
	}
	for _, size := range []int{1, 7} {
		if paged := historyOf(t, s, path, size); !slices.Equal(briefHistory(paged), told) {
			t.Errorf("%s: in pages of %d, history has %q, want %q", path, size, briefHistory(paged), told)
		}
	}
	for i, v := range got {
		if v.UID != value(want[i].object, "metadata.uid") {
			t.Errorf("%s at %s has uid %s", path, v.ResourceVersion, v.UID)
		}
		if v.Change == "deleted" {
			if r, text := s.Do(http.MethodGet, path+"?resourceVersionMatch=Exact&resourceVersion="+v.ResourceVersion, ""); r.StatusCode != http.StatusNotFound {
				t.Errorf("%s at its deletion: %d %s", path, r.StatusCode, text)
			}
			continue
		}
		if at := compared(t, s.Get(path+"?resourceVersionMatch=Exact&resourceVersion="+v.ResourceVersion)); at != want[i].object {
			t.Errorf("%s at %s is %s, and was %s", path, v.ResourceVersion, at, want[i].object)
		}
		if v.Change == "created" {
			continue
		}
		made := []byte(want[i+1].object)
		if v.Patch != nil {
			patch, err := jsonpatch.DecodePatch(v.Patch)
			if err != nil {
				t.Fatal(err)
			}
			if made, err = patch.Apply(made); err != nil {
				t.Fatalf("%s at %s: %s doesn't apply to %s: %v", path, v.ResourceVersion, v.Patch, want[i+1].object, err)
			}
		}
		if !jsonpatch.Equal(made, []byte(want[i].object)) {
			t.Errorf("%s at %s: the patch %s makes %s, want %s", path, v.ResourceVersion, v.Patch, made, want[i].object)
		}
	}
}

// TestHistoryBeforeHistory: of what is older than history the time is known as far as the object says it; how long ago something was is by the
// server's clock.
func TestHistoryBeforeHistory(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock)
	written := func(name string) string {
		var h past
		if err := json.Unmarshal([]byte(s.Get(configMaps+"/"+name+"?history=true")), &h); err != nil || len(h.Items) != 1 {
			t.Fatalf("%v: %d versions", err, len(h.Items))
		}
		return h.Items[0].Time.Format(time.RFC3339) + " within " + h.Items[0].Within
	}
	s.PostYAML(configMaps, configMapNamed("x", "1"))
	begun := s.Now().Add(time.Second).Format(time.RFC3339) + " within 1s"
	for i := range 6 {
		s.Advance(20 * time.Minute)
		s.PostYAML(configMaps, configMapNamed(fmt.Sprint("y", i), "1"))
	}
	if got := written("x"); got != begun {
		t.Errorf("it was written %s, want %s", got, begun)
	}
	if n := strings.Count(s.Get(configMaps+"?at=30m"), `"name":"y`); n != 4 { // those of 100, 80, 60 and 40 minutes ago
		t.Errorf("%d were there half an hour ago", n)
	}
}

// TestHistoryOfOwnWrites: what the server writes on the way of a request is nobody's.
func TestHistoryOfOwnWrites(t *testing.T) {
	t.Parallel()
	s := newRuled(t, func(s *server.Server) { s.Data.HistoryUsers, s.API.AutoCreateNamespaces = true, true })
	s.expect("root", "POST /api/v1/namespaces/made/configmaps", `{"metadata":{"name":"a"}}`, 201, "")
	for path, user := range map[string]string{"/api/v1/namespaces/made": "", "/api/v1/namespaces/made/configmaps/a": "root"} {
		var h past
		text := s.expect("root", "GET "+path+"?history=true", "", 200, "")
		if err := json.Unmarshal([]byte(text), &h); err != nil || len(h.Items) == 0 || h.Items[len(h.Items)-1].User != user {
			t.Errorf("%s was created by %s, want %q: %v", path, text, user, err)
		}
	}
}

// TestHistorySays: a history says when, by which manager and, where that's noted, for whom.
func TestHistorySays(t *testing.T) {
	t.Parallel()
	s := newRuled(t, func(s *server.Server) { s.Data.HistoryUsers, s.API.ManagedFieldsAlways = true, true })
	began := time.Now()
	const one = inDefault + "/configmaps/a"
	s.expect("root", "POST "+inDefault+"/configmaps?fieldManager=maker", `{"metadata":{"name":"a"},"data":{"k":"1"}}`, 201, "")
	s.expect("root", "PATCH "+one+"?fieldManager=applier&force=true", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"2"}}`, 200, "")
	r, text := s.Do(http.MethodPost, "/apiserver-lite/v1/transactions?fieldManager=together", `{"operations":[
		{"patch":{"resource":"configmaps","name":"a","type":"merge","body":{"data":{"k":"3"}}}},
		{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}}]}`, "Authorization", "Bearer root", "Impersonate-User", "ann", "Impersonate-Group", "system:masters")
	if r.StatusCode != http.StatusOK {
		t.Fatal(text)
	}
	s.expect("root", "DELETE "+one, "", 200, "")
	s.expect("eve", "GET "+one+"?history=true", "", 403, "")
	var h past
	if err := json.Unmarshal([]byte(s.expect("root", "GET "+one+"?history=true", "", 200, "")), &h); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range h.Items {
		got = append(got, fmt.Sprintf("%s by %s for %s: %s", v.Change, v.Manager, v.User, v.Patch))
		within, err := time.ParseDuration(v.Within)
		if err != nil || v.Time.Add(-within).After(time.Now()) || v.Time.Before(began) {
			t.Errorf("written by %v, within %q, %v: it was between %v and now", v.Time, v.Within, err, began)
		}
	}
	want := []string{
		"deleted by  for root: ",
		`changed by together for ann: [{"op":"replace","path":"/data/k","value":"3"}]`,
		`changed by applier for root: [{"op":"replace","path":"/data/k","value":"2"}]`,
		"created by maker for root: ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if text := s.expect("root", "GET "+inDefault+"/configmaps/b?history=true", "", 200, ""); value(text, "items.0.user") != "ann" {
		t.Errorf("the other object of the transaction: %s", text)
	}
	s.expect("root", "DELETE "+inDefault+"/configmaps?fieldSelector=metadata.name%3Db", "", 200, "")
	if text := s.expect("root", "GET "+inDefault+"/configmaps/b?history=true", "", 200, ""); value(text, "items.0.change") != "deleted" || value(text, "items.0.user") != "root" {
		t.Errorf("deleted with its collection: %s", text)
	}
}

// TestReadAnInstant: get, list, Table and watch take at, by today's rights, and say what they can't.
func TestReadAnInstant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	durable := func(s *server.Server) { s.Data.Ephemeral, s.Data.Dir = false, dir }
	s := newWidgets(t, durable)
	first := tick(t, s)
	send(t, s, 200, "PATCH", widgetsPath+"/a", mergePatch, `{"spec":{"size":2}}`)
	s.PostYAML(widgetsPath, widget("b"))
	second := tick(t, s)
	send(t, s, 200, "DELETE", widgetsPath+"/a", "", "")
	tick(t, s)
	read := func(s *servertest.Server) {
		t.Helper()
		check(t, s.Get(widgetsPath+"/a?at="+first), "spec.size=1")
		check(t, s.Get(widgetsPath+"/a?at="+second), "spec.size=2")
		if names := namesListed(s.Get(widgetsPath + "?at=" + first)); names != "a" {
			t.Errorf("first there was %s", names)
		}
		if names := namesListed(s.Get(widgetsPath + "?at=" + second)); names != "a b" {
			t.Errorf("then there were %s", names)
		}
		if names := namesListed(s.Get(widgetsPath)); names != "b" {
			t.Errorf("now there is %s", names)
		}
		_, table := s.Do(http.MethodGet, widgetsPath+"?at="+first, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if value(table, "kind") != "Table" || value(table, "rows.0.object.metadata.name") != "a" || value(table, "rows.1.object.metadata.name") != "" {
			t.Errorf("a table of the first: %s", table)
		}
		watch := s.Watch(widgetsPath + "?watch=true&at=" + second)
		defer watch.Close()
		if line, err := watch.Next(); err != nil || value(line, "type") != "DELETED" {
			t.Errorf("a watch from the second on says %s, %v", line, err)
		}
	}
	read(s)
	before := historyOf(t, s, widgetsPath+"/a", 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := servertest.New(t, durable)
	read(again)
	if after := historyOf(t, again, widgetsPath+"/a", 0); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after a restart history is %v, and was %v", after, before)
	}
}

// tick returns an instant after all that was written, once everything that's written from now on is after it for the server, too.
func tick(t *testing.T, s *servertest.Server) string {
	t.Helper()
	written := time.Now().Truncate(time.Second).Add(2 * time.Second)
	until(t, "the clock goes on", func() bool { return time.Now().After(written.Add(2500 * time.Millisecond)) })
	return written.UTC().Format(time.RFC3339)
}

// namesListed are the names in a list, in order.
func namesListed(list string) string {
	var l struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	json.Unmarshal([]byte(list), &l) // what isn't one has no names
	var names []string
	for _, item := range l.Items {
		names = append(names, item.Metadata.Name)
	}
	return strings.Join(names, " ")
}

// TestBadPasts: what history doesn't have, and what can't be meant, is refused with what is right.
func TestBadPasts(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) { s.API.Builtin = builtin.All })
	for _, c := range []struct {
		path    string
		code    int
		message string
	}{
		{widgetsPath + "/none?history=true", 404, `widgets.example.com "none" not found`},
		{widgetsPath + "/a?history=true&limit=x", 400, `strconv.ParseInt: parsing "x": invalid syntax`},
		{widgetsPath + "/a?history=true&limit=-1", 400, "limit must be at least 1, and is -1"},
		{widgetsPath + "/a?history=true&from=x", 400, "from=x isn't a resourceVersion"},
		{widgetsPath + "/a?history=true&from=5&at=2026-11-23T10:00:00Z", 400, "from and at both say where the history begins: leave one out"},
		{widgetsPath + "/a/status?history=true", 400, "history is of whole objects: leave out the subresource status"},
		{"/api/v1/componentstatuses/etcd-0?history=true", 400, "componentstatuses aren't stored, and so have no history"},
		{widgetsPath + "?history=true", 400, "history is of one object, and isn't watched: get it by its name"},
		{widgetsPath + "/a?history=true&resourceVersion=5", 400, "history begins with a version by from=5, and resourceVersion means nothing: leave it out"},
		{widgetsPath + "?at=yesterday", 400, "at=yesterday is neither an instant, as 2026-11-23T10:00:00Z, nor how long ago, as 10m"},
		{widgetsPath + "?at=2126-11-23T10:00:00Z", 400, ""},
		{widgetsPath + "?at=2006-11-23T10:00:00Z", 410, ""},
		{widgetsPath + "/a?at=2006-11-23T10:00:00Z", 410, ""},
		{widgetsPath + "/a?history=true&at=2006-11-23T10:00:00Z", 410, ""},
		{widgetsPath + "?at=2006-11-23T10:00:00Z&resourceVersion=5", 400, "at and resourceVersion both say which state is meant: leave one out"},
		{widgetsPath + "/none?resourceVersion=5&resourceVersionMatch=Exact", 404, ""},
	} {
		r, text := s.Do(http.MethodGet, c.path, "")
		if got := status(t, r, text); r.StatusCode != c.code || c.message != "" && got.Message != c.message {
			t.Errorf("%s: %d %s, want %d %s", c.path, r.StatusCode, got.Message, c.code, c.message)
		}
	}
	for _, path := range []string{widgetsPath + "?at=2026-11-23T10:00:00Z", widgetsPath + "/a?at=2026-11-23T10:00:00Z", widgetsPath + "/a?history=true"} {
		if r, text := s.Do(http.MethodDelete, path, ""); status(t, r, text).Message != "at and history read the past, and what is there now would be deleted: leave them out" {
			t.Errorf("a deletion of the past at %s: %s", path, text)
		}
	}
	r, text := s.Do(http.MethodGet, widgetsPath+"/a?history=true", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if got := status(t, r, text); got.Message != "history is JSON: ask with Accept: application/json" {
		t.Errorf("as a table: %s", text)
	}
}

// TestHistoryBounded: an answer has a bound in bytes, and goes on where it ended; a patch that would have long paths replaces whole members.
func TestHistoryBounded(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	large := func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"k":"%d%s"}}`, i, strings.Repeat("x", 900_000))
	}
	s.PostYAML(configMaps, large(0))
	const versions = 12
	for i := 1; i < versions; i++ {
		send(t, s, 200, "PUT", configMaps+"/large", "", large(i))
	}
	text := s.Get(configMaps + "/large?history=true")
	var h past
	if err := json.Unmarshal([]byte(text), &h); err != nil || len(text) > 6<<20 || h.Metadata.Continue == "" {
		t.Errorf("an answer of %d bytes with %d versions, and it goes on at %q, %v", len(text), len(h.Items), h.Metadata.Continue, err)
	}
	n := 0
	for from := ""; ; from = "&from=" + h.Metadata.Continue {
		h = past{}
		if err := json.Unmarshal([]byte(s.Get(configMaps+"/large?history=true"+from)), &h); err != nil {
			t.Fatal(err)
		}
		if n += len(h.Items); h.Metadata.Continue == "" {
			break
		}
	}
	if n != versions {
		t.Errorf("%d versions in all pages, want %d", n, versions)
	}
	labels := func(value int) string {
		var all []string
		for i := range 800 {
			all = append(all, fmt.Sprintf(`"a.long.prefix.of.a.label.that.is.repeated.%s/%d":"%d"`, strings.Repeat("x", 200), i, value))
		}
		return `{"metadata":{"annotations":{` + strings.Join(all, ",") + `}}}`
	}
	for i := range 2 {
		send(t, s, 200, "PATCH", configMaps+"/large", mergePatch, labels(i))
	}
	all := historyOf(t, s, configMaps+"/large", 1)
	if p := string(all[0].Patch); !strings.HasPrefix(p, `[{"op":"replace","path":"/metadata"`) {
		t.Errorf("a patch of long paths is %.200s", p)
	}
}

// TestHistoryAfterReset: history begins with a reset, whatever the store still has.
func TestHistoryAfterReset(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.Snapshot("one")
	for size := range 5 {
		send(t, s, 200, "PATCH", widgetsPath+"/a", mergePatch, fmt.Sprintf(`{"spec":{"size":%d}}`, size+2))
	}
	s.ResetTo("one")
	send(t, s, 200, "PATCH", widgetsPath+"/a", mergePatch, `{"spec":{"size":9}}`)
	for _, page := range []int{0, 1} {
		var h past
		text := s.Get(fmt.Sprint(widgetsPath, "/a?history=true&limit=", page))
		if err := json.Unmarshal([]byte(text), &h); err != nil || len(h.Items) > 2 || h.Items[0].Change != "changed" {
			t.Errorf("in pages of %d: %s", page, text)
		}
	}
	if all := historyOf(t, s, widgetsPath+"/a", 1); len(all) != 2 {
		t.Errorf("after a reset history has %v", briefHistory(all))
	}
}

// TestPastEnds: what was compacted is gone, and the answers say how far history reaches.
func TestPastEnds(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) { s.Data.History = 3 * time.Second })
	old := value(s.Get(widgetsPath+"/a"), "metadata.resourceVersion")
	gone := func(path string) bool {
		r, text := s.Do(http.MethodGet, path, "")
		return r.StatusCode == http.StatusGone && strings.Contains(text, "history reaches back to")
	}
	size := 1
	until(t, "history has ended before the version", func() bool {
		size++
		send(t, s, 200, "PATCH", widgetsPath+"/a", mergePatch, fmt.Sprintf(`{"spec":{"size":%d}}`, size))
		return gone(widgetsPath + "/a?resourceVersionMatch=Exact&resourceVersion=" + old)
	})
	if !gone(widgetsPath + "/a?history=true&from=" + old) {
		t.Error("a history from before everything is answered")
	}
	all := historyOf(t, s, widgetsPath+"/a", 0)
	if oldest := all[len(all)-1]; len(all) == 0 || oldest.Change != "changed" || oldest.Patch != nil {
		t.Errorf("history ends with %+v, of which nobody knows what was before", all[len(all)-1])
	}
}

// TestHistoryOfSecrets: what is encrypted in the store is read as any other.
func TestHistoryOfSecrets(t *testing.T) {
	t.Parallel()
	s := newSealed(t, key("aescbc", "one")).serve()
	s.PostYAML(secretsPath, secret("a"))
	send(t, s, 200, "PATCH", secretsPath+"/a", mergePatch, `{"data":{"a":"bmV3"}}`)
	all := historyOf(t, s, secretsPath+"/a", 0)
	if len(all) != 2 || string(all[0].Patch) == "" || value(`{"p":`+string(all[0].Patch)+`}`, "p.0.value") != "bmV3" {
		t.Errorf("%+v", all)
	}
}

// TestHistoryInAVersion: versions are shown in the version of the path.
func TestHistoryInAVersion(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, defined(t, "things", "Thing"))
	setVersions(t, s, 200, versionOf("v1", true, true, `"a":{"type":"string"},"b":{"type":"string"}`), versionOf("v2", true, false, `"b":{"type":"string"}`))
	s.PostYAML(thingsPath, thing("v1", "a", `,"spec":{"a":"x","b":"y"}`))
	send(t, s, 200, "PATCH", thingsPath+"/a", mergePatch, `{"spec":{"a":"z"}}`)
	if all := historyOf(t, s, thingsPath+"/a", 0); len(all) != 2 || !strings.Contains(string(all[0].Patch), "/spec/a") {
		t.Errorf("in v1: %+v", all)
	}
	inV2 := strings.Replace(thingsPath, "/v1/", "/v2/", 1)
	if all := historyOf(t, s, inV2+"/a", 0); len(all) != 2 || strings.Contains(string(all[0].Patch), "/spec/a") {
		t.Errorf("in v2: %+v", all)
	}
}
