// Command watcher prints what happens to widgets, over restarts of the server and cut connections, and needs nothing but the
// standard library and package client.
//
//	go run ./examples/watcher http://127.0.0.1:8080
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// Widget is of testdata/crds/widgets.yaml.
type Widget struct {
	client.Meta
	Spec struct {
		Color string `json:"color"`
		Size  int    `json:"size"`
	} `json:"spec"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := "http://127.0.0.1:8080"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := watch(ctx, url, os.Stdout); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// watch prints the widgets that there are, and then each change, until ctx ends.
func watch(ctx context.Context, url string, out io.Writer) error {
	c, err := client.New(url, client.Options{})
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	widgets := client.Resource[Widget](c, "example.com/v1", "widgets")
	for {
		list, err := widgets.List(ctx)
		if err != nil {
			return err
		}
		for widget, err := range list.All(ctx) {
			if err != nil {
				return err
			}
			fmt.Fprintln(out, "THERE IS", widget.Name, widget.Spec.Color, widget.Spec.Size)
		}
		for event, err := range widgets.Follow(ctx, list.ResourceVersion) {
			if errors.Is(err, client.ErrExpired) {
				break // history is gone: list again
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(out, event.Type, event.Key.Name, event.Object.Spec.Color, event.Object.Spec.Size)
		}
	}
}
