package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestWrap: an error of etcd's becomes one of ours, by whichever way it comes, and ours stay what they are. None becomes
// ErrUnavailable that says something else.
func TestWrap(t *testing.T) {
	for name, c := range map[string]struct{ err, want error }{
		"compacted, of the member":         {mvcc.ErrCompacted, storage.ErrCompacted},
		"compacted, of the client":         {rpctypes.ErrCompacted, storage.ErrCompacted},
		"compacted, ours":                  {fmt.Errorf("the watch: %w", storage.ErrCompacted), storage.ErrCompacted},
		"a future revision, of the member": {mvcc.ErrFutureRev, storage.ErrFutureRevision},
		"a future revision, of the client": {rpctypes.ErrFutureRev, storage.ErrFutureRevision},
		"too large for the member":         {etcderrors.ErrRequestTooLarge, storage.ErrTooLarge},
		"too large for the server":         {rpctypes.ErrRequestTooLarge, storage.ErrTooLarge},
		"too large for gRPC":               {status.Error(codes.ResourceExhausted, "trying to send message larger than max (9 vs. 8)"), storage.ErrTooLarge},
		"no space":                         {rpctypes.ErrNoSpace, storage.ErrNoSpace},
		"a conflict":                       {storage.ErrConflict, storage.ErrConflict},
		"a fence":                          {storage.ErrFenced, storage.ErrFenced},
		"a rewind":                         {storage.ErrRewound, storage.ErrRewound},
		"the context":                      {context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			err := Wrap("get", "/registry/x", c.err)
			if !errors.Is(err, c.want) || errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("it became %v, want %v", err, c.want)
			}
			if !strings.HasPrefix(err.Error(), `get "/registry/x": `) {
				t.Errorf("%v doesn't begin with the operation and the key", err)
			}
		})
	}
	for name, err := range map[string]error{
		"no leader":        etcderrors.ErrNoLeader,
		"stopped":          etcderrors.ErrStopped,
		"exhausted":        status.Error(codes.ResourceExhausted, "too many requests"),
		"an unknown error": errors.New("broken"),
	} {
		if got := Wrap("get", "", err); !errors.Is(got, storage.ErrUnavailable) || !errors.Is(got, err) || errors.Is(got, storage.ErrNoMajority) != (err == etcderrors.ErrNoLeader) {
			t.Errorf("%s became %v", name, got)
		}
	}
	if err := Wrap("get", "", nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

// TestUnanswered: a write that etcd was given and didn't answer may have happened. One that nobody could take hasn't.
func TestUnanswered(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		ended   bool // the caller's context
		unknown bool
	}{
		"etcd stopped":    {err: etcderrors.ErrStopped, unknown: true},
		"no leader":       {err: etcderrors.ErrNoLeader},
		"too large":       {err: rpctypes.ErrRequestTooLarge},
		"the client left": {err: etcderrors.ErrTimeout, ended: true, unknown: true},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if c.ended {
			cancel()
		}
		err := unanswered(ctx, "create", "/registry/x", c.err)
		if cancel(); errors.Is(err, storage.ErrUnknownOutcome) != c.unknown || errors.Is(err, context.Canceled) != c.ended {
			t.Errorf("%s: %v", name, err)
		}
	}
}
