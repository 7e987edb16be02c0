package clients

import "testing"

// TestHelm has a chart with a definition through all of its life.
func TestHelm(t *testing.T) {
	c := newClient(t, helmBinary)
	size := func(want string) step {
		return step{args: args("get", "manifest", "demo"), want: "size: " + want}
	}
	c.tell([]step{
		{args: args("version", "--template", "{{.Version}}"), want: "v4."},
		{args: args("install", "demo", "testdata/chart", "--wait", "--timeout=30s"), want: "STATUS: deployed"},
		{args: args("install", "demo", "testdata/chart"), fails: "cannot reuse a name that is still in use"},
		{args: args("list", "-o", "json"), want: `"name":"demo"`},
		size("1"),
		{args: args("upgrade", "demo", "testdata/chart", "--set", "size=2", "--dry-run=server"), want: "STATUS: pending-upgrade"},
		size("1"),
		{args: args("upgrade", "demo", "testdata/chart", "--set", "size=2", "--wait", "--timeout=30s"), want: "REVISION: 2"},
		size("2"),
		{args: args("upgrade", "demo", "testdata/chart", "--set", "size=large"), fails: "spec.size"},
		{args: args("rollback", "demo", "1", "--wait", "--timeout=30s"), want: "Rollback was a success"},
		size("1"),
		{args: args("history", "demo"), want: "Rollback to 1"},
		{args: args("status", "demo"), want: "STATUS: deployed"},
		{args: args("template", "demo", "testdata/chart", "--validate"), want: "kind: Widget"},
		{args: args("uninstall", "demo", "--wait", "--timeout=30s"), want: `release "demo" uninstalled`},
		{args: args("list", "-q"), want: ""},
		{args: args("status", "demo"), fails: "not found"},
	})
	// What the chart had is gone; the definition stays, as Helm wants it.
	k := &client{t: t, program: kubectlBinary, home: c.home}
	k.tell([]step{
		{args: args("get", "configmap,role,widget", "demo"), fails: `"demo" not found`},
		{args: args("get", "crd", "widgets.example.com", "-o", "name"), want: "customresourcedefinition.apiextensions.k8s.io/widgets.example.com"},
		{args: args("get", "secrets", "-o", "name"), want: ""},
	})
}
