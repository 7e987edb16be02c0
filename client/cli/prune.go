package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// pruning is the flags that have apply delete what it applied before and the files have no more.
type pruning struct {
	on       bool
	selector string
	labels   selectors.LabelSelector
}

func (p *pruning) addFlags(set *pflag.FlagSet) {
	set.BoolVar(&p.on, "prune", false, "delete what apply made before, matches --selector and is in no file: in the namespaces of the files' objects and, if they have one that is in none, outside of namespaces; never Namespaces and CustomResourceDefinitions")
	set.StringVarP(&p.selector, "selector", "l", "", "with --prune: label selector, such as app=shop, that all objects in the files have to match")
}

func (p *pruning) check() (err error) {
	if p.selector = strings.TrimSpace(p.selector); p.on != (p.selector != "") {
		return usageError("--prune and --selector need each other: the selector says what may be deleted")
	}
	if p.labels, err = selectors.ParseLabels(p.selector); err != nil {
		return usageError("--selector: %w", err)
	}
	return nil
}

// concern refuses objects that a later run wouldn't prune.
func (p *pruning) concern(objects []client.Object) error {
	if !p.on {
		return nil
	}
	for _, object := range objects {
		if !p.labels.Matches(selectors.SetOf(object.GetLabels())) {
			return usageError("%s %q doesn't match --selector %s: give it the labels, so that it's pruned when it's in no file", object.Kind(), object.Name(), p.selector)
		}
	}
	return nil
}

// applied is what a run has applied: the uids, the namespaces, and whether something is in none.
type applied struct {
	uids, namespaces map[string]bool
	outside          bool
}

func (a *applied) add(object client.Object) {
	a.uids[object.UID()] = true
	if in := object.Namespace(); in != "" {
		a.namespaces[in] = true
	} else {
		a.outside = true
	}
}

// prune deletes what matches, was applied by this program and isn't among applied: first what is in namespaces. What is in none is left alone by files that
// have nothing of that sort: they're a part of what has been applied with these labels.
func (p *pruning) prune(ctx context.Context, s *session, kept applied, dry dryRun) error {
	kinds, err := s.client.AllResources(ctx)
	if err != nil {
		return err
	}
	kinds = slices.DeleteFunc(kinds, func(k client.ResourceInfo) bool {
		return !slices.Contains(k.Verbs, "list") || !slices.Contains(k.Verbs, "delete") || holdsOthers(k) || !k.Namespaced && !kept.outside
	})
	slices.SortStableFunc(kinds, func(a, b client.ResourceInfo) int { return last(a) - last(b) })
	for _, kind := range kinds {
		of := client.Resource[client.Object](s.client, kind.APIVersion, kind.Plural)
		if !kind.Namespaced {
			if err := p.kind(ctx, s, of, kept, dry); err != nil {
				return err
			}
			continue
		}
		for namespace := range kept.namespaces {
			if err := p.kind(ctx, s, of.In(namespace), kept, dry); err != nil {
				return err
			}
		}
	}
	return nil
}

// holdsOthers tells whether other objects go with one of the kind, whoever made them: it's never pruned.
func holdsOthers(kind client.ResourceInfo) bool {
	return kind.APIVersion == "v1" && kind.Kind == "Namespace" || strings.HasPrefix(kind.APIVersion, "apiextensions.k8s.io/")
}

// last orders kinds: what is in no namespace goes after what is in one.
func last(kind client.ResourceInfo) int {
	if kind.Namespaced {
		return 0
	}
	return 1
}

func (p *pruning) kind(ctx context.Context, s *session, of client.Collection[client.Object], kept applied, dry dryRun) error {
	list, err := of.List(ctx, client.Labels(p.selector))
	var refusal *client.StatusError
	if errors.As(err, &refusal) && (refusal.Code == forbidden || errors.Is(err, client.ErrNotFound)) {
		return nil // who may not see a kind hasn't applied any of it; or it's just gone
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", of, err)
	}
	for object, err := range list.All(ctx) {
		switch {
		case err != nil:
			return fmt.Errorf("list %s: %w", of, err)
		case kept.uids[object.UID()] || !isApplied(*object):
			continue
		}
		at := of
		if own := object.Namespace(); own != "" {
			at = of.In(own)
		}
		err := at.Delete(ctx, object.Name(), append(dry.options(), client.IfUID(object.UID()))...)
		if errors.Is(err, client.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s/%s %s\n", of, object.Name(), dry.done("pruned"))
	}
	return nil
}

const forbidden = 403

// isApplied tells whether this program's apply has made fields of an object.
func isApplied(object client.Object) bool {
	var fields []struct{ Manager, Operation string }
	if object.Decode(&fields, "metadata", "managedFields") != nil {
		return false
	}
	for _, f := range fields {
		if f.Manager == fieldManager && f.Operation == "Apply" {
			return true
		}
	}
	return false
}
