// Package undo is the command apiserver-lite undo: it brings back what objects of a server were, by writes that go through all of the server's
// rules, in one transaction. The server's history says what they were.
//
// It doesn't touch a status that has a path of its own: whoever writes it goes on from what is brought back.
package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/backup/own"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/client/cli"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// Command returns the command of a process. It ends with exit code 0 when all is as it was then, or would be with --dry-run, 1 if the server
// refused or doesn't know any more what was, 2 if the arguments are wrong, 130 if its context ended first.
func Command(p cli.Process) *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use: "undo RESOURCE [NAME] --to MOMENT", Short: "Bring back what objects were",
		Long: `Brings back what an object was at a moment of the server's history; or all objects of a kind in a namespace, or those that labels select; or, with
--all, everything in a namespace. What was made since then is deleted, what was deleted is made again. All of it is one transaction, which the
server refuses as a whole if it refuses a part; it's tried as a dry run first. A status that has a path of its own stays.`,
	}
	cmd.Flags().SortFlags = false
	c.addFlags(cmd.Flags())
	return p.Connected(cmd, p.Err, c.parse, c.run)
}

// command is what the arguments say.
type command struct {
	to        cli.Moment
	namespace string
	labels    string
	labelled  func() bool // whether labels are given
	all       bool
	dryRun    bool

	selector       selectors.LabelSelector // labels, parsed
	resource, name string
}

func (c *command) addFlags(set *pflag.FlagSet) {
	set.Var(&c.to, "to", "the moment: a resourceVersion as 120, an instant as 2026-11-23T10:00:00Z, or how long ago as 10m")
	set.StringVarP(&c.namespace, "namespace", "n", "", `namespace of namespaced objects (default the kubeconfig's, else "default")`)
	c.labelled = func() bool { return set.Changed("selector") }
	set.StringVarP(&c.labels, "selector", "l", "", "label selector, such as tier=front: objects that it selects now or selected then")
	set.BoolVar(&c.all, "all", false, "all kinds in the namespace, which must be named")
	set.BoolVar(&c.dryRun, "dry-run", false, "print what would be done, and do nothing")
}

func (c *command) parse(args []string) (err error) {
	if c.selector, err = selectors.ParseLabels(c.labels); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	switch {
	case !c.to.Given():
		return errors.New("to when? --to 10m, for example")
	case c.all && len(args) > 0:
		return errors.New("--all is all kinds: leave out the resource")
	case c.all && c.namespace == "":
		return errors.New("--all is everything in a namespace: name it with --namespace")
	case !c.all && (len(args) == 0 || len(args) > 2):
		return errors.New("what? apiserver-lite undo widget a --to 10m, for example")
	case len(args) == 2 && args[1] == "":
		return errors.New("the name is empty: leave it out to undo all objects of the kind")
	case c.labelled() && c.selector.Empty():
		return errors.New("--selector is empty: leave it out to undo all objects")
	case len(args) == 2 && c.labels != "":
		return errors.New("--selector and a name exclude each other")
	}
	if len(args) > 0 {
		c.resource = args[0]
	}
	if len(args) == 2 {
		c.name = args[1]
	}
	return nil
}

func (c *command) run(ctx context.Context, server *client.Client, p cli.Process) error {
	kinds, err := c.kinds(ctx, server)
	if err != nil {
		return err
	}
	made := &plan{server: server, labels: c.selector, alive: map[string]bool{}}
	if made.at, err = c.version(ctx, server, kinds[0]); err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := made.add(ctx, kind, c.of(server, kind), c.name); err != nil {
			return err
		}
	}
	made.sort()
	for _, note := range made.notes {
		fmt.Fprintln(p.Err, note)
	}
	if len(made.steps) == 0 && c.name != "" && made.left {
		return fmt.Errorf("nothing was changed: try again when %s is gone", c.name)
	}
	if len(made.steps) == 0 {
		fmt.Fprintf(p.Err, "nothing differs from version %s\n", made.at)
		return nil
	}
	if _, err := server.Transact(ctx, made.operations(), client.DryRun(), client.FieldManager(manager)); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	would := ""
	if c.dryRun {
		would = "would be "
	}
	done := client.Transacted{}
	if !c.dryRun {
		if done, err = server.Transact(ctx, made.operations(), client.FieldManager(manager)); err != nil {
			return err
		}
	}
	for _, s := range made.steps {
		fmt.Fprintf(p.Out, "%s/%s %s%s\n", own.FullName(s.Kind), s.Name, would, s.Change)
	}
	if !c.dryRun {
		fmt.Fprintf(p.Err, "as at version %s, at version %s\n", made.at, done.ResourceVersion)
	}
	return nil
}

// manager is the command's name in managedFields.
const manager = "apiserver-lite-undo"

// unasked are kinds that --all leaves alone: what they hold is of the moment.
var unasked = []string{"events", "events.events.k8s.io", "leases.coordination.k8s.io", "endpoints", "endpointslices.discovery.k8s.io"}

// kinds returns those that are meant.
func (c *command) kinds(ctx context.Context, server *client.Client) ([]client.ResourceInfo, error) {
	if !c.all {
		kind, err := server.Find(ctx, c.resource)
		return []client.ResourceInfo{kind}, err
	}
	all, err := own.Kinds(ctx, server)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(kind client.ResourceInfo) bool {
		return !kind.Namespaced || !slices.Contains(kind.Verbs, "update") || slices.Contains(unasked, own.FullName(kind))
	})
	if len(all) == 0 {
		return nil, errors.New("the server has no kinds in namespaces")
	}
	return all, nil
}

// of is where the objects of a kind are that are meant.
func (c *command) of(server *client.Client, kind client.ResourceInfo) client.Collection[client.Object] {
	of := client.Resource[client.Object](server, kind.APIVersion, kind.Plural)
	if !kind.Namespaced {
		return of
	}
	if c.namespace == "" {
		return of.In(server.Namespace())
	}
	return of.In(c.namespace)
}

// version returns the version that the moment is: one for all kinds.
func (c *command) version(ctx context.Context, server *client.Client, kind client.ResourceInfo) (string, error) {
	list, err := c.of(server, kind).List(ctx, append(c.to.Options(), client.PageSize(1))...)
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}
