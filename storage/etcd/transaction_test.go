package etcd

import (
	"log/slog"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// TestCompactionStopsBeforeTransaction: who goes on after a transaction can get it again from history.
func TestCompactionStopsBeforeTransaction(t *testing.T) {
	s, err := Open(t.Context(), Options{Ephemeral: true, DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := kv.NewWriter(s.Client.KV)
	single, err := w.Create(t.Context(), storage.Root+"g/r/single", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	var last storage.Revision
	for _, name := range []string{"a", "b"} {
		if last, _, err = w.Commit(t.Context(), storage.Batch{Writes: []storage.Write{
			{Key: storage.Root + "g/r/1" + name, Value: []byte("x")}, {Key: storage.Root + "g/r/2" + name, Value: []byte("x")},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name        string
		rev, before storage.Revision
	}{{"two transactions in turn", last, single}, {"no transaction", single, single}} {
		if got, err := s.keeper.beforeTransaction(t.Context(), tc.rev); got != tc.before || err != nil {
			t.Errorf("%s: %d, %v, want %d", tc.name, got, err, tc.before)
		}
	}
	s.keeper.compaction.wanted = last
	if err := s.keeper.compact(t.Context(), true); err != nil || s.keeper.compaction.done != single {
		t.Errorf("history was compacted up to %d, want %d: %v", s.keeper.compaction.done, single, err)
	}
}
