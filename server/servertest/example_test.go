package servertest_test

import (
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func ExampleNew() {
	_ = func(t *testing.T) { // a test of yours
		s := servertest.New(t)
		w := s.Watch("/api/v1/namespaces?watch=true&labelSelector=team=blue")
		s.PostYAML("/api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: blue}}}")
		if line, err := w.Next(); err != nil || !strings.HasPrefix(line, `{"type":"ADDED"`) {
			t.Errorf("the first event is %s, %v", line, err)
		}
	}
}
