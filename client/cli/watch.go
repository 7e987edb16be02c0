package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// retry is how often a server that is away is tried.
const retry = 2 * time.Second

// watchCommand prints what there is as ADDED, and then each change.
type watchCommand struct {
	place
	selection
	output string

	resource, name string // name is "" for all
}

func (c *watchCommand) addFlags(set *pflag.FlagSet) {
	c.place.addFlags(set)
	c.selection.addFlags(set)
	set.StringVarP(&c.output, "output", "o", "", "json or line (default line on a terminal, else json)")
}

func (c *watchCommand) parse(args []string) error {
	switch c.output {
	case "", "json", "line":
	default:
		return usageError("-o %q is neither json nor line", c.output)
	}
	beside := ""
	switch len(args) {
	case 0:
		return errWhich("watch")
	case 1:
	case 2:
		c.name, beside = args[1], "a name"
	default:
		return usageError("unexpected argument %q", args[2])
	}
	c.resource = args[0]
	return errors.Join(c.place.check(), c.selection.check(beside))
}

// run watches until ctx ends, which is its end, or until the server refuses.
func (c *watchCommand) run(ctx context.Context, s *session) (err error) {
	w := &watcher{options: append(c.options(), client.Backoff(retry, retry)), known: map[client.Key]client.Event[client.Object]{}}
	w.print = func(event client.Event[client.Object]) error { return printJSON(s.out, event) }
	if c.output == "line" || c.output == "" && terminal(s.out) {
		coloured := terminal(s.out) && s.getenv("NO_COLOR") == ""
		w.print = func(event client.Event[client.Object]) error { return printLine(s.out, event, coloured) }
	}
	if c.name != "" {
		w.options = append(w.options, client.Fields("metadata.name="+c.name))
	}
	for found := false; ; {
		if !found {
			w.widgets, err = c.find(ctx, s, c.resource)
			found = err == nil
		}
		if found {
			err = w.once(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, client.ErrExpired):
			fmt.Fprintf(s.err, "history is gone: listing anew in %v\n", retry)
		case s.out.failed != nil || refused(err):
			return err
		default:
			fmt.Fprintf(s.err, "trying again in %v: %v\n", retry, err)
		}
		pause(ctx)
	}
}

// pause waits for retry, or returns why ctx ended.
func pause(ctx context.Context) error {
	select {
	case <-time.After(retry):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refused tells whether it makes no sense to try again.
func refused(err error) bool {
	if errors.Is(err, client.ErrNotFound) {
		return true
	}
	refusal, ok := errors.AsType[*client.StatusError](err)
	return ok && refusal.Code < http.StatusInternalServerError && refusal.Code != http.StatusTooManyRequests
}

// watcher is one watch.
type watcher struct {
	widgets client.Collection[client.Object]
	options []client.Option
	print   func(client.Event[client.Object]) error

	// known is the last state of each object that was printed. It's true at any moment, so that a list which fails half-way
	// forgets nothing.
	known map[client.Key]client.Event[client.Object]
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
	there := map[client.Key]bool{}
	for object, err := range list.All(ctx) {
		if err != nil {
			return "", err
		}
		event := client.Event[client.Object]{
			Type: client.Added, Object: object, ResourceVersion: object.ResourceVersion(),
			Key: client.Key{Namespace: object.Namespace(), Name: object.Name()},
		}
		there[event.Key] = true
		old, had := w.known[event.Key]
		switch {
		case !had:
		case old.ResourceVersion == event.ResourceVersion:
			continue
		case old.Object.UID() == object.UID():
			event.Type = client.Modified
		default: // deleted and created anew
			old.Type = client.Deleted
			if err := w.tell(old); err != nil {
				return "", err
			}
		}
		if err := w.tell(event); err != nil {
			return "", err
		}
	}
	for key, gone := range w.known {
		if !there[key] {
			gone.Type = client.Deleted
			if err := w.tell(gone); err != nil {
				return "", err
			}
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
	return w.print(event)
}

// printJSON prints the event as it is on the wire.
func printJSON(out io.Writer, event client.Event[client.Object]) error {
	line := append(watchstream.AppendHead(nil, event.Type), *event.Object...)
	_, err := out.Write(watchstream.AppendTail(line))
	return err
}

// colours of events on a terminal: green, yellow, red.
var colours = map[watchstream.Type]string{client.Added: "\x1b[32m", client.Modified: "\x1b[33m", client.Deleted: "\x1b[31m"}

// printLine prints the event for people.
func printLine(out io.Writer, event client.Event[client.Object], coloured bool) error {
	colour, plain := colours[event.Type], "\x1b[0m"
	if !coloured {
		colour, plain = "", ""
	}
	_, err := fmt.Fprintf(out, "%s %s%-8s%s %s %s\n", time.Now().Format(time.TimeOnly), colour, event.Type, plain,
		strings.Map(printable, fmt.Sprint(event.Key)), event.ResourceVersion)
	return err
}
