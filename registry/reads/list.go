package reads

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// List is the answer to a list, or to a page of one: one instant of a collection, written without being built
// in memory.
type List struct {
	Warnings []string // for the client, one Warning header each

	endpoint *registry.Endpoint
	shown    *form.Shown
	selector
	label      *kube.Column // by which an index may find what is selected; nil for none
	collection string       // prefix of the keys in the collection that was asked for
	prefix     string       // of the keys in what is left of it by the selector
	start      string       // the first key that may be listed

	snapshot *cacher.Snapshot // nil: the list is read from etcd's history
	revision storage.Revision // of the history
	token    *registry.Token  // that was given; nil for none

	// for a list that was cut, see page.go
	Page      []*kube.Object // what is listed, of a snapshot
	end       string         // the last key that's listed; "" for all
	sorting   *sorting       // nil: by key
	continues string         // the token of the next page; "" when this is the last
	remaining int            // how many objects follow; 0 for unknown
}

// List opens a list of the namespace in Target, or of all for "". Of the query it reads labelSelector, fieldSelector, limit,
// continue, resourceVersion, resourceVersionMatch, at, for Tables includeObject, and with lite=true shardSelector, sortBy and fields.
//
// The List shares the cacher's objects, and needn't be closed. Errors are Status errors: 400 for parameters that can't be
// read, 404 for a path that isn't served, 410 for a version or token that is older than history, 503 from storage, 504 for
// a version that doesn't come within freshnessWait. Others are failures of the server, which it logs.
func (e Reader) List(ctx context.Context, r *registry.Request) (*List, error) {
	return registry.Steady(ctx, e.Endpoint, func(e *registry.Endpoint) (*List, error) { return Of(e).list(ctx, r) })
}

func (e Reader) list(ctx context.Context, r *registry.Request) (*List, error) {
	namespace := r.Namespace
	if namespace != "" && !e.Namespaced {
		return nil, registry.ErrNotServed
	}
	shown, err := e.Shown(r)
	if err != nil {
		return nil, err
	}
	if shown, err = e.projected(r, shown); err != nil {
		return nil, err
	}
	parameters, warnings, err := e.located(r.Query)
	if err != nil {
		return nil, err
	}
	opts, err := e.parseListOptions(parameters)
	if err != nil {
		return nil, err
	}
	l := &List{endpoint: e.Endpoint, shown: shown}
	if l.selector, err = e.parseSelector(r.Query); err != nil {
		return nil, err
	}
	if l.sorting, err = e.parseSorting(r.Query); err != nil {
		return nil, err
	}
	if l.collection, err = e.Res.Prefix.Namespace(namespace); err != nil {
		return nil, e.Fail(namespace, err)
	}
	if l.prefix, err = l.narrow(namespace); err != nil {
		return nil, e.Fail(namespace, err)
	}
	l.start = l.prefix
	l.label = l.selector.labelColumn()
	if !e.unstored() {
		e.Res.Cache.Demand(l.demanded(opts)) // before the snapshot is taken
		if err := l.open(ctx, opts); err != nil {
			return nil, err
		}
		if opts.token == nil {
			l.Warnings = append(warnings, l.leftOut()...)
		}
	} else if err := l.allShown(); err != nil || l.sorting == nil {
		return l, err
	}
	if l.sorting != nil {
		return l, l.sort(ctx, opts.limit)
	}
	if opts.limit > 0 {
		if err := l.cut(ctx, opts.limit); err != nil {
			return l, err
		}
	}
	if shown.Kind == form.Table && e.Typed != nil && e.Typed.RowOrder != nil {
		return l, l.sortRows(ctx)
	}
	return l, nil
}

// sortRows puts what is listed into the order that the kind's Tables have.
func (l *List) sortRows(ctx context.Context) error {
	type row struct {
		object *kube.Object
		value  registry.Typed
	}
	t := l.endpoint.Typed
	var rows []row
	for o, err := range l.Items(ctx) {
		if err != nil {
			return l.Failed(err)
		}
		decoded, err := object.DecodeStored(o.Raw())
		if err != nil {
			return l.endpoint.Unreadable(o.Name(), err)
		}
		value, err := t.FromObject(decoded)
		if err != nil {
			return err
		}
		rows = append(rows, row{o, value})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return t.RowOrder(a.value, b.value) })
	l.Page = make([]*kube.Object, len(rows))
	for i, r := range rows {
		l.Page[i] = r.object
	}
	return nil
}

// narrow returns the prefix of what the selector leaves of a namespace, or of all for "".
func (l *List) narrow(namespace string) (string, error) {
	switch {
	case l.namespace == "" || l.namespace == namespace:
		return l.collection, nil
	case namespace == "":
		return l.endpoint.Res.Prefix.Namespace(l.namespace)
	}
	l.fields = l.allFields // its term matches nothing here
	return l.collection, nil
}

// open finds the state to list.
func (l *List) open(ctx context.Context, o listOptions) error {
	switch {
	case o.token != nil:
		return l.resume(ctx, o.token)
	case o.exact:
		if err := l.endpoint.WaitFor(ctx, o.revision); err != nil {
			return err
		}
		return l.at(ctx, o.revision)
	}
	return l.freshest(ctx, o)
}

// freshest lists the newest state, once that is at least as new as the options ask for: see freshenTo.
func (l *List) freshest(ctx context.Context, o listOptions) error {
	err := Of(l.endpoint).freshenTo(ctx, o.revision, o.hasRevision)
	l.snapshot = l.endpoint.Res.Cache.Snapshot()
	return err
}

// at lists the state at a revision that the caches have reached.
func (l *List) at(ctx context.Context, rev storage.Revision) error {
	l.revision = rev
	if r := l.endpoint.Res.Registry; rev < r.Cacher.Oldest() { // also if the state is still kept: it expires at one moment for all
		return l.Failed(fmt.Errorf("list at %d: %w", rev, storage.ErrCompacted))
	}
	if l.snapshot = l.endpoint.Res.Cache.At(rev); l.snapshot != nil {
		return nil
	}
	// Errors of history are better found before the answer begins.
	_, err := l.endpoint.Res.Registry.Store.Count(ctx, storage.Range{Prefix: l.start}, rev)
	return l.Failed(err)
}

// Revision returns the list's resourceVersion.
func (l *List) Revision() storage.Revision {
	if l.snapshot == nil {
		return l.revision
	}
	return l.snapshot.Revision
}

// keys is the range of keys that may be listed.
func (l *List) keys() storage.Range { return storage.Range{Prefix: l.prefix, From: l.start} }

// matching yields what the selector selects from start on, in key order. An error ends it.
func (l *List) matching(ctx context.Context) iter.Seq2[*kube.Object, error] {
	return func(yield func(*kube.Object, error) bool) {
		if l.snapshot != nil {
			for o := range l.candidates() {
				if l.selects(o) && !yield(o, nil) {
					return
				}
			}
			return
		}
		for o, err := range l.endpoint.Res.Cache.Past(ctx, l.revision, l.keys()) {
			if (err != nil || l.selects(o)) && !yield(o, err) {
				return
			}
		}
	}
}

// single tells whether there can be no more than one object, because the selector names it in a namespace or of a cluster-scoped kind.
func (l *List) single() bool {
	return l.name != "" && (l.prefix != string(l.endpoint.Res.Prefix) || !l.endpoint.Namespaced)
}

// candidates yields the objects of the snapshot that may be selected: as few as can be told without looking
// at them.
func (l *List) candidates() iter.Seq[*kube.Object] {
	if l.single() {
		return func(yield func(*kube.Object) bool) {
			if o := l.snapshot.Get(l.prefix + l.name); o != nil && o.Key >= l.start {
				yield(o)
			}
		}
	}
	if label, value, ok := l.fields.Term(); ok {
		if found, ok := l.snapshot.Where(label, value, l.keys()); ok {
			return found
		}
	}
	if len(l.lookups) > 0 {
		if found, ok := l.snapshot.Find(l.lookups, l.keys()); ok {
			return found
		}
	}
	if key, values, ok := l.labels.Term(); ok {
		if l.label != nil {
			if found, ok := l.snapshot.Having(l.label, values[0], l.keys()); ok {
				return found
			}
		}
		return l.snapshot.Labelled(key, values, l.keys())
	}
	return l.snapshot.In(l.keys())
}

// all yields what the selector selects, wherever that is.
func (l *List) all(ctx context.Context) iter.Seq2[*kube.Object, error] {
	if l.Page != nil { // nothing is stored
		return l.Items(ctx)
	}
	return l.matching(ctx)
}

// Items yields what is listed.
func (l *List) Items(ctx context.Context) iter.Seq2[*kube.Object, error] {
	return func(yield func(*kube.Object, error) bool) {
		if l.Page != nil {
			for _, o := range l.Page {
				if !yield(o, nil) {
					return
				}
			}
			return
		}
		for o, err := range l.matching(ctx) {
			if err == nil && l.end != "" && o.Key > l.end || !yield(o, err) {
				return
			}
		}
	}
}

// maxLeftOut is how many of the objects that can't be read are named to a client.
const maxLeftOut = 10

// leftOut warns of objects in what is listed that can't be read. Their labels aren't known, so it doesn't look at the selector of those.
func (l *List) leftOut() []string {
	var names []string
	more := 0
	for _, o := range l.endpoint.Res.Cache.Unreadable() {
		switch {
		case !strings.HasPrefix(o.Key, l.prefix) || l.name != "" && o.Name() != l.name:
		case len(names) == maxLeftOut:
			more++
		default:
			names = append(names, strings.TrimPrefix(o.Namespace()+"/"+o.Name(), "/"))
		}
	}
	if len(names) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s that can't be read from storage are left out: %s", l.endpoint.GroupResource(), strings.Join(names, ", "))
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return []string{text}
}

// selects tells whether an object is in the list. What can't be read is reported and left out.
func (l *List) selects(o *kube.Object) bool {
	if l.name != "" && o.Name() != l.name {
		return false
	}
	if o.Err != nil {
		l.endpoint.Res.Registry.Unreadable.Report(o, o.Err)
		return false
	}
	return l.labels.Matches(o.Labels) && l.fields.Matches(o) && l.where.Matches(o)
}

// selector is what labelSelector and fieldSelector select.
type selector struct {
	labels          selectors.LabelSelector
	fields          selectors.FieldSelector
	namespace, name string                  // asked for by field selector; "" for any
	allFields       selectors.FieldSelector // with the terms that name and namespace stand for

	// with lite=true, see lite.go
	where   *kube.Where   // nil for all
	lookups []kube.Lookup // by which an index finds what where selects; none if it can't
	shard   string        // as it was asked for; "" for all
}

// labelColumn returns the column of the label that must have one value, if that is what finds the fewest objects; else nil.
func (s *selector) labelColumn() *kube.Column {
	key, values, ok := s.labels.Term()
	if _, _, better := s.fields.Term(); !ok || len(values) > 1 || better || s.name != "" || len(s.lookups) > 0 {
		return nil
	}
	return kube.NewLabelColumn(key)
}

// selectsAll tells whether there is no selector.
func (s *selector) selectsAll() bool {
	return s.labels.Empty() && s.allFields.Empty() && s.where == nil
}
