package recording_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/backup/recording"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/internal/faultproxy"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// kubernetes has a server look like kube-apiserver, which has no path of ours. spoil, unless it's nil, says what goes wrong with other requests.
func kubernetes(t *testing.T, s *servertest.Server, token string, spoil func(*http.Request) faultproxy.Fault) (*client.Client, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.New(t, s.URL, func(r *http.Request) faultproxy.Fault {
		switch {
		case strings.HasPrefix(r.URL.Path, "/apiserver-lite/"):
			return faultproxy.Fault{Status: http.StatusNotFound}
		case spoil != nil:
			return spoil(r)
		}
		return faultproxy.Fault{}
	})
	c, err := client.New(proxy.URL, client.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c, proxy
}

// TestRecordApart: a server without a stream of several kinds is recorded kind by kind, and what is replayed from that leaves the same state:
// also where each watch is cut after a few events, in the middle of one.
func TestRecordApart(t *testing.T) {
	t.Parallel()
	source := servertest.New(t, all)
	source.PostYAML("/api/v1/namespaces/default/configmaps", "metadata: {name: was-there}")
	c, proxy := kubernetes(t, source, "", func(r *http.Request) faultproxy.Fault {
		switch {
		case r.URL.Query().Has("watch"):
			return faultproxy.Fault{Spoil: faultproxy.Cut, Lines: 15, Bytes: 40}
		case r.URL.Path == "/apis/storage.k8s.io/v1": // as of another server that is away
			return faultproxy.Fault{Status: http.StatusServiceUnavailable}
		case r.URL.Path == "/apis/node.k8s.io/v1/runtimeclasses": // as of a kind whose webhook is away
			return faultproxy.Fault{Status: http.StatusInternalServerError}
		}
		return faultproxy.Fault{}
	})
	log := new(await.Log)
	r := recordBy(t, source, c, recording.RecordOptions{Secrets: true, Log: slog.New(slog.NewTextHandler(log, nil))})
	live(t, source)
	builtins(t, source)
	file := r.end()
	if proxy.Spoiled.Load() < 3 || r.what.Gaps > 0 {
		t.Errorf("%d watches were cut, and the recording is %+v", proxy.Spoiled.Load(), r.what)
	}
	for _, left := range []string{"resources of storage.k8s.io/v1", "left out runtimeclasses.node.k8s.io"} {
		if !strings.Contains(log.String(), left) {
			t.Errorf("the log lacks %s: %s", left, log)
		}
	}
	replaysEqually(t, source, file, r.what.Changes, map[string]recording.Speed{"step": recording.Step, "max": recording.Max})
}

// TestRecordApartLate: what a kind's watch brings late, because its connection is away, is written where it belongs: a namespace before what is in
// it, and an owner before what it owns.
func TestRecordApartLate(t *testing.T) {
	t.Parallel()
	source := servertest.New(t)
	define(t, source)
	const refusals = 3 // of each watch, which takes longer than changes wait for others
	var away atomic.Bool
	var ofWidgets, ofNamespaces atomic.Int64
	c, proxy := kubernetes(t, source, "", func(r *http.Request) faultproxy.Fault {
		tries, code := &ofNamespaces, http.StatusBadGateway
		if strings.HasSuffix(r.URL.Path, "/widgets") {
			tries, code = &ofWidgets, http.StatusNotFound // as a server says that doesn't know its definitions yet
		} else if !strings.HasSuffix(r.URL.Path, "/namespaces") {
			return faultproxy.Fault{}
		}
		if r.URL.Query().Has("watch") && away.Load() && tries.Add(1) <= refusals {
			return faultproxy.Fault{Status: code}
		}
		return faultproxy.Fault{}
	})
	r := recordBy(t, source, c, recording.RecordOptions{})
	source.PostYAML("/apis/example.com/v1/namespaces/default/widgets", "metadata: {name: first}\napiVersion: example.com/v1\nkind: Widget")
	source.PostYAML("/api/v1/namespaces", "metadata: {name: first}")
	r.until(`"type":"ADDED","object":{"apiVersion":"example.com/v1"`, 1) // both are watched
	away.Store(true)
	proxy.Break()
	put(t, source, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	owner := client.Object(put(t, source, "POST", strings.Replace(widgets, "default", "shop", 1), `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"owner"}}`)).UID()
	put(t, source, "POST", "/api/v1/namespaces/shop/configmaps", fmt.Sprintf(`{"metadata":{"name":"owned","ownerReferences":[{"apiVersion":"example.com/v1","kind":"Widget","name":"owner","uid":%q}]}}`, owner))
	all := names(t, r.end(), "^(Namespace|Widget|ConfigMap)$")
	at := func(what string) int { return slices.Index(all, what) }
	if at("ADDED shop") < 0 || at("ADDED shop") > at("ADDED owner") || at("ADDED owner") > at("ADDED owned") {
		t.Errorf("the order is %q", all)
	}
	if again := slices.DeleteFunc(slices.Clone(all), func(what string) bool { return what != "ADDED first" }); len(again) != 2 || r.what.Gaps > 0 {
		t.Errorf("what was there comes again: %q, %+v", all, r.what)
	}
	if ofWidgets.Load() <= refusals || ofNamespaces.Load() <= refusals {
		t.Errorf("the watches came back after %d and %d tries", ofWidgets.Load(), ofNamespaces.Load())
	}
}

// TestRecordApartExpired: where a kind's history is gone the recording says so, and goes on with what there is of that kind.
func TestRecordApartExpired(t *testing.T) {
	t.Parallel()
	source := servertest.New(t)
	var gone atomic.Int64 // how many watches are told that history is gone
	changed := make(chan struct{})
	c, proxy := kubernetes(t, source, "", func(r *http.Request) faultproxy.Fault {
		if r.URL.Query().Has("watch") && strings.HasSuffix(r.URL.Path, "/configmaps") && gone.Add(-1) >= 0 {
			select {
			case <-changed:
			case <-r.Context().Done():
			}
			return faultproxy.Fault{Spoil: faultproxy.Garbage, Text: faultproxy.Expired}
		}
		return faultproxy.Fault{}
	})
	r := recordBy(t, source, c, recording.RecordOptions{})
	configmaps := "/api/v1/namespaces/default/configmaps"
	for _, name := range []string{"a", "b", "c"} {
		source.PostYAML(configmaps, "metadata: {name: "+name+"}")
	}
	r.until(`"name":"c"`, 1)
	gone.Store(1)
	proxy.Break()
	put(t, source, "DELETE", configmaps+"/a", "")
	put(t, source, "PATCH", configmaps+"/b", `{"data":{"is":"new"}}`)
	close(changed)
	file := r.end()
	if got := strings.Join(names(t, file, "^ConfigMap$"), ", "); r.what.Gaps != 1 || !strings.Contains(got, "ADDED c, GAP, DELETED a, MODIFIED b") {
		t.Errorf("the recording has %s, %+v", got, r.what)
	}
	target := servertest.New(t)
	replayInto(t, target, file, recording.Step)
	compare(t, stateOf(t, target), stateOf(t, source))
}

// TestRecordApartRights: of a server that tells users apart, the kinds that the user may list and watch are recorded. One that is named and that the
// user may not is an error.
func TestRecordApartRights(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("alice-token,alice,u1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	source := servertest.New(t, all, func(s *server.Server) {
		s.Token, s.Access = "root-token", access.Options{TokenAuthFile: tokens, AuthorizationMode: "RBAC"}
	})
	post := func(path, object string) {
		t.Helper()
		if res, answer := source.Do("POST", path, object, "Content-Type", "application/yaml", "Authorization", "Bearer root-token"); res.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s", res.Status, answer)
		}
	}
	rights := "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	post(rights, `{metadata: {name: some}, rules: [{apiGroups: [""], resources: [configmaps, namespaces], verbs: [list, watch]}, {apiGroups: [""], resources: [serviceaccounts], verbs: [list]}]}`)
	post(rights[:len(rights)-1]+"bindings", `{metadata: {name: some}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: some}, subjects: [{kind: User, name: alice}]}`)
	c, _ := kubernetes(t, source, "alice-token", nil)
	log := new(await.Log)
	r := recordBy(t, source, c, recording.RecordOptions{Log: slog.New(slog.NewTextHandler(log, nil))})
	post("/api/v1/namespaces/default/configmaps", "metadata: {name: a}")
	post("/api/v1/namespaces/default/serviceaccounts", "metadata: {name: unseen}")
	post("/api/v1/namespaces/default/configmaps", "metadata: {name: b}")
	r.until(`"name":"b"`, 1)
	r.stop()
	if err := <-r.result; err != nil {
		t.Fatal(err)
	}
	if got := names(t, r.file.bytes(), ""); !slices.Contains(got, "ADDED a") || !slices.Contains(got, "ADDED kube-system") || slices.Contains(got, "ADDED unseen") {
		t.Errorf("the recording has %q", got)
	}
	if file := r.file.unpacked(); strings.Contains(file, `"ServiceAccount"`) || strings.Contains(file, `"ClusterRole"`) {
		t.Errorf("the recording has what the user may not watch: %s", file)
	}
	for _, want := range []string{"left out serviceaccounts", "left out clusterroles.rbac.authorization.k8s.io"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
	for _, named := range []string{"serviceaccounts", "deployments"} {
		_, err := recording.Record(t.Context(), c, &lockedBuffer{}, recording.RecordOptions{Resources: []string{"configmaps", named}})
		if !errors.Is(err, client.ErrForbidden) {
			t.Errorf("the error about %s is %v", named, err)
		}
	}
}
