package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Nobody gives what they don't have. Who writes a role needs the rules in it, or the verb escalate on it. Who writes a
// binding needs the rules of its role, or the verb bind on the role. The rules and the texts are Kubernetes'.

// everything is what a ClusterRole may come to allow that is put together from others.
var everything = []rbacv1.PolicyRule{
	{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
}

// MayGrant refuses a write of a Role, a ClusterRole or one of their bindings by which the user (registry.UserFrom) would
// give rights that the user doesn't have. old is nil for a new object. The error is a Status.
func (a *RBAC) MayGrant(ctx context.Context, obj, old registry.Typed) error {
	u := registry.UserFrom(ctx)
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	if old != nil && sameButForCollector(obj, old) {
		return nil
	}
	switch o := obj.(type) {
	case *rbacv1.Role:
		return a.mayWriteRole(ctx, u, roleWrite{"roles", o.Namespace, o.Name, o.Rules})
	case *rbacv1.ClusterRole:
		before, _ := old.(*rbacv1.ClusterRole)
		if err := a.mayWriteRole(ctx, u, roleWrite{"clusterroles", "", o.Name, o.Rules}); err != nil {
			return err
		}
		if o.AggregationRule == nil && (before == nil || before.AggregationRule == nil) {
			return nil
		}
		return a.mayAggregate(ctx, u, o.Name)
	case *rbacv1.RoleBinding:
		return a.mayBind(ctx, u, bindingWrite{"rolebindings", o.Namespace, o.Name, &o.RoleRef})
	case *rbacv1.ClusterRoleBinding:
		return a.mayBind(ctx, u, bindingWrite{"clusterrolebindings", "", o.Name, &o.RoleRef})
	}
	return fmt.Errorf("%T is no role and no binding", obj)
}

// sameButForCollector tells whether an object differs from the one before it only in metadata that the garbage collector changes to
// get rid of it.
func sameButForCollector(obj, old registry.Typed) bool {
	next := obj.(runtime.Object).DeepCopyObject()
	m, was := registry.MetaOf(next.(registry.Typed)), registry.MetaOf(old)
	m.OwnerReferences, m.Finalizers = was.OwnerReferences, was.Finalizers
	m.ManagedFields, m.ResourceVersion, m.Generation = was.ManagedFields, was.ResourceVersion, was.Generation
	return equality.Semantic.DeepEqual(next, old)
}

// roleWrite is a role that is to be written.
type roleWrite struct {
	resource, namespace, name string
	rules                     []rbacv1.PolicyRule
}

func (a *RBAC) mayWriteRole(ctx context.Context, u user.Info, w roleWrite) error {
	if a.mayEscalate(ctx, u, w.resource, w.namespace, w.name) {
		return nil
	}
	return a.holds(u, w.namespace, w.rules, forbidden(w.resource, w.name))
}

// mayEscalate asks for the verb escalate on the object that the request's path names: that of a POST names none, so that who may escalate objects of
// some names makes none by it.
func (a *RBAC) mayEscalate(ctx context.Context, u user.Info, resource, namespace, name string) bool {
	if registry.VerbFrom(ctx) == "create" {
		name = ""
	}
	return a.may(ctx, u, "escalate", resource, namespace, name)
}

// mayAggregate asks for everything, because whoever writes other roles decides what this one will allow.
func (a *RBAC) mayAggregate(ctx context.Context, u user.Info, name string) error {
	if a.mayEscalate(ctx, u, "clusterroles", "", name) {
		return nil
	}
	refuse := forbidden("clusterroles", name)
	return a.holds(u, "", everything, func(error) error {
		return refuse(errors.New("must have cluster-admin privileges to use the aggregationRule"))
	})
}

// bindingWrite is a binding that is to be written.
type bindingWrite struct {
	resource, namespace, name string
	ref                       *rbacv1.RoleRef
}

func (a *RBAC) mayBind(ctx context.Context, u user.Info, w bindingWrite) error {
	resource := "clusterroles"
	if w.ref.Kind == "Role" {
		resource = "roles"
	}
	if a.may(ctx, u, "bind", resource, w.namespace, w.ref.Name) {
		return nil
	}
	role := a.index().role(w.ref, w.namespace)
	switch {
	case role == nil && w.ref.Kind != "Role" && w.ref.Kind != "ClusterRole":
		return forbidden(w.resource, w.name)(errors.New(absence(w.ref, w.namespace))) // validation would refuse it, too
	case role == nil:
		return apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: strings.ToLower(w.ref.Kind)}, w.ref.Name)
	}
	return a.holds(u, w.namespace, role.rules, forbidden(w.resource, w.name))
}

// forbidden makes a Status of why an object may not be written.
func forbidden(resource, name string) func(why error) error {
	return func(why error) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}, name, why)
	}
}

// may tells whether a user may use a verb on a role.
func (a *RBAC) may(ctx context.Context, u user.Info, verb, resource, namespace, name string) bool {
	return a.all.Allows(ctx, &authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: rbacv1.GroupName, APIVersion: "*", Resource: resource, Namespace: namespace, Name: name, ResourceRequest: true,
	})
}

// holds refuses unless a user has all that rules allow, where they would count.
func (a *RBAC) holds(u user.Info, namespace string, rules []rbacv1.PolicyRule, refuse func(why error) error) error {
	held, incomplete := a.index().rulesOf(u, namespace)
	if countParts(rules) > maxParts {
		return registry.Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, fmt.Sprintf("the rules allow more than %d combinations of an API group, a resource, a verb and a name, "+
			"which is too many to compare with the rights of user %q: use fewer in one role", maxParts, u.GetName()))
	}
	left := missing(held, rules)
	if len(left) == 0 {
		return nil
	}
	var lines []string
	for _, r := range joined(left) {
		lines = append(lines, describeRule(&r))
	}
	slices.Sort(lines)
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", u.GetName(), u.GetGroups(), strings.Join(slices.Compact(lines), "\n"))
	if incomplete != nil {
		text += fmt.Sprintf("; resolution errors: [%v]", incomplete)
	}
	return refuse(errors.New(text))
}

// joined puts rules together that differ in the verb alone. They were taken apart by missing.
func joined(parts []rbacv1.PolicyRule) (rules []rbacv1.PolicyRule) {
	at := map[string]int{}
	for _, p := range parts {
		if len(p.Resources) == 0 {
			rules = append(rules, p)
			continue
		}
		key := p.APIGroups[0] + "\x00" + p.Resources[0] + "\x00" + strings.Join(p.ResourceNames, "")
		i, known := at[key]
		if !known {
			at[key] = len(rules)
			rules = append(rules, p)
			continue
		}
		rules[i].Verbs = append(rules[i].Verbs, p.Verbs...)
	}
	return rules
}

// describeRule shows a rule in one line.
func describeRule(r *rbacv1.PolicyRule) string {
	var fields []string
	for _, f := range []struct {
		name   string
		values []string
	}{{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs}, {"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs}} {
		if len(f.values) > 0 {
			fields = append(fields, fmt.Sprintf("%s:%q", f.name, f.values))
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}
