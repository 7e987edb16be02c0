package writes

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestMergeWork: what a strategic merge patch costs is counted by the lists that it merges, not by those that the object has.
func TestMergeWork(t *testing.T) {
	ports := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"containerPort":%d}`, i))
		}
		return `"ports":[` + strings.Join(all, ",") + `]`
	}
	pod := func(containers string) string { return `{"spec":{"containers":[` + containers + `]}}` }
	for _, c := range []struct {
		name, doc, patch string
		refused          bool
	}{
		{"beside a long list", pod(`{"name":"a",` + ports(5000) + `}`), `{"metadata":{"labels":{"a":"b"}}}`, false},
		{"another element", pod(`{"name":"a",` + ports(5000) + `}`), pod(`{"name":"b",` + ports(5) + `}`), false},
		{"into a long list", pod(`{"name":"a",` + ports(5000) + `}`), pod(`{"name":"a",` + ports(1) + `}`), true},
		{"a long list", pod(`{"name":"a"}`), pod(`{"name":"a",` + ports(5000) + `}`), true},
		{"one element again and again", pod(`{"name":"a"}`), pod(strings.Repeat(`{"name":"a",`+ports(20)+`},`, 300) + `{"name":"b"}`), true},
		{"what is replaced", `{"metadata":{"name":"a"}}`, `{"spec":{"containers":[{"name":"a","args":[` + strings.Repeat(`"x",`, 5000) + `"x"]}]}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := mergeStrategically([]byte(c.doc), []byte(c.patch), corev1.Pod{}); (err != nil) != c.refused {
				t.Errorf("refused with %v", err)
			}
		})
	}
}
