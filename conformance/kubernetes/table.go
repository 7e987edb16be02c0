package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

const page = "../docs/conformance.md" // from the module's directory

func (t *tests) writeTable() error { return os.WriteFile(page, []byte(t.table()), 0o644) }

// table is the page of results.
func (t *tests) table() string {
	var b strings.Builder
	b.WriteString(`# Kubernetes' conformance tests

Made by ` + "`make conformance`" + `, which runs those tests of Kubernetes 1.37.2 that are called [Conformance] against two clusters on one machine: upstream's kube-apiserver over etcd, and this program called kube-apiserver over this program called etcd. Both have upstream's controller manager and scheduler, under RBAC, each with an identity of its own, and three nodes of kwok's, where no kubelet is and no container runs. Tests that need one can't pass with either, and aren't run; [containers.txt](../conformance/kubernetes/testdata/containers.txt) has them, each with the reason.

| | tests | need a container | pass with upstream's | pass here | seconds there | seconds here |
|---|---|---|---|---|---|---|
`)
	groups := map[string][]string{}
	for _, name := range t.names {
		group, _, _ := strings.Cut(strings.TrimPrefix(name, "["), "]")
		groups[group] = append(groups[group], name)
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		t.row(&b, group, groups[group])
	}
	t.row(&b, "all", t.names)
	b.WriteString("\nThe seconds are those of the tests that passed with both, added up.\n")
	t.list(&b, "Pass with upstream's and fail here", func(name string) bool {
		_, ran := t.results["ours"][name]
		return ran && t.results["pair"][name].Passed && !t.results["ours"][name].Passed
	}, "ours")
	t.list(&b, "Fail with upstream's, too", func(name string) bool {
		_, ran := t.results["pair"][name]
		return ran && !t.results["pair"][name].Passed && t.containers[name] == ""
	}, "pair")
	return b.String()
}

// row writes what came of some tests.
func (t *tests) row(b *strings.Builder, title string, names []string) {
	var needs, theirs, ours int
	var there, here float64
	for _, name := range names {
		if t.containers[name] != "" {
			needs++
		}
		a, b := t.results["pair"][name], t.results["ours"][name]
		if a.Passed {
			theirs++
		}
		if b.Passed {
			ours++
		}
		if a.Passed && b.Passed {
			there, here = there+a.Seconds, here+b.Seconds
		}
	}
	fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %.0f | %.0f |\n", title, len(names), needs, theirs, ours, there, here)
}

// list writes the tests of which a condition is true, with the reason of one side.
func (t *tests) list(b *strings.Builder, title string, is func(string) bool, side string) {
	names := t.where(is)
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, name := range names {
		fmt.Fprintf(b, "- %s: %s\n", name, t.results[side][name].Reason)
	}
}
