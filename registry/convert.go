package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/conversion"
	"github.com/apiserver-lite/apiserver-lite/registry/conversion/ruleset"
	"github.com/apiserver-lite/apiserver-lite/registry/crd"
	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Convert brings whole objects, in place, from whatever version of the resource they're in to an endpoint's. One that the
// webhook or the rules can't convert is a Status 500 that says so. Rules change what is in the trees, too.
func (r *Resource) Convert(ctx context.Context, to *Endpoint, trees []map[string]any) error {
	if r.converter == nil {
		for _, tree := range trees {
			if to.Typed != nil {
				if err := r.convertTyped(to, tree); err != nil {
					return err
				}
			}
			tree["apiVersion"] = to.APIVersion()
		}
		return nil
	}
	if r.byRules() {
		return r.convertByRules(ctx, to, trees)
	}
	bodies := make([][]byte, len(trees))
	for i, tree := range trees {
		var err error
		if bodies[i], err = object.EncodeJSON(tree); err != nil {
			return err
		}
	}
	converted, err := r.converter.convert(ctx, to.APIVersion(), bodies)
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, conversion.ErrClosed):
			return apierrors.NewTooManyRequests("the definition has changed meanwhile: try again", RetryAfter)
		}
		// This message reaches the client on purpose, as from kube-apiserver: whoever runs the webhook needs it. It has
		// nothing of the answer but the failure's own text (see conversion).
		return &Unconverted{cause: err}
	}
	for i, body := range converted {
		if body == nil { // it's in that version
			continue
		}
		if trees[i], err = object.ParseTree(body); err != nil {
			return fmt.Errorf("conversion to %s: the object %w", to.APIVersion(), err)
		}
	}
	return nil
}

// convertByRules is Convert by the rules that the definition's annotation has.
func (r *Resource) convertByRules(ctx context.Context, to *Endpoint, trees []map[string]any) error {
	compiled, err := r.converter.rules()
	if err != nil {
		return &Unconverted{cause: err}
	}
	for i, tree := range trees {
		if err := compiled.Convert(ctx, tree, r.version(tree["apiVersion"]).Version, to.Version); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &Unconverted{cause: err, at: i}
		}
	}
	return nil
}

// byRules tells whether rules convert the resource's objects.
func (r *Resource) byRules() bool { return r.converter != nil && r.converter.rules != nil }

// converter is a definition's conversion webhook, or its rules.
type converter struct {
	webhook *conversion.Webhook
	err     error                          // why there is none: Kubernetes takes a definition before its caBundle is there
	rules   func() (*ruleset.Rules, error) // nil: the webhook counts. They're compiled at their first use
}

// newConverter returns the rules that a definition's annotation has, else the webhook that it names, or nil for none.
func newConverter(d *crd.Definition, n hookclient.Network) *converter {
	if _, annotated := ruleset.Of(d); annotated {
		return &converter{rules: sync.OnceValues(func() (*ruleset.Rules, error) {
			compiled, errs := ruleset.New(d)
			return compiled, errs.ToAggregate()
		})}
	}
	c := d.Spec.Conversion
	if c == nil || c.Strategy != apiextensionsv1.WebhookConverter {
		return nil
	}
	w, err := conversion.New(c.Webhook, n)
	return &converter{webhook: w, err: err}
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

// ShowsStored tells whether the endpoint shows the fields of objects as they're stored. Otherwise a webhook, rules or a function makes them.
func (e *Endpoint) ShowsStored() bool {
	if e.Typed != nil {
		return e.Typed.Stored.From == nil
	}
	return e.Res.converter == nil || e.Res.Storage == e
}

// newConversion returns what makes the endpoint's form of stored objects, or nil if they're stored in that form. asStored
// tells that the endpoint's version is the stored one, or has the same schema.
func (e *Endpoint) newConversion(asStored bool) *kube.Conversion {
	r := e.Res
	if asStored && e.Schema.Trivial() && r.converter == nil { // whatever was stored is shown by copying
		return nil
	}
	needed := func(o *kube.Object) bool { return !asStored || o.Revision <= r.since }
	return r.Registry.Cacher.Conversions().New(r.Generation, needed, e.convertStored)
}

// Unconverted is what a webhook has said or done instead of converting, or why rules couldn't. Its words are kube-apiserver's.
type Unconverted struct {
	stored *kube.Object // that couldn't be converted; of those that a webhook was asked about, the first; nil: what was sent
	at     int          // its place among those that were to be converted
	cause  error
}

func (u *Unconverted) Error() string {
	if u.stored == nil {
		return u.cause.Error()
	}
	return fmt.Sprintf("object not decodable revision=%d: %v", u.stored.Revision, u.cause)
}

// Public is what a watch's client is told, as watchstream.Public has it: a get and a list say as much.
func (u *Unconverted) Public() string {
	if u.stored == nil {
		return clip.Text(u.Error())
	}
	return clip.Text(fmt.Sprintf("%s: %v", path.Join(u.stored.Namespace(), u.stored.Name()), u))
}

// corrupt is the error as kube-apiserver's storage has it, about a key.
func (u *Unconverted) corrupt(key string) string {
	return clip.Text(fmt.Sprintf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %v", key, u))
}

// Readable refuses a stored object that can't be converted for a view.
func (e *Endpoint) Readable(ctx context.Context, v *kube.View, o *kube.Object) error {
	_, err := v.Shown(ctx, o)
	if u := (*Unconverted)(nil); errors.As(err, &u) {
		return apierrors.NewInternalError(errors.New(u.corrupt(strings.TrimPrefix(o.Key, strings.TrimSuffix(storage.Root, "/")))))
	}
	return e.Fail(o.Name(), err)
}

// Unlisted refuses a list of which an object can't be converted.
func (e *Endpoint) Unlisted(u *Unconverted) error {
	text := u.corrupt(u.stored.Key)
	err := Refusal(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, fmt.Sprintf("failed to read one or more %s from the storage: %s", e.GroupResource(), text))
	err.ErrStatus.Details = &metav1.StatusDetails{Group: e.Group, Kind: e.Plural, Name: "list", Causes: []metav1.StatusCause{
		{Type: metav1.CauseTypeUnexpectedServerResponse, Field: u.stored.Key, Message: text}}}
	return err
}

// convertStored returns stored objects in the endpoint's version. It fills in the defaults of the version in which they're
// stored, converts them, and prunes what the endpoint's schema doesn't know: kube-apiserver's order. An object that stays
// as it is gets nil.
func (e *Endpoint) convertStored(ctx context.Context, objects []*kube.Object) ([][]byte, error) {
	trees := make([]map[string]any, len(objects))
	for i, o := range objects {
		var err error
		if trees[i], err = object.ParseTree(o.Raw()); err != nil {
			return nil, e.Unreadable(o.Name(), err)
		}
		from := e.Res.version(trees[i]["apiVersion"])
		if err := from.Schema.ShapeStored(trees[i]); err != nil {
			return nil, e.Unreadable(o.Name(), err)
		}
	}
	if err := e.Res.Convert(ctx, e, trees); err != nil {
		if u := (*Unconverted)(nil); errors.As(err, &u) {
			u.stored = objects[u.at]
		}
		return nil, err
	}
	out := make([][]byte, len(objects))
	for i, tree := range trees {
		if err := e.Schema.Prune(tree); err != nil {
			return nil, e.Unreadable(objects[i].Name(), err)
		}
		raw, err := object.EncodeJSON(tree)
		if err != nil {
			return nil, e.Unreadable(objects[i].Name(), err)
		}
		if string(raw) != string(objects[i].Raw()) {
			out[i] = raw
		}
	}
	return out, nil
}

// version returns the endpoint of the version that an object names, or that of the storage version if there is none.
func (r *Resource) version(apiVersion any) *Endpoint {
	for _, e := range r.Versions {
		if e.APIVersion() == apiVersion {
			return e
		}
	}
	return r.Storage
}
