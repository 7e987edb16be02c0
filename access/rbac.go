package access

import (
	"context"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// RBAC decides by the rules that are stored as Roles, ClusterRoles and their bindings. It's an authorizer.Authorizer and an
// authorizer.RuleResolver. A decision looks its user and groups up in an index, and reads no object. The first decision after objects have
// changed in the caches makes the next index, of the one before and of these objects.
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

// index returns the index of the rules as the caches have them now.
func (a *RBAC) index() *index {
	w, p := a.pending.Load(), a.stored.Get() // in this order: what isn't pending any more is stored
	if i := a.current.Load(); i != nil && i.policy == p && i.pending == w {
		return i
	}
	a.making.Lock()
	defer a.making.Unlock()
	w, p = a.pending.Load(), a.stored.Get()
	before := a.current.Load()
	if before != nil && before.policy == p && before.pending == w {
		return before
	}
	next := newIndex(p, w, before)
	a.current.Store(next)
	return next
}
