package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// spoken counts the answers of a server by their media type.
type spoken struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

// listenedTo is config with a count of what the server's answers are.
func (s *apiserver) listenedTo() (*rest.Config, *spoken) {
	config, heard := s.config(), &spoken{counts: map[string]int{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil {
				heard.mu.Lock()
				defer heard.mu.Unlock()
				heard.counts[response.Header.Get("Content-Type")]++
			}
			return response, err
		})
	})
	return config, heard
}

// onlyProtobuf fails the test if an answer was something else, or if there was none.
func (s *spoken) onlyProtobuf(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for media := range s.counts {
		if !strings.HasPrefix(media, "application/vnd.kubernetes.protobuf") {
			t.Errorf("answers were %v, want protobuf only", s.counts)
		}
	}
	if len(s.counts) == 0 {
		t.Error("there were no answers")
	}
}

// TestTypedClientsSpeakProtobuf: client-go's typed clients, as they are by default, for kinds that every controller uses.
func TestTypedClientsSpeakProtobuf(t *testing.T) {
	s := startEphemeral(t)
	config, heard := s.listenedTo()
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, maps := t.Context(), typed.CoreV1().ConfigMaps("default")
	w, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next := func(want watch.EventType) *corev1.ConfigMap {
		t.Helper()
		event, open := <-w.ResultChan()
		cm, ok := event.Object.(*corev1.ConfigMap)
		if !open || !ok || event.Type != want {
			t.Fatalf("%q of %T, want %s", event.Type, event.Object, want)
		}
		return cm
	}
	created, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 255}}}, metav1.CreateOptions{})
	if err != nil || created.UID == "" || created.Data["k"] != "v" || string(created.BinaryData["b"]) != "\x00\xff" {
		t.Fatalf("create returns %+v, %v", created, err)
	}
	if seen := next(watch.Added); seen.UID != created.UID || seen.ResourceVersion != created.ResourceVersion {
		t.Errorf("the watch shows %+v", seen)
	}
	stale := created.DeepCopy()
	created.Data["k"] = "w"
	updated, err := maps.Update(ctx, created, metav1.UpdateOptions{})
	if err != nil || updated.Data["k"] != "w" {
		t.Fatalf("update returns %+v, %v", updated, err)
	}
	next(watch.Modified)
	if _, err := maps.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version returns %v", err)
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second create returns %v", err)
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Not A Name"}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a create with a bad name returns %v", err)
	}
	if patched, err := maps.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"data":{"l":"x"}}`), metav1.PatchOptions{}); err != nil || len(patched.Data) != 2 {
		t.Errorf("patch returns %+v, %v", patched, err)
	}
	next(watch.Modified)
	applied, err := maps.Apply(ctx, corev1apply.ConfigMap("b", "default").WithData(map[string]string{"a": "b"}), metav1.ApplyOptions{FieldManager: "test"})
	if err != nil || applied.Data["a"] != "b" || len(applied.ManagedFields) != 1 {
		t.Errorf("apply returns %+v, %v", applied, err)
	}
	next(watch.Added)
	for _, limit := range []int64{0, 1} {
		list, err := maps.List(ctx, metav1.ListOptions{Limit: limit})
		if err != nil || list.ResourceVersion == "" || len(list.Items) != 2-int(limit) || (list.Continue != "") != (limit > 0) {
			t.Errorf("a list with limit %d returns %+v, %v", limit, list, err)
		}
	}
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}); !apierrors.IsConflict(err) {
		t.Errorf("the deletion of another uid returns %v", err)
	}
	if err := maps.Delete(ctx, "a", *metav1.NewDeleteOptions(0)); err != nil {
		t.Error(err)
	}
	next(watch.Deleted)
	if _, err := maps.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of a deleted one returns %v", err)
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	next(watch.Deleted)

	leases := typed.CoordinationV1().Leases("default")
	now := metav1.NewMicroTime(time.Now())
	lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("me"), RenewTime: &now}}, metav1.CreateOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "me" || !lease.Spec.RenewTime.Equal(ptr.To(metav1.NewMicroTime(now.Truncate(time.Microsecond)))) {
		t.Errorf("the lease is %+v, %v", lease, err)
	}
	secret, err := typed.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"p": "q"}}, metav1.CreateOptions{})
	if err != nil || string(secret.Data["p"]) != "q" || secret.StringData != nil {
		t.Errorf("the secret is %+v, %v", secret, err)
	}
	heard.onlyProtobuf(t)
}

// TestTypedInformers: client-go's typed informers, which ask for protobuf, begin in both ways, follow, and end with what is
// stored.
func TestTypedInformers(t *testing.T) {
	for _, mode := range informerModes {
		t.Run(mode.name, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, mode.watchList)
			s := startEphemeral(t)
			config, heard := s.listenedTo()
			typed, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, maps := t.Context(), typed.CoreV1().ConfigMaps("default")
			make := func(name string) {
				t.Helper()
				if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": name}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 50 {
				make(fmt.Sprint("before", i))
			}
			informer := informers.NewSharedInformerFactory(typed, 0).Core().V1().ConfigMaps().Informer()
			runUntilEnd(t, informer)
			for i := range 50 {
				make(fmt.Sprint("after", i))
			}
			if err := maps.Delete(ctx, "before7", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			list, err := maps.List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the informer has what is stored", func(context.Context) bool {
				for _, want := range list.Items {
					got, ok, err := informer.GetStore().GetByKey("default/" + want.Name)
					if err != nil || !ok || got.(*corev1.ConfigMap).ResourceVersion != want.ResourceVersion || got.(*corev1.ConfigMap).Data["n"] != want.Name {
						return false
					}
				}
				return len(informer.GetStore().ListKeys()) == len(list.Items)
			})
			heard.onlyProtobuf(t)
		})
	}
}

// runUntilEnd runs an informer until the test ends, and returns when it has synced.
func runUntilEnd(t *testing.T, informer cache.SharedIndexInformer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	eventually(t, "the informer has synced", func(context.Context) bool { return informer.HasSynced() })
}

// TestMetadataOverProtobuf: the metadata of custom resources, for which there is protobuf where there is none for the objects.
func TestMetadataOverProtobuf(t *testing.T) {
	for _, mode := range informerModes {
		t.Run(mode.name, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, mode.watchList)
			s := startEphemeral(t)
			s.define()
			created, err := s.dynamic().Resource(widgets).Namespace("default").Create(t.Context(), widget("a", 1), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			config, heard := s.listenedTo()
			api, err := metadata.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			in := api.Resource(widgets).Namespace("default")
			got, err := in.Get(t.Context(), "a", metav1.GetOptions{})
			if err != nil || got.UID != created.GetUID() || got.Labels["tier"] != created.GetLabels()["tier"] {
				t.Errorf("get returns %+v, %v", got, err)
			}
			informer := metadatainformer.NewFilteredMetadataInformer(api, widgets, "default", 0, cache.Indexers{}, nil).Informer()
			runUntilEnd(t, informer)
			heard.onlyProtobuf(t)
			if err := in.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			eventually(t, "the informer knows of the deletion", func(context.Context) bool { return len(informer.GetStore().ListKeys()) == 0 })
		})
	}
}

// TestLeaderElection: of two candidates for a Lease one leads, and when it leaves the other does.
func TestLeaderElection(t *testing.T) {
	s := startEphemeral(t)
	config, heard := s.listenedTo()
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	leading := make(chan string, 2)
	var running sync.WaitGroup
	defer running.Wait()
	leave := map[string]context.CancelFunc{}
	for _, name := range []string{"a", "b"} {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		defer cancel()
		leave[name] = cancel
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "election"}, Client: typed.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leading <- name },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { elector.Run(ctx) })
	}
	first := <-leading
	leave[first]()
	if second := <-leading; second == first {
		t.Errorf("%s leads twice", first)
	}
	for _, end := range leave {
		end()
	}
	heard.onlyProtobuf(t)
}

// TestControllerRuntimeClient: controller-runtime's client as it is by default.
func TestControllerRuntimeClient(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	s := startEphemeral(t)
	config, heard := s.listenedTo()
	mapped, err := client.New(s.config(), client.Options{}) // for discovery and applies, which it does in JSON
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(config, client.Options{Mapper: mapped.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"k": "v"}}
	if err := api.Create(ctx, cm); err != nil {
		t.Fatal(err)
	}
	cm.Data["k"] = "w"
	if err := api.Update(ctx, cm); err != nil {
		t.Fatal(err)
	}
	before := cm.DeepCopy()
	cm.Labels = map[string]string{"l": "v"}
	if err := api.Patch(ctx, cm, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	got := &corev1.ConfigMap{}
	if err := api.Get(ctx, client.ObjectKeyFromObject(cm), got); err != nil || got.Data["k"] != "w" || got.Labels["l"] != "v" {
		t.Errorf("get returns %+v, %v", got, err)
	}
	if err := mapped.Apply(ctx, corev1apply.ConfigMap("b", "default").WithData(map[string]string{"x": "y"}), client.FieldOwner("test")); err != nil {
		t.Error(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("me")}}
	if err := api.Create(ctx, lease); err != nil {
		t.Error(err)
	}
	var list corev1.ConfigMapList
	if err := api.List(ctx, &list, client.InNamespace("default")); err != nil || len(list.Items) != 2 {
		t.Errorf("list returns %d objects, %v", len(list.Items), err)
	}
	if err := api.Delete(ctx, cm); err != nil {
		t.Error(err)
	}
	if err := api.Get(ctx, client.ObjectKeyFromObject(cm), got); !apierrors.IsNotFound(err) {
		t.Errorf("get of a deleted one returns %v", err)
	}
	if err := api.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace("default")); err != nil {
		t.Error(err)
	}
	heard.onlyProtobuf(t)
}
