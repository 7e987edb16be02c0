package watchstream

import (
	"iter"
	"slices"
	"sync"
)

// Filter yields what keep makes of the events, without those that it doesn't keep. Errors pass. It's the counterpart of
// apimachinery's watch.Filter, and has its weakness: an object that passes from now on comes as Modified, and one that
// doesn't pass any more just stays away. A selector on the watch does better.
func Filter[T any](events iter.Seq2[Event[T], error], keep func(Event[T]) (Event[T], bool)) iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		for event, err := range events {
			if err != nil {
				if !yield(event, err) {
					return
				}
				continue
			}
			if event, ok := keep(event); ok && !yield(event, nil) {
				return
			}
		}
	}
}

// Recorder keeps what passes through it. It's the counterpart of apimachinery's watch.Recorder.
type Recorder[T any] struct {
	mu     sync.Mutex // guards all below
	events []Event[T]
	counts [len(typeNames)]int
}

// Record yields the events, and keeps each before it yields it. Errors pass, and are counted as Error.
func (r *Recorder[T]) Record(events iter.Seq2[Event[T], error]) iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		for event, err := range events {
			r.keep(event, err)
			if !yield(event, err) {
				return
			}
		}
	}
}

func (r *Recorder[T]) keep(event Event[T], err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.counts[Error]++
		return
	}
	r.events = append(r.events, event)
	r.counts[event.Type]++
}

// Events returns a copy of the events that have passed.
func (r *Recorder[T]) Events() []Event[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Count returns how many events of a type have passed.
func (r *Recorder[T]) Count(t Type) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[t]
}
