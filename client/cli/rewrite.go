package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/apiserver-lite/apiserver-lite/client"
)

const (
	// rewriters is how many objects are rewritten at once: so many share a sync of the server's disk.
	rewriters = 8
	// rewritePage is how many objects are listed at once, by their names alone.
	rewritePage = 2_000
	// maxRewriteFailures is how many failures are printed. The others are counted.
	maxRewriteFailures = 1_000
)

// rewriteCommand has the server store objects anew that it would store in another way now.
type rewriteCommand struct{ named []string }

func (c *rewriteCommand) addFlags(*pflag.FlagSet) {}

func (c *rewriteCommand) parse(args []string) error {
	c.named = args
	return nil
}

func (c *rewriteCommand) run(ctx context.Context, s *session) error {
	kinds, err := c.kinds(ctx, s.client)
	if err != nil {
		return err
	}
	r := &rewriting{session: s}
	for _, kind := range kinds {
		if err = r.kind(ctx, kind); err != nil {
			break
		}
	}
	if err == nil {
		err = ctx.Err() // the last ones may not have been done
	}
	fmt.Fprintf(s.out, "stored anew: %d of %d objects\n", r.rewritten, r.seen)
	switch {
	case err != nil:
		return fmt.Errorf("%w; the same command goes on where this one ended", err)
	case r.failed > maxRewriteFailures:
		return fmt.Errorf("%d objects failed; the first %d are above", r.failed, maxRewriteFailures)
	case r.failed > 0:
		return fmt.Errorf("%d objects failed", r.failed)
	}
	return nil
}

// kinds returns those that are named, or without a name all that can be listed and patched.
func (c *rewriteCommand) kinds(ctx context.Context, server *client.Client) (all []client.ResourceInfo, err error) {
	if len(c.named) == 0 {
		all, err = server.AllResources(ctx)
		return slices.DeleteFunc(all, func(k client.ResourceInfo) bool {
			return !slices.Contains(k.Verbs, "list") || !slices.Contains(k.Verbs, "patch")
		}), err
	}
	for _, name := range c.named {
		kind, err := server.Find(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, kind)
	}
	return all, nil
}

// rewriting is one run.
type rewriting struct {
	*session

	mu              sync.Mutex // guards all below
	seen, rewritten int
	failed          int
}

// kind rewrites the objects of a kind. Its error is that of the list: what can't be rewritten is printed, and the rest goes on.
func (r *rewriting) kind(ctx context.Context, kind client.ResourceInfo) error {
	of := client.Resource[client.Object](r.client, kind.APIVersion, kind.Plural)
	list, err := of.List(ctx, client.Only("metadata.name"), client.PageSize(rewritePage))
	if errors.Is(err, client.ErrNotFound) { // it was served a moment ago
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", of, err)
	}
	var workers errgroup.Group
	workers.SetLimit(rewriters)
	defer func() { _ = workers.Wait() }() // none returns an error
	for o, err := range list.All(ctx) {
		if err != nil {
			return fmt.Errorf("list %s: %w", of, err)
		}
		object := *o
		workers.Go(func() error {
			r.object(ctx, of.In(object.Namespace()), object)
			return nil
		})
	}
	return nil
}

// object rewrites an object by a patch that changes nothing: the server stores that only if it would store the object in another way now, under
// another key or in another version.
func (r *rewriting) object(ctx context.Context, of client.Collection[client.Object], o client.Object) {
	now, err := of.Patch(ctx, o.Name(), client.Merge(struct{}{}))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	switch {
	case errors.Is(err, client.ErrNotFound) || ctx.Err() != nil: // somebody has deleted it
	case err != nil:
		if r.failed++; r.failed <= maxRewriteFailures {
			fmt.Fprintf(r.err, "%s %s: %v\n", of, o.Name(), err)
		}
	case now.ResourceVersion() != o.ResourceVersion():
		r.rewritten++
	}
	if r.seen%progressEvery == 0 && Terminal(r.err) {
		fmt.Fprintf(r.err, "%d objects looked at, %d stored anew, %s\n", r.seen, r.rewritten, of)
	}
}
