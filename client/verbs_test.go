package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// TestVerbs: each verb does what it says, on one object.
func TestVerbs(t *testing.T) {
	widgets, ctx := collection(t, define(t).URL), bounded(t)

	red := must(widgets.Create(ctx, &Widget{Meta: client.Named("red"), Spec: WidgetSpec{Color: "red", Size: 1}}))(t)
	if red.Kind != "Widget" || red.APIVersion != "example.com/v1" || red.UID == "" || red.ResourceVersion == "" || red.CreationTimestamp.IsZero() || red.Spec.Size != 1 {
		t.Errorf("Create returned %+v", red)
	}
	generated := must(widgets.Create(ctx, &Widget{Meta: client.Meta{Metadata: client.Metadata{GenerateName: "w-"}}}))(t)
	if got := must(widgets.Get(ctx, generated.Name))(t); got.UID != generated.UID {
		t.Errorf("Get returned %+v, want %+v", got, generated)
	}
	red.Spec.Size, red.Labels = 2, map[string]string{"tier": "front"}
	red = must(widgets.Update(ctx, red))(t)
	red.Status.Phase, red.Spec.Size = "Ready", 77
	if red = must(widgets.UpdateStatus(ctx, red))(t); red.Status.Phase != "Ready" || red.Spec.Size != 2 {
		t.Errorf("UpdateStatus returned %+v", red)
	}
	if red = must(widgets.Patch(ctx, "red", client.Merge(map[string]any{"spec": map[string]any{"size": 3}})))(t); red.Spec.Size != 3 {
		t.Errorf("a merge patch returned %+v", red)
	}
	remove := client.JSONPatch([]map[string]any{{"op": "remove", "path": "/spec/color"}})
	if red = must(widgets.Patch(ctx, "red", remove))(t); red.Spec.Color != "" {
		t.Errorf("a JSON patch returned %+v", red)
	}
	applied := must(widgets.Apply(ctx, "me", &Widget{Meta: client.Named("applied"), Spec: WidgetSpec{Size: 4}}))(t)
	if applied.Spec.Size != 4 {
		t.Errorf("Apply returned %+v", applied)
	}
	if _, err := widgets.Patch(ctx, "red", client.Merge(map[string]any{"spec": map[string]any{"size": 9}}), client.DryRun()); err != nil {
		t.Error(err)
	}
	if red = must(widgets.Get(ctx, "red", client.NotOlderThan(red.ResourceVersion)))(t); red.Spec.Size != 3 {
		t.Errorf("after a dry run, Get returned %+v", red)
	}
	if err := widgets.Delete(ctx, "red", client.IfUID(red.UID), client.IfVersion(red.ResourceVersion)); err != nil {
		t.Error(err)
	}
	for _, options := range [][]client.Option{{client.DryRun()}, nil} {
		keys, err := widgets.DeleteCollectionKeys(ctx, append(options, client.Fields("metadata.name=applied"))...)
		if want := []client.Key{{Namespace: "default", Name: "applied"}}; err != nil || !slices.Equal(keys, want) {
			t.Errorf("deleted are %v, %v, want %v", keys, err, want)
		}
	}
	if left := must(must(widgets.List(ctx))(t).Slice(ctx))(t); len(left) != 1 || left[0].Name != generated.Name {
		t.Errorf("left are %+v", left)
	}
}

// TestScale: a definition with the subresource can be scaled.
func TestScale(t *testing.T) {
	s := define(t)
	s.PostYAML("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `
metadata: {name: fleets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Fleet, plural: fleets}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)
	ctx := bounded(t)
	fleets := client.Resource[client.Object](connect(t, s.URL), "example.com/v1", "fleets").In("default")
	fleet := client.Object(`{"metadata": {"name": "a"}, "spec": {"replicas": 1}}`)
	created := must(fleets.Create(ctx, &fleet))(t)
	if created.Kind() != "Fleet" || created.APIVersion() != "example.com/v1" || created.Name() != "a" || created.Namespace() != "default" || created.ResourceVersion() == "" {
		t.Errorf("created %s", *created)
	}
	must(fleets.SetScale(ctx, "a", 5))(t)
	if scale := must(fleets.Scale(ctx, "a"))(t); scale.Spec.Replicas != 5 || scale.Name != "a" {
		t.Errorf("scale is %+v", scale)
	}
}

// TestErrors: each refusal is of its kind, and of no other.
func TestErrors(t *testing.T) {
	widgets, ctx := collection(t, define(t).URL), bounded(t)
	a := must(widgets.Create(ctx, widget("a", 1)))(t)
	must(resize(ctx, widgets, "a", 2))(t)
	must(widgets.Apply(ctx, "one", widget("applied", 1)))(t)
	nowhere := client.Resource[Widget](connect(t, define(t).URL), "example.com/v1", "gizmos").In("default")
	kinds := []error{
		client.ErrNotFound, client.ErrExists, client.ErrConflict, client.ErrExpired, client.ErrForbidden, client.ErrUnauthorized,
		client.ErrInvalid, client.ErrTooManyRequests, client.ErrUnavailable, client.ErrVersionTooLarge,
	}
	for _, tt := range []struct {
		name string
		do   func() error
		want error // nil for any
	}{
		{"get what isn't there", func() error { _, err := widgets.Get(ctx, "b"); return err }, client.ErrNotFound},
		{"get of no resource", func() error { _, err := nowhere.Get(ctx, "b"); return err }, client.ErrNotFound},
		{"create of no resource", func() error { _, err := nowhere.Create(ctx, widget("a", 1)); return err }, client.ErrNotFound},
		{"create what is there", func() error { _, err := widgets.Create(ctx, widget("a", 1)); return err }, client.ErrExists},
		{"update an old state", func() error { _, err := widgets.Update(ctx, a); return err }, client.ErrConflict},
		{"update without a version", func() error { _, err := widgets.Update(ctx, widget("a", 1)); return err }, client.ErrInvalid},
		{"update what isn't there", func() error { _, err := resize(ctx, widgets, "b", 1); return err }, client.ErrNotFound},
		{"apply what another applied", func() error { _, err := widgets.Apply(ctx, "two", widget("applied", 2)); return err }, client.ErrConflict},
		{"delete another version", func() error { return widgets.Delete(ctx, "a", client.IfVersion(a.ResourceVersion)) }, client.ErrConflict},
		{"delete another object", func() error { return widgets.Delete(ctx, "a", client.IfUID("x")) }, client.ErrConflict},
		{"a bad name", func() error { _, err := widgets.Create(ctx, widget("A_", 1)); return err }, client.ErrInvalid},
		{"get of the future", func() error { _, err := widgets.Get(ctx, "a", client.NotOlderThan("999999")); return err }, client.ErrVersionTooLarge},
		{"list of the future", func() error { _, err := widgets.List(ctx, client.At("999999")); return err }, client.ErrVersionTooLarge},
		{"no name", func() error { _, err := widgets.Get(ctx, ""); return err }, nil},
		{"label selector", func() error { _, err := widgets.List(ctx, client.Labels("a=(")); return err }, nil},
		{"field selector", func() error { _, err := widgets.List(ctx, client.Fields("a")); return err }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.do()
			if err == nil {
				t.Fatal("no error")
			}
			for _, kind := range kinds {
				if errors.Is(err, kind) != (kind == tt.want) {
					t.Errorf("%v: Is(%v) is %v", err, kind, kind != tt.want)
				}
			}
		})
	}
	_, err := widgets.Patch(ctx, "a", client.Merge(map[string]any{"spec": map[string]any{"size": "XXL"}}))
	if refusal, ok := errors.AsType[*client.StatusError](err); !ok || len(refusal.Causes) != 1 || refusal.Causes[0].Field != "spec.size" {
		t.Errorf("an invalid object is refused with %#v", err)
	}
	_, err = widgets.Patch(ctx, "a", client.Merge(map[string]any{"spec": map[string]any{"unknown": 1}}), client.Strict())
	if err == nil {
		t.Error("an unknown field is taken though validation is strict")
	}
}

// TestPages: a list has one version however many pages it takes, and can be read again.
func TestPages(t *testing.T) {
	widgets, ctx := collection(t, define(t).URL), bounded(t)
	var want []string
	for i := range 23 {
		want = append(want, must(widgets.Create(ctx, widget(fmt.Sprintf("w%02d", i), i)))(t).Name)
	}
	list := must(widgets.List(ctx, client.PageSize(5)))(t)
	version := list.ResourceVersion
	must(widgets.Create(ctx, widget("later", 1)))(t)
	for _, round := range []string{"first", "second"} {
		var got []string
		for w, err := range list.All(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, w.Name)
		}
		if !slices.Equal(got, want) || list.ResourceVersion != version {
			t.Errorf("the %s time, the list has %v of version %s; want %v of version %s", round, got, list.ResourceVersion, want, version)
		}
	}
}

// TestTablePages: a table has one version, however many pages it takes.
func TestTablePages(t *testing.T) {
	widgets, ctx := collection(t, define(t).URL), bounded(t)
	for i := range 5 {
		must(widgets.Create(ctx, widget(fmt.Sprintf("w%d", i), i)))(t)
	}
	version := must(widgets.List(ctx))(t).ResourceVersion
	must(widgets.Create(ctx, widget("later", 1)))(t)
	for _, tt := range []struct {
		name   string
		option client.Option
		want   int
	}{{"at it", client.At(version), 5}, {"not older than it", client.NotOlderThan(version), 6}} {
		t.Run(tt.name, func(t *testing.T) {
			table, err := widgets.Table(ctx, "", nil, client.PageSize(2), tt.option)
			if err != nil || len(table.Rows) != tt.want {
				t.Errorf("it's %+v, %v; want %d rows", table, err, tt.want)
			}
		})
	}
}

// TestUpdateKeeps: writers that come together all get their turn, and fields that the type doesn't have stay.
func TestUpdateKeeps(t *testing.T) {
	s := define(t)
	widgets, ctx := collection(t, s.URL), bounded(t)
	must(widgets.Create(ctx, &Widget{Meta: client.Named("a"), Spec: WidgetSpec{Color: "red"}}))(t)
	type sized struct { // has no color
		client.Meta
		Spec struct {
			Size int `json:"size"`
		} `json:"spec"`
	}
	narrow := client.Collection[sized](widgets)
	const writers, each = 4, 5
	var wait sync.WaitGroup
	for range writers {
		wait.Go(func() {
			for range each {
				if _, err := client.Update(ctx, narrow, "a", func(w *sized) error { w.Spec.Size++; return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	a := must(widgets.Get(ctx, "a"))(t)
	if a.Spec.Size != writers*each || a.Spec.Color != "red" {
		t.Errorf("after %d increments it's %+v", writers*each, a.Spec)
	}
	refused := errors.New("refused")
	if _, err := client.Update(ctx, widgets, "a", func(*Widget) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("the change's error comes back as %v", err)
	}
	same, err := client.Update(ctx, widgets, "a", func(*Widget) error { return nil })
	if err != nil || same.ResourceVersion != a.ResourceVersion {
		t.Errorf("a change of nothing returned version %s, %v; want %s", same.ResourceVersion, err, a.ResourceVersion)
	}
}

// TestUntil waits for states of an object that doesn't exist yet.
func TestUntil(t *testing.T) {
	widgets, ctx := collection(t, define(t).URL), bounded(t)
	var wait sync.WaitGroup
	begun := make(chan struct{}) // closed when it's asked for the first time: nobody sees what was before
	begin := sync.OnceFunc(func() { close(begun) })
	size := func(n int) client.Condition[Widget] {
		return func(w *Widget) (bool, error) { begin(); return w != nil && w.Spec.Size == n, nil }
	}
	wait.Go(func() {
		select {
		case <-begun:
		case <-ctx.Done():
		}
		for i := range 5 {
			var err error
			if i == 0 {
				_, err = widgets.Create(ctx, widget("a", i))
			} else {
				_, err = resize(ctx, widgets, "a", i)
			}
			if err != nil {
				t.Error(err)
			}
		}
		if err := widgets.Delete(ctx, "a"); err != nil {
			t.Error(err)
		}
	})
	last, err := widgets.Until(ctx, "a", size(4), client.Gone)
	if last != nil || err != nil {
		t.Errorf("Until returned %+v, %v", last, err)
	}
	wait.Wait()
	short, cancel := context.WithCancelCause(ctx)
	enough := errors.New("enough")
	cancel(enough)
	if _, err := widgets.Until(short, "a", size(1)); !errors.Is(err, enough) {
		t.Errorf("Until ended with %v", err)
	}
}

// TestFind: resources are found by what people call them.
func TestFind(t *testing.T) {
	c, ctx := connect(t, define(t).URL), bounded(t)
	for name, want := range map[string]string{
		"widgets": "widgets", "Widget": "widgets", "wd": "widgets", "widgets.example.com": "widgets", "widgets.v1.example.com": "widgets",
		"ns": "namespaces", "namespaces.v1": "namespaces", "crd": "customresourcedefinitions",
		"gizmos": "", "widgets.example.org": "",
	} {
		got, err := c.Find(ctx, name)
		if got.Plural != want || (want == "") != errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s is %+v, %v; want %q", name, got, err, want)
		}
	}
}

// TestWatch: a watch of one connection gives what there is, what changes, and a clean end.
func TestWatch(t *testing.T) {
	widgets, ctx := collection(t, define(t).URL), bounded(t)
	a := must(widgets.Create(ctx, widget("a", 1)))(t)
	var got []string
	for event, err := range widgets.Watch(ctx, client.WatchFor(time.Second), client.Bookmarks()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Type == client.Bookmark {
			if event.ResourceVersion == "" {
				t.Error("a bookmark has no version")
			}
			continue
		}
		got = append(got, event.Type.String()+" "+event.Key.String()+" "+strconv.Itoa(event.Object.Spec.Size))
		if len(got) == 1 {
			must(resize(ctx, widgets, "a", 2))(t)
			if err := widgets.Delete(ctx, "a"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"ADDED default/a 1", "MODIFIED default/a 2", "DELETED default/a 2"}; !slices.Equal(got, want) {
		t.Errorf("events are %q, want %q", got, want)
	}
	for event, err := range widgets.Watch(ctx, client.Since(a.ResourceVersion)) {
		if err != nil || event.Type != client.Modified {
			t.Errorf("the first event after the first version is %v, %v", event, err)
		}
		break
	}
}
