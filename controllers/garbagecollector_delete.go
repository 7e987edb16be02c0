package controllers

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// What the collector does about one object. Upstream's source is attemptToDeleteItem and its neighbours in
// kubernetes/kubernetes, pkg/controller/garbagecollector.
//
// Why nothing goes that has an owner, whoever else acts at the same time: the object is read first, and then its owners, from
// etcd. An owner that is absent then never comes back, because a uid is given out once. The object is deleted only if it
// still has just these owners, and if nobody has begun to delete it: its transaction has the object for which that was
// looked at. It may have changed otherwise, so those who write it all the time don't keep it. It may come from the cache,
// which only makes the deletion fail if the cache is old.

var (
	// errIncomplete is a reason to try again: the graph is being read anew.
	errIncomplete = errors.New("the objects are being read anew")
	// errMoved is a reason to try again: what decided about the object was changed after it was read.
	errMoved = errors.New("the object's owners or finalizers were changed meanwhile")
)

// subject is an object that the collector works on, as the cache has it.
type subject struct {
	*kube.Object
	*lineage
	endpoint *registry.Endpoint
	known    *knowledge        // whole
	served   *registry.Catalog // at least as new as the event that made somebody look at the object
}

// still is what a write about the object needs: what decided about it is as it was read.
func (s *subject) still(m *metav1.ObjectMeta) error {
	same := slices.EqualFunc(m.OwnerReferences, s.Owners, func(ref metav1.OwnerReference, o kube.Owner) bool {
		return ref.APIVersion == o.APIVersion && ref.Kind == o.Kind && ref.Name == o.Name && string(ref.UID) == o.UID
	})
	for _, f := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
		same = same && slices.Contains(m.Finalizers, f) == s.asks(f)
	}
	if !same || (m.DeletionTimestamp != nil) != beingDeleted(s.Object) {
		return errMoved
	}
	return nil
}

// work does what there is to do about the object of a key.
func (c *collector) work(ctx context.Context, served *registry.Catalog, key string) error {
	k := c.knowledge.Load()
	if !k.isWhole() {
		return errIncomplete
	}
	s := subjectOf(served, k, key)
	if s == nil {
		return nil
	}
	if beingDeleted(s.Object) {
		if err := c.letGo(ctx, s); err != nil {
			return err
		}
		if !k.orphaned(s) {
			return nil
		}
	}
	return c.collect(ctx, s)
}

// subjectOf returns the object of a key. It's nil for one that is gone, by itself or with its definition, and for one that
// can't be read: nobody knows its owners.
func subjectOf(served *registry.Catalog, k *knowledge, key string) *subject {
	p, _, _, _ := storage.SplitKey(key)
	e := served.Prefix(p)
	if e == nil {
		return nil
	}
	o := e.Cache().Get(key)
	if o == nil || o.Err != nil {
		return nil
	}
	return &subject{o, lineageOf(o), e, k, served}
}

func (k *knowledge) isWhole() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.whole
}

// orphaned tells whether an owner of the object is leaving its dependents without it.
func (k *knowledge) orphaned(s *subject) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.graph.nodes[uidOf(s.UID)]; n != nil {
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
	stays        fate = iota // the owner is there
	unknown                  // the owner can't be looked up
	absent                   // there is no such owner
	inForeground             // the owner is being deleted and waits until its dependents are
	leaves                   // the owner is being deleted and leaves its dependents
)

// collect deletes an object that has no owner left, or takes from it the references that name none any more. An object of
// which an owner can't be looked up is left alone, as in Kubernetes; it only loses the references to owners that leave it.
func (c *collector) collect(ctx context.Context, s *subject) error {
	var left, lost []kube.Owner
	has := map[fate]bool{}
	for _, ref := range s.Owners {
		f, err := c.fateOf(ctx, s, ref)
		if err != nil {
			return err
		}
		switch has[f] = true; {
		case f == leaves:
			left = append(left, ref)
		case (f == absent || f == inForeground) && !beingDeleted(s.Object):
			lost = append(lost, ref)
		}
	}
	if has[unknown] {
		lost = nil
	}
	lost = append(lost, left...)
	switch {
	case len(lost) == 0:
		return nil
	case has[stays] || has[leaves]:
		// A reference to an owner that waits goes, too: the owner would wait forever.
		return c.disown(ctx, s, lost)
	case has[inForeground] && s.known.isOwner(s.UID):
		if err := c.freeOwners(ctx, s); err != nil {
			return err
		}
		return c.remove(ctx, s, metav1.DeletePropagationForeground)
	case s.asks(metav1.FinalizerOrphanDependents):
		return c.remove(ctx, s, metav1.DeletePropagationOrphan)
	case s.asks(metav1.FinalizerDeleteDependents):
		return c.remove(ctx, s, metav1.DeletePropagationForeground)
	}
	return c.remove(ctx, s, metav1.DeletePropagationBackground)
}

// fateOf reads an owner from etcd. That an owner leaves its dependents the graph knows: it's enough that they name its uid,
// because it waits for all of those.
func (c *collector) fateOf(ctx context.Context, s *subject, ref kube.Owner) (fate, error) {
	if s.known.leaves(ref.UID) {
		return leaves, nil
	}
	key, known := s.place(ref)
	switch {
	case !known:
		return unknown, nil
	case key == "":
		return absent, nil
	}
	owner, err := c.controllers.registry.Read(ctx, key)
	switch {
	case err != nil:
		return unknown, err
	case owner == nil:
		return absent, nil
	case owner.Err != nil: // it may be the one
		return unknown, nil
	}
	l := lineageOf(owner)
	if l.UID != ref.UID {
		return absent, nil
	}
	s.known.confirm(s, owner, l)
	switch {
	case !beingDeleted(owner):
	case l.asks(metav1.FinalizerOrphanDependents):
		return leaves, nil
	case l.asks(metav1.FinalizerDeleteDependents):
		return inForeground, nil
	}
	return stays, nil
}

// leaves tells whether the object of a uid is being deleted and leaves its dependents.
func (k *knowledge) leaves(uid string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.graph.nodes[uidOf(uid)]
	return n != nil && n.is(nodeOrphaning)
}

// place returns the key where an owner must be; "" if no object can be there. It isn't known if the owner's kind isn't
// served, unless the collector has seen the owner go: with its definition, for example.
func (s *subject) place(ref kube.Owner) (key string, known bool) {
	e := s.served.GroupKind(groupOf(ref), ref.Kind)
	if e == nil {
		return "", s.known.sawGo(s, ref)
	}
	namespace, ok := ownerNamespace(e, s.Object)
	if !ok {
		return "", false
	}
	key, _ = e.Prefix().Key(namespace, ref.Name) // "" for a name that no object can have
	return key, true
}

// sawGo tells whether the owner that a reference names was deleted, and was where the reference says.
func (k *knowledge) sawGo(s *subject, ref kube.Owner) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	owner := k.graph.nodes[uidOf(ref.UID)]
	if owner == nil || !owner.is(nodeGone) {
		return false
	}
	p, namespace, name, _ := storage.SplitKey(owner.key)
	return p.Group() == groupOf(ref) && name == ref.Name && (namespace == "" || namespace == s.Namespace())
}

// confirm notes that an owner which couldn't be looked up before is there, where the object's reference says.
func (k *knowledge) confirm(s *subject, owner *kube.Object, l *lineage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.graph.nodes[uidOf(s.UID)]
	if n == nil || !n.is(nodeUnproven) {
		return
	}
	k.counted = false
	u := uidOf(l.UID)
	for e := range n.owners() {
		if e.owner.uid == u && !e.owner.is(nodeGone) {
			e.approve()
			k.meetLocked(e.owner, owner, l)
		}
	}
}

// isOwner tells whether somebody names the object as its owner.
func (k *knowledge) isOwner(of string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.graph.nodes[uidOf(of)]
	return n != nil && n.dependents != nil
}

// dependentWaits tells whether a dependent of the object is being deleted in the foreground.
func (k *knowledge) dependentWaits(of string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.graph.nodes[uidOf(of)]; n != nil {
		for e := range n.names() {
			if e.dependent.is(nodeForeground) {
				return true
			}
		}
	}
	return false
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
	waits, circle := s.known.waitsFor(s)
	for _, key := range circle {
		if err := c.unblock(ctx, s, key); err != nil {
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
func (k *knowledge) waitsFor(s *subject) (waits bool, circle []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.position < s.Revision {
		return true, nil // when the graph has the object's last change, the object is queued again
	}
	n := k.graph.nodes[uidOf(s.UID)]
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

// unblock breaks a circle of objects that wait for each other: the owner no longer waits for the dependent of a key.
func (c *collector) unblock(ctx context.Context, owner *subject, key string) error {
	s := subjectOf(owner.served, owner.known, key)
	if s == nil {
		return nil
	}
	return c.free(ctx, s, func(ref *metav1.OwnerReference) bool { return string(ref.UID) == owner.UID })
}

// free has those of an object's owners no longer wait for it whose references are such.
func (c *collector) free(ctx context.Context, s *subject, such func(ref *metav1.OwnerReference) bool) error {
	return c.amend(ctx, s, func(m *metav1.ObjectMeta) error {
		for i := range m.OwnerReferences {
			if ref := &m.OwnerReferences[i]; such(ref) {
				ref.BlockOwnerDeletion = new(false)
			}
		}
		return nil
	})
}

// freeOwners has an object's owners no longer wait for it, if one of its own dependents waits already: they may wait for each
// other. Kubernetes does so at the same moment. Once all of a circle waits, letGo could break it at one end or at the other.
func (c *collector) freeOwners(ctx context.Context, s *subject) error {
	if !s.known.dependentWaits(s.UID) {
		return nil
	}
	return c.free(ctx, s, func(ref *metav1.OwnerReference) bool { return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion })
}

// disown takes references from an object.
func (c *collector) disown(ctx context.Context, s *subject, lost []kube.Owner) error {
	return c.amend(ctx, s, func(m *metav1.ObjectMeta) error {
		if err := s.still(m); err != nil {
			return err
		}
		m.OwnerReferences = slices.DeleteFunc(m.OwnerReferences, func(ref metav1.OwnerReference) bool {
			return slices.ContainsFunc(lost, func(l kube.Owner) bool {
				return l.UID == string(ref.UID) && l.Name == ref.Name && l.Kind == ref.Kind && l.APIVersion == ref.APIVersion
			})
		})
		return nil
	})
}

// amend changes the metadata of an object. One that is gone needs no change.
func (c *collector) amend(ctx context.Context, s *subject, change func(m *metav1.ObjectMeta) error) error {
	_, err := c.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		return writes.Of(s.endpoint).Amend(ctx, s.Namespace(), s.Name(), types.UID(s.UID), change)
	})
	return unlessGone(err)
}

// remove deletes an object if what decided about it is as it was read.
func (c *collector) remove(ctx context.Context, s *subject, policy metav1.DeletionPropagation) error {
	_, err := c.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		rev, _, err := writes.Of(s.endpoint).Remove(ctx, writes.Removal{
			Namespace: s.Namespace(), Name: s.Name(), UID: types.UID(s.UID), Propagation: policy, If: s.still,
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
