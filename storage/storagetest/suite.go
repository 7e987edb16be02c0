// Package storagetest has the tests that every storage.Store passes: Run. Embedded is a store for tests of what uses one.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// patience is for whatever a test waits for. A busy machine needs most of it.
const patience = 2 * time.Minute

const key = "/registry/example.com/widgets/default/a"

// Run tests a store. open returns one without objects, and closes it when the test ends.
func Run(t *testing.T, open func(testing.TB) storage.Store) {
	for _, c := range []struct {
		name string
		test func(testing.TB, storage.Store)
	}{
		{"operations", operations},
		{"conditions", conditions},
		{"fences", fences},
		{"premises", premises},
		{"turns", turns},
		{"both guards", bothGuards},
		{"list", list},
		{"changes", changes},
		{"versions", versions},
		{"authors", authors},
		{"follow", follow},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func newest(ctx context.Context, t testing.TB, s storage.Store) storage.Revision {
	t.Helper()
	_, rev, err := s.Window(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func create(ctx context.Context, t testing.TB, s storage.Store, key, value string) storage.Revision {
	t.Helper()
	rev, err := s.Create(ctx, key, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func operations(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	is := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: error is %v, want %v", what, err, want)
		}
	}
	_, err := s.Get(ctx, key)
	is("get of what isn't there", err, storage.ErrNotFound)
	created, err := s.Create(ctx, key, []byte("one"))
	is("create", err, nil)
	_, err = s.Create(ctx, key, []byte("again"))
	is("create twice", err, storage.ErrExists)
	updated, err := s.Update(ctx, key, []byte("two"), created)
	is("update", err, nil)
	_, err = s.Update(ctx, key, []byte("three"), created)
	is("update of an old version", err, storage.ErrConflict)
	_, err = s.Update(ctx, key, []byte("three"), 0)
	is("update at revision 0", err, storage.ErrConflict)
	_, err = s.Update(ctx, key+"b", []byte("three"), 0)
	is("update of a missing key at revision 0", err, storage.ErrConflict)
	kv, err := s.Get(ctx, key)
	if is("get", err, nil); string(kv.Value) != "two" || kv.Revision != updated {
		t.Errorf("got %q at %d, want \"two\" at %d", kv.Value, kv.Revision, updated)
	}
	kv, err = s.GetAt(ctx, key, created)
	if is("get at a revision", err, nil); string(kv.Value) != "one" || kv.Revision != created {
		t.Errorf("at a revision: got %q at %d, want \"one\" at %d", kv.Value, kv.Revision, created)
	}
	_, err = s.GetAt(ctx, key, updated+100)
	is("get at a future revision", err, storage.ErrFutureRevision)
	_, err = s.Delete(ctx, key, created)
	is("delete of an old version", err, storage.ErrConflict)
	deleted, err := s.Delete(ctx, key, updated)
	if is("delete", err, nil); deleted <= updated {
		t.Errorf("deleted at %d", deleted)
	}
	_, err = s.Delete(ctx, key, updated)
	is("delete twice", err, storage.ErrConflict)
	_, err = s.Create(ctx, key, bytes.Repeat([]byte("x"), 8<<20))
	is("create of 8 MiB", err, storage.ErrTooLarge)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Get(ended, key)
	is("get with an ended context", err, context.Canceled)
}

func conditions(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	ns := "/registry/core/namespaces/default"
	at := create(ctx, t, s, ns, "{}")
	for _, c := range []struct {
		name string
		cond storage.Condition
		want error
	}{
		{"the namespace changed", storage.Condition{Key: ns, Revision: at - 1}, storage.ErrConditionFailed},
		{"the namespace is missing", storage.Condition{Key: ns + "x", Revision: at}, storage.ErrConditionFailed},
		{"the namespace is there", storage.Condition{Key: ns, Revision: at}, nil},
		{"the object exists, and the namespace changed", storage.Condition{Key: ns, Revision: at - 1}, storage.ErrExists},
	} {
		if _, err := s.Create(ctx, key, []byte("{}"), c.cond); !errors.Is(err, c.want) {
			t.Errorf("%s: error is %v, want %v", c.name, err, c.want)
		}
	}
}

// writes are the three writes of one key, each of which finds what it expects unless somebody has written the key since.
var writes = []struct {
	name  string
	write func(ctx context.Context, s storage.Store, key string, at storage.Revision) (storage.Revision, error)
}{
	{"create", func(ctx context.Context, s storage.Store, key string, _ storage.Revision) (storage.Revision, error) {
		return s.Create(ctx, key+"-new", []byte("v"))
	}},
	{"update", func(ctx context.Context, s storage.Store, key string, at storage.Revision) (storage.Revision, error) {
		return s.Update(ctx, key, []byte("w"), at)
	}},
	{"delete", func(ctx context.Context, s storage.Store, key string, at storage.Revision) (storage.Revision, error) {
		return s.Delete(ctx, key, at)
	}},
}

// guardKey returns a key for a guard. It belongs to no object, so a store that is opened for one test after the other keeps it,
// and each test has its own.
func guardKey(test string) string { return storage.Own + "test/" + test }

// fences: with a fence each write is done while the fence holds. Afterwards none is, with ErrFenced.
func fences(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	fenceKey := guardKey("fences")
	for _, w := range writes {
		mine := key + w.name
		at := create(ctx, t, s, mine, "v")
		term := create(ctx, t, s, fenceKey, "mine")
		acting := storage.WithFence(ctx, storage.Condition{Key: fenceKey, Revision: term})
		if _, err := s.Delete(ctx, fenceKey, term); err != nil {
			t.Fatal(err)
		}
		before := newest(ctx, t, s)
		if _, err := w.write(acting, s, mine, at); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("%s after the term: %v", w.name, err)
		}
		if now := newest(ctx, t, s); now != before {
			t.Errorf("%s after the term has written something: revision %d became %d", w.name, before, now)
		}
		term = create(ctx, t, s, fenceKey, "mine again")
		acting = storage.WithFence(ctx, storage.Condition{Key: fenceKey, Revision: term})
		if _, err := w.write(acting, s, mine, at); err != nil {
			t.Errorf("%s within the term: %v", w.name, err)
		}
		if _, err := s.Delete(ctx, fenceKey, term); err != nil {
			t.Errorf("%s has changed the fence: %v", w.name, err)
		}
	}
}

// turns: each write takes the turn that it was given, in its own revision. Whoever was given the same one comes too late, with
// ErrOutOfTurn, until he reads it again. A write that isn't done for another reason takes no turn.
func turns(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	turnKey := guardKey("turns")
	turn := storage.Condition{Key: turnKey} // nobody has taken one yet
	for _, w := range writes {
		mine, other := key+w.name, key+w.name+"-other"
		at, otherAt := create(ctx, t, s, mine, "v"), create(ctx, t, s, other, "v")
		rev, err := w.write(storage.WithTurn(ctx, turn), s, mine, at)
		if err != nil {
			t.Fatalf("%s in turn: %v", w.name, err)
		}
		taken, err := s.Get(ctx, turnKey)
		if err != nil || taken.Revision != rev {
			t.Errorf("%s at %d took the turn at %d, %v", w.name, rev, taken.Revision, err)
		}
		if _, err := w.write(storage.WithTurn(ctx, turn), s, other, otherAt); !errors.Is(err, storage.ErrOutOfTurn) {
			t.Errorf("%s out of turn: %v", w.name, err)
		}
		if _, err := w.write(storage.InTurn(ctx, turn), s, other, otherAt); !errors.Is(err, storage.ErrOutOfTurn) {
			t.Errorf("%s in a turn that is over: %v", w.name, err)
		}
		if now := newest(ctx, t, s); now != rev {
			t.Errorf("%s out of turn has written something: revision %d became %d", w.name, rev, now)
		}
		turn.Revision = taken.Revision
		if _, err := w.write(storage.WithTurn(ctx, turn), s, mine, at); !errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrExists) {
			t.Errorf("%s of what was written since: %v", w.name, err)
		}
		if kv, err := s.Get(ctx, turnKey); err != nil || kv.Revision != turn.Revision {
			t.Errorf("%s wasn't done, and has taken a turn: %d became %d, %v", w.name, turn.Revision, kv.Revision, err)
		}
		if _, err := w.write(storage.InTurn(ctx, turn), s, other, otherAt); err != nil {
			t.Errorf("%s in a turn that it leaves to others: %v", w.name, err)
		}
		if kv, err := s.Get(ctx, turnKey); err != nil || kv.Revision != turn.Revision {
			t.Errorf("%s has taken the turn that it left to others: %d became %d, %v", w.name, turn.Revision, kv.Revision, err)
		}
	}
}

// premises: with a premise each write is done while the premise holds, and afterwards isn't, with ErrPremise. A write with a note
// ends it, in its own revision. A premise tells what became of the last write under it.
func premises(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	noteKey := guardKey("premises")
	var noted storage.Revision // nobody has yet
	under := func(at storage.Revision) (*storage.Premise, context.Context) {
		p := &storage.Premise{Condition: storage.Condition{Key: noteKey, Revision: at}}
		return p, storage.WithPremise(ctx, p)
	}
	for _, w := range writes {
		mine, other := key+w.name, key+w.name+"-other"
		at, otherAt := create(ctx, t, s, mine, "v"), create(ctx, t, s, other, "v")
		p, presuming := under(noted)
		if p.Decided() || p.Broken() {
			t.Errorf("%s: a new premise is decided: %t, broken: %t", w.name, p.Decided(), p.Broken())
		}
		if _, err := w.write(presuming, s, mine, at); err != nil || !p.Decided() || p.Broken() {
			t.Errorf("%s under a premise that holds: %v, decided: %t, broken: %t", w.name, err, p.Decided(), p.Broken())
		}
		if _, err := w.write(presuming, s, mine, at); err == nil || p.Decided() || p.Broken() {
			t.Errorf("%s of what was written since: %v, decided: %t, broken: %t", w.name, err, p.Decided(), p.Broken())
		}
		rev, err := s.Update(storage.WithNote(ctx, noteKey), other, []byte("w"), otherAt)
		if err != nil {
			t.Fatal(err)
		}
		if kv, err := s.Get(ctx, noteKey); err != nil || kv.Revision != rev {
			t.Errorf("the note of revision %d is at %d, %v", rev, kv.Revision, err)
		}
		if _, err := w.write(presuming, s, other, rev); !errors.Is(err, storage.ErrPremise) || p.Decided() || !p.Broken() {
			t.Errorf("%s under a premise that doesn't hold: %v, decided: %t, broken: %t", w.name, err, p.Decided(), p.Broken())
		}
		if now := newest(ctx, t, s); now != rev {
			t.Errorf("%s under a premise that doesn't hold has written something: revision %d became %d", w.name, rev, now)
		}
		noted = rev
		ended, end := context.WithCancel(presuming)
		end()
		if _, err := w.write(ended, s, other, rev); !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrUnknownOutcome) || p.Decided() || p.Broken() {
			t.Errorf("%s of a context that has ended: %v, decided: %t, broken: %t", w.name, err, p.Decided(), p.Broken())
		}
	}
}

// bothGuards: a context may have a fence and a turn. If neither holds, the fence is what counts, as whoever doesn't act any
// more needn't try again; and both count before a condition of the write.
func bothGuards(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	fenceKey, turnKey := guardKey("both-fence"), guardKey("both-turn")
	term := create(ctx, t, s, fenceKey, "mine")
	fence, turn := storage.Condition{Key: fenceKey, Revision: term}, storage.Condition{Key: turnKey}
	lost, taken := storage.Condition{Key: fenceKey, Revision: term - 1}, storage.Condition{Key: turnKey, Revision: term}
	missing := storage.Condition{Key: key + "-missing", Revision: term}
	for _, c := range []struct {
		name        string
		fence, turn storage.Condition
		conds       []storage.Condition
		want        error
	}{
		{"neither holds", lost, taken, nil, storage.ErrFenced},
		{"the fence doesn't hold", lost, turn, nil, storage.ErrFenced},
		{"the turn is taken", fence, taken, nil, storage.ErrOutOfTurn},
		{"the turn is taken, and a condition doesn't hold", fence, taken, []storage.Condition{missing}, storage.ErrOutOfTurn},
		{"both hold, and a condition doesn't", fence, turn, []storage.Condition{missing}, storage.ErrConditionFailed},
		{"both hold", fence, turn, nil, nil},
	} {
		guarded := storage.WithTurn(storage.WithFence(ctx, c.fence), c.turn)
		if _, err := s.Create(guarded, key, []byte("v"), c.conds...); !errors.Is(err, c.want) {
			t.Errorf("%s: error is %v, want %v", c.name, err, c.want)
		}
	}
}

func list(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	const n = 1200 // more than a page
	var last storage.Revision
	for i := range n {
		last = create(ctx, t, s, fmt.Sprintf("/registry/g/r/ns/%05d", i), "v")
	}
	other := create(ctx, t, s, "/registry/g/s/ns/other", "v")
	of := storage.Range{Prefix: "/registry/g/r/"}
	var keys []string
	collect := func(c storage.Change) error { keys = append(keys, c.Key); return nil }
	if at, err := s.List(ctx, of, 0, collect); err != nil || at < other || len(keys) != n {
		t.Errorf("%d keys at %d, %v", len(keys), at, err)
	}
	for i, k := range keys {
		if want := fmt.Sprintf("/registry/g/r/ns/%05d", i); k != want {
			t.Fatalf("key %d is %s", i, k)
		}
	}
	if count, err := s.Count(ctx, of, 0); err != nil || count != n {
		t.Errorf("counted %d, %v", count, err)
	}
	keys = nil
	if at, err := s.List(ctx, of, last-100, collect); err != nil || at != last-100 || len(keys) != n-100 {
		t.Errorf("in the past: %d keys at %d, %v", len(keys), at, err)
	}
	keys = nil
	if _, err := s.List(ctx, storage.Range{Prefix: of.Prefix, From: "/registry/g/r/ns/01190"}, 0, collect); err != nil || len(keys) != 10 {
		t.Errorf("from a key: %d keys, %v", len(keys), err)
	}
	stop := errors.New("stop")
	if _, err := s.List(ctx, of, 0, func(storage.Change) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error is %v", err)
	}
}

func changes(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	begin := newest(ctx, t, s)
	created := create(ctx, t, s, key, "one")
	updated, _ := s.Update(ctx, key, []byte("two"), created)
	deleted, err := s.Delete(ctx, key, updated)
	if err != nil {
		t.Fatal(err)
	}
	again := create(ctx, t, s, key, "three")
	want := []storage.Change{
		{KeyValue: storage.KeyValue{Key: key, Value: []byte("one"), Revision: created}},
		{KeyValue: storage.KeyValue{Key: key, Value: []byte("two"), Revision: updated}},
		{KeyValue: storage.KeyValue{Key: key, Revision: deleted}, Deleted: true},
		{KeyValue: storage.KeyValue{Key: key, Value: []byte("three"), Revision: again}},
	}
	for _, c := range []struct {
		name string
		st   storage.Stretch
		want []storage.Change
		upTo storage.Revision
	}{
		{"all", storage.Stretch{After: begin, Through: again}, want, again},
		{"as far as there is", storage.Stretch{After: begin}, want, again},
		{"from the middle", storage.Stretch{After: updated}, want[2:], again},
		{"nothing", storage.Stretch{After: again, Through: again}, nil, again},
		{"through a revision", storage.Stretch{After: begin, Through: updated}, want[:2], updated},
		{"few bytes", storage.Stretch{After: begin, MaxBytes: 1}, want[:1], created},
	} {
		got, upTo, err := s.Changes(ctx, c.st)
		if err != nil || upTo != c.upTo {
			t.Errorf("%s: up to %d, want %d, %v", c.name, upTo, c.upTo, err)
		}
		same(t, c.name, got, c.want)
	}
}

// same compares changes, and what is known of the values before with what the changes themselves say.
func same(t testing.TB, name string, got, want []storage.Change) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %+v, want %+v", name, got, want)
		return
	}
	for i, g := range got {
		w := want[i]
		if g.Key != w.Key || string(g.Value) != string(w.Value) || g.Revision != w.Revision || g.Deleted != w.Deleted || g.Err != nil {
			t.Errorf("%s: change %d is %+v, want %+v", name, i, g, w)
		}
		if i > 0 && g.Before != nil && (string(g.Before.Value) != string(want[i-1].Value) || (g.Before.Revision == 0) != want[i-1].Deleted) {
			t.Errorf("%s: change %d has %q of %d before it, want %+v", name, i, g.Before.Value, g.Before.Revision, want[i-1])
		}
	}
}

func follow(t testing.TB, s storage.Store) {
	ctx := bounded(t)
	begin := newest(ctx, t, s)
	const n = 300
	var last storage.Revision
	for i := range n {
		last = create(ctx, t, s, fmt.Sprintf("/registry/g/r/%d", i), "v")
	}
	at, seen := begin, 0
	for at < last {
		got, upTo, err := s.Follow(ctx, at)
		if err != nil || upTo <= at {
			t.Fatalf("after %d: up to %d, %v", at, upTo, err)
		}
		for _, c := range got {
			if want := begin + storage.Revision(seen) + 1; c.Revision != want {
				t.Fatalf("revision %d, want %d", c.Revision, want)
			}
			seen++
		}
		at = upTo
	}
	if rev, err := s.Barrier(ctx); err != nil || rev < last {
		t.Errorf("barrier at %d, want at least %d, %v", rev, last, err)
	}
	ended, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Follow(ended, at)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("after the context: %v", err)
	}
}
