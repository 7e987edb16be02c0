package access

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// bootstrapText are the rules that every cluster of Kubernetes has, in the form of which the file itself tells.
//
//go:embed bootstrap.txt
var bootstrapText string

// bootstrapPolicy returns all of them.
func bootstrapPolicy() *policy {
	p, o := &policy{}, bootstrapObject{}
	for line := range strings.Lines(bootstrapText) {
		switch fields := strings.Fields(line); {
		case len(fields) == 0 || fields[0] == "#":
		case line[0] == ' ':
			o.read(fields)
		default:
			p.add(&o)
			o = newBootstrapObject(fields[0], fields[1])
		}
	}
	p.add(&o)
	return p
}

// bootstrapObject is an object of one of the four kinds.
type bootstrapObject struct {
	kind        string
	meta        metav1.ObjectMeta
	rules       []rbacv1.PolicyRule
	aggregation *rbacv1.AggregationRule
	role        string // that a binding is to, if it has another name
	subjects    []rbacv1.Subject
}

// newBootstrapObject returns one with the label by which the objects of the start are known, and the annotation that lets the next start
// mend them. name has the namespace in front, if there is one.
func newBootstrapObject(kind, name string) bootstrapObject {
	namespace, local, ok := strings.Cut(name, "/")
	if !ok {
		namespace, local = "", name
	}
	return bootstrapObject{kind: kind, meta: metav1.ObjectMeta{
		Namespace: namespace, Name: local, Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}}
}

// read takes a line about the object.
func (o *bootstrapObject) read(fields []string) {
	switch key, value, _ := strings.Cut(fields[1], "="); fields[0] {
	case "label":
		o.meta.Labels[key] = value
	case "aggregates":
		o.aggregation = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{key: value}}}}
	case "role":
		o.role = fields[1]
	case "user":
		o.subjects = append(o.subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: fields[1]})
	case "group":
		o.subjects = append(o.subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fields[1]})
	case "account":
		o.subjects = append(o.subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: fields[1]})
	default:
		o.rules = append(o.rules, ruleOf(fields))
	}
}

// ruleOf makes a rule of a line's fields.
func ruleOf(fields []string) rbacv1.PolicyRule {
	list := func(i int) []string { return strings.Split(fields[i], ",") }
	if fields[1] == "paths" {
		return rbacv1.PolicyRule{Verbs: list(0), NonResourceURLs: list(2)}
	}
	r := rbacv1.PolicyRule{Verbs: list(0), APIGroups: list(1), Resources: list(2)}
	if i := slices.Index(r.APIGroups, "core"); i >= 0 {
		r.APIGroups[i] = ""
	}
	if len(fields) > 3 {
		r.ResourceNames = list(3)
	}
	return r
}

// add adds an object.
func (p *policy) add(o *bootstrapObject) {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: strings.TrimSuffix(o.kind, "Binding"), Name: cmp.Or(o.role, o.meta.Name)}
	switch o.kind {
	case "ClusterRole":
		p.clusterRoles = append(p.clusterRoles, &rbacv1.ClusterRole{ObjectMeta: o.meta, Rules: o.rules, AggregationRule: o.aggregation})
	case "Role":
		p.roles = append(p.roles, &rbacv1.Role{ObjectMeta: o.meta, Rules: o.rules})
	case "ClusterRoleBinding":
		p.clusterBindings = append(p.clusterBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: o.meta, RoleRef: ref, Subjects: o.subjects})
	case "RoleBinding":
		p.bindings = append(p.bindings, &rbacv1.RoleBinding{ObjectMeta: o.meta, RoleRef: ref, Subjects: o.subjects})
	}
}

// OwnRules returns Kubernetes' own rules as a start makes them: roles and bindings with their kind. An export leaves them out where they're
// unchanged.
func OwnRules() (all []runtime.Object) {
	p := bootstrapPolicy()
	typed := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	for _, o := range p.clusterRoles {
		o.TypeMeta = typed("ClusterRole")
		all = append(all, o)
	}
	for _, o := range p.roles {
		o.TypeMeta = typed("Role")
		all = append(all, o)
	}
	for _, o := range p.clusterBindings {
		o.TypeMeta = typed("ClusterRoleBinding")
		all = append(all, o)
	}
	for _, o := range p.bindings {
		o.TypeMeta = typed("RoleBinding")
		all = append(all, o)
	}
	return all
}
