package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// ofWidgets is a rule about the first request for widgets with one of the verbs.
func ofWidgets(rule faults.Rule, verbs ...string) faults.Rule {
	rule.Match = faults.Match{Resources: []string{"widgets.example.com"}, Verbs: verbs}
	if rule.Times == 0 {
		rule.Times = 1
	}
	return rule
}

// after is the Status of a code in the place of an answer.
func after(code int32) faults.Rule {
	return faults.Rule{Status: &faults.Status{Code: code, After: true}}
}

// TestFaultsOfWrites: what a program hears of a create that meets a fault of the server, and whether the widget is there.
func TestFaultsOfWrites(t *testing.T) {
	s := define(t, servertest.Faults)
	widgets, ctx := collection(t, s.URL), bounded(t)
	refusal := func(code int) func(error) bool {
		return func(err error) bool {
			refused, ok := errors.AsType[*client.StatusError](err)
			return ok && refused.Code == code
		}
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	none := func(err error) bool { return err == nil }
	unanswered := func(err error) bool {
		_, refused := errors.AsType[*client.StatusError](err)
		return err != nil && !refused
	}
	for _, test := range []struct {
		name string
		rule faults.Rule
		told func(error) bool
		done bool
	}{
		{"409", faults.Rule{Status: &faults.Status{Code: 409}}, is(client.ErrConflict), false},
		{"429 is sent again", faults.Rule{Status: &faults.Status{Code: 429}}, none, true},
		{"500", faults.Rule{Status: &faults.Status{Code: 500}}, refusal(500), false},
		{"503", faults.Rule{Status: &faults.Status{Code: 503}}, is(client.ErrUnavailable), false},
		{"503 with Retry-After is sent again", faults.Rule{Status: &faults.Status{Code: 503, RetryAfterSeconds: 1}}, none, true},
		{"504", faults.Rule{Status: &faults.Status{Code: 504}}, refusal(504), false},
		{"409 after", after(409), is(client.ErrConflict), true},
		{"429 after is sent again", after(429), is(client.ErrExists), true},
		{"500 after", after(500), refusal(500), true},
		{"503 after", after(503), is(client.ErrUnavailable), true},
		{"504 after", after(504), refusal(504), true},
		{"delay", faults.Rule{Delay: &faults.Delay{Mean: metav1.Duration{Duration: 10 * time.Millisecond}}}, none, true},
		{"cut before anything is done", faults.Rule{Cut: faults.CutRequest}, unanswered, false},
		{"cut before the answer", faults.Rule{Cut: faults.CutBefore}, unanswered, true},
		{"cut in the middle of the answer", faults.Rule{Cut: faults.CutMiddle}, unanswered, true},
		{"cut after the answer", faults.Rule{Cut: faults.CutAfter}, none, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := strings.ReplaceAll(strings.ToLower(test.name), " ", "-")
			fault := s.In(t).Fault("rule", ofWidgets(test.rule, "create"))
			if _, err := widgets.Create(ctx, widget(name, 1)); !test.told(err) {
				t.Errorf("the client says %v", err)
			}
			if n := len(fault.Log()); n != 1 {
				t.Errorf("%d requests met the fault", n)
			}
			if _, err := widgets.Get(ctx, name); (err == nil) != test.done || err != nil && !errors.Is(err, client.ErrNotFound) {
				t.Errorf("the widget is there: %v, want %t", err, test.done)
			}
			if _, err := widgets.Create(ctx, widget(name+"-next", 1)); err != nil {
				t.Errorf("the next create: %v", err)
			}
		})
	}
}

// TestFaultsOfUpdate: Update begins again after each conflict, and a program whose time is over hears that.
func TestFaultsOfUpdate(t *testing.T) {
	s := define(t, servertest.Faults)
	widgets, ctx := collection(t, s.URL), bounded(t)
	must(widgets.Create(ctx, widget("a", 1)))(t)
	conflict := s.Fault("conflict", ofWidgets(faults.Rule{Times: 3, Status: &faults.Status{Code: 409}}, "patch"))
	if w := must(resize(ctx, widgets, "a", 2))(t); w.Spec.Size != 2 {
		t.Errorf("the widget is %+v", w)
	}
	if n := len(conflict.Log()); n != 3 {
		t.Errorf("%d patches met a conflict, want 3", n)
	}
	s.Fault("delay", ofWidgets(faults.Rule{Delay: &faults.Delay{Mean: metav1.Duration{Duration: time.Minute}}}, "get"))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := widgets.Get(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a get that has no time to wait says %v", err)
	}
}

// TestFaultsOfFollow: whatever ends its connections, Follow gives each event once and in order, or says that history is gone.
func TestFaultsOfFollow(t *testing.T) {
	for _, test := range []struct {
		name    string
		rule    faults.Rule
		expired bool
	}{
		{"clean ends", faults.Rule{Times: 2, Watch: &faults.Watch{End: "clean", AfterEvents: 3}}, false},
		{"cuts", faults.Rule{Times: 2, Watch: &faults.Watch{End: "cut", AfterEvents: 3}}, false},
		{"cuts by time", faults.Rule{Times: 1, Watch: &faults.Watch{End: "cut", After: metav1.Duration{Duration: 50 * time.Millisecond}}}, false},
		{"no bookmarks", faults.Rule{Times: 1, Watch: &faults.Watch{NoBookmarks: true}}, false},
		{"refusals", faults.Rule{Times: 1, Status: &faults.Status{Code: 503, RetryAfterSeconds: 1}}, false},
		{"an end as expired", faults.Rule{Times: 1, Watch: &faults.Watch{End: "expired", AfterEvents: 3}}, true},
		{"resuming is expired", faults.Rule{Times: 1, Watch: &faults.Watch{Expired: true}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := define(t, servertest.Faults)
			widgets, ctx := collection(t, s.URL), bounded(t)
			version := must(widgets.List(ctx))(t).ResourceVersion
			fault := s.Fault("watch", ofWidgets(test.rule, "watch"))
			const n = 8
			for i := range n {
				must(widgets.Create(ctx, widget(fmt.Sprint("w", i), i)))(t)
			}
			var got []int
			for event, err := range widgets.Follow(ctx, version, client.Backoff(time.Millisecond, time.Second)) {
				if err != nil {
					if !test.expired || !errors.Is(err, client.ErrExpired) {
						t.Errorf("Follow ends with %v", err)
					}
					break
				}
				if got = append(got, event.Object.Spec.Size); len(got) == n {
					break
				}
			}
			if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !test.expired && !slices.Equal(got, want) || !slices.Equal(got, want[:len(got)]) {
				t.Errorf("Follow gave %v", got)
			}
			if hits := int64(len(fault.Log())); hits != test.rule.Times {
				t.Errorf("%d watches met the fault, want %d", hits, test.rule.Times)
			}
		})
	}
}

// TestFaultsOfStaleList: Follow gives what a list lacked that was too old.
func TestFaultsOfStaleList(t *testing.T) {
	s := define(t, servertest.Faults)
	widgets, ctx := collection(t, s.URL), bounded(t)
	for i := range 5 {
		must(widgets.Create(ctx, widget(fmt.Sprint("w", i), i)))(t)
	}
	s.Fault("stale", ofWidgets(faults.Rule{Stale: &faults.Stale{Versions: 3}}, "list"))
	list := must(widgets.List(ctx))(t)
	objects := must(list.Slice(ctx))(t)
	if len(objects) >= 5 || len(objects) < 2 {
		t.Errorf("the list has %d of five widgets", len(objects))
	}
	n := len(objects)
	for event, err := range widgets.Follow(ctx, list.ResourceVersion) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Object.Spec.Size != n {
			t.Errorf("after %d widgets comes %+v", n, event.Object)
		}
		if n++; n == 5 {
			break
		}
	}
}

// TestFaultsOfCache: a cache whose server fails in all ways again and again comes to hold what there is.
func TestFaultsOfCache(t *testing.T) {
	s := define(t, servertest.Faults)
	writer, reader := collection(t, s.URL), collection(t, s.URL)
	ctx := bounded(t)
	const seed = 29
	rate := func(rate float64, rule faults.Rule, verbs ...string) faults.Rule {
		rule.Match = faults.Match{Resources: []string{"widgets.example.com"}, Verbs: verbs}
		rule.Rate, rule.Seed, rule.Until = &rate, seed, "2s"
		return rule
	}
	var armed []*servertest.Fault
	for name, rule := range map[string]faults.Rule{
		"a-unavailable": rate(0.2, faults.Rule{Status: &faults.Status{Code: 503}}, "list", "watch"),
		"b-cut":         rate(0.3, faults.Rule{Cut: faults.CutMiddle}, "list"),
		"c-expired":     rate(0.2, faults.Rule{Watch: &faults.Watch{Expired: true}}, "watch"),
		"d-end":         rate(0.5, faults.Rule{Watch: &faults.Watch{End: "cut", AfterEvents: 5}}, "watch"),
		"e-over":        rate(1, faults.Rule{Watch: &faults.Watch{End: "expired", AfterEvents: 7}}, "watch"),
		"f-stale":       rate(1, faults.Rule{Stale: &faults.Stale{Versions: 20}}, "list"),
	} {
		armed = append(armed, s.Fault(name, rule))
	}
	cache := must(client.StartCache(ctx, reader, client.Backoff(time.Millisecond, 50*time.Millisecond)))(t)
	defer cache.Close()
	last := ""
	for i := range 200 {
		name := fmt.Sprint("w", i%20)
		w, err := writer.Create(ctx, widget(name, i))
		if errors.Is(err, client.ErrExists) {
			w, err = resize(ctx, writer, name, i)
		}
		last = must(w, err)(t).ResourceVersion
	}
	if err := cache.WaitFor(ctx, last); err != nil {
		t.Fatal(err)
	}
	for _, want := range must(must(writer.List(ctx, client.NotOlderThan(last)))(t).Slice(ctx))(t) {
		if got := cache.Get(client.Key{Namespace: want.Namespace, Name: want.Name}); got == nil || got.Spec.Size != want.Spec.Size {
			t.Errorf("the cache has %+v, want %+v", got, want)
		}
	}
	if cache.Len() != 20 {
		t.Errorf("the cache has %d widgets, want 20", cache.Len())
	}
	met := 0
	for _, fault := range armed {
		met += len(fault.Log())
	}
	if met < 5 {
		t.Errorf("%d requests met a fault", met)
	}
	if res, _ := s.Do(http.MethodGet, "/readyz", ""); res.StatusCode != http.StatusOK {
		t.Errorf("readyz is %s", res.Status)
	}
}
