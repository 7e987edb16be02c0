package servertest_test

import (
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func TestShopIsAnnounced(t *testing.T) {
	s := servertest.New(t)
	watch := s.Watch("/api/v1/namespaces?watch=true&fieldSelector=metadata.name=shop")
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	event, err := watch.Next()
	if err != nil || !strings.Contains(event, `"type":"ADDED"`) {
		t.Errorf("the watch gave %s, %v", event, err)
	}
}
