package match

import "context"

// Round is one pass over everything that changes the object of a write. There's a second round if a webhook or a policy
// has changed the object in the first, and no third. In the second round, those whose reinvocation policy is IfNeeded are
// asked again if somebody has changed the object since they were asked, and no others. A Round belongs to one goroutine.
type Round struct {
	second  bool
	changed bool
	called  []any // those that may be asked again, since the last change
	again   map[any]bool
}

type roundKey struct{}

// WithRounds returns a context with the first round of a write.
func WithRounds(ctx context.Context) (context.Context, *Round) {
	r := &Round{again: map[any]bool{}}
	return context.WithValue(ctx, roundKey{}, r), r
}

// RoundOf returns the round that a context is for; one of its own where nobody began one.
func RoundOf(ctx context.Context) *Round {
	if r, ok := ctx.Value(roundKey{}).(*Round); ok {
		return r
	}
	return &Round{again: map[any]bool{}}
}

// Second tells whether it's the second round.
func (r *Round) Second() bool { return r.second }

// Calls tells whether something that changes objects is asked in this round. by identifies it: a comparable value.
func (r *Round) Calls(by any) bool { return !r.second || r.again[by] }

// Called notes that something whose reinvocation policy is IfNeeded was asked.
func (r *Round) Called(by any) { r.called = append(r.called, by) }

// Changed notes that the object was changed. Those that were asked before are asked again.
func (r *Round) Changed() {
	r.changed = true
	for _, by := range r.called {
		r.again[by] = true
	}
	r.called = nil
}

// Next begins the second round, and tells whether there is one.
func (r *Round) Next() bool {
	if r.second || !r.changed {
		return false
	}
	r.second = true
	return true
}
