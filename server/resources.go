package server

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// target is what a resource path names.
type target struct {
	endpoint                     *registry.Endpoint
	namespace, name, subresource string
}

// serveResource serves all verbs on all resources: it finds what the path names, what the method asks
// for, and calls the registry.
func (h *handler) serveResource(w *response, r *http.Request) error {
	return h.serveTarget(w, r, chi.URLParam(r, "resource"), target{
		namespace:   chi.URLParam(r, "namespace"),
		name:        chi.URLParam(r, "name"),
		subresource: chi.URLParam(r, "subresource"),
	})
}

// namespaceSubresource serves /namespaces/{name}/status, which looks like a type inside a namespace.
func (h *handler) namespaceSubresource(subresource string) http.HandlerFunc {
	return handle(func(w *response, r *http.Request) error {
		return h.serveTarget(w, r, "namespaces", target{name: chi.URLParam(r, "name"), subresource: subresource})
	})
}

func (h *handler) serveTarget(w *response, r *http.Request, plural string, t target) error {
	group := chi.URLParam(r, "group")
	if group == "" && strings.HasPrefix(r.URL.Path, "/apis/") {
		return errUnknownPath() // the core group lives under /api
	}
	e, err := h.registry.Lookup(r.Context(), group, chi.URLParam(r, "version"), plural)
	if err != nil {
		return err
	}
	t.endpoint = e.By(r.UserAgent())
	if e.Warning != "" {
		w.warn([]string{e.Warning})
	}
	if t.subresource != "" && !slices.Contains(e.Subresources, t.subresource) || !t.scopeFits() {
		return errUnknownPath()
	}
	watch, err := boolParameter(w.query, "watch")
	if err != nil {
		return err
	}
	verb := t.verb(r.Method, watch)
	w.endpoint, w.subresource, w.verb = e, t.subresource, metricVerb(verb, r.Method)
	if !slices.Contains(t.verbs(), verb) {
		return t.refuse(w, r.Method, verb)
	}
	switch verb {
	case "list", "deletecollection":
		return h.list(w, r, t)
	case "watch":
		return h.watch(w, r, t)
	}
	return h.object(w, r, t, verb)
}

// scopeFits reports whether the path has a namespace where the type has, and only there. A collection of
// a namespaced type can be addressed without: across all namespaces.
func (t target) scopeFits() bool {
	if !t.endpoint.Namespaced {
		return t.namespace == ""
	}
	return t.namespace != "" || t.name == ""
}

// verb is the API's word for a method on this target, or "".
func (t target) verb(method string, watch bool) string {
	collection := t.name == ""
	switch method {
	case http.MethodGet, http.MethodHead:
		switch {
		case watch && method == http.MethodHead:
			return "" // has no end whose headers could be told
		case watch && t.subresource == "":
			return "watch" // of one object, too: kube-apiserver takes it as a watch for its name
		case watch:
			return ""
		case collection:
			return "list"
		}
		return "get"
	case http.MethodPost:
		if collection {
			return "create"
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
	if t.subresource != "" {
		return subresourceVerbs(t.subresource)
	}
	return slices.DeleteFunc(slices.Clone(t.endpoint.Verbs), func(verb string) bool {
		switch verb {
		case "create":
			return t.name != "" || t.endpoint.Namespaced && t.namespace == ""
		case "list", "deletecollection":
			return t.name != ""
		case "get", "update", "patch", "delete":
			return t.name == ""
		}
		return false
	})
}

func subresourceVerbs(subresource string) []string {
	if subresource == "finalize" {
		return []string{"update"}
	}
	return []string{"get", "patch", "update"}
}

// methods maps verbs to HTTP's.
func methods(verbs []string) string {
	var all []string
	for _, verb := range verbs {
		method := map[string]string{"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}[verb]
		if method == "" {
			method = "GET"
		}
		all = append(all, method)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

func (t target) refuse(w *response, method, verb string) error {
	what := t.endpoint.Plural
	if t.endpoint.Group != "" {
		what += "." + t.endpoint.Group
	}
	switch {
	case verb == "deletecollection":
		return methodNotAllowed(w, methods(t.verbs()), "deletecollection is not supported on "+what+": delete the objects by name")
	case verb == "create" && t.endpoint.Namespaced && t.namespace == "":
		return methodNotAllowed(w, methods(t.verbs()), "create is not supported on "+what+" across namespaces: post to /namespaces/{namespace}/"+t.endpoint.Plural)
	case verb == "":
		return methodNotAllowed(w, methods(t.verbs()), quote(method)+" is not supported here on "+what)
	}
	return methodNotAllowed(w, methods(t.verbs()), verb+" is not supported here on "+what)
}

// list serves a list, and the deletion of what one shows, which answers with that list.
func (h *handler) list(w *response, r *http.Request, t target) error {
	media, form, err := negotiateForm(r.Header.Values("Accept"), acceptObject, listMetadata)
	if err != nil {
		return err
	}
	e, err := t.endpoint.In(form, w.query)
	if err != nil {
		return err
	}
	var list *registry.List
	if r.Method == http.MethodDelete {
		b, err := readBody(w, r, w.query.Get("fieldValidation"))
		if err != nil {
			return err
		}
		if list, err = e.DeleteCollection(r.Context(), t.namespace, w.query, b.data); err != nil {
			return err
		}
	} else if list, err = e.List(r.Context(), t.namespace, w.query); err != nil {
		return err
	}
	return w.writeStream(r, media, func(out io.Writer) error { return list.Write(r.Context(), out) })
}

// object serves the verbs on one object.
func (h *handler) object(w *response, r *http.Request, t target, verb string) error {
	media, form, err := negotiateForm(r.Header.Values("Accept"), acceptObject, oneMetadata)
	if err != nil {
		return err // before anything is written
	}
	e, err := t.endpoint.In(form, w.query)
	if err != nil {
		return err
	}
	var b body
	switch {
	case verb == "patch":
		b, err = readPatch(w, r, w.query.Get("fieldValidation"))
	case verb != "get":
		b, err = readBody(w, r, w.query.Get("fieldValidation"))
	}
	if err != nil {
		return err
	}
	ctx, code := r.Context(), http.StatusOK
	var res *registry.Result
	switch verb {
	case "get":
		res, err = e.Get(ctx, t.namespace, t.name, t.subresource, w.query)
	case "create":
		res, err = e.Create(ctx, t.namespace, w.query, b.data)
	case "update":
		res, err = e.Update(ctx, t.namespace, t.name, t.subresource, w.query, b.data)
	case "patch":
		res, err = e.Patch(ctx, t.namespace, t.name, t.subresource, b.mediaType, w.query, b.data)
	case "delete":
		res, err = e.Delete(ctx, t.namespace, t.name, w.query, b.data)
	default:
		return statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, verb+" is not served")
	}
	if err != nil {
		return err
	}
	if res.Created {
		code = http.StatusCreated
	}
	w.warn(append(b.warnings, res.Warnings...))
	if w.notModified(r, media, res.Tag) {
		return nil
	}
	w.writeObject(r, code, media, res.Object)
	return nil
}
