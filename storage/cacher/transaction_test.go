package cacher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestResumeAtDeletions: a watch that goes on after a transaction of deletions alone, with which history begins, is told that it may lack some.
func TestResumeAtDeletions(t *testing.T) {
	r := newRig(t, smallBounds)
	ctx := t.Context()
	var b storage.Batch
	for _, name := range []string{"a", "b"} {
		o := &thing{key: string(widgets) + "ns1/" + name, tier: "front", color: "red"}
		if _, err := r.store.Create(ctx, o.key, []byte(o.json(0))); err != nil {
			t.Fatal(err)
		}
		b.Writes = append(b.Writes, storage.Write{Key: o.key, Removed: true})
	}
	gone, _, err := r.store.Commit(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cacher.WaitFor(ctx, gone); err != nil {
		t.Fatal(err)
	}
	if _, err := r.server.Client.Compact(ctx, int64(gone)); err != nil {
		t.Fatal(err)
	}
	r.restart() // the logs begin with history
	opts := query{}.options(t)
	opts.After = gone
	cursor, err := r.cacher.Resource(widgets).Open(ctx, opts)
	if err == nil {
		defer cursor.Close()
		_, _, err = cursor.Next(ctx, nil)
	}
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("who may have got one of two deletions is told %v", err)
	}
}

// TestResumeAtTransaction: a watch that goes on after the revision of a transaction gets its events again if there are several of its
// resource, wherever they're read from; of a revision with one event it gets none again.
func TestResumeAtTransaction(t *testing.T) {
	r := newRig(t, smallBounds)
	ctx := context.Background()
	object := func(prefix storage.Prefix, name string) *thing {
		return &thing{key: string(prefix) + "ns1/" + name, tier: "front", color: "red"}
	}
	single := func(o *thing) storage.Revision {
		t.Helper()
		rev, err := r.store.Create(ctx, o.key, []byte(o.json(0)))
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	together := func(all ...*thing) storage.Revision {
		t.Helper()
		var b storage.Batch
		for _, o := range all {
			b.Writes = append(b.Writes, storage.Write{Key: o.key, Value: []byte(o.json(0))})
		}
		rev, _, err := r.store.Commit(ctx, b)
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	before := single(object(widgets, "before"))
	a, b, c := object(widgets, "a"), object(widgets, "b"), object(widgets, "c")
	both := together(a, b)
	apart := together(c, object(gadgets, "g"))
	after := single(object(widgets, "after"))
	check := func(where string) {
		for _, tc := range []struct {
			name string
			from storage.Revision
			want []string
		}{
			{"before the transaction", before, []string{"a", "b", "c", "after"}},
			{"after the transaction", both, []string{"a", "b", "c", "after"}},
			{"after one with one event of the resource", apart, []string{"after"}},
			{"after a single write", after, nil},
		} {
			t.Run(where+"/"+tc.name, func(t *testing.T) {
				q := query{}
				opts := q.options(t)
				opts.After = tc.from
				cursor, err := r.cacher.Resource(widgets).Open(ctx, opts)
				if err != nil {
					t.Fatal(err)
				}
				defer cursor.Close()
				var got []string
				for ended := false; !ended; {
					out, wait, err := cursor.Next(ctx, nil)
					if err != nil {
						t.Fatal(err)
					}
					for _, line := range lines(out) {
						_, rest, _ := strings.Cut(line, `"name":"`)
						name, _, _ := strings.Cut(rest, `"`)
						if ended = ended || strings.HasPrefix(name, "filler"); !ended {
							got = append(got, name)
						}
					}
					ended = ended || wait != nil
				}
				if fmt.Sprint(got) != fmt.Sprint(tc.want) {
					t.Errorf("got %v, want %v", got, tc.want)
				}
			})
		}
	}
	if err := r.cacher.WaitFor(ctx, after); err != nil {
		t.Fatal(err)
	}
	check("log")
	last := after
	for i := range smallBounds.logEvents + 10 {
		last = single(object(widgets, fmt.Sprint("filler", i)))
	}
	if err := r.cacher.WaitFor(ctx, last); err != nil {
		t.Fatal(err)
	}
	check("history")
}
