package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// RBAC decides by the rules that are stored as Roles, ClusterRoles and their bindings. It's an authorizer.Authorizer and an
// authorizer.RuleResolver. A decision looks its user and groups up in an index, and reads no object. The index is made anew by
// the first decision after one of the objects has changed, from the caches.
//
// There are no rules that forbid something, so whom no rule allows what he asks for gets DecisionNoOpinion.
type RBAC struct {
	registry *registry.Registry
	stored   *registry.Derived[*policy]
	all      *Authorizer             // that the rules are part of; nil if they only are to be written
	pending  atomic.Pointer[pending] // what Bootstrap has still to write
	current  atomic.Pointer[index]

	bootstrapped chan struct{} // closed when Bootstrap has succeeded for the first time
	written      func()        // closes it

	making        sync.Mutex // held while an index is made, so that requests after a change make one
	bootstrapping sync.Mutex // held during Bootstrap, before the locks of writes
}

// policy is all rules that are stored. It never changes.
type policy struct {
	roles           []*rbacv1.Role
	bindings        []*rbacv1.RoleBinding
	clusterRoles    []*rbacv1.ClusterRole
	clusterBindings []*rbacv1.ClusterRoleBinding
}

// The resources with rules.
var (
	rolesPrefix           = storage.PrefixOf(rbacv1.GroupName, "roles")
	bindingsPrefix        = storage.PrefixOf(rbacv1.GroupName, "rolebindings")
	clusterRolesPrefix    = storage.PrefixOf(rbacv1.GroupName, "clusterroles")
	clusterBindingsPrefix = storage.PrefixOf(rbacv1.GroupName, "clusterrolebindings")
)

// NewRBAC returns the authorizer over a registry's objects. Until the caches have been read for the first time it knows
// Kubernetes' own rules only.
func NewRBAC(r *registry.Registry) *RBAC {
	a := &RBAC{registry: r, bootstrapped: make(chan struct{})}
	a.written = sync.OnceFunc(func() { close(a.bootstrapped) })
	var (
		roles           registry.Decoded[rbacv1.Role]
		bindings        registry.Decoded[rbacv1.RoleBinding]
		clusterRoles    registry.Decoded[rbacv1.ClusterRole]
		clusterBindings registry.Decoded[rbacv1.ClusterRoleBinding]
	)
	leave := func(*kube.Object, error) {} // an object that nobody can read allows nothing; whoever reads it has it logged
	a.stored = registry.Derive(r, func(of func(storage.Prefix) []*kube.Object) *policy {
		return &policy{
			roles: roles.All(of(rolesPrefix), leave), bindings: bindings.All(of(bindingsPrefix), leave),
			clusterRoles: clusterRoles.All(of(clusterRolesPrefix), leave), clusterBindings: clusterBindings.All(of(clusterBindingsPrefix), leave),
		}
	}, rolesPrefix, bindingsPrefix, clusterRolesPrefix, clusterBindingsPrefix)
	a.pending.Store(&pending{policy: *bootstrapPolicy()})
	return a
}

// Authorize tells whether a user may do something. The reason says which binding allows it, or which bindings name a role that isn't there. The
// error is always nil.
func (a *RBAC) Authorize(_ context.Context, asks authorizer.Attributes) (authorizer.Decision, string, error) {
	u := asks.GetUser()
	if u == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	allowed, reason := a.index().allows(u, asks)
	if !allowed {
		return authorizer.DecisionNoOpinion, reason, nil
	}
	return authorizer.DecisionAllow, reason, nil
}

// listOf joins what several bindings lack, as Kubernetes joins errors.
func listOf(absent []string) string {
	slices.Sort(absent)
	if absent = slices.Compact(absent); len(absent) == 1 {
		return absent[0]
	}
	return "[" + strings.Join(absent, ", ") + "]"
}

// ConditionsAwareAuthorize is Authorize: no rule has conditions.
func (a *RBAC) ConditionsAwareAuthorize(ctx context.Context, asks authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, asks))
}

// EvaluateConditions refuses: there are none.
func (a *RBAC) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor returns the rules that a user has in a namespace, or cluster-wide if that's "". The error says which bindings
// name a role that isn't there; the rules are all the same right.
func (a *RBAC) RulesFor(_ context.Context, u user.Info, namespace string) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	rules, err := a.index().rulesOf(u, namespace)
	for _, r := range rules {
		if len(r.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
		}
		if len(r.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	return resources, paths, false, err
}

// index has the rules by those they're for. It never changes.
type index struct {
	policy  *policy  // that it was made of,
	pending *pending // and what was to be written then

	users, groups map[string]*grants // a ServiceAccount is a user
	roles         map[roleName]*role
	clusterRoles  map[*rbacv1.ClusterRole]*role // those of the index before are taken over
	localRoles    map[*rbacv1.Role]*role
}

// grants is what one user or group has: everywhere, and in namespaces.
type grants struct {
	everywhere []grant
	in         map[string][]grant
}

// roleName names a ClusterRole, or a Role in a namespace.
type roleName struct{ namespace, name string }

// grant is what one binding gives to one subject.
type grant struct {
	role   *role  // nil if it's absent
	reason string // for an answer: what allows, or what is absent
}

// index returns the index of the rules as the caches have them now.
func (a *RBAC) index() *index {
	p, w := a.stored.Get(), a.pending.Load()
	if i := a.current.Load(); i != nil && i.policy == p && i.pending == w {
		return i
	}
	a.making.Lock()
	defer a.making.Unlock()
	p, w = a.stored.Get(), a.pending.Load()
	before := a.current.Load()
	if before != nil && before.policy == p && before.pending == w {
		return before
	}
	next := newIndex(p, w, before)
	a.current.Store(next)
	return next
}

func newIndex(p *policy, w *pending, before *index) *index {
	if before == nil {
		before = &index{}
	}
	i := &index{
		policy: p, pending: w, users: map[string]*grants{}, groups: map[string]*grants{}, roles: map[roleName]*role{},
		clusterRoles: map[*rbacv1.ClusterRole]*role{}, localRoles: map[*rbacv1.Role]*role{},
	}
	p = w.over(p)
	for _, r := range p.clusterRoles {
		known := before.clusterRoles[r]
		if known == nil {
			known = newRole(r.Rules)
		}
		i.clusterRoles[r], i.roles[roleName{name: r.Name}] = known, known
	}
	for _, r := range p.roles {
		known := before.localRoles[r]
		if known == nil {
			known = newRole(r.Rules)
		}
		i.localRoles[r], i.roles[roleName{r.Namespace, r.Name}] = known, known
	}
	for _, b := range p.clusterBindings {
		i.bind(binding{kind: "ClusterRoleBinding", name: b.Name, ref: &b.RoleRef}, b.Subjects)
	}
	for _, b := range p.bindings {
		i.bind(binding{kind: "RoleBinding", name: b.Name, namespace: b.Namespace, ref: &b.RoleRef}, b.Subjects)
	}
	return i
}

// binding is a RoleBinding or, without a namespace, a ClusterRoleBinding.
type binding struct {
	kind, name, namespace string
	ref                   *rbacv1.RoleRef
}

// bind adds what a binding gives.
func (i *index) bind(b binding, subjects []rbacv1.Subject) {
	role, absent := i.role(b.ref, b.namespace)
	for n := range subjects {
		s := &subjects[n]
		name, ok := b.subject(s)
		if !ok {
			continue
		}
		g := grant{role: role, reason: absent}
		if role != nil {
			g.reason = b.describe(s)
		}
		all := i.users
		if s.Kind == rbacv1.GroupKind {
			all = i.groups
		}
		give(all, name, b.namespace, g)
	}
}

// give adds a grant to what one user or group has.
func give(all map[string]*grants, name, namespace string, g grant) {
	to := all[name]
	if to == nil {
		to = &grants{}
		all[name] = to
	}
	if namespace == "" {
		to.everywhere = append(to.everywhere, g)
		return
	}
	if to.in == nil {
		to.in = map[string][]grant{}
	}
	to.in[namespace] = append(to.in[namespace], g)
}

// role finds the role of a binding in a namespace, or says that it's absent as Kubernetes does.
func (i *index) role(ref *rbacv1.RoleRef, namespace string) (r *role, absent string) {
	at := roleName{name: ref.Name}
	if ref.Kind != "ClusterRole" {
		at.namespace = namespace
	}
	if ref.Kind == "Role" && namespace == "" || ref.Kind != "Role" && ref.Kind != "ClusterRole" {
		return nil, fmt.Sprintf("unsupported role reference kind: %q", ref.Kind)
	}
	if r = i.roles[at]; r == nil {
		absent = fmt.Sprintf("%s.%s %q not found", strings.ToLower(ref.Kind), rbacv1.GroupName, ref.Name)
	}
	return r, absent
}

// subject returns the name of the user or group that a subject of the binding is. ok is false for one that is nobody.
func (b *binding) subject(s *rbacv1.Subject) (name string, ok bool) {
	switch s.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
		return s.Name, true
	case rbacv1.ServiceAccountKind:
		namespace := cmp.Or(s.Namespace, b.namespace)
		return serviceaccount.MakeUsername(namespace, s.Name), namespace != ""
	}
	return "", false
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

// allows tells whether a user may do something, and why, or else which roles are absent.
func (i *index) allows(u user.Info, asks authorizer.Attributes) (allowed bool, reason string) {
	q := askedOf(asks)
	namespace := ""
	if q.isResource {
		namespace = asks.GetNamespace()
	}
	var absent []string
	i.each(u, namespace, func(g *grant) bool {
		switch {
		case g.role == nil:
			absent = append(absent, g.reason)
		case g.role.allows(&q):
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
	var absent []string
	i.each(u, namespace, func(g *grant) bool {
		if g.role == nil {
			absent = append(absent, g.reason)
		} else {
			rules = append(rules, g.role.rules...)
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
	if !i.users[u.GetName()].each(namespace, f) {
		return
	}
	for _, group := range u.GetGroups() {
		if !i.groups[group].each(namespace, f) {
			return
		}
	}
}

func (s *grants) each(namespace string, f func(g *grant) bool) bool {
	if s == nil {
		return true
	}
	return eachOf(s.everywhere, f) && (namespace == "" || eachOf(s.in[namespace], f))
}

func eachOf(list []grant, f func(g *grant) bool) bool {
	for n := range list {
		if !f(&list[n]) {
			return false
		}
	}
	return true
}
