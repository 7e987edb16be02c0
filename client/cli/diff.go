package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/pflag"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/internal/exit"
)

const (
	// differs is diff's exit code where apply would change something, and trouble the one where it can't be said: those of diff and kubectl diff.
	differs = 1
	trouble = 2
	// contextLines is how many lines that stay are around those that change.
	contextLines = 3
)

// diffCommand prints what apply would change, or what has changed of an object. The server says what would become of each object, by a dry run.
type diffCommand struct {
	place
	files    files
	force    bool
	from, to Moment

	resource, name string // of an object's own past; "" for what files would change
}

func (c *diffCommand) addFlags(set *pflag.FlagSet) {
	c.addNamespace(set)
	c.files.addFlags(set)
	set.BoolVar(&c.force, "force-conflicts", false, "as apply would, take fields from other field managers")
	set.Var(&c.from, "from", "of the object that is named, what has changed since then: "+momentForms)
	set.Var(&c.to, "to", "and until then (default now)")
}

func (c *diffCommand) parse(args []string) error {
	switch {
	case c.from.Given() && (len(c.files) > 0 || c.force):
		return usageError("--from is about the past of an object, and -f and --force-conflicts are about what apply would do")
	case c.from.Given() && len(args) != 2:
		return usageError("which object? apiserver-lite diff widget a --from 10m, for example")
	case c.from.Given():
		c.resource, c.name = args[0], args[1]
		return checkNames(c.name)
	case c.to.Given():
		return usageError("--to goes with --from")
	}
	if len(args) > 0 {
		return usageError("unexpected argument %q: files are named with -f", args[0])
	}
	return c.files.check("diff")
}

func (c *diffCommand) run(ctx context.Context, s *session) error {
	if c.resource != "" {
		return c.sinceThen(ctx, s)
	}
	changed, err := c.compare(ctx, s)
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return exit.With(trouble, err)
	case changed == 1:
		return exit.With(differs, errors.New("1 object would change"))
	case changed > 1:
		return exit.With(differs, fmt.Errorf("%d objects would change", changed))
	}
	return nil
}

// compare prints how each object would change, and returns how many would.
func (c *diffCommand) compare(ctx context.Context, s *session) (changed int, err error) {
	objects, err := c.files.read(ctx, s.in, c.namespace)
	if err != nil {
		return 0, err
	}
	defines := false
	for _, object := range objects {
		name := object.Kind() + "/" + object.Name()
		before, after, err := c.states(ctx, s, object)
		if errors.Is(err, client.ErrNotFound) && defines { // of a kind that the same files bring
			before, after, err = nil, object, nil
		}
		if err != nil {
			return changed, err
		}
		defines = defines || object.Kind() == "CustomResourceDefinition"
		text, err := difference("live/"+name, "applied/"+name, before, after)
		if err != nil {
			return changed, err
		}
		if text != "" {
			changed++
			fmt.Fprint(s.out, text)
		}
	}
	return changed, nil
}

// sinceThen prints what has changed of the object that is named.
func (c *diffCommand) sinceThen(ctx context.Context, s *session) error {
	collection, err := c.find(ctx, s, c.resource)
	if err != nil {
		return exit.With(trouble, err)
	}
	var states [2]client.Object
	names := [2]string{c.from.String(), cmp.Or(c.to.String(), "now")}
	for i, at := range []Moment{c.from, c.to} {
		object, err := collection.Get(ctx, c.name, at.Options()...)
		switch {
		case err == nil:
			states[i] = *object
		case !errors.Is(err, client.ErrNotFound):
			return exit.With(trouble, err)
		}
		names[i] = fmt.Sprintf("%s/%s@%s", collection, c.name, names[i])
	}
	if states[0] == nil && states[1] == nil {
		return exit.With(trouble, fmt.Errorf("%s %q was neither there at %s nor at %s", collection, c.name, c.from.String(), cmp.Or(c.to.String(), "the present")))
	}
	text, err := difference(names[0], names[1], states[0], states[1])
	if err != nil {
		return exit.With(trouble, err)
	}
	if text == "" {
		return nil
	}
	fmt.Fprint(s.out, text)
	return exit.With(differs, errors.New("the object has changed"))
}

// states returns an object as it is, nil if it isn't there, and as it would be.
func (c *diffCommand) states(ctx context.Context, s *session, object client.Object) (before, after client.Object, err error) {
	collection, err := c.collectionOf(ctx, s, object, 0)
	if err != nil {
		return nil, nil, err
	}
	options := []client.Option{client.DryRun()}
	if c.force {
		options = append(options, client.Force())
	}
	now, err := collection.Get(ctx, object.Name())
	switch {
	case err == nil:
		before = *now
	case !errors.Is(err, client.ErrNotFound):
		return nil, nil, err
	}
	would, err := collection.Apply(ctx, fieldManager, &object, options...)
	if err != nil {
		return nil, nil, err
	}
	return before, *would, nil
}

// difference is the unified difference of two states with their names as YAML, without what the server sets, and without what Secrets hold.
func difference(nameBefore, nameAfter string, before, after client.Object) (string, error) {
	old, err := tree(before)
	if err != nil {
		return "", err
	}
	would, err := tree(after)
	if err != nil {
		return "", err
	}
	is := after
	if after == nil {
		is = before
	}
	if is.Kind() == "Secret" && is.APIVersion() == "v1" {
		mask(old, would, "data")
		mask(old, would, "stringData")
		for _, state := range []map[string]any{old, would} {
			metadata, _ := state["metadata"].(map[string]any)
			if annotations, ok := metadata["annotations"].(map[string]any); ok {
				delete(annotations, "kubectl.kubernetes.io/last-applied-configuration") // which holds it, too
			}
		}
	}
	lines := make([][]string, 2)
	for i, state := range []map[string]any{old, would} {
		if state == nil {
			continue
		}
		text, err := yaml.Marshal(state)
		if err != nil {
			return "", err
		}
		lines[i] = slices.Collect(strings.Lines(string(text)))
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: lines[0], B: lines[1], FromFile: nameBefore, ToFile: nameAfter, Context: contextLines})
}

// tree is an object without what the server sets in its metadata; nil for none.
func tree(object client.Object) (state map[string]any, err error) {
	if object == nil {
		return nil, nil
	}
	if err := utiljson.Unmarshal(object, &state); err != nil {
		return nil, err
	}
	if metadata, ok := state["metadata"].(map[string]any); ok {
		for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
			delete(metadata, field)
		}
	}
	return state, nil
}

// mask puts stars in the place of values of a Secret, which say no more than whether a value changes.
func mask(before, after map[string]any, field string) {
	old, _ := before[field].(map[string]any)
	would, _ := after[field].(map[string]any)
	for key, value := range old {
		if now, kept := would[key]; kept && now == value {
			old[key], would[key] = "***", "***"
			continue
		} else if kept {
			would[key] = "*** (after)"
		}
		old[key] = "*** (before)"
	}
	for key := range would {
		if _, had := old[key]; !had {
			would[key] = "*** (after)"
		}
	}
}
