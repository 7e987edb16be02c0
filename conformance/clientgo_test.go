package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

func TestDynamicClient(t *testing.T) {
	s := startEphemeral(t)
	s.define()
	all, ctx := s.dynamic().Resource(widgets), t.Context()
	client := all.Namespace("default")

	a, err := client.Create(ctx, widget("a", 1), metav1.CreateOptions{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if a.GetUID() == "" || a.GetResourceVersion() == "" || a.GetGeneration() != 1 || a.GetNamespace() != "default" || a.GetCreationTimestamp() == (metav1.Time{}) {
		t.Errorf("the created object has the metadata %v", a.Object["metadata"])
	}
	generated := widget("", 2)
	generated.SetGenerateName("gen-")
	if generated, err = client.Create(ctx, generated, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	} else if name := generated.GetName(); len(name) != len("gen-")+5 {
		t.Errorf("the generated name is %q", name)
	}

	changed := setSize(t, a, 3)
	if changed, err = client.Update(ctx, changed, metav1.UpdateOptions{}); err != nil || changed.GetGeneration() != 2 {
		t.Fatalf("the update returns %v, %v", changed, err)
	}
	same, err := client.Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil || same.GetResourceVersion() != changed.GetResourceVersion() {
		t.Errorf("an update without a change returns %v, %v", same, err)
	}
	if err := unstructured.SetNestedField(changed.Object, "Ready", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	if changed, err = client.UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil || changed.GetGeneration() != 2 {
		t.Fatalf("the update of the status returns %v, %v", changed, err)
	}
	patched, err := client.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":null}}}`), metav1.PatchOptions{})
	if err != nil || len(patched.GetLabels()) > 0 {
		t.Errorf("the patch returns %v, %v", patched, err)
	}
	if got, err := client.Get(ctx, "a", metav1.GetOptions{}); err != nil || got.GetResourceVersion() != patched.GetResourceVersion() {
		t.Errorf("get returns %v, %v", got, err)
	}
	for options, want := range map[metav1.ListOptions]int{
		{}:                                              2,
		{LabelSelector: "tier=front"}:                   1,
		{LabelSelector: "tier notin (front)"}:           1,
		{FieldSelector: "metadata.name=a"}:              1,
		{FieldSelector: "spec.color=red"}:               2,
		{FieldSelector: "spec.color=blue"}:              0,
		{ResourceVersion: "0"}:                          2,
		{ResourceVersion: patched.GetResourceVersion()}: 2,
	} {
		if list, err := all.List(ctx, options); err != nil || len(list.Items) != want || list.GetResourceVersion() == "" || list.GetKind() != "WidgetList" {
			t.Errorf("list with %+v returns %v, %v; want %d objects", options, list, err, want)
		}
	}
	uid := types.UID("another")
	if err := client.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another uid returns %v", err)
	}
	uid = a.GetUID()
	if err := client.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		t.Error(err)
	}
}

// setSize returns a copy of a widget with another size.
func setSize(t testing.TB, obj *unstructured.Unstructured, size int64) *unstructured.Unstructured {
	t.Helper()
	obj = obj.DeepCopy()
	if err := unstructured.SetNestedField(obj.Object, size, "spec", "size"); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestErrors shows that client-go recognises refusals.
func TestErrors(t *testing.T) {
	s := startEphemeral(t)
	s.define()
	client := s.dynamic().Resource(widgets).Namespace("default")
	first, err := client.Create(t.Context(), widget("a", 1), metav1.CreateOptions{})
	if err == nil {
		_, err = client.Update(t.Context(), setSize(t, first, 2), metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		call func(context.Context) error
		is   func(error) bool
	}{
		{"get what is missing", func(ctx context.Context) error {
			_, err := client.Get(ctx, "x", metav1.GetOptions{})
			return err
		}, apierrors.IsNotFound},
		{"create what exists", func(ctx context.Context) error {
			_, err := client.Create(ctx, widget("a", 1), metav1.CreateOptions{})
			return err
		}, apierrors.IsAlreadyExists},
		{"create in a missing namespace", func(ctx context.Context) error {
			_, err := s.dynamic().Resource(widgets).Namespace("x").Create(ctx, widget("a", 1), metav1.CreateOptions{})
			return err
		}, apierrors.IsNotFound},
		{"update an old version", func(ctx context.Context) error {
			_, err := client.Update(ctx, setSize(t, first, 3), metav1.UpdateOptions{})
			return err
		}, apierrors.IsConflict},
		{"update without a version", func(ctx context.Context) error {
			_, err := client.Update(ctx, widget("a", 3), metav1.UpdateOptions{})
			return err
		}, apierrors.IsInvalid},
		{"update what is missing", func(ctx context.Context) error {
			obj := widget("x", 3)
			obj.SetResourceVersion(first.GetResourceVersion())
			_, err := client.Update(ctx, obj, metav1.UpdateOptions{})
			return err
		}, apierrors.IsNotFound},
		{"bad name", func(ctx context.Context) error {
			_, err := client.Create(ctx, widget("A_", 1), metav1.CreateOptions{})
			return err
		}, apierrors.IsInvalid},
		{"unknown field in strict mode", func(ctx context.Context) error {
			obj := widget("b", 1)
			obj.Object["metadata"].(map[string]any)["nickname"] = "x"
			_, err := client.Create(ctx, obj, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			return err
		}, apierrors.IsBadRequest},
		{"malformed patch", func(ctx context.Context) error {
			_, err := client.Patch(ctx, "a", types.JSONPatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		}, apierrors.IsBadRequest},
		{"strategic merge patch", func(ctx context.Context) error {
			_, err := client.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		}, apierrors.IsUnsupportedMediaType},
		{"list of an unknown type", func(ctx context.Context) error {
			_, err := s.dynamic().Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "x"}).List(ctx, metav1.ListOptions{})
			return err
		}, apierrors.IsNotFound},
		{"watch a version of the future", func(ctx context.Context) error {
			return firstError(client.Watch(ctx, metav1.ListOptions{ResourceVersion: "1000000"}))
		}, apierrors.IsResourceExpired},
		{"watch with a bad selector", func(ctx context.Context) error {
			return firstError(client.Watch(ctx, metav1.ListOptions{LabelSelector: "a in b"}))
		}, apierrors.IsBadRequest},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := test.call(t.Context()); !test.is(err) {
				t.Errorf("it returns %v (%s)", err, apierrors.ReasonForError(err))
			}
		})
	}
}

// firstError returns why a watch can't be opened, or what its first event complains of.
func firstError(w watch.Interface, err error) error {
	if err != nil {
		return err
	}
	defer w.Stop()
	event := <-w.ResultChan()
	if event.Type != watch.Error {
		return fmt.Errorf("the first event is %v", event)
	}
	return apierrors.FromObject(event.Object)
}

// TestConflictsAreRetried lets several writers count in one object, as client-go recommends it.
func TestConflictsAreRetried(t *testing.T) {
	s := startEphemeral(t)
	s.define()
	client := s.dynamic().Resource(widgets).Namespace("default")
	if _, err := client.Create(t.Context(), widget("a", 0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const writers, increments = 4, 10
	done := make(chan error, writers)
	for range writers {
		go func() {
			var err error
			for range increments {
				backoff := retry.DefaultBackoff
				backoff.Steps = 100
				backoff.Factor = 1
				err = errors.Join(err, retry.RetryOnConflict(backoff, func() error { return increment(t, client) }))
			}
			done <- err
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if a, err := client.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || sizeOf(a) != writers*increments {
		t.Errorf("in the end there is %v, %v; want the size %d", a, err, writers*increments)
	}
}

func increment(t testing.TB, client dynamic.ResourceInterface) error {
	obj, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	if err == nil {
		_, err = client.Update(t.Context(), setSize(t, obj, sizeOf(obj)+1), metav1.UpdateOptions{})
	}
	return err
}

func sizeOf(obj *unstructured.Unstructured) int64 {
	size, _, _ := unstructured.NestedInt64(obj.Object, "spec", "size")
	return size
}

func TestPager(t *testing.T) {
	s := startEphemeral(t)
	s.define()
	client := s.dynamic().Resource(widgets).Namespace("default")
	for i := range 5 {
		if _, err := client.Create(t.Context(), widget(fmt.Sprint("w", i), 1), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	})
	p.PageSize = 2
	var names []string
	err := p.EachListItem(t.Context(), metav1.ListOptions{}, func(obj runtime.Object) error {
		names = append(names, obj.(*unstructured.Unstructured).GetName())
		return nil
	})
	if want := []string{"w0", "w1", "w2", "w3", "w4"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the pages hold %q, %v; want %q", names, err, want)
	}
}

func TestDiscovery(t *testing.T) {
	tests := []struct {
		name   string
		legacy bool
	}{
		{"aggregated", false},
		{"legacy", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := startEphemeral(t)
			s.define()
			config, record := s.recorded()
			client, err := discovery.NewDiscoveryClientForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			client.UseLegacyDiscovery = test.legacy
			groups, lists, err := client.ServerGroupsAndResources()
			if err != nil {
				t.Fatal(err)
			}
			// The aggregated form needs two requests; with the other, client-go goes from version to version.
			if paths := record.paths(); test.legacy != slices.Contains(paths, "/apis/example.com/v1") || !test.legacy && len(paths) != 2 {
				t.Errorf("client-go asks for %q", paths)
			}
			for _, want := range []string{"v1", "apiextensions.k8s.io/v1", "example.com/v1"} {
				if !slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool { return g.PreferredVersion.GroupVersion == want }) {
					t.Errorf("no group prefers %s: %v", want, groups)
				}
			}
			w := findResource(lists, "example.com/v1", "widgets")
			if w == nil || !w.Namespaced || w.Kind != "Widget" || w.SingularName != "widget" || !slices.Contains(w.ShortNames, "wd") || !slices.Contains(w.Verbs, "watch") {
				t.Errorf("widgets are discovered as %+v", w)
			}
			if status := findResource(lists, "example.com/v1", "widgets/status"); status == nil || !slices.Contains(status.Verbs, "patch") {
				t.Errorf("their status is discovered as %+v", status)
			}
			if n := findResource(lists, "v1", "namespaces"); n == nil || n.Namespaced {
				t.Errorf("namespaces are discovered as %+v", n)
			}
		})
	}
}

func findResource(lists []*metav1.APIResourceList, groupVersion, name string) *metav1.APIResource {
	for _, list := range lists {
		for _, r := range list.APIResources {
			if list.GroupVersion == groupVersion && r.Name == name {
				return &r
			}
		}
	}
	return nil
}

func TestServerVersionAndOpenAPI(t *testing.T) {
	s := startEphemeral(t)
	s.define()
	client, err := discovery.NewDiscoveryClientForConfig(s.config())
	if err != nil {
		t.Fatal(err)
	}
	if v, err := client.ServerVersion(); err != nil || v.Major != "1" || v.Minor != "37" {
		t.Errorf("the version is %+v, %v", v, err)
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"api/v1", "apis/apiextensions.k8s.io/v1", "apis/example.com/v1"} {
		if paths[path] == nil {
			t.Errorf("there is no OpenAPI document for %s", path)
		} else if schema, err := paths[path].Schema(runtime.ContentTypeJSON); err != nil || len(schema) == 0 {
			t.Errorf("the OpenAPI document for %s is %q, %v", path, schema, err)
		}
	}
}

// TestRESTMapper finds types by all their names, one of them made after the mapper last looked.
func TestRESTMapper(t *testing.T) {
	s := startEphemeral(t)
	client, err := discovery.NewDiscoveryClientForConfig(s.config())
	if err != nil {
		t.Fatal(err)
	}
	cached := memory.NewMemCacheClient(client)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	if _, err := mapper.KindFor(widgets); !meta.IsNoMatchError(err) {
		t.Errorf("before its definition exists, the type's kind is an error %v", err)
	}
	s.define()
	meta.MaybeResetRESTMapper(mapper)
	for _, name := range []string{"widgets", "widget", "wd"} {
		kind, err := mapper.KindFor(schema.GroupVersionResource{Resource: name})
		if err != nil || kind != widgets.GroupVersion().WithKind("Widget") {
			t.Errorf("%q is %v, %v", name, kind, err)
		}
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"})
	if err != nil || mapping.Resource != widgets || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		t.Errorf("the mapping is %+v, %v", mapping, err)
	}
}

// acceptBoth is what typed clients like to read: protobuf best.
const acceptBoth = "application/vnd.kubernetes.protobuf,application/json"

func TestTypedNamespaces(t *testing.T) {
	config := startEphemeral(t).config()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, acceptBoth
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client, ctx := clients.CoreV1().Namespaces(), t.Context()
	team, err := client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if team.Status.Phase != corev1.NamespaceActive || !slices.Equal(team.Spec.Finalizers, []corev1.FinalizerName{corev1.FinalizerKubernetes}) || team.Labels[corev1.LabelMetadataName] != "team" {
		t.Errorf("the new namespace is %+v", team)
	}
	events, err := client.Watch(ctx, metav1.SingleObject(team.ObjectMeta))
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	team.Labels["x"] = "y"
	if team, err = client.Update(ctx, team, metav1.UpdateOptions{}); err != nil || team.Labels["x"] != "y" {
		t.Errorf("the update returns %v, %v", team, err)
	}
	if list, err := client.List(ctx, metav1.ListOptions{LabelSelector: "x=y"}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "team" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if err := client.Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	for _, want := range []watch.EventType{watch.Modified, watch.Modified, watch.Deleted} {
		for event := range events.ResultChan() {
			n, ok := event.Object.(*corev1.Namespace)
			if !ok || event.Type != want && event.Type != watch.Modified { // the controller may need several steps
				t.Fatalf("the watch says %v, want %s", event, want)
			}
			if event.Type == want {
				team = n
				break
			}
		}
	}
	if team.Status.Phase != corev1.NamespaceTerminating || team.DeletionTimestamp == nil {
		t.Errorf("what was deleted in the end is %+v", team)
	}
	if _, err := client.Get(ctx, "team", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of what was deleted returns %v", err)
	}
	err = client.Delete(ctx, metav1.NamespaceDefault, metav1.DeleteOptions{})
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Code != http.StatusForbidden {
		t.Errorf("delete of the default namespace returns %v", err)
	}
}

func TestTypedDefinitions(t *testing.T) {
	config := startEphemeral(t).config()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, acceptBoth
	clients, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client, ctx := clients.ApiextensionsV1().CustomResourceDefinitions(), t.Context()
	crd, err := client.Create(ctx, typedDefinition(t), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conditions := map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{}
	for _, c := range crd.Status.Conditions {
		conditions[c.Type] = c.Status
	}
	if conditions[apiextensionsv1.Established] != apiextensionsv1.ConditionTrue || conditions[apiextensionsv1.NamesAccepted] != apiextensionsv1.ConditionTrue || !slices.Equal(crd.Status.StoredVersions, []string{"v1"}) {
		t.Errorf("the answer's status is %+v", crd.Status)
	}
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = "changed"
	if crd, err = client.Update(ctx, crd, metav1.UpdateOptions{}); err != nil || crd.Generation != 2 {
		t.Errorf("the update returns %v, %v", crd, err)
	}
	if err := client.Delete(ctx, crd.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	eventually(t, "the definition is gone", func(ctx context.Context) bool {
		_, err := client.Get(ctx, "widgets.example.com", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
