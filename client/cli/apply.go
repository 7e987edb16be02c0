package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/client"
)

// fieldManager is who applies, in managedFields.
const fieldManager = "apiserver-lite"

// definitionPatience is how long an object is tried whose definition has been applied just before: kube-apiserver serves a
// definition some seconds after it has taken it.
const definitionPatience = 10 * time.Second

// applyCommand applies the objects in files, in their order.
type applyCommand struct {
	place
	pruning
	files     files
	kustomize string
	dryRun    dryRun
	force     bool
}

func (c *applyCommand) addFlags(set *pflag.FlagSet) {
	c.addNamespace(set)
	c.files.addFlags(set)
	set.StringVarP(&c.kustomize, "kustomize", "k", "", "not in this program: kubectl kustomize DIR | apiserver-lite apply -f - does it")
	c.pruning.addFlags(set)
	c.dryRun.addFlags(set)
	set.BoolVar(&c.force, "force-conflicts", false, "take fields from other field managers")
}

func (c *applyCommand) parse(args []string) error {
	if len(args) > 0 {
		return usageError("unexpected argument %q: files are named with -f", args[0])
	}
	if c.kustomize != "" {
		return usageError("-k: this program has no kustomize in it; run kubectl kustomize %s | apiserver-lite apply -f -", c.kustomize)
	}
	if err := c.files.check("apply"); err != nil {
		return err
	}
	return c.pruning.check()
}

func (c *applyCommand) run(ctx context.Context, s *session) error {
	objects, err := c.files.read(ctx, s.in, c.namespace)
	if err != nil {
		return err
	}
	if err := c.concern(objects); err != nil {
		return err
	}
	done, options := applied{uids: map[string]bool{}, namespaces: map[string]bool{}}, c.dryRun.options()
	if c.force {
		options = append(options, client.Force())
	}
	failed := failures{to: s}
	patience := time.Duration(0)
	for i, object := range objects {
		collection, err := c.collectionOf(ctx, s, object, patience)
		if err != nil {
			patience = 0 // the next one needn't wait for the same definition
		}
		var now *client.Object
		if err == nil {
			now, err = collection.Apply(ctx, fieldManager, &object, options...)
		}
		if end := failed.pass(err); end != nil {
			return failed.end(end)
		}
		if err != nil {
			continue
		}
		done.add(*now)
		s.did(i+1, len(objects), collection, object.Name(), c.dryRun.done("applied"))
		if object.Kind() == "CustomResourceDefinition" {
			patience = definitionPatience
		}
	}
	if c.on && failed.last == nil { // else files have objects that aren't among those applied
		return c.prune(ctx, s, done, c.dryRun)
	}
	return failed.last
}

// dryRun is the flag --dry-run: as a word alone, or as kubectl has it.
type dryRun bool

func (d *dryRun) addFlags(set *pflag.FlagSet) {
	set.Var(d, "dry-run", "do everything but store the result: server (as without a value) or none")
	set.Lookup("dry-run").NoOptDefVal = "server"
}

func (d *dryRun) String() string {
	if *d {
		return "server"
	}
	return "none"
}

func (d *dryRun) Type() string { return "string" }

// Set takes what kubectl takes, but for client: only the server knows what would become of an object.
func (d *dryRun) Set(s string) error {
	switch s {
	case "server", "true":
		*d = true
	case "none", "false":
		*d = false
	default:
		return errors.New("must be server or none")
	}
	return nil
}

func (d *dryRun) options() []client.Option {
	if *d {
		return []client.Option{client.DryRun()}
	}
	return nil
}

// done returns the word for what was done, and says if that was for show.
func (d *dryRun) done(what string) string {
	if *d {
		return what + " (dry run)"
	}
	return what
}

// deleteCommand deletes the objects in files, or those that are named or selected.
type deleteCommand struct {
	place
	selection
	files  files
	dryRun dryRun
	all    bool

	resource string
	names    []string
}

func (c *deleteCommand) addFlags(set *pflag.FlagSet) {
	c.addNamespace(set)
	c.selection.addFlags(set)
	c.files.addFlags(set)
	c.dryRun.addFlags(set)
	set.BoolVar(&c.all, "all", false, "delete all objects of the resource in the namespace")
}

// parse takes exactly one of files, names, selectors and --all.
func (c *deleteCommand) parse(args []string) error {
	if len(c.files) > 0 {
		switch {
		case len(args) > 0:
			return usageError("names and --filename exclude each other")
		case c.all:
			return usageError("--all and --filename exclude each other")
		}
		return c.selection.check("--filename")
	}
	if len(args) == 0 {
		return errNoResource("delete")
	}
	c.resource, c.names = args[0], args[1:]
	switch {
	case len(c.names) > 0 && c.all:
		return usageError("--all and names exclude each other")
	case len(c.names) > 0:
		return errors.Join(checkNames(c.names...), c.selection.check("names"))
	case c.all:
		return c.selection.check("--all")
	case !c.given():
		return usageError("what to delete? names, a selector, or --all")
	}
	return c.selection.check("")
}

func (c *deleteCommand) run(ctx context.Context, s *session) error {
	options := c.dryRun.options()
	if len(c.files) > 0 {
		return c.runFiles(ctx, s, options)
	}
	collection, err := c.find(ctx, s, c.resource)
	if err != nil {
		return err
	}
	if len(c.names) == 0 {
		return c.deleteSelected(ctx, s, collection, options)
	}
	failed := failures{to: s}
	for i, name := range c.names {
		err := collection.Delete(ctx, name, options...)
		if end := failed.pass(err); end != nil {
			return failed.end(end)
		}
		if err == nil {
			s.did(i+1, len(c.names), collection, name, c.dryRun.done("deleted"))
		}
	}
	return failed.last
}

// deleteSelected deletes what is selected at once, and prints what it was.
func (c *deleteCommand) deleteSelected(ctx context.Context, s *session, collection client.Collection[client.Object], options []client.Option) error {
	keys, err := collection.DeleteCollectionKeys(ctx, append(options, c.options()...)...)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		fmt.Fprintln(s.err, "nothing is selected")
	}
	for i, key := range keys {
		s.did(i+1, len(keys), collection, key.Name, c.dryRun.done("deleted"))
	}
	return nil
}

func (c *deleteCommand) runFiles(ctx context.Context, s *session, options []client.Option) error {
	objects, err := c.files.read(ctx, s.in, c.namespace)
	if err != nil {
		return err
	}
	failed := failures{to: s}
	for i, object := range objects {
		collection, err := c.collectionOf(ctx, s, object, 0)
		if err == nil {
			err = collection.Delete(ctx, object.Name(), options...)
		}
		if end := failed.pass(err); end != nil {
			return failed.end(end)
		}
		if err == nil {
			s.did(i+1, len(objects), collection, object.Name(), c.dryRun.done("deleted"))
		}
	}
	return failed.last
}

// did prints a line about an object, and says now and then on a terminal how much is left.
func (s *session) did(done, of int, collection client.Collection[client.Object], name, what string) {
	fmt.Fprintf(s.out, "%s/%s %s\n", collection, name, what)
	if Terminal(s.err) && !Terminal(s.out) && done%progressEvery == 0 {
		fmt.Fprintf(s.err, "%d of %d\n", done, of)
	}
}

// collectionOf returns the collection that an object is in. A resource that isn't there is waited for, as long as patience
// says.
func (p *place) collectionOf(ctx context.Context, s *session, object client.Object, patience time.Duration) (client.Collection[client.Object], error) {
	deadline := time.Now().Add(patience)
	for {
		info, err := s.client.FindKind(ctx, object.APIVersion(), object.Kind())
		if err == nil {
			at := place{namespace: p.namespace}
			if own := object.Namespace(); own != "" {
				at.namespace = own
			}
			return at.collection(s, info), nil
		}
		if !errors.Is(err, client.ErrNotFound) || time.Now().After(deadline) {
			return client.Collection[client.Object]{}, err
		}
		if err := waitToRetry(ctx); err != nil {
			return client.Collection[client.Object]{}, err
		}
	}
}

// files is the flag that names files with objects.
type files []string

func (f *files) addFlags(set *pflag.FlagSet) {
	set.StringSliceVarP((*[]string)(f), "filename", "f", nil, "YAML or JSON file, - for the standard input; may be repeated")
}

func (f files) check(command string) error {
	if len(f) == 0 {
		return usageError("which file? apiserver-lite %s -f widget.yaml, for example", command)
	}
	return nil
}

// read returns the objects in the files, of which each has some. If namespace isn't empty no object may name another one.
func (f files) read(ctx context.Context, in io.Reader, namespace string) (all []client.Object, err error) {
	for _, file := range f {
		text, err := readFile(ctx, in, file)
		if err != nil {
			return nil, err
		}
		before := len(all)
		err = document.Split(bytes.NewReader(text), func(line int, text []byte) error {
			objects, err := document.Parse(text)
			if err != nil {
				return fmt.Errorf("line %d: %w", line, err)
			}
			for _, object := range objects {
				if own := document.NamespaceOf(object); namespace != "" && own != "" && own != namespace {
					return fmt.Errorf("line %d: the namespace of %s %q is %q, and --namespace says %q", line, object["kind"], document.NameOf(object), own, namespace)
				}
				o, err := json.Marshal(object)
				if err != nil {
					return err
				}
				all = append(all, o)
			}
			return nil
		})
		if err != nil {
			return nil, usageError("%s: %w", file, err)
		}
		if len(all) == before {
			return nil, usageError("%s has no objects", file)
		}
	}
	return all, nil
}

// readFile returns what is in a file, or in the standard input. A terminal and a pipe may say nothing for ever, and no read
// of them can be interrupted: when ctx ends, the goroutine that reads is left behind for the end of the process.
func readFile(ctx context.Context, in io.Reader, file string) ([]byte, error) {
	type content struct {
		text []byte
		err  error
	}
	done := make(chan content, 1) // capacity 1: nobody takes it once ctx has ended
	go func() {
		var c content
		if file == "-" {
			c.text, c.err = io.ReadAll(in)
		} else {
			c.text, c.err = os.ReadFile(file)
			if info, err := os.Stat(file); c.err != nil && err == nil && info.IsDir() {
				c.err = fmt.Errorf("%s is a directory: -f takes files, such as -f %s", file, filepath.Join(file, "widget.yaml"))
			}
		}
		done <- c
	}()
	select {
	case c := <-done:
		if c.err != nil {
			return nil, usageError("%w", c.err)
		}
		return c.text, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
