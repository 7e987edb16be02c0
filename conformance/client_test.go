package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/internal/faultproxy"
)

// This file has our Go client beside client-go's, which says what a watcher is to be given.

// ours returns the widgets of the default namespace for our client.
func ours(t testing.TB, url string) client.Collection[client.Object] {
	t.Helper()
	c, err := client.New(url, client.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return client.Resource[client.Object](c, "example.com/v1", "widgets").In("default")
}

// retryWatcher follows the widgets from a version with client-go's RetryWatcher, through the same kind of link.
func retryWatcher(t *testing.T, url, version string) *watchtools.RetryWatcher {
	t.Helper()
	c := dynamicFor(t, &rest.Config{Host: url, QPS: -1}).Resource(widgets).Namespace("default")
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), version, &cache.ListWatch{WatchFuncWithContext: c.Watch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// given is what a watcher was given: "TYPE name version size".
type given []string

func (g *given) add(eventType string, object *unstructured.Unstructured) {
	size, _, _ := unstructured.NestedInt64(object.Object, "spec", "size")
	*g = append(*g, fmt.Sprint(eventType, " ", object.GetName(), " ", object.GetResourceVersion(), " ", size))
}

// fromRetryWatcher reads until the object named last, or the end.
func fromRetryWatcher(w *watchtools.RetryWatcher, last string) (g given, end string) {
	for event := range w.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return g, fmt.Sprint(event.Object.(*metav1.Status).Code)
		}
		if object.GetName() == last {
			return g, "last"
		}
		g.add(string(event.Type), object)
	}
	return g, "closed"
}

// fromFollow is the same with ours.
func fromFollow(ctx context.Context, widgets client.Collection[client.Object], version, last string) (g given, end string) {
	for event, err := range widgets.Follow(ctx, version) {
		if refusal, ok := errors.AsType[*client.StatusError](err); ok {
			return g, fmt.Sprint(refusal.Code)
		}
		if err != nil {
			return g, err.Error()
		}
		if event.Key.Name == last {
			return g, "last"
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(*event.Object); err != nil {
			return g, err.Error()
		}
		g.add(event.Type.String(), object)
	}
	return g, "silent"
}

// changes makes so many changes of one writer, and then creates the object named last.
func changes(t *testing.T, s *apiserver, n int) {
	t.Helper()
	c := s.dynamic().Resource(widgets).Namespace("default")
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for done := 0; done < n && !t.Failed(); {
		if write(t, c, random) {
			done++
		}
	}
	if _, err := c.Create(t.Context(), widget("last", 0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestFollowBesideRetryWatcher: after each single fault both give the same events, and end alike, but for an HTTP 410, at
// which RetryWatcher asks for ever.
func TestFollowBesideRetryWatcher(t *testing.T) {
	s := startEphemeral(t)
	s.define()
	list, err := s.dynamic().Resource(widgets).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	start := list.GetResourceVersion()
	changes(t, s, 30)
	for _, tt := range []struct {
		name  string
		fault faultproxy.Fault
		end   string
	}{
		{"none", faultproxy.Fault{}, "last"},
		{"late", faultproxy.Fault{Delay: time.Second / 10}, "last"},
		{"cut between frames", faultproxy.Fault{Spoil: faultproxy.Cut, Lines: 7}, "last"},
		{"cut within a frame", faultproxy.Fault{Spoil: faultproxy.Cut, Lines: 7, Bytes: 100}, "last"},
		{"cut at once", faultproxy.Fault{Spoil: faultproxy.Cut}, "last"},
		{"clean end", faultproxy.Fault{Spoil: faultproxy.End, Lines: 7}, "last"},
		{"clean end within a frame", faultproxy.Fault{Spoil: faultproxy.End, Lines: 7, Bytes: 100}, "last"},
		{"garbage", faultproxy.Fault{Spoil: faultproxy.Garbage, Lines: 7, Text: "<html>\n"}, "last"},
		{"an ERROR 500", faultproxy.Fault{Spoil: faultproxy.Garbage, Lines: 7, Text: `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}}` + "\n"}, "last"},
		{"an ERROR 410", faultproxy.Fault{Spoil: faultproxy.Garbage, Lines: 7, Text: faultproxy.Expired}, "410"},
		{"429", faultproxy.Fault{Status: 429, Reason: "TooManyRequests", RetryAfter: 1}, "last"},
		{"500", faultproxy.Fault{Status: 500, Reason: "InternalError"}, "last"},
		{"503", faultproxy.Fault{Status: 503, Reason: "ServiceUnavailable"}, "last"},
		{"403", faultproxy.Fault{Status: 403, Reason: "Forbidden"}, "403"},
		{"401", faultproxy.Fault{Status: 401, Reason: "Unauthorized"}, "401"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			once := func() string { // a proxy that does it to the first request
				var asked atomic.Bool
				return faultproxy.New(t, s.url, func(*http.Request) faultproxy.Fault {
					if asked.Swap(true) {
						return faultproxy.Fault{}
					}
					return tt.fault
				}).URL
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			want, wantEnd := fromRetryWatcher(retryWatcher(t, once(), start), "last")
			got, end := fromFollow(ctx, ours(t, once()), start, "last")
			if !slices.Equal(got, want) || end != wantEnd || end != tt.end {
				t.Errorf("Follow gave, and ended with %s\n%q\nRetryWatcher, and ended with %s\n%q\nwant the end %s", end, got, wantEnd, want, tt.end)
			}
		})
	}
	t.Run("an HTTP 410", func(t *testing.T) {
		proxy := faultproxy.New(t, s.url, func(*http.Request) faultproxy.Fault { return faultproxy.Fault{Status: 410, Reason: "Expired"} })
		if got, end := fromFollow(t.Context(), ours(t, proxy.URL), start, "last"); len(got) > 0 || end != "410" {
			t.Errorf("Follow gave %q and ended with %s", got, end)
		}
	})
}

// TestFollowOverRestarts: the server is stopped and started again while it's written to, and nothing is missed: both are
// given the same.
func TestFollowOverRestarts(t *testing.T) {
	s := start(t)
	s.define()
	list, err := s.dynamic().Resource(widgets).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	version := list.GetResourceVersion()
	var want, got given
	var wantEnd, end string
	var readers sync.WaitGroup
	theirs, mine := retryWatcher(t, s.url, version), ours(t, s.url)
	readers.Go(func() { want, wantEnd = fromRetryWatcher(theirs, "last") })
	readers.Go(func() { got, end = fromFollow(t.Context(), mine, version, "last") })
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for range 2 {
		for range 50 {
			write(t, s.dynamic().Resource(widgets).Namespace("default"), random)
		}
		s.restart()
	}
	changes(t, s, 50)
	readers.Wait()
	if !slices.Equal(got, want) || end != "last" || wantEnd != "last" || len(got) == 0 {
		t.Errorf("Follow gave, and ended with %s\n%q\nRetryWatcher, and ended with %s\n%q", end, got, wantEnd, want)
	}
}

// TestCacheBesideInformer: through links that break all the time, our cache and client-go's informer come to the same state.
func TestCacheBesideInformer(t *testing.T) {
	for _, mode := range informerModes {
		t.Run(mode.name, func(t *testing.T) {
			s := startEphemeral(t)
			s.define()
			var healed atomic.Bool // at the end, because client-go pauses longer and longer
			proxy := faultproxy.New(t, s.url, func(r *http.Request) faultproxy.Fault {
				if !mode.watchList && r.URL.Query().Get("sendInitialEvents") != "" {
					return faultproxy.Fault{Status: 422, Reason: "Invalid"}
				}
				if healed.Load() || r.URL.Query().Get("watch") == "" {
					return faultproxy.Fault{}
				}
				text := []string{"", "<html>\n", faultproxy.Expired}[rand.IntN(3)]
				return faultproxy.Fault{Spoil: []faultproxy.Spoil{faultproxy.Cut, faultproxy.End, faultproxy.Garbage}[rand.IntN(3)], Lines: rand.IntN(60), Text: text}
			})
			informer := runInformer(t, dynamicFor(t, &rest.Config{Host: proxy.URL, QPS: -1}), nil)
			mine, err := client.StartCache(t.Context(), ours(t, proxy.URL), client.Backoff(10*time.Millisecond, 100*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer mine.Close()
			changes(t, s, 500)
			healed.Store(true)
			state := func() (theirs, ours map[string]string) {
				theirs, ours = map[string]string{}, map[string]string{}
				for _, object := range informer.GetStore().List() {
					u := object.(*unstructured.Unstructured)
					theirs[u.GetName()] = u.GetResourceVersion()
				}
				for object := range mine.All() {
					ours[object.Name()] = object.ResourceVersion()
				}
				return theirs, ours
			}
			eventually(t, "both have the same, and all of it", func(context.Context) bool {
				theirs, ours := state()
				return ours["last"] != "" && maps.Equal(theirs, ours)
			})
			if proxy.Spoiled.Load() == 0 {
				t.Error("nothing went wrong: the test is worth nothing")
			}
		})
	}
}

// TestClientOverCompaction: history is gone while the connection is: Follow ends with ErrExpired, and a cache lists anew,
// tells its subscribers what vanished, and is right.
func TestClientOverCompaction(t *testing.T) {
	s := forgetful(t)
	theirs := s.dynamic().Resource(widgets).Namespace("default")
	for _, name := range []string{"a", "b"} {
		if _, err := theirs.Create(t.Context(), widget(name, 0), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var away atomic.Bool
	proxy := faultproxy.New(t, s.url, func(*http.Request) faultproxy.Fault {
		if away.Load() {
			return faultproxy.Fault{Status: 503, Reason: "ServiceUnavailable"}
		}
		return faultproxy.Fault{}
	})
	mine, err := client.StartCache(t.Context(), ours(t, proxy.URL), client.Backoff(10*time.Millisecond, 100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	version := mine.Version()
	deleted := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var subscriber sync.WaitGroup
	defer subscriber.Wait()
	defer cancel()
	subscriber.Go(func() {
		for change, err := range mine.Changes(ctx) {
			if err == nil && change.Type == client.Deleted {
				deleted <- change.Key.Name + " " + change.Old.ResourceVersion()
			}
		}
	})

	away.Store(true)
	proxy.Break()
	b, err := theirs.Get(t.Context(), "b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.outlive(version)
	away.Store(false)

	if got, want := <-deleted, "b "+b.GetResourceVersion(); got != want {
		t.Errorf("deleted is %q, want %q", got, want)
	}
	list, err := theirs.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := mine.WaitFor(t.Context(), list.GetResourceVersion()); err != nil {
		t.Fatal(err)
	}
	if mine.Len() != len(list.Items) || mine.Counters().Relists.Load() == 0 {
		t.Errorf("the cache has %d objects after %d relists, want %d", mine.Len(), mine.Counters().Relists.Load(), len(list.Items))
	}
	if got, end := fromFollow(t.Context(), ours(t, s.url), version, "last"); len(got) > 0 || end != strconv.Itoa(http.StatusGone) {
		t.Errorf("Follow from a version that is gone gave %q and ended with %s", got, end)
	}
	if w, ok := <-retryWatcher(t, s.url, version).ResultChan(); !ok || w.Type != watch.Error {
		t.Errorf("RetryWatcher gave %v", w)
	}
}
