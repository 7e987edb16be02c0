package faults_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/faketime"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// unavailable is what rules of these tests do.
var unavailable = &faults.Status{Code: 503}

// TestMatch: a rule is about the requests that it describes, and no others.
func TestMatch(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	create(s, "red")
	create(s, "blue")
	user := "system:admin"
	for _, test := range []struct {
		name         string
		match        faults.Match
		hits, misses []string // requests: method and path
	}{
		{"everything", faults.Match{}, []string{"GET /version", "GET /api", "GET " + configMaps, "DELETE /api/v1/namespaces/gone"}, []string{"GET /readyz", "GET /livez/ping", "GET /healthz", "GET /metrics", "GET " + faults.Path, "GET " + faults.LogPath, "GET " + faults.Path + "/rule", "POST " + faketime.Path}},
		{"verbs", faults.Match{Verbs: []string{"list", "patch"}}, []string{"GET " + configMaps}, []string{"GET " + configMaps + "/red", "GET /version"}},
		{"a method as the verb of a path", faults.Match{Verbs: []string{"get"}}, []string{"GET /version", "GET " + configMaps + "/red"}, []string{"GET " + configMaps}},
		{"resources", faults.Match{Resources: []string{"configmaps"}}, []string{"GET " + configMaps, "GET /api/v1/configmaps"}, []string{"GET /api/v1/secrets", "GET /version"}},
		{"resources of a group", faults.Match{Resources: []string{"leases.coordination.k8s.io"}}, []string{"GET /apis/coordination.k8s.io/v1/leases"}, []string{"GET /api/v1/leases"}},
		{"subresources", faults.Match{Resources: []string{"namespaces/status"}}, []string{"GET /api/v1/namespaces/default/status"}, []string{"GET /api/v1/namespaces/default"}},
		{"resources by their beginning", faults.Match{Resources: []string{"namespaces*"}}, []string{"GET /api/v1/namespaces/default/status", "GET /api/v1/namespaces/default"}, []string{"GET " + configMaps}},
		{"namespaces", faults.Match{Namespaces: []string{"default"}}, []string{"GET " + configMaps}, []string{"GET /api/v1/configmaps", "GET /api/v1/namespaces/kube-system/configmaps"}},
		{"names", faults.Match{Names: []string{"r*"}}, []string{"GET " + configMaps + "/red", "GET " + configMaps + "?fieldSelector=metadata.name=red"}, []string{"GET " + configMaps + "/blue", "GET " + configMaps}},
		{"user agents", faults.Match{UserAgents: []string{"Go-http-client/*"}}, []string{"GET /version"}, nil},
		{"other user agents", faults.Match{UserAgents: []string{"kubectl/*"}}, nil, []string{"GET /version"}},
		{"users", faults.Match{Users: []string{user}}, []string{"GET /version"}, nil},
		{"other users", faults.Match{Users: []string{"ann", "bob*"}}, nil, []string{"GET /version"}},
		{"both of two lists", faults.Match{Verbs: []string{"get"}, Names: []string{"red"}}, []string{"GET " + configMaps + "/red"}, []string{"GET " + configMaps + "/blue", "GET " + configMaps + "?fieldSelector=metadata.name=red"}},
		{"CEL", faults.Match{CEL: `request.verb == "list" && request.namespace.startsWith("def") && "limit" in request.query && request.query["limit"][0] == "5" && "system:masters" in request.groups`}, []string{"GET " + configMaps + "?limit=5"}, []string{"GET " + configMaps + "?limit=6", "GET " + configMaps}},
		{"CEL that fails", faults.Match{CEL: `request.query["limit"][0] == "5"`}, []string{"GET " + configMaps + "?limit=5"}, []string{"GET " + configMaps}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			fault := s.Fault("rule", faults.Rule{Match: test.match, Until: "1h", Status: unavailable})
			met := 0
			for _, requests := range []struct {
				of  []string
				met bool
			}{{test.hits, true}, {test.misses, false}} {
				for _, request := range requests.of {
					method, path, _ := strings.Cut(request, " ")
					res, body := s.Do(method, path, "")
					if got := strings.Contains(body, "the rule rule for faults"); got != requests.met {
						t.Errorf("%s met the fault: %t, want %t: %s", request, got, requests.met, res.Status)
					}
					if requests.met {
						met++
					}
				}
			}
			if n := len(fault.Log()); n != met {
				t.Errorf("the log has %d faults, want %d", n, met)
			}
		})
	}
}

// pageOf returns what the server says of a rule.
func pageOf(t *testing.T, s *servertest.Server, name string) (page faults.Page) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.Get(faults.Path+"/"+name)), &page); err != nil {
		t.Fatal(err)
	}
	return page
}

// pattern sends n requests and returns which met a fault: "x" for each that did.
func pattern(s *servertest.Server, n int) string {
	var b strings.Builder
	for range n {
		if res, _ := s.Do(http.MethodGet, configMaps+"/red", ""); res.StatusCode == http.StatusServiceUnavailable {
			b.WriteByte('x')
		} else {
			b.WriteByte('.')
		}
	}
	return b.String()
}

// TestHowOften: first, every n-th, and until.
func TestHowOften(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	create(s, "red")
	for _, test := range []struct {
		name string
		rule faults.Rule
		want string
	}{
		{"times", faults.Rule{Times: 2}, "xx......"},
		{"every", faults.Rule{Every: 3}, "..x..x.."},
		{"every and times", faults.Rule{Every: 2, Times: 2}, ".x.x...."},
		{"a time that is over", faults.Rule{Until: "2020-01-01T00:00:00Z"}, "........"},
		{"a time to come", faults.Rule{Until: "2120-01-01T00:00:00Z"}, "xxxxxxxx"},
		{"a duration", faults.Rule{Until: "1h"}, "xxxxxxxx"},
		{"always", faults.Rule{Rate: new(1.0), Times: 100}, "xxxxxxxx"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			rule := test.rule
			rule.Match, rule.Status = ofConfigMaps("get"), unavailable
			s.Fault("often", rule)
			if got := pattern(s, len(test.want)); got != test.want {
				t.Errorf("the requests that meet the fault are %s, want %s", got, test.want)
			}
			page := pageOf(t, s, "often")
			if want := int64(strings.Count(test.want, "x")); page.Hits != want || page.Ended != strings.HasSuffix(test.want, "....") {
				t.Errorf("the page says %+v, want %d hits", page, want)
			}
		})
	}
	t.Run("a rule that ends by time", func(t *testing.T) {
		s := s.In(t)
		s.Fault("often", faults.Rule{Match: ofConfigMaps("get"), Until: "300ms", Status: unavailable})
		for over := time.Now().Add(time.Minute); !pageOf(t, s, "often").Ended; {
			if time.Now().After(over) {
				t.Fatal("it never ends")
			}
		}
		if got := pattern(s, 3); got != "..." {
			t.Errorf("after its end requests meet the fault: %s", got)
		}
	})
}

// TestSeed: the same seed, name and requests meet the same faults, and others meet others.
func TestSeed(t *testing.T) {
	t.Parallel()
	const n = 60
	run := func(name string, seed uint64) string {
		s := servertest.New(t, servertest.Faults)
		create(s, "red")
		s.Fault(name, faults.Rule{Match: ofConfigMaps("get"), Rate: new(0.3), Seed: seed, Status: unavailable})
		first := pattern(s, n)
		s.Fault(name, faults.Rule{Match: ofConfigMaps("get"), Rate: new(0.3), Seed: seed, Status: unavailable})
		if again := pattern(s, n); again != first {
			t.Errorf("put again the rule %s does %s, and did %s", name, again, first)
		}
		return first
	}
	one := run("a", 1)
	if hits := strings.Count(one, "x"); hits < n/10 || hits > n*6/10 {
		t.Errorf("of %d requests %d meet a fault with a rate of 0.3", n, hits)
	}
	if again := run("a", 1); again != one {
		t.Errorf("on another server the rule does %s, and did %s", again, one)
	}
	if other := run("a", 2); other == one {
		t.Errorf("another seed does the same: %s", one)
	}
	if other := run("b", 1); other == one {
		t.Errorf("another name does the same: %s", one)
	}
}

// TestDraws: the delays of a distribution are within its limits, and the same for the same seed.
func TestDraws(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		delay faults.Delay
		least time.Duration
		most  time.Duration
	}{
		{"fixed", faults.Delay{Mean: in(time.Millisecond)}, time.Millisecond, time.Millisecond},
		{"uniform", faults.Delay{Distribution: "uniform", Min: in(time.Millisecond), Max: in(2 * time.Millisecond)}, time.Millisecond, 2 * time.Millisecond},
		{"normal", faults.Delay{Distribution: "normal", Mean: in(time.Millisecond), Deviation: in(time.Millisecond), Max: in(2 * time.Millisecond)}, 0, 2 * time.Millisecond},
		{"exponential", faults.Delay{Distribution: "exponential", Mean: in(time.Millisecond), Min: in(100 * time.Microsecond), Max: in(3 * time.Millisecond)}, 100 * time.Microsecond, 3 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var runs [2][]string
			for i := range runs {
				s := servertest.New(t, servertest.Faults)
				fault := s.Fault("delay", faults.Rule{Match: ofConfigMaps("list"), Seed: 3, Delay: &test.delay})
				for range 20 {
					s.Get(configMaps)
				}
				for _, e := range fault.Log() {
					d, err := time.ParseDuration(strings.TrimPrefix(e.Fault, "delay "))
					if err != nil || d < test.least || d > test.most {
						t.Errorf("the fault is %q, %v", e.Fault, err)
					}
					runs[i] = append(runs[i], e.Fault)
				}
			}
			if len(runs[0]) != 20 || !slices.Equal(runs[0], runs[1]) {
				t.Errorf("the delays are %v, and a second time %v", runs[0], runs[1])
			}
			if slices.Sort(runs[0]); test.name != "fixed" && len(slices.Compact(runs[0])) < 5 {
				t.Errorf("the delays hardly differ: %v", runs[0])
			}
		})
	}
}

// TestRefusals: what can't be a rule is refused, with what is wrong and where.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	for _, test := range []struct {
		name, request, body string
		code                int
		want                string // in the message
	}{
		{"no JSON", "PUT /a", `{`, 400, "the body must be one rule"},
		{"nothing", "PUT /a", ``, 400, "the body must be one rule"},
		{"two rules", "PUT /a", `{} {}`, 400, "something follows it"},
		{"an unknown field", "PUT /a", `{"time": 1}`, 400, `unknown field \"time\"`},
		{"too long", "PUT /a", `{"match": {"names": ["` + strings.Repeat("x", 20<<10) + `"]}}`, 413, "at most 16384 bytes"},
		{"no fault", "PUT /a", `{"times": 1}`, 422, "status: Required value: exactly one of status, delay, cut, watch and stale"},
		{"two faults", "PUT /a", `{"times": 1, "cut": "before", "stale": {"versions": 1}}`, 422, "exactly one of"},
		{"everything for ever", "PUT /a", `{"status": {"code": 503}}`, 422, "until: Required value: a rule about every request"},
		{"everything for ever in other words", "PUT /a", `{"match": {"verbs": ["*"], "cel": "true"}, "rate": 1, "every": 1, "status": {"code": 503}}`, 422, "until: Required value"},
		{"a verb that no request has", "PUT /a", `{"match": {"verbs": ["get", "creat"]}, "times": 1, "status": {"code": 503}}`, 422, `match.verbs: Unsupported value: \"creat\": supported values`},
		{"the beginning of a verb", "PUT /beginning", `{"match": {"verbs": ["delete*"]}, "times": 1, "status": {"code": 503}}`, 201, ""},
		{"everything for a while", "PUT /while", `{"until": "1ms", "status": {"code": 503}}`, 201, ""},
		{"as YAML", "PUT /yaml", "times: 1\nmatch: {users: [nobody]}\nstatus: {code: 503}\n", 201, ""},
		{"a code", "PUT /a", `{"times": 1, "status": {"code": 404}}`, 422, `status.code: Unsupported value: \"404\"`},
		{"a rate", "PUT /a", `{"rate": 0, "status": {"code": 503}}`, 422, "rate: Invalid value: 0: must be above 0"},
		{"a negative number", "PUT /a", `{"times": -1, "status": {"code": 503}}`, 422, "times: Invalid value: -1"},
		{"a time", "PUT /a", `{"until": "tomorrow", "status": {"code": 503}}`, 422, "must be an instant"},
		{"a time that goes back", "PUT /a", `{"until": "-1s", "status": {"code": 503}}`, 422, "must be above 0"},
		{"a cut", "PUT /a", `{"times": 1, "cut": "now"}`, 422, `cut: Unsupported value: \"now\"`},
		{"a delay without a mean", "PUT /a", `{"times": 1, "delay": {}}`, 422, "delay.mean: Required value"},
		{"a delay that is too long", "PUT /a", `{"times": 1, "delay": {"mean": "2m"}}`, 422, "must be from 0 to 1m"},
		{"a delay with what it has no use for", "PUT /a", `{"times": 1, "delay": {"mean": "1s", "max": "2s"}}`, 422, "delay.max: Invalid value"},
		{"a distribution", "PUT /a", `{"times": 1, "delay": {"distribution": "zipf", "mean": "1s"}}`, 422, "delay.distribution: Unsupported value"},
		{"limits the wrong way round", "PUT /a", `{"times": 1, "delay": {"distribution": "uniform", "min": "2s", "max": "1s"}}`, 422, "delay.min: Invalid value"},
		{"a watch that nothing happens to", "PUT /a", `{"times": 1, "watch": {}}`, 422, "set end, expired or noBookmarks"},
		{"a watch's end", "PUT /a", `{"times": 1, "watch": {"end": "sad"}}`, 422, "watch.end: Unsupported value"},
		{"an end without an end", "PUT /a", `{"times": 1, "watch": {"noBookmarks": true, "afterEvents": 1}}`, 422, "watch.end: Required value"},
		{"a watch that ends before it's opened", "PUT /a", `{"times": 1, "watch": {"expired": true, "end": "cut"}}`, 422, "watch.expired: Invalid value"},
		{"no age", "PUT /a", `{"times": 1, "stale": {}}`, 422, "stale.versions: Invalid value: 0"},
		{"CEL that doesn't parse", "PUT /a", `{"times": 1, "match": {"cel": "request.verb =="}, "status": {"code": 503}}`, 422, "match.cel: Invalid value"},
		{"CEL of what isn't there", "PUT /a", `{"times": 1, "match": {"cel": "object.spec"}, "status": {"code": 503}}`, 422, "undeclared reference"},
		{"CEL of what a request doesn't have", "PUT /a", `{"times": 1, "match": {"cel": "request.kind == ''"}, "status": {"code": 503}}`, 422, "undefined field"},
		{"CEL of another type", "PUT /a", `{"times": 1, "match": {"cel": "request.verb"}, "status": {"code": 503}}`, 422, "must be true or false"},
		{"an empty pattern", "PUT /a", `{"times": 1, "match": {"verbs": [""]}, "status": {"code": 503}}`, 422, "match.verbs: Invalid value"},
		{"many patterns", "PUT /a", `{"times": 1, "match": {"verbs": [` + strings.Repeat(`"get",`, 64) + `"get"]}, "status": {"code": 503}}`, 422, "match.verbs: Too many"},
		{"a name", "PUT /A_b", `{"times": 1, "status": {"code": 503}}`, 422, "name: Invalid value"},
		{"an unknown rule", "GET /b", ``, 404, "there is no rule for faults"},
		{"the end of an unknown rule", "DELETE /b", ``, 404, "there is no rule for faults"},
		{"a method", "POST /a", `{}`, 405, "only GET, PUT and DELETE"},
		{"a method of the list", "POST ", `{}`, 405, "arms a rule"},
		{"a method of the log", "DELETE log", ``, 405, "only GET is served here"},
		{"a number of the log", "GET log?after=x", ``, 400, "must be the number of an entry"},
	} {
		t.Run(test.name, func(t *testing.T) {
			method, path, _ := strings.Cut(test.request, " ")
			media := "application/json"
			if test.name == "as YAML" {
				media = "application/yaml"
			}
			res, body := s.In(t).Do(method, strings.Replace(faults.Path+path, "faultslog", "faultlog", 1), test.body, "Content-Type", media)
			if res.StatusCode != test.code || !strings.Contains(body, test.want) || test.code >= 400 && !strings.Contains(body, `"kind":"Status"`) {
				t.Errorf("the answer is %s %s", res.Status, body)
			}
			if (res.Header.Get("Allow") != "") != (test.code == 405) {
				t.Errorf("Allow is %q", res.Header.Get("Allow"))
			}
		})
	}
	if page := s.Get(faults.Path); strings.Contains(page, `"name":"a"`) {
		t.Errorf("a rule that was refused is armed: %s", page)
	}
}

// TestRules: rules are listed by name, replaced, and removed; of those that are about a request the first does its fault. There are 64 at most.
func TestRules(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	put := func(name, rule string) int {
		res, _ := s.Do(http.MethodPut, faults.Path+"/"+name, rule)
		return res.StatusCode
	}
	names := func() (all []string) {
		var list struct{ Items []faults.Page }
		if err := json.Unmarshal([]byte(s.Get(faults.Path)), &list); err != nil {
			t.Fatal(err)
		}
		for _, page := range list.Items {
			all = append(all, page.Name)
		}
		return all
	}
	once := `{"match": {"names": ["red"]}, "times": 1, "status": {"code": %d}}`
	for _, name := range []string{"b", "c", "a"} {
		if code := put(name, fmt.Sprintf(once, map[string]int{"a": 500, "b": 503, "c": 504}[name])); code != http.StatusCreated {
			t.Errorf("the rule %s is answered %d", name, code)
		}
	}
	if got := names(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("the rules are %v", got)
	}
	for _, want := range []int{500, 503, 504, 404} {
		if res, _ := s.Do(http.MethodGet, configMaps+"/red", ""); res.StatusCode != want {
			t.Errorf("the answer is %s, want %d", res.Status, want)
		}
	}
	if code := put("b", fmt.Sprintf(once, 503)); code != http.StatusOK {
		t.Errorf("a rule in the place of another is answered %d", code)
	}
	if page := pageOf(t, s, "b"); page.Matched != 0 || page.Hits != 0 || page.Ended {
		t.Errorf("its count doesn't begin anew: %+v", page)
	}
	if res, body := s.Do(http.MethodDelete, faults.Path+"/b", ""); res.StatusCode != http.StatusOK || !strings.Contains(body, `"name":"b"`) {
		t.Errorf("a deletion is answered %s %s", res.Status, body)
	}
	if got := names(); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("the rules are %v", got)
	}
	for i := range 62 {
		if code := put(fmt.Sprintf("r%d", i), fmt.Sprintf(once, 503)); code != http.StatusCreated {
			t.Fatalf("rule %d is answered %d", i, code)
		}
	}
	if code := put("one-more", fmt.Sprintf(once, 503)); code != http.StatusUnprocessableEntity {
		t.Errorf("a rule too many is answered %d", code)
	}
	if code := put("a", fmt.Sprintf(once, 503)); code != http.StatusOK {
		t.Errorf("among 64 rules one can't be replaced: %d", code)
	}
	if res, _ := s.Do(http.MethodDelete, faults.Path, ""); res.StatusCode != http.StatusOK || len(names()) != 0 {
		t.Errorf("the deletion of all is answered %s and leaves %v", res.Status, names())
	}
}

// TestLog: it keeps the last 4,096 faults, and gives those after a number, and of a rule.
func TestLog(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	s.Fault("a", faults.Rule{Match: faults.Match{CEL: `request.path == "/version"`}, Times: 5000, Status: unavailable})
	const n = 4100
	for range n {
		s.Do(http.MethodGet, "/version", "")
	}
	logged := func(query string) (all []faults.Entry) {
		var list struct{ Items []faults.Entry }
		if err := json.Unmarshal([]byte(s.Get(faults.LogPath+query)), &list); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	if all := logged(""); len(all) != 4096 || all[0].Number != n-4096+1 || all[4095].Number != n || all[4095].Request != n {
		t.Errorf("the log has %d faults", len(all))
	}
	if last := logged(fmt.Sprintf("?after=%d", n-2)); len(last) != 2 || last[0].Number != n-1 || last[1].Path != "/version" || last[1].Verb != "get" || last[1].User == "" || last[1].UserAgent == "" || last[1].AuditID == "" {
		t.Errorf("the last are %+v", last)
	}
	if of := logged("?rule=b"); len(of) != 0 {
		t.Errorf("of another rule there are %+v", of)
	}
}

// TestManyAtOnce: of many requests at once exactly as many meet a fault as may, while rules come and go.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	create(s, "red")
	fault := s.Fault("times", faults.Rule{Match: ofConfigMaps("get"), Times: 50, Every: 2, Status: unavailable})
	var met atomic.Int64
	var requests sync.WaitGroup
	for range 16 {
		requests.Go(func() { met.Add(int64(strings.Count(pattern(s, 20), "x"))) })
	}
	for i := range 20 {
		s.Fault(fmt.Sprint("other", i%3), faults.Rule{Match: ofConfigMaps("list"), Status: unavailable}).Remove()
	}
	requests.Wait()
	page := pageOf(t, s, "times")
	if log := fault.Log(); met.Load() != 50 || len(log) != 50 || page.Hits != 50 || log[49].Request != 100 || log[0].Request != 2 {
		t.Errorf("%d requests met the fault, the log has %d, and the page says %+v", met.Load(), len(log), page)
	}
}

// TestRights: the paths of the faults are for those who may use them, and a refusal of rights is no fault's.
func TestRights(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults, func(s *server.Server) {
		s.Token = "root"
		s.Access.AuthorizationMode = "RBAC"
	})
	do := func(method, path, body string, headers ...string) int {
		res, _ := s.Do(method, path, body, headers...)
		return res.StatusCode
	}
	root := []string{"Authorization", "Bearer root"}
	rule := `{"until": "1h", "match": {"users": ["ann", "system:anonymous"]}, "status": {"code": 503}}`
	for _, request := range []string{"GET " + faults.Path, "PUT " + faults.Path + "/a", "DELETE " + faults.Path, "GET " + faults.LogPath} {
		method, path, _ := strings.Cut(request, " ")
		if code := do(method, path, rule); code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("%s by nobody is answered %d", request, code)
		}
	}
	if code := do(http.MethodPut, faults.Path+"/a", rule, root...); code != http.StatusCreated {
		t.Fatalf("the rule is answered %d", code)
	}
	as := append([]string{"Impersonate-User", "ann"}, root...)
	if code := do(http.MethodGet, configMaps, "", as...); code != http.StatusForbidden {
		t.Errorf("a user without rights is answered %d", code)
	}
	if code := do(http.MethodGet, "/version", "", as...); code != http.StatusServiceUnavailable {
		t.Errorf("a user whom the rule is about is answered %d", code)
	}
	if code := do(http.MethodGet, "/version", "", root...); code != http.StatusOK {
		t.Errorf("a user whom it isn't about is answered %d", code)
	}
	role := `{"metadata":{"name":"faults"},"rules":[{"nonResourceURLs":["/apiserver-lite/v1/faults","/apiserver-lite/v1/faults/*"],"verbs":["get","put"]}]}`
	binding := `{"metadata":{"name":"faults"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"faults"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"ann"}]}`
	do(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role, append([]string{"Content-Type", "application/json"}, root...)...)
	do(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding, append([]string{"Content-Type", "application/json"}, root...)...)
	if code := do(http.MethodPut, faults.Path+"/a", rule, as...); code != http.StatusOK {
		t.Errorf("a user with the right to put is answered %d", code)
	}
	if code := do(http.MethodDelete, faults.Path+"/a", "", as...); code != http.StatusForbidden {
		t.Errorf("a user without the right to delete is answered %d", code)
	}
}

// TestOff: a server without faults has none of their paths, says so, and pays nothing where a watch is opened.
func TestOff(t *testing.T) {
	s := servertest.New(t)
	for _, path := range []string{faults.Path, faults.Path + "/a", faults.LogPath} {
		if res, _ := s.Do(http.MethodGet, path, ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s is answered %s", path, res.Status)
		}
	}
	if metrics := s.Get("/metrics"); !strings.Contains(metrics, "\napiserver_lite_faults_on 0\n") {
		t.Error("the metrics don't say that faults are off")
	}
	if root := s.Get("/"); strings.Contains(root, "faults") {
		t.Errorf("/ has %s", root)
	}
	ctx, open := t.Context(), func() (watches.Source, watchstream.Options, error) { return nil, watchstream.Options{}, nil }
	if n := testing.AllocsPerRun(100, func() {
		_, _, _ = faults.Open(ctx, open)
		_ = faults.Source(ctx, nil, nil, nil)
	}); n != 0 {
		t.Errorf("a watch costs %v allocations", n)
	}
}

// TestOn: the metrics, / and the log of the server say that there are faults.
func TestOn(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, servertest.Faults)
	s.Fault("a", faults.Rule{Match: ofConfigMaps(), Times: 1, Status: unavailable})
	s.Do(http.MethodGet, configMaps, "")
	metrics := s.Get("/metrics")
	for _, line := range []string{"apiserver_lite_faults_on 1", `apiserver_lite_faults_total{fault="status"} 1`, `apiserver_lite_faults_total{fault="stale"} 0`} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if root := s.Get("/"); !strings.Contains(root, "PUT /apiserver-lite/v1/faults/NAME") {
		t.Errorf("/ has %s", root)
	}
}

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)

// FuzzParse: what is taken as a rule is one that a server can have, and comes back as the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"match": {"users": ["a*"], "verbs": ["get"], "cel": "request.verb == 'get'"}, "rate": 0.5, "seed": 1, "status": {"code": 429, "retryAfterSeconds": 3}}`,
		`{"until": "1h", "delay": {"distribution": "normal", "mean": "1s", "deviation": "1ms"}}`,
		`{"every": 3, "cut": "middle"}`, `{"times": 1, "watch": {"end": "cut", "after": "1s"}}`, `{"until": "2026-11-23T10:00:00Z", "stale": {"versions": 3}}`, `{"rate": 1e-400}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rule, err := faults.Parse(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(rule)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := faults.Parse(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if third, _ := json.Marshal(twice); string(third) != string(again) {
			t.Errorf("%s becomes %s", again, third)
		}
		f := faults.New(true, faults.Versions{Newest: func() int64 { return 9 }, Oldest: func() int64 { return 1 }}, quiet)
		page, _, err := f.Put("fuzz", rule)
		if err != nil {
			return
		}
		if len(f.List()) != 1 || page.Hits != 0 {
			t.Errorf("%s is armed as %+v", again, page)
		}
		r, err := http.NewRequest(http.MethodGet, "http://127.0.0.1/api/v1/configmaps?resourceVersion=3&watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		f.Strike(httptest.NewRecorder(), r, nil, "id")
	})
}
