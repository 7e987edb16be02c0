package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// fieldManager is who applies, in managedFields.
const fieldManager = "apiserver-lite"

// definitionPatience is how long an object is tried whose definition has been applied just before: kube-apiserver serves a
// definition some seconds after it has taken it.
const definitionPatience = 10 * time.Second

// apply applies the objects in files, in their order.
func (c *command) apply(ctx context.Context) error {
	if len(c.args) > 0 {
		return usageError("unexpected argument %q: files are named with -f", c.args[0])
	}
	objects, err := c.read()
	if err != nil {
		return err
	}
	var options []client.Option
	if c.dryRun {
		options = append(options, client.DryRun())
	}
	if c.force {
		options = append(options, client.Force())
	}
	for i, object := range objects {
		widgets, err := c.collectionOf(ctx, object, c.definitions(objects[:i]))
		if err != nil {
			return err
		}
		if _, err := widgets.Apply(ctx, fieldManager, &object, options...); err != nil {
			return err
		}
		c.did(i+1, len(objects), widgets, object.Name(), "applied")
	}
	return nil
}

// delete deletes the objects in files, or those that are named or selected.
func (c *command) delete(ctx context.Context) error {
	var options []client.Option
	if c.dryRun {
		options = append(options, client.DryRun())
	}
	if len(c.files) > 0 {
		return c.deleteFiles(ctx, options)
	}
	widgets, err := c.resource(ctx)
	if err != nil {
		return err
	}
	names := c.args[1:]
	selected := c.all || len(c.options) > 0
	switch {
	case len(names) > 0 == selected:
		return usageError("what to delete? names, a selector, or --all")
	case selected:
		if err := widgets.DeleteCollection(ctx, append(options, c.options...)...); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s deleted\n", widgets)
		return nil
	}
	for i, name := range names {
		if err := widgets.Delete(ctx, name, options...); err != nil {
			return err
		}
		c.did(i+1, len(names), widgets, name, "deleted")
	}
	return nil
}

func (c *command) deleteFiles(ctx context.Context, options []client.Option) error {
	if len(c.args) > 0 {
		return usageError("names and files exclude each other")
	}
	objects, err := c.read()
	if err != nil {
		return err
	}
	for i, object := range objects {
		widgets, err := c.collectionOf(ctx, object, false)
		if err != nil {
			return err
		}
		if err := widgets.Delete(ctx, object.Name(), options...); err != nil {
			return err
		}
		c.did(i+1, len(objects), widgets, object.Name(), "deleted")
	}
	return nil
}

// did prints a line about an object, and says now and then on a terminal how much is left.
func (c *command) did(done, of int, widgets client.Collection[client.Object], name, what string) {
	fmt.Fprintf(c.out, "%s/%s %s\n", widgets, name, what)
	if terminal(c.err) && !terminal(c.out) && done%progressEvery == 0 {
		fmt.Fprintf(c.err, "%d of %d\n", done, of)
	}
}

// read returns the objects in the files.
func (c *command) read() ([]client.Object, error) {
	if len(c.files) == 0 {
		return nil, usageError("which file? apiserver-lite %s -f widget.yaml, for example", c.name)
	}
	var all []client.Object
	for _, file := range c.files {
		text, err := c.readFile(file)
		if err != nil {
			return nil, usageError("%w", err)
		}
		for _, document := range documents(text) {
			object, err := yaml.YAMLToJSON(document)
			if err != nil {
				return nil, usageError("%s: %w", file, err)
			}
			if string(object) == "null" { // comments alone
				continue
			}
			o := client.Object(object)
			if o.Kind() == "" || o.APIVersion() == "" || o.Name() == "" {
				return nil, usageError("%s: an object without apiVersion, kind or metadata.name", file)
			}
			all = append(all, o)
		}
	}
	return all, nil
}

func (c *command) readFile(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(c.in)
	}
	return os.ReadFile(file)
}

// documents splits a YAML stream.
func documents(text []byte) (all [][]byte) {
	var document []byte
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ') {
			all = append(all, document)
			document, line = nil, rest
		}
		document = append(document, line...)
	}
	return append(all, document)
}

// definitions tells whether there are definitions among the objects.
func (c *command) definitions(objects []client.Object) bool {
	for _, object := range objects {
		if object.Kind() == "CustomResourceDefinition" {
			return true
		}
	}
	return false
}

// collectionOf returns the collection that an object is in. If its definition may be new it's waited for.
func (c *command) collectionOf(ctx context.Context, object client.Object, new bool) (client.Collection[client.Object], error) {
	deadline := time.Now().Add(definitionPatience)
	for {
		info, err := c.client.FindKind(ctx, object.APIVersion(), object.Kind())
		if err == nil {
			return c.collection(info, object.Namespace()), nil
		}
		if !new || !errors.Is(err, client.ErrNotFound) || time.Now().After(deadline) {
			return client.Collection[client.Object]{}, err
		}
		pause(ctx)
		if ctx.Err() != nil {
			return client.Collection[client.Object]{}, context.Cause(ctx)
		}
	}
}
