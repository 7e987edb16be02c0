package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// namespaces empties the namespaces that are being deleted, says in their conditions what is left, and lets them go when
// nothing is.
type namespaces struct {
	containers
}

var namespacesPrefix = storage.PrefixOf("", "namespaces")

func newNamespaces(c *Controllers) *namespaces {
	n := &namespaces{}
	n.queued = newQueued(c, Namespace, func(name string) Object { return Object{APIVersion: "v1", Kind: "Namespace", Name: name} }, n.work)
	return n
}

func (n *namespaces) observe(e *cacher.Event) {
	o := e.Object()
	switch {
	case e.Prefix != namespacesPrefix && n.none(): // nothing is being emptied
	case e.Prefix != namespacesPrefix:
		if space := o.Namespace(); space != "" {
			n.contentChanged(space, e)
		}
	case beingDeleted(e.Cur):
		n.changed(o.Name())
	default: // there is none, or a new one of that name
		n.gone(o.Name())
	}
}

// work empties a namespace and lets it go, or says what is left in it.
//
// The cache has the namespace as being deleted, and the feed applies changes in revision order. So everything that was
// created before the deletion is in the caches, and later creates fail on their condition (see registry). What is served has
// each definition whose change came before the deletion's, so no object is left out because nobody knows its resource yet.
// What is empty now stays empty.
func (n *namespaces) work(ctx context.Context, served *registry.Catalog, name string) error {
	ns, err := terminating(served, name)
	if ns == nil || err != nil || len(ns.Spec.Finalizers) == 0 {
		return err
	}
	var parts []part
	for e := range served.Stored() {
		if !e.Namespaced || served.Prefix(e.Prefix()) != e { // a definition whose objects are a Go type's
			continue
		}
		prefix, err := e.Prefix().Namespace(name)
		if err != nil {
			return err
		}
		parts = append(parts, part{e, prefix})
	}
	left, err := n.pass(name, func() (*remains, error) {
		return n.controllers.empty(ctx, parts, metav1.DeletePropagationBackground)
	})
	if err != nil {
		return err
	}
	_, err = n.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		return writes.AmendNamespace(ctx, n.controllers.registry, name, ns.UID, func(ns *corev1.Namespace) {
			setConditions(&ns.Status, left, metav1.NewTime(n.controllers.clock.Now()))
			if left.whole() {
				ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
			}
		})
	})
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return errors.Join(err, left.err())
}

// terminating returns a namespace that is being deleted, as the cache has it; nil if it isn't, or if there is none.
func terminating(served *registry.Catalog, name string) (*corev1.Namespace, error) {
	o := served.Object(namespacesPrefix, "", name)
	if !beingDeleted(o) || o.Err != nil {
		return nil, nil
	}
	ns := &corev1.Namespace{}
	if err := json.Unmarshal(o.Raw(), ns); err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	return ns, nil
}

// conditionTypes are the conditions of a namespace that is being deleted, in Kubernetes' order, each with the reason and
// the message that it has when nothing is wrong. Clients and people know the texts.
var conditionTypes = []corev1.NamespaceCondition{
	{Type: corev1.NamespaceDeletionDiscoveryFailure, Reason: "ResourcesDiscovered", Message: "All resources successfully discovered"},
	{Type: corev1.NamespaceDeletionGVParsingFailure, Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed"},
	{Type: corev1.NamespaceDeletionContentFailure, Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization"},
	{Type: corev1.NamespaceContentRemaining, Reason: "ContentRemoved", Message: "All content successfully removed"},
	{Type: corev1.NamespaceFinalizersRemaining, Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished"},
}

// setConditions makes a namespace's conditions say what is left in it. Discovery can't fail here, as it's in the process.
func setConditions(s *corev1.NamespaceStatus, left *remains, now metav1.Time) {
	failures := left.failures()
	var objects, finalizers []string
	for e, n := range left.objects {
		objects = append(objects, fmt.Sprintf("%s.%s has %d resource instances", e.Plural, e.Group, n))
	}
	for f, n := range left.finalizers {
		finalizers = append(finalizers, fmt.Sprintf("%s in %d resource instances", f, n))
	}
	wrong := map[corev1.NamespaceConditionType]struct {
		reason, message string
		what            []string
	}{
		corev1.NamespaceDeletionContentFailure: {"ContentDeletionFailed", fmt.Sprintf("Failed to delete all resource types, %d remaining: ", len(failures)), failures},
		corev1.NamespaceContentRemaining:       {"SomeResourcesRemain", "Some resources are remaining: ", objects},
		corev1.NamespaceFinalizersRemaining:    {"SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: ", finalizers},
	}
	for _, c := range conditionTypes {
		c.Status = corev1.ConditionFalse
		if w := wrong[c.Type]; len(w.what) > 0 {
			slices.Sort(w.what)
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, w.reason, w.message+strings.Join(w.what, ", ")
		}
		c.LastTransitionTime = now
		setCondition(s, c)
	}
}

// setCondition adds a condition, or changes the one of its type. Its time stays while its status does.
func setCondition(s *corev1.NamespaceStatus, c corev1.NamespaceCondition) {
	i := slices.IndexFunc(s.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == c.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if s.Conditions[i].Status == c.Status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = c
}
