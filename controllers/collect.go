package controllers

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// What the collector does about one object. Upstream's source is attemptToDeleteItem and its neighbours in
// kubernetes/kubernetes, pkg/controller/garbagecollector.
//
// Why nothing goes that has an owner, whoever else acts at the same time: the object is read first, and then its owners, from
// etcd. An owner that is absent then never comes back, because a uid is given out once. The object is deleted only if it's
// still at the revision at which it was read, so with these owners. It may come from the cache, which only makes the
// deletion fail if the cache is old.

var (
	// errIncomplete is a reason to try again: the graph is being read anew.
	errIncomplete = errors.New("the objects are being read anew")
	// errMoved is a reason to try again: the object was written after it was read.
	errMoved = errors.New("the object was changed meanwhile")
)

// subject is an object that the collector works on, as the cache has it.
type subject struct {
	*cacher.Object
	*lineage
	endpoint *registry.Endpoint
}

// work does what there is to do about the object of a key.
func (c *collector) work(ctx context.Context, key string) error {
	if !c.ready() {
		return errIncomplete
	}
	p, _, _, _ := storage.SplitKey(key)
	e := c.controllers.registry.Catalog().Prefix(p)
	if e == nil {
		return nil // its definition is gone, and with it the object
	}
	o := e.Cache().Get(key)
	if o == nil || o.Err != nil {
		return nil // nobody knows the owners of what can't be read
	}
	s := &subject{o, lineageOf(o), e}
	if beingDeleted(o) {
		if err := c.letGo(ctx, s); err != nil {
			return err
		}
		if !c.orphaned(s) {
			return nil
		}
	}
	return c.collect(ctx, s)
}

func (c *collector) ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole
}

// orphaned tells whether an owner of the object is leaving its dependents without it.
func (c *collector) orphaned(s *subject) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.graph.nodes[uidOf(s.UID)]; n != nil {
		for e := range n.owners() {
			if e.owner.is(nodeOrphaning) {
				return true
			}
		}
	}
	return false
}

// fate is what an owner, as it is, means for its dependent.
type fate int

const (
	stays        fate = iota // the owner is there, or isn't proven absent
	absent                   // there is no such owner
	inForeground             // the owner is being deleted and waits until its dependents are
	leaves                   // the owner is being deleted and leaves its dependents
)

// collect deletes an object that has no owner left, or takes from it the references that name none any more.
func (c *collector) collect(ctx context.Context, s *subject) error {
	var lost []cacher.Owner
	has := map[fate]bool{}
	for _, ref := range s.Owners {
		f, err := c.fateOf(ctx, s, ref)
		if err != nil {
			return err
		}
		if has[f] = true; f == leaves || f != stays && !beingDeleted(s.Object) {
			lost = append(lost, ref)
		}
	}
	switch {
	case len(lost) == 0:
		return nil
	case has[stays] || has[leaves]:
		// A reference to an owner that waits goes, too: the owner would wait forever.
		return c.disown(ctx, s, lost)
	case has[inForeground] && c.isOwner(s.UID):
		return c.remove(ctx, s, metav1.DeletePropagationForeground)
	case s.asks(metav1.FinalizerOrphanDependents):
		return c.remove(ctx, s, metav1.DeletePropagationOrphan)
	case s.asks(metav1.FinalizerDeleteDependents):
		return c.remove(ctx, s, metav1.DeletePropagationForeground)
	}
	return c.remove(ctx, s, metav1.DeletePropagationBackground)
}

// fateOf reads an owner from etcd.
func (c *collector) fateOf(ctx context.Context, s *subject, ref cacher.Owner) (fate, error) {
	key, known := c.place(s, ref)
	switch {
	case !known:
		return stays, nil
	case key == "":
		return absent, nil
	}
	owner, err := c.controllers.registry.Read(ctx, key)
	switch {
	case err != nil:
		return stays, err
	case owner == nil:
		return absent, nil
	case owner.Err != nil: // it may be the one
		return stays, nil
	}
	l := lineageOf(owner)
	if l.UID != ref.UID {
		return absent, nil
	}
	c.confirm(s, owner, l)
	switch {
	case !beingDeleted(owner):
	case l.asks(metav1.FinalizerOrphanDependents):
		return leaves, nil
	case l.asks(metav1.FinalizerDeleteDependents):
		return inForeground, nil
	}
	return stays, nil
}

// place returns the key where an owner must be; "" if no object can be there. It isn't known if the owner's kind isn't
// served, unless the collector has seen where the owner was.
func (c *collector) place(s *subject, ref cacher.Owner) (key string, known bool) {
	e := c.controllers.registry.Catalog().Kind(ref.APIVersion, ref.Kind)
	if e == nil { // the definition may be as new as the object
		e = c.controllers.registry.Refreshed().Kind(ref.APIVersion, ref.Kind)
	}
	if e == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if owner := c.graph.nodes[uidOf(ref.UID)]; owner != nil {
			key = owner.key
		}
		return key, key != ""
	}
	namespace, ok := ownerNamespace(e, s.Object)
	if !ok {
		return "", false
	}
	key, _ = e.Prefix().Key(namespace, ref.Name) // "" for a name that no object can have
	return key, true
}

// confirm notes that an owner whose kind wasn't served before is there.
func (c *collector) confirm(s *subject, owner *cacher.Object, l *lineage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.graph.nodes[uidOf(s.UID)]
	if n == nil || !n.is(nodeUnproven) {
		return
	}
	u := uidOf(l.UID)
	for e := range n.owners() {
		if e.owner.uid == u && !e.owner.is(nodeGone) {
			e.approve()
			c.meet(e.owner, owner, l)
		}
	}
}

// isOwner tells whether somebody names the object as its owner.
func (c *collector) isOwner(of string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.graph.nodes[uidOf(of)]
	return n != nil && n.dependents != nil
}

// letGo ends an object's deletion that waits for dependents, if it needn't wait any longer. Otherwise the object is looked
// at again when the last of them has gone.
func (c *collector) letGo(ctx context.Context, s *subject) error {
	finalizer := metav1.FinalizerOrphanDependents
	if !s.asks(finalizer) {
		finalizer = metav1.FinalizerDeleteDependents
	}
	if !s.asks(finalizer) {
		return nil
	}
	waits, circle := c.waitsFor(s)
	for _, key := range circle {
		if err := c.unblock(ctx, key, s.UID); err != nil {
			return err
		}
	}
	if waits {
		return nil
	}
	return c.amend(ctx, s, func(m *metav1.ObjectMeta) error {
		if m.DeletionTimestamp == nil {
			return errMoved
		}
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == finalizer })
		return nil
	})
}

// waitsFor tells whether an object has dependents for which it waits, and returns the keys of those that in turn wait for
// the object.
func (c *collector) waitsFor(s *subject) (waits bool, circle []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.position < s.Revision {
		return true, nil // when the graph has the object's last change, the object is queued again
	}
	n := c.graph.nodes[uidOf(s.UID)]
	if n == nil || !n.waitsFor() {
		return false, nil
	}
	if n.is(nodeForeground) {
		for _, d := range n.circle() {
			circle = append(circle, d.key)
		}
	}
	return true, circle
}

// unblock breaks a circle of objects that wait for each other: the owner no longer waits for this dependent.
func (c *collector) unblock(ctx context.Context, key, owner string) error {
	p, _, _, _ := storage.SplitKey(key)
	e := c.controllers.registry.Catalog().Prefix(p)
	if e == nil {
		return nil
	}
	o := e.Cache().Get(key)
	if o == nil || o.Err != nil {
		return nil
	}
	return c.amend(ctx, &subject{o, lineageOf(o), e}, func(m *metav1.ObjectMeta) error {
		no := false
		for i := range m.OwnerReferences {
			if ref := &m.OwnerReferences[i]; string(ref.UID) == owner {
				ref.BlockOwnerDeletion = &no
			}
		}
		return nil
	})
}

// disown takes references from an object.
func (c *collector) disown(ctx context.Context, s *subject, lost []cacher.Owner) error {
	return c.amend(ctx, s, func(m *metav1.ObjectMeta) error {
		if m.ResourceVersion != s.Revision.String() { // it may have other owners now
			return errMoved
		}
		m.OwnerReferences = slices.DeleteFunc(m.OwnerReferences, func(ref metav1.OwnerReference) bool {
			return slices.ContainsFunc(lost, func(l cacher.Owner) bool {
				return l.UID == string(ref.UID) && l.Name == ref.Name && l.Kind == ref.Kind && l.APIVersion == ref.APIVersion
			})
		})
		return nil
	})
}

// amend changes the metadata of an object. One that is gone needs no change.
func (c *collector) amend(ctx context.Context, s *subject, change func(m *metav1.ObjectMeta) error) error {
	_, err := c.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		return s.endpoint.Amend(ctx, s.Namespace(), s.Name(), types.UID(s.UID), change)
	})
	return unlessGone(err)
}

// remove deletes an object if nobody has written it since it was read.
func (c *collector) remove(ctx context.Context, s *subject, policy metav1.DeletionPropagation) error {
	_, err := c.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		rev, _, err := s.endpoint.Remove(ctx, registry.Removal{
			Namespace: s.Namespace(), Name: s.Name(), UID: types.UID(s.UID), Revision: s.Revision, Propagation: policy,
		})
		return rev, err
	})
	return unlessGone(err)
}

// unlessGone is an error of a write, or nil if there was nothing left to write to.
func unlessGone(err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}
