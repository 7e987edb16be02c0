package reads

import (
	"context"
	"net/url"
	"strconv"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Part is a resource, and what is asked of it: a part of a watch of several.
type Part struct {
	Reader
	*registry.Request
}

// PartQuery returns what each part is asked with of a request's whole query.
func PartQuery(all url.Values) url.Values {
	query := url.Values{}
	for _, name := range []string{"labelSelector", "fieldSelector", "resourceVersion", "timeoutSeconds", "includeObject", "lite", "shardSelector", "fields", "sortBy"} {
		if values, ok := all[name]; ok {
			query[name] = values
		}
	}
	return query
}

// WatchMerged opens one watch of several resources, each as Watch would open it, which have one order and one position. The
// parts' queries name the same version. With one it begins after that, and else as start says: with the state, or now. The state is
// at least as new as the version. The caller closes the watch. Errors are those of Watch.
func WatchMerged(ctx context.Context, parts []Part, start cacher.Start) (*cacher.Merged, watchstream.Options, error) {
	r := parts[0].Res.Registry
	for { // as registry.Steady does
		resets, served, err := servedParts(ctx, parts)
		if err != nil {
			return nil, watchstream.Options{}, err
		}
		merged, options, err := watchMerged(ctx, served, start)
		if err == nil && !stillServed(served) { // a definition that changed since the lookup has ended its watches already: this one would stay
			merged.Close()
			continue
		}
		if r.Resets.Load() == resets {
			return merged, options, err
		}
		if err == nil {
			merged.Close()
		}
	}
}

// servedParts returns the parts as they're served now, between resets.
func servedParts(ctx context.Context, parts []Part) (resets int64, served []Part, err error) {
	served = make([]Part, len(parts))
	for i, p := range parts {
		var e *registry.Endpoint
		if resets, e, err = p.Res.Registry.BetweenResets(ctx, p.Endpoint); err != nil {
			return 0, nil, err
		}
		if e = p.Res.Registry.Catalog().Endpoint(e.Path()); e == nil || p.Namespace != "" && !e.Namespaced {
			return 0, nil, registry.ErrNotServed
		}
		served[i] = Part{Of(e), p.Request}
	}
	return resets, served, nil
}

// stillServed tells whether the parts are served as they are.
func stillServed(parts []Part) bool {
	for _, p := range parts {
		if now := p.Res.Registry.Catalog().Endpoint(p.Path()); now == nil || now.View != p.View {
			return false
		}
	}
	return true
}

func watchMerged(ctx context.Context, parts []Part, start cacher.Start) (*cacher.Merged, watchstream.Options, error) {
	first := parts[0]
	if at := first.Query.Get("resourceVersion"); at != "" {
		if rev, err := strconv.ParseInt(at, 10, 64); err != nil || rev <= 0 {
			return nil, watchstream.Options{}, registry.BadRequest("the parameter resourceVersion must be a version that an object, a list or an event has, and is %q: leave it out, or ask for initialEvents=true", clip.Text(at))
		}
	}
	opts, err := first.parseWatchOptions(first.Query)
	if err != nil {
		return nil, watchstream.Options{}, err
	}
	after := opts.revision
	if start == cacher.StartState {
		if err := first.WaitFor(ctx, after); err != nil {
			return nil, watchstream.Options{}, inStream(err)
		}
	} else if after > 0 {
		start = cacher.StartAfter
	}
	watched := make([]cacher.Part, len(parts))
	for i, p := range parts {
		asked := *p.Request
		if asked.Form.Kind == form.Table { // whose rows don't say what they are
			asked.Form.Link = linkOf(p.Endpoint)
		}
		o, err := p.watchStart(&asked)
		if err != nil {
			return nil, watchstream.Options{}, err
		}
		o.Start, o.After = start, after
		watched[i] = cacher.Part{Resource: p.Res.Cache, WatchOptions: o}
	}
	merged, err := first.Res.Registry.Cacher.OpenMerged(ctx, watched)
	if err != nil {
		return nil, watchstream.Options{}, inStream(first.Failed(registry.Subject{Watched: true, Revision: after}, err))
	}
	serverSent := first.Form.Encoding == form.ServerSent
	return merged, watchstream.Options{Bookmarks: true, InitialEnd: start == cacher.StartState || serverSent, Timeout: opts.timeout}, nil
}

// linkOf returns the path of an endpoint's objects.
func linkOf(e *registry.Endpoint) string {
	if e.Group == "" {
		return "/api/" + e.Version + "/" + e.Plural
	}
	return "/apis/" + e.Group + "/" + e.Version + "/" + e.Plural
}
