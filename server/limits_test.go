package server

import (
	"errors"
	"net/http"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
)

func code(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

// TestInflight: after drain nobody is let in, and it's over when all but the watches have left.
func TestInflight(t *testing.T) {
	f := newInflight()
	for _, class := range []requestClass{classRead, classWrite, classLong} {
		if err := f.enter(class); err != nil {
			t.Fatal(err)
		}
	}
	idle := f.drain()
	for _, class := range []requestClass{classRead, classWrite, classLong} {
		if got := code(f.enter(class)); got != http.StatusServiceUnavailable {
			t.Errorf("class %d while draining: %d, want 503", class, got)
		}
	}
	f.leave(classRead)
	select {
	case <-idle:
		t.Error("idle with a write under way")
	default:
	}
	f.leave(classWrite)
	select {
	case <-idle: // the watch doesn't count
	default:
		t.Error("not idle when all are done")
	}
	f.leave(classLong)
}

func TestInflightAtOnce(t *testing.T) {
	f := newInflight()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for range 100 {
				if f.enter(requestClass(i%int(classes))) == nil {
					f.leave(requestClass(i % int(classes)))
				}
			}
		})
	}
	all.Go(func() { <-f.drain() })
	all.Wait()
	if got := f.now(classRead) + f.now(classWrite) + f.now(classLong); got != 0 {
		t.Errorf("%d are left", got)
	}
}

// TestMaxWatches: watches beyond the bound get a 429, and one flow leaves others a quarter of them.
func TestMaxWatches(t *testing.T) {
	h := &handler{capacity: newCapacity(nil, fair.NewLevel(fair.Limits{Most: 8, Times: watches.Share}))}
	one, other := fair.Flow{Who: "one"}, fair.Flow{Who: "other"}
	open := func(flow fair.Flow) (fair.Seat, error) { return h.enterWatches(&response{held: held{flow: flow}}) }
	first, err := open(one)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := open(one); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(one); code(err) != http.StatusTooManyRequests {
		t.Errorf("more than the part of one flow: %v, want 429", err)
	}
	if _, err := open(other); err != nil {
		t.Errorf("the other flow: %v", err)
	}
	first.Leave()
	if _, err := open(other); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
