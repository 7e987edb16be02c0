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
	projection
	output string

	resources []string
	name      string // "" for all
}

func (c *watchCommand) addFlags(set *pflag.FlagSet) {
	c.place.addFlags(set)
	c.selection.addFlags(set)
	c.projection.addFlags(set, "of objects and of changes")
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
	c.resources = strings.Split(args[0], ",")
	if len(c.resources) > 1 && c.name != "" {
		return usageError("a name is of one resource, and %s are several", args[0])
	}
	return errors.Join(checkNames(args[1:]...), c.place.check(), c.selection.check(beside), c.projection.check())
}

// run watches until ctx ends, which is its end, or until the server refuses.
func (c *watchCommand) run(ctx context.Context, s *session) error {
	w := &watcher{known: map[identity]client.Event[client.Object]{}}
	w.print = func(event client.Event[client.Object]) error { return printJSON(s.out, event) }
	if c.output == "line" || c.output == "" && Terminal(s.out) {
		l := liner{out: s.out, coloured: Terminal(s.out) && s.getenv("NO_COLOR") == "", kinds: len(c.resources) > 1}
		w.print = l.print
	}
	options := append(append(c.selection.options(), c.projection.options()...), client.Backoff(retryInterval, retryInterval))
	if c.name != "" {
		options = append(options, client.Fields("metadata.name="+c.name))
	}
	steps, err := c.follow(ctx, s, options)
	if err == nil {
		err = w.watch(ctx, steps, s.err)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// follow returns what there is of the resources, and then each change.
func (c *watchCommand) follow(ctx context.Context, s *session, options []client.Option) (iter.Seq2[client.Step[client.Object], error], error) {
	if len(c.resources) == 1 {
		info, err := findRetrying(ctx, s, c.resources[0])
		return c.collection(s, info).Track(ctx, options...), err
	}
	var names []string
	for _, resource := range c.resources {
		info, err := findRetrying(ctx, s, resource)
		if err != nil {
			return nil, err
		}
		group, version, found := strings.Cut(info.APIVersion, "/")
		if !found {
			group, version = "", info.APIVersion
		}
		names = append(names, info.Plural+"."+version+"."+group)
	}
	return client.FollowAll(ctx, s.client, c.where(s), names, options...), nil
}

// findRetrying finds the resource, also of a server that is away for a while.
func findRetrying(ctx context.Context, s *session, resource string) (client.ResourceInfo, error) {
	for {
		info, err := s.client.Find(ctx, resource)
		if err == nil || ctx.Err() != nil || permanent(err) {
			return info, err
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
	known map[identity]client.Event[client.Object] // the last state of each object that was printed
}

// identity tells objects apart, also those of several resources.
type identity struct {
	apiVersion, kind string
	client.Key
}

func identityOf(event client.Event[client.Object]) identity {
	return identity{event.Object.APIVersion(), event.Object.Kind(), event.Key}
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
	there := map[identity]bool{}
	for _, event := range objects {
		id := identityOf(event)
		there[id] = true
		old, had := w.known[id]
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
	for id, gone := range w.known {
		if !there[id] {
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
		delete(w.known, identityOf(event))
	} else {
		w.known[identityOf(event)] = event
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

// liner prints events for people.
type liner struct {
	out             io.Writer
	coloured, kinds bool // whether each has its kind
}

func (l liner) print(event client.Event[client.Object]) error {
	colour, plain := colours[event.Type], "\x1b[0m"
	if !l.coloured {
		colour, plain = "", ""
	}
	what := fmt.Sprint(event.Key)
	if l.kinds {
		what = event.Object.Kind() + " " + what
	}
	_, err := fmt.Fprintf(l.out, "%s %s%-8s%s %s %s\n", time.Now().Format(time.TimeOnly), colour, event.Type, plain,
		strings.Map(printable, what), event.ResourceVersion)
	return err
}
