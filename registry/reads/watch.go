package reads

import (
	"context"
	"errors"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// StreamError is the Status that says why no watch can start from a version. Clients get it as an ERROR event of a
// stream that has nothing else: client-go's RetryWatcher ends on the event, and tries an HTTP error again for ever.
type StreamError struct{ *apierrors.StatusError }

// inStream makes a StreamError of an error about the version from which a watch should start. It leaves all others.
func inStream(err error) error {
	status := &apierrors.StatusError{}
	if errors.As(err, &status) && (apierrors.IsResourceExpired(status) || apierrors.HasStatusCause(status, metav1.CauseTypeResourceVersionTooLarge)) {
		return &StreamError{status}
	}
	return err
}

// Watch opens a watch of the namespace and the name in Target; "" is for all. The caller closes the cursor. Of the query it
// reads labelSelector, fieldSelector, resourceVersion, at, resourceVersionMatch, sendInitialEvents, allowWatchBookmarks,
// timeoutSeconds, and for Tables includeObject. The Options are what the stream needs to know of them.
//
// It waits at most freshnessWait for a version that the server doesn't have yet. Errors are Status errors (400, 404, 504),
// or the server's own failures. Those about the version are of type StreamError; one of 410 means that the client has to
// list anew.
func (e Reader) Watch(ctx context.Context, r *registry.Request) (*cacher.Cursor, watchstream.Options, error) {
	for { // as registry.Steady does
		resets, served, err := e.Res.Registry.BetweenResets(ctx, e.Endpoint)
		if err != nil {
			return nil, watchstream.Options{}, err
		}
		cursor, options, err := Of(served).watch(ctx, r)
		if e.Res.Registry.Resets.Load() == resets {
			return cursor, options, err
		}
		if err == nil {
			cursor.Close()
		}
	}
}

func (e Reader) watch(ctx context.Context, r *registry.Request) (*cacher.Cursor, watchstream.Options, error) {
	if r.Namespace != "" && !e.Namespaced {
		return nil, watchstream.Options{}, registry.ErrNotServed
	}
	query, _, err := e.located(r.Query)
	if err != nil {
		return nil, watchstream.Options{}, err
	}
	opts, err := e.parseWatchOptions(query)
	if err != nil {
		return nil, watchstream.Options{}, err
	}
	start, err := e.watchStart(r)
	if err != nil {
		return nil, watchstream.Options{}, err
	}
	switch {
	case opts.initialEvents:
		// Of any age would do for "0"; the newest is as cheap.
		start.Start, start.After = cacher.StartState, opts.revision
		if e.Res.Registry.Shared && (registry.IsFresh(ctx) || r.Query.Get("resourceVersion") == "0") {
			start.After = 1 // what's there: the request has waited for the newest already, or the store is lost and this goes on
		}
		if err := e.WaitFor(ctx, opts.revision); err != nil {
			return nil, watchstream.Options{}, inStream(err)
		}
	case opts.revision > 0:
		start.Start, start.After = cacher.StartAfter, opts.revision
	default:
		start.Start = cacher.StartNow
	}
	cursor, err := e.Res.Cache.Open(ctx, start)
	if err != nil {
		return nil, watchstream.Options{}, inStream(e.Failed(registry.Subject{Watched: true, Revision: opts.revision}, err))
	}
	// A definition that changed since the lookup has ended its watches already: this one would stay.
	if now := e.Res.Registry.Catalog().Endpoint(e.Path()); now == nil || now.View != e.View {
		cursor.Close()
		if now == nil {
			return nil, watchstream.Options{}, registry.ErrNotServed
		}
		return Of(now).watch(ctx, r)
	}
	serverSent := r.Form.Encoding == form.ServerSent // whose bookmarks are ids: who is cut off needs one from the start
	return cursor, watchstream.Options{
		Bookmarks:  opts.bookmarks || serverSent,
		InitialEnd: opts.initialEvents && opts.bookmarks || serverSent,
		Timeout:    opts.timeout,
	}, nil
}

// watchStart returns what a watch selects: everything of its options except where it begins.
func (e Reader) watchStart(r *registry.Request) (cacher.WatchOptions, error) {
	namespace, name := r.Namespace, r.Name
	shown, err := e.Shown(r)
	if err != nil {
		return cacher.WatchOptions{}, err
	}
	if shown, err = e.projected(r, shown); err != nil {
		return cacher.WatchOptions{}, err
	}
	o := cacher.WatchOptions{Namespace: namespace, Name: name, View: shown.Event}
	if _, err := e.Res.Prefix.Namespace(namespace); err != nil {
		return o, e.Fail(namespace, err)
	}
	sel, err := e.parseSelector(r.Query)
	if err != nil {
		return o, err
	}
	if selectors.IsLite(r.Query) && r.Query.Get("sortBy") != "" {
		return o, registry.BadRequest("sortBy is for lists: a watch gives events in the order in which they happen")
	}
	if name != "" {
		if _, err := e.Key(namespace, name); err != nil {
			return o, err
		}
		if sel.name != "" && sel.name != name {
			return o, registry.BadRequest("fieldSelector metadata.name=%s doesn't match the name on the URL (%s)", clip.Text(sel.name), clip.Text(name))
		}
	}
	o.Labels, o.Fields, o.Where = sel.labels, sel.fields, sel.where
	if sel.name != "" {
		o.Name = sel.name
	}
	if sel.namespace != "" && namespace == "" {
		o.Namespace = sel.namespace
	} else if sel.namespace != "" && namespace != sel.namespace {
		// Nothing can match; the term stays in the selector and says so.
		o.Fields = sel.allFields
	}
	return o, nil
}

// parseSelector reads labelSelector and fieldSelector.
func (e Reader) parseSelector(q url.Values) (selector, error) {
	var s selector
	var err error
	if s.labels, err = selectors.ParseLabels(q.Get("labelSelector")); err != nil {
		if _, theirs := labels.Parse(q.Get("labelSelector")); theirs != nil {
			err = theirs
		}
		return s, registry.BadRequest("%s", clip.Text(err.Error()))
	}
	if selectors.IsLite(q) {
		err := e.parseLite(q, &s)
		return s, err
	}
	if s.fields, err = selectors.ParseFields(q.Get("fieldSelector")); err != nil {
		if _, theirs := fields.ParseSelector(q.Get("fieldSelector")); theirs != nil {
			err = theirs
		}
		return s, registry.BadRequest("%s", clip.Text(err.Error()))
	}
	for _, field := range s.fields.Names() {
		if !slices.Contains(e.metaFields(), field) && !slices.Contains(e.Fields, field) {
			return s, e.unknownField(field)
		}
	}
	s.fields = s.fields.Rewrite(e.StoredTerm)
	s.allFields = s.fields
	s.namespace = takeExact(&s.fields, "metadata.namespace")
	if s.name = takeExact(&s.fields, "metadata.name"); s.name == "" && e.Typed != nil {
		s.name = takeExact(&s.fields, registry.NameAlias)
	}
	if e.Typed != nil && slices.Contains(s.fields.Names(), registry.NameAlias) {
		return s, registry.BadRequest("the field label %s may only be given once, with =; use metadata.name", registry.NameAlias)
	}
	return s, nil
}

// metaFields are those of metadata that are selectable.
func (e Reader) metaFields() []string {
	if e.Namespaced && !e.NoNamespace {
		return []string{"metadata.name", "metadata.namespace"}
	}
	return []string{"metadata.name"}
}

// takeExact takes the term that fixes a field out of a selector and returns its value, "" for none.
func takeExact(fields *selectors.FieldSelector, label string) string {
	value, ok := fields.Exact(label)
	if !ok || value == "" {
		return ""
	}
	*fields = fields.Without(label)
	return value
}

// unknownField refuses a field label, with the texts that kube-apiserver has for custom resources and
// for built-in kinds.
func (e Reader) unknownField(label string) error {
	if e.Typed == nil {
		return registry.BadRequest("field label not supported: %s", clip.Text(label))
	}
	if e.Unknown != "" {
		return registry.BadRequest(e.Unknown, clip.Text(label))
	}
	if len(e.Fields) > 0 { // the kind has a function of its own for them
		return registry.BadRequest("field label not supported: %s", clip.Text(label))
	}
	return registry.BadRequest("%q is not a known field selector: only %q, %q", clip.Text(label), "metadata.name", "metadata.namespace")
}
