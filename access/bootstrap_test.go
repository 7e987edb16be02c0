package access

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestBootstrapPolicy: Kubernetes' own rules are well-formed, and each binding finds its role.
func TestBootstrapPolicy(t *testing.T) {
	p := bootstrapPolicy()
	i := newIndex(p, nil, nil)
	for _, r := range p.clusterRoles {
		for _, rule := range r.Rules {
			if len(rule.Verbs) == 0 || (len(rule.NonResourceURLs) == 0) == (len(rule.Resources) == 0) || len(rule.APIGroups) != 0 != (len(rule.Resources) != 0) {
				t.Errorf("%s has a strange rule: %+v", r.Name, rule)
			}
		}
		if r.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" || r.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" {
			t.Errorf("%s has labels %v and annotations %v", r.Name, r.Labels, r.Annotations)
		}
	}
	for _, b := range p.clusterBindings {
		if i.role(&b.RoleRef, "") == nil {
			t.Errorf("%s: %s", b.Name, absence(&b.RoleRef, ""))
		}
	}
	for _, b := range p.bindings {
		if i.role(&b.RoleRef, b.Namespace) == nil {
			t.Errorf("%s/%s: %s", b.Namespace, b.Name, absence(&b.RoleRef, b.Namespace))
		}
	}
	if roles, bindings := len(p.clusterRoles), len(p.clusterBindings); roles < 65 || bindings < 45 {
		t.Errorf("there are %d ClusterRoles and %d ClusterRoleBindings", roles, bindings)
	}
}

// TestBootstrapDecisions: with nothing but Kubernetes' own rules, users may do what they may in every cluster.
func TestBootstrapDecisions(t *testing.T) {
	i := newIndex(bootstrapPolicy(), nil, nil)
	for _, tc := range []struct {
		who, asks string
		want      bool
	}{
		{"system:anonymous/system:unauthenticated", "get /healthz", true},
		{"system:anonymous/system:unauthenticated", "get /version", true},
		{"system:anonymous/system:unauthenticated", "get /livez/ping", false},
		{"system:anonymous/system:unauthenticated", "get /api", false},
		{"system:anonymous/system:unauthenticated", "get /metrics", false},
		{"system:anonymous/system:unauthenticated", "get /debug/watchers", false},
		{"system:anonymous/system:unauthenticated", "post /debug/reset", false},
		{"system:anonymous/system:unauthenticated", "create authorization.k8s.io selfsubjectaccessreviews - -", false},
		{"a/system:authenticated", "get /api/v1", true},
		{"a/system:authenticated", "get /apis/apps/v1", true},
		{"a/system:authenticated", "get /openapi/v3/api/v1", true},
		{"a/system:authenticated", "create authorization.k8s.io selfsubjectrulesreviews - -", true},
		{"a/system:authenticated", "create authentication.k8s.io selfsubjectreviews - -", true},
		{"a/system:authenticated", "create authorization.k8s.io subjectaccessreviews - -", false},
		{"a/system:authenticated", "get - configmaps default a", false},
		{"a/system:authenticated", "list - namespaces - -", false},
		{"a/system:monitoring", "get /metrics", true},
		{"system:kube-controller-manager", "list any.group anything - -", true},
		{"system:kube-controller-manager", "get - configmaps kube-system extension-apiserver-authentication", true},
		{"system:serviceaccount:kube-system:generic-garbage-collector", "delete any.group anything n a", true},
		{"system:serviceaccount:default:generic-garbage-collector", "delete any.group anything n a", false},
		{"system:node:a/system:nodes,system:authenticated", "get - pods n a", false},
	} {
		name, groups, _ := strings.Cut(tc.who, "/")
		if got, _ := i.allows(&user.DefaultInfo{Name: name, Groups: strings.Split(groups, ",")}, parseAsked(tc.asks)); got != tc.want {
			t.Errorf("%s may %s: %v, want %v", tc.who, tc.asks, got, tc.want)
		}
	}
}

// TestMend: at a start, stored objects get what they lack, keep what others added, and stay as they are if somebody wants
// that.
func TestMend(t *testing.T) {
	wanted := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{rule("get list", core, "pods")}}
	mark(wanted)
	stored := func(annotation string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r", Labels: map[string]string{"mine": "1"}, Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: annotation}}, Rules: rules}
	}
	for _, tc := range []struct {
		name   string
		stored *rbacv1.ClusterRole
		want   []rbacv1.PolicyRule
	}{
		{"lacks all", stored("true"), []rbacv1.PolicyRule{rule("get", core, "pods"), rule("list", core, "pods")}},
		{"lacks one", stored("true", rule("get", core, "*")), []rbacv1.PolicyRule{rule("get", core, "*"), rule("list", core, "pods")}},
		{"has more", stored("true", rule("*", "*", "*")), []rbacv1.PolicyRule{rule("*", "*", "*")}},
		{"is to stay", stored("false"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mendClusterRole(tc.stored, wanted)
			if !slices.EqualFunc(tc.stored.Rules, tc.want, func(a, b rbacv1.PolicyRule) bool { return describeRule(&a) == describeRule(&b) }) {
				t.Errorf("it has the rules %+v", tc.stored.Rules)
			}
			if tc.stored.Labels["mine"] != "1" {
				t.Errorf("it has the labels %v", tc.stored.Labels)
			}
		})
	}
	b := &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "other"}, Subjects: []rbacv1.Subject{ofUser("mine"), ofGroup("system:masters")}}
	mendClusterBinding(b, &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: []rbacv1.Subject{ofGroup("system:masters"), ofUser("new")}})
	if b.RoleRef.Name != "r" || len(b.Subjects) != 3 {
		t.Errorf("the binding is %+v", b)
	}
}

// TestPending: until an object is written, its mended form counts, unless somebody else has written or deleted it meanwhile.
func TestPending(t *testing.T) {
	named := func(name, label string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"is": label}}}
	}
	seen, mended, fresh := named("seen", "stored"), named("seen", "mended"), named("fresh", "new")
	w := &pending{policy: policy{clusterRoles: []*rbacv1.ClusterRole{mended, fresh}}, instead: map[metav1.Object]metav1.Object{mended: seen}}
	for _, tc := range []struct {
		name   string
		stored []*rbacv1.ClusterRole
		want   string
	}{
		{"nothing is written", []*rbacv1.ClusterRole{seen, named("other", "other")}, "mended other new"},
		{"both are written", []*rbacv1.ClusterRole{named("seen", "by us"), named("fresh", "by us, too")}, "by us by us, too"},
		{"one is deleted", nil, "new"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, r := range w.over(&policy{clusterRoles: tc.stored}).clusterRoles {
				got = append(got, r.Labels["is"])
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("what counts is %q, want %q", s, tc.want)
			}
		})
	}
}
