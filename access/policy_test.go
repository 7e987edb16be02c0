package access

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// core is the group without a name.
const core = "core"

// rule makes a rule of words.
func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	fields := []string{words(verbs), words(groups), words(resources)}
	if len(names) > 0 {
		fields = append(fields, strings.Join(names, ","))
	}
	return ruleOf(fields)
}

// onPaths makes a rule about paths that aren't resources.
func onPaths(verbs, paths string) rbacv1.PolicyRule {
	return ruleOf([]string{words(verbs), "paths", words(paths)})
}

func words(s string) string {
	all := strings.Fields(s)
	slices.Sort(all)
	return strings.Join(all, ",")
}

// role adds a ClusterRole.
func (p *policy) role(name string, rules ...rbacv1.PolicyRule) {
	p.clusterRoles = append(p.clusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
}

// bind adds a ClusterRoleBinding to the ClusterRole of the same name.
func (p *policy) bind(name string, to ...rbacv1.Subject) {
	p.clusterBindings = append(p.clusterBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: to,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	})
}

// local adds a Role.
func (p *policy) local(namespace, name string, rules ...rbacv1.PolicyRule) {
	p.roles = append(p.roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules})
}

// bindLocal adds a RoleBinding to the Role of the same name.
func (p *policy) bindLocal(namespace, name string, to ...rbacv1.Subject) {
	p.bindings = append(p.bindings, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: to,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	})
}

func ofUser(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func ofGroup(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

// mark gives an object what those of the start have in common.
func mark(o metav1.Object) {
	start := newBootstrapObject("", o.GetName()).meta
	o.SetLabels(start.Labels)
	o.SetAnnotations(start.Annotations)
}
