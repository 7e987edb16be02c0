package recording

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/backup/own"
	"github.com/apiserver-lite/apiserver-lite/client"
)

const (
	// fieldManager is who replays, in managedFields.
	fieldManager = "apiserver-lite-replay"
	// patience is how long the target may take with what it does by itself: to serve a new definition, to empty a namespace that is deleted.
	patience = 30 * time.Second
	// lookPause is between two looks at the target.
	lookPause = 20 * time.Millisecond
	// maxConflicts is how often a change is tried again that another writer comes before.
	maxConflicts = 20
)

// ownFinalizers are those that API servers' own controllers remove: a replay leaves them to the target's.
var ownFinalizers = []string{"foregroundDeletion", "orphan", "customresourcecleanup.apiextensions.k8s.io"}

// ownStatus are the kinds whose status the target makes by itself, as kind.group.
var ownStatus = []string{"Namespace", definition, "APIService.apiregistration.k8s.io", "ResourceQuota"}

// emptied are the kinds that a server deletes only when it has deleted what is in them.
var emptied = []string{"Namespace", definition}

// sum is a hash by which it's known whether something has changed.
type sum [sha256.Size]byte

// object is one at the target, from its creation by the replay until its deletion. Only the change that has its name uses it.
type object struct {
	line           int    // of the last change
	recorded       string // its uid in the recording
	uid, version   string // at the target, when it was last seen
	main, status   sum    // what was last written
	held, deleting bool   // it has finalizers of others; its deletion was asked for
	bound          bool   // of a Pod: it has its node
	gone           bool   // the target had deleted it by itself
}

// replayer is one Replay.
type replayer struct {
	target *client.Client
	read   int // lines; of who feeds

	mu       sync.Mutex // guards all below
	kinds    map[string]client.ResourceInfo
	unserved map[string]int // changes of kinds that the target doesn't serve, by apiVersion and kind
	objects  map[identity]*object
	uids     map[string]string // those of the recording, as the target's
	result   Result
}

func newReplayer(target *client.Client) *replayer {
	return &replayer{target: target, kinds: map[string]client.ResourceInfo{}, unserved: map[string]int{}, objects: map[identity]*object{}, uids: map[string]string{}}
}

// count counts something.
func (r *replayer) count(in func(*Result)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in(&r.result)
}

// wrote counts a write.
func (r *replayer) wrote(as *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Writes++
	*as++
}

// total returns the result, when all is done.
func (r *replayer) total() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.result
	all.Changes = r.read
	for kind, n := range r.unserved {
		all.fail(Failure{Object: kind, Err: fmt.Errorf("the target doesn't serve it: left out %d changes", n)}, n)
	}
	for id, o := range r.objects {
		if o.gone && !o.deleting {
			all.fail(Failure{o.line, id.kind + " " + id.Key.String(), errors.New("the target has deleted it by itself, and it's there at the end of the recording")}, 1)
		}
	}
	slices.SortStableFunc(all.Failures, func(a, b Failure) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return strings.Compare(a.Object, b.Object)
	})
	return all
}

// fail adds a failure, of so many changes.
func (r *Result) fail(f Failure, changes int) {
	r.Failed += changes
	if len(r.Failures) < maxListed {
		r.Failures = append(r.Failures, f)
	} else {
		r.Unlisted += changes
	}
}

// replay does a change. What the target refuses is counted; an error is that it can't be reached, or why ctx ended.
func (r *replayer) replay(ctx context.Context, c *change) error {
	id, what := identityOf(c.Object), kindOf(c.Object)
	if key := id.Key.String(); key != "" {
		what += " " + key
	}
	err := r.do(ctx, c, id)
	if refusal := (*client.StatusError)(nil); err != nil && ctx.Err() == nil {
		if !errors.As(err, &refusal) && !errors.Is(err, errLeft) {
			return fmt.Errorf("line %d: %s: %w", c.at, what, err)
		}
		r.count(func(all *Result) { all.fail(Failure{c.at, what, err}, 1) })
	}
	return nil
}

// errLeft is returned for what isn't done in time, or can't be.
var errLeft = errors.New("it can't be replayed")

// do does a change.
func (r *replayer) do(ctx context.Context, c *change, id identity) error {
	kind, err := r.kind(ctx, c.Object.APIVersion(), c.Object.Kind())
	if errors.Is(err, client.ErrNotFound) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if at := r.objects[id]; at != nil { // it has gone with its definition, which is being deleted in the recording
			at.gone, at.line = true, c.at
			r.result.Unchanged++
			if c.Type == Deleted {
				delete(r.objects, id)
			}
			return nil
		}
		r.unserved[kindOf(c.Object)+" in "+c.Object.APIVersion()]++
		return nil
	}
	if err != nil {
		return err
	}
	if id.kind == definition {
		defer r.forgetKinds()
	}
	w := &write{replayer: r, id: id, at: r.object(id), line: c.at, kind: kind, of: client.Resource[client.Object](r.target, kind.APIVersion, kind.Plural)}
	if kind.Namespaced {
		w.of = w.of.In(id.Namespace)
	}
	if w.o, err = document.Decode(c.Object); err != nil {
		return fmt.Errorf("%w: %w", errLeft, err)
	}
	if document.NameOf(w.o) != id.Name { // a member is there twice
		return fmt.Errorf("%w: the object has several names", errLeft)
	}
	if w.at != nil && w.at.recorded != c.Object.UID() && c.Type != Deleted { // the recording lacks its deletion
		if err := w.remove(ctx); err != nil {
			return err
		}
	}
	if c.Type == Deleted {
		return w.remove(ctx)
	}
	if err := w.put(ctx); err != nil {
		return err
	}
	if id.kind == definition {
		return r.served(ctx, c.Object)
	}
	return nil
}

// object returns an object at the target, nil if the replay hasn't made it.
func (r *replayer) object(id identity) *object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[id]
}

// kind returns the resource that a kind is at the target. ErrNotFound says that it isn't served.
func (r *replayer) kind(ctx context.Context, apiVersion, kind string) (client.ResourceInfo, error) {
	key := apiVersion + " " + kind
	r.mu.Lock()
	info, known := r.kinds[key]
	r.mu.Unlock()
	if known && info.Plural == "" {
		return info, client.ErrNotFound
	}
	if known {
		return info, nil
	}
	info, err := r.target.FindKind(ctx, apiVersion, kind)
	if err == nil || errors.Is(err, client.ErrNotFound) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.kinds[key] = info
	}
	return info, err
}

// forgetKinds has kinds looked up anew: a definition has changed.
func (r *replayer) forgetKinds() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.kinds)
}

// served waits until the kinds of a definition are served.
func (r *replayer) served(ctx context.Context, o client.Object) error {
	var spec struct {
		Group    string
		Names    struct{ Kind string }
		Versions []struct {
			Name   string
			Served bool
		}
	}
	if err := o.Decode(&spec, "spec"); err != nil {
		return fmt.Errorf("%w: %w", errLeft, err)
	}
	of := client.Resource[client.Object](r.target, o.APIVersion(), "customresourcedefinitions")
	return r.until(ctx, "its kind isn't served", func() (bool, error) {
		now, err := of.Get(ctx, o.Name())
		if errors.Is(err, client.ErrNotFound) || err == nil && now.Field("metadata", "deletionTimestamp") != nil {
			return true, nil
		}
		if err != nil || !established(*now) {
			return false, err
		}
		for _, v := range spec.Versions {
			if v.Served {
				r.forgetKinds()
				if _, err := r.kind(ctx, spec.Group+"/"+v.Name, spec.Names.Kind); err != nil {
					return false, ignoring(err, client.ErrNotFound)
				}
			}
		}
		return true, nil
	})
}

// established tells whether a definition is.
func established(o client.Object) bool {
	var conditions []struct{ Type, Status string }
	if o.Decode(&conditions, "status", "conditions") != nil {
		return false
	}
	for _, c := range conditions {
		if c.Type == "Established" {
			return c.Status == "True"
		}
	}
	return false
}

// until looks again and again, until is says true, or fails.
func (r *replayer) until(ctx context.Context, otherwise string, is func() (bool, error)) error {
	for deadline := time.Now().Add(patience); ; {
		done, err := is()
		switch {
		case done || err != nil:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%w: %s after %v", errLeft, otherwise, patience)
		}
		select {
		case <-time.After(lookPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ignoring returns err, unless it's that one.
func ignoring(err, that error) error {
	if errors.Is(err, that) {
		return nil
	}
	return err
}

// adopt has the object's owners be those at the target: those that the replay has made, or else those of the same name. References to others are
// left out, because the target would delete what has no owner.
func (r *replayer) adopt(ctx context.Context, o document.Object) error {
	owners := document.Owners(o)
	if len(owners) == 0 {
		return nil
	}
	var left []any
	for _, owner := range owners {
		uid, err := r.owner(ctx, owner, document.NamespaceOf(o))
		if err != nil {
			return err
		}
		if uid == "" {
			r.count(func(all *Result) { all.Ownerless++ })
			continue
		}
		owner["uid"] = uid
		left = append(left, owner)
	}
	if document.Map(o, "metadata")["ownerReferences"] = left; left == nil {
		delete(document.Map(o, "metadata"), "ownerReferences")
	}
	return nil
}

// owner returns the uid that an owner has at the target, "" if it isn't there.
func (r *replayer) owner(ctx context.Context, reference map[string]any, namespace string) (string, error) {
	uid, _ := reference["uid"].(string)
	r.mu.Lock()
	now, known := r.uids[uid]
	r.mu.Unlock()
	if known {
		return now, nil
	}
	text := func(name string) string { s, _ := reference[name].(string); return s }
	kind, err := r.kind(ctx, text("apiVersion"), text("kind"))
	if err != nil {
		return "", ignoring(err, client.ErrNotFound)
	}
	of := client.Resource[client.Object](r.target, kind.APIVersion, kind.Plural)
	if kind.Namespaced {
		of = of.In(namespace)
	}
	owner, err := of.Get(ctx, text("name"))
	if err != nil {
		return "", ignoring(err, client.ErrNotFound)
	}
	return owner.UID(), nil
}

// write is a change of an object at the target.
type write struct {
	*replayer
	id   identity
	at   *object // nil if the replay hasn't made it
	line int
	kind client.ResourceInfo
	of   client.Collection[client.Object]
	o    document.Object // as it was recorded; put changes it

	recorded   string   // its uid
	deleting   bool     // it was being deleted
	grace      string   // its deletionGracePeriodSeconds
	finalizers []string // it has
	status     any      // that is written by itself; nil if there's none
}

var errGone = errors.New("the target has deleted it")

// read takes out of the recorded object what is written in ways of its own. What is left is what a create or update sends.
func (w *write) read(ctx context.Context) error {
	metadata := document.Map(w.o, "metadata")
	w.recorded = document.Text(w.o, "metadata", "uid")
	w.deleting = document.Text(w.o, "metadata", "deletionTimestamp") != ""
	if grace, ok := metadata["deletionGracePeriodSeconds"].(json.Number); ok {
		w.grace = grace.String()
	}
	finalizers, _ := metadata["finalizers"].([]any)
	for _, f := range finalizers {
		if name, ok := f.(string); ok {
			w.finalizers = append(w.finalizers, name)
		}
	}
	if slices.Contains(w.kind.Subresources, "status") && !slices.Contains(ownStatus, w.id.kind) {
		w.status = w.o["status"]
	}
	own.Strip(w.o, !slices.Contains(w.kind.Subresources, "status"))
	w.setFinalizers(slices.DeleteFunc(slices.Clone(w.finalizers), func(f string) bool { return slices.Contains(ownFinalizers, f) }))
	if of := document.Map(w.o, "involvedObject"); of["uid"] != nil { // an Event's
		w.mu.Lock()
		if now, known := w.uids[document.Text(of, "uid")]; known {
			of["uid"] = now
		}
		w.mu.Unlock()
	}
	return w.adopt(ctx, w.o)
}

func (w *write) setFinalizers(all []string) {
	if len(all) == 0 {
		delete(document.Map(w.o, "metadata"), "finalizers")
		return
	}
	document.Map(w.o, "metadata")["finalizers"] = all
}
