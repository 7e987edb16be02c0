package servertest_test

import (
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func TestNew(t *testing.T) {
	s := servertest.New(t)
	t.Log(s.Get("/api/v1/namespaces"))
	t.Log(s.Get("/readyz?verbose"))
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		servertest.New(b)
	}
}
