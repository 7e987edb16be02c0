// Command watcher prints what happens to widgets, over restarts of the server and cut connections, and needs nothing but the
// standard library and package client.
//
//	go run ./examples/watcher http://127.0.0.1:8080
package main

import (
	"context"
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
	for step, err := range widgets.Track(ctx) {
		switch {
		case ctx.Err() != nil:
		case err != nil: // it goes on after a pause: the server may be away, or the definition may come yet
			fmt.Fprintln(os.Stderr, err)
		case step.State != nil: // at first, and when so much was missed that the server doesn't know it any more
			for _, there := range step.State.Objects {
				fmt.Fprintln(out, "THERE IS", there.Key.Name, there.Object.Spec.Color, there.Object.Spec.Size)
			}
		default:
			fmt.Fprintln(out, step.Event.Type, step.Event.Key.Name, step.Event.Object.Spec.Color, step.Event.Object.Spec.Size)
		}
	}
	return context.Cause(ctx)
}
