package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// retry is how often a server that is away is tried.
const retry = 2 * time.Second

// watcher is one watch.
type watcher struct {
	widgets client.Collection[client.Object]
	options []client.Option
	print   func(client.Event[client.Object]) error
	stderr  io.Writer

	known map[client.Key]client.Event[client.Object] // the last state of each object
}

// watch prints what there is as ADDED, and then each change.
func (c *command) watch(ctx context.Context) error {
	if len(c.args) > 2 {
		return usageError("unexpected argument %q", c.args[2])
	}
	print := c.printJSON
	switch c.output {
	case "json":
	case "line":
		print = c.printLine
	case "":
		if terminal(c.out) {
			print = c.printLine
		}
	default:
		return usageError("-o %q is neither json nor line", c.output)
	}
	c.isColour = terminal(c.out) && c.getenv("NO_COLOR") == ""
	w := &watcher{print: print, options: append(c.options, client.Backoff(retry, retry)), stderr: c.err}
	if len(c.args) == 2 {
		w.options = append(w.options, client.Fields("metadata.name="+c.args[1]))
	}
	return w.run(ctx, c.resource)
}

// run watches until ctx ends, or the server refuses.
func (w *watcher) run(ctx context.Context, find func(context.Context) (client.Collection[client.Object], error)) (err error) {
	for found := false; ; {
		if !found {
			w.widgets, err = find(ctx)
			found = err == nil
		}
		if found {
			err = w.once(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, client.ErrExpired):
			fmt.Fprintln(w.stderr, "history is gone: listing anew")
		case refused(err):
			return err
		default:
			fmt.Fprintf(w.stderr, "trying again in %v: %v\n", retry, err)
			pause(ctx)
		}
	}
}

// pause waits for retry, or until ctx ends.
func pause(ctx context.Context) {
	select {
	case <-time.After(retry):
	case <-ctx.Done():
	}
}

// printFailed is an error of the output, which nobody can mend.
type printFailed struct{ error }

// refused tells whether it makes no sense to try again.
func refused(err error) bool {
	var output printFailed
	if errors.As(err, &output) || errors.Is(err, errUsage) || errors.Is(err, client.ErrNotFound) {
		return true
	}
	refusal, ok := errors.AsType[*client.StatusError](err)
	return ok && refusal.Code < http.StatusInternalServerError && refusal.Code != http.StatusTooManyRequests
}

// once lists and follows.
func (w *watcher) once(ctx context.Context) error {
	version, err := w.list(ctx)
	if err != nil {
		return err
	}
	for event, err := range w.widgets.Follow(ctx, version, w.options...) {
		if err != nil {
			return err
		}
		if err := w.tell(event); err != nil {
			return err
		}
	}
	return nil // not reached: Follow ends with an error
}

// list prints what differs from what is known: at first everything, as ADDED.
func (w *watcher) list(ctx context.Context) (version string, err error) {
	list, err := w.widgets.List(ctx, w.options...)
	if err != nil {
		return "", err
	}
	before := w.known
	w.known = map[client.Key]client.Event[client.Object]{}
	for object, err := range list.All(ctx) {
		if err != nil {
			w.known = before
			return "", err
		}
		key := client.Key{Namespace: object.Namespace(), Name: object.Name()}
		event := client.Event[client.Object]{Type: client.Added, Object: object, Key: key, ResourceVersion: object.ResourceVersion()}
		old, had := before[key]
		delete(before, key)
		if had {
			event.Type = client.Modified
		}
		if had && old.ResourceVersion == event.ResourceVersion {
			w.known[key] = event
		} else if err := w.tell(event); err != nil {
			return "", err
		}
	}
	for _, gone := range before {
		gone.Type = client.Deleted
		if err := w.tell(gone); err != nil {
			return "", err
		}
	}
	return list.ResourceVersion, nil
}

// tell prints an event, and remembers the object.
func (w *watcher) tell(event client.Event[client.Object]) error {
	if event.Type == client.Deleted {
		delete(w.known, event.Key)
	} else {
		w.known[event.Key] = event
	}
	if err := w.print(event); err != nil {
		return printFailed{err}
	}
	return nil
}

// printJSON prints the event as it is on the wire.
func (c *command) printJSON(event client.Event[client.Object]) error {
	line := append(watchstream.AppendHead(nil, event.Type), *event.Object...)
	_, err := c.out.Write(watchstream.AppendTail(line))
	return err
}

// colours of events on a terminal: green, yellow, red.
var colours = map[watchstream.Type]string{client.Added: "\x1b[32m", client.Modified: "\x1b[33m", client.Deleted: "\x1b[31m"}

// printLine prints the event for people.
func (c *command) printLine(event client.Event[client.Object]) error {
	colour, plain := colours[event.Type], "\x1b[0m"
	if !c.isColour {
		colour, plain = "", ""
	}
	_, err := fmt.Fprintf(c.out, "%s %s%-8s%s %s %s\n", time.Now().Format(time.TimeOnly), colour, event.Type, plain,
		strings.Map(printable, fmt.Sprint(event.Key)), event.ResourceVersion)
	return err
}
