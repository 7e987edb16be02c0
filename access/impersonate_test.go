package access

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rights are what somebody may do, each as "verb group/resource/subresource namespace name", and note what was asked.
type rights struct {
	held  []string
	asked []string
}

func (r *rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	right := fmt.Sprintf("%s %s/%s/%s %s %s", a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName())
	if !a.IsResourceRequest() {
		right = a.GetVerb() + " " + a.GetPath()
	}
	r.asked = append(r.asked, right)
	if slices.Contains(r.held, right) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// TestImpersonationModes: which rights let whom be taken for whom.
func TestImpersonationModes(t *testing.T) {
	const (
		of     = "authentication.k8s.io/"
		podsAs = "impersonate-on:%s:list /pods/ shop "
		bob    = "impersonate:user-info " + of + "users/  bob"
		agent  = "system:serviceaccount:shop:agent"
		asBob  = "bob system:authenticated impersonate:user-info"
		asUser = "Impersonate-User: "
	)
	on := func(mode string) string { return fmt.Sprintf(podsAs, mode) }
	for _, tc := range []struct {
		name    string
		by      string // "alice" unless it says
		headers string
		rights  []string
		want    string // name, groups and constraint, or part of the refusal
	}{
		{"a user", "", asUser + "bob", []string{on("user-info"), bob}, asBob},
		{"a user, for nothing", "", asUser + "bob", []string{bob}, `pods is forbidden: User "alice" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "shop"`},
		{"a user, for another verb", "", asUser + "bob", []string{bob, strings.Replace(on("user-info"), "list", "get", 1)}, "cannot impersonate-on:user-info:list"},
		{"a user, by another mode", "", asUser + "bob", []string{on("user-info"), strings.Replace(bob, "user-info", "serviceaccount", 1)}, `users.authentication.k8s.io "bob" is forbidden: User "alice" cannot impersonate:user-info resource "users" in API group "authentication.k8s.io" at the cluster scope`},
		{"a user of the old group", "", asUser + "bob", []string{on("user-info"), "impersonate:user-info /users/  bob"}, "cannot impersonate:user-info"},
		{"all parts", "", asUser + "bob\r\nImpersonate-Uid: 7\r\nImpersonate-Group: a\r\nImpersonate-Group: b\r\nImpersonate-Extra-Example.com%2fScope: view",
			[]string{on("user-info"), bob, "impersonate:user-info " + of + "uids/  7", "impersonate:user-info " + of + "groups/  a", "impersonate:user-info " + of + "groups/  b", "impersonate:user-info " + of + "userextras/example.com/scope  view"},
			"bob/7 a,b,system:authenticated example.com/scope=view impersonate:user-info"},
		{"a group too many", "", asUser + "bob\r\nImpersonate-Group: a\r\nImpersonate-Group: b", []string{on("user-info"), bob, "impersonate:user-info " + of + "groups/  a"}, `groups.authentication.k8s.io "b" is forbidden`},
		{"three groups, by a right to all", "", asUser + "bob" + strings.Repeat("\r\nImpersonate-Group: a", 3), []string{on("user-info"), bob, "impersonate:user-info " + of + "groups/  *"}, `groups.authentication.k8s.io "a" is forbidden`},
		{"four groups, by a right to all", "", asUser + "bob" + strings.Repeat("\r\nImpersonate-Group: a", 4), []string{on("user-info"), bob, "impersonate:user-info " + of + "groups/  *"}, "bob a,a,a,a,system:authenticated impersonate:user-info"},
		{"four values, by a right to all", "", asUser + "bob" + strings.Repeat("\r\nImpersonate-Extra-A%2fb: c", 4), []string{on("user-info"), bob, "impersonate:user-info " + of + "userextras/*  *"}, "bob system:authenticated a/b=c,c,c,c impersonate:user-info"},
		{"administrators", "", asUser + "bob\r\nImpersonate-Group: system:masters", []string{on("user-info"), bob, "impersonate:user-info " + of + "groups/  system:masters"}, "impersonating the system:masters group is not allowed"},
		{"no group", "", asUser + "bob\r\nImpersonate-Group:", []string{on("user-info"), bob, "impersonate:user-info " + of + "groups/  "}, "impersonating the empty string group is not allowed"},
		{"a key without a domain", "", asUser + "bob\r\nImpersonate-Extra-Scope: view", []string{on("user-info"), bob, "impersonate:user-info " + of + "userextras/scope  view"}, "impersonating an invalid key in extra is not allowed"},
		{"an empty value", "", asUser + "bob\r\nImpersonate-Extra-A%2fb:", []string{on("user-info"), bob, "impersonate:user-info " + of + "userextras/a/b  "}, "impersonating the empty string value in extra is not allowed"},
		{"nobody", "", asUser + "system:anonymous", []string{on("user-info"), strings.Replace(bob, " bob", " system:anonymous", 1)}, "system:anonymous system:unauthenticated impersonate:user-info"},

		{"an account", "", asUser + agent, []string{on("serviceaccount"), "impersonate:serviceaccount " + of + "serviceaccounts/ shop agent"}, agent + " system:serviceaccounts,system:serviceaccounts:shop,system:authenticated impersonate:serviceaccount"},
		{"an account as a user", "", asUser + agent, []string{on("user-info"), "impersonate:user-info " + of + "serviceaccounts/ shop agent", "impersonate:user-info " + of + "users/  " + agent}, "cannot impersonate-on:serviceaccount:list"},
		{"an account with groups", "", asUser + agent + "\r\nImpersonate-Group: a", []string{on("serviceaccount"), "impersonate:serviceaccount " + of + "serviceaccounts/ shop agent", "impersonate:serviceaccount " + of + "groups/  a"}, `serviceaccounts "agent" is forbidden: User "alice" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "shop"`},

		{"a node", "", asUser + "system:node:n1", []string{on("arbitrary-node"), "impersonate:arbitrary-node " + of + "nodes/  n1"}, "system:node:n1 system:nodes,system:authenticated impersonate:arbitrary-node"},
		{"another node", "", asUser + "system:node:n2", []string{on("arbitrary-node"), "impersonate:arbitrary-node " + of + "nodes/  n1"}, `nodes.authentication.k8s.io "n2" is forbidden`},
		{"a node with a uid", "", asUser + "system:node:n1\r\nImpersonate-Uid: 7", []string{on("arbitrary-node"), "impersonate:arbitrary-node " + of + "nodes/  n1", "impersonate:arbitrary-node " + of + "uids/  7"}, `users "system:node:n1" is forbidden`},
		{"no node's name", "", asUser + "system:node:N_1", []string{on("user-info"), "impersonate:user-info " + of + "users/  system:node:N_1"}, "system:node:N_1 system:authenticated impersonate:user-info"},
		{"its own node", agent, asUser + "system:node:n1", []string{on(ownNode), "impersonate:associated-node " + of + "nodes/  *"}, "system:node:n1 system:nodes,system:authenticated impersonate:associated-node"},
		{"its own node, by name", agent, asUser + "system:node:n1", []string{on(ownNode), "impersonate:associated-node " + of + "nodes/  n1"}, `nodes.authentication.k8s.io "*" is forbidden`},
		{"another's node", agent, asUser + "system:node:n2", []string{on(ownNode), "impersonate:associated-node " + of + "nodes/  *"}, "cannot impersonate-on:arbitrary-node:list"},
		{"a user's node", "", asUser + "system:node:n1", []string{on(ownNode), "impersonate:associated-node " + of + "nodes/  *"}, "cannot impersonate-on:arbitrary-node:list"},

		{"by the verb impersonate", "", asUser + "bob\r\nImpersonate-Group: system:masters", []string{"impersonate /users/  bob", "impersonate /groups/  system:masters"}, "bob system:masters,system:authenticated "},
		{"an account with groups, by the verb impersonate", "", asUser + agent + "\r\nImpersonate-Group: a", []string{"impersonate /serviceaccounts/ shop agent", "impersonate /groups/  a"}, agent + " a,system:authenticated "},
		{"a node by the verb impersonate", "", asUser + "system:node:n1", []string{"impersonate /users/  system:node:n1"}, "system:node:n1 system:authenticated "},
		{"parts by both ways", "", asUser + "bob\r\nImpersonate-Group: a", []string{on("user-info"), bob, "impersonate /groups/  a"}, "groups.authentication.k8s.io \"a\" is forbidden"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			by := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{serviceaccount.NodeNameKey: {"n1"}}}
			if tc.by != "" {
				by.Name = tc.by
			}
			r := httptest.NewRequest("GET", "/api/v1/namespaces/shop/pods", nil)
			r.Header = header(tc.headers)
			as, err := Impersonate(r, by, &rights{held: tc.rights})
			if err != nil {
				if as != nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("it's refused with %v, want %s", err, tc.want)
				}
				return
			}
			if got := described(as); got != tc.want {
				t.Errorf("it's %q, want %q", got, tc.want)
			}
			if asksImpersonation(r.Header) {
				t.Errorf("headers are left: %v", r.Header)
			}
		})
	}
	t.Run("other paths", func(t *testing.T) {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Impersonate-User", "bob")
		asked := &rights{}
		if as, err := Impersonate(r, &user.DefaultInfo{Name: "alice"}, asked); as != nil || err == nil || !strings.Contains(err.Error(), `User "alice" cannot impersonate-on:user-info:get path "/metrics"`) {
			t.Errorf("%v, %v", as, err)
		}
		if want := []string{"impersonate-on:user-info:get /metrics", "impersonate /users/  bob"}; !slices.Equal(asked.asked, want) {
			t.Errorf("asked was %q, want %q", asked.asked, want)
		}
	})
	t.Run("without rules", func(t *testing.T) {
		for name, want := range map[string]string{"bob": asBob, "system:node:n1": "system:node:n1 system:nodes,system:authenticated impersonate:arbitrary-node"} {
			r := httptest.NewRequest("GET", "/api/v1/pods", nil)
			r.Header.Set("Impersonate-User", name)
			as, err := Impersonate(r, &user.DefaultInfo{Name: "alice"}, nil)
			if err != nil || described(as) != want {
				t.Errorf("it's %v, %v, want %s", as, err, want)
			}
		}
	})
}

// described is an impersonated user as its name/uid, groups, what is extra, and the constraint.
func described(as *Impersonated) string {
	name := as.User.GetName()
	if uid := as.User.GetUID(); uid != "" {
		name += "/" + uid
	}
	parts := []string{name, strings.Join(as.User.GetGroups(), ",")}
	for key, values := range as.User.GetExtra() {
		parts = append(parts, key+"="+strings.Join(values, ","))
	}
	return strings.Join(append(parts, as.Constraint), " ")
}

// silent is an authorizer that can't be asked about some verbs.
type silent struct {
	rights
	about string
}

func (s *silent) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if strings.HasPrefix(a.GetVerb(), s.about) {
		return authorizer.DecisionNoOpinion, "", errors.New("connection refused")
	}
	return s.rights.Authorize(ctx, a)
}

// TestImpersonationUndecided: who may impersonate isn't told from who mayn't where somebody who decides can't be asked, in whichever mode.
func TestImpersonationUndecided(t *testing.T) {
	rules := &silent{rights: rights{held: []string{"impersonate /users/  bob"}}, about: "no verb"}
	r := httptest.NewRequest("GET", "/api/v1/pods", nil)
	r.Header.Set("Impersonate-User", "bob")
	as, err := Impersonate(r, &user.DefaultInfo{Name: "alice"}, rules)
	if err != nil {
		t.Fatal(err)
	}
	rules.about = "impersonate"
	if err := as.Still(t.Context()); !Undecided(err) || !apierrors.IsForbidden(err) {
		t.Errorf("all is undecided: %v", err)
	}
	if rules.about = "impersonate-on:"; as.Still(t.Context()) != nil {
		t.Error("one mode is undecided, and another one allows it: it isn't allowed")
	}
	rules.held = nil
	if err := as.Still(t.Context()); !Undecided(err) {
		t.Errorf("one mode is undecided, and another one refuses: %v", err)
	}
	rules.about = "no verb"
	if err := as.Still(t.Context()); err == nil || Undecided(err) {
		t.Errorf("all refuse: %v", err)
	}
}
