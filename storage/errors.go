package storage

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
)

// These errors can be returned by the operations of a Store, and ErrBadKey by those of a Prefix. They come wrapped, mostly
// with the operation and the key: test with errors.Is. An error of the caller's context may come as it is.
var (
	// ErrNotFound is returned when the key doesn't exist.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned when a create finds the key.
	ErrExists = errors.New("already exists")
	// ErrConflict is returned when the key's revision isn't the expected one.
	ErrConflict = errors.New("revision conflict")
	// ErrConditionFailed is returned when a Condition of a write doesn't hold.
	ErrConditionFailed = errors.New("condition failed")
	// ErrCompacted is returned when the revision asked for is older than etcd's history.
	ErrCompacted = errors.New("revision compacted")
	// ErrFutureRevision is returned when the revision asked for doesn't exist yet.
	ErrFutureRevision = errors.New("future revision")
	// ErrTooLarge is returned when a value, or a Replace, is larger than etcd takes.
	ErrTooLarge = errors.New("value too large")
	// ErrNoSpace is returned when the disk is full or the quota is reached. Reads still work, and so do deletions
	// unless the disk is so full that they aren't safe either. It comes with the reason, which says what is full.
	ErrNoSpace = errors.New("no space left for writes")
	// ErrReplaced is returned for a write whose context was pinned before everything was replaced (see Pin). Nothing was
	// written.
	ErrReplaced = errors.New("the store was replaced")
	// ErrFenced is returned for a write whose context has a fence that doesn't hold any more (see WithFence). Nothing was
	// written.
	ErrFenced = errors.New("this process doesn't lead any more")
	// ErrOutOfTurn is returned for a write whose context has a turn that somebody has taken (see WithTurn). Nothing was
	// written.
	ErrOutOfTurn = errors.New("somebody else decided meanwhile")
	// ErrPremise is returned for a write whose context has a premise that doesn't hold any more (see WithPremise). Nothing was
	// written.
	ErrPremise = errors.New("what the write was judged by has changed")
	// ErrBadKey is returned when a key would reach outside its prefix.
	ErrBadKey = errors.New("invalid key")
	// ErrRewound is returned when the store's revision went back, or the store is another one: what was read of it before means
	// nothing any more.
	ErrRewound = errors.New("the store isn't the one it was")
	// ErrNoMajority is returned when no majority of the members of etcd can be reached. Nothing was written. It comes with
	// the reason, and is an ErrUnavailable, too.
	ErrNoMajority = errors.New("no majority of the store's members")
	// ErrUnavailable is returned when etcd can't answer now.
	ErrUnavailable = errors.New("storage unavailable")
	// ErrUnknownOutcome is returned by a write that etcd was given and didn't answer: it may have happened, or may happen yet.
	// It comes together with ErrUnavailable, or with the error of the caller's context.
	ErrUnknownOutcome = errors.New("whether the write happened is unknown")
)

// unanswered is Wrap for the error of a transaction that writes, or of the read that would tell what has become of one. ctx is
// that of its caller.
func unanswered(ctx context.Context, op, key string, err error) error {
	ended := ctx.Err()
	if ended != nil { // etcd says that it has timed out, and only the caller's time is over
		err = ended
	}
	if err = Wrap(op, key, err); ended != nil || errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrNoMajority) {
		return fmt.Errorf("%w (%w)", err, ErrUnknownOutcome)
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
	ErrNotFound, ErrExists, ErrConflict, ErrConditionFailed, ErrCompacted, ErrFutureRevision, ErrTooLarge, ErrNoSpace,
	ErrReplaced, ErrFenced, ErrOutOfTurn, ErrPremise, ErrBadKey, ErrRewound, ErrUnavailable,
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
		return ErrCompacted
	case is(mvcc.ErrFutureRev, rpctypes.ErrFutureRev, rpctypes.ErrGRPCFutureRev):
		return ErrFutureRevision
	case is(etcderrors.ErrRequestTooLarge, rpctypes.ErrRequestTooLarge, rpctypes.ErrGRPCRequestTooLarge), tooLargeForGRPC(err):
		return ErrTooLarge
	case is(etcderrors.ErrNoLeader, rpctypes.ErrNoLeader, rpctypes.ErrGRPCNoLeader):
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, ErrNoMajority, err)
	case is(etcderrors.ErrNoSpace, rpctypes.ErrNoSpace, rpctypes.ErrGRPCNoSpace):
		return fmt.Errorf("%w: %w", ErrNoSpace, err) // the disk or the quota, and what to do
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// tooLargeForGRPC reports whether gRPC refused to carry a request because of its size. It has no error of its own for that.
func tooLargeForGRPC(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}
