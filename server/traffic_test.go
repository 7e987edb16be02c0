package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
)

// TestTraffic: whoever may get /metrics gets the points, of which there is one from the start on.
func TestTraffic(t *testing.T) {
	t.Parallel()
	s := newRuled(t)
	const path = "/apiserver-lite/v1/traffic"
	var page struct {
		Times  []int64
		Series map[string][]float64
	}
	if err := json.Unmarshal([]byte(s.expect("root", "GET "+path, "", http.StatusOK, "")), &page); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name, points := range page.Series {
		if names = append(names, name); len(points) == 0 || len(points) != len(page.Times) {
			t.Errorf("%s has %d points, and there are %d times", name, len(points), len(page.Times))
		}
	}
	slices.Sort(names)
	if want := []string{"events", "historySeconds", "lagSeconds", "memoryBytes", "refusals", "watchers", "writes"}; !slices.Equal(names, want) {
		t.Errorf("the series are %q, want %q", names, want)
	}
	if memory := page.Series["memoryBytes"]; memory[0] < 1<<20 {
		t.Errorf("the memory is %v bytes", memory)
	}
	s.expect("ann", "GET "+path, "", http.StatusForbidden, `forbidden: User "ann" cannot get path "/metrics"`)
	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"scrape"},"rules":[{"nonResourceURLs":["/metrics"],"verbs":["get"]}]}`, 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", bindingTo("ClusterRole", "scrape", "ann"), 201, "")
	s.expect("ann", "GET "+path, "", http.StatusOK, "")
	s.expect("root", "POST "+path, "", http.StatusMethodNotAllowed, "only GET and HEAD are served here")
}
