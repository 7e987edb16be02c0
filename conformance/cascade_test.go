package conformance

import (
	"fmt"
	"testing"
)

// TestKubectlCascade: what kubectl leaves of an owner's dependents, with each --cascade.
func TestKubectlCascade(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	family := func(t *testing.T) {
		t.Helper()
		k.do("", "create", "configmap", "owner")
		uid := k.do("", "get", "cm", "owner", "-o", "jsonpath={.metadata.uid}")
		for i := range 3 {
			k.do(fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: child-%d, labels: {child: "yes"}, ownerReferences: [
				{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s, controller: true, blockOwnerDeletion: true}]}}`, i, uid), "create", "-f", "-")
		}
	}
	const deleted = `configmap "owner" deleted from default namespace`
	left := args("get", "cm", "-l", "child", "-o", "name")
	for _, c := range []struct {
		cascade string
		steps   []step
	}{
		{"background", []step{
			{args: args("delete", "cm", "owner", "--cascade=background"), want: deleted},
			{args: args("wait", "--for=delete", "cm/child-0", "cm/child-1", "cm/child-2", "--timeout=60s"), want: "..."},
			{args: left, want: ""},
		}},
		{"foreground", []step{
			{args: args("delete", "cm", "owner", "--cascade=foreground", "--wait"), want: deleted},
			{args: left, want: ""}, // the owner was there until they were gone
		}},
		{"orphan", []step{
			{args: args("delete", "cm", "owner", "--cascade=orphan", "--wait"), want: deleted},
			{args: left, want: "configmap/child-0\nconfigmap/child-1\nconfigmap/child-2"},
			{args: args("get", "cm", "-l", "child", "-o", "jsonpath={.items[*].metadata.ownerReferences}"), want: ""},
			{args: args("delete", "cm", "-l", "child"), want: `...configmap "child-2" deleted from default namespace`},
		}},
	} {
		t.Run(c.cascade, func(t *testing.T) {
			family(t)
			k.tell(t, c.steps)
		})
	}
}
