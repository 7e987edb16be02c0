package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/server/inflight"
	"github.com/apiserver-lite/apiserver-lite/server/metrics"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
)

// target is what a resource path names.
type target struct {
	endpoint *registry.Endpoint
	registry.Target
}

// serveResource serves all verbs on all resources: it finds what the path names, what the method asks
// for, and calls the registry.
func (h *handler) serveResource(w *response, r *http.Request) error {
	at, named := parameters(r)
	if at.Group == "" && strings.HasPrefix(r.URL.Path, "/apis/") {
		return errUnknownPath // the core group lives under /api
	}
	t, verb, err := h.find(w, r, at, named)
	if err != nil && registry.Presumes(r.Context()) { // the definition may have changed
		w.Header().Del("Allow") // find may have set it
		if r, err = h.freshened(r); err != nil {
			return err
		}
		t, verb, err = h.find(w, r, at, named)
	}
	if errors.Is(err, registry.ErrNoContent) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if (errors.Is(err, errUnknownPath) || errors.Is(err, registry.ErrNotServed)) && !h.routed(t, at.Group) {
		return noPage(w)
	}
	if err != nil {
		return err
	}
	switch verb {
	case "deletecollection":
		if r, err = h.freshened(r); err != nil {
			return err
		}
		return h.list(w, r, t)
	case "list":
		return h.list(w, r, t)
	case "watch":
		return h.watch(w, r, t)
	}
	return h.object(w, r, t, verb)
}

// routed tells whether Kubernetes has routes of its own for a target, or for a group where there's no such target. What has none is
// looked for among definitions, and leads to nothing then.
func (h *handler) routed(t target, group string) bool {
	if t.endpoint != nil {
		return t.endpoint.GoType()
	}
	return group == "" || h.hasTypes(group)
}

// parameters returns what the route has taken from a path.
func parameters(r *http.Request) (schema.GroupVersionResource, registry.Target) {
	at := schema.GroupVersionResource{
		Group:    chi.URLParam(r, "group"),
		Version:  chi.URLParam(r, "version"),
		Resource: chi.URLParam(r, "resource"),
	}
	named := registry.Target{
		Namespace:   chi.URLParam(r, "namespace"),
		Name:        chi.URLParam(r, "name"),
		Subresource: chi.URLParam(r, "subresource"),
	}
	if at.Resource == "" { // one of a namespace's own subresources
		at.Resource, named.Subresource = "namespaces", path.Base(r.URL.Path)
	}
	return at, named
}

// find finds what a path names and what is asked of it, or says why that isn't served.
func (h *handler) find(w *response, r *http.Request, at schema.GroupVersionResource, named registry.Target) (t target, verb string, err error) {
	e, err := h.registry.Lookup(r.Context(), at)
	if err != nil {
		return t, "", err
	}
	t = target{e, named}
	verb = t.verb(r.Method, reads.Flag(w.query, "watch"))
	if !t.scopeFits(verb) {
		return t, "", errUnknownPath
	}
	if t.Subresource != "" && !slices.Contains(e.Subresources, t.Subresource) {
		if !e.GoType() {
			return t, "", apierrors.NewNotFound(t.resource(), t.Name)
		}
		return t, "", h.absent(w, r, t)
	}
	w.endpoint, w.named, w.verb = e, t.Target, metrics.Verb(verb, r.Method)
	if !h.allowed(w, t, verb) {
		return t, "", errUnknownPath
	}
	if !slices.Contains(t.verbs(), verb) {
		return t, "", t.refuse(w, r, verb)
	}
	return t, verb, nil
}

// absent says why a subresource of a Go type isn't served: by what Kubernetes says of the object, if that's as true here.
func (h *handler) absent(w *response, r *http.Request, t target) error {
	absent := t.endpoint.Absent(t.Subresource)
	if absent == nil {
		return registry.ErrNotServed
	}
	if absent.Methods != nil && !slices.Contains(absent.Methods, r.Method) {
		w.Header().Set("Allow", strings.Join(absent.Methods, ", "))
		return errMethodNotAllowed()
	}
	if absent.Asked != nil {
		if err := absent.Asked(t.Name, w.query); err != nil {
			return err
		}
	}
	if absent.Creates {
		if err := h.mayConnect(r.Context(), w, t); err != nil {
			return err
		}
	}
	shown, err := reads.Of(t.endpoint).Get(r.Context(), &registry.Request{Target: registry.Target{Namespace: t.Namespace, Name: t.Name}})
	if err == nil && absent.Unreached != nil {
		err = absent.Unreached(w.query, shown.Object)
	}
	if err != nil {
		return err
	}
	return registry.AsKubernetes(http.StatusNotFound, metav1.StatusReasonNotFound, absent.Why)
}

// scopeFits reports whether the path has a namespace where the type has, and only there. A collection of
// a namespaced type can be read and deleted without: across all namespaces.
func (t target) scopeFits(verb string) bool {
	if !t.endpoint.Namespaced {
		return t.Namespace == ""
	}
	return t.Namespace != "" || t.Name == "" && (t.endpoint.GoType() || verb == "list" || verb == "watch" || verb == "deletecollection")
}

// verb is the API's word for a method on this target, or "".
func (t target) verb(method string, watch bool) string {
	collection := t.Name == ""
	switch method {
	case http.MethodGet, http.MethodHead:
		switch {
		case watch && method == http.MethodHead:
			return "" // has no end whose headers could be told
		case watch && t.Subresource == "":
			return "watch" // of one object, too: for kube-apiserver that is a get, which no client means by it
		case collection:
			return "list"
		}
		return "get"
	case http.MethodPost:
		if collection || t.Subresource == "" && !t.endpoint.GoType() || slices.Contains(t.endpoint.SubresourceVerbs(t.Subresource), "create") {
			return "create" // of a custom resource whatever the path names, as with kube-apiserver
		}
	case http.MethodPut:
		if !collection {
			return "update"
		}
	case http.MethodPatch:
		if !collection {
			return "patch"
		}
	case http.MethodDelete:
		if collection {
			return "deletecollection"
		}
		return "delete"
	}
	return ""
}

// verbs are those that can be used on this target.
func (t target) verbs() []string {
	if t.Subresource != "" {
		return t.endpoint.SubresourceVerbs(t.Subresource)
	}
	return slices.DeleteFunc(slices.Clone(t.endpoint.Verbs), func(verb string) bool {
		switch verb {
		case "create":
			return t.Name != "" && t.endpoint.GoType() || t.endpoint.Namespaced && t.Namespace == ""
		case "list", "deletecollection":
			return t.Name != ""
		case "get", "update", "patch", "delete":
			return t.Name == ""
		}
		return false
	})
}

// methods maps verbs to HTTP's.
func methods(verbs []string) string {
	var all []string
	for _, verb := range verbs {
		method := cmp.Or(map[string]string{"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}[verb], "GET")
		all = append(all, method)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

func (t target) resource() schema.GroupResource {
	return schema.GroupResource{Group: t.endpoint.Group, Resource: t.endpoint.Plural}
}

func (t target) refuse(w *response, r *http.Request, verb string) error {
	if t.endpoint.GoType() {
		return t.refuseGoType(w, r, verb)
	}
	t.warn(w, r)
	if t.Name == "" && (r.Method == http.MethodPut || r.Method == http.MethodPatch) {
		return apierrors.NewBadRequest("name must be provided")
	}
	w.Header().Set("Allow", methods(t.verbs()))
	if verb == "" {
		verb = access.AttributesOf(r).Verb
	}
	return apierrors.NewMethodNotSupported(t.resource(), verb)
}

// refuseGoType is refuse for Go types: Kubernetes has routes for their paths and methods, and a path without any verb isn't there.
func (t target) refuseGoType(w *response, r *http.Request, verb string) error {
	verbs := t.verbs()
	if verb == "watch" && slices.Contains(verbs, "list") { // by the list's route
		t.warn(w, r)
		return apierrors.NewMethodNotSupported(t.resource(), verb)
	}
	if len(verbs) == 0 {
		return registry.ErrNotServed
	}
	w.Header().Set("Allow", methods(verbs))
	return errMethodNotAllowed()
}

func errMethodNotAllowed() error {
	return registry.AsKubernetes(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource")
}

// warn says of a kind that it's deprecated, once it's certain that kube-apiserver has a route for such a request. For built-in kinds it has
// none for HEAD, and none for patches of other types.
func (t target) warn(w *response, r *http.Request) {
	if t.endpoint.Warning == "" || t.endpoint.GoType() && r.Method == http.MethodHead {
		return
	}
	if t.endpoint.GoType() && r.Method == http.MethodPatch {
		if media, err := contentType(r); err != nil || !slices.Contains(t.endpoint.PatchTypes(), types.PatchType(media)) {
			return
		}
	}
	w.warn([]string{t.endpoint.Warning})
}

// request is what a request asks of the target's endpoint, but for its body.
func (t target) request(w *response, r *http.Request, wanted form.Form) *registry.Request {
	return &registry.Request{Target: t.Target, Query: w.query, UserAgent: r.UserAgent(), Form: wanted}
}

// list serves a list, and the deletion of what one shows, which answers with that list.
func (h *handler) list(w *response, r *http.Request, t target) error {
	media, wanted, err := t.negotiateForm(r.Header.Values("Accept"), negotiation.Object, listMetadata)
	if err != nil {
		return t.unacceptableList(r, err)
	}
	t.warn(w, r)
	asked := t.request(w, r, wanted)
	var list *reads.List
	if r.Method == http.MethodDelete {
		b, err := readOptions(w, r, w.query.Get("fieldValidation"))
		if err != nil {
			return err
		}
		w.leaveSeat()
		if err := h.takeSeat(w, r, inflight.Write, collectionWrites); err != nil {
			return err
		}
		if err := w.enterSorting(r); err != nil {
			return err
		}
		w.auditRequest(b)
		asked.Body = b.data
		if list, err = writes.Of(t.endpoint).DeleteCollection(r.Context(), asked); err != nil {
			return err
		}
	} else if err := w.enterSorting(r); err != nil {
		return err
	} else if list, err = reads.Of(t.endpoint).List(r.Context(), asked); err != nil {
		return err
	}
	w.warn(list.Warnings)
	return w.writeList(r, media, list)
}

// object serves the verbs on one object.
func (h *handler) object(w *response, r *http.Request, t target, verb string) error {
	media, wanted, err := t.negotiateForm(r.Header.Values("Accept"), negotiation.Object, oneMetadata)
	if err != nil { // before anything is written
		return t.unacceptable(r, err)
	}
	t.warn(w, r)
	var b body
	switch {
	case verb == "patch":
		b, err = readPatch(w, r, w.query.Get("fieldValidation"))
	case verb == "delete":
		b, err = readOptions(w, r, w.query.Get("fieldValidation"))
	case verb != "get":
		b, err = readBody(w, r, w.query.Get("fieldValidation"))
	}
	if err != nil {
		return err
	}
	w.auditRequest(b)
	asked := t.request(w, r, wanted)
	asked.Body, asked.PatchType, asked.MayCreate = b.data, b.mediaType, h.mayCreate(w)
	if b.protobuf != nil {
		if err := writes.Of(t.endpoint).OpenProtobuf(asked, b.protobuf); err != nil {
			return err
		}
	}
	res, err := callVerb(r.Context(), t.endpoint, verb, asked)
	w.warn(append(b.warnings, res.Warnings...))
	if err != nil {
		return err
	}
	if w.notModified(r, media, res.Tag) {
		return nil
	}
	w.auditResponse(media, res.Object)
	code := http.StatusOK
	switch {
	case res.Created:
		code = http.StatusCreated
	case res.Accepted:
		code = http.StatusAccepted
	}
	return w.writeObject(r, code, media, res.Object)
}

// callVerb calls the registry for a verb on one object: one of those that serveResource lets through.
func callVerb(ctx context.Context, e *registry.Endpoint, verb string, r *registry.Request) (registry.Result, error) {
	switch verb {
	case "get":
		return reads.Of(e).Get(ctx, r)
	case "create":
		return writes.Of(e).Create(ctx, r)
	case "update":
		return writes.Of(e).Update(ctx, r)
	case "patch":
		return writes.Of(e).Patch(ctx, r)
	default: // delete
		return writes.Of(e).Delete(ctx, r)
	}
}
