package e2e

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestMetricsDocumented compares the list in docs/operations.md with what is served.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	p := start(t, "--ephemeral")
	p.define()
	s := p.watch(widgets + "?watch=true")
	p.do(http.StatusCreated, "POST", widgets, widget("a", 1))
	s.expect("ADDED", "a")

	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := names(regexp.MustCompile("(?m)^\\| `(apiserver_[a-z_]+)` \\|"), string(page))
	served := names(regexp.MustCompile(`(?m)^# TYPE (apiserver_[a-z_]+) `), p.do(http.StatusOK, "GET", "/metrics", "").body)
	if !slices.Equal(documented, served) {
		t.Errorf("docs/operations.md lists %q\nserved are %q", documented, served)
	}
	p.stop()
}

// names returns what the pattern's group finds, sorted.
func names(pattern *regexp.Regexp, text string) (all []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return all
}
