package server_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// TestQuota: at the database's quota whatever writes is answered 507 and readyz says why, reads, watches and
// deletions go on, and deleting is enough for writes to come back. What was refused isn't there: etcd does the
// write with which it notices that the quota is reached, and refuses it.
func TestQuota(t *testing.T) {
	const path = "/api/v1/namespaces/default/configmaps"
	e, err := etcd.Open(t.Context(), etcd.Options{Ephemeral: true, DataDir: t.TempDir(), QuotaBytes: 16 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	s := servertest.New(t, func(s *server.Server) {
		s.Data.Ephemeral = false
		server.Share(s, e)
	})
	watch := s.Watch(path + "?watch=true&resourceVersion=" + value(s.Get(path), "metadata.resourceVersion"))
	defer watch.Close()
	next := func(kind, name string) {
		t.Helper()
		for {
			line, err := watch.Next()
			if err != nil {
				t.Fatal(err)
			}
			var event struct {
				Type   string
				Object metav1.PartialObjectMetadata
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatal(err)
			}
			if event.Object.Name == "kube-root-ca.crt" {
				continue
			}
			if event.Type != kind || event.Object.Name != name {
				t.Fatalf("the watch tells %s %s, want %s %s", event.Type, event.Object.Name, kind, name)
			}
			return
		}
	}
	filler := strings.Repeat("v", 15000) // it leaves little of its pages unused: the quota is reached by objects
	create := func(name string) (int, string) {
		r, text := s.Do(http.MethodPost, path, fmt.Sprintf(`{"metadata":{"name":%q},"data":{"a":%q}}`, name, filler), "Content-Type", "application/json")
		return r.StatusCode, text
	}
	refused := func(what string, code int, text string) {
		t.Helper()
		var status metav1.Status
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			t.Fatal(err)
		}
		if code != http.StatusInsufficientStorage || status.Code != int32(code) || status.Kind != "Status" || status.Reason != metav1.StatusReasonInternalError ||
			!strings.Contains(status.Message, ": no space left for writes: ") ||
			!strings.HasSuffix(status.Message, "else delete objects, and writes go on by themselves; reads and watches go on meanwhile") {
			t.Fatalf("%s is answered %d %s", what, code, text)
		}
	}
	ready := func() (int, string) {
		r, text := s.Do(http.MethodGet, "/readyz", "")
		return r.StatusCode, text
	}

	var names []string
	fill := func() {
		t.Helper()
		until(t, "writes are refused and readyz tells why", func() bool {
			for {
				name := fmt.Sprintf("c-%d", len(names))
				code, text := create(name)
				if code != http.StatusCreated {
					refused("a creation", code, text)
					break
				}
				names = append(names, name)
			}
			code, text := ready()
			return code == http.StatusInternalServerError && strings.Contains(text, "writes are refused: the database has ") && strings.Contains(text, " and its quota is 16 MiB; delete objects")
		})
	}
	const other = "/api/v1/namespaces/kube-system/configmaps" // nothing here is watched
	accepted, sent := "0", 0
	s.PostYAML(other, `{metadata: {name: other}, data: {a: "0"}}`)
	fill()
	for _, write := range []struct{ method, contentType, query string }{
		{http.MethodPut, "application/json", ""},
		{http.MethodPatch, "application/merge-patch+json", ""},
		{http.MethodPatch, "application/apply-patch+yaml", "?fieldManager=test&force=true"},
	} {
		until(t, "a write of an object is refused", func() bool {
			sent++
			r, text := s.Do(write.method, other+"/other"+write.query, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other"},"data":{"a":"%d"}}`, sent), "Content-Type", write.contentType)
			if r.StatusCode == http.StatusOK { // the server has dropped history and found some room
				accepted = fmt.Sprint(sent)
				fill()
				return false
			}
			refused(write.method+" of "+write.contentType, r.StatusCode, text)
			if strings.Contains(text, storage.ErrUnknownOutcome.Error()) { // etcd was full when it had applied it
				accepted = value(s.Get(other+"/other"), "data.a")
			}
			return true
		})
	}
	if got := value(s.Get(other+"/other"), "data.a"); got != accepted {
		t.Errorf("a write that was refused has changed the object: it has %s, want %s", got, accepted)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(s.Get(path+"?fieldSelector=metadata.name!=kube-root-ca.crt")), &list); err != nil || len(list.Items) != len(names) {
		t.Errorf("a list has %d objects, want %d; %v", len(list.Items), len(names), err)
	}
	for _, name := range names {
		next("ADDED", name)
	}

	for _, name := range names[:len(names)/2] {
		if r, text := s.Do(http.MethodDelete, path+"/"+name, ""); r.StatusCode != http.StatusOK {
			t.Fatalf("a deletion at the quota: %d %s", r.StatusCode, text)
		}
		next("DELETED", name)
	}
	until(t, "a write is answered", func() bool {
		code, text := create("again")
		if code != http.StatusCreated {
			refused("a creation", code, text)
		}
		return code == http.StatusCreated
	})
	next("ADDED", "again")
	until(t, "readyz", func() bool { code, _ := ready(); return code == http.StatusOK })
}
