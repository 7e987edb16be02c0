package conformance

import (
	"context"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Widget is the Go type of the custom resource, as a controller's author writes it.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WidgetSpec   `json:"spec,omitempty"`
	Status            WidgetStatus `json:"status,omitempty"`
}

// WidgetSpec is what is asked for.
type WidgetSpec struct {
	Color string `json:"color,omitempty"`
	Size  int64  `json:"size,omitempty"`
}

// WidgetStatus is what the controller found.
type WidgetStatus struct {
	Phase              string `json:"phase,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
}

// DeepCopyObject makes it a runtime.Object.
func (w *Widget) DeepCopyObject() runtime.Object {
	c := *w
	c.ObjectMeta = *w.ObjectMeta.DeepCopy()
	return &c
}

// WidgetList is several.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

// DeepCopyObject makes it a runtime.Object.
func (l *WidgetList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]Widget, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*Widget)
	}
	return &c
}

const finalizer = "example.com/widget"

// widgetController adds a finalizer to widgets, tells their status, and lets go of deleted ones.
type widgetController struct {
	client client.Client

	mu       sync.Mutex // guards released
	released []string   // the names of those it let go of
}

func (c *widgetController) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var w Widget
	if err := c.client.Get(ctx, request.NamespacedName, &w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !w.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, c.release(ctx, &w)
	}
	if controllerutil.AddFinalizer(&w, finalizer) {
		if err := c.client.Update(ctx, &w); err != nil {
			return ctrl.Result{}, err
		}
	}
	if w.Status.ObservedGeneration == w.Generation {
		return ctrl.Result{}, nil
	}
	before := w.DeepCopyObject().(*Widget)
	w.Status = WidgetStatus{Phase: "Ready", ObservedGeneration: w.Generation}
	return ctrl.Result{}, c.client.Status().Patch(ctx, &w, client.MergeFrom(before))
}

func (c *widgetController) release(ctx context.Context, w *Widget) error {
	w.Status.Phase = "Leaving"
	if err := c.client.Status().Update(ctx, w); err != nil {
		return client.IgnoreNotFound(err)
	}
	if controllerutil.RemoveFinalizer(w, finalizer) {
		if err := c.client.Update(ctx, w); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.released = append(c.released, w.Name)
	}
	return nil
}

func TestController(t *testing.T) {
	s := startEphemeral(t)
	s.define()
	manager, controller := runController(t, s)
	api, ctx := manager.GetClient(), t.Context()

	w := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Spec: WidgetSpec{Size: 1}}
	if err := api.Create(ctx, w); err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context) error { return api.Get(ctx, client.ObjectKeyFromObject(w), w) }
	observed := func(ctx context.Context) bool {
		return get(ctx) == nil && w.Status == WidgetStatus{Phase: "Ready", ObservedGeneration: w.Generation} && controllerutil.ContainsFinalizer(w, finalizer)
	}
	eventually(t, "the new widget's status is set", observed)
	generation := w.Generation
	result, err := controllerutil.CreateOrUpdate(ctx, api, w, func() error {
		w.Spec.Size = 2
		return nil
	})
	if err != nil || result != controllerutil.OperationResultUpdated || w.Generation != generation+1 {
		t.Errorf("the update returns %s, %v, and the generation is %d after %d", result, err, w.Generation, generation)
	}
	eventually(t, "the changed widget's status is set", func(ctx context.Context) bool {
		return observed(ctx) && w.Generation == generation+1
	})
	if err := api.Delete(ctx, w); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the controller has let go of the widget, and it is gone", func(ctx context.Context) bool {
		controller.mu.Lock()
		defer controller.mu.Unlock()
		return len(controller.released) == 1 && apierrors.IsNotFound(get(ctx))
	})
	// The manager's cache serves built-in kinds, too.
	var list corev1.NamespaceList
	if err := api.List(ctx, &list); err != nil || len(list.Items) != 4 {
		t.Errorf("there are the namespaces %v, %v", list.Items, err)
	}
}

// widgetScheme has widgets, and Kubernetes' own types.
func widgetScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	types := runtime.NewScheme()
	types.AddKnownTypes(widgets.GroupVersion(), &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(types, widgets.GroupVersion())
	if err := scheme.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	return types
}

// runController runs a manager with the controller until the test ends.
func runController(t testing.TB, s *apiserver) (ctrl.Manager, *widgetController) {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	anyName := true // there may be several controllers of this name in this process
	options := ctrl.Options{Scheme: widgetScheme(t), Metrics: metricsserver.Options{BindAddress: "0"}}
	options.Controller.SkipNameValidation = &anyName
	manager, err := ctrl.NewManager(s.config(), options)
	if err != nil {
		t.Fatal(err)
	}
	controller := &widgetController{client: manager.GetClient()}
	if err := ctrl.NewControllerManagedBy(manager).For(&Widget{}).Complete(controller); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ends with %v", err)
		}
	})
	if !manager.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the manager's cache doesn't sync")
	}
	return manager, controller
}
