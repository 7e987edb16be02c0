package flowcontrol

import (
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/fair"
)

func someone(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
}

// TestFlowSchemas: requests belong to the schemas and flows that kube-apiserver's defaults give them, and leases to ours.
func TestFlowSchemas(t *testing.T) {
	all := New(600, nil).Now()
	const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a"
	for _, tc := range []struct {
		user         user.Info
		method, path string
		schema, who  string
		level        string
	}{
		{someone("root", user.SystemPrivilegedGroup), "GET", "/api/v1/pods", "exempt", "", "exempt"},
		{someone("alice"), "GET", "/readyz", "probes", "", "exempt"},
		{someone("alice"), "GET", "/livez/ping", "probes", "", "exempt"},
		{someone("alice"), "GET", "/livezz", "global-default", "alice", "global-default"},
		{someone("alice"), "GET", "/api/v1/pods", "global-default", "alice", "global-default"},
		{someone("alice"), "PATCH", lease, "leases", "alice", "leader-election"},
		{someone("alice"), "GET", "/apis/coordination.k8s.io/v1/leases", "global-default", "alice", "global-default"}, // a list
		{&user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, "GET", "/version", "global-default", user.Anonymous, "global-default"},
		{someone(user.KubeScheduler), "PUT", lease, "system-leader-election", user.KubeScheduler, "leader-election"},
		{someone(user.KubeScheduler), "GET", "/api/v1/namespaces/a/pods", "kube-scheduler", "a", "workload-high"},
		{someone("system:node:n", user.NodesGroup), "PATCH", "/api/v1/nodes/n/status", "system-node-high", "system:node:n", "node-high"},
		{someone("system:node:n", user.NodesGroup), "GET", "/api/v1/namespaces/a/pods/b", "system-nodes", "system:node:n", "system"},
		{someone("system:serviceaccount:kube-system:x", "system:serviceaccounts"), "GET", "/api/v1/namespaces/a/pods/b", "kube-system-service-accounts", "a", "workload-high"},
		{someone("system:serviceaccount:a:x", "system:serviceaccounts"), "GET", "/api/v1/namespaces/a/pods/b", "service-accounts", "system:serviceaccount:a:x", "workload-low"},
		{someone("system:serviceaccount:a:x", "system:serviceaccounts"), "PUT", lease, "leases", "system:serviceaccount:a:x", "leader-election"},
	} {
		asks := access.AttributesOf(httptest.NewRequest(tc.method, tc.path, nil))
		s := all.Of(tc.user, asks)
		if f := s.Flow(tc.user, asks); s.Name != tc.schema || f.Who != tc.who || s.Named.Name != tc.level || (s.Level == nil) != (tc.level == "exempt") {
			t.Errorf("%s %s of %s: %s, flow %q, level %s; want %s, %q, %s", tc.method, tc.path, tc.user.GetName(), s.Name, f.Who, s.Named.Name, tc.schema, tc.who, tc.level)
		}
	}
}

// TestStoredFlowSchemas: what is stored replaces what is suggested, but nothing that is mandatory, and a schema without a
// level has no effect.
func TestStoredFlowSchemas(t *testing.T) {
	p := New(600, nil)
	schema := func(name, level string) *flowcontrolv1.FlowSchema {
		s := leaseSchema.DeepCopy()
		s.Name, s.Spec.PriorityLevelConfiguration.Name, s.Spec.MatchingPrecedence = name, level, 1
		return s
	}
	shares := int32(0)
	level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: flowcontrolv1.PriorityLevelEnablementLimited,
		Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, BorrowingLimitPercent: &shares,
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}},
	}}
	next := p.derive([]*flowcontrolv1.FlowSchema{schema("a", "none"), schema("dangling", "absent"), schema("exempt", "none"), schema("global-default", "none")},
		[]*flowcontrolv1.PriorityLevelConfiguration{level})
	var names []string
	for _, s := range next.all {
		names = append(names, s.Name+" "+s.Named.Name)
	}
	for name, want := range map[string]bool{"a none": true, "dangling absent": false, "exempt exempt": true, "exempt none": false, "global-default none": true, "global-default global-default": false, "catch-all catch-all": true} {
		if slices.Contains(names, name) != want {
			t.Errorf("%q is in effect: %v, want %v, among %q", name, !want, want, names)
		}
	}
	if _, err := p.levels["none"].Enter(t.Context(), fair.Flow{}, 1, time.Hour); err != fair.ErrFull {
		t.Errorf("a level without seats or queues: %v", err)
	}
}
