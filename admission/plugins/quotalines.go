package plugins

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
)

// lines are the charges that wait for quotas. Those that have come while a quota is being written go into its next write together: with a write
// for each, all creates of a namespace would wait for each other's disk. A charge is there for as long as its request, so requests bound them.
type lines struct {
	mu sync.Mutex          // guards of, and what is in a line
	of map[types.UID]*line // by quotas
}

// line is what waits for one quota.
type line struct {
	users   int           // requests that have the line; without any it's forgotten
	writing chan struct{} // has an element while a request writes the quota
	waiting []*waiting
}

// waiting is a charge in a line.
type waiting struct {
	charge
	open   *quota.Charge
	said   registry.Verdict
	failed bool          // the write didn't succeed, for a reason that is another request's
	done   chan struct{} // closed when said or failed is known
}

// charge charges a quota when its line gets there. write writes the quota as its argument changes it. The error is write's, or ctx's.
func (l *lines) charge(ctx context.Context, c charge, open *quota.Charge, write func(change func(*corev1.ResourceQuota)) error) (registry.Verdict, error) {
	in := l.enter(c.quota.UID)
	defer l.leave(c.quota.UID, in)
	for {
		w := &waiting{charge: c, open: open, done: make(chan struct{})}
		l.add(in, w)
		select {
		case <-w.done:
		case in.writing <- struct{}{}:
			err := l.write(in, w, write)
			<-in.writing
			if err != nil {
				return registry.Verdict{}, err
			}
		case <-ctx.Done():
			if l.withdraw(in, w) {
				return registry.Verdict{}, ctx.Err()
			}
		}
		<-w.done // it's closed, or another request is writing the charge
		if !w.failed {
			return w.said, nil
		}
	}
}

// write writes all that waits in a line, of which the caller's own may have been written meanwhile.
func (l *lines) write(in *line, own *waiting, write func(func(*corev1.ResourceQuota)) error) error {
	select {
	case <-own.done:
		return nil
	default:
	}
	var together []*waiting
	err := write(func(rq *corev1.ResourceQuota) { // again when somebody else has written the quota
		together = append(together, l.take(in)...)
		for _, w := range together {
			refused := w.check(rq)
			if w.said = registry.Refuse(refused); refused == nil {
				w.open.Take(rq.UID, w.usage)
				w.add(rq, false)
			}
		}
	})
	if l.withdraw(in, own) { // nothing was written: the quota is gone, or can't be read
		together = append(together, own)
	}
	for _, w := range together {
		w.failed = err != nil
		close(w.done)
	}
	return err
}

// enter returns the line for a quota.
func (l *lines) enter(of types.UID) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[types.UID]*line{}
	}
	in := l.of[of]
	if in == nil {
		in = &line{writing: make(chan struct{}, 1)}
		l.of[of] = in
	}
	in.users++
	return in
}

// leave gives a line up.
func (l *lines) leave(of types.UID, in *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.users--; in.users == 0 {
		delete(l.of, of)
	}
}

func (l *lines) add(in *line, w *waiting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in.waiting = append(in.waiting, w)
}

// take takes all that waits in a line.
func (l *lines) take(in *line) []*waiting {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := in.waiting
	in.waiting = nil
	return all
}

// withdraw takes one charge out of a line, and tells whether it was there.
func (l *lines) withdraw(in *line, w *waiting) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(in.waiting, w)
	if i < 0 {
		return false
	}
	in.waiting = slices.Delete(in.waiting, i, i+1)
	return true
}
