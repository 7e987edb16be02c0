package storagetest

import (
	"bytes"
	"context"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Turned is a storage.Transformer that stores all bytes inverted.
type Turned struct{}

// ToStorage implements storage.Transformer.
func (Turned) ToStorage(_ context.Context, _ string, value []byte) ([]byte, error) {
	return inverted(value), nil
}

// FromStorage implements storage.Transformer.
func (Turned) FromStorage(_ context.Context, _ string, stored []byte) ([]byte, bool, error) {
	return inverted(stored), false, nil
}

func inverted(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		out[i] = ^c
	}
	return out
}

// Transformed tests a store that has Turned: whatever way a value is read, it's as it was written. raw returns what etcd has under a key.
func Transformed(t *testing.T, s storage.Store, raw func(key string) []byte) {
	ctx := t.Context()
	const key = "/registry/example.com/widgets/default/turned"
	first := create(ctx, t, s, key, "one")
	if got := raw(key); !bytes.Equal(got, inverted([]byte("one"))) {
		t.Errorf("stored is %q", got)
	}
	second, err := s.Update(ctx, key, []byte("two"), first)
	if err != nil {
		t.Fatal(err)
	}
	if kv, err := s.Get(ctx, key); err != nil || string(kv.Value) != "two" {
		t.Errorf("Get: %q, %v", kv.Value, err)
	}
	if kv, err := s.GetAt(ctx, key, first); err != nil || string(kv.Value) != "one" {
		t.Errorf("GetAt: %q, %v", kv.Value, err)
	}
	if _, err := s.List(ctx, storage.Range{Prefix: key}, 0, func(c storage.Change) error {
		if string(c.Value) != "two" {
			t.Errorf("List: %q", c.Value)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	last, err := s.Delete(ctx, key, second)
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() ([]storage.Change, storage.Revision, error){
		"Changes": func() ([]storage.Change, storage.Revision, error) {
			return s.Changes(ctx, storage.Stretch{After: first - 1, Through: last})
		},
		"Follow": func() ([]storage.Change, storage.Revision, error) { return s.Follow(ctx, first-1) },
	} {
		changes, _, err := read()
		if err != nil || len(changes) < 2 {
			t.Fatalf("%s: %d changes, %v", name, len(changes), err)
		}
		for i, want := range []string{"one", "two", ""} {
			if i == len(changes) {
				break
			}
			c := changes[i]
			if c.Err != nil || string(c.Value) != want || c.Deleted != (want == "") {
				t.Errorf("%s: change %d is %+v, want %q", name, i, c, want)
			}
			if b := c.Before; b != nil && string(b.Value) != []string{"", "one", "two"}[i] {
				t.Errorf("%s: before change %d was %q", name, i, b.Value)
			}
		}
	}
}
