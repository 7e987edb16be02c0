package client

import (
	"context"
	"errors"
	"fmt"
)

// Condition tells whether an object is in the state that is waited for. The object is nil while it doesn't exist.
type Condition[T any] func(object *T) (done bool, err error)

// Gone is met when the object doesn't exist.
func Gone[T any](object *T) (bool, error) { return object == nil, nil }

// Until waits until the object with that name meets the conditions, one after another, and returns the state that met the
// last one: nil if it doesn't exist. Each state of the object is shown to the condition whose turn it is, from the one at the
// beginning on; one state may meet several. If history is lost on the way, states may be missed, but never the newest. It
// ends with the condition's error, those of List and Follow but ErrExpired, or why ctx ended.
func (r Collection[T]) Until(ctx context.Context, name string, conditions ...Condition[T]) (*T, error) {
	u := until[T]{conditions: conditions}
	has := false // a state, from which it goes on
	for step, err := range r.Track(ctx, Fields("metadata.name="+name), Backoff(followFirst, followMost)) {
		var state *T
		switch {
		case errors.Is(err, ErrExpired):
			has = false // it lists anew, but a server may say so after each list
			continue
		case err != nil && (!has || final(ctx, err)):
			return nil, err
		case err != nil:
			continue
		case step.State == nil && step.Event.Type != Deleted:
			state = step.Event.Object
		case step.State != nil && len(step.State.Objects) > 1:
			return nil, fmt.Errorf("%d %s are named %q, each in its namespace: wait for one with In", len(step.State.Objects), r, name)
		case step.State != nil && len(step.State.Objects) == 1:
			state = step.State.Objects[0].Object
		}
		has = true
		if done, err := u.show(state); done || err != nil {
			return state, err
		}
	}
	return nil, context.Cause(ctx) // not reached: Track ends with an error
}

// until is one Until.
type until[T any] struct {
	conditions []Condition[T] // that are to be met yet
}

// show shows a state to the conditions, and tells whether all are met.
func (u *until[T]) show(state *T) (done bool, err error) {
	for len(u.conditions) > 0 {
		if met, err := u.conditions[0](state); !met || err != nil {
			return false, err
		}
		u.conditions = u.conditions[1:]
	}
	return true, nil
}
