package reads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Get returns the object that Target names. With the subresource status it's the same object; with scale it's the object's
// Scale. Of the query it reads resourceVersion, for Tables includeObject, and with lite=true fields: without a version the answer is as new as the
// moment of the call, with "0" it's what the cache has, and with another version at least that. With resourceVersionMatch=Exact it's the state at
// the version, with at the one at an instant, and with history=true all versions (history.go).
//
// Errors are Status errors: 400 for parameters that can't be read, 404 for a missing object, 405 for finalize, 500 for a
// stored value that nobody can read, 410 for what history doesn't have any more, 503 from storage, 504 for a version that doesn't come within freshnessWait. Others are
// failures of the server, which it logs. The caller owns the Result's bytes.
func (e Reader) Get(ctx context.Context, r *registry.Request) (registry.Result, error) {
	return registry.Steady(ctx, e.Endpoint, func(e *registry.Endpoint) (registry.Result, error) { return Of(e).get(ctx, r) })
}

func (e Reader) get(ctx context.Context, r *registry.Request) (registry.Result, error) {
	key, err := e.Key(r.Namespace, r.Name)
	if err != nil {
		return registry.Result{}, err
	}
	if r.Subresource == registry.AtFinalize {
		return registry.Result{}, e.MethodNotAllowed("get")
	}
	if r.Subresource != registry.Whole && !e.Has(r.Subresource) {
		return registry.Result{}, registry.ErrNotServed
	}
	shown, err := e.Shown(r)
	if err != nil {
		return registry.Result{}, err
	}
	if shown, err = e.projected(r, shown); err != nil {
		return registry.Result{}, err
	}
	if selectors.IsLite(r.Query) && r.Query.Get("sortBy") != "" {
		return registry.Result{}, registry.BadRequest("sortBy is for lists, and this is one object: leave it out")
	}
	if asksHistory(r) {
		return e.history(ctx, r, key)
	}
	if e.unstored() {
		return e.getShown(ctx, r.Name, shown)
	}
	query, warnings, err := e.located(r.Query)
	if err != nil {
		return registry.Result{}, err
	}
	params := Query{Values: query}
	rev, given := params.revision()
	if params.Err != nil {
		if s := e.Strategy(); s != nil && s.Uncached {
			return registry.Result{}, registry.BadRequest("invalid resource version: %s", params.Err)
		}
		return registry.Result{}, params.Err
	}
	o, err := e.one(ctx, key, rev, given, query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact))
	if err != nil {
		return registry.Result{}, e.Fail(r.Name, err)
	}
	if o == nil {
		return registry.Result{Warnings: warnings}, e.Fail(r.Name, storage.ErrNotFound)
	}
	if r.Subresource == registry.AtScale {
		raw, err := e.ShowScale(ctx, shown, o)
		return registry.Result{Object: raw, Warnings: warnings}, err
	}
	if err := e.Readable(ctx, shown.Single, o); err != nil {
		return registry.Result{}, err
	}
	raw, err := e.Show(ctx, shown.Single, o)
	if err != nil {
		return registry.Result{}, err
	}
	return registry.Result{Object: raw, Tag: Tag(o, shown.Key, raw), Warnings: warnings}, nil
}

// one returns an object; nil if there is none. exact says that the state at the version is meant, and not one that is at least as new.
func (e Reader) one(ctx context.Context, key string, rev storage.Revision, given, exact bool) (*kube.Object, error) {
	if exact && rev > 0 {
		return e.past(ctx, key, rev)
	}
	if err := e.freshenTo(ctx, rev, given); err != nil {
		return nil, err
	}
	return e.Res.Cache.Get(key), nil
}

// Tag returns the ETag of what a client was shown of an object. The revision alone isn't enough: after a restore, another
// state can have it. A Table has no tag, because it shows ages.
func Tag(o *kube.Object, k form.Key, raw []byte) string {
	if k.Kind == form.Table {
		return ""
	}
	const room = 64 // for both parts
	sum := sha256.Sum256(raw)
	text := strconv.AppendInt(make([]byte, 0, room), int64(o.Revision), 10)
	return string(hex.AppendEncode(append(text, '-'), sum[:8]))
}

// freshenTo waits until the caches are as new as a read asks for: as the version that was given, or else as the moment of
// the call.
func (e Reader) freshenTo(ctx context.Context, rev storage.Revision, given bool) error {
	if given {
		return e.WaitFor(ctx, rev)
	}
	return e.Freshen(ctx)
}

// Current reads the metadata of an object from etcd, with its resourceVersion. storage.ErrNotFound proves that there is no
// such object at the time of the call. That includes names that no object can have, and a namespace for a cluster-scoped
// resource. The metadata is the caller's.
func (e Reader) Current(ctx context.Context, namespace, name string) (*metav1.ObjectMeta, error) {
	key, err := e.OwnKey(namespace, name)
	if err != nil {
		return nil, err
	}
	stored, err := e.Res.Read(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case stored == nil:
		return nil, fmt.Errorf("read %q: %w", key, storage.ErrNotFound)
	case stored.Err != nil:
		return nil, e.Unreadable(name, stored.Err)
	}
	o, err := object.DecodeStored(stored.Raw())
	if err != nil {
		return nil, e.Unreadable(name, err)
	}
	o.Meta.ResourceVersion = stored.Revision.String()
	return &o.Meta, nil
}

// OwnKey is Key for what no client has asked. A key that no object can have isn't found.
func (e Reader) OwnKey(namespace, name string) (string, error) {
	if (namespace != "") != e.Namespaced {
		return "", fmt.Errorf("%s %q in namespace %q: %w", e.Plural, name, namespace, storage.ErrNotFound)
	}
	key, err := e.Res.Prefix.Key(namespace, name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", storage.ErrNotFound, err)
	}
	return key, nil
}
