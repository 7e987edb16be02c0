package builtin_test

import (
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// BenchmarkRegister is what the lines of the table cost each start.
func BenchmarkRegister(b *testing.B) {
	for _, set := range []builtin.Set{builtin.Core, builtin.All} {
		b.Run(string(set), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				builtin.Register(registry.New(registry.Options{Cacher: cacher.New(nil, cacher.Options{})}), builtin.Options{Set: set})
			}
		})
	}
}
