package conformance

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/events"
	recorders "k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// mapController keeps a ConfigMap for each widget: all that controllers usually do, in one.
type mapController struct {
	client client.Client
	events events.EventRecorder
}

func (c *mapController) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var w Widget
	if err := c.client.Get(ctx, request.NamespacedName, &w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !w.DeletionTimestamp.IsZero() {
		before := w.DeepCopyObject().(*Widget)
		if controllerutil.RemoveFinalizer(&w, finalizer) {
			return ctrl.Result{}, client.IgnoreNotFound(c.client.Patch(ctx, &w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&w, finalizer) {
		return ctrl.Result{}, c.client.Update(ctx, &w)
	}
	owner := metav1apply.OwnerReference().WithAPIVersion(widgets.GroupVersion().String()).WithKind("Widget").WithName(w.Name).WithUID(w.UID).
		WithController(true).WithBlockOwnerDeletion(true)
	object := corev1apply.ConfigMap(w.Name, w.Namespace).WithOwnerReferences(owner).WithData(map[string]string{"color": w.Spec.Color})
	if err := c.client.Apply(ctx, object, client.FieldOwner("maps"), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	if w.Status.ObservedGeneration == w.Generation {
		return ctrl.Result{}, nil
	}
	before := w.DeepCopyObject().(*Widget)
	w.Status = WidgetStatus{Phase: "Ready", ObservedGeneration: w.Generation}
	c.events.Eventf(&w, nil, corev1.EventTypeNormal, "Applied", "Apply", "color %s", w.Spec.Color)
	return ctrl.Result{}, c.client.Status().Patch(ctx, &w, client.MergeFrom(before))
}

// TestManager has a manager of controller-runtime with leader election, metrics, an owned ConfigMap that is applied, a
// finalizer, patches of the status, and events.
func TestManager(t *testing.T) {
	s := startEphemeral(t)
	s.define()
	ctrl.SetLogger(logr.Discard())
	types := runtime.NewScheme()
	types.AddKnownTypes(widgets.GroupVersion(), &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(types, widgets.GroupVersion())
	if err := scheme.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	metrics, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := metrics.Addr().String()
	metrics.Close() // controller-runtime listens on addresses only
	anyName := true
	options := ctrl.Options{
		Scheme: types, LeaderElection: true, LeaderElectionID: "maps", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
		Metrics: metricsserver.Options{BindAddress: address},
	}
	options.Controller.SkipNameValidation = &anyName
	manager, err := ctrl.NewManager(s.config(), options)
	if err != nil {
		t.Fatal(err)
	}
	controller := &mapController{client: manager.GetClient(), events: manager.GetEventRecorder("maps")}
	if err := ctrl.NewControllerManagedBy(manager).Named("maps").For(&Widget{}).Owns(&corev1.ConfigMap{}).Complete(controller); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- manager.Start(ctx) }()
	end := func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ends with %v", err)
		}
		done <- nil
	}
	t.Cleanup(end)

	api := manager.GetClient()
	w := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Spec: WidgetSpec{Color: "red"}}
	if err := api.Create(ctx, w); err != nil {
		t.Fatal(err)
	}
	color := func(want string) func(context.Context) bool {
		return func(ctx context.Context) bool {
			var m corev1.ConfigMap
			return api.Get(ctx, client.ObjectKeyFromObject(w), &m) == nil && m.Data["color"] == want && metav1.IsControlledBy(&m, w)
		}
	}
	eventually(t, "the widget has its ConfigMap", color("red"))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"color":"blue"}}`))
	if err := api.Patch(ctx, w, patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ConfigMap follows the widget", color("blue"))
	if err := api.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ConfigMap is made again", color("blue"))
	eventually(t, "the status says so", func(ctx context.Context) bool {
		return api.Get(ctx, client.ObjectKeyFromObject(w), w) == nil && w.Status == WidgetStatus{Phase: "Ready", ObservedGeneration: w.Generation}
	})
	eventually(t, "an event tells it", func(ctx context.Context) bool {
		var list corev1.EventList
		return manager.GetAPIReader().List(ctx, &list, client.InNamespace("default")) == nil && len(list.Items) > 0 && list.Items[0].Reason == "Applied"
	})
	res, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(body), `controller_runtime_reconcile_total{controller="maps",result="success"}`) {
		t.Errorf("the metrics have no such line, %v", err)
	}
	if err := api.Delete(ctx, w); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the widget goes without its finalizer", func(ctx context.Context) bool {
		return apierrors.IsNotFound(manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(w), w))
	})
	end()
	typed, err := kubernetes.NewForConfig(s.config())
	if err != nil {
		t.Fatal(err)
	}
	if lease, err := typed.CoordinationV1().Leases("default").Get(t.Context(), "maps", metav1.GetOptions{}); err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("the lease of a manager that has left is %+v, %v", lease, err)
	}
}

// TestEventRecorders: client-go's recorder of v1 counts what it records again, and the one of events.k8s.io/v1 has it in a
// series.
func TestEventRecorders(t *testing.T) {
	s := startEphemeral(t)
	typed, err := kubernetes.NewForConfig(s.config())
	if err != nil {
		t.Fatal(err)
	}
	about, err := typed.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	find := func(ctx context.Context, reason string) corev1.Event {
		list, err := typed.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=a,reason=" + reason})
		if err != nil || len(list.Items) != 1 {
			return corev1.Event{}
		}
		return list.Items[0]
	}

	old := recorders.NewBroadcaster()
	defer old.Shutdown()
	old.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: typed.CoreV1().Events("")})
	recorder := old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "test"})
	for range 3 {
		recorder.Event(about, corev1.EventTypeWarning, "Burnt", "it burns")
	}
	eventually(t, "three are counted", func(ctx context.Context) bool { return find(ctx, "Burnt").Count == 3 })

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	young := events.NewBroadcaster(&events.EventSinkImpl{Interface: typed.EventsV1()})
	defer young.Shutdown()
	if err := young.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	series := young.NewRecorder(scheme.Scheme, "test")
	for range 2 {
		series.Eventf(about, nil, corev1.EventTypeNormal, "Cooled", "Cool", "it cools")
		eventually(t, "the event is there", func(ctx context.Context) bool { return find(ctx, "Cooled").Name != "" })
	}
	eventually(t, "the second begins a series", func(ctx context.Context) bool {
		e := find(ctx, "Cooled")
		return e.Series != nil && e.Series.Count == 2 && e.Message == "it cools" && e.ReportingController == "test"
	})
}

// TestScaleClient: client-go's client for whatever has replicas, which finds the way by cached discovery.
func TestScaleClient(t *testing.T) {
	s := start(t, "--ephemeral", "--builtin=all")
	k := newKubectl(t, s)
	k.do("", "create", "deployment", "web", "--image=web:1", "--replicas=2")
	found, err := discovery.NewDiscoveryClientForConfig(s.config())
	if err != nil {
		t.Fatal(err)
	}
	cached := memory.NewMemCacheClient(found)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	scales, err := scale.NewForConfig(s.config(), mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(cached))
	if err != nil {
		t.Fatal(err)
	}
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	web, err := scales.Scales("default").Get(ctx, deployments, "web", metav1.GetOptions{})
	if err != nil || web.Spec.Replicas != 2 || web.Status.Selector != "app=web" {
		t.Fatalf("%+v, %v", web, err)
	}
	web.Spec.Replicas = 5
	if web, err = scales.Scales("default").Update(ctx, deployments, web, metav1.UpdateOptions{}); err != nil || web.Spec.Replicas != 5 {
		t.Errorf("%+v, %v", web, err)
	}
	if got := k.do("", "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"); got != "5" {
		t.Errorf("the deployment has %s replicas", got)
	}
}
