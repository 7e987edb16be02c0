package storage

import "errors"

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
	// ErrNotTransformed is returned for a write whose value the store's Transformer refused, as when its keys can't be had. Nothing
	// was written.
	ErrNotTransformed = errors.New("the value couldn't be made ready for storage")
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
	// It comes together with ErrUnavailable, or with the error of the caller's context. With ErrNoSpace it comes where etcd may have
	// done the write that it refused.
	ErrUnknownOutcome = errors.New("whether the write happened is unknown")
)
