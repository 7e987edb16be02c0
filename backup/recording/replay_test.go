package recording_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/backup/recording"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// file makes a file of changes, each a type and an object, with its first line and its last one.
func file(changes ...string) string {
	text := `{"time":"2026-01-01T00:00:00Z","type":"BEGIN","form":"apiserver-lite/recording/v1","resourceVersion":"1"}` + "\n"
	for _, change := range changes {
		what, object, _ := strings.Cut(change, " ")
		text += fmt.Sprintf(`{"time":"2026-01-01T00:00:00Z","type":%q,"object":%s}`+"\n", what, object)
	}
	return text + `{"time":"2026-01-01T00:00:01Z","type":"END"}` + "\n"
}

// configmap is an object of a file.
func configmap(what, name, uid, more string) string {
	return fmt.Sprintf(`%s {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default","uid":%q%s}}`, what, name, uid, more)
}

// TestCut: of a recording that is cut, plain or compressed, what is there is replayed, and the error says where it ends.
func TestCut(t *testing.T) {
	t.Parallel()
	source := servertest.New(t)
	for _, test := range []struct {
		name string
		gzip bool
	}{{"plain", false}, {"gzip", true}} {
		r := record(t, source, recording.RecordOptions{Gzip: test.gzip, Resources: []string{"configmaps"}})
		for i := range 20 {
			source.PostYAML("/api/v1/namespaces/default/configmaps", fmt.Sprintf("metadata: {name: %s%d}", test.name, i))
		}
		whole := r.end()
		if _, err := gzip.NewReader(bytes.NewReader(whole)); (err == nil) != test.gzip {
			t.Errorf("%s: gzip says %v", test.name, err)
		}
		put(t, source, "DELETE", "/api/v1/namespaces/default/configmaps/the-end", "")
		target := servertest.New(t)
		last := -1
		for _, cut := range []int{0, 1, len(whole) / 3, 2 * len(whole) / 3, len(whole) - 1, len(whole)} {
			result, err := recording.Replay(t.Context(), clientOf(t, target), bytes.NewReader(whole[:cut]), recording.Options{Speed: recording.Max})
			if errors.Is(err, recording.ErrCut) != (cut < len(whole)-1) && cut != len(whole)-1 || err != nil && !errors.Is(err, recording.ErrCut) {
				t.Errorf("%s, cut at %d: %v", test.name, cut, err)
			}
			if result.Changes < last || result.Failed > 0 {
				t.Errorf("%s, cut at %d: %+v, and %d before", test.name, cut, result, last)
			}
			last = result.Changes
		}
		if last != r.what.Changes {
			t.Errorf("%s: %d changes are replayed of %d", test.name, last, r.what.Changes)
		}
	}
}

// TestFailures: what can't be replayed is said, and counted, and the rest goes on.
func TestFailures(t *testing.T) {
	t.Parallel()
	gizmo := `{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"g","namespace":"default"}}`
	tests := []struct {
		name   string
		text   string
		failed int
		want   string
		err    error
	}{
		{"a kind that isn't served", file("ADDED "+gizmo, "MODIFIED "+gizmo, configmap("ADDED", "a", "1", "")), 2, "Gizmo.example.com in example.com/v1: the target doesn't serve it: left out 2 changes", nil},
		{"an object that is refused", file(configmap("ADDED", "UPPER", "1", ""), configmap("ADDED", "b", "2", "")), 1, `line 2: ConfigMap default/UPPER: ConfigMap "UPPER" is invalid: metadata.name`, nil},
		{"a namespace that isn't there", file(strings.ReplaceAll(configmap("ADDED", "c", "1", ""), "default", "nowhere")), 1, `line 2: ConfigMap nowhere/c: namespaces "nowhere" not found`, nil},
		{"a deletion of what isn't there", file(configmap("DELETED", "d", "1", "")), 0, "", nil},
		{"a change of what wasn't recorded", file(configmap("MODIFIED", "e", "1", ""), configmap("MODIFIED", "e", "1", `,"labels":{"a":"b"}`)), 0, "", nil},
		{"an owner that isn't there", file(configmap("ADDED", "f", "1", `,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"nobody","uid":"77"}]`)), 0, "", nil},
		{"a name twice", file(`ADDED {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"g"},"metadata":{"name":"h"}}`), 1, "line 2: ConfigMap g: it can't be replayed: the object has several names", nil},
		{"no recording", "kind: ConfigMap\n", 0, "", recording.ErrForm},
		{"another form", strings.Replace(file(), "/v1", "/v9", 1), 0, "", recording.ErrForm},
		{"a line that isn't JSON", strings.Replace(file(configmap("ADDED", "i", "1", "")), `"END"`, `"END`, 1), 0, "", recording.ErrForm},
		{"a type that isn't known", file(configmap("MOVED", "j", "1", "")), 0, "", recording.ErrForm},
		{"an object without a name", file(`ADDED {"kind":"ConfigMap","apiVersion":"v1"}`), 0, "", recording.ErrForm},
		{"two in one", file() + file(configmap("ADDED", "k", "1", "")), 0, "", nil},
		{"one within another", strings.Replace(file(configmap("ADDED", "l", "1", "")), `{"time"`, strings.SplitAfter(file(), "\n")[0]+`{"time"`, 1), 0, "", recording.ErrForm},
	}
	target := servertest.New(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			result, err := recording.Replay(t.Context(), clientOf(t, target), strings.NewReader(test.text), recording.Options{Speed: recording.Max})
			if !errors.Is(err, test.err) || result.Failed != test.failed {
				t.Errorf("it ends with %v, %+v; want %v and %d failures", err, result, test.err, test.failed)
			}
			if test.want != "" && (len(result.Failures) != 1 || !strings.HasPrefix(result.Failures[0].Error(), test.want)) {
				t.Errorf("the failures are %v, want %q", result.Failures, test.want)
			}
		})
	}
}

// TestOwnersElsewhere: an owner that the recording doesn't have is the one of that name at the target.
func TestOwnersElsewhere(t *testing.T) {
	t.Parallel()
	target := servertest.New(t)
	owner := client.Object(target.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: owner}")).UID()
	replayInto(t, target, []byte(file(configmap("ADDED", "owned", "1", `,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"77"}]`))), recording.Step)
	if got := target.Get("/api/v1/namespaces/default/configmaps/owned"); !strings.Contains(got, owner) {
		t.Errorf("the object is %s, and its owner %s", got, owner)
	}
}

// TestOthersAtTheTarget: an object that somebody deletes at the target while the recording still changes it is a failure, unless the recording
// deletes it, too. One that somebody changes gets what was recorded.
func TestOthersAtTheTarget(t *testing.T) {
	t.Parallel()
	label := func(v int) string { return fmt.Sprintf(`,"labels":{"v":"%d"}`, v) }
	for _, test := range []struct {
		name, method, body string
		then               []string
		want               string
	}{
		{"deleted", "DELETE", "", []string{configmap("MODIFIED", "a", "1", label(2))}, "line 4: ConfigMap default/a: the target has deleted it by itself"},
		{"deleted in the recording, too", "DELETE", "", []string{configmap("MODIFIED", "a", "1", label(2)), configmap("DELETED", "a", "1", label(2))}, ""},
		{"changed", "PATCH", `{"data":{"x":"y"}}`, []string{configmap("MODIFIED", "a", "1", label(2))}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			target := servertest.New(t)
			// Another one writes when the second object is created, between the changes of the first.
			at, err := url.Parse(target.URL)
			if err != nil {
				t.Fatal(err)
			}
			forward := httputil.NewSingleHostReverseProxy(at)
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); true {
					if r.Method == "POST" && bytes.Contains(body, []byte(`"between"`)) {
						put(t, target, test.method, "/api/v1/namespaces/default/configmaps/a", test.body)
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
				}
				forward.ServeHTTP(w, r)
			}))
			defer proxy.Close()
			c, err := client.New(proxy.URL, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdleConnections()
			changes := append([]string{configmap("ADDED", "a", "1", label(1)), configmap("ADDED", "between", "2", "")}, test.then...)
			result, err := recording.Replay(t.Context(), c, strings.NewReader(file(changes...)), recording.Options{})
			if got := fmt.Sprint(result.Failures); err != nil || test.want == "" && got != "[]" || !strings.Contains(got, test.want) {
				t.Errorf("it ends with %v, %v; want %q", err, got, test.want)
			}
			if test.method == "PATCH" {
				if got := target.Get("/api/v1/namespaces/default/configmaps/a"); !strings.Contains(got, `"v":"2"`) || strings.Contains(got, `"x":"y"`) {
					t.Errorf("the object is %s", got)
				}
			}
		})
	}
}

// TestReplayEnds: a replay ends with its context, and when the target goes away, and leaves no worker behind.
func TestReplayEnds(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			cancel()
		}
		<-r.Context().Done()
	}))
	defer stuck.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	var changes []string
	for i := range 1000 {
		changes = append(changes, configmap("ADDED", fmt.Sprint("c", i), fmt.Sprint(i), ""))
	}
	for _, test := range []struct {
		name, url string
		ctx       context.Context
		is        func(error) bool
	}{
		{"stuck", stuck.URL, ctx, func(err error) bool { return errors.Is(err, context.Canceled) }},
		{"gone", gone.URL, t.Context(), func(err error) bool { return err != nil && strings.Contains(err.Error(), "refused") }},
	} {
		c, err := client.New(test.url, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := recording.Replay(test.ctx, c, strings.NewReader(file(changes...)), recording.Options{Speed: recording.Max}); !test.is(err) {
			t.Errorf("%s: it ends with %v", test.name, err)
		}
		c.CloseIdleConnections()
	}
}

// TestServertest: servertest.Replay is replay for tests.
func TestServertest(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "recording.jsonl")
	if err := os.WriteFile(at, []byte(file(configmap("ADDED", "a", "1", ""))), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.New(t)
	servertest.Replay(t, s, at)
	s.Get("/api/v1/namespaces/default/configmaps/a")
}

// FuzzReader: whatever a file has, its reader ends with io.EOF, ErrCut, ErrForm or what gzip says, and each change that it returns has an
// identity.
func FuzzReader(f *testing.F) {
	f.Add([]byte(file(configmap("ADDED", "a", "1", ""))))
	f.Add([]byte(file(configmap("MODIFIED", "a", "1", `,"ownerReferences":[{"uid":"1"}]`), configmap("DELETED", "a", "1", ""))))
	f.Add([]byte(strings.TrimSuffix(file(), "\n")))
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprint(w, file(configmap("ADDED", "a", "1", "")))
	w.Close()
	f.Add(packed.Bytes())
	f.Add(packed.Bytes()[:packed.Len()/2])
	f.Fuzz(func(t *testing.T, text []byte) {
		lines, err := recording.NewReader(bytes.NewReader(text))
		for n := 0; err == nil; n++ {
			var l recording.Line
			if l, err = lines.Next(); err != nil {
				break
			}
			if n > bytes.Count(text, []byte("\n")) && len(text) > 1 && text[0] != 0x1f {
				t.Fatalf("%d lines", n)
			}
			if change := l.Type == recording.Added || l.Type == recording.Modified || l.Type == recording.Deleted; change && (l.Object.Name() == "" || l.Object.Kind() == "") {
				t.Errorf("a change of %q", l.Object)
			}
		}
		if packed := len(text) > 1 && text[0] == 0x1f && text[1] == 0x8b; !packed && !errors.Is(err, io.EOF) && !errors.Is(err, recording.ErrCut) && !errors.Is(err, recording.ErrForm) {
			t.Errorf("the end is %v", err)
		}
	})
}
