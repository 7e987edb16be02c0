package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// retryInterval is how often a server that is away is tried.
const retryInterval = 2 * time.Second

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
		return errNoResource("watch")
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
func (c *watchCommand) run(ctx context.Context, s *session) error {
	w := &watcher{known: map[client.Key]client.Event[client.Object]{}}
	w.print = func(event client.Event[client.Object]) error { return printJSON(s.out, event) }
	if c.output == "line" || c.output == "" && terminal(s.out) {
		coloured := terminal(s.out) && s.getenv("NO_COLOR") == ""
		w.print = func(event client.Event[client.Object]) error { return printLine(s.out, event, coloured) }
	}
	options := append(c.options(), client.Backoff(retryInterval, retryInterval))
	if c.name != "" {
		options = append(options, client.Fields("metadata.name="+c.name))
	}
	collection, err := c.findRetrying(ctx, s)
	if err == nil {
		err = w.watch(ctx, collection.Track(ctx, options...), s.err)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// findRetrying finds the resource, also of a server that is away for a while.
func (c *watchCommand) findRetrying(ctx context.Context, s *session) (client.Collection[client.Object], error) {
	for {
		collection, err := c.find(ctx, s, c.resource)
		if err == nil || ctx.Err() != nil || permanent(err) {
			return collection, err
		}
		fmt.Fprintf(s.err, "trying again in %v: %v\n", retryInterval, err)
		waitToRetry(ctx)
	}
}

// waitToRetry waits for retryInterval, or returns why ctx ended.
func waitToRetry(ctx context.Context) error {
	select {
	case <-time.After(retryInterval):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// permanent tells whether it makes no sense to try again after an error.
func permanent(err error) bool {
	if errors.Is(err, client.ErrNotFound) {
		return true
	}
	refusal, ok := errors.AsType[*client.StatusError](err)
	return ok && refusal.Code < http.StatusInternalServerError && refusal.Code != http.StatusTooManyRequests
}

// watcher is one watch.
type watcher struct {
	print func(client.Event[client.Object]) error
	known map[client.Key]client.Event[client.Object] // the last state of each object that was printed
}

// watch prints what comes, until ctx ends, the server refuses, or the output can't be written.
func (w *watcher) watch(ctx context.Context, steps iter.Seq2[client.Step[client.Object], error], stderr io.Writer) error {
	listed := false
	for step, err := range steps {
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, client.ErrExpired):
			listed = false
			fmt.Fprintf(stderr, "history is gone: listing anew in %v\n", retryInterval)
		case err != nil && permanent(err) && !(listed && errors.Is(err, client.ErrNotFound)): // a definition may come back
			return err
		case err != nil:
			fmt.Fprintf(stderr, "trying again in %v: %v\n", retryInterval, err)
		case step.State != nil:
			listed = true
			if err := w.compare(step.State.Objects); err != nil {
				return err
			}
		default:
			if err := w.tell(step.Event); err != nil {
				return err
			}
		}
	}
	return nil // not reached: Track ends with an error
}

// compare prints what differs from what is known: at first everything, as ADDED.
func (w *watcher) compare(objects []client.Event[client.Object]) error {
	there := map[client.Key]bool{}
	for _, event := range objects {
		there[event.Key] = true
		old, had := w.known[event.Key]
		switch {
		case !had:
		case old.ResourceVersion == event.ResourceVersion:
			continue
		case old.Object.UID() == event.Object.UID():
			event.Type = client.Modified
		default: // deleted and created anew
			old.Type = client.Deleted
			if err := w.tell(old); err != nil {
				return err
			}
		}
		if err := w.tell(event); err != nil {
			return err
		}
	}
	for key, gone := range w.known {
		if !there[key] {
			gone.Type = client.Deleted
			if err := w.tell(gone); err != nil {
				return err
			}
		}
	}
	return nil
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
