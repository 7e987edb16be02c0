package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// told is what Versions says of a key, newest first.
func told(ctx context.Context, s storage.Store, of string, upTo storage.Revision) (all []string, err error) {
	err = s.Versions(ctx, of, upTo, func(v storage.Version) error {
		all = append(all, fmt.Sprintf("%d %s %s", v.Revision, map[bool]string{true: "deleted", false: map[bool]string{true: "created", false: "changed"}[v.Created]}[v.Deleted], v.Value))
		return nil
	})
	return all, err
}

// versions: each write of a key is told, newest first, over deletions, among others' writes, and from a revision on.
func versions(t testing.TB, s storage.Store) {
	const key = "/registry/example.com/widgets/default/versions" // a store that is opened for one test after the other has others' keys
	ctx := bounded(t)
	var want []string
	note := func(rev storage.Revision, what string) {
		t.Helper()
		want = slices.Insert(want, 0, fmt.Sprintf("%d %s", rev, what))
	}
	others := func() {
		at := create(ctx, t, s, key+"-other", "x")
		if _, err := s.Delete(ctx, key+"-other", at); err != nil {
			t.Fatal(err)
		}
	}
	var rev, between storage.Revision
	for life := range 3 {
		rev = create(ctx, t, s, key, fmt.Sprint("life ", life))
		note(rev, fmt.Sprint("created life ", life))
		others()
		for change := range 3 {
			value := fmt.Sprint("life ", life, " change ", change)
			var err error
			if rev, err = s.Update(ctx, key, []byte(value), rev); err != nil {
				t.Fatal(err)
			}
			note(rev, "changed "+value)
			others()
		}
		if life == 1 {
			between = rev
		}
		if life < 2 {
			var err error
			if rev, err = s.Delete(ctx, key, rev); err != nil {
				t.Fatal(err)
			}
			note(rev, "deleted ")
			others()
		}
	}
	got, err := told(ctx, s, key, 0)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	older := slices.IndexFunc(want, func(v string) bool { return v == fmt.Sprintf("%d changed life 1 change 2", between) })
	if got, err := told(ctx, s, key, between+1); err != nil || !slices.Equal(got, want[older:]) { // of that revision, somebody else's write
		t.Errorf("up to %d: got %q, %v, want %q", between+1, got, err, want[older:])
	}
	if got, err := told(ctx, s, key+"-never", 0); err != nil || len(got) > 0 {
		t.Errorf("of a key that never was: %q, %v", got, err)
	}
	if _, err := told(ctx, s, key, rev+1000); !errors.Is(err, storage.ErrFutureRevision) {
		t.Errorf("from a revision that isn't there yet: %v", err)
	}
	stop := errors.New("stop")
	if err := s.Versions(ctx, key, 0, func(storage.Version) error { return stop }); err != stop {
		t.Errorf("the error of fn became %v", err)
	}
}

// authors: a write notes who has asked for it, at its own revision, and a transaction does.
func authors(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	noted := func(of string, at storage.Revision) string {
		kv, err := s.GetAt(ctx, of, at)
		if err != nil || kv.Revision != at {
			t.Errorf("the note at %d: revision %d, %v", at, kv.Revision, err)
		}
		return string(kv.Value)
	}
	for _, w := range writes {
		mine := key + w.name
		at := create(ctx, t, s, mine, "v")
		rev, err := w.write(storage.WithAuthor(ctx, "anna"), s, mine, at)
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		written := mine
		if w.name == "create" {
			written += "-new"
		}
		if by := noted(storage.AuthorKey(written), rev); by != "anna" {
			t.Errorf("%s is by %q", w.name, by)
		}
	}
	for _, n := range []int{1, 3} {
		var b storage.Batch
		for i := range n {
			b.Writes = append(b.Writes, storage.Write{Key: fmt.Sprint(key, "-", n, "-", i), Value: []byte("v")})
		}
		rev, _, err := s.Commit(storage.WithAuthor(ctx, "bert"), b)
		if err != nil {
			t.Fatal(err)
		}
		of := storage.TransactionKey
		if n == 1 {
			of = storage.AuthorKey(b.Writes[0].Key)
		}
		if by := noted(of, rev); by != "bert" {
			t.Errorf("a transaction of %d is by %q", n, by)
		}
	}
}
