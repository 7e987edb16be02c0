package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// noted is a store that notes what it's told.
type noted struct{ calls []string }

func (n *noted) Replace(state []client.Event[Widget], version string) {
	var names []string
	for _, e := range state {
		names = append(names, e.Key.Name+"@"+e.ResourceVersion)
	}
	n.calls = append(n.calls, fmt.Sprintf("replace %s: %s", version, strings.Join(names, " ")))
}

func (n *noted) Apply(e client.Event[Widget]) {
	n.calls = append(n.calls, strings.TrimSpace(fmt.Sprint(e.Type, " ", e.Key.Name, "@", e.ResourceVersion)))
}

func (n *noted) Resync() { n.calls = append(n.calls, "resync") }

const initialEnd = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"

func listOf(version string, names ...string) string {
	var items []string
	for _, name := range names {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"3"}}`, name))
	}
	return fmt.Sprintf(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":%q},"items":[%s]}`, version, strings.Join(items, ","))
}

// TestReflect: what the store is told, and from which versions the server is asked.
func TestReflect(t *testing.T) {
	a, tooLarge := frame("ADDED", "a", "5"), `{"kind":"Status","status":"Failure","code":504,"reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}`
	for _, tt := range []struct {
		name    string
		answers []answer
		asked   []string // versions
		calls   []string
	}{
		{"streamed, then followed", []answer{{body: a + initialEnd + frame("MODIFIED", "a", "11"), hold: true}},
			[]string{""}, []string{"replace 9: a@5", "MODIFIED a@11"}},
		{"a change while it's streamed", []answer{{body: a + frame("ADDED", "b", "4") + frame("MODIFIED", "a", "8") + frame("DELETED", "b", "9") + initialEnd, hold: true}},
			[]string{""}, []string{"replace 9: a@8"}},
		{"changes of what was given, wasn't given, goes and comes again", []answer{{body: a + frame("ADDED", "b", "4") + frame("ADDED", "c", "3") + frame("DELETED", "a", "6") +
			frame("MODIFIED", "d", "7") + frame("DELETED", "e", "7") + frame("ADDED", "a", "8") + frame("MODIFIED", "c", "9") + frame("DELETED", "b", "9") + initialEnd, hold: true}},
			[]string{""}, []string{"replace 9: c@9 a@8 d@7"}},
		{"a clean end goes on at once", []answer{{body: a + initialEnd}, {body: frame("DELETED", "a", "12"), hold: true}},
			[]string{"", "9"}, []string{"replace 9: a@5", "DELETED a@12"}},
		{"a stream that is cut before the end gives nothing", []answer{{body: a}, {body: a + initialEnd, hold: true}},
			[]string{"", ""}, []string{"replace 9: a@5"}},
		{"listed where it can't be streamed", []answer{{status: 422}, {body: listOf("7", "a", "b")}, {body: frame("ADDED", "c", "8"), hold: true}},
			[]string{"", "", "7"}, []string{"replace 7: a@3 b@3", "ADDED c@8"}},
		{"listed where the stream has no end", []answer{{body: a + frame("BOOKMARK", "", "6"), hold: true}, {body: listOf("7")}, {hold: true}},
			[]string{"", "", "7"}, []string{"replace 7: "}},
		{"gone: from the last version", []answer{{body: a + initialEnd + errorFrame(410, "Expired")}, {body: a + initialEnd, hold: true}},
			[]string{"", "9"}, []string{"replace 9: a@5", "replace 9: a@5"}},
		{"gone, and unknown: whatever there is", []answer{{body: a + initialEnd + errorFrame(410, "Expired")}, {status: 504, body: tooLarge}, {body: initialEnd, hold: true}},
			[]string{"", "9", ""}, []string{"replace 9: a@5", "replace 9: "}},
		{"an answer that says gone", []answer{{body: a + initialEnd}, {status: 410}, {status: 410}, {body: initialEnd, hold: true}},
			[]string{"", "9", "9", ""}, []string{"replace 9: a@5", "replace 9: "}},
		{"gone after a list, and the next list fails", []answer{{status: 422}, {body: listOf("7", "a")}, {status: 410}, {status: 500}, {body: listOf("8", "a")}, {hold: true}},
			[]string{"", "", "7", "", "", "8"}, []string{"replace 7: a@3", "replace 8: a@3"}},
		{"forbidden is tried again", []answer{{status: 403}, {body: initialEnd, hold: true}},
			[]string{"", ""}, []string{"replace 9: "}},
		{"an event without a version is no progress", []answer{{body: initialEnd + frame("ADDED", "b", "")}, {hold: true}},
			[]string{"", "9"}, []string{"replace 9: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				widgets, s := scripting(t, tt.answers...)
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
				defer cancel()
				var store noted
				if err := client.Reflect(ctx, widgets, &store); err == nil || err.Error() != "enough" {
					t.Errorf("Reflect ended with %v", err)
				}
				if !slices.Equal(store.calls, tt.calls) || !slices.Equal(s.versions, tt.asked) {
					t.Errorf("asked for %q, and told %q; want %q and %q", s.versions, store.calls, tt.asked, tt.calls)
				}
			})
		})
	}
}

// forgetful is a server that knows nothing of the version that its list has just had. It counts its requests, and after very
// many leaves them without an answer.
type forgetful struct{ requests int }

func (f *forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	a := answer{body: listOf("7")}
	switch {
	case r.URL.Query().Get("sendInitialEvents") != "":
		a = answer{status: 422}
	case r.URL.Query().Get("watch") != "":
		a = answer{status: 410}
	}
	if f.requests++; f.requests > 1000 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return (&script{answers: []answer{a}}).RoundTrip(r)
}

// TestGoneAfterEachList: such a server is asked with pauses that grow, each of which is a failure.
func TestGoneAfterEachList(t *testing.T) {
	for name, run := range map[string]func(context.Context, client.Collection[Widget]) error{
		"Reflect": func(ctx context.Context, widgets client.Collection[Widget]) error {
			var counters client.Counters
			defer func() {
				if counters.Failures.Load() < 5 {
					t.Errorf("%d failures are counted", counters.Failures.Load())
				}
			}()
			return client.Reflect(ctx, widgets, &noted{}, client.CountIn(&counters))
		},
		"Until": func(ctx context.Context, widgets client.Collection[Widget]) error {
			_, err := widgets.Until(ctx, "a", func(*Widget) (bool, error) { return false, nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s forgetful
				c := must(client.New("http://script", client.Options{HTTP: &http.Client{Transport: &s}, Log: slog.New(slog.DiscardHandler)}))(t)
				ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, errors.New("enough"))
				defer cancel()
				err := run(ctx, client.Resource[Widget](c, "example.com/v1", "widgets"))
				if err == nil || err.Error() != "enough" || s.requests > 50 {
					t.Errorf("it ended with %v after %d requests", err, s.requests)
				}
			})
		})
	}
}

// TestReflectNeverStarts: where there has been no state, the error says why not.
func TestReflectNeverStarts(t *testing.T) {
	for _, want := range []error{client.ErrForbidden, client.ErrNotFound} {
		synctest.Test(t, func(t *testing.T) {
			status := map[error]int{client.ErrForbidden: 403, client.ErrNotFound: 404}[want]
			widgets, _ := scripting(t, answer{status: status})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := client.StartCache(ctx, widgets)
			if !errors.Is(err, want) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("StartCache ended with %v, want %v", err, want)
			}
		})
	}
}

// TestReflectPauses: longer ones after each failure, and the first again after two quiet minutes; lag says that there is
// no connection.
func TestReflectPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets, s := scripting(t, answer{status: 500}, answer{status: 500}, answer{status: 500}, answer{body: initialEnd, hold: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var counters client.Counters
		client.Reflect(ctx, widgets, &noted{}, client.CountIn(&counters))
		last, want := time.Duration(0), 800*time.Millisecond
		for _, at := range s.times[1:] {
			if pause := at - last; pause < want || pause > want+want/2 {
				t.Errorf("a pause is %v, want %v to %v", pause, want, want+want/2)
			}
			last, want = at, 2*want
		}
		if counters.Lists.Load() != 1 || counters.Watches.Load() != 4 || counters.Failures.Load() != 3 || counters.Lag() == 0 {
			t.Errorf("lists %d, watches %d, failures %d, lag %v", counters.Lists.Load(), counters.Watches.Load(), counters.Failures.Load(), counters.Lag())
		}
	})
}

// TestResync: subscribers are told of each object from time to time.
func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets, _ := scripting(t, answer{body: frame("ADDED", "a", "5") + initialEnd, hold: true})
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		cache, err := client.StartCache(ctx, widgets, client.Resync(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for change, err := range cache.Changes(ctx) {
			if err == nil {
				got = append(got, change.Type.String())
			}
		}
		cache.Close()
		if want := []string{"ADDED", "MODIFIED", "MODIFIED"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// TestResyncComesAfterAState: a store is told of a state before anything else.
func TestResyncComesAfterAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets, _ := scripting(t, answer{status: 500}, answer{body: initialEnd, hold: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second/2)
		defer cancel()
		var store noted
		client.Reflect(ctx, widgets, &store, client.Resync(20*time.Second), client.Backoff(50*time.Second, 50*time.Second))
		if want := []string{"replace 9: ", "resync"}; !slices.Equal(store.calls, want) {
			t.Errorf("told %q, want %q", store.calls, want)
		}
	})
}

// TestWaitersHearThatTheCacheEnded: who waits for a cache that has ended is told, after all that there is to tell.
func TestWaitersHearThatTheCacheEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets, _ := scripting(t, answer{body: frame("ADDED", "a", "5") + initialEnd, hold: true})
		cache := must(client.StartCache(t.Context(), widgets))(t)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if err := cache.WaitFor(t.Context(), "10"); !errors.Is(err, client.ErrClosed) {
				t.Errorf("WaitFor ended with %v", err)
			}
		})
		for name, changes := range map[string]iter.Seq2[client.Change[Widget], error]{"newest": cache.Changes(t.Context()), "every": cache.EveryChange(t.Context())} {
			waiting.Go(func() {
				told, ended := 0, error(nil)
				for _, err := range changes {
					if ended = err; err == nil {
						told++
					}
				}
				if told != 1 || !errors.Is(ended, client.ErrClosed) {
					t.Errorf("%s: ended with %v after %d changes", name, ended, told)
				}
			})
		}
		synctest.Wait()
		cache.Close()
		waiting.Wait()
		if err := cache.WaitFor(t.Context(), "9"); err != nil {
			t.Errorf("what the cache has is waited for with %v", err)
		}
	})
}

// foreign is an object whose type doesn't embed Meta.
type foreign struct {
	Metadata struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"metadata"`
}

// TestCreatedAnewIsToldAsBoth: what was deleted and created anew while nobody could see it is told as both, whatever the type.
func TestCreatedAnewIsToldAsBoth(t *testing.T) {
	t.Run("Meta", anew[Widget])
	t.Run("Object", anew[client.Object])
	t.Run("a type of others", anew[foreign])
}

func anew[T any](t *testing.T) {
	state := func(uid, version string) []client.Event[T] {
		object := new(T)
		if err := json.Unmarshal(fmt.Appendf(nil, `{"metadata":{"name":"a","uid":%q}}`, uid), object); err != nil {
			t.Fatal(err)
		}
		return []client.Event[T]{{Type: client.Added, Key: client.Key{Name: "a"}, Object: object, ResourceVersion: version}}
	}
	var cache client.Cache[T]
	cache.Replace(state("1", "5"), "5")
	var got []string
	for change := range cache.EveryChange(t.Context()) {
		switch got = append(got, change.Type.String()); len(got) {
		case 1:
			cache.Replace(state("1", "6"), "6")
			cache.Replace(state("2", "7"), "7")
		case 4:
			if want := []string{"ADDED", "MODIFIED", "DELETED", "ADDED"}; !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
			return
		}
	}
}

// TestCacheReads: keys, labels, indexes, and waiting for a version.
func TestCacheReads(t *testing.T) {
	widgets, ctx := collection(t, define(t).URL), bounded(t)
	for i := range 4 {
		w := widget("w"+strconv.Itoa(i), i%2)
		w.Labels = map[string]string{"tier": []string{"front", "back"}[i/2]}
		must(widgets.Create(ctx, w))(t)
	}
	cache := must(client.StartCache(ctx, widgets))(t)
	defer cache.Close()
	bySize := func(w *Widget) []string { return []string{strconv.Itoa(w.Spec.Size)} }
	cache.AddIndex("size", bySize)
	names := func(all func(func(*Widget) bool)) string {
		var names []string
		for w := range all {
			names = append(names, w.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	front, err := selectors.ParseLabels("tier=front")
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s are %q, want %q", what, got, want)
		}
	}
	expect("all", names(cache.All()), "w0 w1 w2 w3")
	expect("those in front", names(cache.Select(front)), "w0 w1")
	expect("those of size 1", names(cache.Indexed("size", "1")), "w1 w3")
	w1 := must(resize(ctx, widgets, "w1", 7))(t)
	if err := cache.WaitFor(ctx, w1.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	expect("those of size 1", names(cache.Indexed("size", "1")), "w3")
	expect("those of size 7", names(cache.Indexed("size", "7")), "w1")
	if got := cache.Get(client.Key{Namespace: "default", Name: "w1"}); got == nil || got.ResourceVersion != w1.ResourceVersion {
		t.Errorf("after its own write the program reads %+v", got)
	}
	if !cache.Synced() || cache.Len() != 4 {
		t.Errorf("synced %v, %d objects", cache.Synced(), cache.Len())
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if err := cache.WaitFor(short, "99999999999"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for the future ends with %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("an index that isn't there is no mistake")
		}
	}()
	for range cache.Indexed("colour", "red") {
	}
}

// TestWaitFor: those who wait for a version wait for theirs, in whichever order they come and go.
func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cache client.Cache[Widget]
		cache.Replace(nil, "1")
		var reached []string
		var mu sync.Mutex
		var waiting sync.WaitGroup
		given, giveUp := context.WithCancel(t.Context())
		for ctx, versions := range map[context.Context][]string{t.Context(): {"12", "3", "10", "3"}, given: {"11", "3"}} {
			for _, version := range versions {
				waiting.Go(func() {
					err := cache.WaitFor(ctx, version)
					mu.Lock()
					defer mu.Unlock()
					if reached = append(reached, version); err != nil {
						reached[len(reached)-1] += " " + err.Error()
					}
				})
			}
		}
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() { cache.Apply(client.Event[Widget]{Type: client.Bookmark, ResourceVersion: "2"}) }, ""},
			{func() { cache.Apply(client.Event[Widget]{Type: client.Bookmark, ResourceVersion: "9"}) }, "3 3 3"},
			{giveUp, "11 context canceled"},
			{func() { cache.Apply(client.Event[Widget]{Type: client.Bookmark, ResourceVersion: "10"}) }, "10"},
			{func() { cache.Replace(nil, "13") }, "12"},
		} {
			synctest.Wait()
			step.do()
			synctest.Wait()
			mu.Lock()
			if got := strings.Join(reached, " "); got != step.want {
				t.Errorf("those who are told wait for %q, want %q", got, step.want)
			}
			reached = nil
			mu.Unlock()
		}
		waiting.Wait()
	})
}

// TestChanges: what a subscriber that reads late is told of one object, by what happened meanwhile.
func TestChanges(t *testing.T) {
	for _, tt := range []struct {
		name, known, then string // letters: a to d are states of one object, - is its deletion
		newest, every     string
	}{
		{"nothing", "a", "", "", ""},
		{"came", "", "a", "+a", "+a"},
		{"came and changed", "", "abc", "+c", "+a a>b b>c"},
		{"came and went", "", "ab-", "", "+a a>b b-"},
		{"changed", "a", "bcd", "a>d", "a>b b>c c>d"},
		{"changed and went", "a", "b-", "b-", "a>b b-"},
		{"went and came", "a", "-b", "a- +b", "a- +b"},
		{"went, came and went", "a", "-b-", "a-", "a- +b b-"},
		{"changed, went, came and changed", "a", "b-cd", "b- +d", "a>b b- +c c>d"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := client.Key{Name: "x"}
				version := 0
				happens := func(cache *client.Cache[Widget], states string) {
					for _, letter := range states {
						version++
						e := client.Event[Widget]{Type: client.Modified, Key: key, ResourceVersion: strconv.Itoa(version)}
						if letter == '-' {
							e.Type, e.Object = client.Deleted, cache.Get(key)
						} else {
							e.Object = widget(string(letter), 0)
						}
						cache.Apply(e)
					}
				}
				for _, every := range []bool{false, true} {
					var cache client.Cache[Widget]
					cache.Replace(nil, "0")
					happens(&cache, tt.known)
					changes, want := cache.Changes, tt.newest
					if every {
						changes, want = cache.EveryChange, tt.every
					}
					if got := told(t, &cache, changes, func() { happens(&cache, tt.then) }); got != want {
						t.Errorf("every change %v: told %q, want %q", every, got, want)
					}
				}
			})
		})
	}
}

// told returns what a subscriber is told of what happens while it's busy with what there was.
func told(t *testing.T, cache *client.Cache[Widget], changes func(context.Context) iter.Seq2[client.Change[Widget], error], happen func()) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if cache.Len() == 0 { // something to be busy with
		cache.Apply(client.Event[Widget]{Type: client.Added, Key: client.Key{Name: "other"}, Object: widget("other", 0), ResourceVersion: "0"})
	}
	var all []string
	busy := false
	for change, err := range changes(ctx) {
		switch {
		case err != nil:
		case !busy:
			busy = true
			happen()
		case change.Type == client.Added:
			all = append(all, "+"+change.New.Name)
		case change.Type == client.Modified:
			all = append(all, change.Old.Name+">"+change.New.Name)
		case change.Type == client.Deleted:
			all = append(all, change.Old.Name+"-")
		}
	}
	return strings.Join(all, " ")
}
