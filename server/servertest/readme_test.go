package servertest_test

import (
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func TestWidgets(t *testing.T) {
	s := servertest.New(t)
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	t.Log(s.Get("/api/v1/namespaces/shop"))
}
