package registry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestGracePeriods: what deletions leave of an object whose kind has a grace period: that of its spec.size, if a deletion asks
// for no other.
func TestGracePeriods(t *testing.T) {
	s := start(t, "", Options{}, withGadgets(Definition[Gadget]{
		Grace: func(g *Gadget, asked *int64) int64 {
			if asked != nil {
				return *asked
			}
			return int64(g.Spec.Size)
		},
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
			began := now()
			at := metav1.NewTime(began.Add(time.Duration(tc.given-tc.ago) * time.Second))
			m := &metav1.ObjectMeta{DeletionTimestamp: &at, DeletionGracePeriodSeconds: &tc.given}
			shorten(m, tc.to)
			// The clock may go on by some seconds meanwhile.
			if in := m.DeletionTimestamp.Sub(began.Time); *m.DeletionGracePeriodSeconds != tc.grace || in < tc.in || in > tc.in+deadline {
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
		{NoDependents, "", "propagationPolicy=Orphan", "gone"},
		{NoDependents, "foregroundDeletion", "", "gone"},
		{NoDependents, "x.y/z", "propagationPolicy=Foreground", "x.y/z"},
	} {
		t.Run(fmt.Sprintf("%s, %s, %s", tc.kind, tc.finalizers, tc.query), func(t *testing.T) {
			s := start(t, "", Options{}, withGadgets(Definition[Gadget]{Dependents: tc.kind}))
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
