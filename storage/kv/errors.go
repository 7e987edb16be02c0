package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Full is the error of a layer that didn't send a write, because there's no space for it. It says so in the words of the reason, and
// is etcd's ErrNoSpace besides.
type Full struct{ Reason error }

func (f Full) Error() string        { return f.Reason.Error() }
func (f Full) Unwrap() error        { return f.Reason }
func (f Full) Is(target error) bool { return target == rpctypes.ErrNoSpace }

// unanswered is Wrap for the error of a transaction that writes, or of the read that would tell what has become of one. ctx is
// that of its caller.
func unanswered(ctx context.Context, op, key string, err error) error {
	ended := ctx.Err()
	if ended != nil { // etcd says that it has timed out, and only the caller's time is over
		err = ended
	}
	if err = Wrap(op, key, err); ended != nil || errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrNoMajority) {
		return fmt.Errorf("%w (%w)", err, storage.ErrUnknownOutcome)
	}
	return err
}

// Wrap adds the operation and the key to an error, and translates one of etcd's to one of ours. A nil err stays nil.
//
// Errors of etcd's are translated here and nowhere else. What etcd has no error for gets one of ours where it's noticed: no
// answer in time, a watch that names a compacted revision, a store that was closed.
func Wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", op, key, translate(err))
}

// ours are the errors that Wrap leaves as they are. Those that only come together with one of them aren't here.
var ours = []error{
	storage.ErrNotFound, storage.ErrExists, storage.ErrConflict, storage.ErrConditionFailed, storage.ErrCompacted, storage.ErrFutureRevision, storage.ErrTooLarge, storage.ErrNoSpace,
	storage.ErrReplaced, storage.ErrFenced, storage.ErrOutOfTurn, storage.ErrPremise, storage.ErrBadKey, storage.ErrRewound, storage.ErrUnavailable, storage.ErrNotTransformed,
}

// translate returns one of ours for an error of etcd's. Ours and a context's stay as they are; any other is ErrUnavailable.
func translate(err error) error {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case is(context.Canceled, context.DeadlineExceeded), is(ours...):
		return err
	case is(mvcc.ErrCompacted, rpctypes.ErrCompacted, rpctypes.ErrGRPCCompacted):
		return storage.ErrCompacted
	case is(mvcc.ErrFutureRev, rpctypes.ErrFutureRev, rpctypes.ErrGRPCFutureRev):
		return storage.ErrFutureRevision
	case is(etcderrors.ErrRequestTooLarge, rpctypes.ErrRequestTooLarge, rpctypes.ErrGRPCRequestTooLarge), tooLargeForGRPC(err):
		return storage.ErrTooLarge
	case is(rpctypes.ErrTooManyOps, rpctypes.ErrGRPCTooManyOps):
		return fmt.Errorf("%w: etcd takes fewer operations in one transaction (its --max-txn-ops)", storage.ErrTooLarge)
	case is(etcderrors.ErrNoLeader, rpctypes.ErrNoLeader, rpctypes.ErrGRPCNoLeader):
		return fmt.Errorf("%w: %w: %w", storage.ErrUnavailable, storage.ErrNoMajority, err)
	case is(etcderrors.ErrNoSpace, rpctypes.ErrNoSpace, rpctypes.ErrGRPCNoSpace):
		return fmt.Errorf("%w: %w", storage.ErrNoSpace, err) // the disk or the quota, and what to do
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
}

// tooLargeForGRPC reports whether gRPC refused to carry a request because of its size. It has no error of its own for that.
func tooLargeForGRPC(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}
