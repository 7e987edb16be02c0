package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// reversed stores values backwards, and refuses those that begin with a 7.
type reversed struct{}

func (reversed) ToStorage(_ context.Context, _ string, value []byte) ([]byte, error) {
	return value, nil
}

func (reversed) FromStorage(_ context.Context, _ string, stored []byte) (value []byte, stale bool, err error) {
	if bytes.HasPrefix(stored, []byte("7")) {
		return nil, false, errors.New("refused")
	}
	for i := len(stored) - 1; i >= 0; i-- {
		value = append(value, stored[i])
	}
	return value, len(stored)%2 == 0, nil
}

// scribble does something to a few keys: it writes, deletes, does several such things in a transaction, or compacts.
func scribble(t *testing.T, client *clientv3.Client, random *rand.Rand) {
	t.Helper()
	key := func() string {
		return []string{storage.Root + "core/configmaps/default/", storage.Root + "example.com/widgets/", "/elsewhere/"}[random.IntN(3)] + fmt.Sprint(random.IntN(60))
	}
	write := func() clientv3.Op {
		if random.IntN(4) == 0 {
			return clientv3.OpDelete(key())
		}
		return clientv3.OpPut(key(), strings.Repeat(fmt.Sprint(random.Uint32()), 1+random.IntN(1+random.IntN(600))))
	}
	ops := []clientv3.Op{write()}
	if random.IntN(10) == 0 {
		for range random.IntN(6) {
			ops = append(ops, write())
		}
	}
	res, err := client.Txn(t.Context()).Then(ops...).Commit()
	if err != nil {
		return // it writes a key twice
	}
	if random.IntN(40) == 0 {
		_, _ = client.Compact(t.Context(), random.Int64N(res.Header.Revision)+1, clientv3.WithCompactPhysical()) // it may be compacted further already
	}
}

// TestState: the state at a revision is what a list of it gives, whatever was written, deleted and compacted, and whether it's in etcd's buffer or in
// its file.
func TestState(t *testing.T) {
	for name, transformer := range map[string]storage.Transformer{"as stored": nil, "transformed": reversed{}} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			e, err := etcd.Open(t.Context(), etcd.Options{Ephemeral: true, DataDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			s, err := New(e.Client, e.Local)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			s.SetTransformer(transformer)
			for round := range 60 {
				for range random.IntN(80) {
					scribble(t, e.Client, random)
				}
				if round%3 == 0 {
					e.Local.Backend().ForceCommit()
				}
				compacted, newest := s.revisions()
				at := max(1, compacted+storage.Revision(random.Int64N(int64(newest-compacted)+1)))
				want := map[string]string{}
				_, err := s.List(t.Context(), storage.Range{Prefix: storage.Root}, at, func(c storage.Change) error {
					want[c.Key] = fmt.Sprint(c)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				got := map[string]string{}
				err = s.State(t.Context(), at, func(changes []storage.Change) {
					mu.Lock()
					defer mu.Unlock()
					for _, c := range changes {
						if got[c.Key] != "" {
							t.Errorf("%s came twice", c.Key)
						}
						got[c.Key] = fmt.Sprint(c)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("at revision %d, of %d to %d: %d keys, and a list has %d", at, compacted, newest, len(got), len(want))
				}
			}
		})
	}
}

// TestStateOfManyRevisions: a state has what was written long before what etcd has in its buffer.
func TestStateOfManyRevisions(t *testing.T) {
	e, err := etcd.Open(t.Context(), etcd.Options{Ephemeral: true, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := New(e.Client, e.Local)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const keys = 3*stateRevisions + 100
	var last storage.Revision
	write := func(i int) {
		t.Helper()
		if last, err = s.Create(t.Context(), fmt.Sprint(storage.Root, "core/configmaps/default/", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range keys {
		write(i)
	}
	for i := range 20 {
		e.Local.Backend().ForceCommit()
		write(keys + i) // into the buffer
		var n atomic.Int64
		if err := s.State(t.Context(), last, func(changes []storage.Change) { n.Add(int64(len(changes))) }); err != nil {
			t.Fatal(err)
		}
		if want := int64(keys + i + 1); n.Load() != want {
			t.Errorf("the state has %d keys, want %d", n.Load(), want)
		}
	}
}

// TestStateThatIsGone: what a state can't be read of is told as a list tells it.
func TestStateThatIsGone(t *testing.T) {
	e, err := etcd.Open(t.Context(), etcd.Options{Ephemeral: true, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := New(e.Client, e.Local)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	none := func([]storage.Change) {}
	if err := s.State(t.Context(), 1, none); err != nil {
		t.Errorf("the state of an empty store: %v", err)
	}
	var last storage.Revision
	for i := range 5 {
		if last, err = s.Create(t.Context(), storage.Root+"core/configmaps/default/"+fmt.Sprint(i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Client.Compact(t.Context(), int64(last-1), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		ctx  context.Context
		at   storage.Revision
		want error
	}{
		{t.Context(), last - 2, storage.ErrCompacted},
		{t.Context(), last - 1, nil},
		{t.Context(), last + 1, storage.ErrFutureRevision},
		{ended, last, context.Canceled},
	} {
		if err := s.State(tt.ctx, tt.at, none); !errors.Is(err, tt.want) {
			t.Errorf("the state at %d of %d: %v, want %v", tt.at, last, err, tt.want)
		}
	}
}

// TestBackwards: keys come in their order from the last one on, also when some come again after those of the file.
func TestBackwards(t *testing.T) {
	for _, tt := range []struct{ keys, want string }{
		{"", ""}, {"a", "a"}, {"a b c", "c b a"}, {"a b c c", "c b a"}, {"a b c b c", "c b a"}, {"b c a", "c b a"},
	} {
		var got []string
		keys := bytes.Fields([]byte(tt.keys))
		for _, i := range backwards(keys) {
			got = append(got, string(keys[i]))
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%q came as %q, want %q", tt.keys, s, tt.want)
		}
	}
}

// FuzzEntry: an entry is read as etcd's type reads it.
func FuzzEntry(f *testing.F) {
	whole, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("/registry/k"), CreateRevision: 3, ModRevision: 4, Version: 2, Value: []byte("value"), Lease: 5})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add([]byte{0x08, 0x01, 0x0a, 0x01, 'k', 0x3a, 0x01, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		var want mvccpb.KeyValue
		wantErr := proto.Unmarshal(b, &want)
		got, err := entryOf(b)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err == nil && (!bytes.Equal(got.key, want.Key) || !bytes.Equal(got.value, want.Value) || got.version != uint64(want.Version)) {
			t.Fatalf("it's %+v, want %v", got, &want)
		}
	})
}

// BenchmarkState reads 20,000 objects of 1 KB: in the order of their keys, and in that of etcd's file.
func BenchmarkState(b *testing.B) {
	const objects = 20_000
	e, err := etcd.Open(b.Context(), etcd.Options{Ephemeral: true, DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	s, err := New(e.Client, e.Local)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var at storage.Revision
	for i := range objects {
		if at, err = s.Create(b.Context(), fmt.Sprintf("%sexample.com/widgets/default/w%06d", storage.Root, i*7919%objects), bytes.Repeat([]byte("x"), 1024)); err != nil {
			b.Fatal(err)
		}
	}
	e.Local.Backend().ForceCommit()
	b.Run("List", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			if _, err := s.List(b.Context(), storage.Range{Prefix: storage.Root}, at, func(storage.Change) error { n++; return nil }); err != nil || n != objects {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("State", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var n atomic.Int64
			if err := s.State(b.Context(), at, func(part []storage.Change) { n.Add(int64(len(part))) }); err != nil || n.Load() != objects {
				b.Fatal(n.Load(), err)
			}
		}
	})
}
