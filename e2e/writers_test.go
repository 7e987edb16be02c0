package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// write is one write of a writer: its n-th, of the size n to the widget with the name.
type write struct {
	name    string
	size    int64
	rv      int64
	uid     string
	created string
}

// writer creates widgets and updates each several times, one write after the other.
type writer struct {
	id    string
	acked []write // answered with 2xx
	open  write   // sent last, if it wasn't answered
}

// updates is how often each widget is written after it was created.
const updates = 3

// run writes until a write isn't acknowledged. acked is called for each that is.
func (w *writer) run(c *client, acked func()) error {
	for n := int64(0); ; n++ {
		name := fmt.Sprintf("%s-%d", w.id, n/(updates+1))
		w.open = write{name: name, size: n}
		var a answer
		var err error
		want := http.StatusOK
		if n%(updates+1) == 0 {
			want = http.StatusCreated
			a, err = c.try("POST", widgets, widget(name, int(n)))
		} else {
			a, err = c.try("PATCH", widgets+"/"+name, fmt.Sprintf(`{"spec":{"size":%d}}`, n), "Content-Type", "application/merge-patch+json")
		}
		switch {
		case err != nil:
			return nil // the connection broke: nobody knows
		case a.code == http.StatusGatewayTimeout:
			return nil // the store didn't answer
		case a.code == http.StatusServiceUnavailable:
			w.open = write{} // it was refused
			return nil
		case a.code != want:
			return fmt.Errorf("write %d of %s answered %d:\n%s", n, w.id, a.code, a.body)
		}
		rv, err := strconv.ParseInt(a.object.Metadata.ResourceVersion, 10, 64)
		if err != nil {
			return fmt.Errorf("write %d of %s: %w", n, w.id, err)
		}
		w.acked = append(w.acked, write{name, n, rv, a.object.Metadata.UID, a.object.Metadata.CreationTimestamp})
		w.open = write{}
		acked()
	}
}

// load is several writers at work.
type load struct {
	writers []*writer
	work    sync.WaitGroup
	mu      sync.Mutex // guards err
	err     error
	acked   chan struct{} // one per acknowledged write, until nobody counts any more
	counted chan struct{} // closed then
}

// writeLoad starts n writers. round makes their names differ from those of other rounds.
func writeLoad(c *client, n, round int) *load {
	l := &load{acked: make(chan struct{}), counted: make(chan struct{})}
	for i := range n {
		w := &writer{id: fmt.Sprintf("r%d-w%d", round, i)}
		l.writers = append(l.writers, w)
		l.work.Go(func() {
			err := w.run(c, func() {
				select {
				case l.acked <- struct{}{}:
				case <-l.counted:
				}
			})
			if err != nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.err = err
			}
		})
	}
	return l
}

// count returns when n more writes were acknowledged.
func (l *load) count(t *testing.T, n int) {
	t.Helper()
	defer close(l.counted)
	late := time.After(patience)
	for i := range n {
		select {
		case <-l.acked:
		case <-late:
			t.Fatalf("%d of %d writes were acknowledged within %v", i, n, patience)
		}
	}
}

// end waits for the writers, which end when their server does.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.work.Wait()
	if l.err != nil {
		t.Fatal(l.err)
	}
}

// checkState compares what the server lists with what was acknowledged: each widget is as its last
// acknowledged write left it, or as the one write after that which nobody knows of.
func (l *load) checkState(t *testing.T, items map[string]object) {
	t.Helper()
	for _, w := range l.writers {
		last := map[string]write{}
		for _, a := range w.acked {
			last[a.name] = a
		}
		for name, a := range last {
			o, ok := items[name]
			if !ok {
				t.Errorf("%s was acknowledged at %d and is gone", name, a.rv)
				continue
			}
			rv, same := o.rv(t), o.Spec.Size == a.size
			unanswered := w.open.name == name && o.Spec.Size == w.open.size && rv > a.rv
			if !(same && rv == a.rv) && !unanswered {
				t.Errorf("%s has size %d at %d; its last acknowledged write was size %d at %d", name, o.Spec.Size, rv, a.size, a.rv)
			}
			if o.Metadata.UID != a.uid || o.Metadata.CreationTimestamp != a.created {
				t.Errorf("%s has uid %s and was created at %s; it was answered %s and %s", name, o.Metadata.UID, o.Metadata.CreationTimestamp, a.uid, a.created)
			}
		}
	}
}

// all returns every acknowledged write by its resourceVersion, and the highest of those.
func (l *load) all(t *testing.T) (map[int64]write, int64) {
	t.Helper()
	byRV, highest := map[int64]write{}, int64(0)
	for _, w := range l.writers {
		for i, a := range w.acked {
			if other, ok := byRV[a.rv]; ok {
				t.Errorf("%s and %s both have the resourceVersion %d", a.name, other.name, a.rv)
			}
			if i > 0 && a.rv <= w.acked[i-1].rv {
				t.Errorf("%s was answered %d after %d", a.name, a.rv, w.acked[i-1].rv)
			}
			byRV[a.rv] = a
			highest = max(highest, a.rv)
		}
	}
	return byRV, highest
}
