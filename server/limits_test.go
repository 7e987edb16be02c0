package server

import (
	"errors"
	"net/http"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func code(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

func TestInflight(t *testing.T) {
	f := newInflight(bounds{reads: 2, writes: 1})
	for _, step := range []struct {
		name  string
		class requestClass
		want  int
	}{
		{"first read", classRead, 0},
		{"second read", classRead, 0},
		{"third read", classRead, http.StatusTooManyRequests},
		{"first write", classWrite, 0},
		{"second write", classWrite, http.StatusTooManyRequests},
		{"a watch", classWatch, 0},
	} {
		if got := code(f.enter(step.class)); got != step.want {
			t.Errorf("%s: %d, want %d", step.name, got, step.want)
		}
	}
	idle := f.drain()
	for _, class := range []requestClass{classRead, classWrite, classWatch} {
		if got := code(f.enter(class)); got != http.StatusServiceUnavailable {
			t.Errorf("class %d while draining: %d, want 503", class, got)
		}
	}
	f.leave(classRead)
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
	f.leave(classWatch)
}

// TestInflightWeight: what does as much as several counts as several.
func TestInflightWeight(t *testing.T) {
	f := newInflight(bounds{reads: 1, writes: 20})
	for i, want := range []int{0, http.StatusTooManyRequests} {
		if got := code(f.enterAs(classWrite, 16)); got != want {
			t.Errorf("number %d of 16 each: %d, want %d", i, got, want)
		}
	}
	if f.now(classWrite) != 16 {
		t.Errorf("%d count, want 16", f.now(classWrite))
	}
	f.leaveAs(classWrite, 16)
	if f.now(classWrite) != 0 {
		t.Errorf("%d are left", f.now(classWrite))
	}
}

func TestInflightAtOnce(t *testing.T) {
	f := newInflight(bounds{reads: 10, writes: 10})
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
	if got := f.now(classRead) + f.now(classWrite) + f.now(classWatch); got != 0 {
		t.Errorf("%d are left", got)
	}
}
