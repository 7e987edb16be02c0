package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

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

// TestReadme runs what the pages show, each until it has printed what it's there for.
func TestReadme(t *testing.T) {
	s := define(t)
	widgets, ctx := collection(t, s.URL), bounded(t)

	lines := printed(t, ctx, "MODIFIED default/red", func(ctx context.Context) error {
		var changes sync.WaitGroup
		defer changes.Wait()
		changes.Go(func() { // grow tells what changes after its list, and nobody sees when that was
			for size := 2; ctx.Err() == nil; size++ {
				if _, err := resize(ctx, widgets, "red", size); err != nil && !errors.Is(err, client.ErrNotFound) && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
		return grow(ctx, s.URL)
	})
	if strings.Contains(lines, "ADDED") {
		t.Errorf("grow tells what was in its list:\n%s", lines)
	}

	front := widget("front", 1)
	front.Labels, front.Spec.Color = map[string]string{"tier": "front"}, "red"
	must(widgets.Create(ctx, front))(t)
	lines = printed(t, ctx, "also red: front", func(ctx context.Context) error { return mirror(ctx, widgets) })
	if !strings.Contains(lines, "ADDED default/front <nil> &{") {
		t.Errorf("mirror doesn't tell what is in its cache:\n%s", lines)
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

// printed runs a function that ends only with its context until it has printed a line with a text, and returns all that
// it had printed by then.
func printed(t *testing.T, ctx context.Context, text string, run func(context.Context) error) string {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	stdout := os.Stdout
	os.Stdout = write
	ended := make(chan error, 1)
	go func() {
		err := run(ctx)
		os.Stdout = stdout
		write.Close()
		ended <- err
	}()
	var lines strings.Builder
	for in := bufio.NewScanner(read); in.Scan(); {
		if ctx.Err() == nil {
			fmt.Fprintln(&lines, in.Text())
		}
		if strings.Contains(in.Text(), text) {
			cancel()
		}
	}
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(lines.String(), text) {
		t.Fatalf("ended with %v and without printing %q:\n%s", err, text, &lines)
	}
	return lines.String()
}
