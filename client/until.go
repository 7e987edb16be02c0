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
	options := []Option{Fields("metadata.name=" + name)}
	pause := (&call{}).backoff(followFirst, followMost)
	for {
		list, err := r.List(ctx, options...)
		if err != nil {
			return nil, err
		}
		states, err := list.Slice(ctx)
		if err != nil {
			return nil, err
		}
		var state *T
		switch len(states) {
		case 0:
		case 1:
			state = states[0]
		default:
			return nil, fmt.Errorf("%d %s are named %q, each in its namespace: wait for one with In", len(states), r, name)
		}
		if done, err := u.show(state); done || err != nil {
			return state, err
		}
		for event, err := range r.Follow(ctx, list.ResourceVersion, options...) {
			if errors.Is(err, ErrExpired) {
				break // list again, but a server may say so after each list
			}
			if err != nil {
				return nil, err
			}
			pause.reset()
			state = event.Object
			if event.Type == Deleted {
				state = nil
			}
			if done, err := u.show(state); done || err != nil {
				return state, err
			}
		}
		if err := sleep(ctx, pause.next()); err != nil {
			return nil, err
		}
	}
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
