package ruleset

import (
	"fmt"
	"strings"
	"testing"
)

// tenRules are rules of all kinds but CEL, between v1 and v2.
func tenRules(t testing.TB) *Rules {
	return compiled(t, definition(t, pair(
		`{rename: {from: spec.size, to: spec.length}}`,
		`{rename: {from: spec.replicas, to: spec.count}}`,
		`{move: {from: spec.host, to: spec.server.host}}`,
		`{move: {from: spec.port, to: spec.server.port}}`,
		`{move: {from: spec.old, to: "metadata.annotations[example.com/old]"}}`,
		`{default: {to: spec.mode, value: auto}}`,
		`{map: {from: spec.level, to: spec.level, values: {low: LOW, high: HIGH}}}`,
		`{split: {from: spec.image, to: [spec.repository, spec.tag], separator: ":"}}`,
		`{join: {from: [spec.first, spec.last], to: spec.name, separator: " "}}`,
		`{rename: {from: "spec.ports[*].port", to: "spec.ports[*].number"}}`,
	),
		`"size":`+text+`,"replicas":`+integer+`,"host":`+text+`,"port":`+integer+`,"old":`+text+`,"level":`+text+`,"image":`+text+`,"first":`+text+`,"last":`+text+`,"text":`+text+`,`+listOf("ports", `"port":`+integer+`,"name":`+text),
		`"length":`+text+`,"count":`+integer+`,"server":{"type":"object","properties":{"host":`+text+`,"port":`+integer+`}},"mode":`+text+`,"level":`+text+`,"repository":`+text+`,"tag":`+text+`,"name":`+text+`,"text":`+text+`,`+listOf("ports", `"number":`+integer+`,"name":`+text)))
}

// ofOneKB is an object of v1 in which each of tenRules has something to do.
func ofOneKB(t testing.TB) map[string]any {
	o := object(t, fmt.Sprintf(`{apiVersion: example.com/v1, kind: Thing, metadata: {name: thing, namespace: default, uid: 7c1f1f0e-6d3e-4f6e-9a55-0f1d2c3b4a59, labels: {app: web, tier: front},
annotations: {example.com/owner: team}, generation: 3, creationTimestamp: "2026-01-01T00:00:00Z"},
spec: {size: large, replicas: 3, host: example.com, port: 80, old: kept, level: low, image: "registry/app:1.2.3", first: Ada, last: Lovelace, text: %q,
ports: [{port: 80, name: http}, {port: 443, name: https}, {port: 9090, name: metrics}]}, status: {phase: Ready, observedGeneration: 3}}`, strings.Repeat("lorem ipsum ", 40)))
	if n := len(encoded(t, o)); n < 1000 || n > 1100 {
		t.Fatalf("the object has %d bytes", n)
	}
	return o
}

// BenchmarkTenRules converts a decoded object of 1 KB, once for each iteration, in place: there and back by turns. The goal is 5 us.
func BenchmarkTenRules(b *testing.B) {
	rules, o := tenRules(b), ofOneKB(b)
	was := encoded(b, o)
	way := [2]string{"v1", "v2"}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := rules.Convert(b.Context(), o, way[n%2], way[1-n%2]); err != nil {
			b.Fatal(err)
		}
		n++
	}
	if n%2 == 1 {
		if err := rules.Convert(b.Context(), o, "v2", "v1"); err != nil {
			b.Fatal(err)
		}
	}
	if is := encoded(b, o); is != was {
		b.Errorf("it was\n%s\nand is\n%s", was, is)
	}
}

// BenchmarkExpression is a conversion by a rule of CEL.
func BenchmarkExpression(b *testing.B) {
	rules := compiled(b, definition(b, pair(`{cel: {from: spec.seconds, to: spec.time, forth: 'string(value) + "s"', back: 'int(value.replace("s", ""))'}}`), `"seconds":`+integer, `"time":`+text))
	o := object(b, `{spec: {seconds: 5}}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := rules.Convert(b.Context(), o, "v1", "v2"); err != nil {
			b.Fatal(err)
		}
		o["spec"].(map[string]any)["seconds"] = int64(5)
		delete(o["spec"].(map[string]any), "time")
	}
}
