package recording_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/backup/recording"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// names returns what happened in a file to objects whose kind matches, as types and names.
func names(t *testing.T, file []byte, kind string) (all []string) {
	t.Helper()
	lines, err := recording.NewReader(bytes.NewReader(file))
	for err == nil {
		var l recording.Line
		if l, err = lines.Next(); err == nil && (l.Object == nil || regexp.MustCompile(kind).MatchString(l.Object.Kind())) {
			all = append(all, strings.TrimSpace(l.Type+" "+l.Object.Name()))
		}
	}
	return all
}

// TestRecord: what a recording has of a server.
func TestRecord(t *testing.T) {
	t.Parallel()
	configmap := func(t *testing.T, s *servertest.Server, name string) string {
		return s.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: "+name+"}")
	}
	secret := func(t *testing.T, s *servertest.Server) {
		s.PostYAML("/api/v1/namespaces/default/secrets", "metadata: {name: hush}")
	}
	tests := []struct {
		name    string
		before  func(t *testing.T, s *servertest.Server, o *recording.RecordOptions)
		options recording.RecordOptions
		kinds   string
		want    []string
	}{
		{"the state, and what changes", nil, recording.RecordOptions{}, "^(ConfigMap|Secret)$", []string{"ADDED before", "ADDED after", "DELETED before", "ADDED the-end", "END"}},
		{"changes only", nil, recording.RecordOptions{ChangesOnly: true}, "^(ConfigMap|Secret)$", []string{"ADDED after", "DELETED before", "ADDED the-end", "END"}},
		{"kinds that are named", nil, recording.RecordOptions{Resources: []string{"cm"}}, "", []string{"ADDED before", "ADDED after", "DELETED before", "ADDED the-end", "END"}},
		{"Secrets", nil, recording.RecordOptions{Secrets: true, Resources: []string{"secrets", "configmaps"}, ChangesOnly: true}, "", []string{"ADDED after", "ADDED hush", "DELETED before", "ADDED the-end", "END"}},
		{"from a version", func(t *testing.T, s *servertest.Server, o *recording.RecordOptions) {
			o.From = version(s)
			configmap(t, s, "since")
		}, recording.RecordOptions{}, "^ConfigMap$", []string{"ADDED before", "ADDED since", "ADDED after", "DELETED before", "ADDED the-end", "END"}},
		{"from a version, changes only", func(t *testing.T, s *servertest.Server, o *recording.RecordOptions) {
			o.From = version(s)
			configmap(t, s, "since")
		}, recording.RecordOptions{ChangesOnly: true}, "^ConfigMap$", []string{"ADDED since", "ADDED after", "DELETED before", "ADDED the-end", "END"}},
	}
	for i, test := range append(tests, tests...) {
		name, apart := test.name, i >= len(tests)
		if apart {
			name += ", kind by kind"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.New(t, all)
			c := clientOf(t, s)
			if apart {
				c, _ = kubernetes(t, s, "", nil)
			}
			configmap(t, s, "before")
			if test.before != nil {
				test.before(t, s, &test.options)
			}
			r := recordBy(t, s, c, test.options)
			configmap(t, s, "after")
			secret(t, s)
			put(t, s, "DELETE", "/api/v1/namespaces/default/configmaps/before", "")
			got := slices.Compact(names(t, r.end(), test.kinds))
			if slices.Sort(got[:min(2, len(got))]); !slices.Equal(sorted(got), sorted(test.want)) {
				t.Errorf("the recording has %q, want %q", got, test.want)
			}
			if before, end := slices.Index(got, "ADDED after"), slices.Index(got, "DELETED before"); before > end || got[len(got)-1] != "END" {
				t.Errorf("the order is %q", got)
			}
		})
	}
}

func sorted(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }

// version returns the version that a server is at.
func version(s *servertest.Server) string {
	return regexp.MustCompile(`"resourceVersion":"(\d+)"`).FindStringSubmatch(s.Get("/api/v1/configmaps?limit=1"))[1]
}

// TestDefinitionsGo: a kind whose definition is deleted and comes back is recorded in both of its lives, also when it has another version then.
func TestDefinitionsGo(t *testing.T) {
	t.Parallel()
	t.Run("on one stream", func(t *testing.T) {
		t.Parallel()
		source := servertest.New(t)
		definitionsGo(t, source, clientOf(t, source))
	})
	t.Run("kind by kind", func(t *testing.T) {
		t.Parallel()
		source := servertest.New(t)
		c, _ := kubernetes(t, source, "", nil)
		definitionsGo(t, source, c)
	})
}

func definitionsGo(t *testing.T, source *servertest.Server, c *client.Client) {
	definitions := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	text, err := os.ReadFile("../../testdata/crds/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := recordBy(t, source, c, recording.RecordOptions{})
	written := 0
	for life, version := range []string{"v1", "v1", "v2"} {
		source.PostYAML(definitions, strings.Replace(string(text), "name: v1", "name: "+version, 1))
		for i := range 3 + life {
			put(t, source, "POST", strings.Replace(widgets, "v1", version, 1), fmt.Sprintf(`{"apiVersion":"example.com/%s","kind":"Widget","metadata":{"name":"w%d"},"spec":{"size":%d}}`, version, i, life))
		}
		if written += 3 + life; life < 2 {
			r.until(`"type":"ADDED","object":{"apiVersion":"example.com/`, written)
			put(t, source, "DELETE", definitions+"/widgets.example.com", "")
			source.Quiescent()
			r.until(`"type":"DELETED","object":{"apiVersion":"apiextensions`, life+1)
		}
	}
	file := r.end()
	want := stateOf(t, source)
	for _, speed := range []recording.Speed{recording.Step, recording.Max} {
		target := servertest.New(t)
		replayInto(t, target, file, speed)
		compare(t, stateOf(t, target), want)
	}
	if got := names(t, file, "^Widget$"); len(got) < 3+4+5+3+4 {
		t.Errorf("the recording has %q", got)
	}
}

// TestGap: when history is gone, a recording says so, and goes on with what there is.
func TestGap(t *testing.T) {
	t.Parallel()
	source := servertest.New(t)
	r := record(t, source, recording.RecordOptions{})
	source.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: a}")
	source.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: b}")
	r.until(`"name":"b"`, 1)
	source.Reset()
	source.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: b}\ndata: {is: new}")
	file := r.end()
	if got := strings.Join(names(t, file, "^ConfigMap$"), ", "); r.what.Gaps != 1 || !strings.Contains(got, "ADDED b, GAP, DELETED a") {
		t.Errorf("the recording has %s, %+v", got, r.what)
	}
	target := servertest.New(t)
	if result := replayInto(t, target, file, recording.Step); result.Gaps != 1 {
		t.Errorf("the result is %+v", result)
	}
	compare(t, stateOf(t, target), stateOf(t, source))
}

// TestRecordRefused: what can't be recorded is an error that says why.
func TestRecordRefused(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	tests := []struct {
		name    string
		options recording.RecordOptions
		want    string
	}{
		{"a kind that isn't there", recording.RecordOptions{Resources: []string{"gizmos"}}, `no resource "gizmos"`},
		{"Secrets unasked", recording.RecordOptions{Resources: []string{"secrets"}}, "with --secrets only"},
		{"a version to come", recording.RecordOptions{From: "999999999", Resources: []string{"cm"}}, "list configmaps at resourceVersion 999999999: "},
		{"changes of a version to come", recording.RecordOptions{From: "999999999", ChangesOnly: true}, "history doesn't have resourceVersion 999999999: "},
	}
	apart, _ := kubernetes(t, s, "", nil)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for how, c := range map[string]*client.Client{"on one stream": clientOf(t, s), "kind by kind": apart} {
				_, err := recording.Record(t.Context(), c, &lockedBuffer{}, test.options)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s the error is %v, want %q", how, err, test.want)
				}
			}
		})
	}
}

// failing is a file on a disk that is full.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, fmt.Errorf("no space left") }

// TestRecordUnwritable: a recording ends when its file can't be written.
func TestRecordUnwritable(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	_, err := recording.Record(ctx, clientOf(t, s), failing{}, recording.RecordOptions{})
	if err == nil || !strings.Contains(err.Error(), "write the recording: no space left") {
		t.Errorf("the error is %v", err)
	}
}
