package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Kubernetes' own rules are objects like others, made at the start. At each start they're mended as kube-apiserver mends
// them: rules and subjects that are missing are added, what others added stays, and an object whose annotation
// rbac.authorization.kubernetes.io/autoupdate is "false" is left alone. It takes some 150 writes, which nobody waits for:
// until they're done, pending has what they'll write, and decisions go by that.

// pending is what is to be written: whole objects, each to take the place of one that is stored, or of none.
type pending struct {
	policy
	instead map[metav1.Object]metav1.Object // of an object: the stored one, as the policy that it was compared with has it
}

// over returns a policy with what is pending. What somebody has written meanwhile counts instead.
func (w *pending) over(p *policy) *policy {
	if w == nil {
		return p
	}
	return &policy{
		roles: lay(w, w.roles, p.roles), bindings: lay(w, w.bindings, p.bindings),
		clusterRoles: lay(w, w.clusterRoles, p.clusterRoles), clusterBindings: lay(w, w.clusterBindings, p.clusterBindings),
	}
}

// lay puts pending objects over the stored ones.
func lay[P interface {
	comparable
	metav1.Object
}](w *pending, wanted, stored []P) []P {
	all := slices.Clone(stored)
	at := positions(stored)
	for _, o := range wanted {
		i, found := at[nameOf(o)]
		before := w.instead[o]
		switch {
		case !found && before == nil:
			all = append(all, o)
		case found && before == metav1.Object(stored[i]):
			all[i] = o
		}
	}
	return all
}

func nameOf(o metav1.Object) roleName { return roleName{o.GetNamespace(), o.GetName()} }

// positions returns where a list has its objects.
func positions[P metav1.Object](list []P) map[roleName]int {
	at := make(map[roleName]int, len(list))
	for i, o := range list {
		at[nameOf(o)] = i
	}
	return at
}

// prepare compares Kubernetes' own rules with those that are stored, and makes pending what has to be written.
func (a *RBAC) prepare() *pending {
	p, stored := bootstrapPolicy(), a.stored.Get()
	w := &pending{instead: map[metav1.Object]metav1.Object{}}
	w.roles = amend(w, p.roles, stored.roles, (*rbacv1.Role).DeepCopy, mendRole)
	w.bindings = amend(w, p.bindings, stored.bindings, (*rbacv1.RoleBinding).DeepCopy, mendBinding)
	w.clusterRoles = amend(w, p.clusterRoles, stored.clusterRoles, (*rbacv1.ClusterRole).DeepCopy, mendClusterRole)
	w.clusterBindings = amend(w, p.clusterBindings, stored.clusterBindings, (*rbacv1.ClusterRoleBinding).DeepCopy, mendClusterBinding)
	a.pending.Store(w)
	return w
}

// amend returns what has to be written so that wanted is there: objects that are missing, and mended copies.
func amend[P metav1.Object](w *pending, wanted, stored []P, copyOf func(P) P, mend func(o, wanted P)) (left []P) {
	at := positions(stored)
	for _, o := range wanted {
		i, found := at[nameOf(o)]
		if !found {
			left = append(left, o)
			continue
		}
		mended := copyOf(stored[i])
		if mend(mended, o); !equality.Semantic.DeepEqual(mended, stored[i]) {
			w.instead[mended] = stored[i]
			left = append(left, mended)
		}
	}
	return left
}

// spared tells whether somebody wants an object to stay as it is. Otherwise it gets the labels and annotations of wanted
// that it doesn't have.
func spared(o, wanted metav1.Object) bool {
	if o.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" {
		return true
	}
	o.SetAnnotations(complete(o.GetAnnotations(), wanted.GetAnnotations()))
	o.SetLabels(complete(o.GetLabels(), wanted.GetLabels()))
	return false
}

// complete adds to m what it doesn't have.
func complete(m, wanted map[string]string) map[string]string {
	for k, v := range wanted {
		if _, ok := m[k]; !ok {
			if m == nil {
				m = map[string]string{}
			}
			m[k] = v
		}
	}
	return m
}

func mendRole(o, wanted *rbacv1.Role) {
	if !spared(o, wanted) {
		o.Rules = append(o.Rules, missing(o.Rules, wanted.Rules)...)
	}
}

func mendClusterRole(o, wanted *rbacv1.ClusterRole) {
	if spared(o, wanted) {
		return
	}
	o.Rules = append(o.Rules, missing(o.Rules, wanted.Rules)...)
	switch {
	case wanted.AggregationRule == nil:
		o.AggregationRule = nil
	case o.AggregationRule == nil:
		o.AggregationRule = wanted.AggregationRule.DeepCopy()
	default:
		o.AggregationRule.ClusterRoleSelectors = union(o.AggregationRule.ClusterRoleSelectors, wanted.AggregationRule.ClusterRoleSelectors)
	}
}

func mendBinding(o, wanted *rbacv1.RoleBinding) {
	if !spared(o, wanted) {
		o.RoleRef, o.Subjects = wanted.RoleRef, union(o.Subjects, wanted.Subjects)
	}
}

func mendClusterBinding(o, wanted *rbacv1.ClusterRoleBinding) {
	if !spared(o, wanted) {
		o.RoleRef, o.Subjects = wanted.RoleRef, union(o.Subjects, wanted.Subjects)
	}
}

// union adds to a list what it doesn't have.
func union[T any](list, wanted []T) []T {
	for _, v := range wanted {
		if !slices.ContainsFunc(list, func(have T) bool { return reflect.DeepEqual(have, v) }) {
			list = append(list, v)
		}
	}
	return list
}

const (
	// bootstrapAtOnce is how many objects are written at once: etcd stores writes that come together with one sync.
	bootstrapAtOnce = 32
	// bootstrapRetry is how long the next try waits if something couldn't be written, as on a full disk.
	bootstrapRetry = 5 * time.Second
)

// Bootstrap writes what is missing of Kubernetes' own rules. It returns when that is done, or with the error of ctx. The
// registry must be ready. Decisions go by these rules from its beginning on.
func (a *RBAC) Bootstrap(ctx context.Context, log *slog.Logger) error {
	a.bootstrapping.Lock()
	defer a.bootstrapping.Unlock()
	ctx = registry.WithUser(ctx, registry.Everyone) // whoever asks for it
	for {
		pinned := a.registry.Pin(ctx)
		err := a.write(pinned, a.prepare())
		switch {
		case err == nil:
			a.pending.Store(nil)
			a.written()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrReplaced): // by a reset
			continue
		}
		log.Warn("Kubernetes' own roles and bindings can't all be written yet, and are tried again", "error", err)
		select {
		case <-time.After(bootstrapRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Bootstrapped waits until Bootstrap has succeeded once, or returns the error of ctx.
func (a *RBAC) Bootstrapped(ctx context.Context) error {
	select {
	case <-a.bootstrapped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write writes what is pending, and returns when the caches have it.
func (a *RBAC) write(ctx context.Context, w *pending) error {
	b := writer{registry: a.registry, pending: w}
	b.work.SetLimit(bootstrapAtOnce)
	writeAll(ctx, &b, clusterRolesPrefix, w.clusterRoles, mendClusterRole)
	writeAll(ctx, &b, clusterBindingsPrefix, w.clusterBindings, mendClusterBinding)
	writeAll(ctx, &b, rolesPrefix, w.roles, mendRole)
	writeAll(ctx, &b, bindingsPrefix, w.bindings, mendBinding)
	if err := b.work.Wait(); err != nil {
		return err
	}
	return a.registry.WaitFor(ctx, b.last)
}

// writer writes objects, several at once.
type writer struct {
	registry *registry.Registry
	pending  *pending
	work     errgroup.Group

	mu   sync.Mutex // guards last
	last storage.Revision
}

// writeAll writes objects of one resource. One that somebody else has made or changed meanwhile is mended as it is then; one
// that is gone is left to the next start.
func writeAll[T any, P interface {
	registry.Pointer[T]
	metav1.Object
}](ctx context.Context, b *writer, prefix storage.Prefix, objects []P, mend func(o, wanted P)) {
	if len(objects) == 0 {
		return
	}
	e := b.registry.Catalog().Prefix(prefix)
	for _, o := range objects {
		b.work.Go(func() error {
			if e == nil {
				return fmt.Errorf("nothing is served at %q", prefix)
			}
			var rev storage.Revision
			var err error
			if b.pending.instead[o] == nil {
				rev, err = writes.MakeAs(ctx, e, o, "")
			} else {
				rev, err = writes.AmendAs[T, P](ctx, e, o.GetNamespace(), o.GetName(), o.GetUID(), func(stored *T) { mend(P(stored), o) })
			}
			if errors.Is(err, storage.ErrExists) || errors.Is(err, storage.ErrNotFound) {
				return nil
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.last = max(b.last, rev)
			return err
		})
	}
}
