package access

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// whole is an index that is made of all rules, as newIndex once made each: what the one of changes is compared with.
type whole struct {
	roles map[roleName]*role
	given map[receiver][]wholeGrant // in the order of the bindings' keys
}

type wholeGrant struct {
	namespace, reason string
	role              *role // nil if it's absent
}

func newWhole(p *policy) *whole {
	w := &whole{map[roleName]*role{}, map[receiver][]wholeGrant{}}
	for _, r := range p.clusterRoles {
		w.roles[roleName{name: r.Name}] = newRole(r.Rules)
	}
	for _, r := range p.roles {
		w.roles[roleName{r.Namespace, r.Name}] = newRole(r.Rules)
	}
	for _, b := range slices.SortedFunc(slices.Values(p.clusterBindings), func(a, b *rbacv1.ClusterRoleBinding) int { return keyOrder(a, b) }) {
		w.bind(everywhere(b))
	}
	for _, b := range slices.SortedFunc(slices.Values(p.bindings), func(a, b *rbacv1.RoleBinding) int { return keyOrder(a, b) }) {
		w.bind(local(b))
	}
	return w
}

func (w *whole) bind(b binding) {
	at := roleName{name: b.ref.Name}
	if b.ref.Kind != "ClusterRole" {
		at.namespace = b.namespace
	}
	role, absent := w.roles[at], fmt.Sprintf("%s.rbac.authorization.k8s.io %q not found", strings.ToLower(b.ref.Kind), b.ref.Name)
	if b.ref.Kind == "Role" && b.namespace == "" || b.ref.Kind != "Role" && b.ref.Kind != "ClusterRole" {
		role, absent = nil, fmt.Sprintf("unsupported role reference kind: %q", b.ref.Kind)
	}
	for i := range b.subjects {
		to, ok := b.receiver(&b.subjects[i])
		if !ok {
			continue
		}
		g := wholeGrant{b.namespace, absent, role}
		if role != nil {
			g.reason = b.describe(&b.subjects[i])
		}
		w.given[to] = append(w.given[to], g)
	}
}

// of returns what a user has everywhere and in a namespace.
func (w *whole) of(u user.Info, namespace string) (all []wholeGrant) {
	receivers := []receiver{{name: u.GetName()}}
	for _, group := range u.GetGroups() {
		receivers = append(receivers, receiver{true, group})
	}
	for _, to := range receivers {
		for _, in := range slices.Compact([]string{"", namespace}) {
			for _, g := range w.given[to] {
				if g.namespace == in {
					all = append(all, g)
				}
			}
		}
	}
	return all
}

func (w *whole) allows(u user.Info, asks authorizer.Attributes) (allowed bool, reason string) {
	q, namespace := askedOf(asks), ""
	if q.isResource {
		namespace = asks.GetNamespace()
	}
	for _, g := range w.of(u, namespace) {
		if g.role != nil && g.role.allows(&q) {
			return true, g.reason
		}
	}
	if absent := w.absent(u, namespace); absent != "" {
		reason = "RBAC: " + absent
	}
	return false, reason
}

func (w *whole) absent(u user.Info, namespace string) string {
	var texts []string
	for _, g := range w.of(u, namespace) {
		if g.role == nil {
			texts = append(texts, g.reason)
		}
	}
	slices.Sort(texts)
	if texts = slices.Compact(texts); len(texts) < 2 {
		return strings.Join(texts, "")
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (w *whole) rulesOf(u user.Info, namespace string) (rules []rbacv1.PolicyRule, err error) {
	for _, g := range w.of(u, namespace) {
		if g.role != nil {
			rules = append(rules, g.role.rules...)
		}
	}
	if absent := w.absent(u, namespace); absent != "" {
		err = errors.New(absent)
	}
	return rules, err
}

// ask asks both of random users, and returns the first difference.
func (g generator) ask(i *index, w *whole) error {
	for range 30 {
		u, a := g.user(), g.asks()
		if g.IntN(3) == 0 {
			a.Namespace = "m-x"
		}
		got, why := i.allows(u, a)
		if want, whyWant := w.allows(u, a); got != want || why != whyWant {
			return fmt.Errorf("%+v asks %+v: %v, because %q; of all rules %v, because %q", u, a, got, why, want, whyWant)
		}
		rules, err := i.rulesOf(u, a.Namespace)
		if want, errWant := w.rulesOf(u, a.Namespace); !reflect.DeepEqual(rules, want) || fmt.Sprint(err) != fmt.Sprint(errWant) {
			return fmt.Errorf("%+v has %+v, %v in %q; of all rules %+v, %v", u, rules, err, a.Namespace, want, errWant)
		}
	}
	return nil
}

// object makes a random object of a few names.
func (g generator) object() metav1.Object {
	role, bound := fmt.Sprint("r", g.IntN(5)), metav1.ObjectMeta{Name: fmt.Sprint("b", g.IntN(6))}
	local := metav1.ObjectMeta{Namespace: g.one("m", "m-x", "n"), Name: role}
	switch g.IntN(4) {
	case 0:
		return &rbacv1.Role{ObjectMeta: local, Rules: g.rules(1 + g.IntN(2))}
	case 1:
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: g.rules(1 + g.IntN(2))}
	case 2:
		bound.Namespace = local.Namespace
		return &rbacv1.RoleBinding{ObjectMeta: bound, RoleRef: rbacv1.RoleRef{Kind: g.one("ClusterRole", "Role", "Role", "Other"), Name: role}, Subjects: g.subjects()}
	}
	return &rbacv1.ClusterRoleBinding{ObjectMeta: bound, RoleRef: rbacv1.RoleRef{Kind: g.one("ClusterRole", "ClusterRole", "Role"), Name: role}, Subjects: g.subjects()}
}

// objects are those of a policy by their keys.
type objects map[string]metav1.Object

func (all objects) policy() *policy {
	p := &policy{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		switch o := all[key].(type) {
		case *rbacv1.Role:
			p.roles = append(p.roles, o)
		case *rbacv1.ClusterRole:
			p.clusterRoles = append(p.clusterRoles, o)
		case *rbacv1.RoleBinding:
			p.bindings = append(p.bindings, o)
		case *rbacv1.ClusterRoleBinding:
			p.clusterBindings = append(p.clusterBindings, o)
		}
	}
	return p
}

// pending makes some of what is to be written: objects that are missing, and others instead of those that are there.
func (g generator) pending(all objects) *pending {
	wanted, w := objects{}, &pending{instead: map[metav1.Object]metav1.Object{}}
	for range g.IntN(4) {
		o := g.object()
		wanted[keyOfObject(o)] = o
		if stored := all[keyOfObject(o)]; stored != nil {
			w.instead[o] = stored
		}
	}
	w.policy = *wanted.policy()
	return w
}

// TestIndexOfChanges: an index that is made of changes decides as one of all rules does, whatever came before, with the same
// reasons. The indexes before stay as they were for whoever has them.
func TestIndexOfChanges(t *testing.T) {
	for seed := range uint64(40) {
		g := generator{rand.New(rand.NewPCG(seed, 2))}
		all := objects{}
		var current *index
		var readers sync.WaitGroup
		for step := range 60 {
			for range 1 + g.IntN(3)*g.IntN(4) {
				if o := g.object(); g.IntN(3) == 0 {
					delete(all, keyOfObject(o))
				} else {
					all[keyOfObject(o)] = o
				}
			}
			var w *pending
			if g.IntN(4) == 0 {
				w = g.pending(all)
			}
			p := all.policy()
			i, of := newIndex(p, w, current), newWhole(w.over(p))
			if err := g.ask(i, of); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			later := generator{rand.New(rand.NewPCG(seed, uint64(step)))}
			readers.Go(func() { // while the next ones are made
				if err := later.ask(i, of); err != nil {
					t.Errorf("seed %d, after step %d: %v", seed, step, err)
				}
			})
			current = i
		}
		readers.Wait()
		if t.Failed() {
			return
		}
	}
}

// TestIndexForgets: an index doesn't grow with what there once was.
func TestIndexForgets(t *testing.T) {
	var i *index
	for n := range 5 * spareNumbers {
		p, name := &policy{}, fmt.Sprint("r", n)
		p.local("n", name, rule("get", core, "pods"))
		p.bindLocal("n", name, ofUser(name), ofGroup(name))
		i = newIndex(p, nil, i)
	}
	users, groups, numbers := 0, 0, 0
	for at := range partsOf {
		users, groups, numbers = users+len(i.users[at]), groups+len(i.groups[at]), numbers+len(i.numbers[at])
	}
	if most := spareNumbers + 10; users != 1 || groups != 1 || numbers > most || len(i.roles) > most {
		t.Errorf("it has %d users, %d groups, and %d numbers of %d roles", users, groups, numbers, len(i.roles))
	}
}

// TestRuleChange: a decision after a change that the caches have goes by it.
func TestRuleChange(t *testing.T) {
	g, all := generator{rand.New(rand.NewPCG(0, 3))}, objects{}
	s := newRules(t, &policy{})
	for step := range 200 {
		for range 1 + g.IntN(3) {
			o := g.object()
			key := keyOfObject(o)
			switch before := all[key]; {
			case before == nil || g.IntN(3) > 0:
				s.put(o)
				all[key] = o
			default:
				s.remove(o)
				delete(all, key)
			}
		}
		s.settle()
		if err := g.ask(s.rbac.index(), newWhole(all.policy())); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
}
