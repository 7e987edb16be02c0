package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Collection is a resource of the server, in all namespaces or in one, with objects of the program's type T. It's a value,
// cheap to copy; many goroutines may use it.
type Collection[T any] struct {
	client     *Client
	apiVersion string
	plural     string
	namespace  string
	merged     []string // several resources instead of one: see FollowAll
}

// Resource returns the collection of a resource: Resource[Widget](c, "example.com/v1", "widgets"), or
// Resource[Namespace](c, "v1", "namespaces"). It asks the server nothing, so a resource that doesn't exist is ErrNotFound
// later.
func Resource[T any](c *Client, apiVersion, plural string) Collection[T] {
	return Collection[T]{client: c, apiVersion: apiVersion, plural: plural}
}

// In returns the part of the collection that is in a namespace; "" is all of it. Objects of a namespaced resource are read
// and written by name in one namespace only; Create, Update and Apply take it from the object, too.
func (c Collection[T]) In(namespace string) Collection[T] {
	c.namespace = namespace
	return c
}

// String returns the collection for messages, such as widgets.example.com.
func (c Collection[T]) String() string {
	if c.merged != nil {
		return strings.Join(c.merged, ",")
	}
	if group, _, ok := strings.Cut(c.apiVersion, "/"); ok {
		return c.plural + "." + group
	}
	return c.plural
}

// path returns the path of the collection, or of an object in it.
func (c Collection[T]) path(namespace, name, subresource string) string {
	p := "/apis/" + c.apiVersion
	if !strings.Contains(c.apiVersion, "/") {
		p = "/api/" + c.apiVersion
	}
	if namespace != "" {
		p += "/namespaces/" + url.PathEscape(namespace)
	}
	p += "/" + c.plural
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	if subresource != "" {
		p += "/" + subresource
	}
	return p
}

// Get returns the object with that name.
func (c Collection[T]) Get(ctx context.Context, name string, options ...Option) (*T, error) {
	document, err := c.get(ctx, name, newSettings(options))
	if err != nil {
		return nil, err
	}
	object, _, err := decode[T](document)
	return object, err
}

func (c Collection[T]) get(ctx context.Context, name string, s *settings) ([]byte, error) {
	document, err := c.do(ctx, s, aGet, name, &request{method: http.MethodGet})
	if err != nil || s.query.Get("resourceVersionMatch") != matchExact {
		return document, err
	}
	asked, _ := strconv.ParseUint(s.query.Get("resourceVersion"), 10, 64) // the server has read it
	if got, err := strconv.ParseUint(Object(document).ResourceVersion(), 10, 64); err == nil && got > asked {
		return nil, fmt.Errorf("get %s at version %d: the server doesn't read the past, and has answered with version %d", name, asked, got)
	}
	return document, nil
}

// do sends a request of a kind about an object of this collection's namespace. Only a create may have no name.
func (c Collection[T]) do(ctx context.Context, s *settings, v verb, name string, q *request) ([]byte, error) {
	if name == "" && !v.creates {
		return nil, fmt.Errorf("%s: an object without a name", c)
	}
	if err := s.check(v); err != nil {
		return nil, err
	}
	q.query = s.only(v)
	q.path = c.path(c.namespace, name, s.subresource)
	return c.client.answer(ctx, q)
}

// Create creates the object and returns it as it was stored. An object whose name is empty gets one that begins with its
// GenerateName. ErrExists is returned if the name is taken.
func (c Collection[T]) Create(ctx context.Context, object *T, options ...Option) (*T, error) {
	body, h, err := c.body(ctx, object)
	if err != nil {
		return nil, err
	}
	s, name := newSettings(options), ""
	if s.subresource != "" { // such as pods/NAME/binding
		name = h.Name
	}
	return c.in(h).write(ctx, s, aCreate, name, &request{method: http.MethodPost, contentType: jsonType, body: body})
}

// Update replaces the object, and returns it as it was stored. ErrConflict is returned if it has another resourceVersion
// by now; built-in kinds take an object without one, too, and replace whatever is there. Fields that T doesn't have are lost:
// the function Update keeps them, and tries again after conflicts.
func (c Collection[T]) Update(ctx context.Context, object *T, options ...Option) (*T, error) {
	body, h, err := c.body(ctx, object)
	if err != nil {
		return nil, err
	}
	s := newSettings(options)
	return c.in(h).write(ctx, s, aUpdate, h.Name, &request{method: http.MethodPut, contentType: jsonType, body: body})
}

// UpdateStatus replaces the object's status, and nothing else of it.
func (c Collection[T]) UpdateStatus(ctx context.Context, object *T, options ...Option) (*T, error) {
	return c.Update(ctx, object, append(options[:len(options):len(options)], Subresource("status"))...)
}

// Patch is a change of an object: made by Merge, JSONPatch or StrategicMerge.
type Patch struct {
	contentType string
	document    any
}

// Merge is a JSON merge patch (RFC 7386): members replace the object's, null removes them. The document is encoded as JSON.
func Merge(document any) Patch { return Patch{"application/merge-patch+json", document} }

// JSONPatch is a list of operations (RFC 6902), for example []map[string]any{{"op": "remove", "path": "/spec/size"}}.
func JSONPatch(operations any) Patch { return Patch{"application/json-patch+json", operations} }

// StrategicMerge is a merge patch that merges lists by their keys. Built-in kinds take it, custom resources don't.
func StrategicMerge(document any) Patch {
	return Patch{"application/strategic-merge-patch+json", document}
}

// Patch changes the object with that name, and returns it as it was stored.
func (c Collection[T]) Patch(ctx context.Context, name string, patch Patch, options ...Option) (*T, error) {
	body, err := encode(patch.document)
	if err != nil {
		return nil, err
	}
	s := newSettings(options)
	return c.write(ctx, s, aPatch, name, &request{method: http.MethodPatch, contentType: patch.contentType, body: body})
}

// Apply makes the fields that the object has be as they are in it, creating the object if need be, and removes those that
// the same field manager applied before and that it has no longer (server-side apply). ErrConflict is returned, with a
// cause for each field, if another field manager has set a field to something else, unless Force takes it.
func (c Collection[T]) Apply(ctx context.Context, fieldManager string, object *T, options ...Option) (*T, error) {
	body, h, err := c.body(ctx, object)
	if err != nil {
		return nil, err
	}
	s := newSettings(options)
	s.query.Set("fieldManager", fieldManager)
	return c.in(h).write(ctx, s, anApply, h.Name, &request{method: http.MethodPatch, contentType: "application/apply-patch+yaml", body: body})
}

// Delete deletes the object with that name. One that has finalizers goes when they're removed: Until with Gone waits for it.
func (c Collection[T]) Delete(ctx context.Context, name string, options ...Option) error {
	s := newSettings(options)
	_, err := c.do(ctx, s, aDelete, name, &request{method: http.MethodDelete, contentType: jsonType, body: s.deleteOptions()})
	return err
}

// DeleteCollection deletes all objects of the collection, or those that are selected. Without In it deletes those of all
// namespaces, which kube-apiserver refuses to do.
func (c Collection[T]) DeleteCollection(ctx context.Context, options ...Option) error {
	_, err := c.deleteCollection(ctx, options)
	return err
}

// DeleteCollectionKeys is DeleteCollection, and returns what was deleted, as the server lists it.
func (c Collection[T]) DeleteCollectionKeys(ctx context.Context, options ...Option) ([]Key, error) {
	answer, err := c.deleteCollection(ctx, options)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name, Namespace string }
		}
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("delete %s: the answer is no list: %w", c, err)
	}
	keys := make([]Key, len(list.Items))
	for i, item := range list.Items {
		keys[i] = Key{Namespace: item.Metadata.Namespace, Name: item.Metadata.Name}
	}
	return keys, nil
}

// deleteCollection returns the server's answer.
func (c Collection[T]) deleteCollection(ctx context.Context, options []Option) ([]byte, error) {
	s := newSettings(options)
	if err := s.check(aDeleteCollection); err != nil {
		return nil, err
	}
	return c.client.answer(ctx, &request{
		method: http.MethodDelete, path: c.path(c.namespace, "", ""), query: s.only(aDeleteCollection), contentType: jsonType, body: s.deleteOptions(),
	})
}

// deleteOptions returns the body of a delete, nil if there's nothing to say.
func (s *settings) deleteOptions() []byte {
	type preconditions struct {
		UID             string `json:"uid,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	}
	o := struct {
		APIVersion         string        `json:"apiVersion"`
		Kind               string        `json:"kind"`
		GracePeriodSeconds *int64        `json:"gracePeriodSeconds,omitempty"`
		Preconditions      preconditions `json:"preconditions,omitzero"`
		PropagationPolicy  string        `json:"propagationPolicy,omitempty"`
	}{"v1", "DeleteOptions", s.grace, preconditions{s.ifUID, s.ifVersion}, s.propagation}
	if o.GracePeriodSeconds == nil && o.Preconditions == (preconditions{}) && o.PropagationPolicy == "" {
		return nil
	}
	body, _ := json.Marshal(o) // strings and a number: can't fail
	return body
}

// Scale is how many of something there are, for kinds that have the subresource scale.
type Scale struct {
	Meta
	Spec struct {
		Replicas int `json:"replicas"` // that there should be
	} `json:"spec"`
	Status struct {
		Replicas int    `json:"replicas"` // that there are
		Selector string `json:"selector"` // a label selector for them
	} `json:"status"`
}

// Scale returns the scale of the object with that name.
func (c Collection[T]) Scale(ctx context.Context, name string) (*Scale, error) {
	return Collection[Scale](c).Get(ctx, name, Subresource("scale"))
}

// SetScale sets how many there should be.
func (c Collection[T]) SetScale(ctx context.Context, name string, replicas int) (*Scale, error) {
	patch := Merge(map[string]any{"spec": map[string]any{"replicas": replicas}})
	return Collection[Scale](c).Patch(ctx, name, patch, Subresource("scale"))
}

// in returns the collection in the namespace of an object, if it isn't in one yet.
func (c Collection[T]) in(h head) Collection[T] {
	c.namespace = cmp.Or(c.namespace, h.Namespace)
	return c
}

// write is do of a write, which is answered with the object as it was stored.
func (c Collection[T]) write(ctx context.Context, s *settings, v verb, name string, q *request) (*T, error) {
	document, err := c.do(ctx, s, v, name, q)
	if err != nil {
		return nil, err
	}
	object, _, err := decode[T](document)
	return object, err
}

// body is the object as JSON, with its type filled in.
func (c Collection[T]) body(ctx context.Context, object *T) ([]byte, head, error) {
	document, err := encode(object)
	if err != nil {
		return nil, head{}, err
	}
	typed := typeMeta{apiVersion: c.apiVersion}
	if text(member(document, "kind")) == "" {
		if typed.kind, err = c.client.kind(ctx, c.apiVersion, c.plural); err != nil {
			return nil, head{}, err
		}
	}
	return typed.splice(document), headOf(document), nil
}

// kind returns the kind of a resource's objects, which the server is asked for once.
func (c *Client) kind(ctx context.Context, apiVersion, plural string) (string, error) {
	c.mu.Lock()
	kind := c.kinds[apiVersion+"/"+plural]
	c.mu.Unlock()
	if kind != "" {
		return kind, nil
	}
	resources, err := c.Resources(ctx, apiVersion)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range resources {
		c.kinds[apiVersion+"/"+resource.Plural] = resource.Kind
	}
	if kind = c.kinds[apiVersion+"/"+plural]; kind == "" {
		return "", fmt.Errorf("%w: the server has no %s in %s", ErrNotFound, plural, apiVersion)
	}
	return kind, nil
}
