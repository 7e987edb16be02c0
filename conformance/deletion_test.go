package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// TestKubectlDeletesMany: by name, by selector, by file, all at once, and with their namespace.
func TestKubectlDeletesMany(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.define()
	const count = 12
	var many, deleted []string
	for i := range count {
		many = append(many, fmt.Sprintf("---\n{apiVersion: example.com/v1, kind: Widget, metadata: {name: w%02d, labels: {tier: t%d}}}\n", i, i%3))
		deleted = append(deleted, fmt.Sprintf("widget.example.com %q deleted from default namespace", fmt.Sprintf("w%02d", i)))
	}
	pick := func(indexes ...int) string {
		var lines []string
		for _, i := range indexes {
			lines = append(lines, deleted[i])
		}
		return strings.Join(lines, "\n")
	}
	team := strings.ReplaceAll(strings.Join(many, ""), "metadata: {", "metadata: {namespace: team, ")
	k.tell(t, []step{
		{args: args("create", "-f", "-"), stdin: strings.Join(many, ""), want: "...widget.example.com/w11 created"},
		{args: args("delete", "wd", "w00", "w01"), want: pick(0, 1)},
		{args: args("delete", "wd/w03", "--now"), want: pick(3)},
		{args: args("delete", "wd", "-l", "tier=t1"), want: pick(4, 7, 10)},
		{args: args("delete", "wd", "--field-selector", "metadata.name=w02"), want: pick(2)},
		{args: args("delete", "wd", "--all", "--dry-run=server"), want: "...\"w11\" deleted from default namespace (server dry run)"},
		{args: args("get", "wd", "-o", "name"), want: "widget.example.com/w05\nwidget.example.com/w06\nwidget.example.com/w08\nwidget.example.com/w09\nwidget.example.com/w11"},
		{args: args("delete", "wd", "--all"), want: pick(5, 6, 8, 9, 11)},
		{args: args("delete", "wd", "--all"), want: "No resources found"},
		{args: args("create", "-f", "-"), stdin: strings.Join(many, ""), want: "...widget.example.com/w11 created"},
		{args: args("delete", "-f", "-"), stdin: strings.Join(many, ""), want: pick(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)},
		{args: args("create", "ns", "team"), want: "namespace/team created"},
		{args: args("create", "-f", "-"), stdin: team, want: "...widget.example.com/w11 created"},
		{args: args("delete", "namespace", "team", "--wait"), want: `namespace "team" deleted`},
		{args: args("wait", "--for=delete", "namespace/team", "--timeout=10s"), want: ""},
		{args: args("get", "wd", "-A", "-o", "name"), want: ""},
		{args: args("create", "ns", "team"), want: "namespace/team created"},
		{args: args("delete", "namespace", "team", "--wait=false"), want: `namespace "team" deleted`},
		{args: args("wait", "--for=delete", "namespace/team", "--timeout=30s"), want: "..."},
		{args: args("delete", "crd", "widgets.example.com"), want: `customresourcedefinition.apiextensions.k8s.io "widgets.example.com" deleted`},
		{args: args("get", "crd", "-o", "name"), want: ""},
	})
}
