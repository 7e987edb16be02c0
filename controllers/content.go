package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// contentPace is the least time between two passes over the same content because of what others do to it. Others may
// write objects that are being deleted as fast as they like.
const contentPace = 100 * time.Millisecond

// part is objects that have to be deleted: those of an endpoint whose keys begin with prefix.
type part struct {
	endpoint *registry.Endpoint
	prefix   string
}

// remains is what is left of content after a pass.
type remains struct {
	at         storage.Revision // the caches had everything up to it
	objects    map[*registry.Endpoint]int
	finalizers map[string]int // how many objects have each
	failed     map[*registry.Endpoint]*failure
}

// failure is what couldn't be deleted of an endpoint's objects.
type failure struct {
	objects int
	key     string // of the first of them, in order
	err     error  // about that one
}

// fail notes that an object couldn't be deleted.
func (r *remains) fail(e *registry.Endpoint, key string, err error) {
	f := r.failed[e]
	if f == nil {
		f = &failure{}
		r.failed[e] = f
	}
	if f.objects++; f.key == "" || key < f.key {
		f.key, f.err = key, err
	}
}

// failures says for each endpoint what failed, in order.
func (r *remains) failures() []string {
	var texts []string
	for e, f := range r.failed {
		_, namespace, name, _ := storage.SplitKey(f.key)
		text := fmt.Sprintf("%s.%s %q: %s", e.Plural, e.Group, strings.TrimPrefix(namespace+"/"+name, "/"), clip.Text(f.err.Error()))
		if f.objects > 1 {
			text += fmt.Sprintf(" (and %d more)", f.objects-1)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return texts
}

// whole tells whether nothing is left.
func (r *remains) whole() bool { return len(r.objects) == 0 }

// err is why the pass has to be made again although nothing changes; nil if it hasn't.
func (r *remains) err() error {
	if len(r.failed) == 0 {
		return nil
	}
	return errors.New("some objects couldn't be deleted: " + strings.Join(r.failures(), ", "))
}

// empty deletes the objects of all parts, and returns what is left. Objects whose deletion fails hold up no others. The
// error is ctx's.
//
// An object is deleted only as the cache has it, so that nothing goes which was created later under the same name.
func (c *Controllers) empty(ctx context.Context, parts []part, policy metav1.DeletionPropagation) (*remains, error) {
	left := &remains{objects: map[*registry.Endpoint]int{}, finalizers: map[string]int{}, failed: map[*registry.Endpoint]*failure{}}
	var work errgroup.Group
	work.SetLimit(writes.DeletersAtOnce)
	var mu sync.Mutex // guards last and left.failed
	var last storage.Revision
	for _, p := range parts {
		for o := range p.endpoint.Cache().Snapshot().All(p.prefix) {
			if ctx.Err() != nil {
				break
			}
			if beingDeleted(o) && !asksCollector(o) {
				continue
			}
			work.Go(func() error {
				rev := storage.Revision(0)
				err := guarded(c.log, func() (err error) {
					rev, err = c.remove(ctx, p.endpoint, o, policy)
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				if last = max(last, rev); err != nil {
					left.fail(p.endpoint, o.Key, err)
				}
				return nil
			})
		}
	}
	_ = work.Wait()
	if err := c.cacher.WaitFor(ctx, last); err != nil {
		return nil, err
	}
	left.at = c.cacher.Position()
	for _, p := range parts {
		for o := range p.endpoint.Cache().Snapshot().All(p.prefix) {
			left.objects[p.endpoint]++
			for _, f := range o.Lineage().Finalizers {
				left.finalizers[f]++
			}
		}
	}
	return left, ctx.Err()
}

// remove deletes an object as it was in the cache, or as somebody has changed it since.
func (c *Controllers) remove(ctx context.Context, e *registry.Endpoint, o *kube.Object, policy metav1.DeletionPropagation) (storage.Revision, error) {
	of := writes.Removal{Namespace: o.Namespace(), Name: o.Name(), Revision: o.Revision, Propagation: policy}
	rev, err := c.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		rev, _, err := writes.Of(e).Remove(ctx, of)
		if errors.Is(err, storage.ErrConflict) {
			of.UID, of.Revision = types.UID(o.Lineage().UID), 0
			rev, _, err = writes.Of(e).Remove(ctx, of)
		}
		return rev, err
	})
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrConflict) { // it's gone
		return 0, nil
	}
	return rev, err
}

// asksCollector tells whether an object that is being deleted asks the garbage collector to act first. Whatever contains
// it goes as a whole, so nobody has to.
func asksCollector(o *kube.Object) bool {
	finalizers := o.Lineage().Finalizers
	return slices.Contains(finalizers, metav1.FinalizerOrphanDependents) || slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
}

// emptied says for one container (a namespace, or a definition), how far its emptying is, so that a pass is made again
// only because of what it hasn't seen.
type emptied struct {
	passing bool             // a pass is under way
	through storage.Revision // the last pass has seen everything up to it
	news    storage.Revision // of the last change of the content that was observed
	ended   time.Time        // when the last pass ended
}

// containers has the containers that are being emptied, by name, and the queue of those that need a pass. The zero value
// isn't ready: queued must be set.
type containers struct {
	queued[string]

	mu   sync.Mutex // guards open
	open map[string]*emptied
	many atomic.Int64 // how many are open: most of the time none, and then an event costs nothing
}

// begin forgets all containers.
func (c *containers) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = map[string]*emptied{}
	c.many.Store(0)
}

func (c *containers) forget() { c.begin() }

// none tells whether no container is being emptied.
func (c *containers) none() bool { return c.many.Load() == 0 }

// changed queues a container that has itself changed.
func (c *containers) changed(name string) {
	c.mu.Lock()
	if c.open[name] == nil {
		c.open[name] = &emptied{}
	}
	c.many.Store(int64(len(c.open)))
	c.mu.Unlock()
	c.queue.add(name)
}

// gone forgets a container.
func (c *containers) gone(name string) {
	c.mu.Lock()
	delete(c.open, name)
	c.many.Store(int64(len(c.open)))
	c.mu.Unlock()
	c.queue.drop(name)
}

// contentChanged queues a container whose content has changed, if that may matter for a pass.
func (c *containers) contentChanged(name string, e *cacher.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.open[name]
	if m == nil || e.Revision <= m.through || e.Prev != nil && e.Cur != nil && !beingDeleted(e.Cur) {
		return
	}
	if m.news = e.Revision; !m.passing {
		c.queue.addAfter(name, contentPace-time.Since(m.ended))
	}
}

// pass calls empty, which empties the container, and notes what it has seen. Content that changed after that makes a
// further pass.
func (c *containers) pass(name string, empty func() (*remains, error)) (*remains, error) {
	c.mu.Lock()
	m := c.open[name]
	if m != nil {
		m.passing = true
	}
	c.mu.Unlock()
	left, err := empty()
	c.mu.Lock()
	defer c.mu.Unlock()
	if m == nil {
		return left, err
	}
	if m.passing, m.ended = false, time.Now(); err != nil {
		return nil, err
	}
	if m.through = left.at; m.news > m.through {
		c.queue.addAfter(name, contentPace)
	}
	return left, nil
}
