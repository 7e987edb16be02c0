// Command pages is a controller, written with controller-runtime, against apiserver-lite or any other server of the
// Kubernetes API. For each Page it keeps a ConfigMap with the page as HTML, and says in the Page's status how that went.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"html/template"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"
)

// manager is the name under which the controller writes.
const manager = "pages"

func main() {
	flag.Parse() // controller-runtime's --kubeconfig; without it, $KUBECONFIG
	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie()); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, config *rest.Config) error {
	types := runtime.NewScheme()
	if err := scheme.AddToScheme(types); err != nil { // the kinds of Kubernetes
		return err
	}
	if err := addPages(types); err != nil {
		return err
	}
	if err := define(ctx, config, types); err != nil {
		return fmt.Errorf("define Pages: %w", err)
	}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        types,
		LeaderElection:                true, // of several that run, one works
		LeaderElectionID:              "pages.example.com",
		LeaderElectionNamespace:       metav1.NamespaceDefault,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // none
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(m).For(&Page{}).Owns(&corev1.ConfigMap{}).Complete(&controller{client: m.GetClient()})
	if err != nil {
		return err
	}
	return m.Start(ctx)
}

//go:embed definition.yaml
var definition []byte

// define applies the definition of Pages and waits until they're served.
func define(ctx context.Context, config *rest.Config, types *runtime.Scheme) error {
	c, err := client.New(config, client.Options{Scheme: types})
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(definition, &crd.Object); err != nil {
		return err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return err
	}
	// apiserver-lite serves them by now. kube-apiserver needs a moment.
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := c.List(ctx, &PageList{}, client.Limit(1))
		return err == nil, client.IgnoreNotFound(ignoreNoMatch(err))
	})
}

func ignoreNoMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// controller makes Pages into ConfigMaps.
type controller struct{ client client.Client }

// Reconcile brings one Page's ConfigMap and status up to date. It doesn't matter what has happened, only what is.
func (c *controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var page Page
	if err := c.client.Get(ctx, request.NamespacedName, &page); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the ConfigMap goes with its owner
	}
	html, err := render(&page)
	ready := metav1.Condition{Type: "Ready", ObservedGeneration: page.Generation}
	if err != nil { // no use in trying again before the Page changes
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "BadTemplate", err.Error()
	} else {
		if err := c.apply(ctx, &page, html); err != nil {
			return ctrl.Result{}, err // tried again, later and later
		}
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, "Rendered", fmt.Sprintf("%d bytes", len(html))
	}
	before := page.DeepCopyObject().(*Page)
	if !meta.SetStatusCondition(&page.Status.Conditions, ready) {
		return ctrl.Result{}, nil
	}
	if err := c.client.Status().Patch(ctx, &page, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, err
	}
	ctrl.LoggerFrom(ctx).Info("done", "ready", ready.Status, "message", ready.Message)
	return ctrl.Result{}, nil
}

// render makes a page of a Page.
func render(page *Page) (string, error) {
	parsed, err := template.New(page.Name).Parse(page.Spec.Template)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, page.Spec.Values)
	return out.String(), err
}

// apply says what the ConfigMap has to be; what others have set in it stays.
func (c *controller) apply(ctx context.Context, page *Page, html string) error {
	owner := metav1apply.OwnerReference().WithAPIVersion(groupVersion.String()).WithKind("Page").
		WithName(page.Name).WithUID(page.UID).WithController(true).WithBlockOwnerDeletion(true)
	object := corev1apply.ConfigMap(page.Name, page.Namespace).
		WithOwnerReferences(owner).WithData(map[string]string{"index.html": html})
	return c.client.Apply(ctx, object, client.FieldOwner(manager), client.ForceOwnership)
}
