package undo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/backup/own"
	"github.com/apiserver-lite/apiserver-lite/client"
)

// maxSteps is how many objects an undo changes at most: as many operations as a transaction has.
const maxSteps = 128

// Step is what is done to one object.
type Step struct {
	Kind      client.ResourceInfo
	Name      string // namespace/name, or name
	Change    string // created, changed or deleted
	operation client.Operation
	rank      int // of its kind; deletions come last, and dependents first
}

// plan is what makes of the present the state of then.
type plan struct {
	at     string // the version of then
	labels string // selector; "" for all
	steps  []Step
	notes  []string // for the user
}

// add compares the objects of a kind in a collection, or with a name one of them, with what they were then.
func (p *plan) add(ctx context.Context, kind client.ResourceInfo, of client.Collection[client.Object], name string) error {
	options := []client.Option{client.Labels(p.labels)}
	if p.labels == "" {
		options = nil
	}
	if name != "" {
		options = append(options, client.Fields("metadata.name="+name))
	}
	now, err := read(ctx, of, options...)
	if err != nil {
		return err
	}
	then, err := read(ctx, of, append(options, client.At(p.at))...)
	if err != nil {
		return err
	}
	if name != "" && len(then) == 0 {
		return fmt.Errorf("%s %q didn't exist at version %s: to have it so again, delete it", of, name, p.at)
	}
	names := map[string]bool{}
	for _, states := range []map[string]document.Object{now, then} {
		for key := range states {
			names[key] = true
		}
	}
	for key := range names {
		if err := p.compare(kind, key, then[key], now[key]); err != nil {
			return err
		}
	}
	return nil
}

// read returns the objects of a collection by namespace/name.
func read(ctx context.Context, of client.Collection[client.Object], options ...client.Option) (map[string]document.Object, error) {
	list, err := of.List(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", of, err)
	}
	all := map[string]document.Object{}
	for raw, err := range list.All(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", of, err)
		}
		o, err := document.Decode(*raw)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", of, raw.Name(), err)
		}
		all[strings.TrimPrefix(document.NamespaceOf(o)+"/"+document.NameOf(o), "/")] = o
	}
	return all, nil
}

// compare adds what makes an object what it was; nil is one that isn't there.
func (p *plan) compare(kind client.ResourceInfo, name string, then, now document.Object) error {
	rank := document.Rank(kind.APIVersion, kind.Kind)
	step := Step{Kind: kind, Name: name, rank: rank}
	which := client.Which{Resource: own.FullName(kind), Namespace: document.NamespaceOf(now), Name: document.NameOf(now)}
	withStatus := !slices.Contains(kind.Subresources, "status")
	switch {
	case dying(now):
		p.notes = append(p.notes, fmt.Sprintf("%s %s is being deleted, and left alone", own.FullName(kind), name))
		return nil
	case then == nil || dying(then):
		if now == nil || made(now, withStatus) {
			return nil
		}
		step.Change, step.operation = "deleted", client.DeletingVersion(which, version(now))
		step.rank = document.Last() + document.Last() - rank
	case now == nil:
		if made(then, withStatus) {
			return nil
		}
		own.Strip(then, withStatus)
		step.Change, step.operation = "created", client.Creating(then)
	default:
		if same(then, now, withStatus) {
			return nil
		}
		if document.Text(then, "metadata", "uid") != document.Text(now, "metadata", "uid") { // the one of then is gone for good
			own.Strip(then, withStatus)
		}
		within := document.Map(then, "metadata")
		within["resourceVersion"], within["uid"] = version(now), document.Text(now, "metadata", "uid")
		delete(within, "managedFields") // the present ones go on
		step.Change, step.operation = "changed", client.Updating(then)
	}
	if len(p.steps) == maxSteps {
		return errTooMany
	}
	p.steps = append(p.steps, step)
	return nil
}

// errTooMany is the bound's.
var errTooMany = errors.New("more than 128 objects differ, and one transaction brings back as many: name a kind, or select fewer with -l")

// sort puts what others need before them, and deletions at the end.
func (p *plan) sort() {
	slices.SortFunc(p.steps, func(a, b Step) int {
		if by := a.rank - b.rank; by != 0 {
			return by
		}
		return strings.Compare(own.FullName(a.Kind)+"/"+a.Name, own.FullName(b.Kind)+"/"+b.Name)
	})
}

// operations are those of the transaction.
func (p *plan) operations() []client.Operation {
	all := make([]client.Operation, len(p.steps))
	for i, s := range p.steps {
		all[i] = s.operation
	}
	return all
}

func version(o document.Object) string { return document.Text(o, "metadata", "resourceVersion") }

func dying(o document.Object) bool {
	return document.Text(o, "metadata", "deletionTimestamp") != ""
}

// made tells whether the server makes an object by itself.
func made(o document.Object, withStatus bool) bool {
	text, err := json.Marshal(o)
	if err != nil {
		return false
	}
	stripped, err := document.Decode(text) // another one, as Strip changes it
	if err != nil {
		return false
	}
	own.Strip(stripped, withStatus)
	return own.ServerMakes(stripped)
}

// same tells whether two states differ in nothing that a client writes.
func same(a, b document.Object, withStatus bool) bool {
	return reflect.DeepEqual(written(a, withStatus), written(b, withStatus))
}

// written is what of an object a client writes.
func written(o document.Object, withStatus bool) map[string]any {
	left := map[string]any{}
	for name, member := range o {
		switch name {
		case "metadata":
			kept := map[string]any{}
			for _, name := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
				if member, has := member.(map[string]any)[name]; has {
					kept[name] = member
				}
			}
			left[name] = kept
		case "status":
			if withStatus {
				left[name] = member
			}
		default:
			left[name] = member
		}
	}
	return left
}
