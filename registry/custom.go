package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/conversion"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// What a definition says of its objects: their schema, and how they're brought from one version to another.
//
// Every write of a custom resource compares the definition's revision in its transaction, as a create does
// (see conditions). So an object with a revision above that of the definition's last change was written under
// that definition, and is in the form that its schema gives: it can be read by copying. Older ones are
// converted when they're first read (see cacher.Conversion).

// errChanged means that the definition has changed since the endpoint was looked up.
var errChanged = errors.New("the definition has changed")

// current runs a verb, and runs it again with what is served by then if the definition changed meanwhile.
func (e *Endpoint) current(ctx context.Context, verb func(e *Endpoint) (*Result, error)) (res *Result, err error) {
	err = e.currently(ctx, func(e *Endpoint) error {
		res, err = verb(e)
		return err
	})
	return res, err
}

// currently is current for what has no Result.
func (e *Endpoint) currently(ctx context.Context, fn func(e *Endpoint) error) error {
	for {
		err := fn(e)
		if !errors.Is(err, errChanged) {
			return err
		}
		if _, err := e.res.registry.cacher.Barrier(ctx); err != nil {
			return e.fail("", err)
		}
		e.res.registry.definitions.sync()
		next, err := e.res.registry.Lookup(ctx, e.Group, e.Version, e.Plural)
		if err != nil {
			return err
		}
		e = next.in(e.shown.Key).By(e.userAgent)
	}
}

// readDefinition reads the endpoint's definition from etcd. errChanged means that it defines something else by
// now.
func (e *Endpoint) readDefinition(ctx context.Context) (*cacher.Object, error) {
	def, err := e.res.read(ctx, e.res.definition.Key)
	if err != nil {
		return nil, err
	}
	if def == nil || def.Err != nil {
		return nil, errNotServed()
	}
	o, err := object.DecodeStored(def.Raw())
	if err != nil {
		return nil, errNotServed()
	}
	if o.Meta.Generation != e.res.generation || o.Meta.UID != e.res.uid {
		return nil, errChanged
	}
	return def, nil
}

// replace writes a new value to a key that must still be as old is, under the definition that the value was
// made by.
func (e *Endpoint) replace(ctx context.Context, old *cacher.Object, raw []byte) (storage.Revision, error) {
	store := e.res.registry.store
	if e.res.definition.Key == "" {
		return store.Update(ctx, old.Key, raw, old.Revision)
	}
	for cond := e.res.definition; ; {
		rev, err := store.Update(ctx, old.Key, raw, old.Revision, cond)
		if !errors.Is(err, storage.ErrConditionFailed) {
			return rev, err
		}
		def, err := e.readDefinition(ctx)
		if err != nil {
			return 0, err
		}
		cond.Revision = def.Revision
	}
}

// shape gives an object the form that the schema says: unknown fields are pruned and defaults filled in.
func (e *Endpoint) shape(o *object.Object, report bool) (unknown []string, err error) {
	if e.schema == nil || e.schema.Trivial() {
		return nil, nil
	}
	unknown, err = e.schema.Shape(o.Content, report)
	if err != nil {
		err = badRequest("the body of the request doesn't fit the schema: %s", clip.Text(err.Error()))
	}
	return unknown, err
}

// AddWarning takes a warning of a schema's rules; see warning.Recorder.
func (d *decoder) AddWarning(_, text string) { d.warnings = append(d.warnings, text) }

// validate checks an object against the schema; old is the one before, or nil. Errors are in the order of their
// fields, which walking through maps isn't.
func (d *decoder) validate(ctx context.Context, o, old *object.Object, subresource string) (errs field.ErrorList) {
	e := d.endpoint
	if e.schema == nil {
		return nil
	}
	ctx = warning.WithWarningRecorder(ctx, d)
	if !e.schema.Trivial() {
		var before map[string]any
		if old != nil {
			before = e.plain(old)
		}
		if subresource == status {
			errs = e.schema.ValidateStatus(ctx, e.plain(o), before)
		} else {
			errs = e.schema.Validate(ctx, e.plain(o), before)
		}
		slices.SortStableFunc(errs, func(a, b *field.Error) int {
			if n := strings.Compare(a.Field, b.Field); n == 0 || a.Field != noField && b.Field != noField {
				return n
			}
			return strings.Compare(b.Field, a.Field)
		})
	}
	return append(errs, e.validateScale(o, subresource)...)
}

// noField is the field of errors that are about none, which come last.
const noField = "<nil>"

// plain is an object as its schema sees it. Of metadata, schemas and rules know the name only.
func (e *Endpoint) plain(o *object.Object) map[string]any {
	metadata := map[string]any{}
	if o.Meta.Name != "" {
		metadata["name"] = o.Meta.Name
	}
	if o.Meta.GenerateName != "" {
		metadata["generateName"] = o.Meta.GenerateName
	}
	tree := make(map[string]any, len(o.Content)+3)
	for k, v := range o.Content {
		tree[k] = v
	}
	tree["apiVersion"], tree["kind"], tree["metadata"] = e.apiVersion(), e.Kind, metadata
	return tree
}

// load decodes a stored object as it's served.
func (e *Endpoint) load(ctx context.Context, old *cacher.Object) (*object.Object, error) {
	if old.Err != nil {
		return nil, e.unreadable(old.Name(), old.Err)
	}
	shown, err := e.view.Shown(ctx, old)
	if err != nil {
		return nil, e.fail(old.Name(), err)
	}
	o, err := object.DecodeStored(shown.Raw())
	if err != nil {
		return nil, e.unreadable(old.Name(), err)
	}
	return o, nil
}

// encode makes the stored bytes, in the storage version, and checks their size.
func (e *Endpoint) encode(ctx context.Context, o *object.Object) ([]byte, error) {
	if to := e.res.stored; to.Version != e.Version {
		tree, err := o.Tree(e.apiVersion(), e.Kind)
		if err != nil {
			return nil, badRequest("the object can't be encoded: %s", clip.Text(err.Error()))
		}
		version := o.Meta.ResourceVersion
		trees := []map[string]any{tree}
		if err := e.res.convert(ctx, to, trees); err != nil {
			return nil, e.fail(o.Meta.Name, err)
		}
		if o, err = object.FromTree(trees[0]); err != nil {
			return nil, e.fail(o.Meta.Name, fmt.Errorf("conversion to %s: %w", to.apiVersion(), err))
		}
		o.Meta.ResourceVersion = version
		if _, err := to.shape(o, false); err != nil {
			return nil, err
		}
	}
	raw, err := o.Encode(e.res.storedVersion(), e.res.stored.Kind)
	if err != nil {
		return nil, badRequest("the object can't be encoded: %s", clip.Text(err.Error()))
	}
	if len(raw) > maxObjectBytes {
		return nil, tooLarge(e.resource(), clip.Text(o.Meta.Name))
	}
	return raw, nil
}

// convert brings whole objects, in place, from whatever version of the resource they're in to an endpoint's.
func (r *resource) convert(ctx context.Context, to *Endpoint, trees []map[string]any) error {
	if r.converter == nil {
		for _, tree := range trees {
			tree["apiVersion"] = to.apiVersion()
		}
		return nil
	}
	bodies := make([][]byte, len(trees))
	for i, tree := range trees {
		var err error
		if bodies[i], err = object.EncodeJSON(tree); err != nil {
			return err
		}
	}
	converted, err := r.converter.convert(ctx, to.apiVersion(), bodies)
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, conversion.ErrClosed):
			return apierrors.NewTooManyRequests("the definition has changed meanwhile: try again", retryAfter)
		}
		return apierrors.NewInternalError(fmt.Errorf("conversion to %s, Kind=%s failed: %w", to.apiVersion(), to.Kind, err))
	}
	for i, body := range converted {
		if body == nil { // it's in that version
			continue
		}
		if trees[i], err = object.ParseTree(body); err != nil {
			return err
		}
	}
	return nil
}

// converter is a definition's conversion webhook.
type converter struct {
	webhook *conversion.Webhook
	err     error // why there is none: Kubernetes takes a definition before its caBundle is there
}

// newConverter returns the webhook that a definition says, or nil for none.
func newConverter(c *apiextensionsv1.CustomResourceConversion, p conversion.Policy) *converter {
	if c == nil || c.Strategy != apiextensionsv1.WebhookConverter {
		return nil
	}
	w, err := conversion.New(c.Webhook, p)
	return &converter{w, err}
}

func (c *converter) convert(ctx context.Context, apiVersion string, objects [][]byte) ([][]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.webhook.Convert(ctx, apiVersion, objects)
}

func (c *converter) close() {
	if c != nil && c.webhook != nil {
		c.webhook.Close()
	}
}

// newConversion returns what makes the endpoint's form of stored objects, or nil if that's what is stored.
func (e *Endpoint) newConversion() *cacher.Conversion {
	r := e.res
	same := e.Version == r.storageVersion || r.converter == nil && e.sameSchema
	if same && e.schema.Trivial() && r.converter == nil { // whatever was stored is shown by copying
		return nil
	}
	needed := func(o *cacher.Object) bool { return !same || o.Revision <= r.since }
	return cacher.NewConversion(r.generation, needed, func(ctx context.Context, objects []*cacher.Object) ([][]byte, error) {
		return e.convertStored(ctx, objects)
	})
}

// convertStored returns the form of stored objects in the endpoint's version: the defaults of the version they're
// stored in, converted, and without what the schema doesn't know, which is the order in which kube-apiserver
// does it. nil stands for an object that stays as it is.
func (e *Endpoint) convertStored(ctx context.Context, objects []*cacher.Object) ([][]byte, error) {
	trees := make([]map[string]any, len(objects))
	for i, o := range objects {
		var err error
		if trees[i], err = object.ParseTree(o.Raw()); err != nil {
			return nil, e.unreadable(o.Name(), err)
		}
		from := e.res.version(trees[i]["apiVersion"])
		if _, err := from.schema.Shape(trees[i], false); err != nil {
			return nil, e.unreadable(o.Name(), err)
		}
	}
	if err := e.res.convert(ctx, e, trees); err != nil {
		return nil, err
	}
	out := make([][]byte, len(objects))
	for i, tree := range trees {
		if err := e.schema.Prune(tree); err != nil {
			return nil, e.unreadable(objects[i].Name(), err)
		}
		raw, err := object.EncodeJSON(tree)
		if err != nil {
			return nil, e.unreadable(objects[i].Name(), err)
		}
		if string(raw) != string(objects[i].Raw()) {
			out[i] = raw
		}
	}
	return out, nil
}

// version returns the endpoint of the version that an object says it's in; that of the stored version if there is
// no such.
func (r *resource) version(apiVersion any) *Endpoint {
	for _, e := range r.versions {
		if e.apiVersion() == apiVersion {
			return e
		}
	}
	return r.stored
}
