package access

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestDecisions(t *testing.T) {
	p := &policy{}
	p.role("reader", rule("get list watch", core, "pods pods/log"))
	p.role("names", rule("get update", core, "configmaps", "a", "b"))
	p.role("anything", rule("*", "*", "*"))
	p.role("logs", rule("get", "*", "*/log"))
	p.role("groups", rule("list", "apps extensions", "deployments"))
	p.role("paths", onPaths("get", "/metrics /logs/* /x*y"))
	p.role("all-paths", onPaths("*", "*"))
	for _, r := range p.clusterRoles {
		p.bind(r.Name, ofUser(r.Name), ofGroup("group:"+r.Name))
	}
	p.bind("absent", ofUser("lost"))
	p.local("n", "local", rule("create", core, "secrets"))
	p.bindLocal("n", "local", ofUser("local"), rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "robot"}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "robot", Namespace: "other"})
	p.bindings = append(p.bindings, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "cluster-in-n"}, Subjects: []rbacv1.Subject{ofUser("guest"), ofUser("paths-in-n")},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
	}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "paths-in-n"}, Subjects: []rbacv1.Subject{ofUser("paths-in-n")},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "all-paths"},
	}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "m", Name: "elsewhere"}, Subjects: []rbacv1.Subject{ofUser("guest")},
		RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "local"},
	})
	for _, tc := range []struct {
		who, asks string // "user/group,group" and "verb group resource/subresource namespace name" or "verb /path"
		want      bool
		reason    string
	}{
		{"reader", "get - pods n x", true, `RBAC: allowed by ClusterRoleBinding "reader" of ClusterRole "reader" to User "reader"`},
		{"reader", "list - pods - -", true, `RBAC: allowed by ClusterRoleBinding "reader" of ClusterRole "reader" to User "reader"`},
		{"x/group:reader", "watch - pods m -", true, `RBAC: allowed by ClusterRoleBinding "reader" of ClusterRole "reader" to Group "group:reader"`},
		{"reader", "get - pods/log n x", true, ""},
		{"reader", "get - pods/status n x", false, ""},
		{"reader", "get apps pods n x", false, ""},
		{"reader", "create - pods n -", false, ""},
		{"reader", "GET - pods n x", false, ""},
		{"reader2", "get - pods n x", false, ""},
		{"x/reader", "get - pods n x", false, ""},
		{"names", "get - configmaps n a", true, ""},
		{"names", "update - configmaps n b", true, ""},
		{"names", "get - configmaps n c", false, ""},
		{"names", "get - configmaps n -", false, ""},
		{"anything", "anyverb any.group any/thing n x", true, ""},
		{"anything", "get /metrics", false, ""},
		{"logs", "get - pods/log n x", true, ""},
		{"logs", "get any.group things/log - -", true, ""},
		{"logs", "get - pods/logs n x", false, ""},
		{"logs", "get - log n x", false, ""},
		{"groups", "list apps deployments n -", true, ""},
		{"groups", "list extensions deployments n -", true, ""},
		{"groups", "list - deployments n -", false, ""},
		{"paths", "get /metrics", true, ""},
		{"paths", "get /metrics/x", false, ""},
		{"paths", "post /metrics", false, ""},
		{"paths", "get /logs/", true, ""},
		{"paths", "get /logs/a/b", true, ""},
		{"paths", "get /logs", false, ""},
		{"paths", "get /xzy", false, ""},
		{"paths", "get - metrics - -", false, ""},
		{"all-paths", "delete /", true, ""},
		{"local", "create - secrets n -", true, `RBAC: allowed by RoleBinding "local/n" of Role "local" to User "local"`},
		{"local", "create - secrets m -", false, ""},
		{"local", "create - secrets - -", false, ""},
		{"system:serviceaccount:n:robot", "create - secrets n -", true, `RBAC: allowed by RoleBinding "local/n" of Role "local" to ServiceAccount "robot/n"`},
		{"system:serviceaccount:other:robot", "create - secrets n -", true, `RBAC: allowed by RoleBinding "local/n" of Role "local" to ServiceAccount "robot/other"`},
		{"system:serviceaccount:m:robot", "create - secrets n -", false, ""},
		{"guest", "get - pods n x", true, ""},
		{"guest", "get - pods - x", false, ""},
		{"guest", "create - secrets m -", false, `RBAC: role.rbac.authorization.k8s.io "local" not found`},
		{"paths-in-n", "get /metrics", false, ""},
		{"lost", "get - pods n x", false, `RBAC: clusterrole.rbac.authorization.k8s.io "absent" not found`},
		{"", "get - pods n x", false, ""},
	} {
		t.Run(tc.who+" "+tc.asks, func(t *testing.T) {
			name, groups, _ := strings.Cut(tc.who, "/")
			u := &user.DefaultInfo{Name: name, Groups: strings.Split(groups, ",")}
			allowed, reason := newIndex(p, nil, nil).allows(u, parseAsked(tc.asks))
			if allowed != tc.want || tc.reason != "" && reason != tc.reason || !allowed && reason != tc.reason {
				t.Errorf("allowed: %v, because %q; want %v, %q", allowed, reason, tc.want, tc.reason)
			}
			if brute := bruteForce(p, u, parseAsked(tc.asks)); brute != tc.want {
				t.Errorf("by brute force: %v", brute)
			}
		})
	}
}

// parseAsked reads what a case asks for; "-" is nothing.
func parseAsked(s string) *authorizer.AttributesRecord {
	f := strings.Fields(s)
	if strings.HasPrefix(f[1], "/") {
		return &authorizer.AttributesRecord{Verb: f[0], Path: f[1]}
	}
	for i := range f {
		f[i] = strings.TrimPrefix(f[i], "-")
	}
	a := &authorizer.AttributesRecord{ResourceRequest: true, Verb: f[0], APIGroup: f[1], Namespace: f[3], Name: f[4]}
	a.Resource, a.Subresource, _ = strings.Cut(f[2], "/")
	return a
}

// bruteForce decides by looking at each rule of each binding, as the documentation of RBAC says.
func bruteForce(p *policy, u user.Info, a *authorizer.AttributesRecord) bool {
	isSubject := func(s rbacv1.Subject, namespace string) bool {
		switch s.Kind {
		case "User":
			return s.Name == u.GetName()
		case "Group":
			return slices.Contains(u.GetGroups(), s.Name)
		case "ServiceAccount":
			if s.Namespace != "" {
				namespace = s.Namespace
			}
			return namespace != "" && u.GetName() == "system:serviceaccount:"+namespace+":"+s.Name
		}
		return false
	}
	for _, b := range p.clusterBindings {
		for _, s := range b.Subjects {
			for _, r := range p.clusterRoles {
				if isSubject(s, "") && b.RoleRef.Kind == "ClusterRole" && r.Name == b.RoleRef.Name && bruteRules(r.Rules, a) {
					return true
				}
			}
		}
	}
	for _, b := range p.bindings {
		if !a.ResourceRequest || b.Namespace != a.Namespace {
			continue
		}
		for _, s := range b.Subjects {
			if !isSubject(s, b.Namespace) {
				continue
			}
			for _, r := range p.clusterRoles {
				if b.RoleRef.Kind == "ClusterRole" && r.Name == b.RoleRef.Name && bruteRules(r.Rules, a) {
					return true
				}
			}
			for _, r := range p.roles {
				if b.RoleRef.Kind == "Role" && r.Name == b.RoleRef.Name && r.Namespace == b.Namespace && bruteRules(r.Rules, a) {
					return true
				}
			}
		}
	}
	return false
}

func bruteRules(rules []rbacv1.PolicyRule, a *authorizer.AttributesRecord) bool {
	for _, r := range rules {
		if !slices.Contains(r.Verbs, "*") && !slices.Contains(r.Verbs, a.Verb) {
			continue
		}
		if !a.ResourceRequest {
			for _, p := range r.NonResourceURLs {
				if p == "*" || p == a.Path || strings.HasSuffix(p, "*") && strings.HasPrefix(a.Path, strings.TrimRight(p, "*")) {
					return true
				}
			}
			continue
		}
		whole := a.Resource
		if a.Subresource != "" {
			whole += "/" + a.Subresource
		}
		matches := slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, whole) || a.Subresource != "" && slices.Contains(r.Resources, "*/"+a.Subresource)
		if matches && (slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIGroups, a.APIGroup)) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name)) {
			return true
		}
	}
	return false
}

// TestDecisionsByBruteForce: over random rules, the index decides as brute force does.
func TestDecisionsByBruteForce(t *testing.T) {
	for seed := range uint64(300) {
		g := generator{rand.New(rand.NewPCG(seed, 0))}
		p := g.policy()
		i := newIndex(p, nil, nil)
		allowed := 0
		for range 200 {
			u, a := g.user(), g.asks()
			got, _ := i.allows(u, a)
			if want := bruteForce(p, u, a); got != want {
				t.Fatalf("seed %d: %+v asks %+v: %v, by brute force %v", seed, u, a, got, want)
			}
			if got {
				allowed++
			}
		}
		if seed == 0 && allowed == 0 {
			t.Error("nothing was allowed: the rules are too narrow to test anything")
		}
	}
}

// TestNothingMissing: if nothing is missing of some rules, whoever holds the others may do all that they allow.
func TestNothingMissing(t *testing.T) {
	covered := 0
	for seed := range uint64(20000) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		held, wanted := g.rules(3), g.rules(1)
		if len(missing(held, wanted)) > 0 {
			continue
		}
		covered++
		for range 300 {
			a := g.asks()
			a.Resource, _, _ = strings.Cut(a.Resource, "/") // with a slash only a review can ask for it, and "*/log" isn't about it
			if bruteRules(wanted, a) && !bruteRules(held, a) {
				t.Fatalf("seed %d: %+v are said to cover %+v, but not %+v", seed, held, wanted, a)
			}
		}
	}
	if covered < 100 {
		t.Errorf("only %d pairs cover each other: too few to test anything", covered)
	}
}

// generator makes random rules, and requests that they're likely to be about.
type generator struct{ *rand.Rand }

func (g generator) some(from ...string) []string {
	list := make([]string, 1+g.IntN(2))
	for i := range list {
		list[i] = from[g.IntN(len(from))]
	}
	return list
}

func (g generator) one(from ...string) string { return from[g.IntN(len(from))] }

func (g generator) rules(n int) (rules []rbacv1.PolicyRule) {
	for range n {
		r := rbacv1.PolicyRule{Verbs: g.some("get", "list", "create", "*")}
		if g.IntN(4) == 0 {
			r.NonResourceURLs = g.some("/a", "/a/*", "/a*", "/b", "*", "/a/**")
		} else {
			r.APIGroups = g.some("", "apps", "*")
			r.Resources = g.some("pods", "pods/log", "things", "things/log", "*", "*/log", "pods/", "*/", "/log")
			if g.IntN(3) == 0 {
				r.ResourceNames = g.some("x", "y", "")
			}
		}
		rules = append(rules, r)
	}
	return rules
}

func (g generator) policy() *policy {
	p := &policy{}
	for i := range 4 {
		p.role(fmt.Sprint("r", i), g.rules(1+g.IntN(2))...)
		p.local(g.one("m", "n"), fmt.Sprint("r", i), g.rules(1+g.IntN(2))...)
	}
	for i := range 4 {
		ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: fmt.Sprint("r", g.IntN(5))}
		p.clusterBindings = append(p.clusterBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i)}, RoleRef: ref, Subjects: g.subjects()})
		ref.Kind = g.one("ClusterRole", "Role")
		p.bindings = append(p.bindings, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: g.one("m", "n"), Name: fmt.Sprint("b", i)}, RoleRef: ref, Subjects: g.subjects()})
	}
	return p
}

func (g generator) subjects() (all []rbacv1.Subject) {
	for range 1 + g.IntN(2) {
		all = append(all, rbacv1.Subject{Kind: g.one("User", "Group", "ServiceAccount", "Robot"), Name: g.one("u", "v", "system:serviceaccount:n:u"), Namespace: g.one("", "m", "n")})
	}
	return all
}

func (g generator) user() user.Info {
	return &user.DefaultInfo{Name: g.one("u", "v", "w", "system:serviceaccount:n:u", "system:serviceaccount:m:u"), Groups: g.some("u", "v", "w")}
}

func (g generator) asks() *authorizer.AttributesRecord {
	if g.IntN(4) == 0 {
		return &authorizer.AttributesRecord{Verb: g.one("get", "list", "create"), Path: g.one("/", "/a", "/a/", "/a/b", "/ab", "/b", "*")}
	}
	return &authorizer.AttributesRecord{
		ResourceRequest: true, Verb: g.one("get", "list", "create", "delete"), APIGroup: g.one("", "apps", "other"), Namespace: g.one("", "m", "n", "o"),
		Resource: g.one("pods", "things", "*", "pods/log", "pods/", ""), Subresource: g.one("", "", "log", "status"), Name: g.one("", "x", "y", "z"),
	}
}

func BenchmarkAuthorize(b *testing.B) {
	for _, bindings := range []int{10, 1000, 10000} {
		p := bootstrapPolicy()
		for i := range bindings {
			name := fmt.Sprint("user-", i)
			p.bindLocal(fmt.Sprint("n-", i%100), name, ofUser(name))
			p.local(fmt.Sprint("n-", i%100), name, rule("get list watch", core, "pods configmaps"), rule("*", "apps", "deployments"))
		}
		aggregated := slices.Concat(p.clusterRoles[slices.IndexFunc(p.clusterRoles, func(r *rbacv1.ClusterRole) bool { return r.Name == "system:aggregate-to-edit" })].Rules)
		p.role("all-of-edit", aggregated...)
		p.bind("all-of-edit", ofUser("editor"))
		i := newIndex(p, nil, nil)
		for _, tc := range []struct{ name, user, asks string }{
			{"allowed", "user-7", "get - configmaps n-7 a"},
			{"refused", "user-7", "get - secrets n-7 a"},
			{"refused-to-an-editor", "editor", "get - nodes - a"},
			{"discovery", "user-7", "get /apis"},
		} {
			b.Run(fmt.Sprintf("%s/bindings=%d", tc.name, bindings), func(b *testing.B) {
				u := &user.DefaultInfo{Name: tc.user, Groups: []string{"developers", "team-a", user.AllAuthenticated}}
				asks := parseAsked(tc.asks)
				b.ReportAllocs()
				for b.Loop() {
					i.allows(u, asks)
				}
			})
		}
	}
}

// BenchmarkIndex makes the first index, of 1,000 bindings.
func BenchmarkIndex(b *testing.B) {
	p := bootstrapPolicy()
	for i := range 1000 {
		name := fmt.Sprint("user-", i)
		p.bindLocal(fmt.Sprint("n-", i%100), name, ofUser(name))
		p.local(fmt.Sprint("n-", i%100), name, rule("get list watch", core, "pods configmaps"))
	}
	b.ReportAllocs()
	for b.Loop() {
		newIndex(p, nil, nil)
	}
}
