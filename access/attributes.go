package access

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// AttributesOf returns what a request asks for, without its user: a verb on a resource, or a method on another path. The
// path must be clean, so that its segments are what they look like.
//
// The rules are those of kube-apiserver's RequestInfo, which are about the path alone: a resource needn't exist. Besides
// them, a GET of one object with ?watch is a watch, because this server answers it with one. A path that says nothing, such
// as /api/v1/watch, is a resource request with no resource: only rules for everything allow it.
func AttributesOf(r *http.Request) *authorizer.AttributesRecord {
	a := &authorizer.AttributesRecord{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	group, version, rest, ok := splitResourcePath(r.URL.Path)
	if !ok {
		return a
	}
	a.ResourceRequest, a.APIGroup, a.APIVersion, a.Verb = true, group, version, verbOf(r.Method)
	if first, below, more := strings.Cut(rest, "/"); first == "watch" || first == "proxy" {
		if a.Verb, rest = first, below; !more {
			return a
		}
	}
	place(a, rest)
	switch {
	case a.Verb == "get" && a.Subresource == "":
		readQuery(a, r.URL.RawQuery)
	case a.Verb == "delete" && a.Name == "":
		a.Verb = "deletecollection"
		if r.URL.RawQuery != "" {
			query, _ := url.ParseQuery(r.URL.RawQuery)
			selectFields(a, query)
			selectLabels(a, query)
		}
	}
	return a
}

// WatchOf returns what a watch of a resource asks for, without its user and path, if it isn't asked by a path of Kubernetes: in a namespace, "" for
// all, and limited by the query's fieldSelector.
func WatchOf(of schema.GroupVersionResource, namespace string, query url.Values) *authorizer.AttributesRecord {
	a := &authorizer.AttributesRecord{ResourceRequest: true, Verb: "watch", APIGroup: of.Group, APIVersion: of.Version, Resource: of.Resource, Namespace: namespace}
	selectName(a, query)
	return a
}

// longSubresources are those whose requests last as long as the client wants, as for kube-apiserver.
var longSubresources = []string{"attach", "exec", "proxy", "log", "portforward"}

// LongRunning tells whether a request may last as long as its client wants.
func LongRunning(asks *authorizer.AttributesRecord) bool {
	if !asks.ResourceRequest && strings.HasPrefix(asks.Path, "/debug/pprof/") {
		return true
	}
	return asks.Verb == "watch" || asks.ResourceRequest && slices.Contains(longSubresources, asks.Subresource)
}

// fieldSelection is a field selector, as far as it says which values fields must have.
type fieldSelection interface {
	// Names returns the fields that it's about.
	Names() []string
	// Exact returns the value that a field must have for an object to be selected.
	Exact(name string) (value string, ok bool)
}

// selectFields notes which fields a list, a watch or a deletion is limited to, and returns the selector. One that doesn't parse is
// refused later. It must be parsed in the grammar in which the request is served: what limits in one may not do so in the other.
func selectFields(a *authorizer.AttributesRecord, query url.Values) fieldSelection {
	var s fieldSelection
	var err error
	if selectors.IsLite(query) {
		s, err = selectors.ParseExpression(query.Get("fieldSelector"))
	} else {
		s, err = selectors.ParseFields(query.Get("fieldSelector"))
	}
	if err != nil {
		return selectors.FieldSelector{}
	}
	for _, name := range s.Names() {
		if value, ok := s.Exact(name); ok {
			a.FieldSelectorRequirements = append(a.FieldSelectorRequirements, fields.Requirement{Field: name, Operator: selection.Equals, Value: value})
		}
	}
	selectOtherFields(a, query)
	return s
}

// selectOtherFields notes which values fields mustn't have, for webhooks, whose rules may be about that.
func selectOtherFields(a *authorizer.AttributesRecord, query url.Values) {
	text := query.Get("fieldSelector")
	if !strings.Contains(text, "!=") || selectors.IsLite(query) {
		return
	}
	s, err := fields.ParseSelector(text)
	if err != nil {
		return // the question is about more, then
	}
	for _, r := range s.Requirements() {
		if r.Operator == selection.NotEquals && !strings.ContainsAny(r.Field, " ()") { // otherwise it's of an operator that Kubernetes doesn't have
			a.FieldSelectorRequirements = append(a.FieldSelectorRequirements, r)
		}
	}
}

// splitResourcePath takes the group and the version off the path of a resource. ok is false for the path of anything else.
func splitResourcePath(path string) (group, version, rest string, ok bool) {
	rest, core := strings.CutPrefix(path, "/api/")
	if !core {
		if rest, ok = strings.CutPrefix(path, "/apis/"); !ok {
			return "", "", "", false
		}
		if group, rest, ok = strings.Cut(rest, "/"); !ok {
			return "", "", "", false
		}
	}
	version, rest, ok = strings.Cut(rest, "/")
	return group, version, rest, ok && rest != ""
}

// verbOf returns the verb of a method on a resource; "" for a method that is none of the API's.
func verbOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// place reads namespace, resource, name and subresource from what follows the version in a path. A namespace is in
// itself, so that whoever may get what is in it may be let get it, too.
func place(a *authorizer.AttributesRecord, rest string) {
	first, rest, _ := strings.Cut(rest, "/")
	if first == "namespaces" && rest != "" {
		namespace, below, _ := strings.Cut(rest, "/")
		a.Namespace = namespace
		if part, _, _ := strings.Cut(below, "/"); part != "" && part != "status" && part != "finalize" {
			first, rest, _ = strings.Cut(below, "/")
		}
	}
	a.Resource = first
	a.Name, rest, _ = strings.Cut(rest, "/")
	if a.Verb != "proxy" {
		a.Subresource, _, _ = strings.Cut(rest, "/")
	}
}

// readQuery makes a get what the query says: a list or a watch, and of one object if a field selector names it. Parameters
// that don't parse are refused later.
func readQuery(a *authorizer.AttributesRecord, raw string) {
	var query url.Values
	if raw != "" {
		query, _ = url.ParseQuery(raw)
	}
	watch := query.Has("watch") && !isFalse(query.Get("watch"))
	switch {
	case watch:
		a.Verb = "watch"
	case a.Name == "":
		a.Verb = "list"
	}
	if a.Name == "" {
		selectName(a, query)
	}
}

// NamesOne tells whether a path is that of one object, and no field selector names it.
func NamesOne(a *authorizer.AttributesRecord, path string) bool {
	return a.Name != "" && strings.Contains(path+"/", "/"+a.Resource+"/"+a.Name+"/")
}

// selectLabels notes what labels a list, a watch or a deletion is limited to, for webhooks, whose rules may be about that. What isn't Kubernetes'
// grammar limits nothing: the question is about more, then.
func selectLabels(a *authorizer.AttributesRecord, query url.Values) {
	text := query.Get("labelSelector")
	if text == "" || selectors.IsLite(query) {
		return
	}
	s, err := labels.Parse(text)
	if err != nil {
		a.LabelSelectorParsingErr = err
		return
	}
	a.LabelSelectorRequirements, _ = s.Requirements()
}

// selectName notes which labels and fields a list or a watch is limited to, and the one object that it's of if a field selector names it.
func selectName(a *authorizer.AttributesRecord, query url.Values) {
	selectLabels(a, query)
	if name, ok := selectFields(a, query).Exact("metadata.name"); ok && len(content.IsPathSegmentName(name)) == 0 {
		a.Name = name
	}
}

func isFalse(s string) bool { return s == "0" || strings.EqualFold(s, "false") }
