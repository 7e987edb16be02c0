package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// The functions below are shown in README.md and docs/client.md, which a test compares with this file.

func grow(ctx context.Context, url string) error {
	c, err := client.New(url, client.Options{})
	if err != nil {
		return err
	}
	widgets := client.Resource[Widget](c, "example.com/v1", "widgets").In("default")

	_, err = widgets.Create(ctx, &Widget{Meta: client.Named("red"), Spec: WidgetSpec{Color: "red", Size: 1}})
	if err != nil && !errors.Is(err, client.ErrExists) {
		return err
	}
	list, err := widgets.List(ctx, client.Fields("metadata.name=red"))
	if err != nil {
		return err
	}
	for event, err := range widgets.Follow(ctx, list.ResourceVersion, client.Fields("metadata.name=red")) {
		if err != nil {
			return err // the watch goes on through cut connections and restarts; it never ends silently
		}
		fmt.Println(event.Type, event.Key, event.Object.Spec.Size)
	}
	return nil
}

func mirror(ctx context.Context, widgets client.Collection[Widget]) error {
	cache, err := client.StartCache(ctx, widgets, client.Labels("tier=front"))
	if err != nil {
		return err
	}
	defer cache.Close()
	cache.AddIndex("color", func(w *Widget) []string { return []string{w.Spec.Color} })

	for change, err := range cache.Changes(ctx) {
		if err != nil {
			return err
		}
		fmt.Println(change.Type, change.Key, change.Old, change.New)
		for red := range cache.Indexed("color", "red") {
			fmt.Println("also red:", red.Name)
		}
	}
	return nil
}

func enlarge(ctx context.Context, widgets client.Collection[Widget], cache *client.Cache[Widget]) error {
	red, err := client.Update(ctx, widgets, "red", func(w *Widget) error {
		w.Spec.Size++
		return nil
	})
	if err != nil {
		return err
	}
	if err := cache.WaitFor(ctx, red.ResourceVersion); err != nil { // the cache has what was just written
		return err
	}
	_, err = widgets.Until(ctx, "red", func(w *Widget) (bool, error) {
		return w != nil && w.Status.Phase == "Ready", nil
	})
	return err
}

// TestReadme runs what the pages show.
func TestReadme(t *testing.T) {
	s := define(t)
	widgets, ctx := collection(t, s.URL), bounded(t)
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := grow(short, s.URL); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := mirror(short, widgets); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	cache := must(client.StartCache(ctx, widgets))(t)
	defer cache.Close()
	red := must(widgets.Get(ctx, "red"))(t)
	red.Status.Phase = "Ready"
	must(widgets.UpdateStatus(ctx, red))(t)
	if err := enlarge(ctx, widgets, cache); err != nil {
		t.Error(err)
	}
}
