package main

import (
	"strings"
	"testing"
)

// TestJoined: what upstream writes after the write of a definition is one change with it, and nothing else is.
func TestJoined(t *testing.T) {
	object := func(kind, version, condition string) map[string]any {
		return map[string]any{"kind": kind, "metadata": map[string]any{"name": "a", "resourceVersion": version}, "status": condition}
	}
	event := func(kind string, object map[string]any) any { return map[string]any{"type": kind, "object": object} }
	sc := scenario{steps: []step{{method: "POST"}, {method: "GET"}, {method: "PUT"}, {method: "DELETE"}}}
	answers := func(kind string) []answer {
		return []answer{
			{Body: object(kind, "<rv a 1>", "none"), Events: []any{event("ADDED", object(kind, "<rv a 1>", "none")), event("MODIFIED", object(kind, "<rv a 2>", "named"))}},
			{Body: object(kind, "<rv a 2>", "named")},
			{Body: object(kind, "<rv a 3>", "named"), Events: []any{event("MODIFIED", object(kind, "<rv a 3>", "named"))}},
			{Events: []any{event("MODIFIED", object(kind, "<rv a 4>", "ending")), event("DELETED", object(kind, "<rv a 5>", "ending"))}},
		}
	}
	ours := answers("CustomResourceDefinition")
	ours[0].Events = []any{event("ADDED", object("CustomResourceDefinition", "<rv a 1>", "named"))}
	for i, version := range []string{"", "<rv a 1>", "<rv a 2>"} {
		if i > 0 {
			ours[i].Body = object("CustomResourceDefinition", version, "named")
		}
	}
	ours[2].Events = []any{event("MODIFIED", object("CustomResourceDefinition", "<rv a 2>", "named"))}
	ours[3].Events = []any{event("MODIFIED", object("CustomResourceDefinition", "<rv a 3>", "ending")), event("DELETED", object("CustomResourceDefinition", "<rv a 4>", "ending"))}
	theirs := joined(sc, answers("CustomResourceDefinition"))
	ours = joined(sc, ours)
	for i := range theirs {
		if found := compare(theirs[i], ours[i]); len(found) > 0 {
			t.Errorf("answer %d: %v", i, found)
		}
	}
	if other := short(joined(sc, answers("ConfigMap"))); !strings.Contains(other, "rv a 5") || strings.Count(other, "MODIFIED") != 3 {
		t.Errorf("others are joined, too: %s", other)
	}
}
