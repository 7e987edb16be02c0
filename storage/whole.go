package storage

import "context"

// Whole is a Store that gives all it has in no order sooner than List would give it in order.
type Whole interface {
	// State calls fn with the keys below Root as of a revision, some at a time and from several goroutines at once, and returns when all calls have.
	// What it gives belongs to the caller. Errors as for List.
	State(ctx context.Context, at Revision, fn func([]Change)) error
}
