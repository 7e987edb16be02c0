package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// tracked are the steps that Track gives until ctx ends, or so many.
func tracked(ctx context.Context, widgets client.Collection[Widget], most int, options ...client.Option) (steps []string) {
	for step, err := range widgets.Track(ctx, options...) {
		switch {
		case err != nil:
			steps = append(steps, err.Error())
		case step.State != nil:
			text := "state " + step.State.Version
			for _, there := range step.State.Objects {
				text += " " + there.Key.Name
			}
			steps = append(steps, text)
		default:
			steps = append(steps, step.Event.Type.String()+" "+step.Event.Key.Name)
		}
		if len(steps) == most {
			return steps
		}
	}
	return append(steps, "it ended")
}

// TestTrack: a list, what changes after it, and each failure, after which it goes on.
func TestTrack(t *testing.T) {
	b, bookmark := frame("ADDED", "b", "8"), frame("BOOKMARK", "", "9")
	for _, tt := range []struct {
		name    string
		answers []answer
		options []client.Option
		most    int
		steps   []string
	}{
		{"a list and a watch", []answer{{body: listOf("7", "a")}, {body: b + bookmark, hold: true}}, nil, 0,
			[]string{"state 7 a", "ADDED b", "enough", "it ended"}},
		{"with bookmarks", []answer{{body: listOf("7", "a")}, {body: b + bookmark, hold: true}}, []client.Option{client.Bookmarks()}, 0,
			[]string{"state 7 a", "ADDED b", "BOOKMARK ", "enough", "it ended"}},
		{"from a version", []answer{{body: b, hold: true}}, []client.Option{client.Since("7")}, 0, []string{"ADDED b", "enough", "it ended"}},
		{"an error, and on", []answer{{err: errors.New("away")}, {body: listOf("7")}, {body: b + errorFrame(410, "gone")}, {body: listOf("9", "b")}, {hold: true}}, nil, 0,
			[]string{`Get "http://script/apis/example.com/v1/widgets?limit=500": away`, "state 7", "ADDED b", "the server answered 410 Gone", "state 9 b", "enough", "it ended"}},
		{"left at an error", []answer{{err: errors.New("away")}}, nil, 1, []string{`Get "http://script/apis/example.com/v1/widgets?limit=500": away`}},
		{"left at a state", []answer{{body: listOf("7")}}, nil, 1, []string{"state 7"}},
		{"left at a change", []answer{{body: listOf("7")}, {body: b + b, hold: true}}, nil, 2, []string{"state 7", "ADDED b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				widgets, _ := scripting(t, tt.answers...)
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
				defer cancel()
				if steps := tracked(ctx, widgets, tt.most, tt.options...); !slices.Equal(steps, tt.steps) {
					t.Errorf("it gives %q, want %q", steps, tt.steps)
				}
			})
		})
	}
}

// TestWrongOptionEndsTrack: an option that is wrong ends it.
func TestWrongOptionEndsTrack(t *testing.T) {
	widgets, s := scripting(t)
	if steps := tracked(t.Context(), widgets, 0, client.Labels("=")); len(steps) != 2 || steps[1] != "it ended" || len(s.times) > 0 {
		t.Errorf("it gives %q", steps)
	}
}
