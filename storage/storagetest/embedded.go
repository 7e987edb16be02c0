package storagetest

import (
	"log/slog"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// Embedded starts a store on an ephemeral etcd of its own. Both end with the test. The functions change how etcd is opened.
func Embedded(t testing.TB, change ...func(*etcd.Options)) (*embedded.Store, *etcd.Server) {
	t.Helper()
	o := etcd.Options{Ephemeral: true, DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	e, err := etcd.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := embedded.New(e.Client, e.Local)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, e
}
