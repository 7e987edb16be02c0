package access

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// index has the rules by those they're for. It never changes. The next one has what differs, and shares the rest with it.
type index struct {
	policy  *policy  // that it was made of,
	pending *pending // and what was to be written then
	rules   *policy  // both together

	users, groups parts[[]grant] // each list as inOrder sorts it; a ServiceAccount is a user
	numbers       parts[int]     // of roles, by roleKey
	roles         []*role        // by number; nil for an absent one. No role has the number 0
}

// grant is what one binding gives to one of its subjects. It has the number of its role, so that a role that many bindings name
// can change alone.
type grant struct {
	namespace, name string // of the binding; no namespace means everywhere
	subject         int    // which of the binding's it is
	role            int    // its number
	ref             *rbacv1.RoleRef
	reason          string // for an answer: what allows
}

// inOrder is the order in which grants count: those that hold everywhere first, and in the order of the bindings' keys.
func inOrder(a, b grant) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name), a.subject-b.subject)
}

// roleName names a ClusterRole, or a Role in a namespace, or a binding likewise.
type roleName struct{ namespace, name string }

// spareNumbers is how many roles may be named beyond two for each object. With more, many names are of the past, and an index is made
// without the one before.
const spareNumbers = 1024

// newIndex makes an index of rules. It costs as much as they differ from those of the index before, which may be nil, besides
// a look at each pointer.
func newIndex(p *policy, w *pending, before *index) *index {
	rules := w.over(p)
	objects := len(rules.roles) + len(rules.bindings) + len(rules.clusterRoles) + len(rules.clusterBindings)
	if before == nil || len(before.roles) > 2*objects+spareNumbers {
		before = &index{rules: &policy{}, roles: make([]*role, 1)}
	}
	i := *before
	i.policy, i.pending, i.rules, i.roles = p, w, rules, slices.Clone(before.roles)
	n := revision{index: &i, numbers: edit(&i.numbers), leaving: map[roleName]bool{}, given: map[receiver][]grant{}}

	roles, clusterRoles := compare(before.rules.roles, rules.roles), compare(before.rules.clusterRoles, rules.clusterRoles)
	for _, r := range roles.gone {
		n.setRole(r.Namespace, r.Name, nil)
	}
	for _, r := range clusterRoles.gone {
		n.setRole("", r.Name, nil)
	}
	for _, r := range roles.come {
		n.setRole(r.Namespace, r.Name, newRole(r.Rules))
	}
	for _, r := range clusterRoles.come {
		n.setRole("", r.Name, newRole(r.Rules))
	}

	bindings, clusterBindings := compare(before.rules.bindings, rules.bindings), compare(before.rules.clusterBindings, rules.clusterBindings)
	for _, b := range bindings.gone {
		n.take(local(b))
	}
	for _, b := range clusterBindings.gone {
		n.take(everywhere(b))
	}
	for _, b := range bindings.come {
		n.give(local(b))
	}
	for _, b := range clusterBindings.come {
		n.give(everywhere(b))
	}
	n.setGrants()
	return &i
}

// difference is what is in one list of objects and not in another one. An object that was changed is in both.
type difference[P any] struct{ gone, come []P }

// compare finds the difference between two lists by their pointers. Where a list isn't in the order of keys, some of what
// is in both counts as gone and come.
func compare[P interface {
	comparable
	metav1.Object
}](was, is []P) (d difference[P]) {
	for len(was) > 0 && len(is) > 0 {
		if was[0] == is[0] {
			was, is = was[1:], is[1:]
			continue
		}
		order := keyOrder(was[0], is[0])
		if order <= 0 {
			d.gone, was = append(d.gone, was[0]), was[1:]
		}
		if order >= 0 {
			d.come, is = append(d.come, is[0]), is[1:]
		}
	}
	return difference[P]{append(d.gone, was...), append(d.come, is...)}
}

// keyOrder compares objects as their keys in the store do, which have a slash after the namespace.
func keyOrder(a, b metav1.Object) int {
	return cmp.Or(strings.Compare(a.GetNamespace()+"/", b.GetNamespace()+"/"), strings.Compare(a.GetName(), b.GetName()))
}

// revision is an index that is being made of the one before.
type revision struct {
	*index
	numbers edited[int]
	leaving map[roleName]bool    // bindings that aren't there any more as they were
	given   map[receiver][]grant // what is new; those whom only something leaves have an entry, too
}

// receiver is a user or a group.
type receiver struct {
	group bool
	name  string
}

// number returns the number of a role, whether it's there or not.
func (n *revision) number(key string) int {
	if key == "" {
		return 0
	}
	known := n.index.numbers.get(key)
	if known == 0 {
		known = len(n.roles)
		n.roles = append(n.roles, nil)
		n.numbers.own(key)[key] = known
	}
	return known
}

// setRole sets a Role or, without a namespace, a ClusterRole; nil for one that's gone.
func (n *revision) setRole(namespace, name string, r *role) {
	at := n.number(namespace + "/" + name)
	n.roles[at] = r
}

// take notes that a binding isn't there any more as it was.
func (n *revision) take(b binding) {
	n.leaving[roleName{b.namespace, b.name}] = true
	for at := range b.subjects {
		if to, ok := b.receiver(&b.subjects[at]); ok {
			n.given[to] = nil
		}
	}
}

// give notes what a binding gives. It's called after take.
func (n *revision) give(b binding) {
	role := n.number(roleKey(b.ref, b.namespace))
	for at := range b.subjects {
		s := &b.subjects[at]
		if to, ok := b.receiver(s); ok {
			n.given[to] = append(n.given[to], grant{namespace: b.namespace, name: b.name, subject: at, role: role, ref: b.ref, reason: b.describe(s)})
		}
	}
}

// setGrants sets the grants of all for whom something changes.
func (n *revision) setGrants() {
	users, groups := edit(&n.users), edit(&n.groups)
	for to, given := range n.given {
		all := &users
		if to.group {
			all = &groups
		}
		list := slices.DeleteFunc(slices.Clone(all.of.get(to.name)), func(g grant) bool { return n.leaving[roleName{g.namespace, g.name}] })
		if list = append(list, given...); len(list) == 0 {
			delete(all.own(to.name), to.name)
			continue
		}
		sort.Slice(list, func(a, b int) bool { return inOrder(list[a], list[b]) < 0 }) // slices.SortFunc would be 20 KB of the program for this type
		all.own(to.name)[to.name] = list
	}
}

// binding is a RoleBinding or, without a namespace, a ClusterRoleBinding.
type binding struct {
	kind, name, namespace string
	ref                   *rbacv1.RoleRef
	subjects              []rbacv1.Subject
}

func local(b *rbacv1.RoleBinding) binding {
	return binding{"RoleBinding", b.Name, b.Namespace, &b.RoleRef, b.Subjects}
}

func everywhere(b *rbacv1.ClusterRoleBinding) binding {
	return binding{"ClusterRoleBinding", b.Name, "", &b.RoleRef, b.Subjects}
}

// receiver returns whom a subject of the binding is. ok is false for one that is nobody.
func (b *binding) receiver(s *rbacv1.Subject) (to receiver, ok bool) {
	switch s.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
		return receiver{s.Kind == rbacv1.GroupKind, s.Name}, true
	case rbacv1.ServiceAccountKind:
		namespace := cmp.Or(s.Namespace, b.namespace)
		return receiver{name: serviceaccount.MakeUsername(namespace, s.Name)}, namespace != ""
	}
	return receiver{}, false
}

// describe says what allows something, with Kubernetes' words.
func (b *binding) describe(s *rbacv1.Subject) string {
	name, whom := b.name, s.Name
	if b.namespace != "" {
		name += "/" + b.namespace
	}
	if s.Kind == rbacv1.ServiceAccountKind {
		whom += "/" + cmp.Or(s.Namespace, b.namespace)
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", b.kind, name, b.ref.Kind, b.ref.Name, s.Kind, whom)
}

// roleKey is what index.numbers has the role of a binding in a namespace by; "" if there can't be one.
func roleKey(ref *rbacv1.RoleRef, namespace string) string {
	switch {
	case ref.Kind == "ClusterRole":
		return "/" + ref.Name
	case ref.Kind == "Role" && namespace != "":
		return namespace + "/" + ref.Name
	}
	return ""
}

// role finds the role of a binding in a namespace, or returns nil.
func (i *index) role(ref *rbacv1.RoleRef, namespace string) *role {
	return i.roles[i.numbers.get(roleKey(ref, namespace))]
}

// absence says that a binding's role is absent as Kubernetes does.
func absence(ref *rbacv1.RoleRef, namespace string) string {
	if roleKey(ref, namespace) == "" {
		return fmt.Sprintf("unsupported role reference kind: %q", ref.Kind)
	}
	return fmt.Sprintf("%s.%s %q not found", strings.ToLower(ref.Kind), rbacv1.GroupName, ref.Name)
}

// listOf joins what several bindings lack, as Kubernetes joins errors.
func listOf(absent []*grant) string {
	texts := make([]string, len(absent))
	for n, g := range absent {
		texts[n] = absence(g.ref, g.namespace)
	}
	slices.Sort(texts)
	if texts = slices.Compact(texts); len(texts) == 1 {
		return texts[0]
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// allows tells whether a user may do something, and why, or else which roles are absent.
func (i *index) allows(u user.Info, asks authorizer.Attributes) (allowed bool, reason string) {
	q := askedOf(asks)
	namespace := ""
	if q.isResource {
		namespace = asks.GetNamespace()
	}
	var absent []*grant
	i.each(u, namespace, func(g *grant) bool {
		switch role := i.roles[g.role]; {
		case role == nil:
			absent = append(absent, g)
		case role.allows(&q):
			allowed, reason = true, g.reason
		}
		return !allowed
	})
	if !allowed && len(absent) > 0 {
		reason = "RBAC: " + listOf(absent)
	}
	return allowed, reason
}

// rulesOf returns the rules that a user has everywhere, and in a namespace unless that's "". The error says which roles are
// absent.
func (i *index) rulesOf(u user.Info, namespace string) (rules []rbacv1.PolicyRule, err error) {
	var absent []*grant
	i.each(u, namespace, func(g *grant) bool {
		if role := i.roles[g.role]; role == nil {
			absent = append(absent, g)
		} else {
			rules = append(rules, role.rules...)
		}
		return true
	})
	if len(absent) > 0 {
		err = errors.New(listOf(absent))
	}
	return rules, err
}

// each calls f with what a user has everywhere and in a namespace, unless that's "", until f returns false.
func (i *index) each(u user.Info, namespace string, f func(g *grant) bool) {
	if !eachOf(i.users.get(u.GetName()), namespace, f) {
		return
	}
	for _, group := range u.GetGroups() {
		if !eachOf(i.groups.get(group), namespace, f) {
			return
		}
	}
}

func eachOf(list []grant, namespace string, f func(g *grant) bool) bool {
	n := 0
	for ; n < len(list) && list[n].namespace == ""; n++ {
		if !f(&list[n]) {
			return false
		}
	}
	if namespace == "" {
		return true
	}
	first, _ := slices.BinarySearchFunc(list[n:], namespace, func(g grant, namespace string) int { return strings.Compare(g.namespace, namespace) })
	for n += first; n < len(list) && list[n].namespace == namespace; n++ {
		if !f(&list[n]) {
			return false
		}
	}
	return true
}
