package access

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// BenchmarkRuleChange is the first decision after one of the objects has changed, among 30,000 RoleBindings in 300 namespaces.
func BenchmarkRuleChange(b *testing.B) {
	const bindings, namespaces = 30_000, 300
	p := &policy{}
	p.role("reader", rule("get list watch", core, "pods"))
	p.bind("reader", ofUser("auditor"))
	for i := range bindings {
		namespace, name := fmt.Sprint("n-", i%namespaces), fmt.Sprint("user-", i)
		if i < namespaces {
			p.local(namespace, "local", rule("get list watch", core, "configmaps"))
		}
		p.bindLocal(namespace, name, ofUser(name), ofGroup(fmt.Sprint("team-", i%1000)))
		ref := &p.bindings[i].RoleRef
		if ref.Name = "local"; i%2 == 0 {
			ref.Kind, ref.Name = "ClusterRole", "reader"
		}
	}
	s := newRules(b, p)
	s.rbac.index()
	u := &user.DefaultInfo{Name: "user-7000", Groups: []string{"team-7", user.AllAuthenticated}}
	asks := parseAsked("get - pods n-100 a")
	asks.User = u
	for _, o := range []metav1.Object{p.roles[100], p.clusterRoles[0], p.clusterBindings[0], p.bindings[7000]} {
		b.Run(kindOf(o), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				s.put(o)
				s.settle()
				b.StartTimer()
				if decision, _, _ := s.rbac.Authorize(b.Context(), asks); decision != authorizer.DecisionAllow {
					b.Fatal(decision)
				}
			}
		})
	}
}

// rules are objects of RBAC in a store, with the caches and the authorizer over them. Its methods are for one goroutine.
type rules struct {
	t      testing.TB
	store  storage.Store
	cacher *cacher.Cacher
	rbac   *RBAC

	mu      sync.Mutex                  // guards written
	written map[string]storage.Revision // by key
}

// newRules stores a policy.
func newRules(t testing.TB, p *policy) *rules {
	store, _ := storagetest.Embedded(t)
	s := &rules{t: t, store: store, written: map[string]storage.Revision{}}
	var group errgroup.Group
	group.SetLimit(32)
	for _, list := range [][]metav1.Object{objectsOf(p.roles), objectsOf(p.bindings), objectsOf(p.clusterRoles), objectsOf(p.clusterBindings)} {
		for _, o := range list {
			group.Go(func() error { s.put(o); return nil })
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	s.cacher = cacher.New(store, cacher.Options{Log: slog.New(slog.DiscardHandler)})
	s.rbac = NewRBAC(registry.New(registry.Options{Store: store, Cacher: s.cacher}))
	s.rbac.pending.Store(nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.cacher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.cacher.Primed()
	return s
}

func objectsOf[P metav1.Object](list []P) (all []metav1.Object) {
	for _, o := range list {
		all = append(all, o)
	}
	return all
}

func kindOf(o metav1.Object) string {
	switch o.(type) {
	case *rbacv1.Role:
		return "Role"
	case *rbacv1.RoleBinding:
		return "RoleBinding"
	case *rbacv1.ClusterRole:
		return "ClusterRole"
	}
	return "ClusterRoleBinding"
}

// keyOfObject returns the key under which an object is stored.
func keyOfObject(o metav1.Object) string {
	prefix := map[string]storage.Prefix{
		"Role": rolesPrefix, "RoleBinding": bindingsPrefix, "ClusterRole": clusterRolesPrefix, "ClusterRoleBinding": clusterBindingsPrefix,
	}[kindOf(o)]
	if o.GetNamespace() == "" {
		return string(prefix) + o.GetName()
	}
	return string(prefix) + o.GetNamespace() + "/" + o.GetName()
}

// put writes an object.
func (s *rules) put(o metav1.Object) {
	raw, err := json.Marshal(o)
	if err != nil {
		s.t.Error(err)
		return
	}
	raw = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,%s`, rbacv1.SchemeGroupVersion, kindOf(o), raw[1:])
	key := keyOfObject(o)
	s.mu.Lock()
	before := s.written[key]
	s.mu.Unlock()
	var rev storage.Revision
	if before == 0 {
		rev, err = s.store.Create(s.t.Context(), key, raw)
	} else {
		rev, err = s.store.Update(s.t.Context(), key, raw, before)
	}
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	s.written[key] = rev
	s.mu.Unlock()
}

// settle waits until the caches have all that was written.
func (s *rules) settle() {
	if _, err := s.cacher.Barrier(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// remove deletes an object.
func (s *rules) remove(o metav1.Object) {
	key := keyOfObject(o)
	if _, err := s.store.Delete(s.t.Context(), key, s.written[key]); err != nil {
		s.t.Fatal(err)
	}
	delete(s.written, key)
}
