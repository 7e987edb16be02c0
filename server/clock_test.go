package server_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestClockStands: with the flag time goes on only when it's told.
func TestClockStands(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock)
	begin := s.Now()
	if d := time.Since(begin); d < 0 || d > time.Hour || begin.Nanosecond() != 0 {
		t.Errorf("it began at %v", begin)
	}
	if metrics := s.Get("/metrics"); !strings.Contains(metrics, "\napiserver_lite_fake_clock_on 1\n") {
		t.Error("the metrics don't say that the clock stands still")
	}
	if now := s.Advance(90 * time.Minute); now != begin.Add(90*time.Minute) || s.Now() != now {
		t.Errorf("after 90 minutes it's %v, and says %v", now, s.Now())
	}
	s.PostYAML(configMapsPath, `metadata: {name: a, annotations: {apiserver-lite/ttl: 10m}}`)
	created := decode[metav1.PartialObjectMetadata](t, s.Get(configMapsPath+"/a")).CreationTimestamp.UTC().Format(time.RFC3339)
	if want := begin.Add(90 * time.Minute).Format(time.RFC3339); created != want {
		t.Errorf("it was created at %s, want %s", created, want)
	}
	s.Advance(10*time.Minute - time.Nanosecond)
	s.Get(configMapsPath + "/a")
	s.Advance(time.Nanosecond)
	if res, _ := s.Do(http.MethodGet, configMapsPath+"/a", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("after its time it's %s", res.Status)
	}
}

// TestClockDue: what has come due is gone when the answer comes, and what hasn't is there.
func TestClockDue(t *testing.T) {
	t.Parallel()
	const events = "/api/v1/namespaces/default/events"
	s := servertest.New(t, servertest.FakeClock)
	ttl := func(name, ttl string) {
		s.PostYAML(configMapsPath, fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{"apiserver-lite/ttl":%q}}}`, name, ttl))
	}
	s.PostYAML(events, `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`)
	ttl("soon", "1s")
	for i := range 200 { // of which the deletions take a while
		ttl(fmt.Sprintf("soon-%d", i), "1s")
	}
	ttl("later", "2h")
	s.Advance(30 * time.Minute)
	if left := strings.Count(s.Get(configMapsPath), `"name":"soon`); left > 0 {
		t.Errorf("%d are there that have expired", left)
	}
	ttl("owner", "30m")
	owner := decode[metav1.PartialObjectMetadata](t, s.Get(configMapsPath+"/owner"))
	s.PostYAML(configMapsPath, fmt.Sprintf(`{"metadata":{"name":"owned","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, owner.UID))
	for _, step := range []struct {
		advance    time.Duration
		there, not []string
	}{
		{time.Second, []string{events + "/e", configMapsPath + "/later", configMapsPath + "/owner", configMapsPath + "/owned"}, []string{configMapsPath + "/soon"}},
		{30*time.Minute - time.Second, []string{configMapsPath + "/later"}, []string{events + "/e", configMapsPath + "/owner", configMapsPath + "/owned"}},
		{time.Hour, nil, []string{configMapsPath + "/later"}},
	} {
		s.Advance(step.advance)
		for _, path := range step.there {
			s.Get(path)
		}
		for _, path := range step.not {
			if res, _ := s.Do(http.MethodGet, path, ""); res.StatusCode != http.StatusNotFound {
				t.Errorf("at %v %s is %s", s.Now(), path, res.Status)
			}
		}
	}
}

// TestClockTokens: a ServiceAccount's token counts until its time is over by the clock, and ends what was opened with it. Who may move the clock goes by
// his rights.
func TestClockTokens(t *testing.T) {
	t.Parallel()
	s := newRuled(t, servertest.FakeClock)
	now := func() time.Time {
		return decode[struct{ Time time.Time }](t, s.expect("root", "GET /debug/clock", "", 200, "")).Time
	}
	s.expect("root", "POST /api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`, 201, "")
	s.expect("root", "POST /debug/clock?advance=24h", "", 200, "")
	request := decode[authenticationv1.TokenRequest](t, s.expect("root", "POST /api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{"expirationSeconds":600}}`, 201, ""))
	if until := request.Status.ExpirationTimestamp; !until.Time.Equal(now().Add(10 * time.Minute)) {
		t.Errorf("the token lives until %v, and it's %v", until, now())
	}
	token := request.Status.Token
	s.expect(token, "POST /debug/clock?advance=1h", "", 403, `forbidden: User "system:serviceaccount:default:robot" cannot post path "/debug/clock"`)
	s.role("robot", "system:serviceaccount:default:robot", "["+aRule("", "configmaps", "watch")+"]")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+configMapsPath+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	watch, err := s.Client.Do(r)
	if err != nil || watch.StatusCode != 200 {
		t.Fatal(err, watch)
	}
	defer watch.Body.Close()

	s.expect("root", "POST /debug/clock?advance=599s", "", 200, "")
	s.expect(token, "GET /version", "", 200, "")
	s.expect("root", "POST /debug/clock?advance=1s", "", 200, "")
	s.expect(token, "GET /version", "", 401, "")
	review := decode[authenticationv1.TokenReview](t, s.expect("root", "POST /apis/authentication.k8s.io/v1/tokenreviews", fmt.Sprintf(`{"spec":{"token":%q}}`, token), 201, ""))
	if review.Status.Authenticated {
		t.Error("a review says that the token counts")
	}
	if _, err := io.ReadAll(watch.Body); err != nil {
		t.Errorf("the watch that was opened with the token ends with %v", err)
	}
}

// TestClockBookmarks: bookmarks are due by the clock, and a watch has had its own when the answer comes: nothing that happens later is before it.
func TestClockBookmarks(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock)
	for range 2 {
		w := s.Watch(configMapsPath + "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
		for !strings.Contains(nextLine(t, w), `"k8s.io/initial-events-end":"true"`) {
			continue // the state
		}
		for range 5 {
			s.Advance(65 * time.Second)
			s.PostYAML(configMapsPath, `{"metadata":{"generateName":"b"}}`)
			if line := nextLine(t, w); !strings.HasPrefix(line, `{"type":"BOOKMARK"`) {
				t.Fatalf("after 65 seconds there is %s", line)
			}
			if line := nextLine(t, w); !strings.Contains(line, `"generateName":"b"`) {
				t.Fatalf("then there is %s", line)
			}
		}
		w.Close()
	}
}

// TestClockTimeouts: a watch ends by the machine's clock, with a last bookmark.
func TestClockTimeouts(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock)
	w := s.Watch(configMapsPath + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion=1")
	var last string
	for {
		line, err := w.Next()
		if err != nil {
			if err != io.EOF || !strings.HasPrefix(last, `{"type":"BOOKMARK"`) {
				t.Errorf("it ends with %v after %s", err, last)
			}
			return
		}
		last = line
	}
}

func nextLine(t *testing.T, w *servertest.Stream) string {
	t.Helper()
	line, err := w.Next()
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// TestClockHistory: what is older than history by the clock is gone when the answer comes, and nothing else.
func TestClockHistory(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock, func(s *server.Server) { s.Data.History = time.Hour })
	version := func() string {
		return decode[metav1.PartialObjectMetadataList](t, s.Get(configMapsPath)).ResourceVersion
	}
	type step struct {
		advance time.Duration
		version string
		gone    bool
	}
	write := func() string {
		s.PostYAML(configMapsPath, `{"metadata":{"generateName":"a"}}`)
		return version()
	}
	first := write()
	write()
	write() // what is gone are the changes before the last one
	s.Advance(30 * time.Minute)
	second := write()
	write()
	write()
	for i, step := range []step{
		{30*time.Minute - 1, first, false},
		{1, first, true},
		{30*time.Minute - 1, second, false},
		{1, second, true},
		{24 * time.Hour, "", false}, // the newest is always there
	} {
		newest := version()
		s.Advance(step.advance)
		step.version = cmp.Or(step.version, newest)
		w := s.Watch(configMapsPath + "?watch=true&resourceVersion=" + step.version)
		s.PostYAML(configMapsPath, `{"metadata":{"generateName":"b"}}`)
		line := nextLine(t, w)
		w.Close()
		if gone := strings.Contains(line, `"code":410`); gone != step.gone {
			t.Errorf("step %d: after %v a watch from %s gets %s", i, step.advance, step.version, line)
		}
	}
}

// TestClockPages: a list's pages show one version until its history is gone by the clock.
func TestClockPages(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock)
	for range 3 {
		s.PostYAML(configMapsPath, `{"metadata":{"generateName":"a"}}`)
	}
	page := func() string {
		return configMapsPath + "?limit=1&continue=" + decode[metav1.PartialObjectMetadataList](t, s.Get(configMapsPath+"?limit=1")).Continue
	}
	first := page()
	for range 2 {
		s.PostYAML(configMapsPath, `{"metadata":{"generateName":"a"}}`)
	}
	s.Advance(59 * time.Minute)
	s.Get(first)
	second := page()
	s.Advance(time.Minute)
	if res, answer := s.Do("GET", first, ""); res.StatusCode != http.StatusGone {
		t.Errorf("after an hour: %s %s", res.Status, answer)
	}
	s.Get(second)
}

// TestClockParameters: what can't be used is refused, and the clock stays.
func TestClockParameters(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock)
	begin := s.Now()
	for _, tc := range []struct {
		name, method, query, body string
		code                      int
		message                   string
	}{
		{"nothing", "POST", "", "", 400, "how far the clock goes is missing: say it in the query, as /debug/clock?advance=1h"},
		{"empty", "POST", "?advance=", "", 400, "advance= can't be used"},
		{"no duration", "POST", "?advance=soon", "", 400, "advance=soon can't be used"},
		{"a number", "POST", "?advance=60", "", 400, "advance=60 can't be used"},
		{"days", "POST", "?advance=1d", "", 400, "as 90s or 24h"},
		{"no time", "POST", "?advance=0s", "", 400, "more than 0"},
		{"back", "POST", "?advance=-1h", "", 400, "more than 0"},
		{"over ten years", "POST", "?advance=87601h", "", 400, "at most 87600h0m0s"},
		{"more than fits", "POST", "?advance=9999999h", "", 400, "at most 87600h0m0s"},
		{"twice", "POST", "?advance=1h&advance=1h", "", 400, "each once"},
		{"something else", "POST", "?advance=1h&to=2030", "", 400, "to=2030 can't be used"},
		{"a timeout of a day", "POST", "?advance=1h&timeout=24h", "", 400, "timeout=24h can't be used"},
		{"no query", "POST", "?advance=%zz", "", 400, "the query doesn't parse"},
		{"a body", "POST", "?advance=1h", "x", 400, "takes no body"},
		{"a query of GET", "GET", "?advance=1h", "", 400, "POST moves the clock"},
		{"another method", "PUT", "?advance=1h", "", 405, "only GET and POST"},
	} {
		res, answer := s.Do(tc.method, "/debug/clock"+tc.query, tc.body)
		if answered := decode[metav1.Status](t, answer); res.StatusCode != tc.code || int(answered.Code) != tc.code || !strings.Contains(answered.Message, tc.message) {
			t.Errorf("%s: %s %s, want %d with %q", tc.name, res.Status, answer, tc.code, tc.message)
		}
	}
	if now := s.Now(); now != begin {
		t.Errorf("the clock went from %v to %v", begin, now)
	}
	for range 25 {
		if res, answer := s.Do("POST", "/debug/clock?advance=87600h", ""); res.StatusCode != 200 {
			if res.StatusCode != 400 || !strings.Contains(answer, "the clock goes no further than 2200-01-01T00:00:00Z") {
				t.Errorf("at %v: %s %s", s.Now(), res.Status, answer)
			}
			break
		}
	}
	if now := s.Now(); now.Year() < 2180 || now.Year() > 2200 {
		t.Errorf("it goes to %v", now)
	}
}

// TestClockOff: without the flag the path leads nowhere. With the flag a server must be one of tests.
func TestClockOff(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	for _, method := range []string{"GET", "POST", "PUT"} {
		res, answer := s.Do(method, "/debug/clock?advance=1h", "")
		_, nowhere := s.Do(method, "/debug/cloak?advance=1h", "")
		if res.StatusCode != http.StatusNotFound || answer != nowhere {
			t.Errorf("%s: %s %s, want %s", method, res.Status, answer, nowhere)
		}
	}
	for name, option := range map[string]func(s *server.Server){
		"lasting":   func(s *server.Server) { s.Data.Ephemeral = false },
		"elsewhere": func(s *server.Server) { s.Etcd.Servers = []string{"http://127.0.0.1:1"} },
		"members":   func(s *server.Server) { s.Cluster.Listen = "127.0.0.1:0" },
		"joins":     func(s *server.Server) { s.Cluster.Join = "127.0.0.1:1" },
	} {
		refused := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}}
		servertest.FakeClock(refused)
		option(refused)
		if err := refused.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--fake-clock is for tests, of a server that is alone") {
			t.Errorf("%s: %v", name, err)
		}
		refused.Close()
	}
}

// TestClockAtOnce: moves add up, while others write. What was written lives as long as it says, by the time at which it was created.
func TestClockAtOnce(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock)
	begin := s.Now()
	const movers, moves, writers, writes = 3, 5, 3, 20
	var all sync.WaitGroup
	for range movers {
		all.Go(func() {
			before := begin
			for range moves {
				res, answer := s.Do("POST", "/debug/clock?advance=1m", "")
				now := decode[struct{ Time time.Time }](t, answer).Time
				if res.StatusCode != 200 || now.Before(before.Add(time.Minute)) {
					t.Errorf("a minute after %v: %s %s", before, res.Status, answer)
				}
				before = now
			}
		})
	}
	for i := range writers {
		all.Go(func() {
			for j := range writes {
				s.Do("POST", configMapsPath, fmt.Sprintf(`{"metadata":{"name":"w%d-%d","annotations":{"apiserver-lite/ttl":"1h"}}}`, i, j), "Content-Type", "application/json")
			}
		})
	}
	all.Wait()
	end := begin.Add(movers * moves * time.Minute)
	if now := s.Now(); now != end {
		t.Fatalf("it's %v, want %v", now, end)
	}
	s.Advance(45*time.Minute + time.Second) // a second more: of what was created while the clock was moved only the second is known
	for _, o := range decode[corev1.ConfigMapList](t, s.Get(configMapsPath)).Items {
		if !strings.HasPrefix(o.Name, "w") {
			continue
		}
		if age := s.Now().Sub(o.CreationTimestamp.Time); age < 0 || age > time.Hour+time.Second {
			t.Errorf("%s is %v old", o.Name, age)
		}
	}
	s.Advance(15 * time.Minute)
	for _, o := range decode[corev1.ConfigMapList](t, s.Get(configMapsPath)).Items {
		if strings.HasPrefix(o.Name, "w") {
			t.Errorf("%s is there, created at %v, at %v", o.Name, o.CreationTimestamp, s.Now())
		}
	}
}

// TestClockTimes: what the server writes into objects has the time of the clock, and ages are by it.
func TestClockTimes(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock, func(s *server.Server) {
		s.API.Builtin, s.API.ManagedFieldsAlways = builtin.All, true
	})
	const pods, jobs = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
	begin := s.Advance(1000 * time.Hour)
	at := func(hours int) string { return begin.Add(time.Duration(hours) * time.Hour).Format(time.RFC3339) }
	s.PostYAML(definitionsPath, widgets)
	s.PostYAML("/api/v1/namespaces", `metadata: {name: shop, finalizers: [example.com/x]}`)
	s.PostYAML("/api/v1/persistentvolumes", `{"metadata":{"name":"v"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}}}`)
	s.PostYAML(pods, `{"metadata":{"name":"p"},"spec":{"schedulingGates":[{"name":"example.com/g"}],"containers":[{"name":"c","image":"i"}]}}`)
	s.PostYAML(pods, `{"metadata":{"name":"q"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	s.PostYAML("/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1.example.org"},"spec":{"group":"example.org","version":"v1","groupPriorityMinimum":1,"versionPriority":1}}`)
	s.PostYAML("/apis/resource.k8s.io/v1/devicetaintrules", `{"metadata":{"name":"r"},"spec":{"deviceSelector":{"driver":"d"},"taint":{"key":"k","effect":"NoSchedule"}}}`)
	s.PostYAML(jobs, `{"metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`)
	change := func(method, path, body, media string) {
		t.Helper()
		if res, answer := s.Do(method, path, body, "Content-Type", media); res.StatusCode >= 300 {
			t.Fatalf("%s %s: %s %s", method, path, res.Status, answer)
		}
	}
	const merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
	change("PATCH", jobs+"/j/status", `{"status":{"startTime":"`+at(0)+`"}}`, merge)
	change("PATCH", configMapsPath+"/a?fieldManager=first", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1"}}`, apply)
	s.Advance(time.Hour)
	change("PATCH", configMapsPath+"/a?fieldManager=second", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"b":"1"}}`, apply)
	change("PATCH", configMapsPath+"/a?fieldManager=third", `{"data":{"c":"1"}}`, merge)
	change("DELETE", "/api/v1/namespaces/shop", "", "application/json")
	change("POST", pods+"/q/binding", `{"metadata":{"name":"q"},"target":{"name":"n"}}`, "application/json")
	s.Quiescent()
	s.Advance(time.Hour)
	for _, tc := range []struct{ name, path, field, want string }{
		{"a definition's condition", definitionsPath + "/widgets.example.com", "status.conditions.#.lastTransitionTime", at(0) + " " + at(0)},
		{"a deletion", "/api/v1/namespaces/shop", "metadata.deletionTimestamp", at(1)},
		{"a namespace's conditions", "/api/v1/namespaces/shop", "status.conditions.0.lastTransitionTime", at(1)},
		{"a volume's phase", "/api/v1/persistentvolumes/v", "status.lastPhaseTransitionTime", at(0)},
		{"a gated pod", pods + "/p", "status.conditions.0.lastTransitionTime", at(0)},
		{"a bound pod", pods + "/q", "status.conditions.0.lastTransitionTime", at(1)},
		{"an APIService", "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.org", "status.conditions.0.lastTransitionTime", at(0)},
		{"a taint", "/apis/resource.k8s.io/v1/devicetaintrules/r", "spec.taint.timeAdded", at(0)},
		{"who set what", configMapsPath + "/a", "metadata.managedFields.#.time", at(0) + " " + at(1) + " " + at(1)},
		{"who created it", pods + "/p", "metadata.managedFields.#.time", at(0)},
	} {
		if got := fieldOf(decode[any](t, s.Get(tc.path)), strings.Split(tc.field, ".")); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	for _, tc := range []struct{ path, want string }{
		{pods + "/p", `"SchedulingGated","0","120m"`},
		{jobs + "/j", `"0/1","120m","120m"`},
		{"/api/v1/namespaces/shop", `"Terminating","120m"`},
		{definitionsPath + "/widgets.example.com", `"` + at(0) + `"`},
	} {
		if _, table := s.Do("GET", tc.path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"); !strings.Contains(table, tc.want) {
			t.Errorf("%s: want %s in %s", tc.path, tc.want, table)
		}
	}
	review := s.PostYAML("/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`)
	if got := fieldOf(decode[any](t, review), []string{"metadata", "creationTimestamp"}); got != at(2) {
		t.Errorf("a review is of %s, want %s", got, at(2))
	}
}

// TestClockDuties: what the server sees to again and again it has done when the clock has come to it, and so its own Lease counts.
func TestClockDuties(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock, asKubernetes)
	s.Quiescent()
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	s.PostYAML(leases, fmt.Sprintf(`{"metadata":{"name":"gone","labels":{"apiserver.kubernetes.io/identity":"kube-apiserver"}},"spec":{"holderIdentity":"x","leaseDurationSeconds":3600,"renewTime":%q}}`,
		s.Now().Format(metav1.RFC3339Micro)))
	for range 2 {
		now := s.Advance(3601 * time.Second)
		own := decode[coordinationv1.LeaseList](t, s.Get(leases+"?labelSelector=apiserver.kubernetes.io/identity"))
		if len(own.Items) != 1 || own.Items[0].Name == "gone" || !own.Items[0].Spec.RenewTime.Time.Equal(now) {
			t.Errorf("at %v there are %+v", now, own.Items)
		}
	}
}

// fieldOf returns what is at a path of an object: # stands for all elements of a list, with spaces between them.
func fieldOf(value any, path []string) string {
	if len(path) == 0 {
		return fmt.Sprint(value)
	}
	switch v := value.(type) {
	case map[string]any:
		return fieldOf(v[path[0]], path[1:])
	case []any:
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(v) {
			return fieldOf(v[i], path[1:])
		}
		var all []string
		for _, e := range v {
			all = append(all, fieldOf(e, path[1:]))
		}
		return strings.Join(all, " ")
	}
	return ""
}

// An apply that is sent again changes nothing, at whatever time: what the server makes of it, as it did before, counts, and not how it was written.
func TestApplyAgainLater(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.FakeClock, func(s *server.Server) { s.API.Builtin = builtin.All })
	s.PostYAML(definitionsPath, widgets)
	const controllers = "/api/v1/namespaces/default/replicationcontrollers/"
	controller := func(metadata, cpu string) string {
		return `{"apiVersion":"v1","kind":"ReplicationController","metadata":{` + metadata + `},"spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},
			"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":` + cpu + `}}}]}}}}`
	}
	for _, tc := range []struct{ name, path, body string }{
		{"as it's stored", controllers + "a", controller(`"name":"a"`, `"500m"`)},
		{"a quantity in another form", controllers + "b", controller(`"name":"b"`, `"0.5"`)},
		{"a number for a quantity", controllers + "c", controller(`"name":"c"`, `1`)},
		{"a generation", controllers + "d", controller(`"name":"d","generation":7`, `"1"`)},
		{"what a custom resource's schema doesn't have", "/apis/example.com/v1/namespaces/default/widgets/a", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"unknown":1}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			apply := func() string {
				r, answer := s.Do(http.MethodPatch, tc.path+"?fieldManager=one", tc.body, "Content-Type", "application/apply-patch+yaml")
				if r.StatusCode >= 300 {
					t.Fatalf("%s %s", r.Status, answer)
				}
				return answer
			}
			first := apply()
			s.Advance(time.Hour)
			if again := apply(); again != first {
				t.Errorf("it changed\n%s\ninto\n%s", first, again)
			}
		})
	}
}
