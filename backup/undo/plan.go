package undo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/backup/own"
	"github.com/apiserver-lite/apiserver-lite/client"
	"github.com/apiserver-lite/apiserver-lite/selectors"
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
	server *client.Client
	at     string                  // the version of then
	labels selectors.LabelSelector // of what is meant: objects that it selects now or selected then
	steps  []Step
	notes  []string        // for the user
	left   bool            // an object is left alone, because it's being deleted
	alive  map[string]bool // whether an object of a uid is there now, of those that were asked about
}

// add compares the objects of a kind in a collection, or with a name one of them, with what they were then.
func (p *plan) add(ctx context.Context, kind client.ResourceInfo, of client.Collection[client.Object], name string) error {
	var options []client.Option // without the labels, which may have changed
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
	switch {
	case name != "" && len(then) == 0 && len(now) == 0:
		return fmt.Errorf("%s %q doesn't exist, and didn't at version %s", of, name, p.at)
	case name != "" && len(then) == 0:
		return fmt.Errorf("%s %q didn't exist at version %s: to have it so again, delete it", of, name, p.at)
	}
	names := map[string]bool{}
	for _, states := range []map[string]document.Object{now, then} {
		for key := range states {
			names[key] = true
		}
	}
	for key := range names {
		if !p.selects(then[key]) && !p.selects(now[key]) {
			continue
		}
		if err := p.compare(ctx, kind, key, then[key], now[key]); err != nil {
			return err
		}
	}
	return nil
}

// selects tells whether the labels select an object; nil is none.
func (p *plan) selects(o document.Object) bool {
	if o == nil {
		return false
	}
	labels := map[string]string{}
	for name, value := range document.Map(o, "metadata", "labels") {
		labels[name], _ = value.(string)
	}
	return p.labels.Matches(selectors.SetOf(labels))
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
func (p *plan) compare(ctx context.Context, kind client.ResourceInfo, name string, then, now document.Object) error {
	rank := document.Rank(kind.APIVersion, kind.Kind)
	step := Step{Kind: kind, Name: name, rank: rank}
	which := client.Which{Resource: own.FullName(kind), Namespace: document.NamespaceOf(now), Name: document.NameOf(now)}
	withStatus := !slices.Contains(kind.Subresources, "status")
	switch {
	case dying(now):
		p.left = true
		p.notes = append(p.notes, fmt.Sprintf("%s %s is being deleted, and left alone", own.FullName(kind), name))
		return nil
	case dying(then):
		p.notes = append(p.notes, fmt.Sprintf("%s %s was being deleted then, and is left alone", own.FullName(kind), name))
		return nil
	case then == nil:
		if now == nil || made(now, withStatus) {
			return nil
		}
		step.Change, step.operation = "deleted", client.DeletingVersion(which, version(now))
		step.rank = document.Last() + document.Last() - rank
	case now == nil:
		if made(then, withStatus) {
			return nil
		}
		strip(then, then, withStatus) // its addresses are its own again, as long as nobody else has them
		if err := p.keepOwners(ctx, kind, name, then); err != nil {
			return err
		}
		step.Change, step.operation = "created", client.Creating(then)
	default:
		if document.Text(then, "metadata", "uid") != document.Text(now, "metadata", "uid") { // the one of then is gone for good
			strip(then, now, withStatus)
		}
		if same(then, now, withStatus) {
			return nil
		}
		if err := p.keepOwners(ctx, kind, name, then); err != nil {
			return err
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

// strip is own.Strip, but that a Service which has had addresses gets those of another state of it.
func strip(o, other document.Object, withStatus bool) {
	had, given := addressesOf(o), addressesOf(other)
	if own.Strip(o, withStatus); had != nil && given != nil {
		maps.Copy(document.Map(o, "spec"), given)
	}
}

// addressesOf returns those that the server gives a Service, and a client may ask for; nil for none.
func addressesOf(o document.Object) map[string]any {
	spec := document.Map(o, "spec")
	if address, _ := spec["clusterIP"].(string); own.KindOf(o) != "Service" || address == "" || address == "None" {
		return nil
	}
	return map[string]any{"clusterIP": spec["clusterIP"], "clusterIPs": spec["clusterIPs"]}
}

// keepOwners leaves of an object's owners those that are there now: with others, the object would be deleted as soon as it's back.
func (p *plan) keepOwners(ctx context.Context, kind client.ResourceInfo, name string, o document.Object) error {
	metadata := document.Map(o, "metadata")
	var kept []any
	for _, owner := range document.Owners(o) {
		alive, err := p.isAlive(ctx, owner, document.NamespaceOf(o))
		if err != nil {
			return err
		}
		if alive {
			kept = append(kept, owner)
			continue
		}
		p.notes = append(p.notes, fmt.Sprintf("%s %s no longer names its owner %v %v, which isn't there any more", own.FullName(kind), name, owner["kind"], owner["name"]))
	}
	if delete(metadata, "ownerReferences"); len(kept) > 0 {
		metadata["ownerReferences"] = kept
	}
	return nil
}

// isAlive tells whether the object that a reference names is there.
func (p *plan) isAlive(ctx context.Context, owner map[string]any, namespace string) (bool, error) {
	text := func(name string) string { value, _ := owner[name].(string); return value }
	uid := text("uid")
	if alive, known := p.alive[uid]; known {
		return alive, nil
	}
	kind, err := p.server.FindKind(ctx, text("apiVersion"), text("kind"))
	if errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	of := client.Resource[client.Object](p.server, kind.APIVersion, kind.Plural)
	if kind.Namespaced {
		of = of.In(namespace)
	}
	found, err := of.Get(ctx, text("name"))
	if err != nil && !errors.Is(err, client.ErrNotFound) {
		return false, fmt.Errorf("the owner %s %s: %w", text("kind"), text("name"), err)
	}
	p.alive[uid] = err == nil && found.UID() == uid
	return p.alive[uid], nil
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
