package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
)

// counted is a quota of so many pods, and how often it was written.
type counted struct {
	lines  lines
	ledger quota.Ledger
	quota  *corev1.ResourceQuota
	writes int
}

func newCounted(hard int) *counted {
	of := func(n int) corev1.ResourceList { return corev1.ResourceList{"pods": resource.MustParse(fmt.Sprint(n))} }
	rq := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: of(hard), Used: of(0)}}
	rq.Name, rq.UID = "q", types.UID("u")
	return &counted{quota: rq}
}

// steps are what a write of the quota does around the change; nil for nothing. An error is the write's.
type steps struct{ before, after func() error }

// one charges for a pod.
func (c *counted) one(ctx context.Context, s steps) (registry.Verdict, error) {
	open := c.ledger.Begin("ns")
	defer open.Close()
	return c.lines.charge(ctx, charge{quota: c.quota, usage: quota.Usage{"pods": resource.MustParse("1")}}, open, func(change func(*corev1.ResourceQuota)) error {
		if s.before != nil {
			if err := s.before(); err != nil {
				return err
			}
		}
		next := c.quota.DeepCopy()
		change(next)
		if s.after != nil {
			if err := s.after(); err != nil {
				return err
			}
		}
		c.quota.Status = next.Status
		c.writes++
		return nil
	})
}

// check checks what is used, and that no line is left.
func (c *counted) check(t *testing.T, used, writes int) {
	t.Helper()
	if q := c.quota.Status.Used["pods"]; q.String() != fmt.Sprint(used) || c.writes != writes {
		t.Errorf("%s are used after %d writes, want %d after %d", q.String(), c.writes, used, writes)
	}
	if len(c.lines.of) > 0 {
		t.Error("a line is left")
	}
}

// TestQuotaLines: what comes while the quota is being written goes into one write, and only so many are charged as there is room for. A write that
// fails is the error of the request that did it, and the others go on.
func TestQuotaLines(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		first                         func(held func() error) steps
		failed, refused, used, writes int
	}{
		"held before its change": {func(held func() error) steps { return steps{before: held} }, 0, 3, 5, 1},
		"held after its change":  {func(held func() error) steps { return steps{after: held} }, 0, 3, 5, 2},
		"failing before":         {func(held func() error) steps { return steps{before: func() error { held(); return broken }} }, 1, 2, 5, 1},
		"failing after":          {func(held func() error) steps { return steps{after: func() error { held(); return broken }} }, 1, 2, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const clients = 8
				counts, release := newCounted(5), make(chan struct{})
				saids, errs := make([]registry.Verdict, clients), make([]error, clients)
				var all sync.WaitGroup
				for i := range clients {
					s := steps{}
					if i == 0 {
						s = c.first(func() error { <-release; return nil })
					}
					all.Go(func() { saids[i], errs[i] = counts.one(t.Context(), s) })
					synctest.Wait() // the first one writes, and the others wait
				}
				close(release)
				all.Wait()
				failed, refused := 0, 0
				for i := range clients {
					switch {
					case errs[i] != nil:
						failed++
					case saids[i].Refused():
						refused++
					}
				}
				if failed != c.failed || refused != c.refused {
					t.Errorf("%d failed and %d are refused, want %d and %d", failed, refused, c.failed, c.refused)
				}
				counts.check(t, c.used, c.writes)
			})
		})
	}
}

// TestQuotaLineLeft: who leaves while he waits is charged for nothing.
func TestQuotaLineLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, release := newCounted(5), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := counts.one(t.Context(), steps{after: func() error { <-release; return nil }}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		all.Go(func() {
			if _, err := counts.one(ctx, steps{}); !errors.Is(err, context.Canceled) {
				t.Errorf("who left is answered %v", err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		close(release)
		all.Wait()
		counts.check(t, 1, 1)
	})
}
