package access

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// upstreamPolicy are the rules of kube-apiserver 1.37.2 with its default feature gates, object by object in the form of
// describePolicy.
//
//go:embed testdata/bootstrap-1.37.txt
var upstreamPolicy string

// TestBootstrapPolicyIsUpstreams: the rules of the start are kube-apiserver's, neither more nor less: names, labels, annotations, who
// is bound to what, and which verbs each role has for each resource and path.
func TestBootstrapPolicyIsUpstreams(t *testing.T) {
	want, got := facts(upstreamPolicy), facts(describePolicy(bootstrapPolicy()))
	if len(want) < 1000 {
		t.Fatalf("there are only %d facts to compare with", len(want))
	}
	for _, fact := range slices.Sorted(maps.Keys(want)) {
		if !got[fact] {
			t.Errorf("missing: %s", fact)
		}
	}
	for _, fact := range slices.Sorted(maps.Keys(got)) {
		if !want[fact] {
			t.Errorf("kube-apiserver doesn't have: %s", fact)
		}
	}
}

// facts puts the object in front of each line about it.
func facts(text string) map[string]bool {
	all, object := map[string]bool{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, " ") {
			object, line = line, ""
		}
		all[object+line] = true
	}
	return all
}

// describePolicy has a line for each object, and under it an indented line for each fact.
func describePolicy(p *policy) string {
	var b strings.Builder
	for _, r := range p.clusterRoles {
		describe(&b, "ClusterRole", r, rulesOf(r.Rules, r.AggregationRule))
	}
	for _, r := range p.roles {
		describe(&b, "Role", r, rulesOf(r.Rules, nil))
	}
	for _, r := range p.clusterBindings {
		describe(&b, "ClusterRoleBinding", r, boundBy(r.RoleRef, r.Subjects))
	}
	for _, r := range p.bindings {
		describe(&b, "RoleBinding", r, boundBy(r.RoleRef, r.Subjects))
	}
	return b.String()
}

func describe(b *strings.Builder, kind string, o metav1.Object, about []string) {
	for k, v := range o.GetLabels() {
		about = append(about, "label "+k+"="+v)
	}
	for k, v := range o.GetAnnotations() {
		about = append(about, "annotation "+k+"="+v)
	}
	fmt.Fprintf(b, "%s %s\n", kind, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
	for _, line := range about {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// rulesOf has a line for each path, and for each resource as group:resource, or group:resource=name.
func rulesOf(rules []rbacv1.PolicyRule, aggregation *rbacv1.AggregationRule) (lines []string) {
	if aggregation != nil {
		for _, s := range aggregation.ClusterRoleSelectors {
			lines = append(lines, "aggregates "+metav1.FormatLabelSelector(&s))
		}
	}
	may := map[string][]string{}
	for _, r := range rules {
		for _, path := range r.NonResourceURLs {
			may[path] = append(may[path], r.Verbs...)
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				of := group + ":" + resource
				if len(r.ResourceNames) == 0 {
					may[of] = append(may[of], r.Verbs...)
				}
				for _, name := range r.ResourceNames {
					may[of+"="+name] = append(may[of+"="+name], r.Verbs...)
				}
			}
		}
	}
	for of, verbs := range may {
		slices.Sort(verbs)
		lines = append(lines, "may "+of+" "+strings.Join(slices.Compact(verbs), ","))
	}
	return lines
}

func boundBy(role rbacv1.RoleRef, subjects []rbacv1.Subject) []string {
	lines := []string{"role " + role.Kind + " " + role.Name}
	for _, s := range subjects {
		lines = append(lines, "subject "+s.Kind+" "+strings.TrimPrefix(s.Namespace+"/"+s.Name, "/"))
	}
	return lines
}
