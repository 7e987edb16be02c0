package reads

import (
	"net/url"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// What lists and watches can be asked for besides Kubernetes' own parameters, with lite=true: selectors of any field, and shards.

// parseLite reads fieldSelector in the grammar of any field, and shardSelector.
func (e Reader) parseLite(q url.Values, s *selector) error {
	text := q.Get("fieldSelector")
	expression, err := selectors.ParseExpression(text)
	if err != nil {
		return registry.BadRequest("%s", clip.Text(err.Error()))
	}
	if expression, err = expression.Resolve(text, e.typeOf("field selector")); err != nil {
		return unparsed(err)
	}
	var shards selectors.Shards
	if q.Get("shardSelector") != "" {
		if shards, err = selectors.ParseShards(q.Get("shardSelector")); err != nil {
			return unparsed(err)
		}
		s.shard = q.Get("shardSelector")
	}
	s.where = kube.NewWhere(expression, shards)
	s.name, _ = expression.Exact("metadata.name")
	if e.Namespaced {
		s.namespace, _ = expression.Exact("metadata.namespace")
	}
	if s.name == "" {
		s.lookups, _ = s.where.Lookups()
	}
	return nil
}

// projected returns the form that has the fields that a request asks for of the objects in a form.
func (e Reader) projected(r *registry.Request, shown *form.Shown) (*form.Shown, error) {
	text := r.Query.Get("fields")
	if text == "" || !selectors.IsLite(r.Query) {
		return shown, nil
	}
	switch {
	case r.Subresource == registry.AtScale:
		return nil, registry.BadRequest("fields is for whole objects, and %s is none: leave fields out", r.Subresource)
	case shown.Kind == form.Table:
		return nil, registry.BadRequest("fields is for whole objects, and a Table has columns: leave fields out, or ask with Accept: application/json")
	case shown.Kind == form.MetadataOnly:
		return nil, registry.BadRequest("fields is for whole objects, and %s is their metadata: ask with Accept: application/json, and for all of it with fields=metadata", form.MetadataOnly)
	case shown.Encoding == form.Protobuf || shown.Item == nil || shown.Item.Encoding != nil:
		return nil, registry.BadRequest("fields is for JSON, and the answer would be protobuf: leave fields out, or ask with Accept: application/json")
	}
	paths, err := selectors.ParsePaths(text)
	if err != nil {
		return nil, unparsed(err)
	}
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = path.String()
		if !slices.Contains(ofAll, names[i]) {
			if _, err := e.find(path, "fields", strings.Index(text, path[0].Name)); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(names)
	return e.Forms.Projected(shown, strings.Join(names, ","), kube.NewProjection(paths)), nil
}

// unparsed is the Status 400 for an error of selectors, and any other error itself.
func unparsed(err error) error {
	if e, ok := err.(*selectors.ParseError); ok {
		return registry.BadRequest("%s", clip.Text(e.Error()))
	}
	return err
}

// ofAll are the fields that are the same in all objects of an endpoint.
var ofAll = []string{"apiVersion", "kind"}

// typeOf returns what finds the type by which a field is compared, that's named in a parameter.
func (e Reader) typeOf(parameter string) func(path selectors.Path, pos int) (selectors.Type, error) {
	return func(path selectors.Path, pos int) (selectors.Type, error) { return e.typeAt(parameter, path, pos) }
}

func (e Reader) typeAt(parameter string, path selectors.Path, pos int) (selectors.Type, error) {
	switch {
	case slices.Contains(ofAll, path[0].Name):
		return 0, registry.BadRequest("unable to parse %s: found %s at position %d, which is the same in all objects here", parameter, clip.Text(path.String()), pos)
	case path[0].Name != "metadata" && !e.ShowsStored():
		return 0, registry.BadRequest("unable to parse %s: found %s at position %d, and %s are stored in version %s, by whose fields they are selected",
			parameter, clip.Text(path.String()), pos, e.GroupResource(), e.Res.Storage.APIVersion())
	case path.String() == "metadata.resourceVersion":
		return selectors.Integer, nil
	}
	found, err := e.find(path, parameter, pos)
	if err != nil {
		return 0, err
	}
	return found.scalar(), nil
}
