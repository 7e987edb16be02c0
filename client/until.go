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
func (c Collection[T]) Until(ctx context.Context, name string, conditions ...Condition[T]) (*T, error) {
	listed := false // there's a state from which it goes on
	for step, err := range c.Track(ctx, Fields("metadata.name="+name), Backoff(followFirst, followMost)) {
		var state *T
		switch {
		case errors.Is(err, ErrExpired):
			listed = false // it lists anew, but a server may say so after each list
			continue
		case err != nil && (!listed || final(ctx, err)):
			return nil, err
		case err != nil:
			continue
		case step.State == nil && step.Event.Type != Deleted:
			state = step.Event.Object
		case step.State != nil && len(step.State.Objects) > 1:
			return nil, fmt.Errorf("%d %s are named %q, each in its namespace: wait for one with In", len(step.State.Objects), c, name)
		case step.State != nil && len(step.State.Objects) == 1:
			state = step.State.Objects[0].Object
		}
		listed = true
		var err error
		if conditions, err = unmet(conditions, state); err != nil || len(conditions) == 0 {
			return state, err
		}
	}
	return nil, context.Cause(ctx) // not reached: Track ends with an error
}

// unmet returns the conditions from the first one on that a state doesn't meet.
func unmet[T any](conditions []Condition[T], state *T) ([]Condition[T], error) {
	for i, met := range conditions {
		if is, err := met(state); !is || err != nil {
			return conditions[i:], err
		}
	}
	return nil, nil
}
