package server_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/profile"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestProfilesByRights: where users' rights count there are profiles, for who may get them.
func TestProfilesByRights(t *testing.T) {
	t.Parallel()
	s := newRuled(t)
	const denied = `forbidden: User "ann" cannot get path "/debug/pprof/goroutine"`
	s.expect("ann", "GET /debug/pprof/goroutine", "", 403, denied)
	s.expect("", "GET /debug/pprof/", "", 403, `forbidden: User "system:anonymous" cannot get path "/debug/pprof/"`)
	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"profiler"},"rules":[{"verbs":["get"],"nonResourceURLs":["/debug/pprof","/debug/pprof/*"]}]}`, 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", `{"metadata":{"name":"ann"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"profiler"},"subjects":[{"kind":"User","name":"ann"}]}`, 201, "")
	for _, tc := range []struct {
		path string
		code int
		want string
	}{
		{"/debug/pprof/", 200, "full goroutine stack dump"},
		{"/debug/pprof/goroutine?debug=1", 200, "goroutine profile: total"},
		{"/debug/pprof/heap?debug=1", 200, "heap profile: "},
		{"/debug/pprof/block?debug=1", 200, "--- contention:"},
		{"/debug/pprof/symbol", 200, "num_symbols: 1"},
		{"/debug/pprof/cmdline", 404, "Unknown profile"}, // kube-apiserver doesn't serve it either
		{"/debug/pprof/nothing", 404, "Unknown profile"},
		{"/debug/pprof/profile?seconds=3600", 400, "seconds is larger than 600"},
	} {
		if got := s.expect("ann", "GET "+tc.path, "", tc.code, ""); !strings.Contains(got, tc.want) {
			t.Errorf("GET %s: %.200q, want one with %q", tc.path, got, tc.want)
		}
	}
	s.expect("ann", "POST /debug/pprof/goroutine", "", 403, `forbidden: User "ann" cannot post path "/debug/pprof/goroutine"`)
	client := *s.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, _ := http.NewRequest("GET", s.URL+"/debug/pprof", nil)
	r.Header.Set("Authorization", "Bearer ann")
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 302 || res.Header.Get("Location") != "/debug/pprof/" {
		t.Errorf("GET /debug/pprof: %s to %q", res.Status, res.Header.Get("Location"))
	}
}

// TestProfilesByFlag: the flag says whether there are profiles, whoever may do what.
func TestProfilesByFlag(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]bool{"on": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			with := func(s *server.Server) { s.Telemetry.Profiling.On = &on }
			open, ruled := servertest.New(t, with), newRuled(t, with)
			code := map[bool]int{true: 200, false: 404}[on]
			if res, body := open.Do("GET", "/debug/pprof/", ""); res.StatusCode != code {
				t.Errorf("without users: %s %s", res.Status, body)
			}
			ruled.expect("root", "GET /debug/pprof/", "", code, "")
			ruled.expect("ann", "GET /debug/pprof/", "", 403, "")
		})
	}
}

// TestProfilesAtOnce: no more than MaxProfiles are on their way, and those end with the server.
func TestProfilesAtOnce(t *testing.T) {
	t.Parallel()
	on := true
	s := servertest.New(t, func(s *server.Server) { s.Telemetry.Profiling.On = &on })
	var asked sync.WaitGroup
	for range profile.MaxProfiles {
		asked.Go(func() {
			for { // the requests below may have its place for a moment
				res, err := s.Client.Get(s.URL + "/debug/pprof/goroutine?seconds=50")
				if err != nil {
					return // the server is closed
				}
				if res.Body.Close(); res.StatusCode != 429 {
					return
				}
			}
		})
	}
	await.Until(t, "a refusal", func() bool {
		res, body := s.Do("GET", "/debug/pprof/goroutine", "")
		return res.StatusCode == 429 && strings.Contains(body, "other profiles are being made")
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	asked.Wait()
}
