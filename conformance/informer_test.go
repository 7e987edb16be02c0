package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

const widgetsPath = "/apis/example.com/v1/widgets"

// informerModes are the two ways in which client-go's informers begin.
var informerModes = []struct {
	name      string
	watchList bool
}{
	{"streamed list", true},
	{"list and watch", false},
}

func TestInformer(t *testing.T) {
	for _, mode := range informerModes {
		t.Run(mode.name, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, mode.watchList)
			s := startEphemeral(t)
			s.define()
			client := s.dynamic().Resource(widgets).Namespace("default")
			for _, name := range []string{"a", "b"} {
				if _, err := client.Create(t.Context(), widget(name, 1), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			config, record := s.recorded()
			informer := runInformer(t, dynamicFor(t, config), func(options *metav1.ListOptions) { options.LabelSelector = "tier=front" })
			seen := make(chan string, 100)
			report(t, informer, seen)
			expect := func(wants ...string) {
				t.Helper()
				for _, want := range wants {
					if got := <-seen; got != want {
						t.Fatalf("the informer reports %q, want %q", got, want)
					}
				}
			}
			expectSet(t, seen, "add a", "add b")
			checkBeginning(t, record, mode.watchList)

			if _, err := client.Create(t.Context(), widget("c", 1), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, patch := range []string{`{"spec":{"size":2}}`, `{"metadata":{"labels":{"tier":"back"}}}`, `{"metadata":{"labels":{"tier":"front"}}}`} {
				if _, err := client.Patch(t.Context(), "a", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			expect("add c", "update a", "delete a", "add a", "delete b")
			eventuallyEqual(t, informer, client, "tier=front")
		})
	}
}

// runInformer starts an informer over all widgets, which ends with the test.
func runInformer(t testing.TB, client dynamic.Interface, tweak dynamicinformer.TweakListOptionsFunc) cache.SharedIndexInformer {
	t.Helper()
	informer := dynamicinformer.NewFilteredDynamicInformer(client, widgets, metav1.NamespaceAll, 0, cache.Indexers{}, tweak).Informer()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	eventually(t, "the informer has synced", func(context.Context) bool { return informer.HasSynced() })
	return informer
}

// report sends what the informer tells its handlers.
func report(t testing.TB, informer cache.SharedIndexInformer, seen chan<- string) {
	t.Helper()
	send := func(what string) func(any) {
		return func(obj any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			if err != nil {
				key = err.Error()
			}
			_, name, _ := cache.SplitMetaNamespaceKey(key)
			seen <- what + " " + name
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    send("add"),
		UpdateFunc: func(_, obj any) { send("update")(obj) },
		DeleteFunc: send("delete"),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func expectSet(t testing.TB, seen <-chan string, wants ...string) {
	t.Helper()
	want, got := map[string]int{}, map[string]int{}
	for _, w := range wants {
		want[w]++
		got[<-seen]++
	}
	if !maps.Equal(got, want) {
		t.Fatalf("the informer reports %v, want %v", got, want)
	}
}

// checkBeginning checks which requests an informer needed: one for the state, whatever version it asked for. A list again, after
// a watch ended, has the last version or none.
func checkBeginning(t testing.TB, r *record, watchList bool) {
	t.Helper()
	streams := r.matching("GET", widgetsPath, url.Values{"watch": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}})
	lists := r.matching("GET", widgetsPath, url.Values{"watch": {""}})
	if watchList && (len(streams) != 1 || len(lists) != 0) || !watchList && (len(streams) != 0 || len(lists) != 1) {
		t.Errorf("the informer asks for the streams %q and the lists %q", streams, lists)
	}
}

// eventuallyEqual waits until the informer has what a list returns.
func eventuallyEqual(t testing.TB, informer cache.SharedIndexInformer, client dynamic.ResourceInterface, labels string) {
	t.Helper()
	var stored, cached map[string]string
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: labels})
		if err != nil {
			return false, err
		}
		stored, cached = map[string]string{}, map[string]string{}
		for _, obj := range list.Items {
			stored[obj.GetName()] = string(obj.GetUID()) + " " + obj.GetResourceVersion()
		}
		for _, item := range informer.GetStore().List() {
			obj := item.(*unstructured.Unstructured)
			cached[obj.GetName()] = string(obj.GetUID()) + " " + obj.GetResourceVersion()
		}
		return maps.Equal(stored, cached), nil
	})
	if err != nil {
		t.Errorf("%v: the informer holds\n%v\nand the server\n%v", err, cached, stored)
	}
}

// TestInformerOverRestart restarts the server under eight writers. In the end the informer has what
// the server has, and it went on from where it was: it didn't list again.
func TestInformerOverRestart(t *testing.T) {
	plain := func(t testing.TB) *apiserver { return start(t) }
	tests := []struct {
		name      string
		watchList bool
		start     func(testing.TB) *apiserver
		proto     int32 // major version of HTTP
	}{
		{"streamed list", true, plain, 1},
		{"list and watch", false, plain, 1},
		{"streamed list with TLS and a token", true, startSecure, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, test.watchList)
			s := test.start(t)
			s.define()
			client := s.dynamic().Resource(widgets).Namespace("default")
			config, record := s.recorded()
			informer := runInformer(t, dynamicFor(t, config), nil)

			const before, after = 50, 50 // writes of each writer
			var writers, half sync.WaitGroup
			for i := range 8 {
				half.Add(1)
				writers.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), 1))
					for n := range before + after {
						if n == before {
							half.Done()
						}
						write(t, client, random)
					}
				})
			}
			half.Wait()
			s.restart()
			writers.Wait()
			eventuallyEqual(t, informer, client, "")
			checkBeginning(t, record, test.watchList)
			if proto := record.proto.Load(); proto != test.proto {
				t.Errorf("client-go spoke HTTP/%d, want HTTP/%d", proto, test.proto)
			}
		})
	}
}

// write changes one of some objects that all writers share, and returns whether that changed anything. It tries again while
// the server is away, and doesn't mind that others were faster.
func write(t testing.TB, client dynamic.ResourceInterface, random *rand.Rand) (changed bool) {
	name := fmt.Sprint("w", random.IntN(20))
	size, action := random.Int64(), random.IntN(4)
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		var err error
		switch action {
		case 0:
			err = client.Delete(ctx, name, metav1.DeleteOptions{})
		case 1:
			_, err = client.Create(ctx, widget(name, size), metav1.CreateOptions{})
		default:
			_, err = client.Patch(ctx, name, "application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"size":%d}}`, size), metav1.PatchOptions{})
		}
		var status apierrors.APIStatus
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
			changed = err == nil
			return true, nil
		case apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err):
			return false, nil
		case errors.As(err, &status):
			return false, err
		}
		return false, nil // no answer
	})
	if err != nil {
		t.Error(err)
	}
	return changed
}

// TestRetryWatcherOverRestart sees each change once, in order, though the server is restarted.
func TestRetryWatcherOverRestart(t *testing.T) {
	s := start(t)
	s.define()
	client := s.dynamic().Resource(widgets).Namespace("default")
	a, err := client.Create(t.Context(), widget("a", 0), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(t.Context(), a.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: client.Watch,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	next := func(wantType watch.EventType, wantSize int64) {
		t.Helper()
		for event := range watcher.ResultChan() {
			if event.Type == watch.Bookmark {
				continue
			}
			if obj, ok := event.Object.(*unstructured.Unstructured); !ok || event.Type != wantType || sizeOf(obj) != wantSize {
				t.Fatalf("the watcher says %v, want %s with size %d", event, wantType, wantSize)
			}
			return
		}
		t.Fatal("the watcher ended")
	}
	set := func(size int64) {
		t.Helper()
		if a, err = client.Update(t.Context(), setSize(t, a, size), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	next(watch.Modified, 1)
	set(2) // may be on its way when the server ends
	s.restart()
	set(3)
	next(watch.Modified, 2)
	next(watch.Modified, 3)
	s.restart() // with nothing on its way
	if err := client.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	next(watch.Deleted, 3)
}

// TestInformerOverReset resets the server under eight writers. In the end the informer has what the server has.
func TestInformerOverReset(t *testing.T) {
	for _, mode := range informerModes {
		t.Run(mode.name, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, mode.watchList)
			s := startEphemeral(t)
			s.define()
			client := s.dynamic().Resource(widgets).Namespace("default")
			for i := range 10 {
				if _, err := client.Create(t.Context(), widget(fmt.Sprint("w", i), 1), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			post := func(path string) {
				t.Helper()
				res, err := http.Post(s.url+path, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					t.Fatalf("POST %s: %s", path, res.Status)
				}
			}
			post("/debug/snapshot?name=ten")
			informer := runInformer(t, s.dynamic(), nil)
			var writers sync.WaitGroup
			for i := range 8 {
				writers.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), 1))
					for range 60 {
						write(t, client, random)
					}
				})
			}
			for range 2 { // after each, client-go waits longer before it lists again
				post("/debug/reset?to=ten")
				if _, err := client.Create(t.Context(), widget("marker", 1), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the informer has what was written after a reset", func(context.Context) bool {
					_, ok, _ := informer.GetStore().GetByKey("default/marker")
					return ok
				})
			}
			writers.Wait()
			eventuallyEqual(t, informer, client, "")
			post("/debug/reset?to=ten")
			eventuallyEqual(t, informer, client, "")
			if n := len(informer.GetStore().ListKeys()); n != 10 {
				t.Errorf("the informer has %d objects, want 10", n)
			}
		})
	}
}
