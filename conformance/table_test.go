package conformance

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
)

const (
	blueGadget = `{apiVersion: example.com/v1, kind: Gadget, metadata: {name: blue}, spec: {size: 3, ratio: 1.5, lit: true, tags: [a, b], since: yesterday},
		status: {conditions: [{type: Other, status: "False"}, {type: Ready, status: "True"}]}}`
	bareGadget = `{apiVersion: example.com/v1, kind: Gadget, metadata: {name: bare, labels: {tier: front}}, spec: {}}`
)

// TestKubectlColumns prints objects as kubectl does against a whole cluster.
func TestKubectlColumns(t *testing.T) {
	k := newKubectl(t, startEphemeral(t))
	k.do("", "create", "-f", "testdata/gadgets.yaml")
	k.do(blueGadget, "create", "-f", "-")
	k.do(bareGadget, "create", "-f", "-")
	k.tell(t, []step{
		{args: args("get", "gadgets"), want: "NAME   SIZE   RATIO   LIT    READY   SINCE\n" +
			"bare                                 \n" +
			"blue   3      1.5     true   True    <invalid>"},
		{args: args("get", "gadgets", "-o", "wide", "--no-headers"), want: "..." + `True   ["a","b"]   <invalid>`},
		{args: args("get", "gadget", "blue", "--no-headers"), want: "blue   3     1.5   true   True   <invalid>"},
		{args: args("get", "gd", "-A", "--sort-by", "{.metadata.name}", "--no-headers", "--show-labels"), want: "...front"},
		{args: args("get", "gd", "-o", "custom-columns=N:.metadata.name,S:.spec.size"), want: "N      S\nbare   <none>\nblue   3"},
		{args: args("get", "gd", "-o", "jsonpath={.items[*].spec.size}"), want: "3"},
	})
	both := k.do("", "get", "crd,ns")
	for _, pattern := range []string{
		`NAME +SCOPE +VERSIONS +CREATED AT\ncustomresourcedefinition.apiextensions.k8s.io/gadgets.example.com +Namespaced +v1\(storage\) +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n`,
		`NAME +STATUS +AGE\nnamespace/default +Active +\d+m?\d*s?\n`,
	} {
		if !regexp.MustCompile(pattern).MatchString(both) {
			t.Errorf("kubectl get crd,ns prints\n%s\nwithout %s", both, pattern)
		}
	}
	lines := k.follow("get", "gadgets", "-w", "--field-selector", "metadata.name=blue", "--output-watch-events")
	expect := func(want string) {
		t.Helper()
		line, ok := <-lines
		if got := strings.Join(strings.Fields(line), " "); got != want {
			t.Fatalf("the watch prints %q (or ended: %t), want %q", got, !ok, want)
		}
	}
	expect("EVENT NAME SIZE RATIO LIT READY SINCE")
	expect("ADDED blue 3 1.5 true True <invalid>")
	k.do("", "patch", "gadget", "blue", "--type=merge", "-p", `{"spec":{"size":7}}`)
	expect("MODIFIED blue 7 1.5 true True <invalid>")
	k.do("", "delete", "gadget", "blue")
	expect("DELETED blue 7 1.5 true True <invalid>")
}

// TestMetadataClient uses the client of garbage collectors and others who want no more than metadata.
func TestMetadataClient(t *testing.T) {
	s := startEphemeral(t)
	s.define()
	objects := s.dynamic().Resource(widgets).Namespace("default")
	for _, name := range []string{"a", "b"} {
		if _, err := objects.Create(t.Context(), widget(name, 1), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := metadata.NewForConfig(s.config())
	if err != nil {
		t.Fatal(err)
	}
	client, ctx := all.Resource(widgets).Namespace("default"), t.Context()
	a, err := client.Get(ctx, "a", metav1.GetOptions{})
	if err != nil || a.Name != "a" || a.Labels["tier"] != "front" || a.UID == "" {
		t.Fatalf("get returns %v, %v", a, err)
	}
	list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" || list.Continue == "" || list.ResourceVersion == "" {
		t.Fatalf("list returns %v, %v", list, err)
	}
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: a.ResourceVersion, FieldSelector: "metadata.name=a"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	patched, err := client.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"back"}}}`), metav1.PatchOptions{})
	if err != nil || patched.Labels["tier"] != "back" {
		t.Fatalf("patch returns %v, %v", patched, err)
	}
	e := <-w.ResultChan()
	if got, ok := e.Object.(*metav1.PartialObjectMetadata); e.Type != watch.Modified || !ok || got.ResourceVersion != patched.ResourceVersion {
		t.Errorf("the watch has %s %v", e.Type, e.Object)
	}
	if err := client.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Deleted {
		t.Errorf("the watch has %s %v", e.Type, e.Object)
	}
}

func TestMetadataInformer(t *testing.T) {
	for _, mode := range informerModes {
		t.Run(mode.name, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, mode.watchList)
			s := startEphemeral(t)
			s.define()
			objects := s.dynamic().Resource(widgets).Namespace("default")
			if _, err := objects.Create(t.Context(), widget("a", 1), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			config, record := s.recorded()
			client, err := metadata.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			informer := metadatainformer.NewSharedInformerFactory(client, 0).ForResource(widgets).Informer()
			seen := make(chan string, 100)
			report(t, informer, seen)
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			var running sync.WaitGroup
			running.Go(func() { informer.RunWithContext(ctx) })
			t.Cleanup(func() {
				cancel()
				running.Wait()
			})
			expectSet(t, seen, "add a")
			eventually(t, "the informer has synced", func(context.Context) bool { return informer.HasSynced() })
			checkBeginning(t, record, mode.watchList)
			if _, err := objects.Create(t.Context(), widget("b", 1), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			expectSet(t, seen, "add b")
			if err := objects.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			expectSet(t, seen, "delete a")
		})
	}
}
