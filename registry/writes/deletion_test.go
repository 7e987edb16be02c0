package writes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// TestGracePeriods: what deletions leave of an object whose kind has a grace period: that of its spec.size, if a
// deletion asks for no other.
func TestGracePeriods(t *testing.T) {
	s := start(t, "", registry.Options{}, withGadgets(registry.Definition[Gadget]{
		Deletion: registry.Deletion[*Gadget]{Grace: func(g *Gadget, asked *int64) int64 {
			if asked != nil {
				return *asked
			}
			return int64(g.Spec.Size)
		}},
	}))
	e := s.goGadgets()
	type step struct {
		query string
		grace string // that the object has afterwards, in seconds, and its finalizers; "gone" for an object that is gone
	}
	for i, tc := range []struct {
		name, more string
		steps      []step
	}{
		{"none", "", []step{{"", "gone"}}},
		{"that of the object", `,"spec":{"size":600}`, []step{{"", "600"}}},
		{"that of the deletion", `,"spec":{"size":600}`, []step{{"gracePeriodSeconds=300", "300"}}},
		{"none, as the deletion says", `,"spec":{"size":600}`, []step{{"gracePeriodSeconds=0", "gone"}}},
		{"a dry run", `,"spec":{"size":600}`, []step{{"dryRun=All", "600"}}},
		{"again", `,"spec":{"size":600}`, []step{{"", "600"}, {"", "600"}}},
		{"again and longer", `,"spec":{"size":600}`, []step{{"", "600"}, {"gracePeriodSeconds=900", "600"}}},
		{"again and shorter", `,"spec":{"size":600}`, []step{{"", "600"}, {"gracePeriodSeconds=300", "300"}, {"gracePeriodSeconds=400", "300"}}},
		{"again with none", `,"spec":{"size":600}`, []step{{"", "600"}, {"gracePeriodSeconds=0", "gone"}}},
		{"foreground", `,"spec":{"size":600}`, []step{{"propagationPolicy=Foreground", "600 foregroundDeletion"}, {"gracePeriodSeconds=0", "0 foregroundDeletion"},
			{"propagationPolicy=Background", "gone"}}},
		{"another policy while it's pending", `,"spec":{"size":600}`, []step{{"propagationPolicy=Orphan", "600 orphan"}, {"propagationPolicy=Background", "600 orphan"},
			{"propagationPolicy=Foreground&gracePeriodSeconds=300", "300 foregroundDeletion"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := fmt.Sprintf("g%d", i)
			s.ok(e.Create(s.ctx, "default", nil, gadget(name, tc.more)))
			for _, st := range tc.steps {
				got := s.ok(e.Delete(s.ctx, "default", name, params(st.query), nil))
				if st.grace == "gone" {
					if got.str("kind") != "Status" {
						t.Fatalf("%q is answered %v", st.query, got)
					}
					_, err := e.Get(s.ctx, "default", name, "", nil)
					s.refused(err, 404, metav1.StatusReasonNotFound)
					return
				}
				seconds, finalizers, _ := strings.Cut(st.grace, " ")
				left := strings.Trim(strings.TrimSuffix(fmt.Sprint(got.get("metadata.finalizers")), "<nil>"), "[]")
				if got.get("metadata.deletionGracePeriodSeconds") != seconds || left != finalizers || got.get("metadata.generation") != "2" {
					t.Errorf("%q leaves %v", st.query, got["metadata"])
				}
				at, err := time.Parse(time.RFC3339, got.str("metadata.deletionTimestamp"))
				if until := time.Until(at); err != nil || until > 600*time.Second || seconds == "300" && until > 300*time.Second {
					t.Errorf("%q: %v until it ends, %v", st.query, until, err)
				}
			}
		})
	}
	// Writes of an object that still has time don't end it.
	s.ok(e.Create(s.ctx, "default", nil, gadget("pending", `,"spec":{"size":600}`)))
	s.ok(e.Delete(s.ctx, "default", "pending", nil, nil))
	s.ok(e.Patch(s.ctx, "default", "pending", "", mergePatch, nil, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
	s.ok(e.Get(s.ctx, "default", "pending", "", nil))
}

// TestMarkedThenRemoved: an object whose kind has a grace period is marked even if that's none, and then removed. If another object has
// taken its name in between, that one stays.
func TestMarkedThenRemoved(t *testing.T) {
	s := start(t, "", registry.Options{}, withGadgets(registry.Definition[Gadget]{Deletion: registry.Deletion[*Gadget]{Grace: func(*Gadget, *int64) int64 { return 0 }}}))
	e := s.goGadgets()
	s.ok(e.Create(s.ctx, "default", nil, gadget("a", "")))
	before := s.current()
	s.ok(e.Delete(s.ctx, "default", "a", nil, nil))
	if writes := s.current() - before; writes != 2 {
		t.Errorf("the deletion has written %d times, not twice", writes)
	}

	s.ok(e.Create(s.ctx, "default", nil, gadget("b", "")))
	d := e.newDeletion(&registry.Request{}, &metav1.DeleteOptions{})
	d.Target = registry.Target{Namespace: "default", Name: "b"}
	var err error
	if d.targetKey, err = e.Key("default", "b"); err != nil {
		t.Fatal(err)
	}
	decide := func(old *kube.Object) (outcome, error) { return d.decide(s.ctx, old) }
	marked, err := d.update(s.ctx, decide)
	if err != nil || !d.ends {
		t.Fatalf("it isn't marked: %v", err)
	}
	s.ok(e.Delete(s.ctx, "default", "b", nil, nil))
	s.ok(e.Create(s.ctx, "default", nil, gadget("b", "")))
	d.goOn(marked.Revision)
	_, err = d.update(s.ctx, decide)
	s.refused(err, 404, metav1.StatusReasonNotFound)
	if got := s.ok(e.Get(s.ctx, "default", "b", "", nil)); got.str("metadata.deletionTimestamp") != "" {
		t.Errorf("the other object is %v", got)
	}
}

// TestShortenedGracePeriods: a shorter period counts from when the deletion began.
func TestShortenedGracePeriods(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		ago, given, to, grace int64 // seconds
		in                    time.Duration
	}{
		{"some is left", 10, 60, 30, 30, 20 * time.Second},
		{"it has passed", 50, 60, 30, 1, 0},
		{"none is left", 50, 60, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := metav1.Now().Rfc3339Copy()
			at := metav1.NewTime(began.Add(time.Duration(tc.given-tc.ago) * time.Second))
			m := &metav1.ObjectMeta{DeletionTimestamp: &at, DeletionGracePeriodSeconds: &tc.given}
			shorten(m, tc.to, began)
			if in := m.DeletionTimestamp.Sub(began.Time); *m.DeletionGracePeriodSeconds != tc.grace || in != tc.in {
				t.Errorf("it ends in %v, with a period of %d", in, *m.DeletionGracePeriodSeconds)
			}
		})
	}
}

// TestDependentsByDefault: what becomes of dependents, for kinds that say so, if a deletion doesn't.
func TestDependentsByDefault(t *testing.T) {
	for _, tc := range []struct {
		kind                    metav1.DeletionPropagation
		finalizers, query, left string
	}{
		{"", "", "", "gone"},
		{metav1.DeletePropagationOrphan, "", "", "orphan"},
		{metav1.DeletePropagationOrphan, "foregroundDeletion", "", "foregroundDeletion"},
		{metav1.DeletePropagationOrphan, "", "propagationPolicy=Background", "gone"},
		{metav1.DeletePropagationOrphan, "", "propagationPolicy=Foreground", "foregroundDeletion"},
		{metav1.DeletePropagationForeground, "", "", "foregroundDeletion"},
		{registry.NoDependents, "", "propagationPolicy=Orphan", "gone"},
		{registry.NoDependents, "foregroundDeletion", "", "gone"},
		{registry.NoDependents, "x.y/z", "propagationPolicy=Foreground", "x.y/z"},
	} {
		t.Run(fmt.Sprintf("%s, %s, %s", tc.kind, tc.finalizers, tc.query), func(t *testing.T) {
			s := start(t, "", registry.Options{}, withGadgets(registry.Definition[Gadget]{Strategy: registry.Strategy{Dependents: tc.kind}}))
			e := s.goGadgets()
			body := `{"metadata":{"name":"a","finalizers":["` + tc.finalizers + `"]}}`
			s.ok(e.Create(s.ctx, "default", nil, []byte(strings.Replace(body, `[""]`, "[]", 1))))
			got := s.ok(e.Delete(s.ctx, "default", "a", params(tc.query), nil))
			left := strings.Trim(fmt.Sprint(got.get("metadata.finalizers")), "[]")
			if got.str("kind") == "Status" {
				left = "gone"
			}
			if left != tc.left {
				t.Errorf("left %s, want %s", left, tc.left)
			}
		})
	}
}

// TestDeletionsAtOnce lets clients with every policy, patches and the server's own writes meet on one object. Whoever comes
// first: the deletion begins once, the object never has two of the collector's finalizers, and it goes once.
func TestDeletionsAtOnce(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	const rounds = 10
	for round := range rounds {
		name := fmt.Sprintf("w%d", round)
		made := s.ok(w.Create(s.ctx, "default", nil, held(name, "example.com/x")))
		cursor, _, err := w.Watch(s.ctx, "default", name, params("resourceVersion="+made.str("metadata.resourceVersion")))
		if err != nil {
			t.Fatal(err)
		}
		var writers sync.WaitGroup
		try := func(write func() error) {
			writers.Go(func() {
				if err := write(); err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, storage.ErrNotFound) {
					t.Error(err)
				}
			})
		}
		for _, query := range []string{"", "propagationPolicy=Foreground", "propagationPolicy=Orphan", "propagationPolicy=Background", "orphanDependents=true", "orphanDependents=false"} {
			try(func() error { _, err := w.Delete(s.ctx, "default", name, params(query), nil); return err })
			try(func() error {
				l, err := w.DeleteCollection(s.ctx, "default", params("fieldSelector=metadata.name%3D"+name+"&"+query), nil)
				if err == nil {
					err = l.Write(s.ctx, io.Discard)
				}
				return err
			})
		}
		for i := range 5 {
			try(func() error {
				_, err := w.Patch(s.ctx, "default", name, "", mergePatch, nil, fmt.Appendf(nil, `{"spec":{"f%d":1}}`, i))
				return err
			})
		}
		try(func() error {
			_, _, err := w.Remove(s.ctx, Removal{Namespace: "default", Name: name, Propagation: metav1.DeletePropagationForeground})
			return err
		})
		writers.Wait()
		m, err := w.Current(s.ctx, "default", name)
		if err != nil || m.DeletionTimestamp == nil {
			t.Fatalf("its own finalizer doesn't hold it: %v, %v", m, err)
		}
		if _, err := w.Amend(s.ctx, "default", name, m.UID, func(m *metav1.ObjectMeta) error { m.Finalizers = nil; return nil }); err != nil {
			t.Fatal(err)
		}
		checkOneDeletion(t, s.ctx, cursor)
		cursor.Close()
	}
}

// checkOneDeletion reads a watch of one object up to its DELETED event.
func checkOneDeletion(t *testing.T, ctx context.Context, cursor *cacher.Cursor) {
	t.Helper()
	began := ""
	for {
		out, wait, err := cursor.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(out) {
			e := parse(t, line)
			at, finalizers := e.str("object.metadata.deletionTimestamp"), fmt.Sprint(e.get("object.metadata.finalizers"))
			switch {
			case began == "":
				began = at
			case at != began:
				t.Errorf("its deletion began at %s and at %s", began, at)
			}
			if strings.Contains(finalizers, metav1.FinalizerOrphanDependents) && strings.Contains(finalizers, metav1.FinalizerDeleteDependents) {
				t.Errorf("it has the finalizers %s", finalizers)
			}
			if e.str("type") == "DELETED" {
				if more := untaken(t, ctx, cursor); len(more) > 0 {
					t.Errorf("after it was deleted: %s", more)
				}
				return
			}
		}
		if wait != nil {
			select {
			case <-wait:
			case <-ctx.Done():
				t.Fatal("it isn't deleted")
			}
		}
	}
}
