package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// BenchmarkReset is a reset with 1,000 objects of 20 definitions: one that deletes them all, and one that brings them all
// back. Both are seen from a client, whose next request would see the state.
func BenchmarkReset(b *testing.B) {
	s := servertest.New(b)
	const definitions, objects = 20, 1000
	for i := range definitions {
		name := fmt.Sprintf("kind%02ds", i)
		s.PostYAML(definitionsPath, strings.NewReplacer("gizmos", name, "Gizmo", fmt.Sprintf("Kind%02d", i), "gz", fmt.Sprintf("k%02d", i)).Replace(gizmosDefinition()))
		for n := range objects / definitions {
			s.PostYAML("/apis/example.com/v1/namespaces/default/"+name, fmt.Sprintf(
				`{apiVersion: example.com/v1, kind: Kind%02d, metadata: {name: object-%d, labels: {app: test}}, spec: {size: L, text: "%0500d"}}`, i, n, n))
		}
	}
	s.Snapshot("full")
	b.Run("deletes", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s.ResetTo("full")
			b.StartTimer()
			s.Reset()
		}
	})
	b.Run("restores", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s.Reset()
			b.StartTimer()
			s.ResetTo("full")
		}
	})
}
