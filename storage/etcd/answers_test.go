package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// openMember starts a cluster's first member.
func openMember(t *testing.T) *Server {
	t.Helper()
	return openTest(t, Options{DataDir: t.TempDir(), Cluster: ClusterOptions{Listen: loopback.Address(t)}})
}

// TestUnanswered: a request that the cluster doesn't answer ends, and not as if its caller had ended it: storage tells a write
// whose outcome is unknown by that.
func TestUnanswered(t *testing.T) {
	s := openMember(t)
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := s.cluster.within(t.Context(), hang); !errors.Is(err, errUnanswered) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want %v", err, errUnanswered)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.cluster.within(ended, hang); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller's end: %v", err)
	}
}

// Raft takes one change of the members at a time and forgets those that come meanwhile. An address that is published goes through
// all the same.
func TestPublishIsTriedAgain(t *testing.T) {
	s := openMember(t)
	const changes = 4
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for i := range changes {
		all.Go(func() {
			if err := s.cluster.publish(ctx, fmt.Sprintf("127.0.0.1:%d", i+1)); err != nil {
				t.Error(err)
			}
		})
	}
}
