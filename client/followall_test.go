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

// framed is an event of a kind.
func framed(event, kind, name, version string) string {
	return `{"type":"` + event + `","object":{"kind":"` + kind + `","apiVersion":"v1","metadata":{"name":"` + name + `","resourceVersion":"` + version + `"}}}` + "\n"
}

// TestFollowAll: a state of several kinds, among which an object changes, what changes after it, and after a cut the rest.
func TestFollowAll(t *testing.T) {
	end := `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
	state := framed("ADDED", "ConfigMap", "a", "3") + framed("ADDED", "Secret", "a", "4") + framed("ADDED", "ConfigMap", "b", "5") +
		framed("MODIFIED", "ConfigMap", "a", "6") + framed("DELETED", "ConfigMap", "b", "7") + end
	for _, tt := range []struct {
		name     string
		answers  []answer
		options  []client.Option
		steps    []string
		requests []string
	}{
		{"a state, a change, and a cut", []answer{{body: state + framed("MODIFIED", "Secret", "a", "8")}, {body: framed("DELETED", "ConfigMap", "a", "9"), hold: true}}, nil,
			[]string{"state 7 ConfigMap/a Secret/a", "MODIFIED Secret/a", "DELETED ConfigMap/a", "enough"},
			[]string{"initialEvents=true&namespace=ns&resource=configmaps&resource=secrets&resourceVersion=", "namespace=ns&resource=configmaps&resource=secrets&resourceVersion=8"}},
		{"after a version", []answer{{body: framed("ADDED", "Secret", "b", "9"), hold: true}}, []client.Option{client.Since("8"), client.Labels("a=b")},
			[]string{"ADDED Secret/b", "enough"}, []string{"labelSelector=a%3Db&namespace=ns&resource=configmaps&resource=secrets&resourceVersion=8"}},
		{"history is gone", []answer{{body: state}, {body: errorFrame(410, "gone")}, {body: framed("ADDED", "Secret", "a", "4") + end, hold: true}}, nil,
			[]string{"state 7 ConfigMap/a Secret/a", "the server answered 410 Gone", "state 7 Secret/a", "enough"}, nil},
		{"a server that has no such path", []answer{{status: 404}}, nil, []string{"the server answered 404 Not Found"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, script := scriptedClient(t, tt.answers...)
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
				defer cancel()
				var steps []string
				for step, err := range client.FollowAll(ctx, c, "ns", []string{"configmaps", "secrets"}, tt.options...) {
					switch {
					case err != nil:
						steps = append(steps, err.Error())
					case step.State != nil:
						text := "state " + step.State.Version
						for _, there := range step.State.Objects {
							text += " " + there.Object.Kind() + "/" + there.Key.Name
						}
						steps = append(steps, text)
					default:
						steps = append(steps, step.Event.Type.String()+" "+step.Event.Object.Kind()+"/"+step.Event.Key.Name)
					}
					if len(steps) == len(tt.steps) {
						break
					}
				}
				if !slices.Equal(steps, tt.steps) {
					t.Errorf("the steps are %q, want %q", steps, tt.steps)
				}
				if tt.requests != nil && !slices.Equal(script.queries, tt.requests) {
					t.Errorf("it asked for %q, want %q", script.queries, tt.requests)
				}
			})
		})
	}
}
