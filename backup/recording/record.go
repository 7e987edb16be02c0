package recording

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/backup/own"
	"github.com/apiserver-lite/apiserver-lite/client"
)

// RecordOptions say what Record records. The zero value is everything but Secrets, from now on.
type RecordOptions struct {
	// Resources are the kinds, as people name them. Without any it's all kinds, also those that are defined meanwhile.
	Resources []string
	// Secrets records Secrets, too.
	Secrets bool
	// From is the resourceVersion to begin at: with the state that was there then, and what has happened since. Defaults to now.
	From string
	// Instant, client.AtTime's or client.Ago's, stands for the resourceVersion of that instant, in place of From. Only apiserver-lite knows it.
	Instant client.Option
	// ChangesOnly leaves out the state that the recording would begin with.
	ChangesOnly bool
	// Gzip compresses the file.
	Gzip bool
	// Log is told when the server is away. Defaults to nothing.
	Log *slog.Logger
	// Begun, unless it's nil, is called when the state is written, before the first change.
	Begun func(resourceVersion string, objects int)
}

// Recorded says what a file has.
type Recorded struct {
	Changes int // those of the state included
	Gaps    int // how often history was gone
}

// Record writes to a file what happens to a server's objects, until ctx ends, which is no error once it has begun. It goes on over restarts of the server. Errors
// are a refusal of the server's, and that the file can't be written: then what is there already can be replayed.
func Record(ctx context.Context, server *client.Client, to io.Writer, o RecordOptions) (Recorded, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &recorder{RecordOptions: o, server: server, to: newWriter(to, o.Gzip), version: o.From, known: map[identity]seen{}}
	var flushing sync.WaitGroup
	flushing.Go(func() { r.to.run(ctx, func(err error) { cancel(fmt.Errorf("write the recording: %w", err)) }) })
	err := r.run(ctx)
	if err == nil && !r.begun {
		err = fmt.Errorf("the recording hasn't begun: %w", context.Cause(ctx))
	}
	cancel(nil)
	flushing.Wait()
	if r.to.failed() == nil && r.begun && err == nil {
		_ = r.to.write(Line{Time: time.Now().UTC(), Type: End, ResourceVersion: r.version}) // close has its error
	}
	if failed := r.to.close(); failed != nil && (err == nil || r.to.failed() != nil) {
		err = fmt.Errorf("write the recording: %w", failed)
	}
	return Recorded{Changes: r.to.changes, Gaps: r.gaps}, err
}

// identity tells objects apart, whatever version they're shown in.
type identity struct {
	kind string // with its group
	client.Key
}

func identityOf(o client.Object) identity {
	return identity{kindOf(o), client.Key{Namespace: o.Namespace(), Name: o.Name()}}
}

// seen is what is kept of an object.
type seen struct{ apiVersion, uid, version string }

// recorder is one Record.
type recorder struct {
	RecordOptions
	server *client.Client
	to     *writer

	kinds   map[string]client.ResourceInfo // by plural and group
	apart   bool                           // the server has no stream of several kinds
	begun   bool
	version string // everything up to it is written
	known   map[identity]seen
	gaps    int
	fresh   bool          // nothing has come since From
	awaits  client.Object // a definition that was just established; its kind isn't followed yet
}

// errKinds says that the kinds that are followed have changed.
var errKinds = errors.New("the server's kinds have changed")

// run records until ctx ends.
func (r *recorder) run(ctx context.Context) (err error) {
	r.apart = r.lacksStream(ctx)
	switch r.kinds, err = r.find(ctx); {
	case err != nil:
	case r.apart && r.Instant != nil:
		err = errors.New("only apiserver-lite knows what was at an instant: begin at a resourceVersion")
	case r.apart:
		err = newApart(r).run(ctx)
	default:
		err = r.runMerged(ctx)
	}
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return r.to.failed()
	}
	return err
}

// runMerged records one stream of all kinds.
func (r *recorder) runMerged(ctx context.Context) (err error) {
	if r.Instant != nil {
		err = r.findFrom(ctx)
	}
	if r.From != "" && err == nil {
		err = r.beginAt(ctx)
	}
	for err == nil {
		err = r.follow(ctx)
		if !errors.Is(err, errKinds) {
			break
		}
		err = r.findAgain(ctx)
	}
	return err
}

// findFrom finds out the version of the instant to begin at.
func (r *recorder) findFrom(ctx context.Context) error {
	var kind client.ResourceInfo
	for _, kind = range r.kinds { // any kind has it
		break
	}
	list, err := client.Resource[client.Object](r.server, kind.APIVersion, kind.Plural).List(ctx, r.Instant, client.PageSize(1))
	if err != nil {
		return fmt.Errorf("find the resourceVersion to begin at: %w", err)
	}
	r.From, r.version = list.ResourceVersion, list.ResourceVersion
	return nil
}

// findAgain finds the kinds to record. That of a new definition is asked for by itself, which is fast, until it's served. Nothing that happens
// meanwhile is lost, unless the kind is gone by then: it's read from history.
func (r *recorder) findAgain(ctx context.Context) error {
	for deadline := time.Now().Add(patience); ; {
		var err error
		if r.awaits == nil {
			r.kinds, err = r.find(ctx)
		} else {
			err = r.join(ctx)
		}
		switch {
		case err == nil:
			r.awaits = nil
			return nil
		case ctx.Err() != nil || refused(err) && !errors.Is(err, client.ErrNotFound):
			return err
		case errors.Is(err, client.ErrNotFound) && time.Now().After(deadline):
			return err
		case !errors.Is(err, client.ErrNotFound):
			r.Log.Warn("trying again", "error", err)
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// join adds the kind of a new definition to those that are followed. ErrNotFound says that it isn't served yet.
func (r *recorder) join(ctx context.Context) error {
	kind, err := r.server.Find(ctx, r.awaits.Name())
	if err == nil {
		r.kinds[own.FullName(kind)] = kind
		return nil
	}
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	now, gone := client.Resource[client.Object](r.server, r.awaits.APIVersion(), "customresourcedefinitions").Get(ctx, r.awaits.Name())
	if errors.Is(gone, client.ErrNotFound) || gone == nil && now.UID() != r.awaits.UID() {
		return nil
	}
	return err
}

// pause waits a moment before kinds are looked up again.
func (r *recorder) pause(ctx context.Context) error {
	select {
	case <-time.After(lookPause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// find returns the kinds to record.
func (r *recorder) find(ctx context.Context) (map[string]client.ResourceInfo, error) {
	var found []client.ResourceInfo
	var err error
	if len(r.Resources) == 0 {
		found, err = own.Kinds(ctx, r.server)
		switch {
		case err != nil && r.apart && len(found) > 0: // one server behind kube-apiserver is away, for example
			r.Log.Warn("some kinds can't be found", "error", err)
		case err != nil:
			return nil, err // ErrNotFound: a group has gone meanwhile
		}
	}
	for _, name := range r.Resources {
		kind, err := r.server.Find(ctx, name)
		switch {
		case err != nil && !(r.begun && errors.Is(err, client.ErrNotFound)): // its definition was there when this began
			return nil, err
		case err == nil && own.FullName(kind) == "secrets" && !r.Secrets:
			return nil, errors.New("secrets are recorded with --secrets only")
		case err == nil:
			found = append(found, kind)
		}
	}
	kinds := map[string]client.ResourceInfo{}
	for _, kind := range found {
		if name := own.FullName(kind); slices.Contains(kind.Verbs, "watch") && (name != "secrets" || r.Secrets) {
			kinds[name] = kind
		}
	}
	if len(kinds) == 0 {
		return nil, errors.New("the server has none of these kinds any more")
	}
	return kinds, nil
}

// beginAt writes the state of an earlier version.
func (r *recorder) beginAt(ctx context.Context) error {
	var all state
	for _, name := range slices.Sorted(maps.Keys(r.kinds)) {
		if r.ChangesOnly {
			break
		}
		objects, _, err := r.list(ctx, name, r.From)
		if err != nil {
			return err
		}
		all = append(all, objects...)
	}
	r.fresh = true
	return r.begin(client.State[client.Object]{Objects: all, Version: r.From})
}

// list returns the objects of a kind at a version, or at the newest if it's "", and that version.
func (r *recorder) list(ctx context.Context, name, at string) (all state, version string, err error) {
	kind, what, options := r.kinds[name], "list "+name, []client.Option(nil)
	if at != "" {
		what, options = what+" at resourceVersion "+at, append(options, client.At(at))
	}
	list, err := client.Resource[client.Object](r.server, kind.APIVersion, kind.Plural).List(ctx, options...)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", what, err)
	}
	for o, err := range list.All(ctx) {
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", what, err)
		}
		all = append(all, client.Event[client.Object]{Type: client.Added, Object: o, Key: client.Key{Namespace: o.Namespace(), Name: o.Name()}, ResourceVersion: o.ResourceVersion()})
	}
	return all, list.ResourceVersion, nil
}

// follow records until the kinds have changed, or ctx ends.
func (r *recorder) follow(ctx context.Context) error {
	var names []string
	for _, kind := range r.kinds {
		group, version, found := strings.Cut(kind.APIVersion, "/")
		if !found {
			group, version = "", kind.APIVersion
		}
		names = append(names, kind.Plural+"."+version+"."+group)
	}
	slices.Sort(names)
	options := []client.Option{client.Bookmarks()}
	if r.begun {
		options = append(options, client.Since(r.version))
	}
	for step, err := range client.FollowAll(ctx, r.server, "", names, options...) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.fresh && (errors.Is(err, client.ErrExpired) || errors.Is(err, client.ErrVersionTooLarge)):
			return r.tooOld(err)
		case errors.Is(err, client.ErrExpired):
			r.Log.Warn("history is gone: listing anew")
		case errors.Is(err, client.ErrNotFound) && r.begun: // a definition is gone
			return cmp.Or(r.pause(ctx), errKinds)
		case err != nil && refused(err):
			return err
		case err != nil:
			r.Log.Warn("trying again", "error", err)
		case step.State != nil && !r.begun:
			err = r.begin(*step.State)
		case step.State != nil:
			r.version = step.State.Version
			err = r.bridge(time.Now(), "", true, *step.State)
		default:
			err = r.take(step.Event)
		}
		if errors.Is(err, errKinds) || r.to.failed() != nil {
			return cmp.Or(r.to.failed(), err)
		}
	}
	return nil
}

// tooOld is the error of a server whose history doesn't reach From.
func (r *recorder) tooOld(err error) error {
	return fmt.Errorf("the server's history doesn't have resourceVersion %s: %w", r.From, err)
}

// refused tells whether the server has refused what would be refused again.
func refused(err error) bool {
	refusal, ok := errors.AsType[*client.StatusError](err)
	return ok && refusal.Code >= http.StatusBadRequest && refusal.Code < http.StatusInternalServerError && refusal.Code != http.StatusTooManyRequests && refusal.Code != http.StatusConflict
}

// begin writes the state that the recording begins with.
func (r *recorder) begin(now client.State[client.Object]) error {
	at := time.Now().UTC()
	if err := r.to.write(Line{Time: at, Type: Begin, Form: Form, ResourceVersion: now.Version}); err != nil {
		return err
	}
	r.begun, r.version = true, now.Version
	state(now.Objects).sort()
	for _, e := range now.Objects {
		r.note(e)
		if !r.ChangesOnly {
			if err := r.to.write(Line{Time: at, Type: Added, Object: *e.Object}); err != nil {
				return err
			}
		}
	}
	err := r.to.flush()
	if r.Begun != nil && err == nil {
		r.Begun(now.Version, len(now.Objects))
	}
	return err
}

// note remembers an object.
func (r *recorder) note(e client.Event[client.Object]) {
	r.known[identityOf(*e.Object)] = seen{e.Object.APIVersion(), e.Object.UID(), e.ResourceVersion}
}

// write writes an event that was seen at a time.
func (r *recorder) write(at time.Time, e client.Event[client.Object]) error {
	if e.Type == client.Deleted {
		delete(r.known, identityOf(*e.Object))
	} else {
		r.note(e)
	}
	return r.to.write(Line{Time: at.UTC(), Type: e.Type.String(), Object: *e.Object})
}

// take writes an event of the stream of all kinds. errKinds says that it's a definition of a kind that isn't followed yet.
func (r *recorder) take(e client.Event[client.Object]) error {
	r.version, r.fresh = e.ResourceVersion, false
	if e.Type == client.Bookmark {
		return nil
	}
	if err := r.write(time.Now(), e); err != nil {
		return err
	}
	if r.defines(e) && !r.follows(*e.Object) {
		r.awaits = *e.Object
		return errKinds
	}
	return nil
}

// definition is the kind of definitions.
const definition = "CustomResourceDefinition.apiextensions.k8s.io"

// defines tells whether an event is of a definition whose kind is to be recorded, and is served by now.
func (r *recorder) defines(e client.Event[client.Object]) bool {
	return len(r.Resources) == 0 && e.Type != client.Deleted && kindOf(*e.Object) == definition && established(*e.Object)
}

// follows tells whether the kind that a definition has is followed, or isn't served.
func (r *recorder) follows(o client.Object) bool {
	var spec struct {
		Group    string
		Names    struct{ Plural string }
		Versions []struct {
			Name   string
			Served bool
		}
	}
	if o.Decode(&spec, "spec") != nil {
		return true
	}
	at, followed := r.kinds[spec.Names.Plural+"."+spec.Group]
	served := false
	for _, v := range spec.Versions {
		if v.Served && followed && at.APIVersion == spec.Group+"/"+v.Name {
			return true
		}
		served = served || v.Served
	}
	return !served
}

// bridge writes what makes the state of what was recorded before, of one kind or, without one, of all. There's a gap before it, or it turns out to
// be one because something is gone.
func (r *recorder) bridge(at time.Time, kind string, gap bool, now client.State[client.Object]) error {
	at = at.UTC()
	there := map[identity]string{}
	for _, e := range now.Objects {
		there[identityOf(*e.Object)] = e.Object.UID()
	}
	var gone []identity
	for id, was := range r.known {
		if (kind == "" || id.kind == kind) && there[id] != was.uid {
			gone = append(gone, id)
		}
	}
	slices.SortFunc(gone, func(a, b identity) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if gap || len(gone) > 0 {
		r.gaps++
		if err := r.to.write(Line{Time: at, Type: Gap}); err != nil {
			return err
		}
	}
	for _, id := range gone {
		was := r.known[id]
		delete(r.known, id)
		kind, _, _ := strings.Cut(id.kind, ".")
		object, err := json.Marshal(client.Meta{APIVersion: was.apiVersion, Kind: kind, Metadata: client.Metadata{Name: id.Name, Namespace: id.Namespace, UID: was.uid}})
		if err == nil {
			err = r.to.write(Line{Time: at, Type: Deleted, Object: object})
		}
		if err != nil {
			return err
		}
	}
	state(now.Objects).sort()
	for _, e := range now.Objects {
		before, had := r.known[identityOf(*e.Object)]
		if had && before.version == e.ResourceVersion {
			continue
		}
		r.note(e)
		change := Line{Time: at, Type: Added, Object: *e.Object}
		if had {
			change.Type = Modified
		}
		if err := r.to.write(change); err != nil {
			return err
		}
	}
	return nil
}
