package servertest

import (
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// failures is a test that notes how it fails.
type failures struct {
	testing.TB
	errors []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

// TestProof: the end of a server fails the test if a goroutine is left, or something that a request took, or if its caches
// can't be proved right, and else doesn't.
func TestProof(t *testing.T) {
	for name, test := range map[string]struct {
		leak    bool // a goroutine that the server's own started
		overdue bool // the time for the proof is over
		want    string
	}{
		"sound":   {},
		"leak":    {leak: true, want: "left goroutines behind"},
		"overdue": {overdue: true, want: "the caches differ from etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}}
			label, leave := fmt.Sprintf("%p", s), make(chan struct{})
			defer close(leave)
			var err error
			pprof.Do(t.Context(), pprof.Labels(labelKey, label), func(ctx context.Context) {
				if err = s.Start(ctx); err == nil && test.leak {
					go func() { <-leave }()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if test.overdue {
				cancel()
			}
			if test.leak {
				// The leak is there for good: the proof needs no patience once the server is closed.
				go func() {
					<-s.Closed()
					cancel()
				}()
			}
			f := &failures{TB: t}
			prove(ctx, f, s, &http.Client{}, label)
			if all := strings.Join(f.errors, "\n"); test.want == "" && all != "" || !strings.Contains(all, test.want) {
				t.Errorf("the proof fails with %q, want %q", all, test.want)
			}
		})
	}
}

// TestIn: a method fails the test that it was called in.
func TestIn(t *testing.T) {
	s := New(t)
	sub := &fatal{failures: failures{TB: t}}
	func() {
		defer func() { recover() }()
		s.In(sub).Get("/nowhere")
	}()
	if len(sub.errors) != 1 || !strings.Contains(sub.errors[0], "/nowhere") {
		t.Errorf("the subtest fails with %q", sub.errors)
	}
	s.Get("/readyz")
}

// fatal is a test that ends by a panic.
type fatal struct{ failures }

func (f *fatal) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic("the end of the test")
}
