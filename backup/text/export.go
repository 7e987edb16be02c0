package text

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/backup/own"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
)

const (
	// exportAttempts is how often an export is begun whose revision is compacted meanwhile: each takes as long as the one before.
	exportAttempts = 3
	// pageSize and pageBytes bound what is in memory of a list. A page of history costs the server as much as all that follows it, so
	// that large ones are cheaper.
	pageSize  = 10_000
	pageBytes = 16 << 20
)

// exportCommand is what the arguments of an export say.
type exportCommand struct {
	named      []string // kinds
	namespace  string
	everywhere bool
	output     string
	secrets    bool
}

func (c *exportCommand) addFlags(set *pflag.FlagSet) {
	set.StringVarP(&c.namespace, "namespace", "n", "", "this namespace alone, and what is in it (default all, and what is in none)")
	set.BoolVarP(&c.everywhere, "all-namespaces", "A", false, "all namespaces, and what is in none: the default")
	set.StringVarP(&c.output, "output", "o", "-", "directory that gets a file for each object, or - for one stream on the standard output")
	set.BoolVar(&c.secrets, "secrets", false, "export Secrets, too")
}

func (c *exportCommand) parse(args []string) error {
	c.named = args
	switch {
	case c.namespace != "" && c.everywhere:
		return errors.New("--namespace and --all-namespaces exclude each other")
	case c.output == "":
		return errors.New("--output names a directory, or - for the standard output")
	}
	return nil
}

func (c *exportCommand) run(ctx context.Context, server *client.Client, p cli.Process) error {
	var to sink = newStream(p.Out)
	if c.output != "-" {
		to = newDirectory(c.output)
	}
	for attempt := 1; ; attempt++ {
		e := &export{exportCommand: c, server: server, to: to, told: newProgress(p.Err), owned: ownership{}, gone: map[string]bool{}}
		err := e.run(ctx)
		if err == nil {
			fmt.Fprintln(p.Err, e.summary())
			return nil
		}
		if !errors.Is(err, client.ErrExpired) && !errors.Is(err, errKindsChanged) || attempt == exportAttempts {
			return err
		}
		if back := to.reset(); back != nil {
			return fmt.Errorf("%w; a part of it has been written already, and %w: export again, to a directory, or with a longer --history of the server", err, back)
		}
		fmt.Fprintf(p.Err, "the export begins again: %v\n", err)
	}
}

// export is one attempt, at one revision.
type export struct {
	*exportCommand
	server   *client.Client
	to       sink
	told     *progress
	revision string
	kinds    []client.ResourceInfo
	owned    ownership
	gone     map[string]bool // namespaces that are being deleted
	again    bool            // all has been listed once

	wrote, secretsLeft, beingDeleted, own int
}

// errKindsChanged is returned when definitions change before the first list.
var errKindsChanged = errors.New("the kinds that the server has change")

func (e *export) run(ctx context.Context) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	for i, kind := range e.kinds {
		if err := e.list(ctx, kind, func(o document.Object, uid id) error {
			if owners := ownersOf(o); len(owners) > 0 {
				e.owned[uid] = owned{kind: i, owners: owners}
				return nil
			}
			return e.write(kind, o)
		}); err != nil {
			return err
		}
	}
	if err := e.writeOwned(ctx); err != nil {
		return err
	}
	if err := e.countSecrets(ctx); err != nil {
		return err
	}
	return e.to.finish(e.covers)
}

// writeOwned lists again for what has owners: first for what has such that have none, then for what these own, and so on.
func (e *export) writeOwned(ctx context.Context) error {
	e.again = true
	for depth, kinds := range e.owned.byDepth() {
		for _, i := range kinds {
			if err := e.list(ctx, e.kinds[i], func(o document.Object, uid id) error {
				if of, has := e.owned[uid]; !has || of.depth != depth {
					return nil
				}
				return e.write(e.kinds[i], o)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin finds the revision, and what there is then.
func (e *export) begin(ctx context.Context) (err error) {
	if e.kinds, err = e.find(ctx); err != nil {
		return err
	}
	if e.revision, err = e.choose(ctx); err != nil {
		return err
	}
	again, err := e.find(ctx)
	if err == nil && !reflect.DeepEqual(again, e.kinds) {
		err = errKindsChanged
	}
	return err
}

// choose returns the revision to export: that of a first page of the kind that has most objects. A server that has given such a page keeps
// the state for the pages after it, also when the kind is written meanwhile. The others it has as long as nobody writes them, and else reads
// them from its history, which takes longer the more there are.
func (e *export) choose(ctx context.Context) (revision string, err error) {
	most, largest := -1, client.Collection[client.Object]{}
	for _, kind := range e.kinds {
		of := client.Resource[client.Object](e.server, kind.APIVersion, kind.Plural)
		if kind.Namespaced {
			of = of.In(e.namespace)
		}
		first, err := of.List(ctx, client.PageSize(1))
		if err != nil {
			return "", fmt.Errorf("list %s: %w", of, err)
		}
		if first.Remaining > most {
			most, largest = first.Remaining, of
		}
	}
	if most < 0 {
		return "", errors.New("the server has no kind that could be exported")
	}
	first, err := largest.List(ctx, client.PageSize(1))
	if err != nil {
		return "", fmt.Errorf("list %s: %w", largest, err)
	}
	return first.ResourceVersion, nil
}

// unasked are those that are exported where they're named only: what they hold is of the moment.
var unasked = []string{"events", "leases.coordination.k8s.io"}

// find returns the kinds to export, in the order in which they're applied.
func (e *export) find(ctx context.Context) (all []client.ResourceInfo, err error) {
	if len(e.named) > 0 {
		for _, name := range e.named {
			kind, err := e.server.Find(ctx, name)
			if err != nil {
				return nil, err
			}
			if own.FullName(kind) == "secrets" && !e.secrets {
				return nil, errors.New("secrets are exported with --secrets only")
			}
			if e.namespace != "" && !kind.Namespaced {
				return nil, fmt.Errorf("%s are in no namespace: export them without --namespace", own.FullName(kind))
			}
			if !slices.ContainsFunc(all, func(k client.ResourceInfo) bool { return own.FullName(k) == own.FullName(kind) }) {
				all = append(all, kind)
			}
		}
	} else if all, err = e.every(ctx); err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b client.ResourceInfo) int {
		if by := document.Rank(a.APIVersion, a.Kind) - document.Rank(b.APIVersion, b.Kind); by != 0 {
			return by
		}
		return strings.Compare(own.FullName(a), own.FullName(b))
	})
	return all, nil
}

// every returns the kinds that are exported where none is named: what is stored here, and can be created.
func (e *export) every(ctx context.Context) (all []client.ResourceInfo, err error) {
	found, err := own.Kinds(ctx, e.server)
	if err != nil {
		return nil, err
	}
	for _, kind := range found {
		name := own.FullName(kind)
		switch {
		case slices.Contains(unasked, name):
		case name == "secrets" && !e.secrets:
		case e.namespace != "" && !kind.Namespaced && name != "namespaces":
		default:
			all = append(all, kind)
		}
	}
	return all, nil
}

// list calls fn with each object of a kind that is exported, with what the server sets, and with its uid.
func (e *export) list(ctx context.Context, kind client.ResourceInfo, fn func(o document.Object, uid id) error) error {
	of := client.Resource[client.Object](e.server, kind.APIVersion, kind.Plural)
	options := []client.Option{client.At(e.revision), client.PageSize(pageSize), client.PageBytes(pageBytes)}
	if kind.Namespaced {
		of = of.In(e.namespace)
	} else if e.namespace != "" {
		options = append(options, client.Fields("metadata.name="+e.namespace))
	}
	list, err := of.List(ctx, options...)
	if errors.Is(err, client.ErrNotFound) { // it was served a moment ago
		err = fmt.Errorf("%w: %w", errKindsChanged, err)
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", of, err)
	}
	ahead, failed := readAhead(ctx, list)
	for raw := range ahead {
		o, err := document.Decode(*raw)
		if err != nil {
			return fmt.Errorf("%s %s: %w", of, raw.Name(), err)
		}
		if document.Text(o, "metadata", "deletionTimestamp") != "" || e.gone[document.NamespaceOf(o)] {
			if own.KindOf(o) == "Namespace" {
				e.gone[document.NameOf(o)] = true
			}
			if !e.again {
				e.beingDeleted++
			}
			continue
		}
		if err := fn(o, idOf(document.Text(o, "metadata", "uid"))); err != nil {
			return err
		}
		e.told.say("%d objects written, %s", e.wrote, of)
	}
	if err := failed(); err != nil {
		return fmt.Errorf("list %s: %w", of, err)
	}
	return nil
}

// aheadObjects is how many objects of a list may have been taken apart before they're written, so that the next page is on its way meanwhile.
const aheadObjects = 256

// readAhead yields a list's objects, which a goroutine fetches meanwhile. It has ended when the loop over them has. failed says afterwards why
// there were no more.
func readAhead(ctx context.Context, list *client.List[client.Object]) (objects iter.Seq[*client.Object], failed func() error) {
	var err error
	return func(yield func(*client.Object) bool) {
		ctx, cancel := context.WithCancel(ctx)
		ahead := make(chan *client.Object, aheadObjects)
		var reading sync.WaitGroup
		defer reading.Wait()
		defer cancel()
		reading.Go(func() {
			defer close(ahead)
			var object *client.Object
			for object, err = range list.All(ctx) {
				if err != nil {
					return
				}
				select {
				case ahead <- object:
				case <-ctx.Done():
					err = context.Cause(ctx)
					return
				}
			}
		})
		for object := range ahead {
			if !yield(object) {
				return
			}
		}
	}, func() error { return err }
}

// write writes an object, unless the server makes it by itself.
func (e *export) write(kind client.ResourceInfo, o document.Object) error {
	own.Strip(o, !slices.Contains(kind.Subresources, "status"))
	if own.ServerMakes(o) {
		e.own++
		return nil
	}
	for _, owner := range document.Owners(o) {
		delete(owner, "uid") // an import finds the owner by its name
	}
	e.wrote++
	return e.to.write(own.FullName(kind), o)
}

// countSecrets counts what --secrets would have exported.
func (e *export) countSecrets(ctx context.Context) error {
	if e.secrets || len(e.named) > 0 {
		return nil
	}
	list, err := client.Resource[client.Object](e.server, "v1", "secrets").In(e.namespace).List(ctx, client.At(e.revision), client.PageSize(1))
	switch {
	case errors.Is(err, client.ErrNotFound): // with --builtin=none there are none
		return nil
	case errors.Is(err, client.ErrForbidden):
		e.secretsLeft = -1
		return nil
	case err != nil:
		return fmt.Errorf("count Secrets: %w", err)
	}
	for range list.All(ctx) {
		e.secretsLeft = 1 + list.Remaining
		break
	}
	return nil
}

// summary is what is said at the end.
func (e *export) summary() string {
	said := fmt.Sprintf("exported %s of revision %s", count(e.wrote, "object"), e.revision)
	if e.secretsLeft > 0 {
		said += fmt.Sprintf("; left out %s (--secrets exports them)", count(e.secretsLeft, "Secret"))
	} else if e.secretsLeft < 0 {
		said += "; left out all Secrets, which you may not list"
	}
	if e.own > 0 {
		said += fmt.Sprintf("; left out %s that a server makes by itself", count(e.own, "object"))
	}
	if e.beingDeleted > 0 {
		said += fmt.Sprintf("; left out %s being deleted", count(e.beingDeleted, "object"))
	}
	return said
}

// covers tells whether an object of a resource that isn't in the export isn't on the server either.
func (e *export) covers(namespace, resource string) bool {
	switch {
	case e.namespace != "" && namespace != e.namespace:
		return false
	case slices.ContainsFunc(e.kinds, func(k client.ResourceInfo) bool { return own.FullName(k) == resource }):
		return true
	case len(e.named) > 0 || resource == "secrets" || slices.Contains(unasked, resource):
		return false
	}
	return true // its kind isn't served any more
}
