package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestDeleteCollections: what goes, what stays, and what the answer shows.
func TestDeleteCollections(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, path, body string
		code             int
		deleted          string // in the answer
		left             string // in the end, in all namespaces
		causes           string
	}{
		{"all of a namespace", "", "", 200, "a b c held", "held other", ""},
		{"by label", "?labelSelector=odd", "", 200, "a c", "b held other", ""},
		{"by field", "?fieldSelector=metadata.name%3Db", "", 200, "b", "a c held other", ""},
		{"a page", "?limit=2", "", 200, "a b", "c held other", ""},
		{"none", "?labelSelector=x", "", 200, "", "a b c held other", ""},
		{"with options", "", `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"propagationPolicy":"Background"}`, 200, "a b c held", "held other", ""},
		{"dry", "?dryRun=All", "", 200, "a b c held", "a b c held other", ""},
		{"dry by the body", "", `{"dryRun":["All"]}`, 200, "a b c held", "a b c held other", ""},
		{"nobody has that uid", "", `{"preconditions":{"uid":"x"}}`, 409, "", "a b c held other", ""},
		{"bad selector", "?labelSelector=a+b+c", "", 400, "", "a b c held other", ""},
		{"unknown field", "?fieldSelector=spec.x%3D1", "", 400, "", "a b c held other", ""},
		{"bad dryRun", "?dryRun=Some", "", 422, "", "a b c held other", "FieldValueNotSupported dryRun"},
		{"bad match", "?resourceVersionMatch=Exact", "", 422, "", "a b c held other", "FieldValueForbidden resourceVersionMatch"},
		{"not options", "", `{"kind":"Gizmo"}`, 400, "", "a b c held other", ""},
		{"garbage", "", `{`, 400, "", "a b c held other", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newGizmos(t)
			for _, name := range []string{"a", "b", "c"} {
				labels := map[bool]string{true: `,"labels":{"odd":""}`}[name != "b"]
				s.PostYAML(gizmosPath, applied(name, labels))
			}
			s.PostYAML(gizmosPath, applied("held", `,"finalizers":["x.y/z"]`))
			last := s.PostYAML(strings.Replace(gizmosPath, "default", "kube-system", 1), applied("other", ""))
			events := s.Watch("/apis/example.com/v1/gizmos?watch=true&resourceVersion=" + value(last, "metadata.resourceVersion"))
			res, body := s.Do("DELETE", gizmosPath+tc.path, tc.body)
			if res.StatusCode != tc.code {
				t.Fatalf("%s: %s", res.Status, body)
			}
			if tc.code != http.StatusOK {
				if got := status(t, res, body); causesOf(got) != tc.causes {
					t.Errorf("causes %s in %s", causesOf(got), body)
				}
			} else {
				check(t, body, "kind=GizmoList apiVersion=example.com/v1 metadata.resourceVersion!=")
				l := decode[listed](t, body)
				if l.names() != tc.deleted || l.Items == nil {
					t.Errorf("it deleted %s, want %s", l.names(), tc.deleted)
				}
				for i, item := range l.Items {
					if marked := value(body, fmt.Sprintf("items.%d.metadata.deletionTimestamp", i)) != ""; item.Metadata.Name == "held" && marked {
						t.Errorf("it isn't as it was before: %s", body)
					}
				}
			}
			if left := decode[*listed](t, s.Get("/apis/example.com/v1/gizmos")).names(); left != tc.left {
				t.Errorf("there is %s, want %s", left, tc.left)
			}
			// Watches have what happened, and nothing of what didn't.
			want := strings.Fields(tc.deleted)
			if strings.Contains(tc.path+tc.body, "dryRun") {
				want = nil
			}
			s.PostYAML(gizmosPath, applied("last", ""))
			var got []string
			for {
				e := next(t, events)
				if e.String() == "ADDED last" {
					break
				}
				if kind := map[bool]string{true: "MODIFIED", false: "DELETED"}[e.Object.Metadata.Name == "held"]; e.Type != kind {
					t.Errorf("there was %s", e)
				}
				got = append(got, e.Object.Metadata.Name)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("there were events of %v, want %v", got, want)
			}
		})
	}
}

// TestDeleteCollectionForms: across namespaces, as a table, and where it isn't served.
func TestDeleteCollectionForms(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	for _, ns := range []string{"default", "kube-system"} {
		for _, name := range []string{"a", "b"} {
			s.PostYAML(strings.Replace(gizmosPath, "default", ns, 1), applied(name, ""))
		}
	}
	res, body := s.Do("DELETE", gizmosPath+"?limit=1", "", "Accept", tableV1)
	if got := brief(t, body); res.StatusCode != 200 || !strings.Contains(got, "PartialObjectMetadatameta.k8s.io/v1a") {
		t.Errorf("as a table: %s %s", res.Status, got)
	}
	if got := decode[*listed](t, send(t, s, 200, "DELETE", "/apis/example.com/v1/gizmos", "", "")).names(); got != "b a b" {
		t.Errorf("across namespaces it deleted %s", got)
	}
	if got := decode[*listed](t, send(t, s, 200, "DELETE", "/apis/example.com/v1/gizmos", "", "")).names(); got != "" {
		t.Errorf("again it deleted %s", got)
	}
	send(t, s, 405, "DELETE", "/api/v1/namespaces", "", "")
	if got := send(t, s, 200, "DELETE", definitionsPath, "", ""); value(got, "items.0.metadata.name") != "gizmos.example.com" {
		t.Errorf("of definitions it deleted %s", got)
	}
}
