package etcd_test

import (
	"log/slog"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// BenchmarkOpen starts and closes a server; only the start is timed.
func BenchmarkOpen(b *testing.B) {
	for _, bb := range []struct {
		name    string
		options func(b *testing.B) etcd.Options
	}{
		{"durable", func(b *testing.B) etcd.Options { return etcd.Options{DataDir: b.TempDir()} }},
		{"ephemeral", func(b *testing.B) etcd.Options { return etcd.Options{Ephemeral: true} }},
		{"restart", func() func(*testing.B) etcd.Options {
			dir := ""
			return func(b *testing.B) etcd.Options {
				if dir == "" {
					dir = b.TempDir()
				}
				return etcd.Options{DataDir: dir}
			}
		}()},
	} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				o := bb.options(b)
				o.Log = slog.New(slog.DiscardHandler)
				b.StartTimer()
				s, err := etcd.Open(b.Context(), o)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
