package conformance

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

// link is the network between a client and the server, which can be cut. The zero value is whole.
type link struct {
	mu     sync.Mutex    // guards all below
	mended chan struct{} // requests wait until it's closed; nil while the link is whole
	cuts   int           // how often it was cut
	bodies []io.Closer   // of all answers
}

// join puts the link between a client's configuration and the server.
func (l *link) join(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			l.mu.Lock()
			mended, cuts := l.mended, l.cuts
			l.mu.Unlock()
			if mended != nil { // an error would make clients back off for up to half a minute
				select {
				case <-mended:
				case <-request.Context().Done():
					return nil, request.Context().Err()
				}
			}
			response, err := next.RoundTrip(request)
			if err != nil {
				return nil, err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.cuts != cuts { // while this request was under way; its answer was none of those that cut closed
				response.Body.Close()
				return nil, io.ErrUnexpectedEOF
			}
			l.bodies = append(l.bodies, response.Body)
			return response, nil
		})
	})
	return config
}

// cut ends all answers, and lets no request through until mend is called.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts++
	l.mended = make(chan struct{})
	for _, body := range l.bodies {
		body.Close()
	}
	l.bodies = nil
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.mended)
	l.mended = nil
}

// forgetful starts a server whose history is too short for anybody who was away.
func forgetful(t *testing.T) *apiserver {
	t.Helper()
	s := start(t, "--ephemeral", "--history", "100ms")
	s.define()
	return s
}

// outlive writes until the server has forgotten a version. A watch is served from the log in memory, too, so what is
// written has to push the version out of that.
func (s *apiserver) outlive(version string) {
	s.t.Helper()
	client := s.dynamic().Resource(widgets).Namespace("default")
	large := widget("large", 0)
	if _, err := client.Create(s.t.Context(), large, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	size := 0
	eventually(s.t, "the server has forgotten version "+version, func(ctx context.Context) bool {
		for range 80 { // together half of what the log in memory holds
			size++
			if _, err := client.Patch(ctx, "large", "application/merge-patch+json", fill(size), metav1.PatchOptions{}); err != nil {
				s.t.Fatal(err)
			}
		}
		seconds := int64(1)
		w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: &seconds})
		if err != nil {
			s.t.Fatalf("a watch from a version that is gone can't be opened: %v", err)
		}
		defer w.Stop()
		event := <-w.ResultChan()
		return event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object))
	})
}

// fill is a patch that makes an object of 200 KiB.
func fill(size int) []byte {
	text := make([]byte, 200<<10)
	for i := range text {
		text[i] = 'a' + byte(i%26)
	}
	return append(append(append([]byte(`{"metadata":{"annotations":{"text":"`), text...), `"}},"spec":{"size":`...), strconv.Itoa(size)+`}}`...)
}

// TestRetryWatcherFromAnExpiredVersion: it ends with the error, and doesn't ask for ever.
func TestRetryWatcherFromAnExpiredVersion(t *testing.T) {
	s := forgetful(t)
	client := s.dynamic().Resource(widgets).Namespace("default")
	a, err := client.Create(t.Context(), widget("a", 0), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var network link
	away, err := watchtools.NewRetryWatcherWithContext(t.Context(), a.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: dynamicFor(t, network.join(s.config())).Resource(widgets).Namespace("default").Watch,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer away.Stop()
	network.cut()
	s.outlive(a.GetResourceVersion())
	network.mend()
	fresh := func(version string) watch.Interface {
		w, err := watchtools.NewRetryWatcherWithContext(t.Context(), version, &cache.ListWatch{WatchFuncWithContext: client.Watch})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	for name, w := range map[string]watch.Interface{
		"one that was away":         away,
		"one that begins there":     fresh(a.GetResourceVersion()),
		"one from a future version": fresh("1000000000"),
	} {
		t.Run(name, func(t *testing.T) {
			defer w.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for {
				select {
				case event, open := <-w.ResultChan():
					if open && event.Type != watch.Error {
						continue // from before the link was cut
					}
					if !open || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
						t.Fatalf("it says %v, and is open: %v", event, open)
					}
				case <-ctx.Done():
					t.Fatal("it neither ends nor says anything")
				}
				break
			}
			select {
			case event, open := <-w.ResultChan():
				if open {
					t.Errorf("after the error it says %v", event)
				}
			case <-ctx.Done():
				t.Error("it doesn't end after the error")
			}
		})
	}
}

// TestCachesFromAnExpiredVersion: whoever was away for too long lists again, in the way in which it began.
func TestCachesFromAnExpiredVersion(t *testing.T) {
	for _, mode := range informerModes {
		t.Run(mode.name, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, mode.watchList)
			s := forgetful(t)
			client := s.dynamic().Resource(widgets).Namespace("default")
			for _, name := range []string{"a", "b"} {
				if _, err := client.Create(t.Context(), widget(name, 1), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			var network link
			config := network.join(s.config())
			reflected := runInformer(t, dynamicFor(t, config), nil)
			list := &WidgetList{}
			controllers := runCache(t, config)

			last := reflected.LastSyncResourceVersion()
			network.cut()
			if err := client.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Create(t.Context(), widget("c", 1), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			s.outlive(last)
			network.mend()
			eventuallyEqual(t, reflected, client, "")
			eventually(t, "the controller's cache has b, c and large", func(ctx context.Context) bool {
				return controllers.List(ctx, list) == nil && len(list.Items) == 3
			})
			if _, err := client.Create(t.Context(), widget("d", 1), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			eventuallyEqual(t, reflected, client, "")
			eventually(t, "the controller's cache has d, too", func(ctx context.Context) bool {
				return controllers.List(ctx, list) == nil && len(list.Items) == 4
			})
		})
	}
}

// runCache runs controller-runtime's cache of widgets until the test ends.
func runCache(t *testing.T, config *rest.Config) ctrlcache.Cache {
	t.Helper()
	types := runtime.NewScheme()
	types.AddKnownTypes(widgets.GroupVersion(), &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(types, widgets.GroupVersion())
	c, err := ctrlcache.New(config, ctrlcache.Options{Scheme: types})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the cache ends with %v", err)
		}
	})
	if _, err := c.GetInformer(t.Context(), &Widget{}); err != nil {
		t.Fatal(err)
	}
	if !c.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache doesn't sync")
	}
	return c
}
