package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/internal/faultproxy"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// faultyTimeout is how long a request through the proxy waits for an answer that may never come.
const faultyTimeout = 2 * time.Second

// faulty returns the widgets as seen through a proxy.
func faulty(t *testing.T, url string, plan func(*http.Request) faultproxy.Fault) (client.Collection[Widget], *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.New(t, url, plan)
	c, err := client.New(proxy.URL, client.Options{Log: slog.New(slog.DiscardHandler), Timeout: faultyTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return client.Resource[Widget](c, "example.com/v1", "widgets").In("default"), proxy
}

// chaos is a plan that spoils most watches at random places, in every way that a watch survives.
type chaos struct {
	mu     sync.Mutex // guards random, gone and hangs
	random *rand.Rand
	// expired says that history may be gone, too: it's once, as soon as something goes on from a version.
	expired bool
	gone    bool // that has happened
	hangs   int  // that there have been
}

func newChaos(t *testing.T) *chaos {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &chaos{random: rand.New(rand.NewPCG(seed, 0))}
}

func (c *chaos) plan(r *http.Request) faultproxy.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := []faultproxy.Fault{
		{},
		{Delay: time.Duration(c.random.IntN(20)) * time.Millisecond, Spoil: faultproxy.Cut},
		{Status: 429, Reason: "TooManyRequests", RetryAfter: 1},
		{Status: 429, Reason: "TooManyRequests"},
		{Status: 500, Reason: "InternalError"},
		{Status: 503, Reason: "ServiceUnavailable"},
		{Spoil: faultproxy.Cut},
		{Spoil: faultproxy.End},
		{Spoil: faultproxy.Garbage, Text: "<html>Bad Gateway</html>\n"},
		{Spoil: faultproxy.Garbage, Text: "\x00\xff{\"type\":\"ADDED\",\"object\":{}\n"},
		{Spoil: faultproxy.Garbage, Text: `{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":500,"reason":"InternalError"}}` + "\n"},
	}
	if c.hangs < mostHangs && c.random.IntN(20) == 0 {
		c.hangs++
		return faultproxy.Fault{Hang: true}
	}
	if c.expired && !c.gone && r.URL.Query().Get("resourceVersion") != "" {
		c.gone = true
		return faultproxy.Fault{Status: 410, Reason: "Expired"}
	}
	if c.expired {
		faults = append(faults, faultproxy.Fault{Status: 410, Reason: "Expired"}, faultproxy.Fault{Spoil: faultproxy.Garbage, Text: faultproxy.Expired})
	}
	weights := []int{0, 4, 0, 1, 1, 1, 4, 4, 1, 1, 1, 1, 1}
	if c.random.IntN(20) == 0 {
		weights[2] = 10 // which takes a second
	}
	fault := pick(c.random, faults, weights)
	fault.Lines = c.random.IntN(1 + c.random.IntN(60)) // more than there are objects, so that a state gets through
	if fault.Spoil == faultproxy.Cut || fault.Spoil == faultproxy.End {
		fault.Bytes = c.random.IntN(300)
	}
	if r.URL.Query().Get("watch") == "" && fault.Spoil != faultproxy.Cut && fault.Status == 0 {
		fault.Spoil = faultproxy.Nothing // a list that is cut is an error, one with garbage none that anybody survives
	}
	return fault
}

// mostHangs is how many requests of a run are accepted and never answered: each takes faultyTimeout.
const mostHangs = 1

func pick[T any](random *rand.Rand, from []T, weights []int) T {
	sum := 0
	for i := range from {
		sum += weights[i]
	}
	n := random.IntN(sum)
	for i := range from {
		if n -= weights[i]; n < 0 {
			return from[i]
		}
	}
	panic("unreachable")
}

// history is what happened to each object, in order.
type history map[string][]string

// histories are what happened to all objects, and to those in front: an object that moves there comes, and one that moves away
// goes.
type histories struct{ all, front history }

// inFront selects the objects of histories.front.
const inFront = "tier=front"

// placed is a widget in front or in the back.
func placed(name string, size int, front bool) *Widget {
	w := widget(name, size)
	w.Labels = map[string]string{"tier": "back"}
	if front {
		w.Labels["tier"] = "front"
	}
	return w
}

// write adds what a write made of an object.
func (h history) write(name string, was, is bool, size int) {
	switch {
	case was && is:
		h[name] = append(h[name], "MODIFIED "+strconv.Itoa(size))
	case is:
		h[name] = append(h[name], "ADDED "+strconv.Itoa(size))
	case was:
		h[name] = append(h[name], "DELETED")
	}
}

// scribble makes random changes to widgets until ctx ends or n are made, by three writers, and returns what they did.
func scribble(ctx context.Context, t *testing.T, widgets client.Collection[Widget], n int) histories {
	var mu sync.Mutex // guards done
	done := histories{history{}, history{}}
	var wait sync.WaitGroup
	for writer := range 3 {
		wait.Go(func() {
			type state struct{ exists, front bool }
			states := map[string]state{}
			for i := range n / 3 {
				name := fmt.Sprintf("w%d-%d", writer, rand.IntN(5))
				was, is := states[name], state{true, rand.IntN(2) == 0}
				var err error
				size := i
				switch w := placed(name, i, is.front); {
				case !was.exists:
					_, err = widgets.Create(ctx, w)
				case rand.IntN(4) > 0:
					_, err = widgets.Patch(ctx, name, client.Merge(map[string]any{"metadata": map[string]any{"labels": w.Labels}, "spec": w.Spec}))
				default:
					is, size = state{}, deleted
					err = widgets.Delete(ctx, name)
				}
				var happened bool
				if happened, err = outcome(ctx, widgets, name, size, err); err != nil {
					t.Errorf("write %d of %s: %v", i, name, err)
					return
				}
				if !happened {
					continue
				}
				states[name] = is
				mu.Lock()
				done.all.write(name, was.exists, is.exists, size)
				done.front.write(name, was.front, is.front, size)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return done
}

// outcome tells whether a write of an object happened that was answered with err, or else it returns err. A server whose disk
// stands still for seconds doesn't know that itself. Its only writer can tell from what there is once a later write was answered.
// size is what the object has after the write, or deleted.
func outcome(ctx context.Context, widgets client.Collection[Widget], name string, size int, err error) (happened bool, _ error) {
	if !unanswered(err) {
		return err == nil, err
	}
	for n := 0; unanswered(err); n++ {
		_, err = widgets.Create(ctx, widget(fmt.Sprintf("later-%s-%d-%d", name, size, n), 0))
	}
	if err != nil {
		return false, err
	}
	w, err := widgets.Get(ctx, name)
	if errors.Is(err, client.ErrNotFound) {
		return size == deleted, nil
	}
	return err == nil && w.Spec.Size == size, err
}

// unanswered tells whether the store couldn't answer now (503), or hasn't answered a write, which may have happened (504).
func unanswered(err error) bool {
	var status *client.StatusError
	return errors.Is(err, client.ErrUnavailable) || errors.As(err, &status) && status.Code == http.StatusGatewayTimeout
}

// deleted is no size that a widget has.
const deleted = -1

// add adds an event to a history.
func (h history) add(event client.Event[Widget]) {
	what := event.Type.String()
	if event.Type != client.Deleted {
		what += " " + strconv.Itoa(event.Object.Spec.Size)
	}
	h[event.Key.Name] = append(h[event.Key.Name], what)
}

// diff returns where the histories differ.
func (h history) diff(want history) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(h[name], want[name]) {
			problems = append(problems, fmt.Sprintf("%s: got %q, want %q", name, h[name], want[name]))
		}
	}
	return problems
}

// rounds is how many changes a model test makes.
func rounds() int {
	if testing.Short() {
		return 300
	}
	return 1500
}

// modelPatience is how long a model test may take before it fails: some seconds, and much more on a machine that does much
// else.
const modelPatience = 5 * time.Minute

func boundedModel(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), modelPatience)
	t.Cleanup(cancel)
	return ctx
}

// TestFollowModel: through a proxy that spoils most of its connections, Follow gives every change once and in order, of all
// objects and of those that are selected, which come and go.
func TestFollowModel(t *testing.T) {
	s := define(t)
	direct, ctx := collection(t, s.URL), boundedModel(t)
	start := must(direct.List(ctx))(t).ResourceVersion
	var want histories
	var writer, readers sync.WaitGroup
	defer readers.Wait()
	got := map[string]history{"": {}, inFront: {}}
	for selector, got := range got {
		widgets, proxy := faulty(t, s.URL, newChaos(t).plan)
		readers.Go(func() { followModel(ctx, t, widgets, start, selector, got, proxy) })
	}
	writer.Go(func() {
		want = scribble(ctx, t, direct, rounds())
		if _, err := direct.Create(ctx, placed("last", 0, true)); err != nil {
			t.Error(err)
		}
	})
	writer.Wait()
	readers.Wait()
	for selector, want := range map[string]history{"": want.all, inFront: want.front} {
		for _, problem := range got[selector].diff(want) {
			t.Errorf("%q: %s", selector, problem)
		}
	}
}

// followModel adds to a history what Follow gives, until there is the widget called last.
func followModel(ctx context.Context, t *testing.T, widgets client.Collection[Widget], start, selector string, got history, proxy *faultproxy.Proxy) {
	last := 0
	var counters client.Counters
	for event, err := range widgets.Follow(ctx, start, client.Labels(selector), client.Backoff(time.Millisecond, 10*time.Millisecond), client.CountIn(&counters)) {
		if err != nil {
			t.Errorf("%q: %v", selector, err)
			return
		}
		version, err := strconv.Atoi(event.ResourceVersion)
		if err != nil || version <= last {
			t.Errorf("%q: after version %d comes %q", selector, last, event.ResourceVersion)
			return
		}
		last = version
		if event.Key.Name == "last" {
			break
		}
		got.add(event)
	}
	if proxy.Spoiled.Load() == 0 || counters.Failures.Load() == 0 {
		t.Error("nothing went wrong: the test is worth nothing")
	}
	t.Logf("%q: %d events over %d watches, %d spoiled", selector, counters.Events.Load(), counters.Watches.Load(), proxy.Spoiled.Load())
}

// TestCacheModel: through such a proxy, which also says now and then that history is gone, a cache is what a list at its
// version is, its subscribers see how each object got where it is, and it comes to the newest version. Half of the caches have
// a selector.
func TestCacheModel(t *testing.T) {
	s := define(t)
	direct := collection(t, s.URL)
	for name, paged := range map[string]bool{"state at the beginning of a watch": false, "state by list": true} {
		for _, selector := range []string{"", inFront} {
			t.Run(name+" "+selector, func(t *testing.T) { cacheModel(t, s, direct, paged, client.Labels(selector)) })
		}
	}
}

func cacheModel(t *testing.T, s *servertest.Server, direct client.Collection[Widget], paged bool, selected client.Option) {
	ctx := boundedModel(t)
	plan := newChaos(t)
	plan.expired = true
	widgets, proxy := faulty(t, s.URL, func(r *http.Request) faultproxy.Fault {
		if paged && r.URL.Query().Get("sendInitialEvents") != "" {
			return faultproxy.Fault{Status: 422, Reason: "Invalid"}
		}
		return plan.plan(r)
	})
	cache, err := client.StartCache(ctx, widgets, selected, client.Backoff(time.Millisecond, 10*time.Millisecond), client.PageSize(3))
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cache.Close()
	cache.AddIndex("size", func(w *Widget) []string { return []string{strconv.Itoa(w.Spec.Size)} })
	replay(ctx, t, &readers, cache)

	counters := cache.Counters()
	// The test is worth something once the proxy has spoiled watches, history was gone, and most watches had an event. On a
	// machine that does much else that takes longer than the writer.
	worth := func() bool {
		return proxy.Spoiled.Load() > 0 && counters.Relists.Load() > 0 && counters.Events.Load() >= counters.Watches.Load()
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		scribble(ctx, t, direct, rounds()/2)
		for !worth() {
			if err := direct.DeleteCollection(ctx); err != nil { // a writer begins without objects
				t.Errorf("too little has happened: %d lists, %d watches, %d events, %d spoiled: %v",
					counters.Lists.Load(), counters.Watches.Load(), counters.Events.Load(), proxy.Spoiled.Load(), err)
				return
			}
			scribble(ctx, t, direct, rounds()/2)
		}
	})
	written := make(chan struct{})
	go func() { writer.Wait(); close(written) }()
	compare(ctx, t, cache, direct, selected)
	for done := false; !done; {
		select {
		case <-written:
			done = true
		default:
			compare(ctx, t, cache, direct, selected)
		}
	}
	last := must(direct.Create(ctx, placed("last", 0, true)))(t)
	if err := cache.WaitFor(ctx, last.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	if got := cache.Get(client.Key{Namespace: "default", Name: "last"}); got == nil || got.UID != last.UID {
		t.Errorf("the cache doesn't have what it was waited for: %+v", got)
	}
	compare(ctx, t, cache, direct, selected)
	cache.Close()
	readers.Wait()
	indexed := map[*Widget]bool{}
	for object := range cache.All() {
		for found := range cache.Indexed("size", strconv.Itoa(object.Spec.Size)) {
			indexed[found] = indexed[found] || found == object
		}
	}
	for object, right := range indexed {
		if !right {
			t.Errorf("the index has %+v, which isn't in the cache", object)
		}
	}
	if len(indexed) != cache.Len() {
		t.Errorf("the index has %d objects, and the cache %d", len(indexed), cache.Len())
	}
	if err := direct.DeleteCollection(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d lists, %d watches, %d events, %d spoiled", counters.Lists.Load(), counters.Watches.Load(), counters.Events.Load(), proxy.Spoiled.Load())
}

// replay follows the cache by both kinds of subscription, checks that each change fits the one before it, and that they end,
// with the cache, at what the cache has.
func replay(ctx context.Context, t *testing.T, readers *sync.WaitGroup, cache *client.Cache[Widget]) {
	for name, changes := range map[string]iter.Seq2[client.Change[Widget], error]{"newest": cache.Changes(ctx), "every": cache.EveryChange(ctx)} {
		readers.Go(func() {
			known := map[client.Key]*Widget{}
			for change, err := range changes {
				if err != nil {
					if !errors.Is(err, client.ErrClosed) {
						t.Errorf("%s: it ends with %v", name, err)
					}
					break
				}
				old := known[change.Key]
				ok := false
				switch change.Type {
				case client.Added:
					ok = old == nil && change.Old == nil && change.New != nil
				case client.Modified:
					ok = old != nil && change.Old == old && change.New != nil && change.New.UID == old.UID
				case client.Deleted:
					ok = old != nil && change.New == nil && change.Old.UID == old.UID
				}
				if !ok {
					t.Errorf("%s: after %+v comes %v from %+v to %+v", name, old, change.Type, change.Old, change.New)
					return
				}
				if known[change.Key] = change.New; change.New == nil {
					delete(known, change.Key)
				}
				if name == "newest" && rand.IntN(10) == 0 {
					time.Sleep(time.Millisecond) // a slow subscriber, for which changes are put together
				}
			}
			objects, version := cache.Snapshot()
			for _, object := range objects {
				if known[client.Key{Namespace: object.Namespace, Name: object.Name}] != object {
					t.Errorf("%s: at version %s it wasn't told of %+v", name, version, object)
				}
			}
			if len(known) != len(objects) {
				t.Errorf("%s: it knows of %d objects, and the cache of %d", name, len(known), len(objects))
			}
		})
	}
}

// compare checks that the cache is what a list at its version is.
func compare(ctx context.Context, t *testing.T, cache *client.Cache[Widget], direct client.Collection[Widget], selected client.Option) {
	t.Helper()
	objects, version := cache.Snapshot()
	list, err := direct.List(ctx, selected, client.At(version))
	if err != nil {
		t.Fatal(err)
	}
	want, err := list.Slice(ctx)
	if err != nil {
		t.Fatal(err)
	}
	describe := func(w *Widget) string {
		return fmt.Sprint(w.Name, " ", w.UID, " ", w.ResourceVersion, " ", w.Spec.Size)
	}
	got, wanted := map[string]bool{}, map[string]bool{}
	for _, w := range objects {
		got[describe(w)] = true
	}
	for _, w := range want {
		wanted[describe(w)] = true
	}
	if !maps.Equal(got, wanted) {
		t.Fatalf("at version %s the cache has\n%v, and a list\n%v", version, got, wanted)
	}
}
