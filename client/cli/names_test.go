package cli_test

import (
	"strings"
	"testing"
)

// TestEmptyNames: a name or a selector that is empty, as of a variable that has no value, doesn't stand for all objects.
func TestEmptyNames(t *testing.T) {
	s := serve(t)
	mustInvoke(t, s.URL, configMap("a"), "apply", "-f", "-")
	for _, tt := range []struct {
		name string
		args []string
		says string
	}{
		{"get", []string{"get", "configmap", ""}, "the name is empty"},
		{"get of several", []string{"get", "configmap", "a", ""}, "the name is empty"},
		{"get -w", []string{"get", "configmap", "", "-w"}, "the name is empty"},
		{"watch", []string{"watch", "configmap", ""}, "the name is empty"},
		{"history", []string{"history", "configmap", ""}, "the name is empty"},
		{"diff", []string{"diff", "configmap", "", "--from", "10m"}, "the name is empty"},
		{"delete", []string{"delete", "configmap", ""}, "the name is empty"},
		{"delete with a blank selector", []string{"delete", "configmap", "-l", " "}, "what to delete"},
		{"prune with a blank selector", []string{"apply", "--prune", "-l", " ", "-f", "-"}, "need each other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := invoke(t, s.URL, configMap("a"), tt.args...); got.code != 2 || got.out != "" || !strings.Contains(got.stderr, tt.says) {
				t.Errorf("exit %d\n%s%s, want 2 and %q", got.code, got.out, got.stderr, tt.says)
			}
		})
	}
}
