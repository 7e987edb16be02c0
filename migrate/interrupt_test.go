package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// flakyKV fails the transaction after so many: the one that fails has been done if lost is set.
type flakyKV struct {
	clientv3.KV
	left int
	lost bool
}

type flakyTxn struct {
	clientv3.Txn
	kv *flakyKV
}

var errFlaky = errors.New("the network is gone")

func (kv *flakyKV) Txn(ctx context.Context) clientv3.Txn { return &flakyTxn{kv.KV.Txn(ctx), kv} }

func (t *flakyTxn) If(cmps ...clientv3.Cmp) clientv3.Txn { t.Txn.If(cmps...); return t }
func (t *flakyTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn.Then(ops...); return t }

func (t *flakyTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.kv.left--; t.kv.left < 0 {
		if t.kv.lost {
			t.Txn.Commit()
		}
		return nil, errFlaky
	}
	return t.Txn.Commit()
}

func openStore(t *testing.T) store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	s, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return store{client: s.Client, name: dir}
}

// put writes a key, and fails the test if it can't.
func (s store) put(t *testing.T, key, value string) {
	t.Helper()
	if _, err := s.client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// TestInterruptedGoesOn: a migration that is cut off at any of its transactions, done or not, has left no marker, and the next run
// finishes it with each key copied once.
func TestInterruptedGoesOn(t *testing.T) {
	source := openStore(t)
	const keys = 250
	for n := range keys {
		source.put(t, fmt.Sprintf("%sa/b/%04d", storage.Root, n), fmt.Sprint(n))
	}
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost answer %v", lost), func(t *testing.T) {
			done := false
			for cut := 0; !done; cut++ {
				target := openStore(t)
				for range keys + 1 {
					target.put(t, "/elsewhere", "")
				}
				done = interrupt(t, source, target, &flakyKV{KV: target.client.KV, left: cut, lost: lost})
				if cut > 50 {
					t.Fatal("it needs more transactions than there can be")
				}
			}
		})
	}
}

// interrupt moves with a KV that fails, and then with a good one. done tells that the first one didn't fail.
func interrupt(t *testing.T, source, target store, flaky *flakyKV) (done bool) {
	t.Helper()
	good := target.client.KV
	target.client.KV = flaky
	m := migration{source: source, target: target, out: io.Discard, marker: true}
	err := m.run(t.Context())
	target.client.KV = good
	marked := func() bool {
		res, err := target.get(t.Context(), storage.MarkerKey)
		if err != nil {
			t.Fatal(err)
		}
		return len(res.Kvs) > 0
	}
	if err != nil {
		if !errors.Is(err, errFlaky) {
			t.Fatalf("cut off: %v, want the network's error", err)
		}
		if marked() {
			if !flaky.lost {
				t.Error("a migration that was cut off left the marker")
			}
			return false // the last transaction was done, and its answer lost
		}
		m = migration{source: source, target: target, out: io.Discard, marker: true}
		if err := m.run(t.Context()); err != nil {
			t.Fatalf("the second run: %v", err)
		}
	}
	if !marked() {
		t.Error("a finished migration left no marker")
	}
	res, err2 := target.get(t.Context(), storage.Root, clientv3.WithPrefix())
	if err2 != nil {
		t.Fatal(err2)
	}
	for n, kv := range res.Kvs {
		if string(kv.Value) != fmt.Sprint(n) || kv.Version != 1 {
			t.Fatalf("%s is %s, written %d times; want %d, once", kv.Key, kv.Value, kv.Version, n)
		}
	}
	if len(res.Kvs) != int(m.all) {
		t.Errorf("%d keys were copied, want %d", len(res.Kvs), m.all)
	}
	return err == nil
}

// TestWrittenMeanwhileIsNoticed: a source that a server writes to is noticed.
func TestWrittenMeanwhileIsNoticed(t *testing.T) {
	key := storage.Root + "a/b/c"
	writes := []struct {
		name  string
		write func(store)
	}{
		{"create", func(s store) { s.put(t, key+"2", "new") }},
		{"update", func(s store) { s.put(t, key, "new") }},
		{"delete", func(s store) {
			if _, err := s.client.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, test := range writes {
		t.Run(test.name, func(t *testing.T) {
			source, target := openStore(t), openStore(t)
			source.put(t, key, "old")
			for range 10 {
				target.put(t, "/elsewhere", "")
			}
			m := migration{source: source, target: target, out: io.Discard, marker: true}
			if err := m.begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			test.write(source)
			if err := m.copy(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := m.finish(t.Context()); err == nil {
				t.Error("finished, want the write noticed")
			}
			if res, err := target.get(t.Context(), storage.MarkerKey); err != nil || len(res.Kvs) > 0 {
				t.Errorf("the target has %v (%v), want no marker", res, err)
			}
		})
	}
}
