package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// openReplaceable starts a store that may be replaced.
func openReplaceable(t testing.TB) *embedded.Store {
	t.Helper()
	s, _ := storagetest.Embedded(t, func(o *etcd.Options) { o.Bulk = true })
	s.AllowReplace()
	return s
}

// contents is what a store holds.
func contents(t testing.TB, s *embedded.Store) map[string]string {
	t.Helper()
	found := map[string]string{}
	_, err := s.List(context.WithoutCancel(t.Context()), storage.Range{Prefix: storage.Root}, 0, func(c storage.Change) error {
		found[c.Key] = string(c.Value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestReplace: a Replace is one revision, however much it writes, and Follow gives it whole, with ReplacedKey at its end.
func TestReplace(t *testing.T) {
	ctx := t.Context()
	s := openReplaceable(t)
	const n = 3000
	name := func(i int) string { return fmt.Sprintf("/registry/g/r/ns/%05d", i) }
	var before storage.Revision
	for i := range 300 {
		var err error
		if before, err = s.Create(ctx, name(i), []byte("old")); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{}
	b := storage.Replacement{Deletes: []storage.Span{{First: name(0), Last: name(99)}, {First: name(200), Last: name(200)}}}
	large := strings.Repeat("x", 8<<10) // 24 MiB together
	for i := 100; i < 300; i++ {
		want[name(i)] = "old"
	}
	delete(want, name(200))
	for i := 300; i < n; i++ {
		want[name(i)] = large
		b.Puts = append(b.Puts, storage.KeyValue{Key: name(i), Value: []byte(large)})
	}
	rev, err := s.Replace(ctx, func() (storage.Replacement, error) { return b, nil })
	if err != nil || rev != before+1 {
		t.Fatalf("replaced at %d after %d, %v", rev, before, err)
	}
	if got := contents(t, s); !maps.Equal(got, want) {
		t.Errorf("%d keys are there, want %d", len(got), len(want))
	}
	changes, upTo, err := s.Changes(ctx, storage.Stretch{After: before})
	if err != nil || upTo != rev || len(changes) != 101+len(b.Puts)+1 || changes[len(changes)-1].Key != storage.ReplacedKey {
		t.Errorf("%d changes up to %d, %v", len(changes), upTo, err)
	}
	for after := storage.Revision(1); after < rev; { // in memory there is no room for so much
		if changes, after, err = s.Follow(ctx, after); err != nil {
			t.Fatal(err)
		}
	}
	if len(changes) == 0 || changes[len(changes)-1].Key != storage.ReplacedKey {
		t.Errorf("Follow ends with %d changes", len(changes))
	}
	rev, err = s.Replace(ctx, func() (storage.Replacement, error) { return storage.Replacement{}, nil })
	if err != nil || rev != before+2 {
		t.Errorf("an empty batch: %d, %v", rev, err)
	}
	planned := errors.New("no plan")
	if _, err := s.Replace(ctx, func() (storage.Replacement, error) { return storage.Replacement{}, planned }); !errors.Is(err, planned) {
		t.Errorf("a plan that fails: %v", err)
	}
	twice := storage.Replacement{Puts: []storage.KeyValue{{Key: name(1)}, {Key: name(1)}}}
	if _, err := s.Replace(ctx, func() (storage.Replacement, error) { return twice, nil }); err == nil {
		t.Error("a key may be written twice")
	}
	fixed, _ := storagetest.Embedded(t)
	if _, err := fixed.Replace(ctx, func() (storage.Replacement, error) { return storage.Replacement{}, nil }); err == nil {
		t.Error("every store may be replaced")
	}
}

// TestReplaceKeepsWritersOut: between a plan and its batch nobody writes, and who began before can tell.
func TestReplaceKeepsWritersOut(t *testing.T) {
	ctx := t.Context()
	s := openReplaceable(t)
	before, mine := s.Pin(ctx)
	if _, again := s.Pin(before); !mine || again {
		t.Errorf("pinned %v, and again %v", mine, again)
	}
	var writers sync.WaitGroup
	var mu sync.Mutex // guards written
	written := map[string]storage.Revision{}
	for i := range 8 {
		writers.Go(func() {
			for n := range 50 {
				name := fmt.Sprintf("/registry/g/r/%d-%d", i, n)
				rev, err := s.Create(ctx, name, []byte("v"))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				written[name] = rev
				mu.Unlock()
			}
		})
	}
	var last storage.Revision
	for range 20 {
		var planned storage.Revision
		rev, err := s.Replace(ctx, func() (storage.Replacement, error) {
			var err error
			planned, err = s.Barrier(ctx)
			return storage.Replacement{Deletes: []storage.Span{{First: storage.Root, Last: storage.Root + "~"}}}, err
		})
		if err != nil || rev != planned+1 {
			t.Errorf("planned at %d, replaced at %d, %v", planned, rev, err)
		}
		last = rev
	}
	writers.Wait()
	for name := range contents(t, s) {
		if written[name] < last {
			t.Errorf("%s of revision %d is left of what was before %d", name, written[name], last)
		}
		delete(written, name)
	}
	for name, rev := range written {
		if rev > last {
			t.Errorf("%s of revision %d is lost, the last replace was at %d", name, rev, last)
		}
	}
	if _, err := s.Create(before, "/registry/g/r/late", nil); !errors.Is(err, storage.ErrReplaced) {
		t.Errorf("a write that began before: %v", err)
	}
	now, _ := s.Pin(ctx)
	rev, err := s.Create(now, "/registry/g/r/late", nil)
	if err != nil {
		t.Error(err)
	}
	if _, err := s.Update(before, "/registry/g/r/late", nil, rev); !errors.Is(err, storage.ErrReplaced) {
		t.Errorf("an update that began before: %v", err)
	}
	if _, err := s.Delete(before, "/registry/g/r/late", rev); !errors.Is(err, storage.ErrReplaced) {
		t.Errorf("a deletion that began before: %v", err)
	}
}

// TestReplaceIsWaitedFor: a write, or another Replace, that waits for a Replace gives up when its context ends.
func TestReplaceIsWaitedFor(t *testing.T) {
	s := openReplaceable(t)
	inside, open := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := s.Replace(t.Context(), func() (storage.Replacement, error) {
			close(inside)
			<-open
			return storage.Replacement{}, nil
		})
		ended <- err
	}()
	<-inside
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Create(gone, "/registry/g/r/ns/a", []byte("{}")); !errors.Is(err, context.Canceled) {
		t.Errorf("the write got %v", err)
	}
	if _, err := s.Replace(gone, func() (storage.Replacement, error) { return storage.Replacement{}, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("the second Replace got %v", err)
	}
	close(open)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
